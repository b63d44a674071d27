//! Two hundred clients of `gatewright serve`, while its servers are killed and reset under them: every call is
//! answered exactly once, nothing that a policy refuses reaches a server, and memory comes back.
//!
//! Takes a minute; `GATEWRIGHT_LOAD_SECONDS` sets another time. Prints what it has counted.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "the whole binary is tests; clippy sees only functions marked as such"
)]

mod client;
mod gate;
mod upstream;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use client::{Client, Era, Outcome};
use gate::Gate;
use upstream::HttpUpstream;

/// A child records what it is called with in the file that is its argument, and lives until it is killed.
const CHILD: &str = r#"
import json, os, sys
record = open(sys.argv[1], "a", buffering=1)
record.write("pid %d\n" % os.getpid())
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"resultType": "complete", "content": []}
    if message["method"] == "server/discover":
        result.update({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if message["method"] == "tools/list":
        result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    if message["method"] == "tools/call":
        n = message["params"]["arguments"]["n"]
        record.write("call %s %d\n" % (message["params"]["name"], n))
        result["content"] = [{"type": "text", "text": str(n)}]
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// How many clients of each era call each server. A child serves one client of 2025-11-25, so these are fewer.
const CLIENTS: &[(&str, Era, usize)] = &[
    ("/child", Era::Stateless, 70),
    ("/child", Era::Handshake, 10),
    ("/http", Era::Stateless, 60),
    ("/http", Era::Handshake, 60),
];

/// How often a child is killed and the connections of the HTTP server are reset.
const HARM_EVERY: Duration = Duration::from_secs(2);

/// How long the gate may take to let go of what it held.
const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// What the gate may hold after the load beside what it held after a second of it, in KiB: an allocator keeps pages.
const KEPT_KIB_MAX: u64 = 48 * 1024;

/// Files that may be open after the load beside those that were open before.
const KEPT_FILES_MAX: usize = 8;

/// One call and what came of it.
struct Called {
    n: u64,
    forbidden: bool,
    outcome: Outcome,
}

/// Calls in a loop until it is told to stop; every fifth call is of a tool that the policy denies.
fn call_on(mut client: Client, numbers: &AtomicU64, stop: &AtomicBool) -> Vec<Called> {
    let mut called = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let n = numbers.fetch_add(1, Ordering::Relaxed);
        let forbidden = n.is_multiple_of(5);
        let outcome = client.call(if forbidden { "forbidden" } else { "echo" }, n);
        called.push(Called {
            n,
            forbidden,
            outcome,
        });
    }
    client.end();
    called
}

/// Runs all clients for this long, and harms the servers meanwhile.
fn load(gate: &Gate, http: &HttpUpstream, numbers: &Arc<AtomicU64>, time: Duration) -> Vec<Called> {
    let stop = Arc::new(AtomicBool::new(false));
    let (never, timer) = mpsc::channel::<()>();
    let clients: Vec<_> = CLIENTS
        .iter()
        .flat_map(|(path, era, count)| (0..*count).map(move |_| (*path, *era)))
        .map(|(path, era)| {
            let client = Client::new(&gate.address, path, era);
            let (numbers, stop) = (Arc::clone(numbers), Arc::clone(&stop));
            std::thread::spawn(move || call_on(client, &numbers, &stop))
        })
        .collect();
    let rounds = (time.as_millis() / HARM_EVERY.as_millis()).max(1);
    for round in 0..rounds {
        let _elapsed = timer.recv_timeout(HARM_EVERY.min(time));
        if round % 2 == 0 {
            gate.kill_a_child();
        } else {
            http.reset();
        }
    }
    stop.store(true, Ordering::Relaxed);
    drop(never);
    clients
        .into_iter()
        .flat_map(|client| client.join().expect("a client has an answer to every call"))
        .collect()
}

#[test]
fn every_call_is_answered_once_and_nothing_refused_is_forwarded() {
    let seconds = std::env::var("GATEWRIGHT_LOAD_SECONDS").ok();
    let seconds: u64 = seconds.map_or(60, |text| {
        text.parse().expect("GATEWRIGHT_LOAD_SECONDS is a number")
    });
    let http = HttpUpstream::start();
    let gate = Gate::start(CHILD, &http.url);
    let numbers = Arc::new(AtomicU64::new(1));
    let files_before = gate.open_files();
    let mut called = load(&gate, &http, &numbers, Duration::from_secs(1));
    let warm_kib = gate.settled_kib(0, SETTLE_WITHIN);
    called.extend(load(&gate, &http, &numbers, Duration::from_secs(seconds)));
    let peak_kib = gate.peak_kib();

    let received: Vec<(String, u64)> = http.received().into_iter().chain(gate.received()).collect();
    let distinct: HashSet<u64> = received.iter().map(|(_, n)| *n).collect();
    assert_eq!(received.len(), distinct.len(), "a call reached a server twice");
    let forwarded = received.iter().find(|(name, _)| name != "echo");
    assert_eq!(None, forwarded, "a refused call reached a server");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for Called {
        n,
        forbidden,
        outcome,
    } in &called
    {
        let fits = match outcome {
            Outcome::Result(text) => !forbidden && *text == n.to_string() && distinct.contains(n),
            Outcome::Refused => *forbidden && !distinct.contains(n),
            Outcome::Fault => true,
            Outcome::Other(response) => panic!("call {n}: {response}"),
        };
        assert!(fits, "call {n}, forbidden: {forbidden}: {outcome:?}");
        *counts.entry(outcome.name()).or_default() += 1;
    }
    for name in ["result", "refused", "fault"] {
        assert!(0 < counts.get(name).copied().unwrap_or(0), "{name}: {counts:?}");
    }
    http.reset();
    let after_kib = gate.settled_kib(warm_kib + KEPT_KIB_MAX, SETTLE_WITHIN);
    let files = gate.settled_files(files_before + KEPT_FILES_MAX, SETTLE_WITHIN);
    println!(
        "load: {} clients, {seconds} s, {} calls, {counts:?}; memory {} MiB after warm-up, {} MiB at most, {} MiB \
         after; files {files_before} before, {files} after",
        CLIENTS.iter().map(|(_, _, count)| count).sum::<usize>(),
        called.len(),
        warm_kib / 1024,
        peak_kib / 1024,
        after_kib / 1024,
    );
    gate.end();
}
