//! What is in force, and what was refused and why.

use std::sync::{Arc, Mutex, PoisonError};

use crate::decision::Seam;
use crate::policy::text::escaped;
use crate::vocabulary::Digest;

/// What is logged of a reason, in bytes; the status has all of it.
pub(super) const REASON_BYTES_MAX: usize = 4096;

/// What is in force for one place of a chain, and what could not be put in force.
#[derive(Clone, Debug)]
pub struct PolicyStatus {
    /// The seam of the chain.
    pub seam: Seam,
    /// How the policy is called.
    pub policy: String,
    /// The policy in force: digest over its component and configuration.
    pub digest: Digest,
    /// When it takes its configuration, in words.
    pub configured: String,
    /// Whether it says which entries of lists are shown, and that counts.
    pub hides: bool,
    /// When it came into force, in milliseconds since 1970.
    pub loaded_unix_ms: u64,
    /// What was found since then and is not in force.
    pub failure: Option<Failure>,
    /// Policies put in force after the first.
    pub reloads_ok: u64,
    /// Policies that could not be put in force.
    pub reloads_failed: u64,
}

/// Why what lies in the file is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Digest of the file's bytes; none when there is no file.
    pub file: Option<Digest>,
    /// What is wrong, and what to do.
    pub reason: String,
    /// When it was found, in milliseconds since 1970.
    pub at_unix_ms: u64,
}

/// What is in force, and what was refused.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// What runs the policies, in words; empty when there is none.
    pub engine: String,
    /// Every place of every chain, the tools seam first.
    pub policies: Vec<PolicyStatus>,
    /// Why the last order to replace everything was refused; none when it was followed.
    pub refused: Option<Failure>,
    /// Orders followed.
    pub replaced_ok: u64,
    /// Orders refused.
    pub replaced_failed: u64,
}

impl Status {
    /// What was counted of a policy that is still there goes on: what only grows must not fall.
    pub(super) fn keep_counts(&mut self, mut before: Vec<PolicyStatus>) {
        for policy in &mut self.policies {
            let same = |old: &PolicyStatus| (old.seam, &old.policy) == (policy.seam, &policy.policy);
            if let Some(at) = before.iter().position(same) {
                let old = before.remove(at);
                policy.reloads_ok = old.reloads_ok;
                policy.reloads_failed = old.reloads_failed;
            }
        }
    }
}

/// The status, for whoever wants to see it.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<Status>>);

impl Board {
    /// What holds now.
    #[must_use]
    pub fn read(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An order to replace everything was refused, and everything is as before.
    pub fn refuse(&self, reason: String, at_unix_ms: u64) {
        let shown = escaped(reason.as_bytes(), REASON_BYTES_MAX);
        tracing::error!("the reload is refused, everything stays as it is: {shown}");
        self.write(|status| {
            status.replaced_failed += 1;
            status.refused = Some(Failure {
                file: None,
                reason,
                at_unix_ms,
            });
        });
    }

    pub(super) fn write(&self, change: impl FnOnce(&mut Status)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn of(&self, at: usize, change: impl FnOnce(&mut PolicyStatus)) {
        self.write(|status| {
            if let Some(policy) = status.policies.get_mut(at) {
                change(policy);
            }
        });
    }
}
