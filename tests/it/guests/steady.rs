//! Many calls: nothing grows.
//!
//! Memory and descriptors belong to the process, so each of these runs alone in a process of its
//! own: the test starts its own program again, for this one test.

use std::process::Command;

use gatewright::policy::cache::Cache;
use gatewright::policy::load::Policy;

use super::{Answer, Case};
use crate::support::policies::{Does, Guest, settings, wat_policy};
use crate::support::wasi::{Parts, wasi_guest};

/// Tells the second process what it is.
const ALONE: &str = "GATEWRIGHT_TEST_ALONE";

/// Denies with the longest reason.
const LONG: &str = "(memory.fill (i32.const 65536) (i32.const 0x61) (i32.const 65536))
    (call $deny (i32.const 65536) (i32.const 65536))";

/// No image can be taken of a guest with this.
const OBSTACLE: &str = "(table $never 1 funcref)
    (func (table.fill $never (i32.const 0) (ref.null func) (i32.const 1)))";

/// A guest that fills 1 MiB while it is configured, and denies with a part of it.
fn configured(items: &str) -> Guest<'_> {
    Guest {
        items,
        configure: "(drop (memory.grow (i32.const 16)))
            (memory.fill (i32.const 131072) (i32.const 0x61) (i32.const 1048576)) (call $allow)",
        authorize: "(call $deny (i32.const 131072) (i32.const 65536))",
        ..Guest::default()
    }
}

/// How much resident memory may move: arenas of the allocator, stacks of threads.
const NOISE_BYTES: usize = 24 * 1024 * 1024;

/// Whether this process runs one test only. If not, runs `test` in one that does, to its success.
fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--test-threads=1"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("1 passed"), "no such test: {told}");
    false
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[track_caller]
fn is_steady(before: (usize, usize), what: &str) {
    let (memory, open) = (resident_bytes(), descriptors());
    assert!(
        memory <= before.0 + NOISE_BYTES,
        "{what}: memory grew from {} to {memory}",
        before.0
    );
    assert_eq!(before.1, open, "{what}: open descriptors");
}

pub(super) async fn leak(case: &Case) {
    if !alone("guests::leak_across_calls") {
        return;
    }
    let guest = Guest {
        items: "(global $kept (mut i32) (i32.const 0))",
        authorize: "(global.set $kept (memory.grow (i32.const 16)))
            (memory.fill (i32.shl (global.get $kept) (i32.const 16)) (i32.const 1) (i32.const 1048576))
            (call $allow)",
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    let mut before = (0, 0);
    for round in 0..10_000 {
        if round == 100 {
            before = (resident_bytes(), descriptors());
        }
        case.judges(&policy).await;
    }
    is_steady(before, "leak");
}

#[tokio::test]
async fn ten_thousand_mixed_calls() {
    if !alone("guests::steady::ten_thousand_mixed_calls") {
        return;
    }
    let engine = super::engine();
    let load = |component: String| Policy::load(&engine, settings("mixed", component)).unwrap();
    // Short only where it is waited for: it is real time, and the machine may be busy.
    let load_slow = |component: String| {
        let mut settings = settings("slow", component);
        settings.limits.deadline = std::time::Duration::from_millis(20);
        Policy::load(&engine, settings).unwrap()
    };
    let guest = |authorize: &str| {
        Guest {
            authorize,
            ..Guest::default()
        }
        .component()
    };
    let stderr = Parts::output("stderr");
    let timer = Parts::timer();
    let writes =
        "(call $write (call $get_out) (i32.const 65536) (i32.const 4096) (i32.const 64)) (call $allow)";
    let mixed = [
        (load(wat_policy(Does::Allow)), "allow"),
        (load(wat_policy(Does::Deny("no"))), "denied"),
        (load(wat_policy(Does::Ask("sure?"))), "ask"),
        (load(wat_policy(Does::Trap)), "policy_trap"),
        (
            load(guest("(drop (memory.grow (i32.const 65535))) (call $allow)")),
            "policy_memory",
        ),
        (load(guest(LONG)), "denied"),
        (
            load(guest("(call $answer (i32.const 9) (i32.const 0) (i32.const 0))")),
            "policy_output",
        ),
        (load(wasi_guest(&stderr, writes).component()), "allow"),
        (load(configured("").component()), "denied"),
        (load(configured(OBSTACLE).component()), "denied"),
    ];
    let slow = [
        load_slow(wat_policy(Does::Loop)),
        load_slow(
            wasi_guest(
                &timer,
                "(call $block (call $after (i64.const 1000000000000))) (call $allow)",
            )
            .component(),
        ),
    ];
    let mut before = (0, 0);
    // A fixed order that looks like none: the next state of a linear congruential generator.
    let mut random = 1_u32;
    for round in 0..10_000 {
        if round == 1_000 {
            before = (resident_bytes(), descriptors());
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let pick = (random >> 16) as usize;
        if pick.is_multiple_of(200) {
            let answer = Answer::of(&slow[pick / 200 % slow.len()], "x").await;
            assert_eq!("policy_timeout", answer.code());
        }
        let (policy, expected) = &mixed[pick % mixed.len()];
        assert_eq!(*expected, Answer::of(policy, "x").await.code(), "round {round}");
    }
    is_steady(before, "mixed");
}

/// A policy that is replaced gives back what it had: its image, its code, its instances.
#[tokio::test]
async fn loading_again_and_again() {
    if !alone("guests::steady::loading_again_and_again") {
        return;
    }
    let engine = super::engine();
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::open(&folder.path().join("cache")).unwrap();
    let mut before = (0, 0);
    for round in 0..150 {
        if round == 50 {
            before = (resident_bytes(), descriptors());
        }
        for cache in [None, Some(&cache)] {
            let settings = settings("again", configured("").component());
            let policy = Policy::load_with(&engine, settings, cache).unwrap();
            assert_eq!("denied", Answer::of(&policy, "x").await.code());
        }
    }
    is_steady(before, "loading");
}
