//! What an upstream asks the client for: marked as its own, or refused and not declared (ruling R49).

use std::sync::Arc;

use gatewright::gate::server_requests::{ElicitationRule, ServerRequests};
use gatewright::host::Settings;
use gatewright::seam::{Guard, Guards};
use serde_json::{Value, json};

use crate::support::chains::one;
use crate::support::harness::Harness;
use crate::support::policies::Does;

const REFUSING: ServerRequests = ServerRequests {
    elicitation: ElicitationRule::Refuse,
    refuse_sampling: true,
    refuse_roots: true,
};

async fn session(era: &str, server_requests: ServerRequests, tools: Does<'_>) -> Harness {
    let guards = Guards {
        tools: Guard::Chain(Arc::new(one(tools))),
        reads: Guard::Unset,
    };
    let settings = Settings {
        server: "notes".to_owned(),
        server_requests,
        ..Settings::default()
    };
    let mut harness = Harness::start(guards, settings, era == "2026", None);
    harness.open(era, "2025-11-25", &capabilities()).await;
    harness
}

fn capabilities() -> Value {
    json!({"elicitation": {"form": {}}, "sampling": {}, "roots": {}, "experimental": {"x": {}}})
}

/// A `tools/call` of 2026-07-28.
fn call() -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a", "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": capabilities()
    }}})
    .to_string()
}

const QUESTION: &str = r#"{"method":"elicitation/create","params":{"mode":"form","message":"Your na\u006de?","requestedSchema":{"type":"object","properties":{}}}}"#;

#[tokio::test(start_paused = true)]
async fn a_question_of_the_upstream_says_that_it_is_one() {
    let marked = QUESTION.replace("Your", r"The server notes asks:\n\nYour");
    for (rule, expected) in [
        (ElicitationRule::Mark, marked.as_str()),
        (ElicitationRule::Pass, QUESTION),
    ] {
        let rules = ServerRequests {
            elicitation: rule,
            ..ServerRequests::default()
        };
        let mut harness = session("2025", rules, Does::Allow).await;
        let request = QUESTION.replacen('{', r#"{"jsonrpc":"2.0","id":"q",  "#, 1);
        harness.upstream.say(&request).await;
        harness.settle().await;
        let (_, raw) = harness
            .take_raw(|message, _| message["method"] == "elicitation/create")
            .unwrap();
        assert!(raw.contains(&expected[1..]), "{rule:?}: {raw}");

        let mut harness = session("2026", rules, Does::Allow).await;
        harness.send(&call()).await;
        harness
            .upstream
            .release_with(&format!(
                r#"{{"resultType":"input_required","inputRequests":{{"n":{QUESTION},"r":{{"method":"roots/list"}}}},"requestState":"s"}}"#
            ))
            .await;
        harness.settle().await;
        let (_, raw) = harness.take_raw(|message, _| message["id"] == 1).unwrap();
        let both = format!(r#"{{"n":{expected},"r":{{"method":"roots/list"}}}}"#);
        assert!(raw.contains(&both), "{rule:?}: {raw}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_neither_declared_nor_relayed() {
    let mut harness = session("2025", REFUSING, Does::Allow).await;
    let tape = harness.upstream.tape();
    assert_eq!(
        Some(r#"{"experimental":{"x":{}}}"#),
        tape[0].param("capabilities").as_deref()
    );
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": {}});
        harness.upstream.say(&request.to_string()).await;
        harness.settle().await;
        let tape = harness.upstream.tape();
        let answer = &tape.last().unwrap().message;
        assert_eq!(
            (&json!(method), &json!(-32601)),
            (&answer["id"], &answer["error"]["code"])
        );
    }
    harness
        .upstream
        .say(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)
        .await;
    harness.settle().await;
    let heard: Vec<_> = harness
        .untaken()
        .iter()
        .map(|message| &message["method"])
        .collect();
    assert_eq!(vec![&json!("ping")], heard);
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_is_no_input_in_2026() {
    for request in [
        QUESTION,
        r#"{"method":"roots/list"}"#,
        r#"{"method":"sampling/createMessage","params":{}}"#,
    ] {
        let mut harness = session("2026", REFUSING, Does::Allow).await;
        harness.send(&call()).await;
        let forwarded = harness.upstream.calls().remove(0).message;
        assert_eq!(
            json!({"experimental": {"x": {}}}),
            forwarded["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        );
        harness
            .upstream
            .release_with(&format!(
                r#"{{"resultType":"input_required","inputRequests":{{"n":{request}}}}}"#
            ))
            .await;
        harness.settle().await;
        let answer = harness.take(|message| message["id"] == 1).unwrap();
        assert_eq!("upstream_garbage", answer["error"]["data"]["code"], "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_gate_asks_although_the_upstream_may_not() {
    let mut harness = session("2025", REFUSING, Does::Ask("sure?")).await;
    harness
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}"#)
        .await;
    let asked = harness
        .take(|message| message["method"] == "elicitation/create")
        .unwrap();
    let text = asked["params"]["message"].as_str().unwrap();
    assert!(text.starts_with("Gatewright asks"), "{text}");
    assert_eq!(0, harness.upstream.calls().len());
}
