//! A fake upstream in memory: serves any method and tool with a good result, records all it
//! receives, and answers a `tools/call` only when it is told to.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use gatewright::upstream::{Incoming, Link};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

/// The text in every good result of a `tools/call`, so that nobody else's can be taken for it.
pub(crate) const GOOD_TEXT: &str = "made by the fake upstream";

/// One line that the upstream received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) message: Value,
}

impl Received {
    pub(crate) fn method(&self) -> &str {
        self.message["method"].as_str().unwrap_or_default()
    }

    /// The raw text of a member of `params`.
    pub(crate) fn param(&self, name: &str) -> Option<String> {
        raw_member(&raw_member(&self.line, "params")?, name)
    }

    /// A listing of the host itself, which no client asked for.
    pub(super) fn is_own_listing(&self) -> bool {
        self.message["params"]["_meta"]["gatewright/listing"] == json!(true)
    }
}

/// The raw text of a member of a JSON object.
pub(crate) fn raw_member(object: &str, name: &str) -> Option<String> {
    let members: std::collections::HashMap<String, Box<RawValue>> = serde_json::from_str(object).ok()?;
    members.get(name).map(|value| value.get().to_owned())
}

/// A message, without the members whose values `serde_json` does not take: an upstream may say anything that is JSON.
pub(crate) fn read(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|_odd| {
        let members: std::collections::HashMap<String, Box<RawValue>> =
            serde_json::from_str(line).expect("the host sends JSON");
        let read = |(name, value): (String, Box<RawValue>)| {
            let value: Option<Value> = serde_json::from_str(value.get()).ok();
            Some((name, value?))
        };
        members.into_iter().filter_map(read).collect()
    })
}

#[derive(Default)]
struct State {
    tape: Vec<Received>,
    held: Vec<Value>,
    tools: Vec<Value>,
    /// In the place of the usual capabilities.
    capabilities: Option<Value>,
    stateless: bool,
    script: Option<Vec<String>>,
    closed: bool,
}

/// The far side of a link.
#[derive(Clone)]
pub(crate) struct FakeUpstream {
    state: Arc<Mutex<State>>,
    /// Gone together with the upstream.
    bytes: Arc<Mutex<Option<mpsc::Sender<Incoming>>>>,
    end: Arc<Mutex<Option<oneshot::Sender<String>>>>,
    gone: Arc<tokio::sync::Notify>,
}

impl FakeUpstream {
    /// Starts it; `script` answers every gated request with these lines instead (`@ID@`, `@EXIT@`).
    pub(crate) fn start(stateless: bool, script: Option<Vec<String>>) -> (Self, Link) {
        let (link, mut lines, bytes, end) = Link::in_memory();
        let state = State {
            stateless,
            script,
            ..State::default()
        };
        let upstream = Self {
            state: Arc::new(Mutex::new(state)),
            bytes: Arc::new(Mutex::new(Some(bytes))),
            end: Arc::new(Mutex::new(Some(end))),
            gone: Arc::default(),
        };
        let task = upstream.clone();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = task.gone.notified() => break,
                    line = lines.recv() => match line {
                        Some(message) => task.receive(&message.into_line()).await,
                        None => {
                            task.state.lock().unwrap().closed = true;
                            break;
                        }
                    },
                }
            }
        });
        (upstream, link)
    }

    pub(crate) fn list_tool(&self, tool: Value) {
        self.state.lock().unwrap().tools.push(tool);
    }

    /// From now on it declares these capabilities.
    pub(crate) fn declare(&self, capabilities: Value) {
        self.state.lock().unwrap().capabilities = Some(capabilities);
    }

    /// What a client's requests left here: everything but the host's own listings.
    pub(crate) fn tape(&self) -> Vec<Received> {
        let state = self.state.lock().unwrap();
        state
            .tape
            .iter()
            .filter(|received| !received.is_own_listing())
            .cloned()
            .collect()
    }

    /// Every `tools/call` received so far.
    pub(crate) fn calls(&self) -> Vec<Received> {
        self.tape()
            .into_iter()
            .filter(|received| received.method() == "tools/call")
            .collect()
    }

    /// Whether it was told that nothing more comes.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().unwrap().closed
    }

    /// Sends a line of its own.
    pub(crate) async fn say(&self, line: &str) {
        let bytes = self.bytes.lock().unwrap().clone();
        let bytes = bytes.expect("the upstream is there");
        let line = Bytes::from(format!("{line}\n"));
        bytes.send(Incoming::Bytes(line)).await.expect("the host reads");
    }

    /// Answers every `tools/call` that is held.
    pub(crate) async fn release(&self) {
        let held = std::mem::take(&mut self.state.lock().unwrap().held);
        for id in held {
            let mut result = json!({"content": [{"type": "text", "text": GOOD_TEXT}], "isError": false});
            if self.state.lock().unwrap().stateless {
                result["resultType"] = json!("complete");
            }
            self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
                .await;
        }
    }

    /// Answers the held call with this raw result.
    pub(crate) async fn release_with(&self, result: &str) {
        let held = std::mem::take(&mut self.state.lock().unwrap().held);
        assert_eq!(1, held.len(), "one call is held");
        self.say(&format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#,
            held[0]
        ))
        .await;
    }

    /// Answers the next gated request with these lines, as a script does.
    pub(crate) fn answer_next_with(&self, script: Vec<String>) {
        self.state.lock().unwrap().script = Some(script);
    }

    async fn receive(&self, line: &[u8]) {
        let line = String::from_utf8(line.to_vec()).expect("the host sends UTF-8");
        let line = line.strip_suffix('\n').expect("a line ends").to_owned();
        assert!(!line.contains(['\n', '\r']), "one frame is one line: {line}");
        let message: Value = serde_json::from_str(&line).expect("the host forwards JSON");
        let received = Received { line, message };
        let own = received.is_own_listing();
        self.state.lock().unwrap().tape.push(received.clone());
        let Some(id) = received
            .message
            .get("id")
            .filter(|_| received.message.get("method").is_some())
        else {
            return;
        };
        let script = self.state.lock().unwrap().script.clone();
        if let Some(script) = script
            .filter(|_| !own && received.method() != "initialize" && received.method() != "server/discover")
        {
            return self.play(&script, id).await;
        }
        if received.method() == "tools/call" {
            self.state.lock().unwrap().held.push(id.clone());
            return;
        }
        let result = self.result(&received);
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
            .await;
    }

    async fn play(&self, script: &[String], id: &Value) {
        // A script answers once; afterwards the upstream is a good one again.
        self.state.lock().unwrap().script = None;
        for line in script {
            if line == "@EXIT@" {
                let end = self.end.lock().unwrap().take().expect("it ends once");
                *self.bytes.lock().unwrap() = None;
                end.send("exit status: 1".to_owned()).unwrap();
                self.gone.notify_one();
                continue;
            }
            let line = line
                .replace("@ID_AS_OTHER_TYPE@", &id.to_string())
                .replace("@ID@", &id.to_string());
            self.say(&line).await;
        }
    }

    fn result(&self, received: &Received) -> Value {
        let state = self.state.lock().unwrap();
        let mut result = match received.method() {
            "initialize" => {
                let asked = &received.message["params"]["protocolVersion"];
                let known = ["2025-06-18", "2025-11-25"].iter().any(|known| asked == known);
                json!({
                    "protocolVersion": if known { asked.clone() } else { json!("2025-11-25") },
                    "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}},
                    "serverInfo": {"name": "fake", "version": "1"}
                })
            }
            "server/discover" => json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "fake", "version": "1"}
            }),
            "tools/list" => json!({"tools": state.tools}),
            "tasks/list" => json!({"tasks": []}),
            _ => json!({}),
        };
        if let (Some(capabilities), Some(declared)) = (&state.capabilities, result.get_mut("capabilities")) {
            *declared = capabilities.clone();
        }
        if state.stateless {
            result["resultType"] = json!("complete");
        }
        result
    }
}
