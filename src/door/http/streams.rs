//! The streams of one conversation: one for each exchange, and one that the client opened with GET.
//!
//! INVARIANT: each message goes out on exactly one stream, and a question of this host on that of its call only.
//! INVARIANT: what waits for a slow client is bounded by [`WAITING_BYTES_MAX`]; over it the stream ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::session::{Exchange, Outlet, Sending, Source, To};
use crate::wire::long_answer::Piece;
use crate::wire::refusal;

/// Bytes that may wait on one stream for the client to read them. An answer is sent whatever its size.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The answer to what has none when its conversation is over.
const OVER: &str = "the upstream server has ended; whether it did what was asked is not known";

const OVER_DATA: &str = r#"{"code":"upstream_exited"}"#;

/// What comes on a stream.
#[derive(Debug)]
pub(super) enum Event {
    /// A message, after which more may come.
    Message(Bytes),
    /// The answer; nothing follows.
    Answer(Bytes, Source),
    /// The answer, as it comes; nothing follows.
    Long(mpsc::Receiver<Piece>, Source),
}

/// The streams of one conversation.
#[derive(Debug)]
pub(super) struct Streams {
    open: Mutex<Open>,
    max: usize,
}

/// Why a stream is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoStream {
    /// Another request with this id is in flight.
    SameId,
    /// This many are open already.
    TooMany(usize),
}

#[derive(Debug, Default)]
struct Open {
    exchanges: HashMap<Exchange, Sender>,
    /// The stream of GET.
    unasked: Option<Sender>,
    opened: u64,
}

#[derive(Debug)]
struct Sender {
    events: mpsc::UnboundedSender<Event>,
    waiting: Arc<AtomicUsize>,
    /// In which order it was opened.
    number: u64,
    /// Whether it carries the answer and nothing before it.
    answer_only: bool,
}

/// The receiving end of a stream. Dropping it frees its place.
#[derive(Debug)]
pub(super) struct Stream {
    events: mpsc::UnboundedReceiver<Event>,
    waiting: Arc<AtomicUsize>,
    number: u64,
    streams: Arc<Streams>,
    /// None for the stream of GET.
    exchange: Option<Exchange>,
    answered: bool,
}

impl Streams {
    /// At most `max` of them are open at the same time.
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self {
            open: Mutex::default(),
            max,
        })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the stream of an exchange.
    pub(super) fn exchange(
        self: &Arc<Self>,
        exchange: &Exchange,
        answer_only: bool,
    ) -> Result<Stream, NoStream> {
        let mut open = self.open();
        if open.exchanges.contains_key(exchange) {
            return Err(NoStream::SameId);
        }
        if self.max <= open.count() {
            return Err(NoStream::TooMany(self.max));
        }
        let (sender, stream) = self.pair(&mut open, Some(exchange.clone()), answer_only);
        open.exchanges.insert(exchange.clone(), sender);
        Ok(stream)
    }

    /// Opens the stream of GET. One that was open ends: its client has come back.
    pub(super) fn unasked(self: &Arc<Self>) -> Result<Stream, NoStream> {
        let mut open = self.open();
        if self.max <= open.exchanges.len() {
            return Err(NoStream::TooMany(self.max));
        }
        let (sender, stream) = self.pair(&mut open, None, false);
        open.unasked = Some(sender);
        Ok(stream)
    }

    /// Ends every stream. A request that has no answer by now gets none from the session any more.
    pub(super) fn close(&self) {
        let mut open = self.open();
        for (exchange, sender) in open.exchanges.drain() {
            let line = refusal::error(Some(&exchange.id), "", -32603, OVER, Some(OVER_DATA));
            let _client_is_gone = sender.events.send(Event::Answer(line, Source::Host));
        }
        open.unasked = None;
    }

    /// How many streams are open.
    pub(super) fn count(&self) -> usize {
        self.open().count()
    }

    fn pair(
        self: &Arc<Self>,
        open: &mut Open,
        exchange: Option<Exchange>,
        answer_only: bool,
    ) -> (Sender, Stream) {
        let (sender, events) = mpsc::unbounded_channel();
        let waiting = Arc::<AtomicUsize>::default();
        open.opened += 1;
        let number = open.opened;
        let sender = Sender {
            events: sender,
            waiting: Arc::clone(&waiting),
            number,
            answer_only,
        };
        let stream = Stream {
            events,
            waiting,
            number,
            streams: Arc::clone(self),
            exchange,
            answered: false,
        };
        (sender, stream)
    }
}

impl Open {
    fn count(&self) -> usize {
        self.exchanges.len() + usize::from(self.unasked.is_some())
    }

    /// Sends the answer and closes the stream.
    fn answer(&mut self, exchange: &Exchange, line: Bytes, source: Source) -> bool {
        let sender = self.exchanges.remove(exchange);
        sender.is_some_and(|sender| sender.events.send(Event::Answer(line, source)).is_ok())
    }

    fn call(&mut self, exchange: &Exchange, line: &Bytes) -> bool {
        let Some(sender) = self.exchanges.get(exchange) else {
            return false;
        };
        match sender.message(line) {
            Sent::Yes => true,
            Sent::No => false,
            Sent::TooSlow => {
                self.exchanges.remove(exchange);
                false
            }
        }
    }

    /// On the stream of GET; without one, on the stream that was opened last, as what came in its course.
    fn session(&mut self, line: &Bytes) -> bool {
        match self.unasked.as_ref().map(|sender| sender.message(line)) {
            Some(Sent::Yes) => return true,
            Some(Sent::TooSlow) => self.unasked = None,
            Some(Sent::No) | None => {}
        }
        let last = self
            .exchanges
            .iter()
            .filter(|(_, sender)| !sender.answer_only)
            .max_by_key(|(_, sender)| sender.number)
            .map(|(exchange, _)| exchange.clone());
        last.is_some_and(|exchange| self.call(&exchange, line))
    }
}

enum Sent {
    Yes,
    No,
    TooSlow,
}

impl Sender {
    fn message(&self, line: &Bytes) -> Sent {
        if self.answer_only {
            return Sent::No;
        }
        let waiting = self.waiting.fetch_add(line.len(), Ordering::AcqRel);
        if WAITING_BYTES_MAX < waiting.saturating_add(line.len()) {
            tracing::warn!("a stream ended: its client does not read what it is sent");
            return Sent::TooSlow;
        }
        match self.events.send(Event::Message(line.clone())) {
            Ok(()) => Sent::Yes,
            Err(_gone) => Sent::No,
        }
    }
}

impl Outlet for Streams {
    fn send(&self, to: To, line: Bytes) -> Sending<'_> {
        let mut open = self.open();
        let sent = match to {
            To::Answer(exchange, source) => open.answer(&exchange, line, source),
            To::Call(exchange) => open.call(&exchange, &line) || open.session(&line),
            To::Question(exchange) => open.call(&exchange, &line),
            To::Session => open.session(&line),
        };
        drop(open);
        Box::pin(std::future::ready(sent))
    }

    fn over(&self, exchange: &Exchange) {
        let sender = self.open().exchanges.remove(exchange);
        drop(sender);
    }

    fn in_pieces(&self, exchange: &Exchange, source: Source) -> Option<mpsc::Sender<Piece>> {
        let sender = self.open().exchanges.remove(exchange)?;
        // One piece waits, so that an upstream is no faster than the client.
        let (pieces, taken) = mpsc::channel(1);
        let _client_is_gone = sender.events.send(Event::Long(taken, source));
        Some(pieces)
    }
}

impl Stream {
    /// The next event; none when the stream is over. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|context| self.poll_next(context)).await
    }

    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.answered {
            return Poll::Ready(None);
        }
        let event = std::task::ready!(self.events.poll_recv(context));
        match &event {
            Some(Event::Message(line)) => {
                self.waiting.fetch_sub(line.len(), Ordering::AcqRel);
            }
            Some(Event::Answer(..) | Event::Long(..)) | None => self.answered = true,
        }
        Poll::Ready(event)
    }

    /// Whether it ended as it should: with the answer, or because the exchange was over.
    pub(super) fn is_over(&self) -> bool {
        self.answered
    }

    /// The exchange that it belongs to; none for the stream of GET.
    pub(super) fn belongs_to(&self) -> Option<&Exchange> {
        self.exchange.as_ref()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        match &self.exchange {
            Some(exchange) => {
                if open
                    .exchanges
                    .get(exchange)
                    .is_some_and(|sender| sender.number == self.number)
                {
                    open.exchanges.remove(exchange);
                }
            }
            None => {
                if open
                    .unasked
                    .as_ref()
                    .is_some_and(|sender| sender.number == self.number)
                {
                    open.unasked = None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::id::RequestId;

    fn exchange(id: u64) -> Exchange {
        Exchange {
            post: 0,
            id: RequestId::from_integer(id),
        }
    }

    /// What a stream has got by now.
    async fn got(stream: &mut Stream) -> Option<String> {
        let next = std::future::poll_fn(|context| Poll::Ready(stream.poll_next(context))).await;
        match next {
            Poll::Ready(Some(Event::Message(line) | Event::Answer(line, _))) => {
                Some(String::from_utf8_lossy(&line).into_owned())
            }
            Poll::Ready(Some(Event::Long(..)) | None) | Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_question_is_never_seen_on_another_stream() {
        let streams = Streams::new(3);
        let send = async |to| streams.send(to, Bytes::from_static(b"x")).await;
        let mut unasked = streams.unasked().unwrap();
        let mut other = streams.exchange(&exchange(1), false).unwrap();
        let mut call = streams.exchange(&exchange(2), false).unwrap();
        assert!(send(To::Question(exchange(2))).await);
        assert_eq!(Some("x".to_owned()), got(&mut call).await);
        drop(call);
        assert!(!send(To::Question(exchange(2))).await, "its stream is gone");
        assert_eq!((None, None), (got(&mut unasked).await, got(&mut other).await));
        assert!(
            send(To::Call(exchange(2))).await,
            "anything else may go on the stream of GET"
        );
        assert_eq!(Some("x".to_owned()), got(&mut unasked).await);
    }

    #[tokio::test]
    async fn nothing_ends_without_an_answer() {
        let streams = Streams::new(3);
        let mut unasked = streams.unasked().unwrap();
        let mut call = streams.exchange(&exchange(1), false).unwrap();
        let mut taken_back = streams.exchange(&exchange(2), false).unwrap();
        streams.over(&exchange(2));
        streams.close();
        assert_eq!(
            (None, None),
            (got(&mut unasked).await, got(&mut taken_back).await)
        );
        let answer = got(&mut call).await.expect("an answer");
        assert!(
            answer.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"#)
                && answer.contains("upstream_exited"),
            "{answer}"
        );
        assert!(call.is_over() && streams.count() == 0);
    }

    #[test]
    fn only_so_many_are_open() {
        let streams = Streams::new(2);
        let refused = |opened: Result<Stream, NoStream>| opened.err();
        let first = streams.exchange(&exchange(1), false).unwrap();
        assert_eq!(
            Some(NoStream::SameId),
            refused(streams.exchange(&exchange(1), false))
        );
        let old = streams.unasked().unwrap();
        let too_many = Some(NoStream::TooMany(2));
        assert_eq!(too_many, refused(streams.exchange(&exchange(2), false)));
        let unasked = streams.unasked().expect("it takes the place of the old one");
        drop(old);
        assert_eq!(2, streams.count());
        drop(first);
        let _second = streams.exchange(&exchange(2), false).unwrap();
        drop(unasked);
        let _third = streams.exchange(&exchange(3), false).unwrap();
        assert_eq!(too_many, refused(streams.unasked()));
    }
}
