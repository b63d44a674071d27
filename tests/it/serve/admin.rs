//! The admin address: what is counted, and what is in force.

use serde_json::{Value, json};

use super::endpoint;
use crate::support::policies::{Does, wat_policy};
use crate::support::serving::{Serving, gatewright};

/// A policy file guards the tools.
fn start(does: Does<'_>) -> Serving {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.wat"), wat_policy(does)).unwrap();
    let configuration = format!(
        "[[tools]]\npolicy = 'p.wat'\ndeadline-ms = 5000\n[[reads]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 5000\n\
         [audit]\nto = 'audit.jsonl'\n[listen]\naddress = '127.0.0.1:0'\n[admin]\naddress = '127.0.0.1:0'\n{}",
        endpoint("a")
    );
    Serving::start_in(folder, &configuration)
}

/// The value of a series; none when it is not there.
fn value(metrics: &str, series: &str) -> Option<f64> {
    let mut found = metrics.lines().filter_map(|line| {
        let (name, value) = line.rsplit_once(' ')?;
        (name == series).then(|| value.parse().unwrap())
    });
    let value = found.next();
    assert_eq!(None, found.next(), "{series} stands twice in {metrics}");
    value
}

#[test]
fn counts_what_is_decided() {
    let gate = start(Does::AllowOnly(&["a", "b"]));
    let client = gate.client(0).open();
    for name in ["a", "b", "secret-name"] {
        let _answer = client.call(name);
    }
    let listed = client.post(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    assert_eq!(200, listed.status);
    let response = gate.admin("/metrics");
    let kind = response.header("content-type").unwrap();
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    // A client does not wait for the record of how its call ended.
    let forwarded = r#"gatewright_forwarded_total{outcome="ok"}"#;
    let metrics = (0..1000)
        .map(|_| gate.admin_text("/metrics"))
        .find(|metrics| value(metrics, forwarded) == Some(3.0))
        .expect("three requests were forwarded");
    for (series, expected) in [
        (
            r#"gatewright_verdicts_total{server="a",seam="tools",decision="allow",code=""}"#,
            Some(2.0),
        ),
        (
            r#"gatewright_verdicts_total{server="a",seam="tools",decision="deny",code="denied"}"#,
            Some(1.0),
        ),
        (
            r#"gatewright_verdicts_total{server="a",seam="reads",decision="allow",code=""}"#,
            Some(1.0),
        ),
        (
            r#"gatewright_judgement_seconds_count{seam="tools",policy="p.wat"}"#,
            Some(3.0),
        ),
        (r#"gatewright_sessions{endpoint="/a"}"#, Some(1.0)),
        ("gatewright_audit_failures_total", Some(0.0)),
        (
            r#"gatewright_policy_stale{seam="tools",policy="p.wat"}"#,
            Some(0.0),
        ),
    ] {
        assert_eq!(expected, value(&metrics, series), "{series} in {metrics}");
    }
    assert!(
        !metrics.contains("secret-name"),
        "no label is what a client says: {metrics}"
    );
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    gate.end();
}

#[test]
fn counts_policies_that_come_and_do_not() {
    let gate = start(Does::Allow);
    let client = gate.client(0).open();
    let counts = || {
        let metrics = gate.admin_text("/metrics");
        let of = |result: &str| {
            value(
                &metrics,
                &format!(
                    r#"gatewright_policy_reloads_total{{seam="tools",policy="p.wat",result="{result}"}}"#
                ),
            )
        };
        let stale = value(
            &metrics,
            r#"gatewright_policy_stale{seam="tools",policy="p.wat"}"#,
        );
        [of("ok"), of("failed"), stale].map(Option::unwrap)
    };
    let is_error = || client.call("a")["result"]["isError"] == true;
    assert!(!is_error());
    assert_eq!([0.0, 0.0, 0.0], counts());
    gate.put("p.wat", wat_policy(Does::Deny("no")).as_bytes());
    let _line = gate.logged("policy replaced");
    assert!(is_error());
    assert_eq!([1.0, 0.0, 0.0], counts());
    gate.put("p.wat", b"(component");
    let _line = gate.logged("is not put in force");
    assert!(is_error(), "the last good one stays");
    assert_eq!([1.0, 1.0, 1.0], counts());
    let status: Value = serde_json::from_str(&gate.admin_text("/status")).unwrap();
    assert!(status["policies"][0]["failure"]["reason"].is_string(), "{status}");
    gate.put("p.wat", wat_policy(Does::Allow).as_bytes());
    let _line = gate.logged("policy replaced");
    assert!(!is_error());
    assert_eq!([2.0, 1.0, 0.0], counts());
    gate.end();
}

#[test]
fn shows_the_same_as_the_command() {
    let gate = start(Does::Allow);
    let shown: Value = serde_json::from_str(&gate.admin_text("/status")).unwrap();
    let output = gatewright(&gate.path(""))
        .args(["status", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told, shown);
    assert_eq!(
        (json!("a"), json!("p.wat")),
        (shown["server"].clone(), shown["policies"][0]["policy"].clone())
    );
    gate.end();
}

#[test]
fn is_for_nobody_else() {
    let gate = start(Does::Allow);
    for path in ["/healthz", "/readyz", "/metrics", "/status"] {
        assert_eq!(200, gate.admin(path).status, "{path}");
        let foreign = gate.admin_as(path, "evil.example.com").unwrap();
        assert_eq!(403, foreign.status, "{path}");
        assert!(
            String::from_utf8_lossy(&foreign.body).contains("`Host`"),
            "{foreign:?}"
        );
        let mut client = gate.client(0);
        path.clone_into(&mut client.path);
        assert_eq!(
            404,
            client.initialize().unwrap().status,
            "clients do not see {path}"
        );
    }
    assert_eq!(404, gate.admin("/a").status, "and are not served here");
    gate.end();
}
