//! POST: one message of a client, admitted in the order of ruling R20, and what comes of it.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode};
use bytes::Bytes;
use tokio::time::timeout;

use super::admit::Accepts;
use super::endpoint::{Conversation, Endpoint, Unavailable};
use super::reply::{self, KEEP_ALIVE_AFTER, Watched};
use super::streams::{Event, NoStream, Stream};
use super::{BUSY, PROTOCOL_VERSION, SESSION_ID, header};
use crate::session::{Envelope, Exchange, Source};
use crate::vocabulary::{Principal, RandomId};
use crate::wire::era::{Era, HANDSHAKE_REVISIONS, STATELESS_REVISIONS};
use crate::wire::frame::{ClientFrame, Request, read_client};
use crate::wire::id::RequestId;
use crate::wire::mirror;
use crate::wire::object;
use crate::wire::scan::ScanLimits;

/// What came with a POST beside its body.
pub(super) struct Post<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) headers: &'a HeaderMap,
    pub(super) accepts: Accepts,
    pub(super) principal: Option<Principal>,
    /// The revision that the request is written in, empty as long as it is not known.
    pub(super) revision: &'static str,
}

/// Why a POST goes no further.
type Refused = Box<Response<Body>>;

impl Post<'_> {
    /// Takes the body and answers.
    pub(super) async fn answer(mut self, body: Bytes, limits: &ScanLimits) -> Response<Body> {
        let frame = match read_client(body, limits) {
            Ok(Some(frame)) => frame,
            Ok(None) => {
                return *self.bad_request(None, -32700, "the body holds no message");
            }
            Err(error) => {
                return *self.bad_request(error.id.as_ref(), error.code, &error.detail);
            }
        };
        let done = match self.era(&frame) {
            Era::Stateless => {
                self.revision = STATELESS_REVISIONS.first().copied().unwrap_or_default();
                self.stateless(frame).await
            }
            Era::Handshake => self.handshake(frame).await,
        };
        done.unwrap_or_else(|refused| *refused)
    }

    /// The era is said by the version header. Else a session is one of the 2025 revisions, and outside of one a
    /// request that names its revision is held to the rules of that.
    fn era(&self, frame: &ClientFrame) -> Era {
        let versions = header::values(self.headers, &PROTOCOL_VERSION);
        let is_stateless = |value: &[u8]| {
            STATELESS_REVISIONS
                .iter()
                .any(|revision| revision.as_bytes() == value)
        };
        if versions.iter().any(|value| is_stateless(value)) {
            return Era::Stateless;
        }
        let in_session = self.headers.contains_key(&SESSION_ID);
        match frame {
            ClientFrame::Request(request) if !in_session && names_its_revision(request) => Era::Stateless,
            ClientFrame::Request(_) | ClientFrame::Notification(_) | ClientFrame::Response(_) => {
                Era::Handshake
            }
        }
    }

    async fn stateless(self, frame: ClientFrame) -> Result<Response<Body>, Refused> {
        let request = match frame {
            ClientFrame::Request(request) => request,
            // None of this era's notifications is sent over HTTP: a closed stream is the cancellation.
            ClientFrame::Notification(_) => return Ok(reply::empty(StatusCode::ACCEPTED)),
            ClientFrame::Response(response) => {
                let message = "revision 2026-07-28 has no responses from the client";
                return Err(self.bad_request(response.id(), -32600, message));
            }
        };
        self.check_headers(Era::Stateless, &request)?;
        let conversation = self
            .endpoint
            .shared()
            .await
            .map_err(|unavailable| Box::new(unavailable_for(&request, &unavailable)))?;
        let post = self.endpoint.next_post();
        self.exchange(Era::Stateless, &conversation, request, post).await
    }

    async fn handshake(self, frame: ClientFrame) -> Result<Response<Body>, Refused> {
        let named = header::values(self.headers, &SESSION_ID);
        let id = match named.as_slice() {
            [] => None,
            [one] => Some(std::str::from_utf8(one).unwrap_or_default().to_owned()),
            _ => {
                return Err(self.bad_request(None, -32600, "there is more than one `Mcp-Session-Id`"));
            }
        };
        match (id, frame) {
            (None, ClientFrame::Request(request)) if request.method() == "initialize" => {
                self.check_headers(Era::Handshake, &request)?;
                self.initialize(request).await
            }
            (None, frame) => {
                let message = "`Mcp-Session-Id` is missing; send `initialize` first, and then the id that came with its answer";
                Err(self.bad_request(request_id(&frame), -32600, message))
            }
            (Some(id), frame) => {
                let conversation = self
                    .endpoint
                    .session(&id, self.principal.as_ref())
                    .ok_or_else(|| {
                        let message = "there is no such session; send `initialize` again";
                        Box::new(reply::error(
                            StatusCode::NOT_FOUND,
                            self.revision,
                            request_id(&frame),
                            -32600,
                            message,
                        ))
                    })?;
                self.in_session(&conversation, frame).await
            }
        }
    }

    async fn in_session(
        self,
        conversation: &Arc<Conversation>,
        frame: ClientFrame,
    ) -> Result<Response<Body>, Refused> {
        match frame {
            ClientFrame::Request(request) => {
                self.check_headers(Era::Handshake, &request)?;
                self.exchange(Era::Handshake, conversation, request, 0).await
            }
            frame @ (ClientFrame::Notification(_) | ClientFrame::Response(_)) => {
                self.check_version(None)?;
                // In a task of its own, so that a client that goes away now takes nothing back.
                let session = Arc::clone(&conversation.running.session);
                let taken = tokio::spawn(async move { session.take(frame, Envelope::default()).await });
                let _taken = taken.await;
                Ok(reply::empty(StatusCode::ACCEPTED))
            }
        }
    }

    /// Begins a session. Its id is valid as soon as the client has it.
    async fn initialize(self, request: Request) -> Result<Response<Body>, Refused> {
        let begun = self.endpoint.begin(self.principal.clone()).await;
        let (id, conversation) =
            begun.map_err(|unavailable| Box::new(unavailable_for(&request, &unavailable)))?;
        let endpoint = self.endpoint;
        let abandoned = Abandoned {
            endpoint,
            id: Some(id),
        };
        let exchange = Exchange {
            post: 0,
            id: request.id().clone(),
        };
        let (first, stream) = self
            .first(Era::Handshake, &conversation, request, exchange)
            .await?;
        if let Some(Event::Answer(line, _)) = &first
            && std::str::from_utf8(line).is_ok_and(|text| object::member(text, "result").is_none())
        {
            // No session came of it.
            drop(abandoned);
            return Ok(self.respond(Era::Handshake, first, stream));
        }
        let mut response = self.respond(Era::Handshake, first, stream);
        let value = id
            .to_string()
            .parse()
            .map_err(|_| self.bad_request(None, -32603, "the session's id is no header value"))?;
        response.headers_mut().insert(SESSION_ID, value);
        abandoned.keep();
        Ok(response)
    }

    /// A request and its answer.
    async fn exchange(
        self,
        era: Era,
        conversation: &Arc<Conversation>,
        request: Request,
        post: u64,
    ) -> Result<Response<Body>, Refused> {
        let exchange = Exchange {
            post,
            id: request.id().clone(),
        };
        let (first, stream) = self.first(era, conversation, request, exchange).await?;
        Ok(self.respond(era, first, stream))
    }

    /// Hands the request to the session, and waits for the first thing that comes back. None when a stream has to
    /// be opened to show that somebody still works, or when the exchange is over without an answer.
    async fn first(
        &self,
        era: Era,
        conversation: &Arc<Conversation>,
        request: Request,
        exchange: Exchange,
    ) -> Result<(Option<Event>, Watched), Refused> {
        let id = request.id().clone();
        let stream = conversation
            .streams
            .exchange(&exchange, !self.accepts.events)
            .map_err(|no_stream| match no_stream {
                NoStream::SameId => {
                    self.bad_request(Some(&id), -32600, "a request with this id is still in flight")
                }
                NoStream::TooMany(max) => {
                    let message = format!("{max} streams of this session are open; wait for answers");
                    Box::new(reply::unavailable(Some(&id), self.revision, &message, BUSY))
                }
            })?;
        let mut watched = watched(era, conversation, stream);
        let envelope = Envelope {
            post: exchange.post,
            answer_only: !self.accepts.events,
            principal: self.principal.clone(),
            mirrored: (era == Era::Stateless).then(|| self.mirrored()),
        };
        let session = Arc::clone(&conversation.running.session);
        tokio::spawn(async move { session.take(ClientFrame::Request(request), envelope).await });
        let first = if self.accepts.events {
            timeout(KEEP_ALIVE_AFTER, watched.stream.next())
                .await
                .unwrap_or(None)
        } else {
            watched.stream.next().await
        };
        Ok((first, watched))
    }

    /// The headers that repeat arguments.
    fn mirrored(&self) -> Vec<(String, Vec<u8>)> {
        let prefix = mirror::PARAM_PREFIX.to_ascii_lowercase();
        self.headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with(&prefix))
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect()
    }

    /// An answer that came first is one JSON text, unless the upstream gave it as an event; everything else makes a
    /// stream of events.
    fn respond(&self, era: Era, first: Option<Event>, stream: Watched) -> Response<Body> {
        let as_event = |source| self.accepts.events && (source == Source::Event || !self.accepts.json);
        match first {
            Some(Event::Answer(line, source)) if !as_event(source) => {
                reply::json(reply::status(era, &line, source), line)
            }
            Some(Event::Long(pieces, source)) if !as_event(source) => reply::json_in_pieces(pieces),
            first => reply::events(first, stream),
        }
    }

    fn bad_request(&self, id: Option<&RequestId>, code: i64, message: &str) -> Refused {
        Box::new(reply::error(
            StatusCode::BAD_REQUEST,
            self.revision,
            id,
            code,
            message,
        ))
    }

    /// The headers that repeat the body (ruling R17). `initialize` says its revision in the body only.
    fn check_headers(&self, era: Era, request: &Request) -> Result<(), Refused> {
        if era == Era::Handshake && request.method() != "initialize" {
            self.check_version(Some(request.id()))?;
        }
        let values = |name: &str| {
            header::named(self.headers, name)
                .into_iter()
                .map(<[u8]>::to_vec)
                .collect()
        };
        mirror::check(era, request.method(), request.params().unwrap_or("{}"), values).map_err(|mismatch| {
            self.bad_request(Some(request.id()), mirror::HEADER_MISMATCH, &mismatch.to_string())
        })
    }

    /// In a session, the version header may be missing, and must name a revision that has sessions.
    fn check_version(&self, id: Option<&RequestId>) -> Result<(), Refused> {
        let versions = header::values(self.headers, &PROTOCOL_VERSION);
        let supported = |value: &[u8]| HANDSHAKE_REVISIONS.iter().any(|known| known.as_bytes() == value);
        match versions.as_slice() {
            [] => Ok(()),
            [one] if supported(one) => Ok(()),
            [_] => {
                let message = format!(
                    "`MCP-Protocol-Version` names no revision of this session; known are {}",
                    HANDSHAKE_REVISIONS.join(", ")
                );
                Err(self.bad_request(id, -32600, &message))
            }
            _ => Err(self.bad_request(id, -32600, "there is more than one `MCP-Protocol-Version`")),
        }
    }
}

/// Ends a session that was begun for a client who never got its id.
struct Abandoned<'a> {
    endpoint: &'a Endpoint,
    id: Option<RandomId>,
}

impl Abandoned<'_> {
    fn keep(mut self) {
        self.id = None;
    }
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.endpoint.end(id);
        }
    }
}

/// A stream whose early end is told to the session.
fn watched(era: Era, conversation: &Arc<Conversation>, stream: Stream) -> Watched {
    let session = Arc::clone(&conversation.running.session);
    let gone = move |stream: &Stream| {
        let Some(exchange) = stream.belongs_to().cloned() else {
            return;
        };
        tracing::debug!(?era, "a client closed a stream before its end");
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { session.unreachable(&exchange).await });
        }
    };
    Watched {
        stream,
        gone: Some(Box::new(gone)),
    }
}

fn names_its_revision(request: &Request) -> bool {
    let meta = request
        .params()
        .and_then(|params| object::member(params, "_meta"))
        .unwrap_or("{}");
    object::member(meta, "io.modelcontextprotocol/protocolVersion").is_some()
}

fn request_id(frame: &ClientFrame) -> Option<&RequestId> {
    match frame {
        ClientFrame::Request(request) => Some(request.id()),
        ClientFrame::Notification(_) | ClientFrame::Response(_) => None,
    }
}

fn unavailable_for(request: &Request, unavailable: &Unavailable) -> Response<Body> {
    reply::unavailable(Some(request.id()), "", &unavailable.why, unavailable.after)
}
