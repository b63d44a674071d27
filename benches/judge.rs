//! How long one judgement takes, in a fresh sandbox and in ways that this host does not go.
//!
//! `cargo bench --bench judge`. Beside engines of others: `benches/peers`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatewright::policy::cache::Cache;
use gatewright::policy::chain::Chain;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::live::LiveChain;
use gatewright::policy::load::Policy;

use crate::measure::{fail, fresh, load, say};

mod contract {
    wasmtime::component::bindgen!({ path: "wit", world: "configurable-policy-plugin" });
}

mod plain {
    wasmtime::component::bindgen!({ path: "wit", world: "policy-plugin" });
}

#[path = "measure.rs"]
mod measure;

#[path = "../tests/it/support/policies.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod policies;

/// The deadline of the guest that never ends, and how often it is cut.
const DEADLINE: Duration = Duration::from_millis(50);
const CUTS: usize = 200;

fn main() {
    measure::host_rows();
    let engine = Engine::new(&EngineSettings::default()).unwrap_or_else(|error| fail(&error));
    let nothing = load(
        &engine,
        policies::wat_policy(policies::Does::Allow).into_bytes(),
        "",
    );
    measure::row("fresh sandbox, allows at once", 200, 1, 20_000, &|| {
        fresh(&nothing, 200)
    });
    say("");
    loads(&engine);
    cuts(&engine);
    swaps(&engine);
}

/// How long it takes to load the allowlist, compiled and from the cache.
fn loads(engine: &std::sync::Arc<Engine>) {
    let folder = tempfile::tempdir().unwrap_or_else(|error| fail(&error));
    let cache = Cache::open(&folder.path().join("cache")).unwrap_or_else(|error| fail(&error));
    for label in ["compiled", "from the cache"] {
        let settings = policies::settings("allowlist", measure::ALLOWLIST);
        let settings = gatewright::policy::limits::PolicySettings {
            config_json: measure::config(),
            ..settings
        };
        let policy = Policy::load_with(engine, settings, Some(&cache)).unwrap_or_else(|error| fail(&error));
        let facts = policy.facts();
        let time = facts.load_time.as_secs_f64() * 1e3;
        say(&format!(
            "loading it, {label}: {time:.1} ms (cached: {})",
            facts.cached
        ));
    }
}

/// How late a guest that never ends is cut, while two threads judge good calls.
fn cuts(engine: &std::sync::Arc<Engine>) {
    let mut settings = policies::settings("endless", policies::wat_policy(policies::Does::Loop));
    settings.limits.deadline = DEADLINE;
    let endless = Policy::load(engine, settings).unwrap_or_else(|error| fail(&error));
    let good = load(engine, measure::ALLOWLIST.to_vec(), &measure::config());
    let over = AtomicBool::new(false);
    let mut late: Vec<Duration> = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut turn = fresh(&good, 200);
                while !over.load(Ordering::Relaxed) {
                    turn();
                }
            });
        }
        let late = (0..CUTS)
            .map(|_| measure::cut(&endless).saturating_sub(DEADLINE))
            .collect();
        over.store(true, Ordering::Relaxed);
        late
    });
    late.sort_unstable();
    say(&format!(
        "an endless guest is cut late by: p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs",
        measure::share(&late, 0.5),
        measure::share(&late, 0.99),
        measure::share(&late, 1.0)
    ));
}

/// What judgements take while their policy is loaded anew and swapped, against the same without.
fn swaps(engine: &std::sync::Arc<Engine>) {
    const CALLERS: usize = 8;
    const SWAPS: usize = 200;
    let policy = |does| {
        let settings = policies::settings("swapped", policies::wat_policy(does));
        Chain::new(vec![
            Policy::load(engine, settings).unwrap_or_else(|error| fail(&error)),
        ])
    };
    let chain = LiveChain::new(policy(policies::Does::Allow));
    for swaps in [0, SWAPS] {
        let over = AtomicBool::new(false);
        let mut times: Vec<Duration> = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..CALLERS)
                .map(|_| {
                    scope.spawn(|| {
                        let mut turn = measure::judged(&chain);
                        let mut times = Vec::new();
                        while !over.load(Ordering::Relaxed) {
                            times.push(measure::timed(&mut turn));
                        }
                        times
                    })
                })
                .collect();
            for swap in 0..SWAPS {
                // Loaded either way, so that the cores are as busy.
                let next = policy(if swap % 2 == 0 {
                    policies::Does::Deny("no")
                } else {
                    policies::Does::Allow
                });
                if swap < swaps {
                    chain.replace(next);
                }
            }
            over.store(true, Ordering::Relaxed);
            let times = callers.into_iter().map(|caller| caller.join());
            times
                .flat_map(|times| times.unwrap_or_else(|_| fail(&"a caller panicked")))
                .collect()
        });
        times.sort_unstable();
        say(&format!(
            "{CALLERS} callers, {swaps} swaps: {} judgements, p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs",
            times.len(),
            measure::share(&times, 0.5),
            measure::share(&times, 0.99),
            measure::share(&times, 1.0)
        ));
    }
}
