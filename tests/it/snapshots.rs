//! Policies with a configuration: an image taken once decides as the policy does that is configured
//! at each call.

use std::sync::Arc;
use std::time::Duration;

use gatewright::decision::{Decision, Fault};
use gatewright::policy::builtin::builtin;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Grants, PolicySettings};
use gatewright::policy::load::{Configured, LoadError, Policy};

use crate::policies::call;
use crate::support::policies::{Guest, data_at, settings};
use crate::support::wasi::{Parts, wasi_guest};

/// A function that is never called and that no snapshot can be taken with.
const OBSTACLE: &str = "(table $never 1 funcref)
    (func (table.fill $never (i32.const 0) (ref.null func) (i32.const 1)))";

fn engine() -> Arc<Engine> {
    Engine::new(&EngineSettings::default()).unwrap()
}

fn load(engine: &Arc<Engine>, guest: Guest<'_>, config: &str, grants: Grants) -> Result<Policy, LoadError> {
    let settings = settings("configured", guest.component());
    Policy::load(
        engine,
        PolicySettings {
            config_json: config.to_owned(),
            grants,
            ..settings
        },
    )
}

/// The same guest twice: one that starts from an image, one that is configured at each call.
#[track_caller]
fn both(engine: &Arc<Engine>, guest: Guest<'_>, config: &str, grants: &Grants) -> [Policy; 2] {
    let image = load(engine, guest, config, grants.clone()).unwrap();
    assert_eq!(Configured::Snapshot, image.facts().configured);
    let items = format!("{}{OBSTACLE}", guest.items);
    let each = Guest {
        items: &items,
        ..guest
    };
    let each = load(engine, each, config, grants.clone()).unwrap();
    let configured = &each.facts().configured;
    assert!(
        matches!(configured, Configured::EachCall { reason } if reason.contains("table.fill")),
        "{configured}"
    );
    [image, each]
}

async fn decide(policy: &Policy, name: &str) -> Result<Decision, Fault> {
    policy.decide(&call(name)).await.0.map_err(|(fault, _)| fault)
}

/// Denies with eight bytes: the value of this expression.
fn tells(expression: &str) -> String {
    format!(
        "(i64.store (i32.const 512) (i64.or (i64.const 0x4040404040404040)
            (i64.and (i64.const 0x3f3f3f3f3f3f3f3f) {expression})))
        (call $deny (i32.const 512) (i32.const 8))"
    )
}

/// With several configurations and names, an image decides as the policy that is configured at each
/// call.
async fn check_alike(label: &str, guest: Guest<'_>) {
    let engine = engine();
    for config in ["", r#"{"root":"/srv/ü"}"#, r#"["a","b","c"]"#] {
        let policies = both(&engine, guest, config, &Grants::default());
        let mut seen = Vec::new();
        for policy in &policies {
            for name in ["x", "", "a rather long name of a tool", "x"] {
                seen.push(decide(policy, name).await);
            }
        }
        let (image, each) = seen.split_at(4);
        assert_eq!(image, each, "{label} with `{config}`");
        // A second call of the same name knows nothing of the first.
        assert_eq!(image[0], image[3], "{label} with `{config}`");
    }
}

#[tokio::test]
async fn images_keep_globals() {
    let keeps = "(global.set $ptr (local.get $ptr)) (global.set $len (local.get $len)) (call $allow)";
    let globals = "(global $ptr (mut i32) (i32.const 0)) (global $len (mut i32) (i32.const 0))";
    check_alike(
        "keeps the text",
        Guest {
            items: globals,
            configure: keeps,
            authorize: "(call $deny (global.get $ptr) (global.get $len))",
            ..Guest::default()
        },
    )
    .await;

    let wide = tells(
        "(i64.add (global.get $a) (i64.add (i64.reinterpret_f64 (global.get $c)) (i64.extend_i32_u (i32.reinterpret_f32 (global.get $b)))))",
    );
    check_alike(
        "keeps numbers of every type",
        Guest {
            items: "(global $a (mut i64) (i64.const 1)) (global $b (mut f32) (f32.const 1)) (global $c (mut f64) (f64.const 1))",
            configure: "(global.set $a (i64.mul (i64.const 0x0102030405060708) (i64.extend_i32_u (local.get $len))))
                (global.set $b (f32.convert_i32_u (local.get $len)))
                (global.set $c (f64.reinterpret_i64 (i64.const -1)))
                (call $allow)",
            authorize: &wide,
            ..Guest::default()
        },
    )
    .await;

    let calls = tells("(i64.extend_i32_u (global.get $calls))");
    let calls = format!("(global.set $calls (i32.add (global.get $calls) (i32.const 1))) {calls}");
    check_alike(
        "counts its calls",
        Guest {
            items: "(global $calls (mut i32) (i32.const 0))",
            configure: "(global.set $calls (local.get $len)) (call $allow)",
            authorize: &calls,
            ..Guest::default()
        },
    )
    .await;
}

#[tokio::test]
async fn images_keep_memories() {
    // The size of the memory, what lies at the end of it, and the length of this call's name.
    let grown = tells(
        "(i64.add (i64.shl (i64.extend_i32_u (memory.size)) (i64.const 32))
            (i64.add (i64.extend_i32_u (i32.load offset=4 (local.get $in)))
                     (i64.load (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 8)))))",
    );
    check_alike(
        "grows its memory",
        Guest {
            configure: "(drop (memory.grow (i32.const 40)))
                (i64.store (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 8)) (i64.const 77))
                (call $allow)",
            authorize: &grown,
            ..Guest::default()
        },
    )
    .await;

    let counts = tells(
        "(i64.extend_i32_u (i32.add (global.get $starts) (i32.mul (i32.const 256) (i32.load (i32.const 600)))))",
    );
    let data = format!(
        "(global $starts (mut i32) (i32.const 0)) (start $start)
        (func $start (global.set $starts (i32.add (global.get $starts) (i32.const 1)))){}",
        data_at(600, b"\x05\0\0\0")
    );
    check_alike(
        "starts once, and overwrites its data",
        Guest {
            items: &data,
            configure: "(i32.store (i32.const 600) (i32.add (local.get $len) (i32.load (i32.const 600)))) (call $allow)",
            authorize: &counts,
            ..Guest::default()
        },
    )
    .await;

    check_alike(
        "fails on short names",
        Guest {
            configure: "(i32.store (i32.const 600) (local.get $len)) (call $allow)",
            authorize: "(if (i32.lt_u (i32.load offset=4 (local.get $in)) (i32.load (i32.const 600))) (then unreachable)) (call $allow)",
            ..Guest::default()
        },
    )
    .await;
}

/// What `configure` takes its time for is spent when the policy is loaded, and in no judgement.
#[tokio::test]
async fn an_image_is_configured_once() {
    let engine = engine();
    // At one turn for each cycle of a processor this is longer than the deadline.
    let work = "(loop $more
            (local.set $len (i32.add (local.get $len) (i32.const 1)))
            (br_if $more (i32.lt_u (local.get $len) (i32.const 1000000000))))
        (call $allow)";
    let decides = async |items: &str| {
        let guest = Guest {
            items,
            configure: work,
            ..Guest::default()
        };
        let mut settings = settings("busy", guest.component());
        settings.limits.deadline = Duration::from_millis(100);
        settings.limits.configure_deadline = Duration::from_secs(60);
        let policy = Policy::load(&engine, settings).unwrap();
        decide(&policy, "x").await
    };
    assert_eq!(Ok(Decision::Allow), decides("").await);
    assert_eq!(Err(Fault::Timeout), decides(OBSTACLE).await);
}

/// A handle of WASI lives as long as one instance, so whoever keeps one is configured at each call.
#[tokio::test]
async fn handles_are_an_obstacle() {
    let engine = engine();
    let parts = Parts::output("stdout");
    let guest = Guest {
        items: r#"(data (i32.const 1024) "configured") (global $out (mut i32) (i32.const 0))"#,
        configure: "(global.set $out (call $get_out)) (call $allow)",
        ..wasi_guest(
            &parts,
            "(call $write (global.get $out) (i32.const 1024) (i32.const 10) (i32.const 64)) (call $allow)",
        )
    };
    let policy = load(&engine, guest, "", Grants::default()).unwrap();
    let configured = &policy.facts().configured;
    assert!(
        matches!(configured, Configured::EachCall { reason } if reason.contains("WASI")),
        "{configured}"
    );
    assert_eq!(Ok(Decision::Allow), decide(&policy, "x").await);
}

/// While it is configured, a policy has no grants, whichever way it is configured.
#[tokio::test]
async fn nothing_is_granted_to_configure() {
    let engine = engine();
    let parts = Parts::random();
    // Allows when the random number of this judgement is the one of `configure`.
    let guest = Guest {
        items: "(global $kept (mut i64) (i64.const 0))",
        configure: "(global.set $kept (call $random)) (call $allow)",
        ..wasi_guest(
            &parts,
            "(if (i64.eq (global.get $kept) (call $random)) (then (return (call $allow))))
            (call $deny (i32.const 1024) (i32.const 0))",
        )
    };
    for policy in both(&engine, guest, "", &Grants::default()) {
        assert_eq!(Ok(Decision::Allow), decide(&policy, "x").await);
    }
    let random = Grants {
        random: true,
        ..Grants::default()
    };
    for policy in both(&engine, guest, "", &random) {
        assert_eq!(Ok(Decision::Deny(String::new())), decide(&policy, "x").await);
    }
    // The random number of `configure` is not random: every load keeps the same one.
    let tells = tells("(global.get $kept)");
    let guest = Guest {
        authorize: &tells,
        ..guest
    };
    let [image, each] = both(&engine, guest, "", &random);
    assert_eq!(decide(&image, "x").await, decide(&each, "x").await);
}

/// What no image can be taken of is configured at each call, and says why.
#[tokio::test]
async fn obstacles() {
    let engine = engine();
    let check = async |guest: Guest<'_>, expected: &str| {
        let guest = Guest {
            configure: "(i32.store (i32.const 600) (i32.const 1)) (call $allow)",
            authorize: "(if (i32.eqz (i32.load (i32.const 600))) (then unreachable)) (call $allow)",
            ..guest
        };
        let policy = load(&engine, guest, "", Grants::default()).unwrap();
        let configured = &policy.facts().configured;
        assert!(
            matches!(configured, Configured::EachCall { reason } if reason.contains(expected)),
            "{expected}: {configured}"
        );
        assert_eq!(Ok(Decision::Allow), decide(&policy, "x").await, "{expected}");
    };
    check(
        Guest {
            items: OBSTACLE,
            ..Guest::default()
        },
        "table.fill",
    )
    .await;
    check(
        Guest {
            items: "(global (mut v128) (v128.const i64x2 1 2))",
            ..Guest::default()
        },
        "v128",
    )
    .await;
    check(
        Guest {
            memory: r#"(memory (export "memory") 2 2)"#,
            ..Guest::default()
        },
        "unreachable",
    )
    .await;
    let silent = "(core module $silent (memory 1)) (core instance (instantiate $silent))";
    check(
        Guest {
            before: silent,
            ..Guest::default()
        },
        "exports nothing",
    )
    .await;
    let twice = r#"(core module $twice (global (export "g") i32 (i32.const 1)))
        (core instance (instantiate $twice)) (core instance (instantiate $twice))"#;
    check(
        Guest {
            before: twice,
            ..Guest::default()
        },
        "at most once",
    )
    .await;
    let resource = "(type $r (resource (rep i32))) (core func (canon resource.new $r))";
    check(
        Guest {
            before: resource,
            ..Guest::default()
        },
        "handles",
    )
    .await;
}

/// The limit on memory counts what the image holds, and reading an image needs none of it.
#[tokio::test]
async fn an_image_may_fill_its_memory() {
    let engine = engine();
    let pages = |pages: usize| {
        let grow = format!("(drop (memory.grow (i32.const {}))) (call $allow)", pages - 2);
        let guest = Guest {
            configure: &grow,
            ..Guest::default()
        };
        let mut settings = settings("large", guest.component());
        settings.limits.memory_bytes_max = 16 * 65536;
        Policy::load(&engine, settings)
    };
    let full = pages(16).unwrap();
    assert_eq!(Configured::Snapshot, full.facts().configured);
    assert_eq!(16 * 65536, full.facts().memory_bytes);
    assert_eq!(Ok(Decision::Allow), decide(&full, "x").await);
    let error = pages(17).unwrap_err();
    assert!(matches!(error, LoadError::Limit { .. }), "{error}");
}

#[test]
fn the_carried_policies_are_images() {
    let engine = engine();
    for (name, config) in [
        ("allowlist", r#"{"allow":["*"]}"#),
        ("paths", r#"{"roots":["/"],"tools":{"x":{}}}"#),
    ] {
        let settings = PolicySettings {
            config_json: config.to_owned(),
            ..settings(name, builtin(name).unwrap())
        };
        let policy = Policy::load(&engine, settings).unwrap();
        assert_eq!(Configured::Snapshot, policy.facts().configured, "{name}");
    }
}
