//! Swaps while calls are judged, and what they cost in memory.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gatewright::decision::Conclusion;
use gatewright::host::Settings;
use gatewright::policy::reload::QUIET;
use gatewright::seam::{Authorizer as _, Guard, Guards};
use serde_json::{Value, json};

use super::{Followed, call, files};
use crate::support::harness::Harness;

/// Callers that judge at the same time.
const CALLERS: usize = 8;

#[tokio::test(start_paused = true)]
async fn swaps_under_load_lose_nothing() {
    const SWAPS: u64 = 200;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.wasm");
    let [allow, deny] = ["allow-all", "deny-all"].map(files::content);
    files::write(&path, &allow);
    let mut followed = Followed::start(&[&path]).unwrap();
    let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (chain, stop, answers) = (
                Arc::clone(&followed.chain),
                Arc::clone(&stop),
                Arc::clone(&answers),
            );
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                while !stop.load(Ordering::Relaxed) {
                    let verdict = runtime.block_on(chain.judge(&call()));
                    let denied =
                        matches!(&verdict.conclusion, Conclusion::Deny { detail, .. } if detail == "no");
                    assert!(denied || verdict.conclusion == Conclusion::Allow, "{verdict:?}");
                    assert_eq!(
                        1,
                        verdict.policies.len(),
                        "the digest that judged is in the verdict"
                    );
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for swap in 0..SWAPS {
        files::write_and_rename(&path, if swap % 2 == 0 { &deny } else { &allow });
        followed.settle().await;
        // Each caller is answered on both sides of the swap.
        let seen = answers.load(Ordering::Relaxed);
        while answers.load(Ordering::Relaxed) < seen + CALLERS {
            std::thread::yield_now();
        }
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.join().unwrap();
    }
    assert_eq!((SWAPS, 0), followed.counted());
}

#[tokio::test(start_paused = true)]
async fn every_swap_is_seen_by_the_next_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.wasm");
    files::write(&path, &files::content("allow-all"));
    let mut followed = Followed::start(&[&path]).unwrap();
    for swap in 0..50 {
        let deny = swap % 2 == 0;
        files::write_and_rename(
            &path,
            &files::content(if deny { "deny-all" } else { "allow-all" }),
        );
        followed.settle().await;
        assert_eq!(!deny, followed.served().await == Conclusion::Allow, "swap {swap}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_files_swap_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let [a, b] = ["a.wasm", "b.wasm"].map(|name| folder.path().join(name));
    files::write(&a, &files::content("allow-all"));
    files::write(&b, &files::content("allow-all"));
    let mut followed = Followed::start(&[&a, &b]).unwrap();
    let mut revisions = HashSet::from([followed.chain.revision()]);
    files::write_and_rename(&a, &files::content("deny-all"));
    followed.reloader.check();
    tokio::time::advance(QUIET / 2).await;
    files::write_and_rename(&b, &files::content("ask-all"));
    for _ in 0..4 {
        followed.reloader.check();
        revisions.insert(followed.chain.revision());
        tokio::time::advance(QUIET).await;
    }
    assert!(matches!(followed.served().await, Conclusion::Deny { .. }));
    assert!(
        revisions.len() <= 3,
        "one of the three possible ones: {revisions:?}"
    );
    let board = followed.reloader.board().read();
    assert_eq!([1, 1], [0, 1].map(|at: usize| board.policies[at].reloads_ok));
}

#[tokio::test(start_paused = true)]
async fn old_policies_are_let_go() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.wasm");
    let [a, b] = ["large-a", "large-b"].map(files::content);
    files::write(&path, &a);
    let mut followed = Followed::start(&[&path]).unwrap();
    let mut used = Vec::new();
    for swap in 0..100 {
        files::write_and_rename(&path, if swap % 2 == 0 { &b } else { &a });
        followed.settle().await;
        assert_eq!(Conclusion::Allow, followed.served().await);
        used.push((descriptors(), mappings()));
    }
    let (early, late) = (used[10], used[99]);
    assert!(late.0 <= early.0 + 1, "file descriptors: {early:?} and {late:?}");
    // Mappings are where compiled code lies; resident memory belongs to every test that runs besides.
    assert!(
        late.1 <= early.1 + early.1 / 10 + 8,
        "mappings: {early:?} and {late:?}"
    );
}

/// Open file descriptors of this folder's files in this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().contains("p.wasm"))
        .count()
}

/// Mappings of compiled code: executable and of no file of the system.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("r-xp") && !line.contains('/') && !line.contains('['))
        .count()
}

/// A gate whose one call is parked by a policy that asks, which then is replaced by `content`.
async fn parked_then(content: &str) -> (Value, usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.wasm");
    files::write(&path, &files::content("ask-all"));
    let mut followed = Followed::start(&[&path]).unwrap();
    let guards = Guards {
        tools: Guard::Chain(Arc::clone(&followed.chain) as _),
        reads: Guard::Unset,
    };
    let mut harness = Harness::start(guards, Settings::default(), false, None);
    harness
        .open("2025", "2025-11-25", &json!({"elicitation": {}}))
        .await;
    harness
        .send(r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"deploy","arguments":{}}}"#)
        .await;
    let question = harness
        .take(|message| message["method"] == "elicitation/create")
        .unwrap();
    files::write_and_rename(&path, &files::content(content));
    followed.settle().await;
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"approve": true}}});
    harness.send(&answer.to_string()).await;
    let calls = harness.upstream.calls().len();
    harness.upstream.release().await;
    harness.settle().await;
    let answered = harness.take(|message| message["id"] == 7).unwrap();
    (answered, calls)
}

#[tokio::test(start_paused = true)]
async fn a_parked_call_is_judged_by_what_is_in_force() {
    let (answered, calls) = parked_then("deny-all").await;
    assert_eq!(
        json!("denied"),
        answered["result"]["_meta"]["gatewright/refusal"]["code"],
        "{answered}"
    );
    assert_eq!(0, calls, "the upstream saw nothing");
    let (answered, calls) = parked_then("truncated").await;
    assert_eq!(json!(false), answered["result"]["isError"], "{answered}");
    assert_eq!(1, calls, "the call runs once");
}
