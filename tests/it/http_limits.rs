//! The limits of the HTTP door, and how sessions, streams and the door end.

use std::sync::Arc;
use std::time::Duration;

use gatewright::door::http::EndpointLimits;
use gatewright::seam::{Guard, Guards};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::chains::one;
use crate::support::http::{Exchange, Headers, HttpHarness, PATH, Setup, request};
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

/// A call of the tool `a` with this id.
fn call(id: u32) -> Vec<u8> {
    let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "a"}});
    call.to_string().into_bytes()
}

#[tokio::test(start_paused = true)]
async fn a_session_has_only_so_many_streams() {
    let mut setup = Setup::new(guards(Does::Allow));
    setup.limits.streams_max = 3;
    let harness = opened(setup).await;
    let stream = harness.request("GET", &harness.headers("2025", b""), b"").await;
    let running = [post(&harness, &call(1)).await, post(&harness, &call(2)).await];
    let refused = post(&harness, &call(3)).await;
    assert_eq!(503, status(&refused));
    let (message, _) = refused.messages().pop().unwrap();
    assert_eq!(
        (json!(3), json!(-32603)),
        (message["id"].clone(), message["error"]["code"].clone())
    );
    assert!(refused.response().unwrap().header("retry-after").is_some());
    let calls = |harness: &HttpHarness| harness.upstream().calls().len();
    assert_eq!(2, calls(&harness), "it was not forwarded");
    assert_eq!(
        202,
        status(
            &post(
                &harness,
                br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#
            )
            .await
        )
    );
    let again = harness.request("GET", &harness.headers("2025", b""), b"").await;
    assert_eq!(
        (200, true),
        (status(&again), stream.closed()),
        "the new one takes the place of the old"
    );
    harness.release().await;
    assert!(running.iter().all(|running| status(running) == 200));
    let after = post(&harness, &call(3)).await;
    harness.release().await;
    assert_eq!((200, 3), (status(&after), calls(&harness)), "there is room again");
}

#[tokio::test(start_paused = true)]
async fn a_body_has_a_limit() {
    let mut setup = Setup::new(guards(Does::Allow));
    setup.listen.scan.frame_bytes_max = 4096;
    let harness = opened(setup).await;
    let long = vec![b' '; 4097];
    let said: Headers = harness.headers("2025", LIST);
    let head = |length: &str| {
        let whole = request("GET", &said, b"");
        let whole = String::from_utf8(whole).unwrap().replacen("GET", "POST", 1);
        whole
            .replacen("\r\n\r\n", &format!("\r\n{length}\r\n\r\n"), 1)
            .into_bytes()
    };
    let announced = harness.connect();
    announced.write(head("Content-Length: 4097"));
    let chunked = harness.connect();
    chunked.write(
        [
            head("Transfer-Encoding: chunked"),
            b"1001\r\n".to_vec(),
            long.clone(),
        ]
        .concat(),
    );
    harness.settle().await;
    for (how, refused) in [("announced", announced), ("chunked", chunked)] {
        let response = refused
            .response()
            .unwrap_or_else(|| panic!("{how}: an answer at once"));
        assert_eq!(413, response.status, "{how}: {response:?}");
        let (message, _) = refused.messages().pop().unwrap();
        assert_eq!(json!(-32600), message["error"]["code"], "{how}: {message}");
    }
    let longest = [LIST, &long[LIST.len() + 1..]].concat();
    assert_eq!(
        200,
        status(&post(&harness, &longest).await),
        "white space counts, and this fits"
    );
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_not_there() {
    let mut harness = opened(Setup::new(guards(Does::Allow))).await;
    let live = harness.session.clone().unwrap();
    let unknown = [
        "0".repeat(32),
        live.to_uppercase() + "x",
        format!("{live}0"),
        "1".to_owned(),
        String::new(),
        "\u{e9}".to_owned(),
    ];
    for id in unknown {
        harness.session = Some(id.clone());
        let headers = harness.headers("2025", LIST);
        for method in ["POST", "GET", "DELETE"] {
            let refused = harness
                .request(method, &headers, if method == "POST" { LIST } else { b"" })
                .await;
            let expected: &[u16] = if id.is_ascii() { &[404] } else { &[400, 404, 405] };
            assert!(
                expected.contains(&status(&refused)),
                "{method} {id:?}: {:?}",
                refused.response()
            );
        }
    }
    harness.session = None;
    for (method, body, expected) in [
        ("POST", LIST, 400),
        ("GET", b"" as &[u8], 405),
        ("DELETE", b"", 400),
    ] {
        let refused = harness
            .request(method, &harness.headers("2025", body), body)
            .await;
        assert_eq!(expected, status(&refused), "{method} without a session");
    }
    let seen: Vec<_> = harness
        .tape()
        .iter()
        .map(|received| received.method().to_owned())
        .collect();
    assert_eq!(
        vec!["initialize", "notifications/initialized"],
        seen,
        "nothing was forwarded"
    );
    harness.session = Some(live);
    assert_eq!(
        200,
        status(&post(&harness, LIST).await),
        "the one that is there lives on"
    );
}

#[tokio::test(start_paused = true)]
async fn the_door_itself_forgets_idle_sessions() {
    let harness = opened(Setup::new(guards(Does::Allow))).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = Arc::clone(&harness.door);
    let serving = tokio::spawn(async move { door.serve(listener).await });
    let sessions = || harness.door.counts()[0].sessions;
    let stream = harness.request("GET", &harness.headers("2025", b""), b"").await;
    for _ in 0..2 {
        harness.advance(Duration::from_secs(29 * 60)).await;
    }
    drop(stream);
    harness.advance(Duration::from_secs(29 * 60)).await;
    assert_eq!(1, sessions(), "its stream was open until 29 minutes ago");
    harness.advance(Duration::from_secs(2 * 60)).await;
    assert_eq!(0, sessions(), "nothing came for 31 minutes");
    harness.advance(Duration::from_secs(11)).await;
    assert!(harness.upstream().is_closed(), "its upstream ended with it");
    harness.stop.cancel();
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_holds_nothing_up() {
    let harness = opened(Setup::new(guards(Does::Allow))).await;
    let deaf = harness.connect_deaf(1);
    deaf.write(request("GET", &harness.headers("2025", b""), b""));
    harness.settle().await;
    let streams = || harness.door.counts()[0].streams;
    assert_eq!(1, streams());
    let text = "a".repeat(1024 * 1024);
    let line =
        json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}}).to_string();
    for (total, open) in [(8, 1), (32, 0)] {
        for _ in 0..total {
            harness.upstream().say(&line).await;
        }
        harness.settle().await;
        assert_eq!(open, streams(), "with {total} MiB more");
    }
    assert_eq!(200, status(&post(&harness, LIST).await), "the session lives on");
}

/// Reads from a socket until `text` has come.
async fn read_until(socket: &mut TcpStream, text: &str) -> String {
    let mut got = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&got).contains(text) {
            assert_ne!(
                0,
                socket.read_buf(&mut got).await.unwrap(),
                "`{text}` comes before the end"
            );
        }
    };
    tokio::time::timeout(Duration::from_secs(30), reading)
        .await
        .expect("an answer");
    String::from_utf8(got).unwrap()
}

#[tokio::test]
async fn further_connections_wait_for_a_place() {
    let mut setup = Setup::new(guards(Does::Allow));
    setup.listen.connections_max = 1;
    let harness = HttpHarness::start(setup);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let door = Arc::clone(&harness.door);
    let serving = tokio::spawn(async move { door.serve(listener).await });
    let headers = harness.headers("2025", INITIALIZE);
    let closing = request("POST", &headers, INITIALIZE);
    let keeping = String::from_utf8(closing.clone())
        .unwrap()
        .replace("Connection: close\r\n", "");
    let mut first = TcpStream::connect(address).await.unwrap();
    first.write_all(keeping.as_bytes()).await.unwrap();
    read_until(&mut first, "\"serverInfo\"").await;
    let mut second = TcpStream::connect(address).await.unwrap();
    second.write_all(&closing).await.unwrap();
    // The first connection is served on, and the second, whose request was there before, is not.
    for _ in 0..5 {
        first.write_all(keeping.as_bytes()).await.unwrap();
        read_until(&mut first, "\"serverInfo\"").await;
    }
    assert_eq!(6, harness.upstreams());
    let early = second.try_read(&mut [0]);
    assert_eq!(
        Some(std::io::ErrorKind::WouldBlock),
        early.err().map(|error| error.kind())
    );
    drop(first);
    read_until(&mut second, "\"serverInfo\"").await;
    assert_eq!(7, harness.upstreams());
    harness.stop.cancel();
    serving.await.unwrap();
}
