//! Running a guest once while it is loaded, and what its failure means then.

use tokio::runtime::Runtime;

use super::{LoadError, REASON_BYTES_MAX};
use crate::decision::Fault;
use crate::policy::contract::VERSIONS;
use crate::policy::judge::{Failure, Guest, Live, Trial, caught};
use crate::policy::text::escaped;

/// A runtime for one guest.
pub(super) fn runtime(policy: &str) -> Result<Runtime, LoadError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| LoadError::Host {
            policy: policy.to_owned(),
            reason: error.to_string(),
        })
}

/// Instantiates and configures the policy once, because a wrong type shows only then (ruling G9).
pub(super) fn try_once(guest: &Guest) -> Result<Box<Live>, LoadError> {
    let policy = guest.setup.name.as_str();
    let trial = runtime(policy)?.block_on(caught(async { Ok::<_, Failure>(guest.trial().await) }));
    let trial = trial.unwrap_or_else(Trial::Failed);
    passed(policy, trial)
}

/// The instance that passed, or why the policy cannot be put in force.
pub(super) fn passed(policy: &str, trial: Trial) -> Result<Box<Live>, LoadError> {
    let policy = policy.to_owned();
    Err(match trial {
        Trial::Ready(live) => return Ok(live),
        Trial::Refused(reason) => LoadError::Configuration { policy, reason },
        Trial::WrongType { interface, reason } => LoadError::Export {
            policy,
            export: format!("{interface}@{VERSIONS}"),
            reason: escaped(reason.as_bytes(), REASON_BYTES_MAX),
        },
        Trial::Failed((Fault::Internal, reason)) => LoadError::Host { policy, reason },
        Trial::Failed((Fault::Memory, reason)) => LoadError::Limit { policy, reason },
        Trial::Failed((fault, reason)) => LoadError::Start {
            policy,
            fault,
            reason: escaped(reason.as_bytes(), REASON_BYTES_MAX),
        },
    })
}
