//! The HTTP door: Streamable HTTP of the 2025 revisions and of 2026-07-28, for many clients.
//!
//! Each path is an endpoint with an upstream of its own. The door knows bytes, headers and streams; what a
//! message means is the session's to say, and with which upstream it speaks is the host's.

mod admit;
mod endpoint;
mod header;
mod post;
mod reply;
mod streams;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::{Router, routing::any};
use http_body::Body as _;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use admit::{AllowList, LOOPBACK_NAMES};
pub use endpoint::{Beginning, EndpointLimits, Running, Unavailable, Upstreams};

use crate::wire::era::STATELESS_REVISIONS;
use crate::wire::scan::ScanLimits;
use admit::{Accepts, accepts, is_json};
use endpoint::Endpoint;
use post::Post;
use reply::Watched;

/// Names a session of the 2025 revisions.
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Names the revision.
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Sessions that are over or idle are looked for this often.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// How long a connection that is closed for its faults may take to close.
const TLS_WITHIN: Duration = Duration::from_secs(10);

/// How long upstreams may take to end after the time to drain, and clients to be told what was not done.
const CLOSED_WITHIN: Duration = Duration::from_secs(3);

/// A client for whom there is no room now may try again after this long.
const BUSY: Duration = Duration::from_secs(1);

/// The limits and rules of a listener.
#[derive(Clone, Debug)]
pub struct ListenSettings {
    /// Who may be spoken to, and from which pages.
    pub allow: AllowList,
    /// Limits of one frame; a body is one frame.
    pub scan: ScanLimits,
    /// Connections that may be open at the same time; further ones wait.
    pub connections_max: usize,
    /// All headers of a request together, in bytes.
    pub header_bytes_max: usize,
    /// How long a client may take to send its headers, and again to send its body.
    pub read_within: Duration,
    /// How long open connections may take to end once the host stops.
    pub drain_within: Duration,
    /// The certificate and its key; none for plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

/// The endpoints and the rules for who may speak to them.
#[derive(Debug)]
pub struct HttpDoor {
    settings: Arc<ListenSettings>,
    endpoints: HashMap<String, Arc<Endpoint>>,
    router: Router,
    stop: CancellationToken,
}

/// What is open at one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointCounts {
    /// Its path.
    pub path: String,
    /// Sessions of the 2025 revisions.
    pub sessions: usize,
    /// Streams, of requests and of GET.
    pub streams: usize,
}

/// What every request to one endpoint needs.
#[derive(Clone)]
struct Shared {
    endpoint: Arc<Endpoint>,
    settings: Arc<ListenSettings>,
    stop: CancellationToken,
}

impl HttpDoor {
    /// A door with these endpoints: paths, each with what it guards. It closes with `stop`.
    #[must_use]
    pub fn new(
        settings: ListenSettings,
        endpoints: Vec<(String, Arc<dyn Upstreams>, EndpointLimits)>,
        stop: CancellationToken,
    ) -> Self {
        let settings = Arc::new(settings);
        let endpoints: HashMap<_, _> = endpoints
            .into_iter()
            .map(|(path, upstreams, limits)| (path, Arc::new(Endpoint::new(upstreams, limits))))
            .collect();
        let router = router(&settings, &endpoints, &stop);
        Self {
            settings,
            endpoints,
            router,
            stop,
        }
    }

    /// Serves until the host stops, and then until what runs is done or the time for that is over.
    pub async fn serve(&self, listener: TcpListener) {
        let (connections, places) = (
            TaskTracker::new(),
            Arc::new(Semaphore::new(self.settings.connections_max)),
        );
        let mut sweeps = interval(SWEEP_EVERY);
        loop {
            let place = tokio::select! {
                // The stop comes first, so that nobody is let in after it.
                biased;
                () = self.stop.cancelled() => break,
                _now = sweeps.tick() => {
                    self.endpoints.values().for_each(|endpoint| endpoint.forget_ended());
                    continue;
                }
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let accepted = loop {
                tokio::select! {
                    biased;
                    () = self.stop.cancelled() => break None,
                    _now = sweeps.tick() => {
                        self.endpoints.values().for_each(|endpoint| endpoint.forget_ended());
                    }
                    accepted = listener.accept() => break Some(accepted),
                }
            };
            let stream = match accepted {
                None => break,
                Some(Ok((stream, _))) => stream,
                Some(Err(error)) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    // Out of descriptors, most likely: some must be given back before the next.
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            // Small messages back and forth: nothing is won by waiting for more.
            let _only_slower = stream.set_nodelay(true);
            let connection = self.connection(stream);
            connections.spawn(async move {
                let _place = place;
                connection.await;
            });
        }
        drop(listener);
        connections.close();
        let over = async {
            self.close().await;
            connections.wait().await;
        };
        let within = self.settings.drain_within + CLOSED_WITHIN;
        if timeout(within, over).await.is_err() {
            tracing::warn!("connections were still open when the gate ended");
        }
    }

    /// What is open now, for each endpoint in the order of its path.
    #[must_use]
    pub fn counts(&self) -> Vec<EndpointCounts> {
        let mut counts: Vec<EndpointCounts> = self
            .endpoints
            .iter()
            .map(|(path, endpoint)| {
                let (sessions, streams) = endpoint.counts();
                EndpointCounts {
                    path: path.clone(),
                    sessions,
                    streams,
                }
            })
            .collect();
        counts.sort_by(|one, other| one.path.cmp(&other.path));
        counts
    }

    /// Ends every conversation, and waits until they are over.
    pub async fn close(&self) {
        for endpoint in self.endpoints.values() {
            endpoint.close().await;
        }
    }

    /// Serves one connection until it ends, or the host stops and its requests are done.
    pub fn connection<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, settings, stop) = (self.router.clone(), Arc::clone(&self.settings), self.stop.clone());
        async move {
            match settings.tls.clone().map(TlsAcceptor::from) {
                None => connection(stream, router, &settings, &stop).await,
                Some(tls) => match timeout(TLS_WITHIN, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection(stream, router, &settings, &stop).await,
                    Ok(Err(error)) => tracing::debug!(%error, "no TLS with a client"),
                    Err(_elapsed) => tracing::debug!("no TLS with a client: it took too long"),
                },
            }
        }
    }
}

fn router(
    settings: &Arc<ListenSettings>,
    endpoints: &HashMap<String, Arc<Endpoint>>,
    stop: &CancellationToken,
) -> Router {
    let mut router = Router::new();
    for (path, endpoint) in endpoints {
        let shared = Shared {
            endpoint: Arc::clone(endpoint),
            settings: Arc::clone(settings),
            stop: stop.clone(),
        };
        router = router.route(path, any(handle).with_state(shared));
    }
    router.fallback(|| async {
        reply::json(
            StatusCode::NOT_FOUND,
            "{\"error\":\"no endpoint of this gate has this path\"}".into(),
        )
    })
}

/// One connection, until it ends or the host stops and its requests are done.
async fn connection<S>(stream: S, router: Router, settings: &ListenSettings, stop: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.read_within)
        .max_buf_size(settings.header_bytes_max.max(hyper_buffer_min()))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        // Order does not matter: a connection that ends now needs no grace.
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
}

/// The smallest buffer that hyper takes.
const fn hyper_buffer_min() -> usize {
    8192
}

/// One request, in the order of ruling R20.
async fn handle(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let Shared {
        endpoint,
        settings,
        stop,
    } = shared;
    let (parts, body) = request.into_parts();
    let revision = header::revision(&parts.headers);
    let header_bytes: usize = parts
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if settings.header_bytes_max < header_bytes {
        let message = format!(
            "all headers together may have {} bytes",
            settings.header_bytes_max
        );
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return reply::error(status, revision, None, -32600, &message);
    }
    if let Err(away) = settings.allow.check(&parts.uri, &parts.headers) {
        return reply::error(away.status, revision, None, -32600, away.why);
    }
    if stop.is_cancelled() {
        return reply::error(
            StatusCode::SERVICE_UNAVAILABLE,
            revision,
            None,
            -32603,
            "the gate is stopping",
        );
    }
    let accepts = accepts(&parts.headers);
    match parts.method {
        Method::POST => {
            if !accepts.json && !accepts.events {
                let message = "`Accept` must list application/json and text/event-stream";
                return reply::error(StatusCode::NOT_ACCEPTABLE, revision, None, -32600, message);
            }
            let body = match read(&parts.headers, body, &settings).await {
                Ok(body) => body,
                Err(response) => return *response,
            };
            let post = Post {
                endpoint: &endpoint,
                headers: &parts.headers,
                accepts,
                principal: None,
                revision,
            };
            post.answer(body, &settings.scan).await
        }
        Method::GET => unasked(&endpoint, &parts.headers, accepts),
        Method::DELETE => delete(&endpoint, &parts.headers),
        _ => reply::not_allowed("GET, POST, DELETE"),
    }
}

/// The body, within its limits of form, size and time.
async fn read(
    headers: &HeaderMap,
    body: Body,
    settings: &ListenSettings,
) -> Result<bytes::Bytes, Box<Response<Body>>> {
    let revision = header::revision(headers);
    let refused = |status, message: &str| Box::new(reply::error(status, revision, None, -32600, message));
    if !is_json(headers) {
        let message = "`Content-Type` must be application/json";
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let max = settings.scan.frame_bytes_max;
    let too_long = || {
        let message = format!("the frame is longer than {max} bytes");
        refused(StatusCode::PAYLOAD_TOO_LARGE, &message)
    };
    // One that says so is not read at all.
    if u64::try_from(max).unwrap_or(u64::MAX) < body.size_hint().lower() {
        return Err(too_long());
    }
    match timeout(settings.read_within, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(_broken)) => Err(refused(StatusCode::BAD_REQUEST, "the body broke off")),
        Err(_elapsed) => Err(refused(StatusCode::REQUEST_TIMEOUT, "the body took too long")),
    }
}

/// GET opens the stream for what belongs to no request.
fn unasked(endpoint: &Endpoint, headers: &HeaderMap, accepts: Accepts) -> Response<Body> {
    if is_stateless(headers) {
        return reply::not_allowed("POST");
    }
    if !accepts.events {
        let message = "`Accept` must list text/event-stream";
        return reply::error(
            StatusCode::NOT_ACCEPTABLE,
            header::revision(headers),
            None,
            -32600,
            message,
        );
    }
    match header::text(headers, &SESSION_ID) {
        None => reply::not_allowed("POST"),
        Some(id) => match endpoint.session(id, None) {
            Some(conversation) => match conversation.streams.unasked() {
                Ok(stream) => reply::events(None, Watched { stream, gone: None }),
                Err(_too_many) => {
                    let message = "all streams of this session are open; wait for answers";
                    reply::unavailable(None, header::revision(headers), message, BUSY)
                }
            },
            None => no_such_session(headers),
        },
    }
}

/// DELETE ends a session.
fn delete(endpoint: &Endpoint, headers: &HeaderMap) -> Response<Body> {
    if is_stateless(headers) {
        return reply::not_allowed("POST");
    }
    match header::text(headers, &SESSION_ID) {
        None => reply::error(
            StatusCode::BAD_REQUEST,
            header::revision(headers),
            None,
            -32600,
            "`Mcp-Session-Id` is missing",
        ),
        Some(id) if endpoint.end_named(id, None) => reply::empty(StatusCode::NO_CONTENT),
        Some(_) => no_such_session(headers),
    }
}

fn no_such_session(headers: &HeaderMap) -> Response<Body> {
    let message = "there is no such session; send `initialize` again";
    reply::error(
        StatusCode::NOT_FOUND,
        header::revision(headers),
        None,
        -32600,
        message,
    )
}

fn is_stateless(headers: &HeaderMap) -> bool {
    header::text(headers, &PROTOCOL_VERSION).is_some_and(|version| STATELESS_REVISIONS.contains(&version))
}
