//! From a file to a policy in force: read, looked at, compiled, linked, and tried once.

mod blank;
mod error;
mod facts;
mod snapshot;
mod source;
mod trial;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wasmtime::component::{Component, ComponentExportIndex};

pub use blank::Blank;
pub use error::LoadError;
pub use facts::{Configured, Facts, Given, Request, requests};
use snapshot::Taken;
pub(super) use source::read_file;
use world::Linked;

use super::cache::{self, Cache};
use super::contract::{CONFIGURABLE, serves};
use super::engine::Engine;
use super::judge::{Guest, Setup, caught};
use super::limits::{Grants, Limits, PolicySettings};
use super::lists::Viewing;
use super::shape::{self, Misshapen};
use super::text::escaped;
use crate::decision::{Decision, Fault, Mode};
use crate::seam::Call;
use crate::vocabulary::Digest;

/// Text kept of what another part said of a component, in bytes.
const REASON_BYTES_MAX: usize = 2048;

/// What a policy gets when no configuration is given.
const NO_CONFIGURATION: &str = "{}";

/// Stack of the thread that loads, in bytes. The compiler recurses into what it compiles.
const LOADER_STACK_BYTES: usize = 16 * 1024 * 1024;

/// A policy that was compiled, found to be one, and configured once as a check.
pub struct Policy {
    guest: Guest,
    mode: Mode,
    digest: Digest,
    identity: Digest,
    facts: Facts,
}

impl std::fmt::Debug for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.guest.setup.name)
            .field("mode", &self.mode)
            .field("digest", &self.digest)
            .finish_non_exhaustive()
    }
}

impl Policy {
    /// Loads a policy. Blocks for as long as compiling takes.
    ///
    /// # Errors
    ///
    /// [`LoadError`] when the policy cannot be put in force.
    pub fn load(engine: &Arc<Engine>, settings: PolicySettings) -> Result<Self, LoadError> {
        Self::load_with(engine, settings, None)
    }

    /// Loads a policy from what was compiled before, or compiles it and keeps that for the next
    /// time. Blocks for as long as that takes.
    ///
    /// # Errors
    ///
    /// [`LoadError`] when the policy cannot be put in force. A cache that does not work is no
    /// reason.
    pub fn load_with(
        engine: &Arc<Engine>,
        settings: PolicySettings,
        cache: Option<&Cache>,
    ) -> Result<Self, LoadError> {
        let policy = settings.name.clone();
        on_loader_thread(&policy, || load(engine, settings, cache))
    }

    /// How the policy is called in messages and records.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.guest.setup.name
    }

    /// Whether its decisions count.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Digest over the component's bytes and its configuration.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Whether any judgement so far used anything of what the component imports.
    #[must_use]
    pub fn used_imports(&self) -> bool {
        self.guest.used_imports.load(Ordering::Relaxed)
    }

    /// What is known of it.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Judges one call in a fresh instance. The number is how long that took, in microseconds.
    ///
    /// A component without imports is judged in the first poll, on the polling thread, and its
    /// deadline is real time. One with imports needs a tokio runtime with time. Dropping the future
    /// ends the judgement.
    #[expect(clippy::disallowed_methods, reason = "measures real work")]
    pub async fn decide(&self, call: &Call<'_>) -> (Result<Decision, (Fault, String)>, u64) {
        let start = std::time::Instant::now();
        let decision = caught(self.guest.judge(call)).await;
        (
            decision,
            u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX),
        )
    }

    /// Whether an entry of a list is shown, said in a fresh instance as [`Self::decide`] does it.
    pub(super) async fn view(&self, viewing: Viewing<'_>) -> Result<bool, (Fault, String)> {
        caught(self.guest.shows(viewing)).await
    }

    /// Digest over everything that makes this policy decide as it does.
    pub(super) fn identity(&self) -> Digest {
        self.identity
    }
}

/// The component of these settings, after the first look at its bytes.
pub(super) fn component_bytes(settings: &PolicySettings) -> Result<Vec<u8>, LoadError> {
    let name = settings.name.as_str();
    let bytes = source::wasm(name, source::read(name, settings)?)?;
    shape::check(&bytes, &settings.limits).map_err(|misshapen| misshapen_error(name, misshapen))?;
    Ok(bytes)
}

/// Runs `work` on a thread whose stack is known to be deep enough, and where a runtime that waits for host calls can
/// be entered whether or not the caller is in one.
fn on_loader_thread<T: Send>(
    policy: &str,
    work: impl FnOnce() -> Result<T, LoadError> + Send,
) -> Result<T, LoadError> {
    let host = |reason: String| LoadError::Host {
        policy: policy.to_owned(),
        reason,
    };
    // What is said while loading goes where the caller's own lines go.
    let listener = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("gatewright-load".to_owned())
            .stack_size(LOADER_STACK_BYTES)
            .spawn_scoped(scope, || tracing::dispatcher::with_default(&listener, work))
            .map_err(|error| host(format!("no thread: {error}")))?;
        thread
            .join()
            .unwrap_or_else(|_panic| Err(host("the host panicked".to_owned())))
    })
}

#[expect(clippy::disallowed_methods, reason = "measures real work")]
fn load(engine: &Arc<Engine>, settings: PolicySettings, cache: Option<&Cache>) -> Result<Policy, LoadError> {
    let start = std::time::Instant::now();
    let name = settings.name.clone();
    check_limits(engine, &name, &settings.limits)?;
    let bytes = component_bytes(&settings)?;
    let config_json = match settings.config_json.trim() {
        "" => NO_CONFIGURATION.to_owned(),
        _ => settings.config_json,
    };
    let digest = Digest::of_parts([bytes.as_slice(), config_json.as_bytes()]);
    let identity = identity(digest, settings.mode, &settings.limits, &settings.grants);
    let setup = Arc::new(Setup {
        name,
        config_json,
        limits: settings.limits,
        grants: Arc::new(settings.grants),
    });
    let Ready {
        guest,
        linked,
        configured,
        cached,
        memory_bytes,
        ..
    } = prepare(engine, &setup, &bytes, cache)?;
    let facts = Facts {
        requests: facts::requests(&linked.imports, &setup.grants),
        imports: linked.imports,
        exports: linked.exports,
        component_bytes: bytes.len(),
        memory_bytes,
        load_time: start.elapsed(),
        configurable: linked.configure.is_some(),
        visibility: linked.visible.is_some(),
        configured,
        cached,
    };
    Ok(Policy {
        guest,
        mode: settings.mode,
        digest,
        identity,
        facts,
    })
}

/// A guest that was tried once.
struct Ready {
    guest: Guest,
    component: Component,
    linked: Linked,
    configured: Configured,
    cached: bool,
    memory_bytes: usize,
}

/// Makes a guest of the component: from the cache if it is there.
fn prepare(
    engine: &Arc<Engine>,
    setup: &Arc<Setup>,
    bytes: &[u8],
    cache: Option<&Cache>,
) -> Result<Ready, LoadError> {
    let Some(cache) = cache else {
        return build(engine, setup, bytes);
    };
    // Everything that an image is made from: how much time it may take is not in it.
    let room = [setup.limits.memory_bytes_max, setup.limits.table_elements_max];
    let [memory, tables] = room.map(|room| (room as u64).to_be_bytes());
    let parts = [bytes, setup.config_json.as_bytes(), &memory, &tables];
    let entry = cache::entry(engine, parts);
    if let Some(found) = cache.find(engine, entry)
        && let Some(configured) = Configured::noted(&found.note)
    {
        let mut ready = ready(engine, setup, found.component, configured)?;
        ready.cached = true;
        return Ok(ready);
    }
    let built = build(engine, setup, bytes)?;
    cache.keep(entry, &built.component, &built.configured.note());
    Ok(built)
}

/// Compiles the component: one that is configured already, where that can be had.
fn build(engine: &Arc<Engine>, setup: &Arc<Setup>, bytes: &[u8]) -> Result<Ready, LoadError> {
    let compiled = |bytes: &[u8], configured| {
        let component = Component::new(engine.wasm(), bytes).map_err(|error| LoadError::Compile {
            policy: setup.name.clone(),
            reason: reason(&error),
        })?;
        ready(engine, setup, component, configured)
    };
    if !shape::exports(bytes)
        .iter()
        .any(|export| serves(export, CONFIGURABLE))
    {
        return compiled(bytes, Configured::Nothing);
    }
    let reason = match snapshot::take(engine, setup, bytes)? {
        Taken::Image(image) => match compiled(&image, Configured::Snapshot) {
            Ok(ready) => return Ok(ready),
            Err(error) => error.to_string(),
        },
        Taken::Not(reason) => reason,
    };
    tracing::info!(policy = %setup.name, reason, "the policy is configured at each call");
    compiled(bytes, Configured::EachCall { reason })
}

/// Links the component and tries it once.
fn ready(
    engine: &Arc<Engine>,
    setup: &Arc<Setup>,
    component: Component,
    configured: Configured,
) -> Result<Ready, LoadError> {
    let linked = world::linked(engine, &setup.name, &component)?;
    if linked.configure.is_none() && setup.config_json.trim() != NO_CONFIGURATION {
        return Err(LoadError::NotConfigurable {
            policy: setup.name.clone(),
        });
    }
    let configure = match configured {
        Configured::Nothing | Configured::Snapshot => None,
        Configured::EachCall { .. } => linked.configure,
    };
    let guest = guest(engine, setup, &linked, configure);
    let live = trial::try_once(&guest)?;
    let left = live.store.data().limiter.left();
    Ok(Ready {
        memory_bytes: setup.limits.memory_bytes_max.saturating_sub(left),
        guest,
        component,
        linked,
        configured,
        cached: false,
    })
}

/// A guest that is configured with `configure`, if there is such a function, in every instance.
fn guest(
    engine: &Arc<Engine>,
    setup: &Arc<Setup>,
    linked: &Linked,
    configure: Option<ComponentExportIndex>,
) -> Guest {
    Guest {
        engine: Arc::clone(engine),
        setup: Arc::clone(setup),
        instance: linked.instance.clone(),
        authorize: linked.authorize,
        configure,
        visible: linked.visible,
        waits: !linked.imports.is_empty(),
        used_imports: AtomicBool::new(false),
    }
}

/// A policy cannot have more than the engine reserved room for.
fn check_limits(engine: &Engine, policy: &str, limits: &Limits) -> Result<(), LoadError> {
    let room = engine.settings();
    let past = |what: &str, wanted: usize, max: usize| LoadError::Limit {
        policy: policy.to_owned(),
        reason: format!("its limit of {wanted} {what} is more than the host's {max}"),
    };
    if room.memory_bytes_max < limits.memory_bytes_max {
        return Err(past(
            "bytes of memory",
            limits.memory_bytes_max,
            room.memory_bytes_max,
        ));
    }
    if room.table_elements_max < limits.table_elements_max {
        return Err(past(
            "table elements",
            limits.table_elements_max,
            room.table_elements_max,
        ));
    }
    Ok(())
}

fn misshapen_error(policy: &str, misshapen: Misshapen) -> LoadError {
    let policy = policy.to_owned();
    match misshapen {
        Misshapen::CoreModule => LoadError::CoreModule { policy },
        Misshapen::Broken(reason) => LoadError::NotWasm { policy, reason },
        Misshapen::TooLarge(reason) => LoadError::Limit { policy, reason },
        Misshapen::Encoding(encoding) => LoadError::Encoding { policy, encoding },
    }
}

/// What the engine says, in one line.
fn reason(error: &wasmtime::Error) -> String {
    escaped(format!("{error:#}").as_bytes(), REASON_BYTES_MAX)
}

fn identity(digest: Digest, mode: Mode, limits: &Limits, grants: &Grants) -> Digest {
    let mode: &[u8] = match mode {
        Mode::Enforce => b"enforce",
        Mode::Observe => b"observe",
    };
    let number = |number: usize| (number as u64).to_be_bytes();
    // Whether it may write to the log is not in it: it cannot tell.
    let variables = grants
        .env
        .iter()
        .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    Digest::of_parts([
        digest.as_bytes().as_slice(),
        mode,
        &[u8::from(grants.clock), u8::from(grants.random)],
        &limits.deadline.as_nanos().to_be_bytes(),
        &number(limits.memory_bytes_max),
        &number(limits.table_elements_max),
        &number(limits.output_bytes_max),
        Digest::of_parts(variables).as_bytes(),
    ])
}
