//! How long one judgement takes: a fresh sandbox, from the call to the dropped instance.
//!
//! Prints a table. The last column of each row is the same policy in one instance that is kept
//! alive between calls, which this host never does: the price of the fresh one is the difference.

use std::path::Path;
use std::time::{Duration, Instant};

use gatewright::decision::{Decision, Mode, Seam};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Grants, Limits, PolicySettings, Source};
use gatewright::policy::load::Policy;
use gatewright::seam::{Call, Context};

#[path = "../tests/it/support/policies.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod policies;

mod contract {
    wasmtime::component::bindgen!({ path: "wit", world: "configurable-policy-plugin" });
}

mod plain {
    wasmtime::component::bindgen!({ path: "wit", world: "policy-plugin" });
}

/// Calls before and while it is measured.
const WARM_UP: usize = 500;
const ROUNDS: usize = 5_000;

const ARGS: &str = r#"{"path":"/srv/share/notes/2026/december/meeting-with-the-whole-team.md","content":"A line of text that is long enough to make these arguments two hundred bytes of JSON, as calls often are."}"#;

fn main() {
    let engine = Engine::new(&EngineSettings::default()).unwrap_or_else(|error| fail(&error));
    say(&format!(
        "wasmtime {}, {}, {} rounds, {} bytes of arguments",
        Engine::version(),
        engine.allocation().as_str(),
        ROUNDS,
        ARGS.len()
    ));
    say(&format!(
        "{:<44} {:>9} {:>9} {:>9} {:>12}",
        "one judgement, µs", "p50", "p99", "max", "reused p50"
    ));
    let tiny = policies::wat_policy(policies::Does::Allow).into_bytes();
    row("allow, in WebAssembly text", &engine, tiny, "");
    let guest = policies::Guest {
        configure: "(call $allow)",
        ..policies::Guest::default()
    };
    row(
        "the same with `configure`",
        &engine,
        guest.component().into_bytes(),
        "",
    );
    let carried = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/policy/carried/allowlist.wasm");
    match std::fs::read(carried) {
        Ok(bytes) => row("allowlist, 200 entries", &engine, bytes, &two_hundred_entries()),
        Err(error) => say(&format!("allowlist, 200 entries: not measured ({error})")),
    }
}

fn two_hundred_entries() -> String {
    let mut entries: Vec<String> = (0..199).map(|n| format!("\"tool_number_{n}\"")).collect();
    entries.push("\"write_file\"".to_owned());
    format!(r#"{{"allow":[{}]}}"#, entries.join(","))
}

fn row(label: &str, engine: &std::sync::Arc<Engine>, component: Vec<u8>, config: &str) {
    let reused = reused(&component, config);
    let settings = PolicySettings {
        name: label.to_owned(),
        source: Source::Bytes {
            name: label.to_owned(),
            bytes: component.into(),
        },
        config_json: config.to_owned(),
        mode: Mode::Enforce,
        limits: Limits {
            deadline: Duration::from_secs(1),
            ..Limits::default()
        },
        grants: Grants::default(),
    };
    let policy = Policy::load(engine, settings).unwrap_or_else(|error| fail(&error));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap_or_else(|error| fail(&error));
    let times = runtime.block_on(async {
        let mut times = Vec::with_capacity(ROUNDS);
        for round in 0..WARM_UP + ROUNDS {
            let start = now();
            let (decision, _) = policy.decide(&call()).await;
            let time = start.elapsed();
            if decision != Ok(Decision::Allow) {
                fail(&format!("{label}: {decision:?}"));
            }
            if WARM_UP <= round {
                times.push(time);
            }
        }
        times
    });
    let fresh = sorted(times);
    say(&format!(
        "{label:<44} {:>9.1} {:>9.1} {:>9.1} {:>12.1}",
        at(&fresh, 0.5),
        at(&fresh, 0.99),
        at(&fresh, 1.0),
        at(&reused, 0.5)
    ));
}

fn call() -> Call<'static> {
    Call {
        seam: Seam::Tools,
        name: "write_file",
        args_json: ARGS,
        context: Context {
            server: "files",
            session: "5f0c1c9e",
            transport: "stdio",
            protocol_version: "2025-11-25",
            client_json: r#"{"name":"bench","version":"1"}"#,
            principal: None,
            claims_json: "{}",
            tool_json: "",
            extra_json: "{}",
            now_unix_ms: 1_800_000_000_000,
        },
    }
}

/// The times of one instance that is called again and again.
fn reused(component: &[u8], config: &str) -> Vec<Duration> {
    use contract::exports::gatewright::policy::configurable::Configured;
    use plain::exports::gatewright::policy::authorizer::{Context, Decision};
    use wasmtime::component::{Component, Linker};

    let engine = wasmtime::Engine::default();
    let bytes = wat::parse_bytes(component).unwrap_or_else(|error| fail(&error));
    let component = Component::new(&engine, &bytes).unwrap_or_else(|error| fail(&error));
    let mut store = wasmtime::Store::new(&engine, ());
    let linker = Linker::new(&engine);
    let instance = linker
        .instantiate(&mut store, &component)
        .unwrap_or_else(|error| fail(&error));
    if let Ok(policy) = contract::ConfigurablePolicyPlugin::new(&mut store, &instance) {
        let config = if config.is_empty() { "{}" } else { config };
        let configurable = policy.gatewright_policy_configurable();
        match configurable.call_configure(&mut store, config) {
            Ok(Configured::Ready) => {}
            Ok(Configured::Invalid(text)) => fail(&text),
            Err(error) => fail(&error),
        }
    }
    let policy = plain::PolicyPlugin::new(&mut store, &instance).unwrap_or_else(|error| fail(&error));
    let call = call();
    let context = Context {
        seam: call.seam.as_str().to_owned(),
        server: call.context.server.to_owned(),
        session: call.context.session.to_owned(),
        transport: call.context.transport.to_owned(),
        protocol_version: call.context.protocol_version.to_owned(),
        client_json: call.context.client_json.to_owned(),
        principal: None,
        claims_json: call.context.claims_json.to_owned(),
        tool_json: call.context.tool_json.to_owned(),
        extra_json: call.context.extra_json.to_owned(),
        now_unix_ms: 1_800_000_000_000.0,
    };
    let authorizer = policy.gatewright_policy_authorizer();
    let mut times = Vec::with_capacity(ROUNDS);
    for round in 0..WARM_UP + ROUNDS {
        let start = now();
        let decision = authorizer.call_authorize(&mut store, call.name, call.args_json, &context);
        let time = start.elapsed();
        if !matches!(decision, Ok(Decision::Allow)) {
            fail(&format!("{decision:?}"));
        }
        if WARM_UP <= round {
            times.push(time);
        }
    }
    sorted(times)
}

#[expect(clippy::disallowed_methods, reason = "measures real work")]
fn now() -> Instant {
    Instant::now()
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort_unstable();
    times
}

/// The time that this share of the calls stays within, in microseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index into a few thousand"
)]
fn at(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * share).round() as usize;
    sorted
        .get(index)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(
    clippy::panic,
    reason = "a benchmark that cannot measure has nothing else to do"
)]
fn fail(error: &dyn std::fmt::Display) -> ! {
    panic!("{error}")
}
