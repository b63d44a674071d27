//! The upstream: the MCP server being guarded, as a pair of byte channels.
//!
//! A request goes out only as a [`Cleared`], which holds a permit or is ungated by the method table;
//! everything else as a [`Relay`], which the gate's closed lists made. Ids towards the upstream are
//! this connection's own integers. Nothing is retried by itself.
//!
//! Deliberately does not know sessions, policies or the client: what arrives is handed on in order.

pub mod child;
#[cfg(feature = "http")]
pub mod http;
pub mod tools;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::gate::permit::{Cleared, Relay, Ungated};
use crate::wire::line::{Line, LineSplitter};
use crate::wire::long_answer::Piece;
use crate::wire::upstream_frame::{self, Answer, Unreadable, UpstreamFrame};

/// Lines that wait for the upstream to read them; then whoever sends waits.
const OUTGOING_LINES_MAX: usize = 64;

/// A connected upstream: bytes in, bytes out, and a word on how it ended.
#[derive(Debug)]
pub struct Link {
    /// Takes the messages for the upstream. Dropping it tells the upstream that no more will come.
    pub outgoing: mpsc::Sender<Outgoing>,
    /// Yields what the upstream writes; ends when it is gone.
    pub incoming: mpsc::Receiver<Incoming>,
    /// Says, after `incoming` has ended, how the upstream ended.
    pub ending: oneshot::Receiver<String>,
    /// Whether each message from the upstream says to which request it belongs.
    pub labelled: bool,
}

/// A message for the upstream: one line, ended by LF, and what a transport that has no lines must know of it.
#[derive(Debug)]
pub enum Outgoing {
    /// A request.
    Request {
        /// Its id, as in the line.
        id: u64,
        /// The line.
        line: Bytes,
        /// The tool that it calls, as the upstream lists it; empty if there is none.
        tool_json: Box<str>,
    },
    /// A notification that takes a request back.
    Cancellation {
        /// The request's id.
        id: u64,
        /// The line.
        line: Bytes,
    },
    /// Any other notification, or a response.
    Other(Bytes),
}

impl Outgoing {
    /// The line.
    #[must_use]
    pub fn into_line(self) -> Bytes {
        match self {
            Self::Request { line, .. } | Self::Cancellation { line, .. } | Self::Other(line) => line,
        }
    }
}

/// What comes from an upstream.
#[derive(Debug)]
pub enum Incoming {
    /// Bytes of lines, in any pieces.
    Bytes(Bytes),
    /// One whole message.
    Message {
        /// The message, without a line end of its own.
        text: Bytes,
        /// The request on whose stream it came.
        about: Option<u64>,
        /// The HTTP status under which it came as the answer.
        http_status: Option<u16>,
    },
    /// What may become a long answer has begun.
    Long(Long),
    /// The request with this id will have no answer.
    Failed(u64, UpstreamFault),
}

/// The beginning of a message that may become a long answer. Whoever drops it gets the message as a whole.
#[derive(Debug)]
pub struct Long {
    /// The request on whose stream it comes.
    pub about: u64,
    /// The HTTP status under which it comes, if it is not an event.
    pub http_status: Option<u16>,
    /// What has come of it so far.
    pub head: Bytes,
    /// Takes who is to get it in pieces, its beginning included.
    pub accept: oneshot::Sender<mpsc::Sender<Piece>>,
}

impl Link {
    /// Both ends of a link in memory: the host's, and the other as (messages out, what comes in, the ending).
    #[must_use]
    pub fn in_memory() -> (
        Self,
        mpsc::Receiver<Outgoing>,
        mpsc::Sender<Incoming>,
        oneshot::Sender<String>,
    ) {
        let (outgoing, lines) = mpsc::channel(OUTGOING_LINES_MAX);
        let (bytes, incoming) = mpsc::channel(OUTGOING_LINES_MAX);
        let (end, ending) = oneshot::channel();
        (
            Self {
                outgoing,
                incoming,
                ending,
                labelled: false,
            },
            lines,
            bytes,
            end,
        )
    }
}

/// What went wrong upstream (semantics section 4); the client sees the code, the log the rest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamFault {
    /// It is gone.
    #[error("the upstream server has ended: {0}")]
    Exited(String),
    /// It did not answer in time.
    #[error("the upstream server did not answer within {0} ms")]
    Timeout(u64),
    /// It cannot be reached, or does not take what it is sent.
    #[error("the upstream server cannot be reached: {0}")]
    Unreachable(String),
    /// Its answer cannot be delivered.
    #[error("the upstream server's answer is malformed: {0}")]
    Garbage(String),
}

impl UpstreamFault {
    /// The stable code in the error's `data` and in the audit record.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Exited(_) => "upstream_exited",
            Self::Timeout(_) => "upstream_timeout",
            Self::Unreachable(_) => "upstream_unreachable",
            Self::Garbage(_) => "upstream_garbage",
        }
    }
}

/// What arrives from the upstream, in the order in which it was written.
#[derive(Debug)]
pub enum Arrival {
    /// An answer to the request that was forwarded under this id.
    Answer(u64, Result<Answered, UpstreamFault>),
    /// What may become a long answer to a request that was forwarded.
    Long(Long),
    /// A request of the upstream to the client, and the request on whose stream it came.
    Request(upstream_frame::UpstreamRequest, Option<u64>),
    /// A notification, likewise.
    Notification(crate::wire::frame::Notification, Option<u64>),
    /// The upstream is gone; every request that waits has no answer.
    Ended(UpstreamFault),
}

/// An answer, and the HTTP status under which it came if the upstream speaks HTTP.
#[derive(Debug)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// The status.
    pub http_status: Option<u16>,
}

/// The sending side of one connection.
#[derive(Debug)]
pub struct Upstream {
    outgoing: Mutex<Option<mpsc::Sender<Outgoing>>>,
    labelled: bool,
    next_id: AtomicU64,
    own: Mutex<HashMap<u64, oneshot::Sender<Result<Answered, UpstreamFault>>>>,
    ended: Mutex<Option<UpstreamFault>>,
    skipped: AtomicU64,
}

/// The receiving side of one connection.
#[derive(Debug)]
pub struct Arrivals {
    upstream: Arc<Upstream>,
    incoming: mpsc::Receiver<Incoming>,
    ending: Option<oneshot::Receiver<String>>,
    lines: LineSplitter,
    queue: VecDeque<Arrival>,
}

impl Upstream {
    /// Takes a link in use. `line_bytes_max` bounds one line of the upstream.
    #[must_use]
    pub fn connect(link: Link, line_bytes_max: usize) -> (Arc<Self>, Arrivals) {
        let upstream = Arc::new(Self {
            outgoing: Mutex::new(Some(link.outgoing)),
            labelled: link.labelled,
            next_id: AtomicU64::new(1),
            own: Mutex::default(),
            ended: Mutex::default(),
            skipped: AtomicU64::new(0),
        });
        let arrivals = Arrivals {
            upstream: Arc::clone(&upstream),
            incoming: link.incoming,
            ending: Some(link.ending),
            lines: LineSplitter::new(line_bytes_max),
            queue: VecDeque::new(),
        };
        (upstream, arrivals)
    }

    /// An id for a request that is about to be forwarded. Register who waits for it, then call [`Self::forward`].
    #[must_use]
    pub fn reserve_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether each message from the upstream says to which request it belongs.
    #[must_use]
    pub fn labelled(&self) -> bool {
        self.labelled
    }

    /// Forwards a request under an id of [`Self::reserve_id`]. The one way in which a request reaches an upstream.
    /// `tool_json` is the tool that it calls, as the upstream lists it.
    ///
    /// # Errors
    ///
    /// [`UpstreamFault::Exited`] when the upstream is gone; the request did not reach it.
    pub async fn forward(&self, cleared: Cleared, id: u64, tool_json: Box<str>) -> Result<(), UpstreamFault> {
        let line = cleared.into_line(id);
        self.send(Outgoing::Request { id, line, tool_json }).await
    }

    /// Passes on a notification or a response.
    ///
    /// # Errors
    ///
    /// [`UpstreamFault::Exited`] when the upstream is gone.
    pub async fn relay(&self, relay: Relay) -> Result<(), UpstreamFault> {
        self.send(match relay.into_parts() {
            (line, Some(id)) => Outgoing::Cancellation { id, line },
            (line, None) => Outgoing::Other(line),
        })
        .await
    }

    /// Sends a request of this host itself and waits for its answer. Cancel-safe: a late answer is dropped.
    ///
    /// # Errors
    ///
    /// [`UpstreamFault`] when there is no answer.
    pub async fn ask(&self, request: Ungated) -> Result<Answer, UpstreamFault> {
        let id = self.reserve_id();
        let (answer, answered) = oneshot::channel();
        self.own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, answer);
        let waiting = OwnRequest { upstream: self, id };
        self.forward(Cleared::Ungated(request), id, Box::default())
            .await?;
        let outcome = answered.await.unwrap_or_else(|_| Err(self.why_ended()));
        drop(waiting);
        outcome.map(|answered| answered.answer)
    }

    /// Tells the upstream that nothing more will come.
    pub fn close(&self) {
        self.outgoing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    /// Lines of the upstream that were no messages, so far.
    #[must_use]
    pub fn skipped_lines(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    async fn send(&self, message: Outgoing) -> Result<(), UpstreamFault> {
        let outgoing = self
            .outgoing
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        match outgoing {
            Some(outgoing) => outgoing.send(message).await.map_err(|_| self.why_ended()),
            None => Err(self.why_ended()),
        }
    }

    fn why_ended(&self) -> UpstreamFault {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ended.unwrap_or_else(|| UpstreamFault::Exited("the connection is closed".to_owned()))
    }

    fn end(&self, fault: &UpstreamFault) {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault.clone());
        self.close();
        let waiting = std::mem::take(&mut *self.own.lock().unwrap_or_else(PoisonError::into_inner));
        for answer in waiting.into_values() {
            let _nobody_waits = answer.send(Err(fault.clone()));
        }
    }

    /// Whether a request is one of this host itself.
    fn is_own(&self, id: u64) -> bool {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.contains_key(&id)
    }

    /// Hands an answer to whoever of this host waits for it; gives it back when nobody of ours does.
    fn own_answer(
        &self,
        id: u64,
        answer: Result<Answered, UpstreamFault>,
    ) -> Option<Result<Answered, UpstreamFault>> {
        let waiting = self
            .own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        match waiting {
            Some(waiting) => {
                let _nobody_waits = waiting.send(answer);
                None
            }
            None => Some(answer),
        }
    }
}

/// Forgets a request of this host when nobody waits for it any more.
struct OwnRequest<'a> {
    upstream: &'a Upstream,
    id: u64,
}

impl Drop for OwnRequest<'_> {
    fn drop(&mut self) {
        self.upstream
            .own
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

impl Arrivals {
    /// The next thing that arrives; none after [`Arrival::Ended`]. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arrival> {
        loop {
            if let Some(arrival) = self.take_queued() {
                return Some(arrival);
            }
            match self.incoming.recv().await {
                Some(Incoming::Bytes(bytes)) => self.lines.push(&bytes),
                Some(Incoming::Message {
                    text,
                    about,
                    http_status,
                }) => self.message(text, about, http_status),
                Some(Incoming::Long(long)) if self.upstream.is_own(long.about) => drop(long),
                Some(Incoming::Long(long)) => self.queue.push_back(Arrival::Long(long)),
                Some(Incoming::Failed(id, fault)) => self.answered(id, Err(fault)),
                None => return self.ended().await,
            }
        }
    }

    fn take_queued(&mut self) -> Option<Arrival> {
        loop {
            if let Some(arrival) = self.queue.pop_front() {
                return Some(arrival);
            }
            let line = self.lines.next()?;
            self.line(line);
        }
    }

    async fn ended(&mut self) -> Option<Arrival> {
        if let Some(line) = self.lines.finish() {
            self.line(line);
            if let Some(arrival) = self.queue.pop_front() {
                return Some(arrival);
            }
        }
        // The receiver stays in place until it has answered, so that a cancelled wait can be taken up again.
        let how = match self.ending.as_mut() {
            Some(ending) => ending
                .await
                .unwrap_or_else(|_| "the connection closed".to_owned()),
            None => return None,
        };
        self.ending = None;
        let fault = UpstreamFault::Exited(how);
        self.upstream.end(&fault);
        Some(Arrival::Ended(fault))
    }

    fn line(&mut self, line: Line) {
        match line {
            Line::Frame(line) => self.message(line, None, None),
            Line::TooLong => {
                self.upstream.skipped.fetch_add(1, Ordering::Relaxed);
                tracing::warn!("a line of the upstream is longer than the limit and was skipped");
            }
        }
    }

    /// Reads one message. One that came on the stream of a request can only answer that request.
    fn message(&mut self, text: Bytes, about: Option<u64>, http_status: Option<u16>) {
        match upstream_frame::read_upstream(text) {
            Ok(UpstreamFrame::Answer(answer)) if about.is_none_or(|id| id == answer.id()) => {
                self.answered(answer.id(), Ok(Answered { answer, http_status }));
            }
            Ok(UpstreamFrame::Answer(_)) => {
                self.upstream.skipped.fetch_add(1, Ordering::Relaxed);
                if let Some(id) = about {
                    let detail = "it answers another request on this one's stream".to_owned();
                    self.answered(id, Err(UpstreamFault::Garbage(detail)));
                }
            }
            Ok(UpstreamFrame::Request(request)) => self.queue.push_back(Arrival::Request(request, about)),
            Ok(UpstreamFrame::Notification(notification)) => {
                self.queue.push_back(Arrival::Notification(notification, about));
            }
            Err(unreadable) => self.unreadable(unreadable, about),
        }
    }

    fn unreadable(&mut self, unreadable: Unreadable, about: Option<u64>) {
        self.upstream.skipped.fetch_add(1, Ordering::Relaxed);
        let (ids, detail) = match (unreadable, about) {
            (Unreadable::Skipped, None) => return,
            (Unreadable::Skipped, Some(id)) => (vec![id], "it is no message".to_owned()),
            (Unreadable::Malformed { ids, detail }, None) => (ids, detail),
            (Unreadable::Malformed { detail, .. }, Some(id)) => (vec![id], detail),
        };
        for id in ids {
            self.answered(id, Err(UpstreamFault::Garbage(detail.clone())));
        }
    }

    fn answered(&mut self, id: u64, answer: Result<Answered, UpstreamFault>) {
        if let Some(answer) = self.upstream.own_answer(id, answer) {
            self.queue.push_back(Arrival::Answer(id, answer));
        }
    }
}
