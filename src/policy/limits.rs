//! What a policy is made of, how much it may use, and what it may touch.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::decision::Mode;

/// One policy of a chain, as configured.
#[derive(Clone, Debug)]
pub struct PolicySettings {
    /// How the policy is called in messages and records: its file, or `builtin:NAME`.
    pub name: String,
    /// Where the component comes from.
    pub source: Source,
    /// The configuration as one JSON text. Empty or `{}` when there is none.
    pub config_json: String,
    /// Whether its decisions count.
    pub mode: Mode,
    /// How much it may use.
    pub limits: Limits,
    /// What it may touch.
    pub grants: Grants,
}

/// Where a component comes from. WebAssembly and its text format are both taken.
#[derive(Clone, Debug)]
pub enum Source {
    /// A regular file.
    File(PathBuf),
    /// Bytes that are already here.
    Bytes {
        /// What to call them in messages.
        name: String,
        /// The component.
        bytes: Cow<'static, [u8]>,
    },
}

/// How much a policy may use. Reaching any of these has one defined answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How long one judgement may take. Past it: `policy_timeout`. A policy of which no snapshot can
    /// be taken is configured within it, too.
    ///
    /// The engine ends a guest between two instructions. One that fills or copies memory in bulk
    /// runs to its end, and so can outlive the deadline by as long as touching all of
    /// `memory_bytes_max` once takes (ruling G3).
    pub deadline: Duration,
    /// Linear memory of one judgement in bytes, all memories together. Past it: `policy_memory`.
    pub memory_bytes_max: usize,
    /// Table elements of one judgement, all tables together. Past it: `policy_memory`.
    pub table_elements_max: usize,
    /// Length of a reason or a prompt in bytes of UTF-8, inclusive. Past it: `policy_output`.
    pub output_bytes_max: usize,
    /// What is kept of standard output and error of one judgement that is granted the log, in bytes.
    /// The rest is counted.
    pub log_bytes_max: usize,
    /// How long instantiating and `configure` may take when the policy is loaded, with the same
    /// memory as a judgement and without its grants. Past it the policy is not loaded.
    pub configure_deadline: Duration,
    /// Size of the component in bytes. Past it the policy is not loaded.
    pub file_bytes_max: usize,
    /// Code of one function in bytes, because compiling takes time that grows faster than it.
    /// Past it the policy is not loaded.
    pub function_bytes_max: usize,
    /// How deep components may be nested. Past it the policy is not loaded.
    pub nesting_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_millis(50),
            memory_bytes_max: 64 * 1024 * 1024,
            table_elements_max: 100_000,
            output_bytes_max: 64 * 1024,
            log_bytes_max: 64 * 1024,
            configure_deadline: Duration::from_secs(5),
            file_bytes_max: 256 * 1024 * 1024,
            function_bytes_max: 1024 * 1024,
            nesting_max: 32,
        }
    }
}

/// What a policy may touch beside its input. Nothing, unless it is granted; and while it is
/// configured nothing at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The real clocks of WASI. Without it they stand still at the decision's own clock reading.
    pub clock: bool,
    /// Real random numbers of WASI. Without it they are the same in every judgement.
    pub random: bool,
    /// These variables. Without it the environment is empty.
    pub env: Variables,
    /// What it writes to its standard output and error goes to the host's log, cut and escaped.
    /// Without it that is counted and thrown away; the policy cannot tell.
    pub log: bool,
}

/// Variables of an environment, with their values.
///
/// Shows names only: a value may be a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl FromIterator<(String, String)> for Variables {
    fn from_iter<Pairs: IntoIterator<Item = (String, String)>>(pairs: Pairs) -> Self {
        Self(pairs.into_iter().collect())
    }
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// What can be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Time.
    Clock,
    /// Random numbers.
    Random,
    /// Variables of the environment.
    Env,
    /// The host's log.
    Log,
}

impl Grant {
    /// The word for it in the configuration.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Random => "random",
            Self::Env => "env",
            Self::Log => "log",
        }
    }
}

impl Grants {
    /// Whether this is granted.
    #[must_use]
    pub fn contain(&self, grant: Grant) -> bool {
        match grant {
            Grant::Clock => self.clock,
            Grant::Random => self.random,
            Grant::Env => !self.env.0.is_empty(),
            Grant::Log => self.log,
        }
    }
}
