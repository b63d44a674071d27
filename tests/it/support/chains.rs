//! Chains of real policies, made once for the whole binary: an engine is slow to make.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use gatewright::decision::Mode;
use gatewright::policy::chain::{Chain, Member};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::load::Policy;

use super::policies::{Does, Guest, data_at, hiding, settings, wat_policy};

/// A policy that does it, loaded once.
pub(crate) fn policy(mode: Mode, does: Does<'_>) -> Arc<dyn Member> {
    loaded(mode, wat_policy(does))
}

/// A policy that asks with a prompt of any length.
pub(crate) fn asks_at_length(prompt: &str) -> Arc<dyn Member> {
    // Far above the heap, which grows from below.
    const AT: usize = 1024 * 1024;
    let (text, len) = (data_at(AT, prompt.as_bytes()), prompt.len());
    let pages = (AT + len).div_ceil(64 * 1024);
    let guest = Guest {
        memory: &format!(r#"(memory (export "memory") {pages})"#),
        items: &text,
        authorize: &format!("(call $ask (i32.const {AT}) (i32.const {len}))"),
        ..Guest::default()
    };
    loaded(Mode::Enforce, guest.component())
}

/// A chain of one policy.
pub(crate) fn one(does: Does<'_>) -> Chain {
    Chain::of(vec![policy(Mode::Enforce, does)])
}

/// A chain of one policy that allows everything and hides these names.
pub(crate) fn hides(names: &[&str]) -> Chain {
    of_component(hiding(names))
}

/// A chain of the policy that this component is.
pub(crate) fn of_component(component: String) -> Chain {
    Chain::of(vec![loaded(Mode::Enforce, component)])
}

/// Each policy by whether it only observes, and its component.
type Loaded = HashMap<(bool, String), Arc<Policy>>;

fn loaded(mode: Mode, component: String) -> Arc<dyn Member> {
    static LOADED: OnceLock<Mutex<Loaded>> = OnceLock::new();
    static ENGINE: OnceLock<Arc<Engine>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| Engine::new(&EngineSettings::default()).unwrap());
    let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap();
    let policy = loaded
        .entry((mode == Mode::Observe, component))
        .or_insert_with_key(|(_, component)| {
            let mut settings = settings("small", component.as_bytes());
            settings.mode = mode;
            Arc::new(Policy::load(engine, settings).unwrap())
        });
    Arc::clone(policy) as Arc<dyn Member>
}
