//! Policies that say what lists show: what they are told, and what happens when they fail.

use std::borrow::Cow;

use gatewright::decision::{Fault, Kind, Mode};
use gatewright::policy::chain::Chain;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::PolicySettings;
use gatewright::policy::load::{Configured, LoadError, Policy};
use gatewright::seam::{Authorizer as _, Context, Entry, Listing};

use crate::policies::call;
use crate::support::policies::{Guest, data_at, hiding, settings};

/// Where texts of the guests below lie.
const AT: usize = 1024;

fn load(settings: PolicySettings) -> Result<Policy, LoadError> {
    Policy::load(&Engine::new(&EngineSettings::default()).unwrap(), settings)
}

fn visible(body: &str) -> String {
    Guest {
        visible: body,
        ..Guest::default()
    }
    .component()
}

async fn shown(policy: Policy, kind: Kind, names: &[&str], context: Context<'_>) -> Result<Vec<bool>, Fault> {
    let entries: Vec<Entry<'_>> = names
        .iter()
        .map(|name| Entry {
            name,
            json: r#"{"a": 1.10}"#,
        })
        .collect();
    let listing = Listing {
        kind,
        entries: &entries,
        context,
    };
    Chain::new(vec![policy]).show(&listing).await
}

#[tokio::test]
async fn names_are_hidden_in_every_list() {
    for kind in [Kind::Tool, Kind::Resource, Kind::Template, Kind::Prompt] {
        let policy = load(settings("hides", hiding(&["b", "d"]))).unwrap();
        assert!(policy.facts().visibility);
        let shown = shown(policy, kind, &["a", "b", "c", "d", "b"], call("").context).await;
        assert_eq!(Ok(vec![true, false, true, false, false]), shown, "{kind:?}");
    }
}

/// The whole text is the contract: a guest shows an entry exactly when it is told this.
#[tokio::test]
async fn a_policy_is_told_who_asks_and_what_is_listed() {
    let told = async |kind: Kind, context: Context<'_>, expected: &str| {
        let len = expected.len();
        let guest = Guest {
            items: &data_at(AT, expected.as_bytes()),
            visible: &format!(
                "(call $is (local.get $ctx) (local.get $ctx_len) (i32.const {AT}) (i32.const {len}))"
            ),
            ..Guest::default()
        };
        let policy = load(settings("reads", guest.component())).unwrap();
        assert_eq!(
            Ok(vec![true]),
            shown(policy, kind, &["a"], context).await,
            "{expected}"
        );
    };
    let least = Context {
        client_json: "",
        ..call("").context
    };
    told(
        Kind::Tool,
        least,
        r#"{"now-unix-ms":1800000000000,"seam":"tools","server":"notes","session":"s1","transport":"stdio","protocol-version":"2025-11-25","claims-json":{},"entry-json":{"a": 1.10}}"#,
    )
    .await;
    let most = Context {
        server: "a \"server\"\n",
        principal: Some("ada"),
        client_json: r#"{"name":"c"}"#,
        claims_json: r#"{"scope":"x"}"#,
        ..call("").context
    };
    told(
        Kind::Prompt,
        most,
        r#"{"now-unix-ms":1800000000000,"seam":"reads","server":"a \"server\"\n","session":"s1","transport":"stdio","protocol-version":"2025-11-25","principal":"ada","client-json":{"name":"c"},"claims-json":{"scope":"x"},"entry-json":{"a": 1.10}}"#,
    )
    .await;
}

#[tokio::test]
async fn a_failure_shows_nothing() {
    let check = async |visible: &str, expected: Fault| {
        let guest = Guest {
            visible,
            ..Guest::default()
        };
        let policy = load(PolicySettings {
            limits: gatewright::policy::limits::Limits {
                deadline: std::time::Duration::from_millis(300),
                ..settings("", "").limits
            },
            ..settings("fails", guest.component())
        });
        let shown = shown(policy.unwrap(), Kind::Tool, &["a", "b"], call("").context).await;
        assert_eq!(Err(expected), shown, "{visible}");
    };
    check("unreachable", Fault::Trap).await;
    check("(loop $again (br $again)) unreachable", Fault::Timeout).await;
    check(
        "(drop (memory.grow (i32.const 60000))) (i32.const 1)",
        Fault::Memory,
    )
    .await;
}

/// What one entry leaves in memory is not there for the next.
#[tokio::test]
async fn each_entry_has_a_fresh_instance() {
    let guest = Guest {
        items: "(global $seen (mut i32) (i32.const 0))",
        visible: "(global.get $seen) (global.set $seen (i32.const 1))",
        ..Guest::default()
    };
    let policy = load(settings("remembers", guest.component())).unwrap();
    let shown = shown(policy, Kind::Tool, &["a", "b", "c"], call("").context).await;
    assert_eq!(Ok(vec![false; 3]), shown);
}

/// An image of a configured policy hides what its configuration says.
#[tokio::test]
async fn a_configured_policy_hides() {
    let guest = Guest {
        items: "(global $hidden (mut i32) (i32.const 0))",
        configure: "(global.set $hidden (i32.load8_u (local.get $ptr))) (call $answer (i32.const 0) (i32.const 0) (i32.const 0))",
        visible: "(i32.ne (i32.load8_u (local.get $name)) (global.get $hidden))",
        ..Guest::default()
    };
    let policy = load(PolicySettings {
        config_json: "{}".to_owned(),
        ..settings("configured", guest.component())
    });
    let policy = policy.unwrap();
    assert_eq!(Configured::Snapshot, policy.facts().configured);
    let shown = shown(policy, Kind::Tool, &["a", "{"], call("").context).await;
    assert_eq!(Ok(vec![true, false]), shown);
}

#[tokio::test]
async fn one_that_observes_hides_nothing() {
    let policy = load(PolicySettings {
        mode: Mode::Observe,
        ..settings("observes", visible("unreachable"))
    });
    let shown = shown(policy.unwrap(), Kind::Tool, &["a"], call("").context).await;
    assert_eq!(Ok(vec![true]), shown);
}

#[test]
fn another_type_is_refused_when_it_is_loaded() {
    #[track_caller]
    fn check(wrong: (&str, &str), expected: &str) {
        let component: Cow<'_, str> = visible("(i32.const 1)").replace(wrong.0, wrong.1).into();
        let error = load(settings("odd", component.as_bytes()))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("gatewright:policy/visibility@1.0") && error.contains(expected),
            "{error}"
        );
    }
    check(("(result bool)", "(result u8)"), "expected `bool` found `u8`");
    check((r#"(export "visible" (func $visible))"#, ""), "it is missing");
}
