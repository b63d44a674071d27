//! Long results of an HTTP upstream: passed on as they come, byte for byte, in constant memory.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use serde_json::{Value, json};

use super::OPEN;
use crate::support::http::Response;
use crate::support::serving::{Client, SOON, Serving, call, connect};

/// Blocks of a long result, and the length of one in bytes.
const BLOCKS: usize = 1600;
const BLOCK_BYTES: usize = 64 * 1024;

/// What a long result may add to the memory of the gate, in KiB. The result is over three times as long.
const GROWTH_KIB_MAX: u64 = 32 * 1024;

/// The parts of an answer with a result of 100 MB to the request with this id.
fn long_answer(id: &Value, end: &str) -> impl Iterator<Item = String> {
    let start = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"cacheScope":"public","content":["#);
    let block = format!(
        r#"{{"type":"text","text":"\u00e9é{}","n":1.10}}"#,
        "x".repeat(BLOCK_BYTES)
    );
    let blocks = (0..BLOCKS).map(move |n| {
        if n == 0 {
            block.clone()
        } else {
            format!(",{block}")
        }
    });
    let end = format!(r#"],"resultType":"complete"}}{end}"#);
    std::iter::once(start).chain(blocks).chain([end])
}

/// A server of both eras whose tools are ways to give a long result. Every connection is for one request.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(stream));
        }
    });
    url
}

/// A gate that has gone takes nothing; then there is nothing more to do here.
fn serve(stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let head = |kind: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
    let mut stream = &stream;
    let id = &message["id"];
    match (message["method"].as_str(), message["params"]["name"].as_str()) {
        (Some("tools/call"), Some("event")) => {
            stream.write_all(head("text/event-stream").as_bytes()).ok()?;
            stream.write_all(b": so far\n\nevent: message\ndata: ").ok()?;
            for part in long_answer(id, "}\n\n") {
                stream.write_all(part.as_bytes()).ok()?;
            }
        }
        (Some("tools/call"), Some(kind)) => {
            let end = match kind {
                "cut" => "",
                "twice" => r#","id":0}"#,
                _ => "}",
            };
            stream.write_all(head("application/json").as_bytes()).ok()?;
            for part in long_answer(id, end) {
                stream.write_all(part.as_bytes()).ok()?;
            }
        }
        (Some(method), _) if !id.is_null() => {
            let result = match method {
                "initialize" => {
                    json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
                }
                "tools/list" => json!({"tools": [], "resultType": "complete"}),
                _ => json!({"content": [], "resultType": "complete"}),
            };
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
            stream
                .write_all((head("application/json") + &answer).as_bytes())
                .ok()?;
        }
        _ => stream
            .write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .ok()?,
    }
    Some(())
}

/// What becomes of one call.
#[derive(Debug)]
enum Got {
    /// The response, whole.
    All(Box<Response>),
    /// The gate closed the connection before its end.
    BrokeOff,
}

fn post(client: &Client, headers: &[&str], message: &Value) -> Got {
    let mut stream = connect(&client.authority).unwrap();
    stream
        .write_all(&client.request(headers, &message.to_string()))
        .unwrap();
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer);
    if answer.ends_with(b"\r\n0\r\n\r\n") {
        Got::All(Box::new(Response::parse(&answer).unwrap()))
    } else {
        Got::BrokeOff
    }
}

fn gate() -> Serving {
    Serving::start(&format!(
        "{OPEN}[[endpoint]]\npath = '/a'\nurl = '{}'\n",
        upstream()
    ))
}

/// The call in the form of 2026-07-28, and its headers.
fn stateless(name: &str) -> (Value, Vec<String>) {
    let mut message = call(name);
    message["params"]["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {}
    });
    let headers = ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call"].map(str::to_owned);
    let name = format!("Mcp-Name: {name}");
    (message, headers.into_iter().chain([name]).collect())
}

#[track_caller]
fn assert_passes(era: &str, name: &str, expected: &str) {
    let gate = gate();
    let (client, message, headers) = if era == "2025" {
        (gate.client(0).open(), call(name), Vec::new())
    } else {
        let (message, headers) = stateless(name);
        (gate.client(0), message, headers)
    };
    let headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    let before = gate.peak_kib();
    let Got::All(response) = post(&client, &headers, &message) else {
        panic!("{era} {name}: it broke off")
    };
    let grown = gate.peak_kib() - before;
    assert_eq!(200, response.status);
    assert!(BLOCKS * BLOCK_BYTES < response.body.len());
    assert!(response.body == expected.as_bytes(), "{era} {name}: other bytes");
    assert!(
        grown < GROWTH_KIB_MAX,
        "{era} {name}: the gate has grown by {grown} KiB"
    );
    let outcome = std::fs::read_to_string(gate.path("audit.jsonl")).unwrap();
    assert!(
        outcome.lines().last().unwrap().contains(r#""outcome":"ok""#),
        "{outcome}"
    );
    gate.end();
}

fn expected() -> String {
    long_answer(&json!(1), "}").collect()
}

#[test]
fn a_body_in_a_session() {
    assert_passes("2025", "json", &expected());
}

#[test]
fn an_event_in_a_session() {
    assert_passes(
        "2025",
        "event",
        &format!("event: message\ndata: {}\n\n", expected()),
    );
}

#[test]
fn a_body_that_policies_make_private() {
    let private = expected()
        .replace(r#""cacheScope":"public""#, r#""cacheScope":"private""#)
        .replace(
            r#""resultType":"complete"}"#,
            r#""resultType":"complete","ttlMs":0}"#,
        );
    assert_passes("2026", "json", &private);
}

/// No client may take what went out before for an answer.
#[test]
fn one_that_is_not_whole_breaks_off() {
    for name in ["cut", "twice"] {
        let gate = gate();
        let client = gate.client(0).open();
        let got = post(&client, &[], &call(name));
        assert!(matches!(got, Got::BrokeOff), "{name}");
        gate.logged("a forwarded request has no answer");
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        assert_eq!(
            200,
            client.post(&ping).status,
            "its id is free, and the session goes on"
        );
        gate.end();
    }
}

/// The upstream must not be held up, nor the gate fill its memory, for a client that is gone.
#[test]
fn a_client_that_goes_away_ends_it() {
    let gate = gate();
    let client = gate.client(0).open();
    let (read, reader) = mpsc::channel();
    let mut stream = connect(&client.authority).unwrap();
    stream
        .write_all(&client.request(&[], &call("json").to_string()))
        .unwrap();
    std::thread::spawn(move || {
        let mut some = vec![0; 1024 * 1024];
        read.send(stream.read_exact(&mut some).is_ok()).unwrap();
    });
    assert!(reader.recv_timeout(SOON).unwrap());
    let audit = gate.path("audit.jsonl");
    while !std::fs::read_to_string(&audit)
        .unwrap()
        .contains(r#""outcome":"cancelled""#)
    {
        std::thread::yield_now();
    }
    gate.end();
}
