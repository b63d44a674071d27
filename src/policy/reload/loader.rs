//! From a policy's settings to a policy that may come into force.

use std::sync::Arc;

use super::generation::Generation;
use crate::clock::Clock;
use crate::decision::Seam;
use crate::policy::cache::Cache;
use crate::policy::canary;
use crate::policy::cases::{self, Origin};
use crate::policy::engine::Engine;
use crate::policy::limits::{PolicySettings, Source};
use crate::policy::load::{LoadError, Policy};
use crate::vocabulary::Digest;

/// What every policy of a chain shares.
#[derive(Clone, Debug)]
pub struct Loader {
    /// Compiles and runs.
    pub engine: Arc<Engine>,
    /// Keeps what was compiled.
    pub cache: Option<Arc<Cache>>,
    /// When a policy came into force.
    pub clock: Arc<dyn Clock>,
    /// What each policy must show.
    pub proof: Proof,
}

/// What a policy must show before it comes into force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// That it loads, and passes its own cases.
    Loads,
    /// Besides, that it gives a decision, whichever: what many clients share must not be in front of a policy that
    /// only fails.
    Decides,
}

impl Loader {
    /// Loads a policy as a gate does at its start: one in a file must pass the cases beside it. Blocks for as
    /// long as compiling and judging takes.
    ///
    /// # Errors
    ///
    /// [`LoadError`] when the policy cannot be put in force.
    pub fn load(&self, seam: Seam, settings: &PolicySettings) -> Result<Policy, LoadError> {
        self.load_first(seam, settings).map(|(policy, _)| policy)
    }

    /// The policy, and for one in a file the generation that it is of.
    pub(super) fn load_first(
        &self,
        seam: Seam,
        settings: &PolicySettings,
    ) -> Result<(Policy, Option<Digest>), LoadError> {
        match &settings.source {
            Source::File(path) => {
                let generation = Generation::read(path, settings)?;
                let policy = self.load_generation(seam, settings, &generation)?;
                Ok((policy, Some(generation.digest)))
            }
            Source::Bytes { .. } => {
                let policy = self.load_bytes(settings.clone())?;
                self.prove(seam, &policy)?;
                Ok((policy, None))
            }
        }
    }

    /// Loads exactly the bytes of a generation, and lets the policy judge its own cases.
    pub(super) fn load_generation(
        &self,
        seam: Seam,
        settings: &PolicySettings,
        generation: &Generation,
    ) -> Result<Policy, LoadError> {
        let settings = PolicySettings {
            source: Source::Bytes {
                name: settings.name.clone(),
                bytes: generation.component.clone().into(),
            },
            ..settings.clone()
        };
        let policy = self.load_bytes(settings.clone())?;
        if let Some((cases, format)) = &generation.cases {
            let origin = Origin {
                engine: &self.engine,
                settings: &settings,
                cache: self.cache.as_deref(),
            };
            cases::pass(&policy, origin, cases, *format).map_err(|reason| LoadError::Cases {
                policy: settings.name.clone(),
                reason,
            })?;
        }
        self.prove(seam, &policy)?;
        Ok(policy)
    }

    fn load_bytes(&self, settings: PolicySettings) -> Result<Policy, LoadError> {
        Policy::load_with(&self.engine, settings, self.cache.as_deref())
    }

    fn prove(&self, seam: Seam, policy: &Policy) -> Result<(), LoadError> {
        match self.proof {
            Proof::Loads => Ok(()),
            Proof::Decides => canary::decides(policy, seam, self.clock.now_unix_ms()),
        }
    }
}
