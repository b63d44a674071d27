//! What a policy may touch: nothing, unless it is granted; and the same inputs give the same
//! outcome, bit for bit.

use std::sync::Arc;

use expect_test::{Expect, expect};
use gatewright::decision::{Decision, Fault};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Grants, Variables};
use gatewright::policy::load::Policy;

use crate::policies::call;
use crate::support::log::Lines;
use crate::support::policies::{Guest, settings};
use crate::support::wasi::{Parts, wasi_guest};

fn engine() -> Arc<Engine> {
    Engine::new(&EngineSettings::default()).unwrap()
}

fn load(engine: &Arc<Engine>, guest: Guest<'_>, grants: &Grants) -> Policy {
    let mut settings = settings("guest", guest.component());
    settings.grants = grants.clone();
    Policy::load(engine, settings).unwrap()
}

async fn decide(policy: &Policy) -> Result<Decision, Fault> {
    policy.decide(&call("x")).await.0.map_err(|(fault, _)| fault)
}

fn variables(pairs: &[(&str, &str)]) -> Variables {
    let owned = pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    owned.collect()
}

/// Denies with what lies behind the `at`th of the texts in the list that `$environment` made.
fn tells_variable(at: usize) -> String {
    let (pointer, length) = (at * 8, at * 8 + 4);
    format!(
        "(call $environment (i32.const 64))
        (if (i32.eqz (i32.load (i32.const 68))) (then (return (call $allow))))
        (local.set $x (i32.load (i32.const 64)))
        (call $deny (i32.load offset={pointer} (local.get $x)) (i32.load offset={length} (local.get $x)))"
    )
}

#[tokio::test]
async fn variables_are_granted_by_name() {
    let engine = engine();
    let granted = Grants {
        env: variables(&[("REGION", "eu-west"), ("LEVEL", "3")]),
        ..Grants::default()
    };
    let parts = Parts::environment();
    let mut told = Vec::new();
    for at in 0..4 {
        let body = tells_variable(at);
        let guest = wasi_guest(&parts, &body);
        match decide(&load(&engine, guest, &granted)).await {
            Ok(Decision::Deny(text)) => told.push(text),
            other => panic!("{other:?}"),
        }
        // Without a grant there are none, whatever the process itself has.
        assert_eq!(
            Ok(Decision::Allow),
            decide(&load(&engine, guest, &Grants::default())).await
        );
    }
    assert_eq!(["LEVEL", "3", "REGION", "eu-west"], *told);
    // A value may be a secret, and settings are logged.
    let shown = format!("{granted:?}");
    assert!(shown.contains("REGION") && !shown.contains("eu-west"), "{shown}");
}

#[tokio::test]
async fn variables_are_not_there_for_configure() {
    let engine = engine();
    let granted = Grants {
        env: variables(&[("REGION", "eu-west")]),
        ..Grants::default()
    };
    let parts = Parts::environment();
    let guest = Guest {
        configure: "(call $environment (i32.const 64)) (i32.store (i32.const 600) (i32.load (i32.const 68))) (call $allow)",
        ..wasi_guest(
            &parts,
            "(call $environment (i32.const 64))
            (if (i32.load (i32.const 600)) (then unreachable))
            (if (i32.ne (i32.load (i32.const 68)) (i32.const 1)) (then unreachable))
            (call $allow)",
        )
    };
    assert_eq!(Ok(Decision::Allow), decide(&load(&engine, guest, &granted)).await);
}

#[tokio::test]
async fn writing_is_logged_when_that_is_granted() {
    let engine = engine();
    let parts = Parts::output("stderr");
    let writes = "(call $write (call $get_out) (i32.const 1024) (i32.const 5) (i32.const 64)) (call $allow)";
    let guest = Guest {
        items: r#"(data (i32.const 1024) "hello")"#,
        configure: writes,
        ..wasi_guest(&parts, writes)
    };
    let logged = async |log: bool| {
        let lines = Lines::default();
        let watching = lines.watch();
        let grants = Grants {
            log,
            ..Grants::default()
        };
        let policy = load(&engine, guest, &grants);
        assert_eq!(Ok(Decision::Allow), decide(&policy).await);
        drop(watching);
        lines
    };
    // Once, though it is written twice: not while it is configured.
    let with = logged(true).await;
    let line = with.with("the policy wrote");
    assert!(line.contains("the policy wrote: hello"), "{line}");
    let without = logged(false).await;
    assert!(!format!("{without:?}").contains("hello"), "{without:?}");
    assert!(format!("{without:?}").contains("is not kept"), "{without:?}");
}

#[test]
fn requests_are_listed_with_what_they_are_given() {
    let engine = engine();
    let check = |parts: &Parts, grants: &Grants, expected: Expect| {
        let policy = load(&engine, wasi_guest(parts, "(call $allow)"), grants);
        let listed: String = policy
            .facts()
            .requests
            .iter()
            .map(|request| format!("{}: {}\n", request.import, request.given))
            .collect();
        expected.assert_eq(&listed);
        let imports: Vec<_> = policy
            .facts()
            .requests
            .iter()
            .map(|request| &request.import)
            .collect();
        assert_eq!(policy.facts().imports.iter().collect::<Vec<_>>(), imports);
    };
    let all = Grants {
        clock: true,
        random: true,
        env: variables(&[("A", "b")]),
        log: true,
    };
    check(
        &Parts::timer(),
        &Grants::default(),
        expect![[r#"
        wasi:io/poll@0.2.0: needs no grant
        wasi:clocks/monotonic-clock@0.2.0: stands still without `clock`
    "#]],
    );
    check(
        &Parts::timer(),
        &all,
        expect![[r#"
        wasi:io/poll@0.2.0: needs no grant
        wasi:clocks/monotonic-clock@0.2.0: granted by `clock`
    "#]],
    );
    check(
        &Parts::output("stdout"),
        &Grants::default(),
        expect![[r#"
        wasi:io/error@0.2.0: needs no grant
        wasi:io/streams@0.2.0: needs no grant
        wasi:cli/stdout@0.2.0: thrown away without `log`
    "#]],
    );
    check(
        &Parts::environment(),
        &all,
        expect![[r#"
        wasi:cli/environment@0.2.0: granted by `env`
    "#]],
    );
    check(
        &Parts::files(),
        &all,
        expect![[r#"
        wasi:filesystem/types@0.2.0: empty
        wasi:filesystem/preopens@0.2.0: empty
    "#]],
    );
}

/// Denies with what a guest can see: the bits of a NaN, random numbers and time, where its
/// parameters lie, and the host's clock reading.
#[tokio::test]
async fn the_same_inputs_give_the_same_outcome() {
    /// Denies with this value, where the parameters lie, and the clock reading.
    fn body(value: &str) -> String {
        format!(
            "(i64.store (i32.const 512) (i64.or (i64.const 0x4040404040404040)
                (i64.and (i64.const 0x3f3f3f3f3f3f3f3f) {value})))
            (i64.store (i32.const 520) (i64.or (i64.const 0x4040404040404040)
                (i64.and (i64.const 0x3f3f3f3f3f3f3f3f) (i64.extend_i32_u (local.get $in)))))
            (i64.store (i32.const 528) (i64.or (i64.const 0x4040404040404040)
                (i64.and (i64.const 0x3f3f3f3f3f3f3f3f)
                    (i64.reinterpret_f64 (f64.load offset=104 (local.get $in))))))
            (call $deny (i32.const 512) (i32.const 24))"
        )
    }
    let (random, timer) = (Parts::random(), Parts::timer());
    let nan = body("(i64.reinterpret_f64 (f64.div (f64.const 0) (f64.const 0)))");
    let number = body("(i64.xor (call $random) (i64.rotl (call $random) (i64.const 7)))");
    let time = body("(call $now)");
    let guests = [
        Guest {
            authorize: &nan,
            ..Guest::default()
        },
        wasi_guest(&random, &number),
        wasi_guest(&timer, &time),
    ];
    for (at, guest) in guests.into_iter().enumerate() {
        let mut first = Vec::new();
        for configure in ["", "(call $allow)"] {
            let guest = Guest { configure, ..guest };
            // Another engine and another load, as in another process; several calls of each.
            let mut outcomes = Vec::new();
            for engine in [engine(), engine()] {
                let policy = load(&engine, guest, &Grants::default());
                for _ in 0..20 {
                    outcomes.push(decide(&policy).await);
                }
            }
            assert!(matches!(outcomes[0], Ok(Decision::Deny(_))), "{:?}", outcomes[0]);
            let same = outcomes.iter().all(|outcome| *outcome == outcomes[0]);
            assert!(same, "guest {at}: {outcomes:?}");
            first.push(outcomes.swap_remove(0));
        }
        // The clock reading is an input, and it is told.
        let policy = load(&engine(), guest, &Grants::default());
        let mut later = call("x");
        later.context.now_unix_ms += 1;
        let later = policy.decide(&later).await.0.map_err(|(fault, _)| fault);
        assert_ne!(first[0], later, "guest {at}");
    }
}
