//! The chains of both seams, from settings to policies in force.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::clock::Clock;
use crate::decision::Seam;
use crate::policy::cache::Cache;
use crate::policy::engine::{Engine, EngineError, EngineSettings};
use crate::policy::limits::PolicySettings;
use crate::policy::load::LoadError;
use crate::policy::reload::{Chains, Loader, Proof, Reloader, Replace, ReplaceError};
use crate::seam::{Guard, Guards};

/// What is configured for one seam.
#[derive(Clone, Debug)]
pub enum ChainSettings {
    /// Nothing: on stdio the process boundary is the guard (semantics section 2).
    Unset,
    /// These policies in order; an empty chain denies.
    Policies(Vec<PolicySettings>),
}

impl ChainSettings {
    /// The policies, none for an unset chain.
    #[must_use]
    pub fn policies(&self) -> &[PolicySettings] {
        match self {
            Self::Unset => &[],
            Self::Policies(policies) => policies,
        }
    }
}

/// What is configured for both seams.
#[derive(Clone, Debug)]
pub struct GuardSettings {
    /// The engine that runs the policies.
    pub engine: EngineSettings,
    /// The directory of compiled policies; none to compile each time.
    pub cache: Option<PathBuf>,
    /// What each policy must show before it comes into force.
    pub proof: Proof,
    /// Guards `tools/call`.
    pub tools: ChainSettings,
    /// Guards everything else.
    pub reads: ChainSettings,
}

/// Why the policies are not in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuardError {
    /// There is no engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A policy cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The chains in force cannot be replaced.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
    /// The gate is stopping, and loads nothing more.
    #[error("the gate is stopping")]
    Stopping,
}

/// Policies in force, and what keeps them in step with their files.
#[derive(Debug)]
pub struct Loaded {
    /// The chains.
    pub guards: Guards,
    /// Follows the files; none without any chain.
    pub reloader: Option<Reloader>,
}

/// Loads every policy. Blocks for as long as compiling takes.
///
/// # Errors
///
/// The first policy that cannot be put in force, or an engine that cannot be made.
pub fn load(settings: GuardSettings, clock: Arc<dyn Clock>) -> Result<Loaded, GuardError> {
    let mut guards = Guards {
        tools: Guard::Unset,
        reads: Guard::Unset,
    };
    if matches!(
        (&settings.tools, &settings.reads),
        (ChainSettings::Unset, ChainSettings::Unset)
    ) {
        return Ok(Loaded {
            guards,
            reloader: None,
        });
    }
    let mut reloader = Reloader::new(settings.loader(clock)?);
    for (seam, policies) in settings.chains() {
        let guard = Guard::Chain(reloader.add(seam, policies)?);
        match seam {
            Seam::Tools => guards.tools = guard,
            Seam::Reads => guards.reads = guard,
        }
    }
    Ok(Loaded {
        guards,
        reloader: Some(reloader),
    })
}

/// Has a running [`Reloader`] replace every chain by what is configured now: all of them, or none.
///
/// # Errors
///
/// [`GuardError`]; then everything is as before.
pub async fn replace(
    orders: &mpsc::Sender<Replace>,
    settings: GuardSettings,
    clock: Arc<dyn Clock>,
) -> Result<(), GuardError> {
    let (done, answer) = oneshot::channel();
    let order = Replace {
        loader: settings.loader(clock)?,
        chains: settings.chains(),
        done,
    };
    orders.send(order).await.map_err(|_closed| GuardError::Stopping)?;
    answer.await.map_err(|_closed| GuardError::Stopping)??;
    Ok(())
}

impl GuardSettings {
    /// What loads the policies. A cache that does not work is no reason to load none.
    ///
    /// # Errors
    ///
    /// When there is no engine.
    pub fn loader(&self, clock: Arc<dyn Clock>) -> Result<Loader, EngineError> {
        let cache = self.cache.as_deref().and_then(|directory| {
            Cache::open(directory)
                .inspect_err(|error| tracing::warn!(%error, "policies are compiled anew at each start"))
                .ok()
        });
        Ok(Loader {
            engine: Engine::new(&self.engine)?,
            cache: cache.map(Arc::new),
            clock,
            proof: self.proof,
        })
    }

    /// The seams that have a chain.
    fn chains(self) -> Chains {
        let mut chains = Vec::new();
        for (seam, chain) in [(Seam::Tools, self.tools), (Seam::Reads, self.reads)] {
            match chain {
                ChainSettings::Unset => {}
                ChainSettings::Policies(policies) => chains.push((seam, policies)),
            }
        }
        chains
    }
}
