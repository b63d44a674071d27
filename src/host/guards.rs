//! The chains of both seams, from settings to policies in force.

use std::sync::Arc;

use crate::policy::chain::Chain;
use crate::policy::engine::{Engine, EngineError, EngineSettings};
use crate::policy::limits::PolicySettings;
use crate::policy::load::{LoadError, Policy};
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
}

/// Loads every policy. Blocks for as long as compiling takes.
///
/// # Errors
///
/// The first policy that cannot be put in force, or an engine that cannot be made.
pub fn load(settings: GuardSettings) -> Result<Guards, GuardError> {
    let GuardSettings { engine, tools, reads } = settings;
    let mut engines = Engines {
        settings: engine,
        made: None,
    };
    Ok(Guards {
        tools: engines.guard(tools)?,
        reads: engines.guard(reads)?,
    })
}

/// One engine for every policy, made when there is one.
struct Engines {
    settings: EngineSettings,
    made: Option<Arc<Engine>>,
}

impl Engines {
    fn guard(&mut self, settings: ChainSettings) -> Result<Guard, GuardError> {
        let policies = match settings {
            ChainSettings::Unset => return Ok(Guard::Unset),
            ChainSettings::Policies(policies) => policies,
        };
        let engine = match &self.made {
            Some(engine) => Arc::clone(engine),
            None => Arc::clone(self.made.insert(Engine::new(&self.settings)?)),
        };
        let loaded: Result<Vec<_>, _> = policies
            .into_iter()
            .map(|policy| Policy::load(&engine, policy))
            .collect();
        Ok(Guard::Chain(Arc::new(Chain::new(loaded?))))
    }
}
