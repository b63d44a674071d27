//! Guests that try to see, remember or touch something.

use std::sync::Arc;
use std::time::Duration;

use gatewright::policy::chain::Chain;
use gatewright::policy::limits::{Grants, Limits};
use gatewright::policy::load::Policy;
use gatewright::seam::Authorizer as _;

use super::{Answer, Case};
use crate::policies::call;
use crate::support::log::{Lines, watch};
use crate::support::policies::{Guest, settings};
use crate::support::wasi::{Parts, wasi_guest};

pub(super) async fn files(case: &Case) {
    let parts = Parts::files();
    // Denies with `nothing` when the list of directories is empty, allows otherwise.
    let counts = "(call $directories (i32.const 64))
        (if (i32.eqz (i32.load (i32.const 68))) (then (return (call $deny (i32.const 1024) (i32.const 7)))))
        (call $allow)";
    let guest = Guest {
        items: r#"(data (i32.const 1024) "nothing")"#,
        ..wasi_guest(&parts, counts)
    };
    let answer = case.judges(&case.load(guest.component())).await;
    assert_eq!("nothing", answer.text());
    // There is no descriptor behind any number.
    for number in 0..16 {
        let tries = format!("(drop (call $same (i32.const {number}) (i32.const {number}))) (call $allow)");
        let policy = case.load(wasi_guest(&parts, &tries).component());
        assert_eq!("policy_trap", Answer::of(&policy, "x").await.code());
    }
}

pub(super) async fn flood(case: &Case) {
    let parts = Parts::output("stdout");
    let body = "(local.set $y (call $get_out))
        (memory.fill (i32.const 65536) (i32.const 0) (i32.const 4096))
        (loop $more
            (call $write (local.get $y) (i32.const 65536) (i32.const 4096) (i32.const 64))
            (local.set $x (i32.add (local.get $x) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $x) (i32.const 262144))))
        (call $allow)";
    let deadline = Limits::default().deadline;
    let policy = case.load_logged(wasi_guest(&parts, body).component(), deadline);
    let lines = Lines::default();
    let logged = lines.watch();
    case.judges(&policy).await;
    drop(logged);
    let line = lines.with("the policy wrote");
    assert_eq!(64 * 1024, line.matches(r"\0").count());
    assert!(!line.contains("dropped=0"), "{}", &line[..200]);
}

pub(super) async fn forged_frame(case: &Case) {
    let frame = r#"{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}"#;
    let parts = Parts::output("stdout");
    let len = frame.len() + 1;
    let body = format!(
        "(call $write (call $get_out) (i32.const 2048) (i32.const {len}) (i32.const 64))
        (call $deny (i32.const 1024) (i32.const 2))"
    );
    let items = format!(
        "(data (i32.const 1024) \"no\") (data (i32.const 2048) {:?})",
        format!("{frame}\n")
    );
    let guest = Guest {
        items: &items,
        ..wasi_guest(&parts, &body)
    };
    let policy = case.load_logged(guest.component(), Duration::from_secs(1));
    let lines = Lines::default();
    let logged = lines.watch();
    let answer = case.judges(&policy).await;
    drop(logged);
    assert_eq!("no", answer.text());
    // It went here, in one line, and so nowhere else.
    assert!(lines.with("the policy wrote").contains(&format!(r"{frame}\n")));
}

pub(super) async fn random(case: &Case) {
    let parts = Parts::random();
    let body = "(if (i64.eqz (i64.and (call $random) (i64.const 1))) (then (return (call $allow))))
        (call $deny (i32.const 1024) (i32.const 0))";
    let component = wasi_guest(&parts, body).component();
    let answers = async |grants: Grants| {
        let mut settings = settings(&case.row.name, component.as_str());
        settings.grants = grants;
        let policy = case.load_with(settings);
        let mut codes = std::collections::BTreeSet::new();
        for _ in 0..64 {
            codes.insert(Answer::of(&policy, "x").await.code());
        }
        codes.len()
    };
    assert_eq!("deterministic", case.row.expect_code);
    assert_eq!(1, answers(Grants::default()).await);
    // With the grant, 64 coins do not fall on one side.
    assert_eq!(
        2,
        answers(Grants {
            random: true,
            ..Grants::default()
        })
        .await
    );
}

pub(super) async fn state(case: &Case) {
    let guest = Guest {
        items: "(global $calls (mut i32) (i32.const 0))",
        authorize: "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (i32.store (i32.const 512) (i32.add (i32.load (i32.const 512)) (i32.const 1)))
            (if (i32.or (i32.gt_u (global.get $calls) (i32.const 1))
                        (i32.gt_u (i32.load (i32.const 512)) (i32.const 1)))
                (then (return (call $deny (i32.const 1024) (i32.const 0)))))
            (call $allow)",
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    for _ in 0..20 {
        case.judges(&policy).await;
    }
}

pub(super) async fn foreign_memory(case: &Case) {
    // Both have the same shape, so that they share slots of the pool.
    let memory = r#"(memory (export "memory") 64)"#;
    let marks = Guest {
        memory,
        authorize: "(memory.fill (i32.const 65536) (i32.const 0x5a) (i32.const 4128768)) (call $allow)",
        ..Guest::default()
    };
    let looks = Guest {
        memory,
        authorize: "(local.set $x (i32.const 131072))
            (loop $next
                (if (i64.ne (i64.load (local.get $x)) (i64.const 0))
                    (then (return (call $deny (i32.const 1024) (i32.const 0)))))
                (local.set $x (i32.add (local.get $x) (i32.const 64)))
                (br_if $next (i32.lt_u (local.get $x) (i32.const 4194304))))
            (call $allow)",
        ..Guest::default()
    };
    let (marks, looks) = (case.load(marks.component()), case.load(looks.component()));
    for _ in 0..50 {
        assert_eq!("allow", Answer::of(&marks, "x").await.code());
        case.judges(&looks).await;
    }
}

pub(super) async fn exit(case: &Case) {
    let parts = Parts::exit();
    for status in [0, 1] {
        let body = format!("(call $exit (i32.const {status})) (call $allow)");
        case.judges(&case.load(wasi_guest(&parts, &body).component()))
            .await;
    }
}

pub(super) async fn nan(case: &Case) {
    // Three ways to make one, one of which starts from a NaN with other bits; allows when all are
    // the canonical one.
    let bits = |nan: &str| {
        format!(
            "(if (i64.ne (i64.reinterpret_f64 {nan}) (i64.const 0x7ff8000000000000))
            (then (return (call $deny (i32.const 1024) (i32.const 0)))))"
        )
    };
    let zero = "(f64.convert_i32_u (local.get $x))";
    let body = [
        bits(&format!("(f64.div {zero} {zero})")),
        bits(&format!("(f64.sqrt (f64.sub {zero} (f64.const 1)))")),
        bits("(f64.add (f64.const nan:0xfffffffffffff) (f64.load offset=104 (local.get $in)))"),
        "(call $allow)".to_owned(),
    ]
    .concat();
    assert_eq!("deterministic", case.row.expect_code);
    let policy = case.load(
        Guest {
            authorize: &body,
            ..Guest::default()
        }
        .component(),
    );
    for _ in 0..20 {
        assert_eq!("allow", Answer::of(&policy, "x").await.code());
    }
}

pub(super) async fn host_panic(case: &Case) {
    // The test hook is the log: the host writes a line when it refuses memory, in the middle of the
    // guest's call, and here that line makes it panic.
    let body = "(drop (memory.grow (i32.const 65535))) (call $allow)";
    let policy = case.load(
        Guest {
            authorize: body,
            ..Guest::default()
        }
        .component(),
    );
    let parts = Parts::timer();
    let waits = case.load(wasi_guest(&parts, body).component());
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let hook = watch(|line| assert!(!line.contains("refused room"), "by test hook"));
    let answers = [Answer::of(&policy, "x").await, Answer::of(&waits, "x").await];
    drop(hook);
    std::panic::set_hook(quiet);
    for answer in &answers {
        case.expects(answer);
    }
    // In a chain it is a denial, and the next call of the same policy is answered.
    let verdict = Chain::new(vec![policy]).judge(&call("x")).await;
    assert_eq!(
        Err("policy_memory"),
        verdict.policies[0]
            .decision
            .clone()
            .map_err(|(fault, _)| fault.code().as_str())
    );
}

/// No case of the file: what a guest of WASI finds is empty, and its clocks stand still.
#[tokio::test]
async fn nothing_is_there() {
    let engine = super::engine();
    let load = |component: String, grants: Grants| {
        let mut settings = settings("curious", component);
        settings.grants = grants;
        Policy::load(&engine, settings).unwrap()
    };
    let parts = Parts::environment();
    let empty = "(call $environment (i32.const 64)) (call $arguments (i32.const 72))
        (if (i32.or (i32.load (i32.const 68)) (i32.load (i32.const 76)))
            (then (return (call $deny (i32.const 1024) (i32.const 0)))))
        (call $allow)";
    let policy = load(wasi_guest(&parts, empty).component(), Grants::default());
    assert_eq!("allow", Answer::of(&policy, "x").await.code());

    // Allows when the clock did not move while the guest waited for 2 ms.
    let parts = Parts::timer();
    let stands = "(local $then i64)
        (local.set $then (call $now))
        (call $block (call $after (i64.const 2000000)))
        (if (i64.eq (local.get $then) (call $now)) (then (return (call $allow))))
        (call $deny (i32.const 1024) (i32.const 0))";
    let component = wasi_guest(&parts, stands).component();
    let policy = load(component.clone(), Grants::default());
    assert_eq!("allow", Answer::of(&policy, "x").await.code());
    let policy = load(
        component,
        Grants {
            clock: true,
            ..Grants::default()
        },
    );
    assert_eq!("denied", Answer::of(&policy, "x").await.code());
}

/// No case of the file: more judgements that wait than the pool has places take turns.
#[tokio::test]
async fn many_judgements_wait_at_once() {
    let engine = super::engine();
    let parts = Parts::timer();
    let waits = "(call $block (call $after (i64.const 3000000))) (call $allow)";
    let component = wasi_guest(&parts, waits).component();
    let policy = Arc::new(Policy::load(&engine, settings("waits", component)).unwrap());
    let mut answers = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let policy = Arc::clone(&policy);
        answers.spawn(async move { Answer::of(&policy, "x").await });
    }
    let answers = answers.join_all().await;
    assert!(
        answers.iter().all(|answer| answer.code() == "allow"),
        "{answers:?}"
    );
}

/// No case of the file: a judgement that is given up leaves nothing behind.
#[tokio::test]
async fn a_dropped_judgement_frees_its_place() {
    let engine = super::engine();
    let parts = Parts::timer();
    let waits = "(call $block (call $after (i64.const 1000000000000))) (call $allow)";
    let policy = Policy::load(&engine, settings("waits", wasi_guest(&parts, waits).component())).unwrap();
    for _ in 0..200 {
        let call = call("x");
        let mut judgement = Box::pin(policy.decide(&call));
        let polled = std::future::poll_fn(|context| {
            std::task::Poll::Ready(judgement.as_mut().poll(context).is_pending())
        });
        assert!(polled.await, "it waits");
    }
    let quick = "(call $block (call $after (i64.const 1000))) (call $allow)";
    let policy = Policy::load(&engine, settings("quick", wasi_guest(&parts, quick).component())).unwrap();
    assert_eq!("allow", Answer::of(&policy, "x").await.code());
}
