//! A component that is compiled once and takes one configuration after another, for its cases.

use std::fmt;
use std::sync::Arc;

use wasmtime::component::Component;

use super::facts::{self, Configured, Facts};
use super::world::{Linked, linked};
use super::{
    LoadError, NO_CONFIGURATION, Policy, component_bytes, guest, identity, on_loader_thread, reason, trial,
};
use crate::policy::cache::{self, Cache};
use crate::policy::engine::Engine;
use crate::policy::judge::Setup;
use crate::policy::limits::PolicySettings;
use crate::vocabulary::Digest;

/// What stands before the component where its compiled form is kept: no configuration is in it.
const BLANK: &[u8] = b"blank";

/// A component without a configuration.
pub struct Blank {
    engine: Arc<Engine>,
    settings: PolicySettings,
    bytes: Vec<u8>,
    linked: Linked,
}

impl fmt::Debug for Blank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blank").field(&self.settings.name).finish()
    }
}

impl Blank {
    /// Compiles the component of these settings, or finds it in the cache. Their configuration does not count.
    ///
    /// # Errors
    ///
    /// [`LoadError`] when it is no policy.
    pub fn load(
        engine: &Arc<Engine>,
        settings: &PolicySettings,
        cache: Option<&Cache>,
    ) -> Result<Self, LoadError> {
        on_loader_thread(&settings.name, || load(engine, settings, cache))
    }

    /// The policy with this configuration, which it takes in every judgement: no image is taken of it.
    ///
    /// # Errors
    ///
    /// [`LoadError`] when it refuses, or takes none.
    pub fn configured(&self, config_json: &str) -> Result<Policy, LoadError> {
        let (linked, settings) = (&self.linked, &self.settings);
        if linked.configure.is_none() && config_json.trim() != NO_CONFIGURATION {
            return Err(LoadError::NotConfigurable {
                policy: settings.name.clone(),
            });
        }
        let setup = Arc::new(Setup {
            name: settings.name.clone(),
            config_json: config_json.to_owned(),
            limits: settings.limits.clone(),
            grants: Arc::new(settings.grants.clone()),
        });
        let guest = guest(&self.engine, &setup, linked, linked.configure);
        let live = trial::try_once(&guest)?;
        let left = live.store.data().limiter.left();
        drop(live);
        let digest = Digest::of_parts([self.bytes.as_slice(), config_json.as_bytes()]);
        Ok(Policy {
            guest,
            mode: settings.mode,
            digest,
            identity: identity(digest, settings.mode, &settings.limits, &settings.grants),
            facts: Facts {
                requests: facts::requests(&linked.imports, &settings.grants),
                imports: linked.imports.clone(),
                exports: linked.exports.clone(),
                component_bytes: self.bytes.len(),
                memory_bytes: settings.limits.memory_bytes_max.saturating_sub(left),
                load_time: std::time::Duration::ZERO,
                configurable: linked.configure.is_some(),
                visibility: linked.visible.is_some(),
                configured: Configured::EachCall {
                    reason: "for a case".to_owned(),
                },
                cached: false,
            },
        })
    }
}

fn load(engine: &Arc<Engine>, settings: &PolicySettings, cache: Option<&Cache>) -> Result<Blank, LoadError> {
    let name = settings.name.as_str();
    let bytes = component_bytes(settings)?;
    let entry = cache::entry(engine, [BLANK, bytes.as_slice()]);
    let found = cache.and_then(|cache| cache.find(engine, entry));
    let component = match found {
        Some(found) => found.component,
        None => {
            let compiled = Component::new(engine.wasm(), &bytes).map_err(|error| LoadError::Compile {
                policy: name.to_owned(),
                reason: reason(&error),
            })?;
            if let Some(cache) = cache {
                cache.keep(entry, &compiled, &Configured::Nothing.note());
            }
            compiled
        }
    };
    Ok(Blank {
        linked: linked(engine, name, &component)?,
        engine: Arc::clone(engine),
        settings: settings.clone(),
        bytes,
    })
}
