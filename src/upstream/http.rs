//! An MCP server behind an HTTP URL.
//!
//! Each request of this host is a POST of its own, whose answer is one JSON text or a stream of events; so each
//! message says to which request it belongs. Headers are made here from the body, never taken from a client, and
//! the only credential that is sent is the configured one. Redirects are not followed.

mod exchange;
mod pieces;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, Url};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Incoming, Link, Outgoing, UpstreamFault};
use crate::wire::era::Era;
use crate::wire::{mirror, object};
use exchange::Exchange;

/// How long the upstream may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// How long it may take to take a notification.
const TAKEN_WITHIN: Duration = Duration::from_secs(30);

/// How long it may take to end a session that nobody needs any more.
const ENDED_WITHIN: Duration = Duration::from_secs(2);

/// Where the upstream is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Its URL.
    pub url: Url,
    /// Headers that are sent with everything: the configured credential.
    pub headers: HeaderMap,
    /// The longest message taken from it, in bytes.
    pub message_bytes_max: usize,
}

/// No client for HTTP can be made.
#[derive(Debug, thiserror::Error)]
#[error("no HTTP client: {0}")]
pub struct NoClient(reqwest::Error);

/// Makes the client that every link of one endpoint shares.
///
/// # Errors
///
/// When TLS cannot be set up.
pub fn client() -> Result<Client, NoClient> {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(CONNECT_WITHIN)
        .build()
        .map_err(NoClient)
}

/// A link to the upstream. It ends, and its session there with it, when its sender is dropped.
#[must_use]
pub fn open(client: Client, settings: HttpSettings, era: Era) -> Link {
    let (mut link, messages, incoming, ending) = Link::in_memory();
    link.labelled = true;
    let connection = Arc::new(Connection {
        client,
        settings,
        era,
        incoming,
        handshake: Mutex::default(),
        lost: CancellationToken::new(),
    });
    tokio::spawn(async move {
        let how = connection.run(messages).await;
        let _nobody_asks = ending.send(how);
    });
    link
}

/// What the upstream said at the start of its session.
#[derive(Clone, Debug, Default)]
struct Handshake {
    session: Option<HeaderValue>,
    revision: Option<HeaderValue>,
}

/// One link, and what all its requests share.
#[derive(Debug)]
struct Connection {
    client: Client,
    settings: HttpSettings,
    era: Era,
    incoming: mpsc::Sender<Incoming>,
    handshake: Mutex<Handshake>,
    /// Cancelled when the upstream no longer knows the session.
    lost: CancellationToken,
}

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

impl Connection {
    /// Sends what there is to send until the link is closed or the session is lost; then says why.
    async fn run(self: &Arc<Self>, mut messages: mpsc::Receiver<Outgoing>) -> String {
        let mut tasks = JoinSet::new();
        let mut running: HashMap<u64, AbortHandle> = HashMap::new();
        let why = loop {
            let message = tokio::select! {
                // A lost session comes first: what is sent after it reaches nobody.
                biased;
                () = self.lost.cancelled() => break "the upstream server no longer knows this session".to_owned(),
                Some(_ended) = tasks.join_next() => {
                    running.retain(|_, task| !task.is_finished());
                    continue;
                }
                message = messages.recv() => message,
            };
            match message {
                Some(Outgoing::Request { id, line, tool_json }) => {
                    let exchange = Exchange::new(Arc::clone(self), id);
                    running.insert(id, tasks.spawn(exchange.run(line, tool_json)));
                }
                // In this era the end of the stream is the cancellation.
                Some(Outgoing::Cancellation { id, .. }) if self.era == Era::Stateless => {
                    if let Some(task) = running.remove(&id) {
                        task.abort();
                    }
                }
                Some(Outgoing::Cancellation { line, .. } | Outgoing::Other(line)) => {
                    let initialized = is_initialized(&line);
                    self.tell(line).await;
                    if initialized {
                        let connection = Arc::clone(self);
                        tasks.spawn(async move { exchange::unasked(&connection).await });
                    }
                }
                None => break "the connection was closed".to_owned(),
            }
        };
        tasks.shutdown().await;
        self.end_session().await;
        why
    }

    /// Sends a notification or a response. Nothing waits for its fate, but what follows it waits until it is taken.
    async fn tell(&self, line: Bytes) {
        let request = self.post(line, &[]);
        let sent = tokio::select! {
            // Order does not matter: a session that is lost ends everything anyway.
            sent = timeout(TAKEN_WITHIN, request.send()) => sent,
            () = self.lost.cancelled() => return,
        };
        match sent {
            Ok(Ok(response)) if response.status().is_success() => {}
            Ok(Ok(response)) => {
                tracing::warn!(
                    status = response.status().as_u16(),
                    "the upstream did not take a notification"
                );
            }
            Ok(Err(error)) => tracing::warn!(error = %described(&error), "the upstream cannot be reached"),
            Err(_elapsed) => tracing::warn!("the upstream took too long to take a notification"),
        }
    }

    async fn end_session(&self) {
        let handshake = self.handshake();
        if handshake.session.is_some() && !self.lost.is_cancelled() {
            let request = self.request(Method::DELETE);
            let _best_effort = timeout(ENDED_WITHIN, request.send()).await;
        }
    }

    fn handshake(&self) -> Handshake {
        self.handshake
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A request with the headers that everything has.
    fn request(&self, method: Method) -> RequestBuilder {
        let mut headers = self.settings.headers.clone();
        let handshake = self.handshake();
        if let Some(session) = handshake.session {
            headers.insert(SESSION_ID, session);
        }
        if let Some(revision) = handshake.revision {
            headers.insert(PROTOCOL_VERSION, revision);
        }
        self.client
            .request(method, self.settings.url.clone())
            .headers(headers)
    }

    fn post(&self, mut line: Bytes, mirrored: &[(String, String)]) -> RequestBuilder {
        if line.ends_with(b"\n") {
            line.truncate(line.len() - 1);
        }
        let mut request = self
            .request(Method::POST)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(
                ACCEPT,
                HeaderValue::from_static("application/json, text/event-stream"),
            );
        for (name, value) in mirrored {
            request = request.header(name.as_str(), value.as_str());
        }
        request.body(line)
    }

    /// The headers that repeat the body of a request of this era.
    fn mirrored(&self, line: &[u8], tool_json: &str) -> Vec<(String, String)> {
        let text = std::str::from_utf8(line).unwrap_or_default();
        let method = object::member(text, "method").and_then(object::text);
        match (self.era, method) {
            (Era::Stateless, Some(method)) => {
                mirror::headers(&method, object::member(text, "params").unwrap_or("{}"), tool_json)
            }
            (Era::Stateless, None) | (Era::Handshake, _) => Vec::new(),
        }
    }

    async fn deliver(&self, incoming: Incoming) {
        let _session_is_over = self.incoming.send(incoming).await;
    }

    async fn failed(&self, id: u64, fault: UpstreamFault) {
        self.deliver(Incoming::Failed(id, fault)).await;
    }
}

fn is_initialized(line: &[u8]) -> bool {
    let text = std::str::from_utf8(line).unwrap_or_default();
    object::member(text, "method").and_then(object::text).as_deref() == Some("notifications/initialized")
}

/// An error and its causes, without the URL, which may carry what is nobody's business.
fn described(error: &reqwest::Error) -> String {
    let mut words = Vec::new();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words.push(cause.to_string());
        source = cause.source();
    }
    if words.is_empty() {
        words.push("the request failed".to_owned());
    }
    words.join(": ")
}
