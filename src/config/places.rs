//! Where the files of a user lie when nothing else is said.

use std::ffi::OsString;
use std::path::PathBuf;

use super::ConfigError;

/// Where records go, below the state directory, when nothing else is said.
const AUDIT_FILE: &str = "gatewright/audit.jsonl";

/// Where compiled policies are kept, below the cache directory, when nothing else is said.
const CACHE_DIRECTORY: &str = "gatewright/compiled";

/// Looks a variable of the environment up.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The directory of a user's compiled policies: `$XDG_CACHE_HOME/gatewright/compiled`, or the same under
/// `~/.cache`; none when the environment names neither.
#[must_use]
pub fn default_cache_directory(environment: Environment<'_>) -> Option<PathBuf> {
    base(environment, "XDG_CACHE_HOME", ".cache").map(|caches| caches.join(CACHE_DIRECTORY))
}

/// The audit file of a user: `$XDG_STATE_HOME/gatewright/audit.jsonl`, or the same under `~/.local/state`.
///
/// # Errors
///
/// [`ConfigError::NoStateDirectory`] when the environment names neither.
pub fn default_audit_file(environment: Environment<'_>) -> Result<PathBuf, ConfigError> {
    base(environment, "XDG_STATE_HOME", ".local/state")
        .map(|state| state.join(AUDIT_FILE))
        .ok_or(ConfigError::NoStateDirectory)
}

/// The directory of the sockets of a user's gates: `$XDG_RUNTIME_DIR/gatewright`, or `~/.local/state/gatewright/run`;
/// none when the environment names neither.
#[must_use]
pub fn control_directory(environment: Environment<'_>) -> Option<PathBuf> {
    absolute(environment, "XDG_RUNTIME_DIR")
        .map(|runtime| runtime.join("gatewright"))
        .or_else(|| absolute(environment, "HOME").map(|home| home.join(".local/state/gatewright/run")))
}

/// What the variable names, or what it stands for below the user's home.
fn base(environment: Environment<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    absolute(environment, variable)
        .or_else(|| absolute(environment, "HOME").map(|home| home.join(below_home)))
}

/// A relative path in such a variable is to be ignored, says the specification of these directories.
fn absolute(environment: Environment<'_>, name: &str) -> Option<PathBuf> {
    environment(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}
