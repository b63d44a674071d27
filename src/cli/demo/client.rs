//! The client of the demonstration: calls tools through the gate, and answers its questions.

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use gatewright::wire::line::Line;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// What a person does with a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Approve,
    Decline,
    /// Nobody is there.
    Silence,
}

/// One session with the gate.
pub(super) struct Client {
    lines: mpsc::Sender<Line>,
    from_gate: mpsc::Receiver<Bytes>,
    next_id: u64,
}

impl Client {
    /// Opens a session, as a client that can show questions.
    pub(super) async fn open(lines: mpsc::Sender<Line>, from_gate: mpsc::Receiver<Bytes>) -> Result<Self> {
        let mut client = Self {
            lines,
            from_gate,
            next_id: 1,
        };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "demo", "version": env!("CARGO_PKG_VERSION")},
        });
        client
            .request("initialize", &params, |_| Ok(Reply::Silence))
            .await?;
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await?;
        Ok(client)
    }

    /// Calls a tool. A question of the gate on the way is answered with what `asked` says.
    pub(super) async fn call(
        &mut self,
        tool: &str,
        arguments: &Value,
        asked: impl FnMut(&str) -> Result<Reply>,
    ) -> Result<Value> {
        self.request(
            "tools/call",
            &json!({"name": tool, "arguments": arguments}),
            asked,
        )
        .await
    }

    async fn request(
        &mut self,
        method: &str,
        params: &Value,
        mut asked: impl FnMut(&str) -> Result<Reply>,
    ) -> Result<Value> {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        loop {
            let line = self
                .from_gate
                .recv()
                .await
                .context("the gate ended the session")?;
            let message: Value = serde_json::from_slice(&line).context("the gate sent no JSON")?;
            if message["method"] == "elicitation/create" {
                let reply = asked(message["params"]["message"].as_str().unwrap_or_default())?;
                self.reply(&message["id"], reply).await?;
            } else if message["id"] == id {
                if let Some(error) = message.get("error") {
                    bail!("the gate answered {error}");
                }
                return Ok(message["result"].clone());
            }
        }
    }

    async fn reply(&mut self, id: &Value, reply: Reply) -> Result<()> {
        let result = match reply {
            Reply::Approve => json!({"action": "accept", "content": {"approve": true}}),
            Reply::Decline => json!({"action": "decline"}),
            Reply::Silence => return Ok(()),
        };
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}))
            .await
    }

    async fn send(&self, message: &Value) -> Result<()> {
        let line = Line::Frame(Bytes::from(message.to_string()));
        self.lines.send(line).await.context("the gate ended the session")
    }
}
