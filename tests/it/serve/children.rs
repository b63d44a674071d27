//! Children of an endpoint: how many, and what happens when they end or cannot start.

use serde_json::{Value, json};

use super::{OPEN, endpoint, endpoint_with};
use crate::support::http::Response;
use crate::support::serving::{Client, Serving, call};

fn error(response: &Response) -> Value {
    let (message, _) = response.messages().pop().expect("a message");
    message["error"].clone()
}

/// The client is told to come back, and why.
#[track_caller]
fn assert_later(response: &Response, why: &str) {
    assert_eq!(503, response.status, "{response:?}");
    let seconds: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=31).contains(&seconds), "{response:?}");
    let error = error(response);
    assert!(error["message"].as_str().unwrap().contains(why), "{error}");
    assert_eq!(json!("upstream_unavailable"), error["data"]["code"], "{error}");
}

fn end(client: &Client) {
    let request = String::from_utf8(client.request(&[], ""))
        .unwrap()
        .replacen("POST", "DELETE", 1);
    let stream = crate::support::serving::connect(&client.authority).unwrap();
    let response = crate::support::serving::exchange(stream, request.as_bytes()).unwrap();
    assert_eq!(204, response.status, "{response:?}");
}

#[test]
fn only_so_many_run() {
    let gate = Serving::start(&format!("{OPEN}{}", endpoint_with("a", &[], "children-max = 2")));
    let one = gate.client(0).open();
    let _other = gate.client(0).open();
    assert_later(
        &gate.client(0).initialize().unwrap(),
        "2 upstream servers run already",
    );
    assert_eq!(
        "a",
        one.call("a")["result"]["content"][0]["text"],
        "the others are served on"
    );
    end(&one);
    // The place is free once the child is gone, which its session does not wait for.
    while gate.client(0).initialize().unwrap().status == 503 {}
    gate.end();
}

#[test]
fn the_end_of_a_child_is_told_once() {
    ends("leave");
}

#[test]
fn a_child_that_is_killed_is_no_other() {
    ends("crash");
}

#[track_caller]
fn ends(how: &str) {
    let gate = Serving::start(&format!("{OPEN}{}", endpoint("a")));
    let bystander = gate.client(0).open();
    let client = gate.client(0).open();
    let response = client.post(&call(how));
    assert_eq!(
        (200, 1),
        (response.status, response.messages().len()),
        "{response:?}"
    );
    let error = error(&response);
    assert_eq!(json!(-32603), error["code"], "{error}");
    assert_eq!(json!("upstream_exited"), error["data"]["code"], "{error}");
    assert_eq!(
        "a",
        bystander.call("a")["result"]["content"][0]["text"],
        "its child is another one"
    );
    // Its session ends with it, and the next one has a new child as soon as nobody fears that it ends at once, too.
    while client.post(&call("a")).status != 404 {}
    let again = loop {
        let response = gate.client(0).initialize().unwrap();
        if response.status == 200 {
            break response;
        }
        assert_later(&response, "ends right after its start");
    };
    let mut next = gate.client(0);
    next.session = Some(again.header("mcp-session-id").unwrap().to_owned());
    assert_eq!("a", next.call("a")["result"]["content"][0]["text"]);
    gate.end();
}

/// A request of 2026-07-28, which needs no session.
fn stateless(client: &Client, name: &str) -> Response {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let mut message = call(name);
    message["params"]["_meta"] = meta;
    let named = format!("Mcp-Name: {name}");
    client.post_with(
        &[
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            &named,
        ],
        &message,
    )
}

#[test]
fn a_child_that_all_share_is_started_again() {
    let gate = Serving::start(&format!("{OPEN}{}", endpoint("a")));
    let client = gate.client(0);
    let served = |response: &Response| {
        response
            .messages()
            .pop()
            .is_some_and(|(answer, _)| answer["result"]["content"][0]["text"] == "a")
    };
    let first = stateless(&client, "a");
    assert!(served(&first), "{first:?}");
    for how in ["leave", "crash"] {
        let ended = stateless(&client, how);
        assert_eq!(200, ended.status, "{ended:?}");
        let error = error(&ended);
        assert_eq!(json!("upstream_exited"), error["data"]["code"], "{error}");
        loop {
            let next = stateless(&client, "a");
            if served(&next) {
                break;
            }
            let code = &self::error(&next)["data"]["code"];
            assert!(
                *code == "upstream_exited" || *code == "upstream_unavailable",
                "{next:?}"
            );
        }
    }
    gate.end();
}

#[test]
fn what_ends_at_once_is_held_off() {
    let gate = Serving::start(&format!("{OPEN}[[endpoint]]\npath = '/a'\ncommand = ['true']\n"));
    let first = gate.client(0).initialize().unwrap();
    assert_eq!(json!(-32603), error(&first)["code"], "{first:?}");
    assert!(
        first.header("mcp-session-id").is_none(),
        "no session begins: {first:?}"
    );
    // One that comes later than the wait is a further failure, and doubles it: in the end every client is in time.
    let held_off = loop {
        let response = gate.client(0).initialize().unwrap();
        if response.status == 503 {
            break response;
        }
    };
    assert_later(&held_off, "ends right after its start");
    gate.end();
}

#[test]
fn what_cannot_start_is_named_to_the_operator_only() {
    let gate = Serving::start(&format!(
        "{OPEN}[[endpoint]]\npath = '/a'\ncommand = ['no-such-server']\n"
    ));
    let why = |response: &Response| error(response)["message"].as_str().unwrap().to_owned();
    let first = gate.client(0).initialize().unwrap();
    assert_later(&first, "the upstream server cannot be started");
    assert!(!why(&first).contains("no-such-server"), "{first:?}");
    let line = gate.logged("the upstream server cannot be started");
    assert!(
        line.contains("`no-such-server`") && line.contains("is it installed"),
        "{line}"
    );
    // As above: one that comes too late to be held off doubles the wait for the next.
    let held_off = loop {
        let response = gate.client(0).initialize().unwrap();
        if !why(&response).contains("cannot be started") {
            break response;
        }
    };
    assert_later(&held_off, "is started again later");
    gate.end();
}
