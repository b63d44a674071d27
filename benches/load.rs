//! Policies in three languages under load, each alone and all in one chain: time, faults and memory.
//!
//! `cargo xtask load [SECONDS]` builds the JavaScript and the Python policy and runs this with them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatewright::policy::cache::Cache;
use gatewright::policy::chain::{Chain, Member};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Limits, PolicySettings, Source};
use gatewright::policy::live::LiveChain;
use gatewright::policy::load::Policy;

use crate::measure::{fail, say};

mod contract {
    wasmtime::component::bindgen!({ path: "wit", world: "configurable-policy-plugin" });
}

mod plain {
    wasmtime::component::bindgen!({ path: "wit", world: "policy-plugin" });
}

#[path = "measure.rs"]
#[expect(dead_code, reason = "the other benchmark uses more of it")]
mod measure;

#[path = "../tests/it/support/policies.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod policies;

/// Threads that judge at the same time.
const THREADS: usize = 2;

fn main() {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    let [seconds, components @ ..] = arguments.as_slice() else {
        fail(&"give the seconds and the components, as `cargo xtask load` does")
    };
    let seconds = Duration::from_secs(seconds.parse().unwrap_or_else(|error| fail(&error)));
    let engine = Engine::new(&EngineSettings::default()).unwrap_or_else(|error| fail(&error));
    let folder = tempfile::tempdir().unwrap_or_else(|error| fail(&error));
    let cache = Cache::open(&folder.path().join("cache")).unwrap_or_else(|error| fail(&error));
    say(&format!(
        "{engine}, {THREADS} threads, {} s for the chain",
        seconds.as_secs()
    ));
    say(&format!("resident at the start: {:.1} MB", resident()));
    let mut members: Vec<Arc<dyn Member>> = Vec::new();
    for (name, bytes) in sources(components) {
        // From the cache, as a gate that starts the second time: compiling leaves memory behind.
        drop(load(&engine, &cache, &name, &bytes, "compiled"));
        let before = resident();
        let policy = Arc::new(load(&engine, &cache, &name, &bytes, "from the cache"));
        let loaded = resident();
        let alone = LiveChain::new(Chain::of(vec![Arc::clone(&policy) as Arc<dyn Member>]));
        judge(&name, &alone, seconds / 10);
        say(&format!(
            "  resident: {:+.1} MB by loading it, {:+.1} MB after judging",
            loaded - before,
            resident() - before
        ));
        members.push(policy);
    }
    let chain = LiveChain::new(Chain::of(members));
    let before = resident();
    judge("all in one chain", &chain, seconds);
    say(&format!(
        "resident before and after: {before:.1} MB, {:.1} MB",
        resident()
    ));
}

fn sources(components: &[String]) -> Vec<(String, Vec<u8>)> {
    let mut sources = vec![("allowlist in Rust".to_owned(), measure::ALLOWLIST.to_vec())];
    for component in components {
        let bytes = std::fs::read(component).unwrap_or_else(|error| fail(&format!("{component}: {error}")));
        let name = component.rsplit('/').next().unwrap_or(component);
        sources.push((name.to_owned(), bytes));
    }
    sources
}

fn load(engine: &Arc<Engine>, cache: &Cache, name: &str, bytes: &[u8], how: &str) -> Policy {
    let settings = policies::settings(name, Vec::new());
    let settings = PolicySettings {
        source: Source::Bytes {
            name: name.to_owned(),
            bytes: bytes.to_vec().into(),
        },
        config_json: measure::config(),
        limits: Limits {
            configure_deadline: Duration::from_secs(30),
            ..settings.limits.clone()
        },
        ..settings
    };
    let policy = Policy::load_with(engine, settings, Some(cache)).unwrap_or_else(|error| fail(&error));
    let facts = policy.facts();
    say(&format!(
        "{name}: {} bytes, {how} in {:.1} ms; {}",
        facts.component_bytes,
        facts.load_time.as_secs_f64() * 1e3,
        facts.configured
    ));
    policy
}

/// Judges for so long in every thread; a fault ends the program.
fn judge(name: &str, chain: &LiveChain, time: Duration) {
    let over = AtomicBool::new(false);
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| {
                    let mut turn = measure::judged(chain);
                    let mut times = Vec::new();
                    let begun = now();
                    while !over.load(Ordering::Relaxed) {
                        times.push(measure::timed(&mut turn));
                        if time < begun.elapsed() {
                            over.store(true, Ordering::Relaxed);
                        }
                    }
                    times
                })
            })
            .collect();
        let times = threads.into_iter().map(|thread| thread.join());
        times
            .flat_map(|times| times.unwrap_or_else(|_| fail(&"a thread panicked")))
            .collect()
    });
    times.sort_unstable();
    say(&format!(
        "  {name}: {} judgements, no fault; p50 {:.0} µs, p99 {:.0} µs, max {:.0} µs",
        times.len(),
        measure::share(&times, 0.5),
        measure::share(&times, 0.99),
        measure::share(&times, 1.0)
    ));
}

#[expect(clippy::disallowed_methods, reason = "measures real work")]
fn now() -> Instant {
    Instant::now()
}

/// Resident memory of this process in megabytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_else(|error| fail(&error));
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kilobytes: u32 = kilobytes
        .and_then(|kilobytes| kilobytes.parse().ok())
        .unwrap_or_else(|| fail(&"no VmRSS"));
    f64::from(kilobytes) / 1000.0
}
