//! Official servers behind `wrap` and `serve`, driven by the official clients; and, because those servers speak the
//! 2025 revisions only, a server on the official Python package that speaks 2026-07-28 as well.
//!
//! What a call did is read off the disk: a refused one left nothing there.

mod peers;
mod place;

use std::fs;

use serde_json::{Value, json};

use peers::Client::{Python, Rust, TypeScript, TypeScript2};
use peers::Over::{Http, Stdio};
use peers::Server::{Everything, Files, Filesystem};
use peers::{LATEST_OF_2025, Peers, STATELESS};
use place::Place;

pub(crate) use peers::{installed, top};

#[track_caller]
fn assert_refused(outcome: &Value, code: &str) {
    assert_eq!(json!(true), outcome["is_error"], "{outcome}");
    let refusal = &outcome["refusal"];
    assert_eq!(json!(code), refusal["code"], "{outcome}");
    assert_eq!(json!("authorization_required"), refusal["error"]);
    let text: Value = serde_json::from_str(outcome["text"].as_str().unwrap()).unwrap();
    assert_eq!(refusal, &text, "the text says the same");
}

fn lists_reads_and_writes(peers: Peers) {
    let place = Place::new();
    let steps = [
        json!({"do": "list_tools"}),
        place.call("read_text_file", "share/a.txt"),
        place.call("write_file", "share/b.txt"),
    ];
    let (outcomes, questions) = place.run(peers, Some("decline"), &steps);
    let tools = outcomes[0]["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("write_file")) && tools.contains(&json!("create_directory")));
    assert_eq!(json!("hello"), outcomes[1]["text"]);
    assert_eq!(json!(false), outcomes[2]["is_error"], "{outcomes:?}");
    assert_eq!("written", fs::read_to_string(place.path("share/b.txt")).unwrap());
    assert!(questions.is_empty(), "{questions:?}");
}

fn denies_a_path_and_a_tool(peers: Peers) {
    let place = Place::new();
    let steps = [
        place.call("write_file", "private/b.txt"),
        place.call("write_file", "share/../private/c.txt"),
        place.call("delete_everything", "share/a.txt"),
        place.call("read_text_file", "share/a.txt"),
    ];
    let (outcomes, _) = place.run(peers, Some("approve"), &steps);
    for outcome in &outcomes[..3] {
        assert_refused(outcome, "denied");
    }
    assert_eq!(
        0,
        fs::read_dir(place.path("private")).unwrap().count(),
        "the server saw none of them"
    );
    assert_eq!(json!("hello"), outcomes[3]["text"], "the session goes on");
}

/// Asked once; `refused` is none for an approval.
fn asks(peers: Peers, elicitation: Option<&str>, refused: Option<&str>) {
    let place = Place::new();
    let steps = [
        place.call("create_directory", "share/new"),
        place.call("read_text_file", "share/a.txt"),
    ];
    let (outcomes, questions) = place.run(peers, elicitation, &steps);
    match refused {
        None => assert_eq!(json!(false), outcomes[0]["is_error"], "{outcomes:?}"),
        Some(code) => assert_refused(&outcomes[0], code),
    }
    assert_eq!(refused.is_none(), place.path("share/new").is_dir());
    assert_eq!(json!("hello"), outcomes[1]["text"], "the session goes on");
    match elicitation {
        None => assert!(questions.is_empty()),
        Some(_) => {
            let [question] = questions.as_slice() else {
                panic!("one question: {questions:?}")
            };
            assert!(
                question.starts_with("Gatewright asks for your approval."),
                "{question}"
            );
            assert!(
                question.contains("Tool: create_directory") && question.contains("A new folder?"),
                "{question}"
            );
        }
    }
}

/// The server has a question of its own, which follows the gate's.
fn asks_and_relays(peers: Peers) {
    let place = Place::new();
    let (outcomes, questions) = place.run(peers, Some("approve"), &[place.call("edit_file", "share/a.txt")]);
    assert_eq!(json!(false), outcomes[0]["is_error"], "{outcomes:?}");
    assert_eq!("as asked", fs::read_to_string(place.path("share/a.txt")).unwrap());
    let [ours, theirs] = questions.as_slice() else {
        panic!("two questions: {questions:?}")
    };
    assert!(ours.starts_with("Gatewright asks for your approval."), "{ours}");
    assert!(
        theirs.starts_with("The server ") && theirs.ends_with(" asks:\n\nWhat shall a.txt say?"),
        "{theirs}"
    );

    let (outcomes, questions) = place.run(peers, Some("decline"), &[place.call("edit_file", "share/a.txt")]);
    assert_refused(&outcomes[0], "declined");
    assert_eq!(1, questions.len(), "the server was not even asked: {questions:?}");
}

/// Names of tools, a refused tool, and what a call says while it runs.
fn sees_everything(peers: Peers) {
    let place = Place::new();
    let steps = [
        json!({"do": "list_tools"}),
        json!({"do": "call", "name": "get-env", "arguments": {}}),
        json!({"do": "call", "name": "trigger-long-running-operation", "arguments": {"duration": 0.04, "steps": 4}, "progress": true}),
        json!({"do": "read_resource", "uri": "demo://resource/dynamic/text/1"}),
        json!({"do": "list_prompts"}),
    ];
    let (outcomes, _) = place.run(peers, None, &steps);
    let tools = outcomes[0]["tools"].as_array().unwrap();
    assert!(
        tools.contains(&json!("trigger-long-running-operation")),
        "{outcomes:?}"
    );
    assert_refused(&outcomes[1], "denied");
    assert_eq!(json!(false), outcomes[2]["is_error"], "{outcomes:?}");
    let progress = outcomes[2]["progress"].as_array().unwrap();
    let progress: Vec<f64> = progress.iter().filter_map(Value::as_f64).collect();
    assert_eq!(vec![1.0, 2.0, 3.0, 4.0], progress, "{outcomes:?}");
    let text = outcomes[3]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("Resource 1:"), "{outcomes:?}");
    assert_eq!(json!(-31403), outcomes[4]["error"], "{outcomes:?}");
    let message = outcomes[4]["message"].as_str().unwrap();
    assert!(
        message.contains("authorization_required: prompts/list"),
        "{message}"
    );
}

/// The server has questions to the client itself.
fn answers_the_server(peers: Peers) {
    let place = Place::new();
    let call = |name: &str, arguments: Value| json!({"do": "call", "name": name, "arguments": arguments});
    let steps = [
        call("echo", json!({"message": "hello"})),
        call("trigger-sampling-request", json!({"prompt": "what is it?"})),
        call("trigger-elicitation-request", json!({})),
    ];
    let (outcomes, questions) = place.run(peers, Some("approve"), &steps);
    for (outcome, expected) in outcomes.iter().zip(["hello", "as sampled", "- Name: as asked"]) {
        let text = outcome["text"].as_str().unwrap();
        assert!(
            outcome["is_error"] == false && text.contains(expected),
            "{outcomes:?}"
        );
    }
    let [question] = questions.as_slice() else {
        panic!("one question: {questions:?}")
    };
    assert!(
        question.starts_with("The server Everything asks:\n\n"),
        "{question}"
    );
}

fn an_approved_call_runs(peers: Peers) {
    asks(peers, Some("approve"), None);
}

fn a_declined_call_does_not(peers: Peers) {
    asks(peers, Some("decline"), Some("declined"));
}

fn a_cancelled_call_does_not(peers: Peers) {
    asks(peers, Some("cancel"), Some("cancelled"));
}

fn accepted_with_an_empty_object_is_no_approval(peers: Peers) {
    asks(peers, Some("empty"), Some("not_approved"));
}

fn an_unanswered_call_times_out(peers: Peers) {
    asks(peers, Some("silence"), Some("timeout"));
}

fn a_client_that_cannot_be_asked_is_told_so(peers: Peers) {
    asks(peers, None, Some("cannot_ask"));
}

macro_rules! with_peers {
    ($($name:ident = ($client:ident, $server:ident, $revision:ident, $over:ident): $($check:ident)*;)*) => {
        $(mod $name {
            $(#[test] fn $check() { super::$check(super::Peers(super::$client, super::$server, super::$revision, super::$over)); })*
        })*
    };
}

with_peers! {
    python = (Python, Filesystem, LATEST_OF_2025, Stdio):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    typescript = (TypeScript, Filesystem, LATEST_OF_2025, Stdio):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    typescript2 = (TypeScript2, Filesystem, LATEST_OF_2025, Stdio):
        lists_reads_and_writes an_approved_call_runs a_declined_call_does_not;
    // No call waits in this era, so none times out: the question is a result.
    python_stateless = (Python, Files, STATELESS, Stdio):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        a_client_that_cannot_be_asked_is_told_so
        asks_and_relays;
    python_and_a_server_that_asks = (Python, Files, LATEST_OF_2025, Stdio): asks_and_relays;
    typescript_and_a_server_that_asks = (TypeScript, Files, LATEST_OF_2025, Stdio): asks_and_relays;
    python_over_http = (Python, Filesystem, LATEST_OF_2025, Http):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    typescript_over_http = (TypeScript, Filesystem, LATEST_OF_2025, Http):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    typescript2_over_http = (TypeScript2, Filesystem, LATEST_OF_2025, Http):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    python_stateless_over_http = (Python, Files, STATELESS, Http):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        a_client_that_cannot_be_asked_is_told_so
        asks_and_relays
        sees_everything;
    typescript2_stateless_over_http = (TypeScript2, Files, STATELESS, Http):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        a_client_that_cannot_be_asked_is_told_so
        asks_and_relays
        sees_everything;
    python_over_http_and_everything = (Python, Everything, LATEST_OF_2025, Http):
        sees_everything answers_the_server;
    typescript_over_http_and_everything = (TypeScript, Everything, LATEST_OF_2025, Http):
        sees_everything answers_the_server;
    typescript2_over_http_and_everything = (TypeScript2, Everything, LATEST_OF_2025, Http):
        sees_everything answers_the_server;
    python_over_http_and_a_server_that_asks = (Python, Files, LATEST_OF_2025, Http): asks_and_relays;
    typescript_over_http_and_a_server_that_asks = (TypeScript, Files, LATEST_OF_2025, Http): asks_and_relays;
    typescript2_over_http_and_a_server_that_asks = (TypeScript2, Files, LATEST_OF_2025, Http): asks_and_relays;
    rust_over_http = (Rust, Filesystem, LATEST_OF_2025, Http):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    rust_stateless_over_http = (Rust, Files, STATELESS, Http):
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        a_client_that_cannot_be_asked_is_told_so
        asks_and_relays
        sees_everything;
    rust_over_http_and_everything = (Rust, Everything, LATEST_OF_2025, Http):
        sees_everything answers_the_server;
    rust_over_http_and_a_server_that_asks = (Rust, Files, LATEST_OF_2025, Http): asks_and_relays;
    rust = (Rust, Filesystem, LATEST_OF_2025, Stdio):
        lists_reads_and_writes an_approved_call_runs a_declined_call_does_not;
    rust_stateless = (Rust, Files, STATELESS, Stdio): lists_reads_and_writes asks_and_relays;
}
