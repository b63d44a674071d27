//! How a gate ends.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread;

use serde_json::Value;

use super::{OPEN, endpoint, endpoint_with};
use crate::support::serving::{Serving, call};

#[test]
fn a_running_call_finishes_and_nothing_new_begins() {
    let lets_go = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = lets_go.local_addr().unwrap().port().to_string();
    let admin = "[admin]\naddress = '127.0.0.1:0'\n";
    let mut gate = Serving::start(&format!("{OPEN}{admin}{}", endpoint_with("a", &[&port], "")));
    assert_eq!("ready\n", gate.admin_text("/readyz"));
    let client = gate.client(0).open();
    let held = thread::spawn(move || client.post(&call("hold")));
    let _line = gate.logged("held");
    let (mut holding, _) = lets_go.accept().unwrap();
    gate.terminate();
    let _line = gate.logged("told to stop");
    // The stop is told before it is made known to everybody.
    while gate
        .client(0)
        .initialize()
        .is_some_and(|response| response.status == 200)
    {}
    let response = gate.admin("/readyz");
    assert_eq!(
        (503, "stopping\n".as_bytes()),
        (response.status, response.body.as_slice())
    );
    assert_eq!(
        "ok\n",
        gate.admin_text("/healthz"),
        "it stops, and lives as long as it drains"
    );
    assert!(!held.is_finished());
    holding.write_all(b"!").unwrap();
    let response = held.join().unwrap();
    assert_eq!(200, response.status, "{response:?}");
    let (answer, _) = response.messages().pop().expect("an answer");
    assert_eq!("a", answer["result"]["content"][0]["text"], "{answer}");
    let (ended, said) = gate.ended();
    assert!(ended.success(), "{ended}: {said}");
}

#[test]
fn a_call_that_does_not_finish_is_not_waited_for() {
    let lets_go = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = lets_go.local_addr().unwrap().port().to_string();
    let mut gate = Serving::start(&format!(
        "{OPEN}drain-ms = 100\n{}",
        endpoint_with("a", &[&port], "")
    ));
    let client = gate.client(0).open();
    let held = thread::spawn(move || client.post(&call("hold")));
    let _line = gate.logged("held");
    gate.terminate();
    let (ended, said) = gate.ended();
    assert!(ended.success(), "{ended}: {said}");
    assert!(said.contains("calls were still running upstream"), "{said}");
    let (answer, _) = held.join().unwrap().messages().pop().expect("an answer");
    assert_eq!(-32603, answer["error"]["code"], "{answer}");
    assert_eq!("upstream_timeout", answer["error"]["data"]["code"], "{answer}");
    let audit = std::fs::read_to_string(gate.path("audit.jsonl")).unwrap();
    let outcome = audit
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|record| record["kind"] == "outcome");
    let outcome = outcome.expect("what was forwarded has an outcome");
    assert_eq!("upstream_timeout", outcome["outcome"], "{outcome}");
}

#[test]
fn streams_of_nobody_in_particular_hold_nothing_up() {
    let gate = Serving::start(&format!("{OPEN}{}", endpoint("a")));
    let client = gate.client(0).open();
    let session = client.session.as_ref().unwrap();
    let mut stream = crate::support::serving::connect(&client.authority).unwrap();
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n\r\n",
        client.path
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 15];
    std::io::Read::read_exact(&mut stream, &mut head).unwrap();
    assert_eq!(b"HTTP/1.1 200 OK", &head);
    gate.end();
}
