//! What is known of a loaded policy, for `check`, `inspect` and `status`.

use std::time::Duration;

/// Before the reason in the note of a policy that is configured at each call.
const EACH_CALL: &[u8] = b"each call: ";

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
