//! What the benchmarks share: the calls, the host's own subjects, and how time is taken.
//!
//! Every row is real time on the machine at hand. On a busy machine, or without `--release`, the
//! figures say nothing.

use std::sync::{Arc, Barrier};
use std::task::{Context as Polling, Poll, Waker};
use std::time::{Duration, Instant};

use gatewright::decision::{Decision, Fault, Mode, Seam};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Grants, Limits, PolicySettings, Source};
use gatewright::policy::live::LiveChain;
use gatewright::policy::load::{Configured, Policy};
use gatewright::seam::{Authorizer as _, Call, Context};

use crate::{contract, plain};

/// The carried policy that everything here is measured with.
pub(crate) const ALLOWLIST: &[u8] = include_bytes!("../src/policy/carried/allowlist.wasm");

/// The last name on the list.
pub(crate) const TOOL: &str = "write_file";

/// Sizes of the arguments, in bytes, and how many calls of each are measured in one thread.
pub(crate) const SIZES: [(usize, usize); 3] = [(200, 50_000), (10_000, 5_000), (1_000_000, 300)];

/// One subject in one thread: each turn is one judgement, and panics when it is not an allow.
pub(crate) type Turn = Box<dyn FnMut()>;

/// The names on the list: 200, and the called tool is the last.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<String> = (0..199).map(|n| format!("tool_number_{n}")).collect();
    names.push(TOOL.to_owned());
    names
}

/// Arguments of this size, as one JSON object.
pub(crate) fn arguments(bytes: usize) -> String {
    let (head, tail) = (r#"{"path":"/srv/share/notes/meeting.md","content":""#, r#""}"#);
    let content = "A line of text, as documents have. ".repeat(bytes / 35 + 1);
    let room = bytes - head.len() - tail.len();
    format!("{head}{}{tail}", content.get(..room).unwrap_or(&content))
}

/// Measures a subject in so many threads, each with its own turn, and prints a row.
pub(crate) fn row(
    label: &str,
    bytes: usize,
    threads: usize,
    rounds: usize,
    subject: &(dyn Fn() -> Turn + Sync),
) {
    // Arguments of the program pick rows, for a second look or a profile.
    let full = format!("{label} {bytes}/{threads}");
    let mut wanted = std::env::args()
        .skip(1)
        .filter(|wanted| !wanted.starts_with('-'))
        .peekable();
    if wanted.peek().is_some() && !wanted.any(|wanted| full.contains(&wanted)) {
        return;
    }
    let start = Barrier::new(threads);
    let measured: Vec<(Vec<Duration>, Duration)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut turn = subject();
                    (0..rounds / 10).for_each(|_| turn());
                    start.wait();
                    let begun = now();
                    let times = (0..rounds).map(|_| timed(&mut turn)).collect();
                    (times, begun.elapsed())
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| fail(&"a thread panicked")))
            .collect()
    });
    let longest = measured.iter().map(|(_, time)| *time).max().unwrap_or_default();
    let mut times: Vec<Duration> = measured.into_iter().flat_map(|(times, _)| times).collect();
    times.sort_unstable();
    say(&format!(
        "{label:<34} {bytes:>9} {threads:>7} {:>9.1} {:>9.1} {:>9.1} {:>10.0}",
        share(&times, 0.5),
        share(&times, 0.99),
        share(&times, 1.0),
        f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX)) / longest.as_secs_f64()
    ));
}

/// Prints what the rows mean.
pub(crate) fn head() {
    let columns = ["bytes", "threads", "p50 µs", "p99 µs", "max µs", "each s"];
    let [bytes, threads, p50, p99, max, rate] = columns;
    say(&format!(
        "{:<34} {bytes:>9} {threads:>7} {p50:>9} {p99:>9} {max:>9} {rate:>10}",
        "one judgement"
    ));
}

/// The host's own rows for an allowlist of 200 entries.
pub(crate) fn host_rows() {
    let engine = Engine::new(&EngineSettings::default()).unwrap_or_else(|error| fail(&error));
    say(&format!(
        "wasmtime {}, {}",
        Engine::version(),
        engine.allocation().as_str()
    ));
    head();
    let image = load(&engine, ALLOWLIST.to_vec(), &config());
    let each = load(&engine, with_obstacle(ALLOWLIST), &config());
    if image.facts().configured != Configured::Snapshot {
        fail(&image.facts().configured);
    }
    if !matches!(each.facts().configured, Configured::EachCall { .. }) {
        fail(&each.facts().configured);
    }
    // What threads cost each other by sharing an engine, as they do in the host.
    row("fresh sandbox, unshared engine", 200, 2, SIZES[0].1, &|| {
        let engine = Engine::new(&EngineSettings::default()).unwrap_or_else(|error| fail(&error));
        fresh(&load(&engine, ALLOWLIST.to_vec(), &config()), 200)
    });
    for (bytes, rounds) in SIZES {
        for threads in [1, 2] {
            row("fresh sandbox, from its image", bytes, threads, rounds, &|| {
                fresh(&image, bytes)
            });
            row("fresh sandbox, configured each", bytes, threads, rounds, &|| {
                fresh(&each, bytes)
            });
            row("one instance, used again", bytes, threads, rounds, &|| {
                reused(bytes)
            });
        }
    }
}

/// Loads a component for a benchmark.
pub(crate) fn load(engine: &Arc<Engine>, component: Vec<u8>, config_json: &str) -> Arc<Policy> {
    let settings = PolicySettings {
        name: "bench".to_owned(),
        source: Source::Bytes {
            name: "bench".to_owned(),
            bytes: component.into(),
        },
        config_json: config_json.to_owned(),
        mode: Mode::Enforce,
        limits: Limits {
            deadline: Duration::from_secs(1),
            ..Limits::default()
        },
        grants: Grants::default(),
    };
    Arc::new(Policy::load(engine, settings).unwrap_or_else(|error| fail(&error)))
}

/// A new instance for each call: what the host does.
pub(crate) fn fresh(policy: &Arc<Policy>, bytes: usize) -> Turn {
    let (policy, args_json) = (Arc::clone(policy), arguments(bytes));
    Box::new(move || {
        let call = call(&args_json);
        let mut judgement = std::pin::pin!(policy.decide(&call));
        // Without imports, a judgement is over in its first poll.
        match judgement.as_mut().poll(&mut Polling::from_waker(Waker::noop())) {
            Poll::Ready((Ok(Decision::Allow), _)) => {}
            Poll::Ready((decision, _)) => fail(&format!("{decision:?}")),
            Poll::Pending => fail(&"it waits"),
        }
    })
}

/// A call of a chain whose policies may be swapped: any conclusion is good but a fault.
pub(crate) fn judged(chain: &LiveChain) -> impl FnMut() {
    let args_json = arguments(200);
    move || {
        let call = call(&args_json);
        let mut judgement = chain.judge(&call);
        match judgement.as_mut().poll(&mut Polling::from_waker(Waker::noop())) {
            Poll::Ready(verdict) if verdict.policies.iter().all(|policy| policy.decision.is_ok()) => {}
            Poll::Ready(verdict) => fail(&format!("{verdict:?}")),
            Poll::Pending => fail(&"it waits"),
        }
    }
}

/// How long it takes until a guest that never ends is cut.
pub(crate) fn cut(policy: &Policy) -> Duration {
    let call = call("{}");
    let start = now();
    let mut judgement = std::pin::pin!(policy.decide(&call));
    match judgement.as_mut().poll(&mut Polling::from_waker(Waker::noop())) {
        Poll::Ready((Err((Fault::Timeout, _)), _)) => start.elapsed(),
        _ => fail(&"it ends"),
    }
}

fn call(args_json: &str) -> Call<'_> {
    Call {
        seam: Seam::Tools,
        name: TOOL,
        args_json,
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

/// The configuration of the allowlist.
pub(crate) fn config() -> String {
    format!(r#"{{"allow":["{}"]}}"#, names().join("\",\""))
}

/// The same component with a module that is never used, and that no image can be taken with.
fn with_obstacle(component: &[u8]) -> Vec<u8> {
    let module = "(module (table 1 funcref)
        (func (table.fill 0 (i32.const 0) (ref.null func) (i32.const 1))))";
    let module = wat::parse_str(module).unwrap_or_else(|error| fail(&error));
    // A section of a component: its number, its length, its contents.
    let length = u8::try_from(module.len()).ok().filter(|length| *length < 128);
    let length = length.unwrap_or_else(|| fail(&"the module is too long"));
    [component, &[1, length], &module].concat()
}

/// One instance for all calls, with the same flags: what this host never does. The price of a fresh
/// one is the difference.
fn reused(bytes: usize) -> Turn {
    use contract::exports::gatewright::policy::configurable::Configured;
    use plain::exports::gatewright::policy::authorizer::{Context, Decision};
    use wasmtime::component::{Component, Linker};

    let mut flags = wasmtime::Config::new();
    flags
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .concurrency_support(false);
    let engine = wasmtime::Engine::new(&flags).unwrap_or_else(|error| fail(&error));
    let component = Component::new(&engine, ALLOWLIST).unwrap_or_else(|error| fail(&error));
    let mut store = wasmtime::Store::new(&engine, ());
    store.set_epoch_deadline(u64::MAX / 2);
    let instance = Linker::new(&engine)
        .instantiate(&mut store, &component)
        .unwrap_or_else(|error| fail(&error));
    let configurable =
        contract::ConfigurablePolicyPlugin::new(&mut store, &instance).unwrap_or_else(|error| fail(&error));
    let configured = configurable
        .gatewright_policy_configurable()
        .call_configure(&mut store, &config());
    match configured {
        Ok(Configured::Ready) => {}
        Ok(Configured::Invalid(text)) => fail(&text),
        Err(error) => fail(&error),
    }
    let policy = plain::PolicyPlugin::new(&mut store, &instance).unwrap_or_else(|error| fail(&error));
    let args_json = arguments(bytes);
    let from = call("").context;
    let context = Context {
        seam: Seam::Tools.as_str().to_owned(),
        server: from.server.to_owned(),
        session: from.session.to_owned(),
        transport: from.transport.to_owned(),
        protocol_version: from.protocol_version.to_owned(),
        client_json: from.client_json.to_owned(),
        principal: None,
        claims_json: from.claims_json.to_owned(),
        tool_json: from.tool_json.to_owned(),
        extra_json: from.extra_json.to_owned(),
        now_unix_ms: 1_800_000_000_000.0,
    };
    Box::new(move || {
        let authorizer = policy.gatewright_policy_authorizer();
        match authorizer.call_authorize(&mut store, TOOL, &args_json, &context) {
            Ok(Decision::Allow) => {}
            other => fail(&format!("{other:?}")),
        }
    })
}

pub(crate) fn timed(turn: &mut impl FnMut()) -> Duration {
    let start = now();
    turn();
    start.elapsed()
}

#[expect(clippy::disallowed_methods, reason = "measures real work")]
fn now() -> Instant {
    Instant::now()
}

/// The time that this share of the calls stays within, in microseconds.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an index into a few thousand"
)]
pub(crate) fn share(sorted: &[Duration], share: f64) -> f64 {
    let last = sorted.len().saturating_sub(1);
    let index = (last as f64 * share).round() as usize;
    sorted
        .get(index)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Prints one line.
#[expect(clippy::print_stdout, reason = "the table is what this program is for")]
pub(crate) fn say(line: &str) {
    println!("{line}");
}

/// Ends the benchmark.
#[expect(
    clippy::panic,
    reason = "a benchmark that cannot measure has nothing else to do"
)]
pub(crate) fn fail(error: &dyn std::fmt::Display) -> ! {
    panic!("{error}")
}
