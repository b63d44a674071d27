//! From a file to a policy in force: read, looked at, compiled, linked, and tried once.

mod error;
mod source;
mod world;

use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::Component;

pub use error::LoadError;

use super::contract::{AUTHORIZE, AUTHORIZER, CONFIGURABLE, CONFIGURE, VERSIONS, serves};
use super::engine::Engine;
use super::judge::{Failure, Guest, Trial, caught};
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
            .field("name", &self.guest.name)
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
        &self.guest.name
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
    let component = Component::new(engine.wasm(), &bytes).map_err(|error| LoadError::Compile {
        policy: name.clone(),
        reason: reason(&error),
    })?;

    let imports = world::imports(engine, &component);
    let exports = world::exports(engine, &component);
    let instance = world::link(engine, &name, &component, &imports)?;
    let export = |interface, function| {
        world::function(&component, &exports, interface, function).map_err(|(export, reason)| {
            LoadError::Export {
                policy: name.clone(),
                export,
                reason,
            }
        })
    };
    let authorize = export(AUTHORIZER, AUTHORIZE)?;
    let configure = if exports.iter().any(|export| serves(export, CONFIGURABLE)) {
        Some(export(CONFIGURABLE, CONFIGURE)?)
    } else {
        None
    };
    let config_json = match settings.config_json.trim() {
        "" => NO_CONFIGURATION.to_owned(),
        _ => settings.config_json,
    };
    if configure.is_none() && config_json.trim() != NO_CONFIGURATION {
        return Err(LoadError::NotConfigurable { policy: name });
    }

    let digest = Digest::of_parts([bytes.as_slice(), config_json.as_bytes()]);
    let identity = identity(digest, settings.mode, &settings.limits, settings.grants);
    let configurable = configure.is_some();
    let guest = Guest {
        engine: Arc::clone(engine),
        name,
        instance,
        authorize,
        configure,
        waits: !imports.is_empty(),
        config_json,
        limits: settings.limits,
        grants: settings.grants,
    };
    try_once(&guest)?;
    let facts = Facts {
        imports,
        exports,
        component_bytes: bytes.len(),
        load_time: start.elapsed(),
        configurable,
    };
    Ok(Policy {
        guest,
        mode: settings.mode,
        digest,
        identity,
        facts,
    })
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

/// Instantiates and configures the policy once, because a wrong type shows only then (ruling G9).
fn try_once(guest: &Guest) -> Result<(), LoadError> {
    let policy = guest.name.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| LoadError::Host {
            policy: policy.clone(),
            reason: error.to_string(),
        })?;
    let trial = runtime.block_on(caught(async { Ok::<_, Failure>(guest.trial().await) }));
    match trial {
        Ok(Trial::Ready) => Ok(()),
        Ok(Trial::Refused(reason)) => Err(LoadError::Configuration { policy, reason }),
        Ok(Trial::WrongType(reason)) => Err(LoadError::Export {
            policy,
            export: format!("{AUTHORIZER}@{VERSIONS}"),
            reason: escaped(reason.as_bytes(), REASON_BYTES_MAX),
        }),
        Ok(Trial::Failed((Fault::Internal, reason))) | Err((_, reason)) => {
            Err(LoadError::Host { policy, reason })
        }
        Ok(Trial::Failed((Fault::Memory, reason))) => Err(LoadError::Limit { policy, reason }),
        Ok(Trial::Failed((fault, reason))) => Err(LoadError::Start {
            policy,
            fault,
            reason: escaped(reason.as_bytes(), REASON_BYTES_MAX),
        }),
    }
}
