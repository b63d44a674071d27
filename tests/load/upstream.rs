//! An MCP server of both eras behind a URL, whose connections can be reset.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The server, and what it was called with.
pub(crate) struct HttpUpstream {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    open: Vec<TcpStream>,
    received: Vec<(String, u64)>,
}

impl HttpUpstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                shared.lock().unwrap().open.push(stream.try_clone().unwrap());
                let state = Arc::clone(&shared);
                std::thread::spawn(move || while answer(&stream, &state).is_some() {});
            }
        });
        Self { url, state }
    }

    /// Cuts every connection, whatever is under way on it.
    pub(crate) fn reset(&self) {
        for stream in self.state.lock().unwrap().open.drain(..) {
            let _closed_already = stream.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn received(&self) -> Vec<(String, u64)> {
        self.state.lock().unwrap().received.clone()
    }
}

/// Answers one request; none when the connection is over.
fn answer(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
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
    let params = &message["params"];
    let result = match message["method"].as_str() {
        Some("initialize") => {
            json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
        }
        Some("tools/list") => {
            json!({"resultType": "complete", "tools": [{"name": "echo", "inputSchema": {"type": "object"}}]})
        }
        Some("tools/call") => {
            let n = params["arguments"]["n"].as_u64().unwrap();
            let name = params["name"].as_str().unwrap().to_owned();
            state.lock().unwrap().received.push((name, n));
            json!({"resultType": "complete", "content": [{"type": "text", "text": n.to_string()}]})
        }
        _ => json!({"resultType": "complete"}),
    };
    let response = if message["id"].is_null() {
        "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned()
    } else {
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        let length = answer.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{answer}"
        )
    };
    let mut stream = stream;
    stream.write_all(response.as_bytes()).ok()
}
