//! A client of one endpoint, with a connection for each request.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// No answer takes so long.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25.
    Handshake,
    /// 2026-07-28.
    Stateless,
}

/// What came of one call.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The text of the tool's result.
    Result(String),
    /// A policy refused it.
    Refused,
    /// The server was gone, or its session: the answer says so.
    Fault,
    /// Anything that must not be.
    Other(String),
}

impl Outcome {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Result(_) => "result",
            Self::Refused => "refused",
            Self::Fault => "fault",
            Self::Other(_) => "other",
        }
    }
}

pub(crate) struct Client {
    address: String,
    path: String,
    era: Era,
    session: Option<String>,
}

/// A status, the session that was begun, and the messages of a response.
struct Response {
    status: u16,
    session: Option<String>,
    messages: Vec<Value>,
    text: String,
}

impl Client {
    pub(crate) fn new(address: &str, path: &str, era: Era) -> Self {
        Self {
            address: address.to_owned(),
            path: path.to_owned(),
            era,
            session: None,
        }
    }

    /// Calls a tool, in a session where the era has them.
    pub(crate) fn call(&mut self, name: &str, n: u64) -> Outcome {
        if self.era == Era::Handshake && self.session.is_none() {
            match self.open() {
                Some(session) => self.session = Some(session),
                None => return Outcome::Fault,
            }
        }
        let mut params = json!({"name": name, "arguments": {"n": n}});
        let mut headers = Vec::new();
        match (&self.session, self.era) {
            (Some(session), Era::Handshake) => {
                headers.push("MCP-Protocol-Version: 2025-11-25".to_owned());
                headers.push(format!("Mcp-Session-Id: {session}"));
            }
            _ => {
                params["_meta"] = json!({
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {}
                });
                headers.push("MCP-Protocol-Version: 2026-07-28".to_owned());
                headers.push("Mcp-Method: tools/call".to_owned());
                headers.push(format!("Mcp-Name: {name}"));
            }
        }
        let message = json!({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params});
        let response = self.send("POST", &headers, &message.to_string());
        let outcome = outcome(&response, n);
        if matches!(outcome, Outcome::Fault) {
            self.session = None;
        }
        outcome
    }

    fn open(&self) -> Option<String> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let message = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let session = self.send("POST", &[], &message.to_string()).session?;
        let headers = [
            "MCP-Protocol-Version: 2025-11-25".to_owned(),
            format!("Mcp-Session-Id: {session}"),
        ];
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.send("POST", &headers, &initialized.to_string());
        Some(session)
    }

    /// Ends its session.
    pub(crate) fn end(&mut self) {
        if let Some(session) = self.session.take() {
            self.send("DELETE", &[format!("Mcp-Session-Id: {session}")], "");
        }
    }

    fn send(&self, method: &str, headers: &[String], body: &str) -> Response {
        let mut lines = vec![
            format!("{method} {} HTTP/1.1", self.path),
            format!("Host: {}", self.address),
            "Connection: close".to_owned(),
            "Content-Type: application/json".to_owned(),
            "Accept: application/json, text/event-stream".to_owned(),
            format!("Content-Length: {}", body.len()),
        ];
        lines.extend_from_slice(headers);
        let request = format!("{}\r\n\r\n{body}", lines.join("\r\n"));
        let mut stream = TcpStream::connect(&self.address).expect("the gate listens");
        stream.set_read_timeout(Some(ANSWERED_WITHIN)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer in time");
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        let session = text
            .lines()
            .find_map(|line| line.strip_prefix("mcp-session-id: "))
            .map(str::to_owned);
        let messages = text
            .lines()
            .map(|line| line.strip_prefix("data: ").unwrap_or(line))
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(Value::is_object)
            .collect();
        Response {
            status: status.unwrap_or_default(),
            session,
            messages,
            text,
        }
    }
}

fn outcome(response: &Response, n: u64) -> Outcome {
    let other = || Outcome::Other(response.text.clone());
    let [answer] = response.messages.as_slice() else {
        return other();
    };
    if answer["id"] != json!(n) {
        return other();
    }
    let code = answer["error"]["data"]["code"].as_str().unwrap_or_default();
    if code.starts_with("upstream_") || response.status == 404 {
        return Outcome::Fault;
    }
    let result = &answer["result"];
    if !result["_meta"]["gatewright/refusal"].is_null() {
        return Outcome::Refused;
    }
    match result["content"][0]["text"].as_str() {
        Some(text) => Outcome::Result(text.to_owned()),
        None => other(),
    }
}
