//! What a row sets up: the policy, which can be exchanged, and the limits.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gatewright::decision::Mode;
use gatewright::gate::ask::AskSettings;
use gatewright::host::Settings;
use gatewright::policy::chain::{Chain, Member};
use gatewright::seam::{Authorizer, Call, Judgement, Listing, Showing};
use gatewright::vocabulary::Digest;
use tokio::sync::watch;

use super::captured::Captured;
use super::case::{NamedPolicy, Policy, Setup};
use crate::support::chains;
use crate::support::policies::Does;

/// The longest prompt that fits the small policy.
const SMALL_PROMPT_BYTES: usize = 60_000;

/// A chain that can be exchanged between two judgements, as a reload does.
#[derive(Debug)]
pub(super) struct Swappable(Mutex<Arc<Chain>>);

impl Swappable {
    pub(super) fn new(chain: Chain) -> Self {
        Self(Mutex::new(Arc::new(chain)))
    }

    pub(super) fn swap(&self, chain: Chain) {
        *self.0.lock().unwrap() = Arc::new(chain);
    }

    fn now(&self) -> Arc<Chain> {
        Arc::clone(&self.0.lock().unwrap())
    }
}

impl Authorizer for Swappable {
    fn judge<'a>(&'a self, call: &'a Call<'a>) -> Judgement<'a> {
        let chain = self.now();
        Box::pin(async move { chain.judge(call).await })
    }

    fn revision(&self) -> Digest {
        self.now().revision()
    }

    fn show<'a>(&'a self, listing: &'a Listing<'a>) -> Showing<'a> {
        let chain = self.now();
        Box::pin(async move { chain.show(listing).await })
    }

    fn hiding(&self) -> watch::Receiver<Option<Digest>> {
        self.now().hiding()
    }
}

pub(super) fn settings(setup: &Setup) -> Settings {
    let defaults = Settings::default();
    let asks = AskSettings {
        deadline: Duration::from_millis(setup.deadline_ms),
        state_ttl: Duration::from_millis(setup.state_ttl_ms),
        open_questions_per_session: setup
            .open_questions_per_session
            .unwrap_or(defaults.asks.open_questions_per_session),
        parked_per_session: setup
            .parked_per_session
            .unwrap_or(defaults.asks.parked_per_session),
        ..defaults.asks
    };
    Settings {
        asks,
        upstream_timeout: setup
            .upstream_timeout_ms
            .map_or(defaults.upstream_timeout, Duration::from_millis),
        ..defaults
    }
}

pub(super) fn chain(setup: &Setup, captured: &Captured) -> Chain {
    if let Some(members) = &setup.chain {
        return Chain::of(members.iter().map(|member| named(member)).collect());
    }
    let prompt = captured.fill(&setup.prompt);
    match &setup.policy {
        Policy::Named(NamedPolicy::AllowAll) => chains::one(Does::Allow),
        Policy::Named(NamedPolicy::AskAll) if SMALL_PROMPT_BYTES < prompt.len() => {
            Chain::of(vec![chains::asks_at_length(&prompt)])
        }
        Policy::Named(NamedPolicy::AskAll) => chains::one(Does::Ask(&prompt)),
        Policy::Listed(listed) => {
            let allowed: Vec<&str> = listed.allow.iter().map(String::as_str).collect();
            let all: Vec<&str> = listed
                .ask
                .iter()
                .map(String::as_str)
                .chain(allowed.clone())
                .collect();
            Chain::of(vec![
                chains::policy(Mode::Enforce, Does::AllowOnly(&all)),
                chains::policy(Mode::Enforce, Does::AskUnless(&allowed, &prompt)),
            ])
        }
    }
}

fn named(member: &str) -> Arc<dyn Member> {
    let (mode, does) = match member.strip_prefix("observe:") {
        Some(does) => (Mode::Observe, does),
        None => (Mode::Enforce, member),
    };
    let does = match does.split_once(':') {
        Some(("ask", prompt)) => Does::Ask(prompt),
        None if does == "allow" => Does::Allow,
        None if does == "trap" => Does::Trap,
        Some(_) | None => panic!("no known policy `{member}`"),
    };
    chains::policy(mode, does)
}
