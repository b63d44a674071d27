//! Guests that trap, run too long, or want too much memory.

use std::time::Duration;

use gatewright::policy::limits::Limits;
use gatewright::policy::load::Policy;

use super::{Answer, Case};
use crate::policies::call;
use crate::support::log::Lines;
use crate::support::policies::{Guest, settings};
use crate::support::wasi::{Parts, wasi_guest};

/// How much later than its deadline a guest may be cut.
const LATE: Duration = Duration::from_millis(10);

/// How often a busy machine may be the reason that it was later still.
const TRIES: usize = 20;

async fn authorizes(case: &Case, authorize: &str, items: &str) {
    let guest = Guest {
        authorize,
        items,
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    for _ in 0..3 {
        case.judges(&policy).await;
    }
}

pub(super) async fn unreachable(case: &Case) {
    authorizes(case, "unreachable", "").await;
}

pub(super) async fn division_by_zero(case: &Case) {
    // The length of the name, which is 1, less 1.
    let zero = "(i32.sub (i32.load offset=4 (local.get $in)) (i32.const 1))";
    let body = format!("(drop (i32.div_u (i32.const 1) {zero})) (call $allow)");
    let guest = Guest {
        authorize: &body,
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    case.judges(&policy).await;
    assert_eq!("allow", Answer::of(&policy, "xx").await.code());
}

pub(super) async fn deep_recursion(case: &Case) {
    let down = "(func $down (param i32) (result i32)
        (if (i32.eqz (local.get 0)) (then (return (i32.const 0))))
        (i32.add (i32.const 1) (call $down (i32.sub (local.get 0) (i32.const 1)))))";
    authorizes(
        case,
        "(drop (call $down (i32.const 10000000))) (call $allow)",
        down,
    )
    .await;
}

pub(super) async fn null_table_call(case: &Case) {
    let table = "(table 1 funcref) (type $nothing (func))";
    authorizes(
        case,
        "(call_indirect (type $nothing) (i32.const 0)) (call $allow)",
        table,
    )
    .await;
}

pub(super) async fn abort_after_message(case: &Case) {
    // 1 MB of "\x1b[", in pieces of 4 KiB, which is what one write takes.
    let body = r#"
        (memory.fill (i32.const 65536) (i32.const 0x1b) (i32.const 4096))
        (local.set $y (call $get_out))
        (loop $more
            (call $write (local.get $y) (i32.const 65536) (i32.const 4096) (i32.const 64))
            (local.set $x (i32.add (local.get $x) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $x) (i32.const 256))))
        unreachable"#;
    let parts = Parts::output("stderr");
    let policy = case.load_logged(wasi_guest(&parts, body).component(), Duration::from_secs(1));
    let lines = Lines::default();
    let logged = lines.watch();
    case.judges(&policy).await;
    drop(logged);
    let line = lines.with("the policy wrote");
    assert!(line.contains(r"\u{1b}\u{1b}"), "{}", &line[..200]);
    assert!(!line.contains('\u{1b}'));
    // 64 KiB are kept, each shown in six characters; the rest is counted.
    assert_eq!(64 * 1024, line.matches(r"\u{1b}").count());
    assert!(
        line.contains(&format!("dropped={}", 256 * 4096 - 64 * 1024)),
        "{}",
        &line[..200]
    );
}

pub(super) async fn one_input_only(case: &Case) {
    let guest = Guest {
        authorize: r"(if (call $name_is (local.get $in) (i32.const 1024) (i32.const 6))
            (then unreachable)) (call $allow)",
        items: r#"(data (i32.const 1024) "danger")"#,
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    for _ in 0..10 {
        case.expects(&Answer::of(&policy, "danger").await);
        assert_eq!("allow", Answer::of(&policy, "safe").await.code());
    }
}

pub(super) async fn bad_realloc(case: &Case) {
    for pointer in ["-16", "0x7ffffff0", "131064", "65537"] {
        let realloc = format!("(i32.const {pointer})");
        let guest = Guest {
            realloc: &realloc,
            ..Guest::default()
        };
        case.judges(&case.load(guest.component())).await;
    }
}

/// Judges until the guest was cut in time once; a mechanism that is late by itself never is.
async fn cut_in_time(case: &Case, component: String) {
    let policy = case.load_by_default(component);
    let deadline = Duration::from_millis(50);
    let mut times = Vec::new();
    for _ in 0..TRIES {
        let before = queued();
        let answer = case.judges(&policy).await;
        let queued = queued() - before;
        assert!(
            deadline <= answer.time,
            "{} too early: {:?}",
            case.row.name,
            answer.time
        );
        if answer.time - queued.min(answer.time) <= deadline + LATE {
            return;
        }
        times.push((answer.time, queued));
    }
    panic!("{}: always late: {times:?}", case.row.name);
}

/// How long this thread has waited for a processor so far: no fault of the host's.
fn queued() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split(' ').nth(1).unwrap().parse().unwrap())
}

pub(super) async fn memory_fill(case: &Case) {
    let guest = Guest {
        memory: r#"(memory (export "memory") 1024)"#,
        authorize: "(loop $again
            (memory.fill (i32.const 0) (i32.const 7) (i32.const 67108864)) (br $again))
            unreachable",
        ..Guest::default()
    };
    cut_in_time(case, guest.component()).await;
}

pub(super) async fn blocking_poll(case: &Case) {
    let timer = Parts::timer();
    let ages = "(call $block (call $after (i64.const 1000000000000000000))) (call $allow)";
    cut_in_time(case, wasi_guest(&timer, ages).component()).await;
    // Closed standard input is always ready, so that this never waits and never ends.
    let stdin = Parts::stdin();
    let again = "(local.set $x (call $ready (call $stdin)))
        (loop $again (call $block (local.get $x)) (br $again)) unreachable";
    cut_in_time(case, wasi_guest(&stdin, again).component()).await;
}

pub(super) async fn loop_in_realloc(case: &Case) {
    let realloc = "(loop $again (br $again)) unreachable";
    cut_in_time(
        case,
        Guest {
            realloc,
            ..Guest::default()
        }
        .component(),
    )
    .await;
}

pub(super) async fn just_inside(case: &Case) {
    // Waits for 40 of its 50 ms.
    let timer = Parts::timer();
    let body = "(call $block (call $after (i64.const 40000000))) (call $allow)";
    let policy = case.load_by_default(wasi_guest(&timer, body).component());
    inside(case, &policy, async || 0).await;

    // Counts to `ctx.now-unix-ms`, and the test finds out what 40 ms of counting are.
    let guest = Guest {
        authorize: "(loop $again
            (local.set $x (i32.add (local.get $x) (i32.const 1)))
            (br_if $again (i32.lt_u (local.get $x)
                (i32.trunc_f64_u (f64.load offset=104 (local.get $in))))))
            (call $allow)",
        ..Guest::default()
    };
    let mut patient = settings("patient", guest.component());
    patient.limits.deadline = Duration::from_secs(60);
    let patient = case.load_with(patient);
    let policy = case.load_by_default(guest.component());
    inside(case, &policy, async || {
        // Found out anew for every try: the machine's speed is not the same twice.
        let (decision, micros) = counting(&patient, 4_000_000).await;
        assert_eq!("allow", decision);
        u32::try_from(4_000_000 * 40_000 / micros.max(1)).unwrap()
    })
    .await;
}

/// One of the tries must do most of its work and be answered as the case expects: a busy machine
/// may make the others late.
async fn inside(case: &Case, policy: &Policy, count: impl AsyncFn() -> u32) {
    let mut codes = Vec::new();
    for _ in 0..TRIES {
        let (code, micros) = counting(policy, count().await).await;
        if code == case.row.expect_code && 30_000 < micros {
            return;
        }
        codes.push((code, micros));
    }
    panic!("{}: {codes:?}", case.row.name);
}

async fn counting(policy: &Policy, count: u32) -> (&'static str, u64) {
    let mut call = call("x");
    call.context.now_unix_ms = count.into();
    let (decision, micros) = policy.decide(&call).await;
    (
        Answer {
            decision,
            time: Duration::ZERO,
        }
        .code(),
        micros,
    )
}

pub(super) async fn memory_bomb(case: &Case) {
    let grow = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))";
    // Once refused, it does not matter how it goes on.
    authorizes(case, &format!("{grow} unreachable"), "").await;
    authorizes(case, &format!("{grow} (call $allow)"), "").await;
    authorizes(case, &format!("{grow} (loop $ever (br $ever)) unreachable"), "").await;
    let configure = format!("{grow} (call $allow)");
    let guest = Guest {
        configure: &configure,
        ..Guest::default()
    };
    let loaded = Policy::load(&case.engine, settings("bomb in configure", guest.component()));
    let error = loaded.unwrap_err().to_string();
    assert!(error.contains("limit"), "{error}");
}

pub(super) async fn table_bomb(case: &Case) {
    let grow = "(drop (table.grow $t (ref.null func) (i32.const 100000000)))";
    authorizes(case, &format!("{grow} (call $allow)"), "(table $t 1 funcref)").await;
    // In many small steps.
    let steps = "(loop $more (br_if $more
        (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1)))) (call $allow)";
    authorizes(case, steps, "(table $t 1 funcref)").await;
    // Over two tables that are within the limit each.
    let two = "(drop (table.grow $t (ref.null func) (i32.const 60000)))
        (drop (table.grow $u (ref.null func) (i32.const 60000))) (call $allow)";
    authorizes(case, two, "(table $t 1 funcref) (table $u 1 funcref)").await;
}

pub(super) async fn copies(case: &Case) {
    let guest = Guest {
        authorize: "(loop $more
            (local.set $y (memory.grow (i32.const 16)))
            (if (i32.eq (local.get $y) (i32.const -1)) (then unreachable))
            (memory.copy (i32.shl (local.get $y) (i32.const 16))
                (i32.load offset=8 (local.get $in)) (i32.load offset=12 (local.get $in)))
            (local.set $x (i32.add (local.get $x) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $x) (i32.const 1000))))
            (call $allow)",
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    let args = format!(r#"{{"text":"{}"}}"#, "a".repeat(1_000_000));
    let mut call = call("x");
    call.args_json = &args;
    let (decision, micros) = policy.decide(&call).await;
    case.expects(&Answer {
        decision,
        time: Duration::from_micros(micros),
    });
}

/// However the deadline is set, and on whatever runtime: an endless guest ends.
#[test]
fn an_endless_guest_under_every_deadline() {
    let single = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let paused = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    };
    let many = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).enable_time().build().unwrap()
    };
    let engine = super::engine();
    let timer = Parts::timer();
    let ages = "(call $block (call $after (i64.const 1000000000000000000))) (call $allow)";
    let spins = "(loop $again (br $again)) unreachable";
    let components = [
        Guest {
            authorize: spins,
            ..Guest::default()
        }
        .component(),
        wasi_guest(&timer, spins).component(),
        wasi_guest(&timer, ages).component(),
    ];
    for component in &components {
        for deadline_ms in [None, Some(0), Some(1), Some(7), Some(300)] {
            let mut settings = settings("endless", component.as_str());
            settings.limits = match deadline_ms {
                None => Limits::default(),
                Some(deadline_ms) => Limits {
                    deadline: Duration::from_millis(deadline_ms),
                    ..Limits::default()
                },
            };
            let policy = Policy::load(&engine, settings).unwrap();
            for runtime in [single(), paused(), many()] {
                let answer = runtime.block_on(Answer::of(&policy, "x"));
                assert_eq!("policy_timeout", answer.code(), "{deadline_ms:?} {answer:?}");
            }
        }
    }
}
