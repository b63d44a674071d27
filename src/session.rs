//! One client's conversation with one upstream: who may answer what, and in which order.
//!
//! Two loops run side by side, one over what the client sends and one over what the upstream sends.
//! The client's frames are taken in order: a request is judged and forwarded, refused, or parked
//! before the next frame is read, so that a parked call holds up nobody and nothing overtakes.
//!
//! Deliberately does not know which transport it is.

mod client;
mod request;
mod server;
mod state;

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
use crate::gate::{Desk, Gate};
use crate::upstream::tools::Tools;
use crate::upstream::{Arrivals, Upstream};
use crate::wire::line::Line;
use crate::wire::scan::ScanLimits;
use state::Conversation;

/// Lines that wait for the client to read them; then whoever sends waits.
pub const OUTGOING_LINES_MAX: usize = 64;

/// How long calls that run upstream may take to finish once the client has gone or the host stops.
const DRAIN_WITHIN: Duration = Duration::from_millis(2500);

/// The limits of a session.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Limits of one frame of the client.
    pub scan: ScanLimits,
    /// How long the upstream may take to answer a forwarded request.
    pub upstream_timeout: Duration,
}

/// Why a session was over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its side, or the host was told to stop.
    Closed,
    /// The session was refused at its start: what the operator must know.
    StartRefused(String),
}

/// One conversation.
#[derive(Debug)]
pub struct Session {
    gate: Arc<Gate>,
    audit: Arc<AuditLog>,
    upstream: Arc<Upstream>,
    tools: Tools,
    client: mpsc::Sender<Bytes>,
    questions: Questions,
    settings: SessionSettings,
    id: String,
    state: Mutex<Conversation>,
    tasks: TaskTracker,
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
    /// Takes the lines for the client.
    pub client: mpsc::Sender<Bytes>,
    /// The limits.
    pub settings: SessionSettings,
    /// Cancelled when the host stops.
    pub shutdown: CancellationToken,
}

impl Session {
    /// A session that nobody has spoken in yet.
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub fn new(parts: Parts) -> Result<Arc<Self>, crate::clock::RandomUnavailable> {
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
            settings,
            id,
            state: Mutex::new(Conversation::new()),
            tasks: TaskTracker::new(),
        }))
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
            let _elapsed = timeout(DRAIN_WITHIN, std::future::pending::<()>()).await;
            tracing::warn!("calls were still running upstream when the session ended");
        };
        tokio::select! {
            // Order does not matter: the upstream's side never ends by itself.
            () = from_client => {}
            () = from_upstream => {}
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

    /// Sends a line to the client; a client that is gone needs none.
    async fn to_client(&self, line: Bytes) {
        let _client_is_gone = self.client.send(line).await;
    }
}

/// The desk of one parked call: its session, and the turn that it holds until it is parked.
#[derive(Debug)]
struct CallDesk<'a> {
    session: &'a Session,
    turn: &'a Turn,
}

impl Desk for CallDesk<'_> {
    fn questions(&self) -> &Questions {
        &self.session.questions
    }

    fn send(&self, line: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.session.to_client(line))
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
