//! Why a policy is not in force.

use std::path::PathBuf;

use crate::decision::{Code, Fault, Seam};
use crate::policy::contract::CONFIGURABLE;

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
    /// The policy fails a case of its own.
    #[error("policy `{policy}` is not put in force: {reason}; correct the policy or its `.cases.json`")]
    Cases {
        /// The policy.
        policy: String,
        /// Which case, and how.
        reason: String,
    },
    /// The policy gave no decision when it was tried.
    #[error(
        "policy `{policy}` of the {} seam gave no answer when it was tried ({reason}); correct it, or take it out of the chain", seam.as_str()
    )]
    Silent {
        /// The policy.
        policy: String,
        /// The seam whose call it was tried with.
        seam: Seam,
        /// What came instead.
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
