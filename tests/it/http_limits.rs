//! The limits of the HTTP door, and how sessions, streams and the door end.

use std::sync::Arc;
use std::time::Duration;

use gatewright::door::http::EndpointLimits;
use gatewright::seam::{Guard, Guards};
use serde_json::json;

use crate::support::chains::one;
use crate::support::http::{Exchange, HttpHarness, PATH, Setup};
use crate::support::policies::Does;

fn guards(tools: Does<'_>) -> Guards {
    Guards {
        tools: Guard::Chain(Arc::new(one(tools))),
        reads: Guard::Chain(Arc::new(one(Does::Allow))),
    }
}

const INITIALIZE: &[u8] = br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
const CALL: &[u8] = br#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"a"}}"#;
const LIST: &[u8] = br#"{"jsonrpc":"2.0","id":8,"method":"tools/list"}"#;

fn status(exchange: &Exchange) -> u16 {
    exchange.response().expect("a response").status
}

async fn opened(setup: Setup) -> HttpHarness {
    let mut harness = HttpHarness::start(setup);
    harness
        .initialize("2025-11-25", &json!({"elicitation": {}}))
        .await;
    harness
}

async fn post(harness: &HttpHarness, body: &[u8]) -> Exchange {
    harness.post(&harness.headers("2025", body), body).await
}

#[tokio::test(start_paused = true)]
async fn only_so_many_sessions_are_open() {
    let mut setup = Setup::new(guards(Does::Allow));
    setup.limits = EndpointLimits {
        sessions_max: 2,
        ..EndpointLimits::default()
    };
    let harness = HttpHarness::start(setup);
    let headers = harness.headers("2025", INITIALIZE);
    let begun: Vec<Exchange> = futures(5, || harness.send("POST", &headers, INITIALIZE));
    harness.settle().await;
    let mut statuses: Vec<u16> = begun.iter().map(status).collect();
    statuses.sort_unstable();
    assert_eq!(
        vec![200, 200, 503, 503, 503],
        statuses,
        "they come at the same moment"
    );
    assert_eq!(2, harness.upstreams());
    let refused = begun.iter().find(|exchange| status(exchange) == 503).unwrap();
    let response = refused.response().unwrap();
    assert!(response.header("retry-after").is_some(), "{response:?}");
    assert!(
        String::from_utf8_lossy(&response.body).contains("2 sessions are open already"),
        "{response:?}"
    );
    let open = begun.iter().find(|exchange| status(exchange) == 200).unwrap();
    let session = open
        .response()
        .unwrap()
        .header("mcp-session-id")
        .unwrap()
        .to_owned();
    let mut named = headers.clone();
    named.push(("Mcp-Session-Id".to_owned(), session.into_bytes()));
    assert_eq!(204, status(&harness.request("DELETE", &named, b"").await));
    assert_eq!(
        200,
        status(&harness.post(&headers, INITIALIZE).await),
        "a place is free again"
    );
}

fn futures(count: usize, mut make: impl FnMut() -> Exchange) -> Vec<Exchange> {
    (0..count).map(|_| make()).collect()
}

#[tokio::test(start_paused = true)]
async fn headers_have_a_limit() {
    let harness = opened(Setup::new(guards(Does::Allow))).await;
    let mut headers = harness.headers("2025", LIST);
    headers.push(("X-Large".to_owned(), vec![b'a'; 70_000]));
    assert_eq!(431, status(&harness.post(&headers, LIST).await));
    assert_eq!(200, status(&post(&harness, LIST).await));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_slow_is_let_go() {
    let harness = opened(Setup::new(guards(Does::Allow))).await;
    let head = harness.connect();
    head.write(format!("POST {PATH} HTTP/1.1\r\nHost: local"));
    let body = harness.connect();
    body.write(format!(
        "POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{{"
    ));
    harness.advance(Duration::from_secs(29)).await;
    assert!(!head.closed() && body.response().is_none(), "not yet");
    harness.advance(Duration::from_secs(2)).await;
    assert!(head.closed(), "its headers never came");
    assert_eq!(408, status(&body));
    assert_eq!(200, status(&post(&harness, LIST).await), "nobody else is held up");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_no_request() {
    let harness = opened(Setup::new(guards(Does::Allow))).await;
    let mut bytes =
        format!("POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n").into_bytes();
    let session = harness.session.clone().unwrap();
    bytes.extend(
        format!(
            "Mcp-Session-Id: {session}\r\nContent-Length: {}\r\n\r\n",
            CALL.len() + 1
        )
        .into_bytes(),
    );
    bytes.extend_from_slice(CALL);
    let broken = harness.connect();
    broken.write(bytes);
    harness.settle().await;
    drop(broken);
    harness.settle().await;
    assert_eq!(
        0,
        harness
            .tape()
            .iter()
            .filter(|received| received.method() == "tools/call")
            .count()
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_when_it_is_idle_or_deleted() {
    let harness = opened(Setup::new(guards(Does::Allow))).await;
    let headers = harness.headers("2025", b"");
    let stream = harness.request("GET", &headers, b"").await;
    assert_eq!(200, status(&stream));
    harness.advance(Duration::from_secs(31 * 60)).await;
    assert_eq!(
        200,
        status(&harness.post(&harness.headers("2025", LIST), LIST).await),
        "a stream is open"
    );
    drop(stream);
    harness.advance(Duration::from_secs(31 * 60)).await;
    let fresh: Vec<_> = headers[..3].to_vec();
    assert_eq!(
        200,
        status(&harness.post(&fresh, INITIALIZE).await),
        "whoever comes next clears up"
    );
    assert_eq!(404, status(&post(&harness, LIST).await), "it was idle");

    let harness = opened(Setup::new(guards(Does::Allow))).await;
    let headers = harness.headers("2025", b"");
    let (running, stream) = (
        post(&harness, CALL).await,
        harness.request("GET", &headers, b"").await,
    );
    assert_eq!(204, status(&harness.request("DELETE", &headers, b"").await));
    // A call that runs may finish, for a while.
    harness.advance(Duration::from_secs(11)).await;
    assert!(running.closed() && stream.closed(), "its streams end with it");
    assert_eq!(404, status(&harness.request("DELETE", &headers, b"").await));
    assert_eq!(404, status(&post(&harness, LIST).await));
    assert!(harness.upstream().is_closed(), "so does its upstream");
}

#[tokio::test(start_paused = true)]
async fn a_stop_refuses_what_waits_and_lets_calls_finish() {
    let asks = Does::AskUnless(&["a"], "sure?");
    let harness = opened(Setup::new(guards(asks))).await;
    let running = post(&harness, CALL).await;
    let parked = br#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"b"}}"#;
    let parked = post(&harness, parked).await;
    let stream = harness.request("GET", &harness.headers("2025", b""), b"").await;
    assert_eq!("elicitation/create", parked.messages()[0].0["method"]);
    harness.stop.cancel();
    harness.settle().await;
    let (last, _) = parked.messages().pop().unwrap();
    assert_eq!(
        "cancelled", last["result"]["_meta"]["gatewright/refusal"]["code"],
        "{last}"
    );
    let late = post(&harness, LIST).await;
    assert!(
        late.response().is_none_or(|response| response.status == 503),
        "nothing new begins"
    );
    harness.release().await;
    let (answer, _) = running.messages().pop().unwrap();
    assert_eq!(json!(false), answer["result"]["isError"], "{answer}");
    harness.door.close().await;
    harness.settle().await;
    assert!(stream.closed() && running.closed() && parked.closed());
}
