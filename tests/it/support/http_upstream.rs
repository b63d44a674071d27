//! An MCP server behind a URL on loopback: records all it receives, and answers one gated request as it is told.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use gatewright::door::http::Unavailable;
use gatewright::host::endpoints::{Connected, Connects};
use gatewright::upstream::http::{HttpSettings, client, open};
use gatewright::wire::era::Era;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::upstream::Received;

/// What is answered in the place of a good result.
#[derive(Clone, Debug)]
pub(crate) struct Scripted {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) location: Option<String>,
    /// `@ID@` stands for the request's id.
    pub(crate) body: String,
    /// The connection is reset instead.
    pub(crate) reset: bool,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) received: Received,
    pub(crate) headers: HeaderMap,
}

#[derive(Clone)]
pub(crate) struct HttpUpstream {
    state: Arc<Mutex<Behind>>,
    settings: HttpSettings,
    client: reqwest::Client,
}

impl std::fmt::Debug for HttpUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HttpUpstream")
    }
}

#[derive(Default)]
struct Behind {
    tape: Vec<Posted>,
    script: Option<Scripted>,
}

impl HttpUpstream {
    pub(crate) async fn start(script: Option<Scripted>) -> Self {
        let state = Arc::new(Mutex::new(Behind {
            tape: Vec::new(),
            script,
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            state,
            settings: HttpSettings {
                url: url.parse().unwrap(),
                headers: HeaderMap::new(),
                message_bytes_max: 64 * 1024 * 1024,
            },
            client: client().unwrap(),
        }
    }

    /// The host sends this header with everything.
    pub(crate) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        let value = axum::http::HeaderValue::from_static(value);
        self.settings.headers.insert(name, value);
        self
    }

    /// Answers the next gated request so.
    pub(crate) fn answer_next_with(&self, script: Scripted) {
        self.state.lock().unwrap().script = Some(script);
    }

    /// What clients' requests left here: everything but the host's own listings.
    pub(crate) fn posted(&self) -> Vec<Posted> {
        let tape = self.state.lock().unwrap().tape.clone();
        tape.into_iter()
            .filter(|posted| {
                !posted.received.is_own_listing() && posted.received.method() != "notifications/initialized"
            })
            .collect()
    }
}

impl Connects for HttpUpstream {
    fn connect(&self, era: Era) -> Result<Connected, Unavailable> {
        Ok(Connected {
            link: open(self.client.clone(), self.settings.clone(), era),
            end: Box::pin(std::future::ready(())),
        })
    }

    fn ended(&self, _early: bool) {}
}

async fn answer(
    State(state): State<Arc<Mutex<Behind>>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let respond = |status: u16, content_type: &str, body: Body| {
        Response::builder()
            .status(status)
            .header("content-type", content_type)
            .body(body)
            .unwrap()
    };
    if method != Method::POST {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        return response;
    }
    let line = String::from_utf8(body.to_vec()).expect("the host sends UTF-8");
    let message: Value = serde_json::from_str(&line).expect("the host sends JSON");
    let received = Received { line, message };
    let own = received.is_own_listing();
    let id = received.message["id"].clone();
    let kind = received.method().to_owned();
    let stateless = headers
        .get("mcp-protocol-version")
        .is_some_and(|version| version == "2026-07-28");
    state.lock().unwrap().tape.push(Posted {
        received: received.clone(),
        headers,
    });
    if id.is_null() {
        return respond(202, "application/json", Body::empty());
    }
    let lifecycle = own || kind == "initialize" || kind == "server/discover";
    let script = if lifecycle {
        None
    } else {
        state.lock().unwrap().script.take()
    };
    if let Some(script) = script {
        if script.reset {
            // A body that breaks off: hyper closes the connection without its end.
            let broken = broken_body();
            return respond(200, "application/json", broken);
        }
        let body = script.body.replace("@ID@", &id.to_string());
        let mut response = respond(script.status, &script.content_type, Body::from(body));
        if let Some(location) = &script.location {
            response
                .headers_mut()
                .insert("location", location.parse().unwrap());
        }
        return response;
    }
    let mut result = match kind.as_str() {
        "initialize" => json!({
            "protocolVersion": received.message["params"]["protocolVersion"],
            "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}
        }),
        "tools/list" => json!({"tools": []}),
        _ => json!({"content": []}),
    };
    if stateless {
        result["resultType"] = json!("complete");
    }
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    respond(200, "application/json", Body::from(body))
}

/// A body that ends with an error after its first bytes.
fn broken_body() -> Body {
    struct Broken(bool);
    impl http_body::Body for Broken {
        type Data = Bytes;
        type Error = std::io::Error;
        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, std::io::Error>>> {
            if std::mem::replace(&mut self.0, true) {
                let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
                return std::task::Poll::Ready(Some(Err(reset)));
            }
            let begun = Bytes::from_static(b"{\"jsonrpc\":");
            std::task::Poll::Ready(Some(Ok(http_body::Frame::data(begun))))
        }
    }
    Body::new(Broken(false))
}
