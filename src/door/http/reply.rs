//! What goes back over HTTP: one JSON text, or a stream of events.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use axum::http::{Response, StatusCode};
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use super::streams::{Event, Stream};
use crate::session::Source;
use crate::wire::era::Era;
use crate::wire::id::RequestId;
use crate::wire::long_answer::Piece;
use crate::wire::{object, refusal};

/// A comment goes out on a stream that has been silent for this long (ruling R33).
pub(super) const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(15);

const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

const EVENT_START: &[u8] = b"event: message\ndata: ";
const EVENT_END: &[u8] = b"\n\n";

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// Keeps proxies from holding events back.
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// One JSON text; the line's own end is left off.
pub(super) fn json(status: StatusCode, mut line: Bytes) -> Response<Body> {
    if line.ends_with(b"\n") {
        line.truncate(line.len() - 1);
    }
    let mut response = Response::new(Body::from(line));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A JSON-RPC error under an HTTP status. `revision` is the one that the request is written in, empty when it is
/// not known: it says whether an error without an id may leave it out (ruling R2).
pub(super) fn error(
    status: StatusCode,
    revision: &str,
    id: Option<&RequestId>,
    code: i64,
    message: &str,
) -> Response<Body> {
    json(status, refusal::error(id, revision, code, message, None))
}

/// Nothing but a status.
pub(super) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The method is none of these.
pub(super) fn not_allowed(allowed: &'static str) -> Response<Body> {
    let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
    response
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// There is no room or no upstream now; try again after this long.
pub(super) fn unavailable(
    id: Option<&RequestId>,
    revision: &str,
    message: &str,
    after: Duration,
) -> Response<Body> {
    let data = Some(r#"{"code":"upstream_unavailable"}"#);
    let line = refusal::error(id, revision, -32603, message, data);
    let mut response = json(StatusCode::SERVICE_UNAVAILABLE, line);
    let seconds = after.as_secs().saturating_add(1);
    response.headers_mut().insert(RETRY_AFTER, seconds.into());
    response
}

/// The status of an answer that is not streamed (rulings R4 and R42; the revision's table of errors).
pub(super) fn status(era: Era, line: &[u8], source: Source) -> StatusCode {
    match (source, era) {
        (Source::Body(400), _) => return StatusCode::BAD_REQUEST,
        // In a session, this status means that the session is gone.
        (Source::Body(404), Era::Stateless) => return StatusCode::NOT_FOUND,
        (Source::Body(_), _) => return StatusCode::OK,
        (Source::Host | Source::Line | Source::Event, _) => {}
    }
    let code = std::str::from_utf8(line)
        .ok()
        .and_then(|text| object::member(text, "error"))
        .and_then(|error| object::member(error, "code"))
        .and_then(|code| code.parse::<i64>().ok());
    match (era, code, source) {
        (_, None, _) => StatusCode::OK,
        (Era::Stateless, Some(-32601), _) => StatusCode::NOT_FOUND,
        (Era::Stateless, Some(-32022..=-32020), _)
        | (Era::Stateless, Some(-32602), Source::Host)
        | (_, Some(-32700 | -32600 | -32022), Source::Host) => StatusCode::BAD_REQUEST,
        (_, Some(_), _) => StatusCode::OK,
    }
}

/// One JSON text that comes in pieces.
pub(super) fn json_in_pieces(pieces: mpsc::Receiver<Piece>) -> Response<Body> {
    let mut response = Response::new(Body::new(Pieces(pieces)));
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// A long answer has no end. The connection is closed without the end of the body, so that no client takes what it
/// has got for all of it.
#[derive(Debug, thiserror::Error)]
#[error("the answer broke off")]
struct BrokeOff;

struct Pieces(mpsc::Receiver<Piece>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        self.0.poll_recv(context).map(|piece| match piece {
            Some(Piece::Part(bytes)) => Some(Ok(Frame::data(bytes))),
            Some(Piece::End) => None,
            None => Some(Err(BrokeOff)),
        })
    }
}

/// A stream of events that begins with what came already.
pub(super) fn events(first: Option<Event>, stream: Watched) -> Response<Body> {
    let mut keep_alive = interval_at(tokio::time::Instant::now() + KEEP_ALIVE_AFTER, KEEP_ALIVE_AFTER);
    keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = Events {
        first,
        stream,
        keep_alive,
        long: None,
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, EVENTS);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// What is done when a client goes away.
type Gone = Box<dyn FnOnce(&Stream) + Send + Sync>;

/// A stream, and what is done when its client goes away before its end.
pub(super) struct Watched {
    pub(super) stream: Stream,
    pub(super) gone: Option<Gone>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.stream.is_over()
            && let Some(gone) = self.gone.take()
        {
            gone(&self.stream);
        }
    }
}

struct Events {
    first: Option<Event>,
    stream: Watched,
    keep_alive: Interval,
    /// The event that the stream is in.
    long: Option<mpsc::Receiver<Piece>>,
}

impl http_body::Body for Events {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(pieces) = &mut self.long {
            let piece = std::task::ready!(pieces.poll_recv(context));
            let bytes = match piece {
                Some(Piece::Part(bytes)) => bytes,
                Some(Piece::End) => {
                    self.long = None;
                    Bytes::from_static(EVENT_END)
                }
                None => return Poll::Ready(Some(Err(BrokeOff))),
            };
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let event = match self.first.take() {
            Some(event) => Poll::Ready(Some(event)),
            None => self.stream.stream.poll_next(context),
        };
        match event {
            Poll::Ready(Some(Event::Message(line) | Event::Answer(line, _))) => {
                self.keep_alive.reset();
                Poll::Ready(Some(Ok(Frame::data(event_of(&line)))))
            }
            Poll::Ready(Some(Event::Long(pieces, _))) => {
                self.long = Some(pieces);
                Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(EVENT_START)))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self
                .keep_alive
                .poll_tick(context)
                .map(|_now| Some(Ok(Frame::data(Bytes::from_static(KEEP_ALIVE))))),
        }
    }
}

/// One event. A line has no line breaks but its end, so it is one `data` field.
fn event_of(line: &Bytes) -> Bytes {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut event = BytesMut::with_capacity(line.len() + 24);
    event.put_slice(EVENT_START);
    event.put_slice(line);
    event.put_slice(EVENT_END);
    event.freeze()
}
