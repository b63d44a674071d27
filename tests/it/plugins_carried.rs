//! The carried policies, as the host runs them. What their rules say is tested beside their sources.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use gatewright::decision::{Decision, Mode, Seam};
use gatewright::policy::builtin::{NAMES, builtin};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Grants, Limits, PolicySettings, Source};
use gatewright::policy::load::{LoadError, Policy};
use gatewright::seam::{Call, Context};

fn load(engine: &Arc<Engine>, name: &str, config: &str) -> Result<Policy, LoadError> {
    Policy::load(
        engine,
        PolicySettings {
            name: format!("builtin:{name}"),
            source: Source::Bytes {
                name: name.to_owned(),
                bytes: Cow::Borrowed(builtin(name).unwrap()),
            },
            config_json: config.to_owned(),
            mode: Mode::Enforce,
            // Real time: a busy machine must not fail a test that is not about time.
            limits: Limits {
                deadline: Duration::from_secs(1),
                ..Limits::default()
            },
            grants: Grants::default(),
        },
    )
}

fn call<'a>(name: &'a str, args_json: &'a str, claims_json: &'a str) -> Call<'a> {
    Call {
        seam: Seam::Tools,
        name,
        args_json,
        context: Context {
            server: "files",
            session: "s1",
            transport: "http",
            protocol_version: "2025-11-25",
            client_json: "{}",
            principal: Some("ada"),
            claims_json,
            tool_json: "",
            extra_json: "{}",
            now_unix_ms: 1_800_000_000_000,
        },
    }
}

#[tokio::test(start_paused = true)]
async fn each_decides_in_its_sandbox() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    let check = async |policy: &Policy, call: Call<'_>, expected: Decision| {
        assert_eq!(Ok(expected), policy.decide(&call).await.0, "{}", call.name);
    };
    let deny = |reason: &str| Decision::Deny(reason.to_owned());

    let open = load(&engine, "allow-all", "").unwrap();
    check(&open, call("anything", "{}", "{}"), Decision::Allow).await;
    let closed = load(&engine, "deny-all", "").unwrap();
    check(
        &closed,
        call("anything", "{}", "{}"),
        deny("everything is denied here"),
    )
    .await;

    let config =
        r#"{"allow":["read_*"],"ask":["write_file"],"prompt":"Süß?","scopes":{"admin":{"allow":["rm"]}}}"#;
    let listed = load(&engine, "allowlist", config).unwrap();
    check(&listed, call("read_file", "{}", "{}"), Decision::Allow).await;
    check(
        &listed,
        call("write_file", "{}", "{}"),
        Decision::Ask("Süß?".to_owned()),
    )
    .await;
    check(&listed, call("rm", "{}", "{}"), deny("`rm` is not on the list")).await;
    check(&listed, call("rm", "{}", r#"{"scope":"admin"}"#), Decision::Allow).await;

    let config = r#"{"roots":["/srv/share"],"tools":{"read_file":{"arguments":["path"]}}}"#;
    let paths = load(&engine, "paths", config).unwrap();
    check(
        &paths,
        call("read_file", r#"{"path":"/srv/share/a"}"#, "{}"),
        Decision::Allow,
    )
    .await;
    let outside = deny("the path in `path` is not under an allowed folder");
    check(
        &paths,
        call("read_file", r#"{"path":"/etc/passwd"}"#, "{}"),
        outside,
    )
    .await;
    let parent = deny("the path in `path` has a segment of dots, which may be a parent folder");
    check(
        &paths,
        call("read_file", r#"{"path":"/srv/share/%2e%2e/etc"}"#, "{}"),
        parent,
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_bad_configuration_keeps_a_policy_out() {
    #[track_caller]
    fn check(engine: &Arc<Engine>, name: &str, config: &str, reason: &str) {
        let error = load(engine, name, config).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    check(
        &engine,
        "allowlist",
        "",
        "no list has an entry; give at least one",
    );
    check(&engine, "allowlist", r#"{"alow":[]}"#, "`alow` is unknown");
    check(&engine, "paths", "{}", "`roots` is missing or empty");
}

#[tokio::test(start_paused = true)]
async fn none_imports_anything() {
    let engine = Engine::new(&EngineSettings::default()).unwrap();
    for name in NAMES {
        let config = match *name {
            "allowlist" => r#"{"allow":["*"]}"#,
            "paths" => r#"{"roots":["/"],"tools":{"x":{}}}"#,
            _ => "",
        };
        let policy = load(&engine, name, config).unwrap();
        assert!(
            policy.facts().imports.is_empty(),
            "{name}: {:?}",
            policy.facts().imports
        );
    }
}
