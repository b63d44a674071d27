//! Endpoints: what an HTTP door opens conversations with, and the guards that must stand before it opens.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::AuditLog;
use crate::clock::{Clock, RandomUnavailable};
use crate::decision::Seam;
use crate::door::http::{Beginning, EndpointLimits, Running, Unavailable, Upstreams};
use crate::gate::{Gate, GateSettings};
use crate::host::Settings;
use crate::seam::{Guard, Guards};
use crate::session::{Outlet, Parts, Session, SessionSettings};
use crate::upstream::child::{self, ChildSettings};
use crate::upstream::http::{self, HttpSettings};
use crate::upstream::{Arrivals, Link, Upstream};
use crate::vocabulary::RandomId;
use crate::wire::era::Era;

/// A child that ends sooner than this has failed to start.
const EARLY_END: Duration = Duration::from_secs(10);

/// How long nothing is started after the first failure; twice as long after each further one.
const BACK_OFF: Duration = Duration::from_millis(250);

/// The longest time that nothing is started.
const BACK_OFF_MAX: Duration = Duration::from_secs(30);

/// How an endpoint reaches what it guards.
#[derive(Clone, Debug)]
pub enum UpstreamSettings {
    /// A child process: one for each session of the 2025 revisions, and one that all of 2026-07-28 share.
    Child(ChildSettings),
    /// An HTTP server.
    Http(Box<HttpSettings>),
}

/// One endpoint of a listener.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// Its path, with the slash at its start.
    pub path: String,
    /// The upstream's name and the limits of its conversations.
    pub host: Settings,
    /// What is guarded.
    pub upstream: UpstreamSettings,
    /// Child processes that may run at the same time.
    pub children_max: usize,
    /// The limits of the door.
    pub limits: EndpointLimits,
}

/// Why a listener does not open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootError {
    /// A seam has no chain (semantics section 2).
    #[error(
        "the {} seam has no policy, and a network listener needs both seams; give it one", _0.as_str()
    )]
    Unguarded(Seam),
}

/// Whether both seams have a chain.
///
/// # Errors
///
/// The first seam that has none.
pub fn both_guarded(guards: &Guards) -> Result<(), BootError> {
    for seam in [Seam::Tools, Seam::Reads] {
        if matches!(guards.of(seam), Guard::Unset) {
            return Err(BootError::Unguarded(seam));
        }
    }
    Ok(())
}

/// Connects with what an endpoint guards.
pub trait Connects: Send + Sync + fmt::Debug {
    /// A new link, for one session of the 2025 revisions or for all of 2026-07-28.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] says what the client is told, and when to try again.
    fn connect(&self, era: Era) -> Result<Connected, Unavailable>;

    /// The upstream of a link has ended by itself, so soon after its start or not.
    fn ended(&self, early: bool);
}

/// A connected upstream.
#[expect(missing_debug_implementations, reason = "a future has nothing to show")]
pub struct Connected {
    /// The link.
    pub link: Link,
    /// Ends the upstream, and waits until it is gone.
    pub end: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Connects the clients of one endpoint.
#[derive(Debug)]
pub struct Guarded {
    gate: Arc<Gate>,
    audit: Arc<AuditLog>,
    settings: Settings,
    drain_within: Duration,
    connects: Arc<dyn Connects>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
}

/// What the endpoints of one host have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// The chains.
    pub guards: Guards,
    /// The audit log.
    pub audit: Arc<AuditLog>,
    /// Wall time and random bytes.
    pub clock: Arc<dyn Clock>,
    /// Cancelled when the host stops: parked calls are refused, running ones may finish for a while.
    pub shutdown: CancellationToken,
    /// Tracks conversations.
    pub tasks: TaskTracker,
    /// How long calls may take to finish once their client has gone or the host stops.
    pub drain_within: Duration,
}

impl Guarded {
    /// An endpoint that nobody speaks to yet.
    ///
    /// # Errors
    ///
    /// When there are no random bytes.
    pub fn new(
        settings: Settings,
        connects: Arc<dyn Connects>,
        common: Common,
    ) -> Result<Arc<Self>, RandomUnavailable> {
        let gate_settings = GateSettings {
            guards: common.guards,
            server: settings.server.clone(),
            transport: "http",
            asks: settings.asks,
            server_requests: settings.server_requests,
        };
        let gate = Gate::new(gate_settings, Arc::clone(&common.audit), common.clock)?;
        Ok(Arc::new(Self {
            gate: Arc::new(gate),
            audit: common.audit,
            settings,
            drain_within: common.drain_within,
            connects,
            shutdown: common.shutdown,
            tasks: common.tasks,
        }))
    }

    /// Connects with the upstream and starts the conversation.
    fn start(&self, outlet: Arc<dyn Outlet>, era: Era) -> Result<Running, Unavailable> {
        let connected = self.connects.connect(era)?;
        let (upstream, arrivals) = Upstream::connect(connected.link, self.settings.upstream_line_bytes_max);
        let parts = Parts {
            gate: Arc::clone(&self.gate),
            audit: Arc::clone(&self.audit),
            upstream: Arc::clone(&upstream),
            client: outlet,
            settings: SessionSettings {
                scan: self.settings.scan.clone(),
                upstream_timeout: self.settings.upstream_timeout,
                drain_within: self.drain_within,
            },
            shutdown: self.shutdown.clone(),
        };
        let session = match era {
            Era::Handshake => Session::new(parts),
            Era::Stateless => Session::shared(parts),
        };
        let session = session.map_err(|error| Unavailable {
            why: error.to_string(),
            after: BACK_OFF,
        })?;
        let running = Running {
            session: Arc::clone(&session),
            end: CancellationToken::new(),
            over: CancellationToken::new(),
        };
        let conversation = Conversing {
            connects: Arc::clone(&self.connects),
            session,
            arrivals,
            end: running.end.clone(),
        };
        let over = running.over.clone();
        self.tasks.spawn(async move {
            conversation.run().await;
            upstream.close();
            connected.end.await;
            over.cancel();
        });
        Ok(running)
    }
}

/// A conversation that runs until somebody ends it, the upstream does, or the host stops.
struct Conversing {
    connects: Arc<dyn Connects>,
    session: Arc<Session>,
    arrivals: Arrivals,
    end: CancellationToken,
}

impl Conversing {
    async fn run(self) {
        let begun = Instant::now();
        let (client_is_there, lines) = mpsc::channel(1);
        let gone = CancellationToken::new();
        let upstream_ended = self.session.upstream_ended().clone();
        let conversation = self.session.run(lines, self.arrivals, gone.clone());
        let ends = async {
            tokio::select! {
                // In this order, so that an end that was wished for is no failure of the upstream.
                biased;
                () = self.end.cancelled() => {}
                () = upstream_ended.cancelled() => self.connects.ended(begun.elapsed() < EARLY_END),
            }
            gone.cancel();
            drop(client_is_there);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // Order does not matter: only the conversation ends.
            _how = conversation => {}
            () = ends => {}
        }
    }
}

impl Upstreams for Guarded {
    fn begin(&self, outlet: Arc<dyn Outlet>) -> Beginning<'_> {
        Box::pin(async move { self.start(outlet, Era::Handshake) })
    }

    fn begin_shared(&self, outlet: Arc<dyn Outlet>) -> Beginning<'_> {
        Box::pin(async move { self.start(outlet, Era::Stateless) })
    }

    fn random_id(&self) -> Result<RandomId, RandomUnavailable> {
        self.gate.random_id()
    }
}

/// Connects with an HTTP server.
#[derive(Debug)]
struct OverHttp {
    client: reqwest::Client,
    settings: HttpSettings,
}

impl Connects for OverHttp {
    fn connect(&self, era: Era) -> Result<Connected, Unavailable> {
        Ok(Connected {
            link: http::open(self.client.clone(), self.settings.clone(), era),
            end: Box::pin(std::future::ready(())),
        })
    }

    fn ended(&self, _early: bool) {}
}

/// Starts child processes.
#[derive(Debug)]
struct Children {
    settings: ChildSettings,
    max: usize,
    places: Arc<Semaphore>,
    back_off: Mutex<BackOff>,
}

impl Children {
    fn back_off(&self) -> MutexGuard<'_, BackOff> {
        self.back_off.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connects for Children {
    fn connect(&self, _era: Era) -> Result<Connected, Unavailable> {
        if let Some(after) = self.back_off().wait() {
            let why = "the upstream server ends right after its start; it is started again later".to_owned();
            return Err(Unavailable { why, after });
        }
        let place = Arc::clone(&self.places).try_acquire_owned();
        let place = place.map_err(|_none_left| Unavailable {
            why: format!(
                "{} upstream servers run already; end a session, or try again later",
                self.max
            ),
            after: Duration::from_secs(1),
        })?;
        let (link, running) = child::spawn(&self.settings).map_err(|error| {
            tracing::error!(%error, "the upstream server cannot be started");
            self.back_off().ended(true);
            Unavailable {
                why: "the upstream server cannot be started".to_owned(),
                after: BACK_OFF,
            }
        })?;
        Ok(Connected {
            link,
            end: Box::pin(async move {
                running.end().await;
                drop(place);
            }),
        })
    }

    fn ended(&self, early: bool) {
        self.back_off().ended(early);
    }
}

/// What connects with the upstream of these settings.
///
/// # Errors
///
/// When there is no HTTP client.
pub fn connects(settings: &EndpointSettings) -> Result<Arc<dyn Connects>, http::NoClient> {
    Ok(match &settings.upstream {
        UpstreamSettings::Http(http_settings) => Arc::new(OverHttp {
            client: http::client()?,
            settings: (**http_settings).clone(),
        }),
        UpstreamSettings::Child(child) => Arc::new(Children {
            settings: child.clone(),
            max: settings.children_max,
            places: Arc::new(Semaphore::new(settings.children_max)),
            back_off: Mutex::default(),
        }),
    })
}

/// Holds off starting what ends right away.
#[derive(Debug, Default)]
struct BackOff {
    failures: u32,
    not_before: Option<Instant>,
}

impl BackOff {
    fn ended(&mut self, early: bool) {
        if early {
            let wait = BACK_OFF
                .saturating_mul(2_u32.saturating_pow(self.failures))
                .min(BACK_OFF_MAX);
            self.failures = self.failures.saturating_add(1);
            self.not_before = Some(Instant::now() + wait);
        } else {
            *self = Self::default();
        }
    }

    /// How long nothing may be started, if so.
    fn wait(&self) -> Option<Duration> {
        let left = self.not_before?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_ends_early_is_held_off_longer_and_longer() {
        let mut back_off = BackOff::default();
        assert_eq!(None, back_off.wait());
        let mut waits = Vec::new();
        for _ in 0..10 {
            back_off.ended(true);
            waits.push(back_off.wait().unwrap().as_millis());
        }
        assert_eq!(
            vec![250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000],
            waits
        );
        tokio::time::advance(BACK_OFF_MAX).await;
        assert_eq!(None, back_off.wait());
        back_off.ended(false);
        back_off.ended(true);
        assert_eq!(Some(BACK_OFF), back_off.wait());
    }
}
