//! One endpoint: its conversations, and what POST, GET and DELETE do to them.
//!
//! INVARIANT: a session answers only to the principal who began it; to everybody else it does not exist.

use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::streams::Streams;
use crate::session::{Outlet, Session};
use crate::vocabulary::{Principal, RandomId};

/// A conversation that runs.
#[derive(Debug)]
pub struct Running {
    /// The conversation.
    pub session: Arc<Session>,
    /// Cancelled to end it.
    pub end: CancellationToken,
    /// Cancelled when it is over, its upstream included.
    pub over: CancellationToken,
}

/// Why no conversation begins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unavailable {
    /// What the client is told.
    pub why: String,
    /// When to try again.
    pub after: Duration,
}

/// A conversation that is about to begin.
pub type Beginning<'a> = Pin<Box<dyn Future<Output = Result<Running, Unavailable>> + Send + 'a>>;

/// Connects the clients of one endpoint with upstreams.
pub trait Upstreams: Send + Sync + fmt::Debug {
    /// Begins the conversation of one client of the 2025 revisions, with an upstream of its own.
    fn begin(&self, outlet: Arc<dyn Outlet>) -> Beginning<'_>;

    /// Begins the conversation that every client of 2026-07-28 shares.
    fn begin_shared(&self, outlet: Arc<dyn Outlet>) -> Beginning<'_>;

    /// A new random id.
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    fn random_id(&self) -> Result<RandomId, crate::clock::RandomUnavailable>;
}

/// The limits of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointLimits {
    /// Sessions of the 2025 revisions that may be open at the same time.
    pub sessions_max: usize,
    /// Streams of one session that may be open at the same time: one for each request that runs, and that of GET.
    /// Requests of 2026-07-28 have no session; [`ListenSettings::connections_max`](super::ListenSettings) bounds
    /// them.
    pub streams_max: usize,
    /// A session ends when nothing came from its client for this long and none of its streams was open meanwhile.
    pub idle: Duration,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            sessions_max: 1024,
            streams_max: 256,
            idle: Duration::from_secs(30 * 60),
        }
    }
}

/// One endpoint.
#[derive(Debug)]
pub(super) struct Endpoint {
    upstreams: Arc<dyn Upstreams>,
    limits: EndpointLimits,
    sessions: Mutex<HashMap<RandomId, Arc<Conversation>>>,
    /// Places for sessions, taken before one begins.
    places: Arc<Semaphore>,
    shared: tokio::sync::Mutex<Option<Arc<Conversation>>>,
    posts: AtomicU64,
}

/// A conversation and its streams.
#[derive(Debug)]
pub(super) struct Conversation {
    pub(super) running: Running,
    pub(super) streams: Arc<Streams>,
    principal: Option<Principal>,
    heard: Mutex<Instant>,
    /// Given back when nothing of it is left. A shared conversation needs none.
    _place: Option<OwnedSemaphorePermit>,
}

impl Conversation {
    fn new(
        running: Running,
        streams: Arc<Streams>,
        principal: Option<Principal>,
        place: Option<OwnedSemaphorePermit>,
    ) -> Arc<Self> {
        let (over, open) = (running.over.clone(), Arc::clone(&streams));
        tokio::spawn(async move {
            over.cancelled().await;
            open.close();
        });
        Arc::new(Self {
            running,
            streams,
            principal,
            heard: Mutex::new(Instant::now()),
            _place: place,
        })
    }

    /// Ends it: its calls end, and so does its upstream.
    fn end(&self) {
        self.running.end.cancel();
    }

    /// Whether `principal` is the one who began it.
    fn belongs_to(&self, principal: Option<&Principal>) -> bool {
        self.principal.as_ref().map(|own| &own.subject) == principal.map(|other| &other.subject)
    }

    /// Looked at again and again. A client that holds a stream open is there, and may come back when it breaks.
    fn is_idle(&self, since: Duration) -> bool {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if 0 < self.streams.count() {
            *heard = Instant::now();
        }
        since < heard.elapsed()
    }
}

impl Endpoint {
    pub(super) fn new(upstreams: Arc<dyn Upstreams>, limits: EndpointLimits) -> Self {
        Self {
            upstreams,
            limits,
            sessions: Mutex::default(),
            places: Arc::new(Semaphore::new(limits.sessions_max)),
            shared: tokio::sync::Mutex::default(),
            posts: AtomicU64::new(1),
        }
    }

    fn sessions(&self) -> std::sync::MutexGuard<'_, HashMap<RandomId, Arc<Conversation>>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that no other request of a shared conversation has.
    pub(super) fn next_post(&self) -> u64 {
        self.posts.fetch_add(1, Ordering::Relaxed)
    }

    /// The live session of this principal; one of another principal does not exist (ruling R16).
    pub(super) fn session(&self, id: &str, principal: Option<&Principal>) -> Option<Arc<Conversation>> {
        let id = RandomId::parse(id)?;
        let conversation = self.sessions().get(&id).cloned()?;
        if !conversation.belongs_to(principal) || conversation.running.over.is_cancelled() {
            return None;
        }
        *conversation.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Some(conversation)
    }

    /// Begins a session.
    pub(super) async fn begin(
        &self,
        principal: Option<Principal>,
    ) -> Result<(RandomId, Arc<Conversation>), Unavailable> {
        let busy = |why: String| Unavailable {
            why,
            after: Duration::from_secs(1),
        };
        self.forget_ended();
        let place = Arc::clone(&self.places)
            .try_acquire_owned()
            .map_err(|_none_left| {
                let max = self.limits.sessions_max;
                busy(format!(
                    "{max} sessions are open already; end one, or try again later"
                ))
            })?;
        let id = self
            .upstreams
            .random_id()
            .map_err(|error| busy(error.to_string()))?;
        let streams = Streams::new(self.limits.streams_max);
        let outlet: Arc<dyn Outlet> = Arc::clone(&streams) as Arc<dyn Outlet>;
        let running = self.upstreams.begin(outlet).await?;
        let conversation = Conversation::new(running, streams, principal, Some(place));
        self.sessions().insert(id, Arc::clone(&conversation));
        Ok((id, conversation))
    }

    /// The conversation that requests of 2026-07-28 share, begun anew when the last one is over.
    pub(super) async fn shared(&self) -> Result<Arc<Conversation>, Unavailable> {
        let mut shared = self.shared.lock().await;
        if let Some(conversation) = shared.as_ref()
            && !conversation.running.over.is_cancelled()
        {
            return Ok(Arc::clone(conversation));
        }
        let streams = Streams::new(usize::MAX);
        let outlet: Arc<dyn Outlet> = Arc::clone(&streams) as Arc<dyn Outlet>;
        let running = self.upstreams.begin_shared(outlet).await?;
        let conversation = Conversation::new(running, streams, None, None);
        *shared = Some(Arc::clone(&conversation));
        Ok(conversation)
    }

    /// Ends a session at the wish of its client, or because it never began.
    pub(super) fn end(&self, id: RandomId) {
        let ended = self.sessions().remove(&id);
        if let Some(conversation) = ended {
            conversation.end();
        }
    }

    /// Ends a session by the name that its client has for it; false when this principal has none of that name.
    pub(super) fn end_named(&self, id: &str, principal: Option<&Principal>) -> bool {
        match (RandomId::parse(id), self.session(id, principal)) {
            (Some(id), Some(_)) => {
                self.end(id);
                true
            }
            (_, None) | (None, _) => false,
        }
    }

    /// Lets go of sessions that are over, and ends those that are idle.
    pub(super) fn forget_ended(&self) {
        let idle = self.limits.idle;
        self.sessions().retain(|_, conversation| {
            if conversation.is_idle(idle) {
                conversation.end();
            }
            !conversation.running.end.is_cancelled() && !conversation.running.over.is_cancelled()
        });
    }

    /// Ends everything, and waits until it is over.
    pub(super) async fn close(&self) {
        let conversations: Vec<_> = self
            .sessions()
            .drain()
            .map(|(_, conversation)| conversation)
            .collect();
        let shared = self.shared.lock().await.take();
        for conversation in conversations.iter().chain(shared.iter()) {
            conversation.end();
        }
        for conversation in conversations.iter().chain(shared.iter()) {
            conversation.running.over.cancelled().await;
        }
    }

    /// Sessions and streams that are open. A shared conversation that is about to begin counts nothing yet.
    pub(super) fn counts(&self) -> (usize, usize) {
        let sessions = self.sessions();
        let shared = self.shared.try_lock().ok().and_then(|shared| shared.clone());
        let streams = sessions.values().chain(shared.iter());
        let streams = streams.map(|conversation| conversation.streams.count()).sum();
        (sessions.len(), streams)
    }
}
