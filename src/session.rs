//! One client's conversation with one upstream: who may answer what, and in which order.
//!
//! Three loops run side by side: over what the client sends, over what the upstream sends, and over policies that come
//! into force and show other entries of lists.
//! The client's frames are taken in order: a request is judged and forwarded, refused, or parked
//! before the next frame is read, so that a parked call holds up nobody and nothing overtakes.
//!
//! Deliberately does not know which transport it is.

mod client;
mod lists;
mod pieces;
mod request;
mod server;
mod state;

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::AuditLog;
use crate::gate::ask::parked::Questions;
use crate::gate::tasks::Tasks;
use crate::gate::{Desk, Gate};
use crate::upstream::tools::Tools;
use crate::upstream::{Arrivals, Upstream};
use crate::vocabulary::Principal;
use crate::wire::frame::ClientFrame;
use crate::wire::id::RequestId;
use crate::wire::line::Line;
use crate::wire::long_answer::Piece;
use crate::wire::scan::ScanLimits;
use state::Conversation;

/// Lines that wait for the client to read them; then whoever sends waits.
pub const OUTGOING_LINES_MAX: usize = 64;

/// A client on stdio waits this long at most for calls that still run upstream once it has gone, in
/// [`SessionSettings::drain_within`].
pub const DRAIN_WITHIN: Duration = Duration::from_millis(2500);

/// The limits of a session.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Limits of one frame of the client.
    pub scan: ScanLimits,
    /// How long the upstream may take to answer a forwarded request.
    pub upstream_timeout: Duration,
    /// How long calls that run upstream may take to finish once the client has gone or the host stops.
    pub drain_within: Duration,
}

/// Why a session was over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its side, or the host was told to stop.
    Closed,
    /// The session was refused at its start: what the operator must know.
    StartRefused(String),
}

/// One request of a client, from its arrival to its one answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange {
    /// Tells requests apart that bear the same id; 0 where one client has the whole session.
    pub post: u64,
    /// The id as the client gave it.
    pub id: RequestId,
}

/// Where in a transport with several streams a message for the client belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum To {
    /// It is the answer, after which nothing more comes for this exchange.
    Answer(Exchange, Source),
    /// It belongs to this exchange, whose answer is still to come.
    Call(Exchange),
    /// It belongs to this exchange and must not be seen anywhere else: a question of this host.
    Question(Exchange),
    /// It belongs to the session, or nobody said to what it belongs.
    Session,
}

/// Who made an answer, and how it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// This host.
    Host,
    /// An upstream, as a line.
    Line,
    /// An upstream, as the body of an HTTP response with this status.
    Body(u16),
    /// An upstream, on a stream of events.
    Event,
}

/// A message on its way out: whether there was a stream to send it on. Dropping it may lose the message.
pub type Sending<'a> = Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

/// Takes what the client is to get.
pub trait Outlet: Send + Sync + fmt::Debug {
    /// Takes one line. Waits while the client is slow to read; a client that is gone needs nothing.
    fn send(&self, to: To, line: Bytes) -> Sending<'_>;

    /// The exchange ends without an answer: the client took its request back.
    fn over(&self, exchange: &Exchange);

    /// Takes the answer of an exchange in pieces, after which nothing more comes for it; none when it cannot.
    /// Without [`Piece::End`] the answer broke off, and its client must not take what came for one.
    fn in_pieces(&self, _exchange: &Exchange, _source: Source) -> Option<mpsc::Sender<Piece>> {
        None
    }
}

/// A client to which everything goes on one stream, in order.
#[derive(Debug)]
pub struct OneStream(pub mpsc::Sender<Bytes>);

impl Outlet for OneStream {
    fn send(&self, _to: To, line: Bytes) -> Sending<'_> {
        Box::pin(async move { self.0.send(line).await.is_ok() })
    }

    fn over(&self, _exchange: &Exchange) {}
}

/// What a door knows of one frame beside its bytes.
#[derive(Clone, Debug, Default)]
pub struct Envelope {
    /// Goes into the [`Exchange`] of a request.
    pub post: u64,
    /// Whether only the answer can be carried back, so that nobody can be asked (ruling R36).
    pub answer_only: bool,
    /// The authenticated caller.
    pub principal: Option<Principal>,
    /// Headers that repeat arguments; none where the transport has no headers.
    pub mirrored: Option<Vec<(String, Vec<u8>)>>,
}

/// One conversation.
#[derive(Debug)]
pub struct Session {
    gate: Arc<Gate>,
    audit: Arc<AuditLog>,
    upstream: Arc<Upstream>,
    tools: Tools,
    client: Arc<dyn Outlet>,
    questions: Questions,
    tasks_made: Tasks,
    settings: SessionSettings,
    id: String,
    state: Mutex<Conversation>,
    tasks: TaskTracker,
    upstream_ended: CancellationToken,
}

/// A connected client.
#[derive(Debug)]
pub struct ClientLink {
    /// Yields the client's lines; ends when the client has gone and all of them were taken.
    pub incoming: mpsc::Receiver<Line>,
    /// Takes lines for the client.
    pub outgoing: mpsc::Sender<Bytes>,
    /// Cancelled when the client has gone, whether or not its lines were taken.
    pub gone: CancellationToken,
}

/// What a session is made of.
#[derive(Debug)]
pub struct Parts {
    /// The gate.
    pub gate: Arc<Gate>,
    /// Where the outcomes of forwarded calls are recorded.
    pub audit: Arc<AuditLog>,
    /// The upstream's sending side.
    pub upstream: Arc<Upstream>,
    /// Takes what the client is to get.
    pub client: Arc<dyn Outlet>,
    /// The limits.
    pub settings: SessionSettings,
    /// Cancelled when the host stops.
    pub shutdown: CancellationToken,
}

impl Session {
    /// A session that nobody has spoken in yet, with one client.
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub fn new(parts: Parts) -> Result<Arc<Self>, crate::clock::RandomUnavailable> {
        Self::with(parts, Conversation::new())
    }

    /// The requests of many clients that share one upstream, each complete in itself (2026-07-28).
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub fn shared(parts: Parts) -> Result<Arc<Self>, crate::clock::RandomUnavailable> {
        Self::with(parts, Conversation::shared())
    }

    fn with(parts: Parts, conversation: Conversation) -> Result<Arc<Self>, crate::clock::RandomUnavailable> {
        let Parts {
            gate,
            audit,
            upstream,
            client,
            settings,
            shutdown,
        } = parts;
        let id = gate.random_id()?.to_string();
        let questions = gate.questions(shutdown);
        Ok(Arc::new(Self {
            gate,
            audit,
            upstream,
            tools: Tools::default(),
            client,
            questions,
            tasks_made: Tasks::default(),
            settings,
            id,
            state: Mutex::new(conversation),
            tasks: TaskTracker::new(),
            upstream_ended: CancellationToken::new(),
        }))
    }

    /// Cancelled when the upstream is gone and everybody who waited for it was told.
    #[must_use]
    pub fn upstream_ended(&self) -> &CancellationToken {
        &self.upstream_ended
    }

    /// Runs the conversation until the client has gone or the host stops, and what still runs is done or
    /// the time for that is over.
    pub async fn run(
        self: Arc<Self>,
        mut lines: mpsc::Receiver<Line>,
        mut arrivals: Arrivals,
        gone: CancellationToken,
    ) -> Ended {
        let from_upstream = async {
            while let Some(arrival) = arrivals.next().await {
                self.arrived(arrival).await;
            }
            std::future::pending::<()>().await;
        };
        let from_policies = self.announce();
        let from_client = async {
            let stopped = tokio::select! {
                // The stop comes first, so that nothing new starts after it.
                biased;
                () = self.questions.shutdown.cancelled() => true,
                () = self.read_client(&mut lines) => false,
            };
            if !stopped {
                self.questions.disconnected.cancel();
            }
            self.tasks.close();
            self.tasks.wait().await;
        };
        // An upstream that takes nothing holds up the client's lines, and must not hold up the end.
        let late = async {
            tokio::select! {
                // Order does not matter: both are the beginning of the end.
                () = gone.cancelled() => {}
                () = self.questions.shutdown.cancelled() => {}
            }
            let _elapsed = timeout(self.settings.drain_within, std::future::pending::<()>()).await;
            tracing::warn!("calls were still running upstream when the session ended");
            self.give_up().await;
        };
        tokio::select! {
            // Order does not matter: the sides of the upstream and of the policies never end by themselves.
            () = from_client => {}
            () = from_upstream => {}
            () = from_policies => {}
            () = late => {}
        }
        let state = self.state();
        tracing::debug!(
            dropped = state.dropped,
            skipped = self.upstream.skipped_lines(),
            "the session is over"
        );
        match &state.start_refused {
            Some(why) => Ended::StartRefused(why.clone()),
            None => Ended::Closed,
        }
    }

    async fn read_client(self: &Arc<Self>, lines: &mut mpsc::Receiver<Line>) {
        while let Some(line) = lines.recv().await {
            self.receive(line).await;
        }
    }

    fn state(&self) -> MutexGuard<'_, Conversation> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line to the client; one that is gone needs none.
    async fn send(&self, to: To, line: Bytes) -> bool {
        self.client.send(to, line).await
    }

    /// Takes one frame that a door has read. Returns when the next one of the same client may be taken.
    pub async fn take(self: &Arc<Self>, frame: ClientFrame, envelope: Envelope) {
        match frame {
            ClientFrame::Request(request) => self.request(request, envelope).await,
            ClientFrame::Notification(notification) => self.notification(&notification).await,
            ClientFrame::Response(response) => self.response(&response).await,
        }
    }
}

/// The desk of one parked call: its session, and the turn that it holds until it is parked.
#[derive(Debug)]
struct CallDesk<'a> {
    session: &'a Session,
    exchange: &'a Exchange,
    turn: &'a Turn,
}

impl Desk for CallDesk<'_> {
    fn questions(&self) -> &Questions {
        &self.session.questions
    }

    fn tasks(&self) -> &Tasks {
        &self.session.tasks_made
    }

    fn send(&self, line: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let _unreachable_is_told_elsewhere =
                self.session.send(To::Question(self.exchange.clone()), line).await;
        })
    }

    fn parked(&self) {
        self.turn.pass();
    }
}

/// A request's turn in the order of the client's frames. Passing or dropping it lets the next frame be read.
#[derive(Debug)]
struct Turn(Mutex<Option<oneshot::Sender<()>>>);

impl Turn {
    fn new() -> (Self, oneshot::Receiver<()>) {
        let (turn, over) = oneshot::channel();
        (Self(Mutex::new(Some(turn))), over)
    }

    fn pass(&self) {
        let turn = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(turn);
    }
}
