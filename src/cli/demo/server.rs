//! A small MCP server in memory: notes, and a tool that deploys.

use std::sync::{Arc, Mutex, PoisonError};

use gatewright::upstream::{Incoming, Link, Outgoing};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// What the server did, call by call: the proof of what reached it.
pub(super) type Log = Arc<Mutex<Vec<String>>>;

/// Starts the server. It ends with its link.
pub(super) fn start() -> (Link, Log) {
    let (link, lines, bytes, ending) = Link::in_memory();
    let log = Log::default();
    tokio::spawn(serve(lines, bytes, ending, Arc::clone(&log)));
    (link, log)
}

async fn serve(
    mut lines: mpsc::Receiver<Outgoing>,
    bytes: mpsc::Sender<Incoming>,
    ending: oneshot::Sender<String>,
    log: Log,
) {
    let mut notes = vec!["Buy milk".to_owned(), "Call Ada".to_owned()];
    while let Some(message) = lines.recv().await {
        let Ok(message) = serde_json::from_slice::<Value>(&message.into_line()) else {
            continue;
        };
        let Some(id) = message.get("id") else { continue };
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "notes", "version": env!("CARGO_PKG_VERSION")},
            }),
            "tools/list" => json!({"tools": tools()}),
            "tools/call" => {
                let (name, arguments) = (&message["params"]["name"], &message["params"]["arguments"]);
                let name = name.as_str().unwrap_or_default();
                log.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(format!("{name} {arguments}"));
                json!({"content": [{"type": "text", "text": call(name, arguments, &mut notes)}]})
            }
            _ => json!({}),
        };
        let answer = format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result}));
        if bytes.send(Incoming::Bytes(answer.into())).await.is_err() {
            break;
        }
    }
    let _nobody_asks = ending.send("its input ended".to_owned());
}

fn tools() -> Value {
    let any = json!({"type": "object"});
    json!([
        {"name": "list_notes", "description": "List the notes", "inputSchema": any},
        {"name": "add_note", "description": "Add a note", "inputSchema": any},
        {"name": "delete_notes", "description": "Delete every note", "inputSchema": any,
         "annotations": {"destructiveHint": true}},
        {"name": "deploy", "description": "Deploy a service", "inputSchema": any},
        {"name": "crash", "description": "A tool on which a policy crashes", "inputSchema": any},
        {"name": "spin", "description": "A tool on which a policy never answers", "inputSchema": any},
    ])
}

fn call(name: &str, arguments: &Value, notes: &mut Vec<String>) -> String {
    match name {
        "list_notes" => notes.join(", "),
        "add_note" => {
            notes.push(arguments["text"].as_str().unwrap_or_default().to_owned());
            "noted".to_owned()
        }
        "delete_notes" => {
            notes.clear();
            "all notes are gone".to_owned()
        }
        "deploy" => format!("deployed to {}", arguments["target"].as_str().unwrap_or_default()),
        other => format!("`{other}` did its work"),
    }
}
