//! From a file to a policy in force: read, looked at, compiled, linked, and tried once.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use super::contract::{AUTHORIZE, AUTHORIZER, CONFIGURABLE, CONFIGURE, VERSIONS, serves};
use super::engine::Engine;
use super::judge::{Failure, Guest, Trial, caught};
use super::limits::{Limits, PolicySettings, Source};
use super::sandbox::State;
use super::shape::{self, Misshapen};
use super::text::escaped;
use crate::decision::{Code, Decision, Fault, Mode};
use crate::seam::Call;
use crate::vocabulary::Digest;

/// Text kept of what another part said of a component, in bytes.
const REASON_BYTES_MAX: usize = 2048;

/// What a policy gets when no configuration is given.
const NO_CONFIGURATION: &str = "{}";

/// Stack of the thread that loads, in bytes. The compiler recurses into what it compiles.
const LOADER_STACK_BYTES: usize = 16 * 1024 * 1024;

/// Why a policy is not in force. Each message names the policy, the reason and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file could not be read.
    #[error("cannot read policy `{}`; check that the path is right and the file readable", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path names something else than a file.
    #[error("cannot read policy `{}`: it is not a regular file; name the `.wasm` or `.wat` file itself", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The bytes are neither WebAssembly nor its text format.
    #[error(
        "policy `{policy}` is neither a WebAssembly component nor its text format ({reason}); check that the file is what the build made"
    )]
    NotWasm {
        /// The policy.
        policy: String,
        /// What the reader said.
        reason: String,
    },
    /// The file holds machine code.
    #[error(
        "policy `{policy}` is compiled machine code, which is never loaded; give the `.wasm` component that it was compiled from"
    )]
    MachineCode {
        /// The policy.
        policy: String,
    },
    /// The file is a core module.
    #[error(
        "policy `{policy}` is a core WebAssembly module, not a component; wrap it with `wasm-tools component new`"
    )]
    CoreModule {
        /// The policy.
        policy: String,
    },
    /// A part of the component is past a limit.
    #[error(
        "policy `{policy}` is past a limit: {reason}; make it smaller, or raise the limit in its configuration where it has one"
    )]
    Limit {
        /// The policy.
        policy: String,
        /// Which limit, and by how much.
        reason: String,
    },
    /// The component's texts are not UTF-8.
    #[error("policy `{policy}` uses the string encoding {encoding}; rebuild it with UTF-8 strings")]
    Encoding {
        /// The policy.
        policy: String,
        /// The encoding.
        encoding: &'static str,
    },
    /// The engine refuses the component.
    #[error(
        "policy `{policy}` cannot be compiled ({reason}); rebuild it without asynchronous functions, threads and 64-bit memories, and as fewer modules if it has many"
    )]
    Compile {
        /// The policy.
        policy: String,
        /// What the engine said.
        reason: String,
    },
    /// The component wants something that this host does not have.
    #[error(
        "policy `{policy}` imports `{import}`, which this host does not provide ({reason}); build the policy without it"
    )]
    Import {
        /// The policy.
        policy: String,
        /// The first such import.
        import: String,
        /// What exactly is missing.
        reason: String,
    },
    /// An export of the contract is missing or has another type.
    #[error(
        "policy `{policy}` does not export `{export}` as this host knows it ({reason}); build it against `gatewright:policy@1.0.0`"
    )]
    Export {
        /// The policy.
        policy: String,
        /// The export.
        export: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A configuration is given and the policy takes none.
    #[error(
        "policy `{policy}` takes no configuration: it does not export `{CONFIGURABLE}`; remove its configuration, or build the policy with that export"
    )]
    NotConfigurable {
        /// The policy.
        policy: String,
    },
    /// The policy refuses its configuration.
    #[error("policy `{policy}` refuses its configuration: {reason}; correct the configuration")]
    Configuration {
        /// The policy.
        policy: String,
        /// What the policy said, cut and escaped.
        reason: String,
    },
    /// The policy failed when it was first instantiated and configured.
    #[error("policy `{policy}` fails at its start with `{code}`: {reason}; run `gatewright check` on it, or give it larger limits", code = fault.code().as_str())]
    Start {
        /// The policy.
        policy: String,
        /// How it failed.
        fault: Fault,
        /// What exactly happened.
        reason: String,
    },
    /// The host failed while loading.
    #[error("policy `{policy}` cannot be loaded: {reason}; this is a fault of the host, please report it")]
    Host {
        /// The policy.
        policy: String,
        /// What exactly happened.
        reason: String,
    },
}

impl LoadError {
    /// The stable code of every failed load: `policy_load`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        Code::PolicyLoad.as_str()
    }
}

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
    let bytes = wasm(&name, read(&name, &settings)?)?;
    shape::check(&bytes, &settings.limits).map_err(|misshapen| misshapen_error(&name, misshapen))?;
    let component = Component::new(engine.wasm(), &bytes).map_err(|error| LoadError::Compile {
        policy: name.clone(),
        reason: reason(&error),
    })?;

    let imports = imports(engine, &component);
    let exports = exports(engine, &component);
    let instance = link(engine, &name, &component, &imports)?;
    let authorize = function(&component, &exports, AUTHORIZER, AUTHORIZE).map_err(|(export, reason)| {
        LoadError::Export {
            policy: name.clone(),
            export,
            reason,
        }
    })?;
    let configure = if exports.iter().any(|export| serves(export, CONFIGURABLE)) {
        let configure =
            function(&component, &exports, CONFIGURABLE, CONFIGURE).map_err(|(export, reason)| {
                LoadError::Export {
                    policy: name.clone(),
                    export,
                    reason,
                }
            })?;
        Some(configure)
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

fn read(policy: &str, settings: &PolicySettings) -> Result<Vec<u8>, LoadError> {
    let max = settings.limits.file_bytes_max;
    let bytes = match &settings.source {
        Source::File(path) => read_file(path, max)?,
        Source::Bytes { bytes, .. } => bytes.to_vec(),
    };
    if max < bytes.len() {
        let reason = format!("the file has more than {max} bytes");
        return Err(LoadError::Limit {
            policy: policy.to_owned(),
            reason,
        });
    }
    Ok(bytes)
}

/// Reads a regular file, at most one byte past `bytes_max` of it (ruling L3).
fn read_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    // Asked before it is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(LoadError::NotAFile {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let bytes_read_max = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let file = File::open(path).map_err(failed)?;
    file.take(bytes_read_max)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// `bytes` themselves when they are WebAssembly, or what they say in its text format.
fn wasm(policy: &str, bytes: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    if bytes.starts_with(shape::MAGIC) {
        return Ok(bytes);
    }
    if shape::is_machine_code(&bytes) {
        return Err(LoadError::MachineCode {
            policy: policy.to_owned(),
        });
    }
    let not_wasm = |reason| LoadError::NotWasm {
        policy: policy.to_owned(),
        reason,
    };
    let text = String::from_utf8(bytes).map_err(|error| not_wasm(error.to_string()))?;
    wat::parse_str(text).map_err(|error| {
        // The first line says what; the others quote the file.
        let error = error.to_string();
        not_wasm(escaped(
            error.lines().next().unwrap_or_default().as_bytes(),
            REASON_BYTES_MAX,
        ))
    })
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

fn reason(error: &wasmtime::Error) -> String {
    escaped(format!("{error:#}").as_bytes(), REASON_BYTES_MAX)
}

fn imports(engine: &Engine, component: &Component) -> Vec<String> {
    let types = component.component_type();
    types
        .imports(engine.wasm())
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn exports(engine: &Engine, component: &Component) -> Vec<String> {
    let types = component.component_type();
    types
        .exports(engine.wasm())
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Resolves every import, or says which one is not provided.
fn link(
    engine: &Engine,
    policy: &str,
    component: &Component,
    imports: &[String],
) -> Result<InstancePre<State>, LoadError> {
    let missing = |import: &str, reason: String| LoadError::Import {
        policy: policy.to_owned(),
        import: import.to_owned(),
        reason,
    };
    if let Some(import) = imports.iter().find(|import| !import.starts_with("wasi:")) {
        return Err(missing(
            import,
            "only interfaces of WASI 0.2 are known".to_owned(),
        ));
    }
    let mut linker = Linker::new(engine.wasm());
    if !imports.is_empty() {
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(|error| LoadError::Host {
            policy: policy.to_owned(),
            reason: reason(&error),
        })?;
    }
    linker.instantiate_pre(component).map_err(|error| {
        let reason = reason(&error);
        let import = imports.iter().find(|import| reason.contains(import.as_str()));
        missing(import.map_or("wasi", String::as_str), reason)
    })
}

/// Finds `function` in the version of `interface` that this host serves, or says which export is
/// missing and what is there instead.
fn function(
    component: &Component,
    exports: &[String],
    interface: &str,
    function: &str,
) -> Result<ComponentExportIndex, (String, String)> {
    let Some(export) = exports.iter().find(|export| serves(export, interface)) else {
        let found = match exports {
            [] => "it exports nothing".to_owned(),
            _ => format!("it exports `{}`", exports.join("`, `")),
        };
        let found = escaped(found.as_bytes(), REASON_BYTES_MAX);
        return Err((format!("{interface}@{VERSIONS}"), found));
    };
    let (item, instance) = component
        .get_export(None, export)
        .ok_or_else(|| (export.clone(), "it cannot be found".to_owned()))?;
    if !matches!(item, ComponentItem::ComponentInstance(_)) {
        return Err((export.clone(), "it is not an interface".to_owned()));
    }
    let wanted = format!("{export}#{function}");
    match component.get_export(Some(&instance), function) {
        Some((ComponentItem::ComponentFunc(_), index)) => Ok(index),
        Some(_) => Err((wanted, "it is not a function".to_owned())),
        None => Err((wanted, "it is missing".to_owned())),
    }
}

fn identity(digest: Digest, mode: Mode, limits: &Limits, grants: super::limits::Grants) -> Digest {
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
