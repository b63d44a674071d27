//! From a file to a policy in force: read, looked at, compiled, linked, and tried once.

mod error;
mod snapshot;
mod source;
mod trial;
mod world;

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::{Component, ComponentExportIndex};

pub use error::LoadError;
use snapshot::Taken;
use world::Linked;

use super::contract::{CONFIGURABLE, serves};
use super::engine::Engine;
use super::judge::{Guest, Setup, caught};
use super::limits::{Grants, Limits, PolicySettings};
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

/// What is known of a loaded policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the component imports: its requests for capabilities.
    pub imports: Vec<String>,
    /// What the component exports.
    pub exports: Vec<String>,
    /// Size of the component as WebAssembly, in bytes.
    pub component_bytes: usize,
    /// How long it took to read, compile, link and try it.
    pub load_time: Duration,
    /// Whether it takes a configuration.
    pub configurable: bool,
    /// When it takes it.
    pub configured: Configured,
}

/// When a policy takes its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Configured {
    /// Never: it takes none.
    Nothing,
    /// When it was loaded: every judgement starts from the image that was taken then.
    Snapshot,
    /// In every judgement, because no image of it can be taken.
    EachCall {
        /// Why not.
        reason: String,
    },
}

impl std::fmt::Display for Configured {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nothing => f.write_str("takes no configuration"),
            Self::Snapshot => f.write_str("configured once, when it was loaded"),
            Self::EachCall { reason } => write!(f, "configured at each call ({reason})"),
        }
    }
}

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
        let policy = settings.name.clone();
        let host = |reason: String| LoadError::Host {
            policy: policy.clone(),
            reason,
        };
        std::thread::scope(|scope| {
            // A thread of its own: its stack is known to be deep enough, and a runtime that waits
            // for host calls can be entered there whether or not the caller is in one.
            let thread = std::thread::Builder::new()
                .name("gatewright-load".to_owned())
                .stack_size(LOADER_STACK_BYTES)
                .spawn_scoped(scope, || load(engine, settings))
                .map_err(|error| host(format!("no thread: {error}")))?;
            thread
                .join()
                .unwrap_or_else(|_panic| Err(host("the host panicked".to_owned())))
        })
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

    /// Digest over everything that makes this policy decide as it does.
    pub(super) fn identity(&self) -> Digest {
        self.identity
    }
}

#[expect(clippy::disallowed_methods, reason = "measures real work")]
fn load(engine: &Arc<Engine>, settings: PolicySettings) -> Result<Policy, LoadError> {
    let start = std::time::Instant::now();
    let name = settings.name.clone();
    check_limits(engine, &name, &settings.limits)?;
    let bytes = source::wasm(&name, source::read(&name, &settings)?)?;
    shape::check(&bytes, &settings.limits).map_err(|misshapen| misshapen_error(&name, misshapen))?;
    let config_json = match settings.config_json.trim() {
        "" => NO_CONFIGURATION.to_owned(),
        _ => settings.config_json,
    };
    let digest = Digest::of_parts([bytes.as_slice(), config_json.as_bytes()]);
    let identity = identity(digest, settings.mode, &settings.limits, settings.grants);
    let setup = Arc::new(Setup {
        name,
        config_json,
        limits: settings.limits,
        grants: settings.grants,
    });
    let Ready {
        guest,
        linked,
        configured,
    } = prepare(engine, &setup, &bytes)?;
    let facts = Facts {
        imports: linked.imports,
        exports: linked.exports,
        component_bytes: bytes.len(),
        load_time: start.elapsed(),
        configurable: linked.configure.is_some(),
        configured,
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
    linked: Linked,
    configured: Configured,
}

/// Makes a guest of the component: one that is configured already, where that can be had.
fn prepare(engine: &Arc<Engine>, setup: &Arc<Setup>, bytes: &[u8]) -> Result<Ready, LoadError> {
    if !shape::exports(bytes)
        .iter()
        .any(|export| serves(export, CONFIGURABLE))
    {
        return ready(engine, setup, bytes, Configured::Nothing);
    }
    let reason = match snapshot::take(engine, setup, bytes)? {
        Taken::Image(image) => match ready(engine, setup, &image, Configured::Snapshot) {
            Ok(ready) => return Ok(ready),
            Err(error) => error.to_string(),
        },
        Taken::Not(reason) => reason,
    };
    tracing::info!(policy = %setup.name, reason, "the policy is configured at each call");
    ready(engine, setup, bytes, Configured::EachCall { reason })
}

fn ready(
    engine: &Arc<Engine>,
    setup: &Arc<Setup>,
    bytes: &[u8],
    configured: Configured,
) -> Result<Ready, LoadError> {
    let policy = &setup.name;
    let component = Component::new(engine.wasm(), bytes).map_err(|error| LoadError::Compile {
        policy: policy.clone(),
        reason: reason(&error),
    })?;
    let linked = world::linked(engine, policy, &component)?;
    if linked.configure.is_none() && setup.config_json.trim() != NO_CONFIGURATION {
        return Err(LoadError::NotConfigurable {
            policy: policy.clone(),
        });
    }
    let configure = match configured {
        Configured::Nothing | Configured::Snapshot => None,
        Configured::EachCall { .. } => linked.configure,
    };
    let guest = guest(engine, setup, &linked, configure);
    trial::try_once(&guest)?;
    Ok(Ready {
        guest,
        linked,
        configured,
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
        waits: !linked.imports.is_empty(),
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

fn identity(digest: Digest, mode: Mode, limits: &Limits, grants: Grants) -> Digest {
    let mode: &[u8] = match mode {
        Mode::Enforce => b"enforce",
        Mode::Observe => b"observe",
    };
    let number = |number: usize| (number as u64).to_be_bytes();
    Digest::of_parts([
        digest.as_bytes().as_slice(),
        mode,
        &[u8::from(grants.clock), u8::from(grants.random)],
        &limits.deadline.as_nanos().to_be_bytes(),
        &number(limits.memory_bytes_max),
        &number(limits.table_elements_max),
        &number(limits.output_bytes_max),
    ])
}
