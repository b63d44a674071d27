//! What a policy is made of, how much it may use, and what it may touch.

use std::borrow::Cow;
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
    /// What is kept of standard output and error of one judgement, in bytes. The rest is counted.
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

/// What a policy may touch beside its input. Nothing, unless it is granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// The real clocks of WASI. Without it they stand still at the decision's own clock reading.
    pub clock: bool,
    /// Real random numbers of WASI. Without it they are the same in every judgement.
    pub random: bool,
}
