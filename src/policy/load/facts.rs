//! What is known of a loaded policy, for `check`, `bench` and `status`.

use std::time::Duration;

use crate::policy::limits::{Grant, Grants};

/// Before the reason in the note of a policy that is configured at each call.
const EACH_CALL: &[u8] = b"each call: ";

/// What is known of a loaded policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// What the component imports: its requests for capabilities.
    pub imports: Vec<String>,
    /// The same, each with what it is given.
    pub requests: Vec<Request>,
    /// What the component exports.
    pub exports: Vec<String>,
    /// Size of the component as WebAssembly, in bytes.
    pub component_bytes: usize,
    /// Linear memory of an instance before it judges, all memories together, in bytes.
    pub memory_bytes: usize,
    /// How long it took to read, compile, link and try it.
    pub load_time: Duration,
    /// Whether it takes a configuration.
    pub configurable: bool,
    /// When it takes it.
    pub configured: Configured,
    /// Whether it says which entries of lists are shown.
    pub visibility: bool,
    /// Whether it came from the cache, so that nothing was compiled.
    pub cached: bool,
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

impl Configured {
    /// How it is noted beside a compiled component.
    pub(super) fn note(&self) -> Vec<u8> {
        match self {
            Self::Nothing => b"nothing".to_vec(),
            Self::Snapshot => b"snapshot".to_vec(),
            Self::EachCall { reason } => [EACH_CALL, reason.as_bytes()].concat(),
        }
    }

    pub(super) fn noted(note: &[u8]) -> Option<Self> {
        match note {
            b"nothing" => Some(Self::Nothing),
            b"snapshot" => Some(Self::Snapshot),
            _ => {
                let reason = note.strip_prefix(EACH_CALL)?;
                Some(Self::EachCall {
                    reason: String::from_utf8_lossy(reason).into_owned(),
                })
            }
        }
    }
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

/// One request for a capability, and what it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The interface that is imported.
    pub import: String,
    /// What it is given.
    pub given: Given,
}

/// What a request is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// The real thing, because this is granted.
    Granted(Grant),
    /// What tells it nothing, because this is not granted.
    Withheld(Grant),
    /// What nobody needs a grant for: types, streams and polls, and to end itself.
    Plain,
    /// An interface behind which there is nothing: no files, no network, no input.
    Empty,
}

impl std::fmt::Display for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Granted(grant) => write!(f, "granted by `{}`", grant.as_str()),
            Self::Withheld(Grant::Clock) => f.write_str("stands still without `clock`"),
            Self::Withheld(Grant::Random) => f.write_str("always the same without `random`"),
            Self::Withheld(Grant::Env) => f.write_str("empty without `env`"),
            Self::Withheld(Grant::Log) => f.write_str("thrown away without `log`"),
            Self::Plain => f.write_str("needs no grant"),
            Self::Empty => f.write_str("empty"),
        }
    }
}

/// What each of these imports is given.
#[must_use]
pub fn requests(imports: &[String], grants: &Grants) -> Vec<Request> {
    let request = |import: &String| Request {
        import: import.clone(),
        given: given(import, grants),
    };
    imports.iter().map(request).collect()
}

fn given(import: &str, grants: &Grants) -> Given {
    let interface = import.split_once('@').map_or(import, |(interface, _)| interface);
    let grant = match interface {
        "wasi:clocks/monotonic-clock" | "wasi:clocks/timezone" | "wasi:clocks/wall-clock" => Grant::Clock,
        "wasi:random/insecure" | "wasi:random/insecure-seed" | "wasi:random/random" => Grant::Random,
        "wasi:cli/environment" => Grant::Env,
        "wasi:cli/stderr" | "wasi:cli/stdout" => Grant::Log,
        "wasi:cli/exit" | "wasi:io/error" | "wasi:io/poll" | "wasi:io/streams" => return Given::Plain,
        _ => return Given::Empty,
    };
    if grants.contain(grant) {
        Given::Granted(grant)
    } else {
        Given::Withheld(grant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_import_is_given_something() {
        #[track_caller]
        fn check(import: &str, without: &str, with: &str) {
            let all = Grants {
                clock: true,
                random: true,
                env: [("A".to_owned(), "b".to_owned())].into_iter().collect(),
                log: true,
            };
            let told = |grants: &Grants| given(import, grants).to_string();
            assert_eq!(without, told(&Grants::default()), "{import}");
            assert_eq!(with, told(&all), "{import}");
        }
        check(
            "wasi:clocks/wall-clock@0.2.6",
            "stands still without `clock`",
            "granted by `clock`",
        );
        check(
            "wasi:random/insecure-seed@0.2.0",
            "always the same without `random`",
            "granted by `random`",
        );
        check(
            "wasi:cli/environment@0.2.3",
            "empty without `env`",
            "granted by `env`",
        );
        check(
            "wasi:cli/stderr@0.2.0",
            "thrown away without `log`",
            "granted by `log`",
        );
        check("wasi:io/poll@0.2.0", "needs no grant", "needs no grant");
        check("wasi:filesystem/preopens@0.2.0", "empty", "empty");
        check("wasi:sockets/tcp@0.2.0", "empty", "empty");
    }
}
