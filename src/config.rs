//! Configuration: a file, the environment and flags, checked into the settings of the parts.
//!
//! Flags come before the environment, and the environment before the file. Every error is found before
//! anything starts, and names the file, the line and the field, or the flag.
//!
//! INVARIANT: the raw structs of the file stay here; every other part gets a complete, checked struct.

mod error;
mod places;
mod policy;
mod raw;
#[cfg(feature = "http")]
mod serve;

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;

pub use error::ConfigError;
pub use places::{Environment, control_directory, default_audit_file, default_cache_directory};

#[cfg(feature = "http")]
pub use serve::ServeConfig;

use crate::audit::{AuditSettings, OnFailure, Sink};
use crate::gate::ask::AskSettings;
use crate::gate::server_requests::{ElicitationRule, ServerRequests};
use crate::host::Settings;
use crate::host::guards::{ChainSettings, GuardSettings};
use crate::policy::engine::EngineSettings;
use crate::policy::limits::PolicySettings;
use crate::policy::reload::Proof;
use crate::wire::scan::ScanLimits;
use raw::{
    Raw, RawAsk, RawAudit, RawCache, RawElicitation, RawOnFailure, RawServerRequest, RawUpstream, RawWire,
};

/// The longest configuration file, in bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The longest time that any setting may name, in milliseconds: one day.
const TIME_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// What the command line says. Empty members say nothing.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// The file to read.
    pub config: Option<PathBuf>,
    /// The tools chain: `PATH` or `builtin:NAME`, optionally with `=CONFIG`. Replaces the file's chain.
    pub tools: Vec<String>,
    /// The reads chain, likewise.
    pub reads: Vec<String>,
    /// Variables for the upstream, `NAME` or `NAME=VALUE`, beside those of the file.
    pub env: Vec<String>,
    /// Where records go: a file, `stderr` or `off`.
    pub audit: Option<String>,
    /// How the upstream is called.
    pub name: Option<String>,
    /// Whether compiled policies are neither kept nor looked for.
    pub no_cache: bool,
}

/// Everything that `wrap` needs beside the command.
#[derive(Clone, Debug)]
pub struct Config {
    /// The chains and the engine that runs them.
    pub guards: GuardSettings,
    /// The host.
    pub host: Settings,
    /// The audit log.
    pub audit: AuditSettings,
    /// Variables set for the upstream beside the minimal environment.
    pub environment: Vec<(OsString, OsString)>,
}

impl Config {
    /// Reads and checks everything. `program` is the upstream's command, which names it unless something else does.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong.
    pub fn load(flags: &Flags, program: &Path, environment: Environment<'_>) -> Result<Self, ConfigError> {
        let file = match &flags.config {
            Some(path) => ConfigFile::read(path)?,
            None => ConfigFile::none(),
        };
        let Raw {
            tools,
            reads,
            ask,
            wire,
            upstream,
            audit,
            cache,
            listen: _,
            admin: _,
            endpoint,
        } = file.parse()?;
        if let Some(first) = endpoint.iter().flatten().next() {
            let reason =
                "this is for `gatewright serve`; `wrap` guards the one server that its command names";
            return Err(file.wrong("endpoint", first, reason));
        }
        let tools = chain(&file, tools, ("--tools", &flags.tools), environment)?;
        let reads = chain(&file, reads, ("--reads", &flags.reads), environment)?;
        let upstream = upstream.map(Spanned::into_inner).unwrap_or_default();
        let named = flags.name.clone().or_else(|| upstream.name.clone());
        let server = named.unwrap_or_else(|| {
            program
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        });
        let host = host(&file, server, ask.as_ref(), wire.as_ref(), &upstream)?;
        check_deadlines(&tools, host.asks.deadline)?;
        check_deadlines(&reads, host.asks.deadline)?;
        Ok(Self {
            environment: variables(&file, &upstream, &flags.env, environment)?,
            host,
            audit: audit_settings(&file, audit, flags.audit.as_deref(), environment)?,
            guards: GuardSettings {
                engine: engine(&tools, &reads),
                cache: cache_directory(&file, cache.as_ref(), flags.no_cache, environment)?,
                proof: Proof::Loads,
                tools,
                reads,
            },
        })
    }
}

/// One policy as the command line names it: `PATH` or `builtin:NAME`, optionally with `=` and a JSON file or
/// a JSON object.
///
/// # Errors
///
/// [`ConfigError`] when the text names no policy or its configuration cannot be read.
pub fn policy(argument: &'static str, text: &str) -> Result<PolicySettings, ConfigError> {
    policy::from_flag(argument, text)
}

/// A configuration file, to say where in it something stands.
struct ConfigFile {
    path: PathBuf,
    text: String,
}

impl ConfigFile {
    fn none() -> Self {
        Self {
            path: PathBuf::new(),
            text: String::new(),
        }
    }

    fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_text(path, FILE_BYTES_MAX)?;
        Ok(Self {
            path: path.to_owned(),
            text,
        })
    }

    fn parse(&self) -> Result<Raw, ConfigError> {
        toml::from_str(&self.text).map_err(|error| ConfigError::Syntax {
            path: self.path.clone(),
            message: error.to_string().trim_end().to_owned(),
        })
    }

    /// `path`, as seen from the folder of this file.
    fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// What is wrong with the value that stands at `at`.
    fn wrong<T>(&self, field: &str, at: &Spanned<T>, reason: impl Into<String>) -> ConfigError {
        let before = self.text.get(..at.span().start).unwrap_or_default();
        ConfigError::Field {
            path: self.path.clone(),
            line: before.matches('\n').count() + 1,
            field: field.to_owned(),
            reason: reason.into(),
        }
    }

    /// A number from `min` to `max`, or `default` when the file says nothing.
    fn number(
        &self,
        field: &str,
        value: Option<&Spanned<i64>>,
        (min, default, max): (u64, u64, u64),
    ) -> Result<u64, ConfigError> {
        let Some(value) = value else {
            return Ok(default);
        };
        match u64::try_from(*value.get_ref()) {
            Ok(number) if (min..=max).contains(&number) => Ok(number),
            Ok(_) | Err(_) => {
                let reason = format!(
                    "{} is out of range; give a number from {min} to {max}",
                    value.get_ref()
                );
                Err(self.wrong(field, value, reason))
            }
        }
    }

    /// As [`Self::number`], for what is counted in memory.
    fn size(
        &self,
        field: &str,
        value: Option<&Spanned<i64>>,
        (min, default, max): (usize, usize, usize),
    ) -> Result<usize, ConfigError> {
        let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let number = self.number(field, value, (wide(min), wide(default), wide(max)))?;
        Ok(usize::try_from(number).unwrap_or(max))
    }

    /// As [`Self::number`], for a time in milliseconds, at most one day.
    fn time(
        &self,
        field: &str,
        value: Option<&Spanned<i64>>,
        default: Duration,
    ) -> Result<Duration, ConfigError> {
        let default_ms = u64::try_from(default.as_millis()).unwrap_or(TIME_MS_MAX);
        self.number(field, value, (1, default_ms, TIME_MS_MAX))
            .map(Duration::from_millis)
    }
}

/// The text of a regular file of at most so many bytes.
fn read_text(path: &Path, bytes_max: u64) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    // Asked before it is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(ConfigError::NotAFile {
            path: path.to_owned(),
        });
    }
    let mut text = String::new();
    let count = File::open(path)
        .and_then(|file| file.take(bytes_max + 1).read_to_string(&mut text))
        .map_err(failed)?;
    if bytes_max < u64::try_from(count).unwrap_or(u64::MAX) {
        return Err(ConfigError::TooLong {
            path: path.to_owned(),
            bytes_max,
        });
    }
    Ok(text)
}

/// The chain of one seam: the flags' when there are any, else the file's, else none.
fn chain(
    file: &ConfigFile,
    entries: Option<Vec<raw::RawPolicy>>,
    (flag, given): (&'static str, &[String]),
    environment: Environment<'_>,
) -> Result<ChainSettings, ConfigError> {
    let policies = match (given, entries) {
        ([], None) => return Ok(ChainSettings::Unset),
        ([], Some(entries)) => entries
            .into_iter()
            .map(|entry| policy::from_file(file, entry, environment))
            .collect::<Result<_, _>>()?,
        (given, _) => given
            .iter()
            .map(|text| policy::from_flag(flag, text))
            .collect::<Result<_, _>>()?,
    };
    Ok(ChainSettings::Policies(policies))
}

/// A policy that may take as long as a person leaves nothing for the person (ruling L8).
fn check_deadlines(chain: &ChainSettings, ask_deadline: Duration) -> Result<(), ConfigError> {
    for policy in chain.policies() {
        if ask_deadline <= policy.limits.deadline {
            return Err(ConfigError::Deadlines {
                policy: policy.name.clone(),
                deadline_ms: policy.limits.deadline.as_millis(),
                ask_deadline_ms: ask_deadline.as_millis(),
            });
        }
    }
    Ok(())
}

/// An engine with room for the largest policy.
fn engine(tools: &ChainSettings, reads: &ChainSettings) -> EngineSettings {
    let mut engine = EngineSettings::default();
    for policy in tools.policies().iter().chain(reads.policies()) {
        let limits = &policy.limits;
        engine.memory_bytes_max = engine.memory_bytes_max.max(limits.memory_bytes_max);
        engine.table_elements_max = engine.table_elements_max.max(limits.table_elements_max);
    }
    engine
}

fn host(
    file: &ConfigFile,
    server: String,
    ask: Option<&RawAsk>,
    wire: Option<&RawWire>,
    upstream: &RawUpstream,
) -> Result<Settings, ConfigError> {
    let default = Settings::default();
    let scan = ScanLimits::default();
    let frame_bytes_max = file.size(
        "wire.frame-bytes-max",
        wire.and_then(|wire| wire.frame_bytes_max.as_ref()),
        (1024, scan.frame_bytes_max, 1024 * 1024 * 1024),
    )?;
    Ok(Settings {
        server,
        asks: asks(file, ask)?,
        server_requests: server_requests(upstream),
        scan: ScanLimits {
            frame_bytes_max,
            ..scan
        },
        upstream_line_bytes_max: file.size(
            "upstream.line-bytes-max",
            upstream.line_bytes_max.as_ref(),
            (1024, default.upstream_line_bytes_max, 4 * 1024 * 1024 * 1024),
        )?,
        upstream_timeout: file.time(
            "upstream.timeout-ms",
            upstream.timeout_ms.as_ref(),
            default.upstream_timeout,
        )?,
    })
}

fn server_requests(upstream: &RawUpstream) -> ServerRequests {
    ServerRequests {
        elicitation: match upstream.elicitation {
            None => ElicitationRule::default(),
            Some(RawElicitation::Mark) => ElicitationRule::Mark,
            Some(RawElicitation::Pass) => ElicitationRule::Pass,
            Some(RawElicitation::Refuse) => ElicitationRule::Refuse,
        },
        refuse_sampling: upstream.sampling == Some(RawServerRequest::Refuse),
        refuse_roots: upstream.roots == Some(RawServerRequest::Refuse),
    }
}

fn asks(file: &ConfigFile, ask: Option<&RawAsk>) -> Result<AskSettings, ConfigError> {
    let default = AskSettings::default();
    let Some(ask) = ask else { return Ok(default) };
    Ok(AskSettings {
        deadline: file.time("ask.deadline-ms", ask.deadline_ms.as_ref(), default.deadline)?,
        state_ttl: file.time("ask.state-ttl-ms", ask.state_ttl_ms.as_ref(), default.state_ttl)?,
        open_questions_per_session: file.size(
            "ask.open-questions-per-session",
            ask.open_questions_per_session.as_ref(),
            (1, default.open_questions_per_session, 1024),
        )?,
        parked_per_session: file.size(
            "ask.parked-per-session",
            ask.parked_per_session.as_ref(),
            (1, default.parked_per_session, 4096),
        )?,
        parked_total: file.size(
            "ask.parked-total",
            ask.parked_total.as_ref(),
            (1, default.parked_total, 1024 * 1024),
        )?,
    })
}

/// The variables of the file, then those of the flags; a later one of a name wins.
fn variables(
    file: &ConfigFile,
    upstream: &RawUpstream,
    flags: &[String],
    environment: Environment<'_>,
) -> Result<Vec<(OsString, OsString)>, ConfigError> {
    let mut variables = Vec::new();
    for entry in upstream.env.iter().flatten() {
        let variable = variable(entry.get_ref(), environment);
        variables.push(variable.map_err(|reason| file.wrong("upstream.env", entry, reason))?);
    }
    for entry in flags {
        variables.push(variable(entry, environment).map_err(|reason| ConfigError::Flag {
            flag: "--env",
            value: entry.clone(),
            reason,
        })?);
    }
    Ok(variables)
}

fn variable(entry: &str, environment: Environment<'_>) -> Result<(OsString, OsString), String> {
    let (name, value) = match entry.split_once('=') {
        Some((name, value)) => (name, Some(OsString::from(value))),
        None => (entry, None),
    };
    if name.is_empty() || entry.contains('\0') {
        return Err("this is no variable; give `NAME` or `NAME=VALUE`".to_owned());
    }
    let value = value
        .or_else(|| environment(name))
        .ok_or_else(|| format!("the variable `{name}` is not set here; set it, or give `{name}=VALUE`"))?;
    Ok((name.into(), value))
}

fn audit_settings(
    file: &ConfigFile,
    raw: Option<RawAudit>,
    flag: Option<&str>,
    environment: Environment<'_>,
) -> Result<AuditSettings, ConfigError> {
    let raw = raw.unwrap_or_default();
    let sink = match (flag, raw.to) {
        (Some(text), _) => sink(text, Path::to_owned).ok_or_else(|| ConfigError::Flag {
            flag: "--audit",
            value: text.to_owned(),
            reason: SINKS.to_owned(),
        })?,
        (None, Some(to)) => {
            sink(to.get_ref(), |path| file.resolve(path)).ok_or_else(|| file.wrong("audit.to", &to, SINKS))?
        }
        (None, None) => Sink::File(default_audit_file(environment)?),
    };
    Ok(AuditSettings {
        sink,
        arguments: raw.arguments.unwrap_or(false),
        on_failure: match raw.on_failure.unwrap_or(RawOnFailure::Deny) {
            RawOnFailure::Deny => OnFailure::Deny,
            RawOnFailure::Continue => OnFailure::Continue,
        },
    })
}

const SINKS: &str = "this names no place for records; give a file, `stderr` or `off`";

fn sink(text: &str, resolve: impl Fn(&Path) -> PathBuf) -> Option<Sink> {
    match text {
        "" => None,
        "stderr" => Some(Sink::Stderr),
        "off" => Some(Sink::Off),
        path => Some(Sink::File(resolve(Path::new(path)))),
    }
}

fn cache_directory(
    file: &ConfigFile,
    raw: Option<&RawCache>,
    no_cache: bool,
    environment: Environment<'_>,
) -> Result<Option<PathBuf>, ConfigError> {
    match raw.map(|raw| &raw.directory) {
        _ if no_cache => Ok(None),
        None => Ok(default_cache_directory(environment)),
        Some(directory) => match directory.get_ref().as_str() {
            "" => Err(file.wrong(
                "cache.directory",
                directory,
                "this names no directory; give one, or `off`",
            )),
            "off" => Ok(None),
            path => Ok(Some(file.resolve(Path::new(path)))),
        },
    }
}
