//! Policies that follow their files.
//!
//! A file is looked at on every event of its folder and every few seconds. New bytes must be the same for
//! a quiet time, load as at the start, and pass the policy's own cases; only then they replace the old
//! policy, between two judgements. Otherwise the last good one stays in force, and the status says why.
//!
//! INVARIANT: what was hashed is what is loaded; a file is never read again for loading.

mod generation;
mod loader;
mod status;
mod watch;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::chain::{Chain, Member};
use super::limits::{PolicySettings, Source};
use super::lists::hides;
use super::live::LiveChain;
use super::load::{LoadError, Policy};
use super::text::escaped;
use crate::decision::Seam;
use crate::vocabulary::Digest;
use generation::Generation;
pub use loader::{Loader, Proof};
pub use status::{Board, Failure, PolicyStatus, Status};
pub use watch::Watch;

/// How long new bytes must stay the same before they are loaded.
pub const QUIET: Duration = Duration::from_millis(300);

/// How often every file is looked at when nothing is heard of it.
pub const PERIOD: Duration = Duration::from_secs(5);

/// What lies at a policy's path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    /// These bytes, the cases beside them included.
    Generation(Digest),
    /// Nothing that can be read, and why.
    Nothing(String),
}

/// One place of a chain.
#[derive(Debug)]
struct Slot {
    seam: Seam,
    settings: PolicySettings,
    /// None for a carried policy, which cannot change.
    file: Option<PathBuf>,
    policy: Arc<Policy>,
    in_force: Option<Digest>,
    /// What was found to be unfit, so that it is not tried again and again.
    unfit: Option<Seen>,
    /// What was seen last and is new, and since when.
    new: Option<(Seen, Instant)>,
    /// Where the board has it.
    at: usize,
}

/// One chain that follows its files.
#[derive(Debug)]
struct Seat {
    seam: Seam,
    chain: Arc<LiveChain>,
    slots: Vec<Slot>,
}

/// Keeps chains in step with their files.
#[derive(Debug)]
pub struct Reloader {
    loader: Loader,
    seats: Vec<Seat>,
    board: Board,
}

/// The policies of each seam that has a chain, the tools seam first.
pub type Chains = Vec<(Seam, Vec<PolicySettings>)>;

/// Every chain anew, for a [`Reloader`] that runs.
#[derive(Debug)]
pub struct Replace {
    /// What loads them.
    pub loader: Loader,
    /// The policies.
    pub chains: Chains,
    /// Takes the answer.
    pub done: oneshot::Sender<Result<(), ReplaceError>>,
}

/// Why the chains were not replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReplaceError {
    /// A seam would get its first chain, or lose it: what an unset seam means is settled at the start.
    #[error("a chain would be added to a seam or taken from one; restart the gate for that")]
    Seams,
    /// A policy cannot be put in force.
    #[error(transparent)]
    Load(#[from] LoadError),
}

/// When to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// After [`QUIET`]: something is new.
    Soon,
    /// After [`PERIOD`], or when something is heard of.
    Later,
}

impl Reloader {
    /// No chain yet.
    #[must_use]
    pub fn new(loader: Loader) -> Self {
        let board = Board::default();
        board.write(|status| status.engine = loader.engine.to_string());
        Self {
            loader,
            seats: Vec::new(),
            board,
        }
    }

    /// The status of every policy.
    #[must_use]
    pub fn board(&self) -> Board {
        self.board.clone()
    }

    /// Loads a chain and follows its files from now on. Blocks for as long as compiling takes.
    ///
    /// # Errors
    ///
    /// The first policy that cannot be put in force.
    pub fn add(&mut self, seam: Seam, policies: Vec<PolicySettings>) -> Result<Arc<LiveChain>, LoadError> {
        let (slots, statuses) = self.load_slots(seam, policies)?;
        let chain = LiveChain::new(chain_of(&slots));
        self.board.write(|status| status.policies.extend(statuses));
        self.seats.push(Seat {
            seam,
            chain: Arc::clone(&chain),
            slots,
        });
        Ok(chain)
    }

    /// Replaces every chain at once; or none, when a policy of any cannot be put in force. Blocks for as long
    /// as compiling takes.
    ///
    /// # Errors
    ///
    /// [`ReplaceError`]; then everything is as before.
    pub fn replace_all(&mut self, loader: Loader, chains: Chains) -> Result<(), ReplaceError> {
        let same_seams = self
            .seats
            .iter()
            .map(|seat| seat.seam)
            .eq(chains.iter().map(|(seam, _)| *seam));
        if !same_seams {
            return Err(ReplaceError::Seams);
        }
        let next = Self::new(loader);
        let mut loaded = Vec::new();
        for (seam, policies) in chains {
            let (slots, statuses) = next.load_slots(seam, policies)?;
            next.board.write(|status| status.policies.extend(statuses));
            loaded.push(slots);
        }
        for (seat, slots) in self.seats.iter_mut().zip(loaded) {
            seat.chain.replace(chain_of(&slots));
            seat.slots = slots;
        }
        self.loader = next.loader;
        let policies = next.board.read().policies;
        self.board.write(|status| {
            let before = std::mem::replace(&mut status.policies, policies);
            status.keep_counts(before);
            status.refused = None;
            status.replaced_ok += 1;
        });
        tracing::info!("every policy was loaded anew");
        Ok(())
    }

    fn load_slots(
        &self,
        seam: Seam,
        policies: Vec<PolicySettings>,
    ) -> Result<(Vec<Slot>, Vec<PolicyStatus>), LoadError> {
        let first = self.board.read().policies.len();
        let mut slots = Vec::new();
        let mut statuses = Vec::new();
        for (at, settings) in policies.into_iter().enumerate() {
            let (policy, in_force) = self.loader.load_first(seam, &settings)?;
            let file = match &settings.source {
                Source::File(path) => Some(path.clone()),
                Source::Bytes { .. } => None,
            };
            statuses.push(PolicyStatus {
                seam,
                policy: settings.name.clone(),
                digest: policy.digest(),
                configured: policy.facts().configured.to_string(),
                hides: hides(&policy),
                loaded_unix_ms: self.loader.clock.now_unix_ms(),
                failure: None,
                reloads_ok: 0,
                reloads_failed: 0,
            });
            slots.push(Slot {
                seam,
                settings,
                file,
                policy: Arc::new(policy),
                in_force,
                unfit: None,
                new: None,
                at: first + at,
            });
        }
        Ok((slots, statuses))
    }

    /// The files that are followed.
    #[must_use]
    pub fn files(&self) -> Vec<PathBuf> {
        let slots = self.seats.iter().flat_map(|seat| &seat.slots);
        slots.filter_map(|slot| slot.file.clone()).collect()
    }

    /// Looks at every file once. Blocks for as long as reading, and where something new stays the same,
    /// compiling takes.
    pub fn check(&mut self) -> Next {
        let now = Instant::now();
        let mut next = Next::Later;
        for seat in &mut self.seats {
            for at in 0..seat.slots.len() {
                let Some(slot) = seat.slots.get_mut(at) else { break };
                match slot.check(now, &self.loader, &self.board) {
                    Checked::Same => {}
                    Checked::New => next = Next::Soon,
                    Checked::Replaced { old } => {
                        seat.chain.replace(chain_of(&seat.slots));
                        if let Some(slot) = seat.slots.get(at) {
                            slot.announce(old, &self.loader, &self.board);
                        }
                    }
                }
            }
        }
        next
    }

    /// Follows the files, and replaces every chain when it is told to, until `stop`; nothing is loaded after
    /// that (ruling L6).
    pub async fn run(self, watch: Watch, mut orders: mpsc::Receiver<Replace>, stop: CancellationToken) {
        let mut work = Work {
            reloader: self,
            watch,
            order: None,
        };
        loop {
            let looked = Instant::now();
            let Ok((done, next)) = tokio::task::spawn_blocking(move || work.look()).await else {
                return tracing::error!(
                    "following the policy files has failed; the policies stay as they are"
                );
            };
            work = done;
            let wait = match next {
                Next::Soon => QUIET,
                Next::Later => PERIOD,
            };
            tokio::select! {
                // The stop comes first, so that nothing is loaded after it; then what a person ordered.
                biased;
                () = stop.cancelled() => return,
                Some(order) = orders.recv() => work.order = Some(order),
                // A folder in which much happens is still looked at no more often than this.
                () = heard(&work.watch, looked + QUIET), if next == Next::Later => {}
                () = elapsed(wait) => {}
            }
        }
    }
}

/// What one look needs, handed to a thread that may block and back.
struct Work {
    reloader: Reloader,
    watch: Watch,
    order: Option<Replace>,
}

impl Work {
    fn look(mut self) -> (Self, Next) {
        if let Some(Replace { loader, chains, done }) = self.order.take() {
            let _nobody_waits = done.send(self.reloader.replace_all(loader, chains));
        }
        self.watch.follow(&self.reloader.files());
        let next = self.reloader.check();
        (self, next)
    }
}

/// Resolves when something was heard of, and not before `earliest`.
async fn heard(watch: &Watch, earliest: Instant) {
    watch.heard().await;
    let _elapsed = tokio::time::timeout_at(earliest, std::future::pending::<()>()).await;
}

/// A span of time in which nothing else is waited for.
async fn elapsed(time: Duration) {
    let _elapsed = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

fn chain_of(slots: &[Slot]) -> Chain {
    Chain::of(
        slots
            .iter()
            .map(|slot| Arc::clone(&slot.policy) as Arc<dyn Member>)
            .collect(),
    )
}

/// What one look at a file came to.
enum Checked {
    /// What lies there is in force, or known to be unfit.
    Same,
    /// It is new, and not yet the same for long enough.
    New,
    /// The slot has another policy, which is in force once the chain has it.
    Replaced {
        /// The one before.
        old: Digest,
    },
}

impl Slot {
    fn check(&mut self, now: Instant, loader: &Loader, board: &Board) -> Checked {
        let Some(path) = &self.file else {
            return Checked::Same;
        };
        let read = Generation::read(path, &self.settings);
        let seen = match &read {
            Ok(generation) => Seen::Generation(generation.digest),
            Err(error) => Seen::Nothing(error.to_string()),
        };
        if self
            .in_force
            .is_some_and(|digest| seen == Seen::Generation(digest))
        {
            // What was unfit has gone again.
            (self.new, self.unfit) = (None, None);
            board.of(self.at, |status| status.failure = None);
            return Checked::Same;
        }
        if self.unfit.as_ref() == Some(&seen) {
            self.new = None;
            return Checked::Same;
        }
        match &self.new {
            Some((new, since)) if *new == seen && QUIET <= now.duration_since(*since) => {}
            Some((new, _)) if *new == seen => return Checked::New,
            Some(_) | None => {
                self.new = Some((seen, now));
                return Checked::New;
            }
        }
        self.new = None;
        let loaded = read.and_then(|generation| {
            Ok((
                loader.load_generation(self.seam, &self.settings, &generation)?,
                generation.digest,
            ))
        });
        match loaded {
            Ok((policy, digest)) => {
                let old = self.policy.digest();
                self.policy = Arc::new(policy);
                self.in_force = Some(digest);
                self.unfit = None;
                Checked::Replaced { old }
            }
            Err(error) => {
                self.failed(seen, &error, loader, board);
                Checked::Same
            }
        }
    }

    /// Says that the new policy is in force, once it is.
    fn announce(&self, old: Digest, loader: &Loader, board: &Board) {
        let (digest, loaded_unix_ms) = (self.policy.digest(), loader.clock.now_unix_ms());
        let (configured, hides) = (
            self.policy.facts().configured.to_string(),
            hides(self.policy.as_ref()),
        );
        board.of(self.at, |status| {
            status.digest = digest;
            status.configured = configured;
            status.hides = hides;
            status.loaded_unix_ms = loaded_unix_ms;
            status.failure = None;
            status.reloads_ok += 1;
        });
        tracing::info!(policy = %self.settings.name, %old, new = %digest, "policy replaced");
    }

    fn failed(&mut self, seen: Seen, error: &LoadError, loader: &Loader, board: &Board) {
        let reason = reason(error);
        let logged = escaped(reason.as_bytes(), status::REASON_BYTES_MAX);
        tracing::error!(policy = %self.settings.name, in_force = %self.policy.digest(), code = error.code(),
            "the policy's file is not put in force, the last good one stays: {logged}");
        let file = match &seen {
            Seen::Generation(digest) => Some(*digest),
            Seen::Nothing(_) => None,
        };
        self.unfit = Some(seen);
        let at_unix_ms = loader.clock.now_unix_ms();
        board.of(self.at, |status| {
            status.failure = Some(Failure {
                file,
                reason,
                at_unix_ms,
            });
            status.reloads_failed += 1;
        });
    }
}

/// The error with its cause.
fn reason(error: &LoadError) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
