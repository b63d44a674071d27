//! Whom a listener serves, and what with.

use serde_json::{Value, json};

use super::{OPEN, endpoint};
use crate::support::serving::{Serving, call};

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

#[test]
fn each_path_has_its_server_and_sessions() {
    let gate = Serving::start(&format!("{OPEN}{}{}", endpoint("one"), endpoint("two")));
    assert!(gate.urls[0].starts_with("http://127.0.0.1:") && gate.urls[0].ends_with("/one"));
    let one = gate.client(0).open();
    let two = gate.client(1).open();
    let another = gate.client(0).open();
    assert_ne!(one.session, another.session);
    for (client, name) in [(&one, "one"), (&two, "two"), (&another, "one")] {
        assert_eq!(name, text(&client.call("a")));
    }
    let mut stray = two;
    stray.session.clone_from(&one.session);
    assert_eq!(
        404,
        stray.post(&call("a")).status,
        "a session is one of its endpoint"
    );
    let mut nowhere = one.clone();
    "/three".clone_into(&mut nowhere.path);
    let response = nowhere.post(&call("a"));
    let said = String::from_utf8_lossy(&response.body).into_owned();
    assert!(
        404 == response.status && said.contains("no endpoint of this gate"),
        "{response:?}"
    );
    let servers: Vec<String> = std::fs::read_to_string(gate.path("audit.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|record| record["kind"] == "verdict")
        .map(|record| record["server"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(vec!["one", "two", "one"], servers);
    gate.end();
}

#[test]
fn hosts_and_origins() {
    let more = "hosts = ['gate.example.com']\norigins = ['https://app.example.com']\n";
    let gate = Serving::start(&format!("{OPEN}{more}{}", endpoint("a")));
    let client = gate.client(0).open();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for (status, headers) in [
        (200, &["Host: localhost"][..]),
        (200, &["Host: gate.example.com:8080"]),
        (200, &["Host: localhost", "Origin: https://app.example.com"]),
        (200, &["Host: localhost", "Origin: http://localhost:3000"]),
        (403, &["Host: evil.example.com"]),
        (403, &["Host: 192.0.2.1"]),
        (403, &["Host: localhost", "Origin: https://evil.example.com"]),
        (403, &["Host: localhost", "Origin: null"]),
    ] {
        let response = client.post_with(headers, &ping);
        assert_eq!(status, response.status, "{headers:?}: {response:?}");
        if status == 403 {
            let said = String::from_utf8_lossy(&response.body).into_owned();
            assert!(
                said.contains("`listen.hosts`") || said.contains("`listen.origins`"),
                "{said}"
            );
        }
    }
    gate.end();
}
