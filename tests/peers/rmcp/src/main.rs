//! Drives the official Rust client, as `tests/peers/client.py` does with the Python one; see there.

#![expect(
    deprecated,
    reason = "sampling is, and clients of the 2025 revisions offer it"
)]

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::model::{
    ClientConfig, CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult,
    ErrorData, ProgressNotificationParam, ProtocolVersion,
};
use rmcp::service::{NotificationContext, RequestContext, RunningService, ServiceError};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt as _, RoleClient};
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// A client that waits for ever fails its test instead of holding it up.
const LATE: Duration = Duration::from_secs(60);

/// Stands for the person and for the model.
struct Peer {
    /// What the person does with a question; none for a client that cannot show one.
    elicitation: Option<String>,
    questions: Arc<Mutex<Vec<String>>>,
    progress: mpsc::UnboundedSender<ProgressNotificationParam>,
}

impl ClientHandler for Peer {
    async fn create_message(
        &self,
        _params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let content = json!({"type": "text", "text": "as sampled"});
        read(json!({"role": "assistant", "content": content, "model": "peer"}))
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams {
            message,
            requested_schema,
            ..
        } = params
        else {
            return read(json!({"action": "decline"}));
        };
        self.questions
            .lock()
            .expect("nobody panics with it")
            .push(message);
        for field in ["text", "name"] {
            if requested_schema.properties.contains_key(field) {
                return read(json!({"action": "accept", "content": {field: "as asked"}}));
            }
        }
        match self.elicitation.as_deref() {
            Some("approve") => read(json!({"action": "accept", "content": {"approve": true}})),
            Some("empty") => read(json!({"action": "accept", "content": {}})),
            Some("silence") | None => std::future::pending().await,
            Some(action) => read(json!({"action": action})),
        }
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        let _nobody_asked = self.progress.send(params);
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = json!({"sampling": {}});
        if self.elicitation.is_some() {
            capabilities["elicitation"] = json!({"form": {}});
        }
        let info = json!({"name": "peer", "version": "3"});
        read(json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info}))
            .expect("the configuration of a client")
    }
}

/// Types of the protocol are made of JSON, as the package's own have no public constructors for everything.
fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// What happened at one step.
async fn step(
    client: &RunningService<RoleClient, Peer>,
    progress: &mut mpsc::UnboundedReceiver<ProgressNotificationParam>,
    what: &Value,
) -> Result<Value, ServiceError> {
    match what["do"].as_str() {
        Some("list_tools") => {
            let tools = client.list_all_tools().await?;
            Ok(json!({"tools": tools.iter().map(|tool| &tool.name).collect::<Vec<_>>()}))
        }
        Some("list_prompts") => {
            let prompts = client.list_all_prompts().await?;
            Ok(json!({"prompts": prompts.iter().map(|prompt| &prompt.name).collect::<Vec<_>>()}))
        }
        Some("read_resource") => {
            let params = read(json!({"uri": what["uri"]})).map_err(ServiceError::McpError)?;
            let result = json!(client.read_resource(params).await?);
            Ok(json!({"text": result["contents"][0]["text"]}))
        }
        _ => {
            let params = json!({"name": what["name"], "arguments": what["arguments"]});
            let params = read(params).map_err(ServiceError::McpError)?;
            let result = json!(client.call_tool(params).await?);
            let mut told = Vec::new();
            // It is handed over on a task of its own, and may come after the result.
            if what["progress"] == true {
                while let Some(made) = progress.recv().await {
                    told.push(made.progress);
                    if made.total == Some(made.progress) {
                        break;
                    }
                }
            }
            let parts = result["content"].as_array().cloned().unwrap_or_default();
            let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            Ok(json!({
                "is_error": result["isError"] == true,
                "text": text,
                "refusal": result["_meta"]["gatewright/refusal"],
                "progress": told,
            }))
        }
    }
}

async fn run(script: &Value) -> Result<Value, Box<dyn Error>> {
    let questions = Arc::<Mutex<Vec<String>>>::default();
    let (told, mut progress) = mpsc::unbounded_channel();
    let peer = Peer {
        elicitation: script["elicitation"].as_str().map(str::to_owned),
        questions: Arc::clone(&questions),
        progress: told,
    };
    let lifecycle = if script["legacy"] == true {
        ClientLifecycleMode::Initialize
    } else {
        ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            legacy_version: None,
        }
    };
    let client = match script["url"].as_str() {
        Some(url) => {
            let transport = StreamableHttpClientTransport::from_uri(url);
            peer.serve_with_lifecycle(transport, lifecycle).await?
        }
        None => {
            let words: Vec<String> = serde_json::from_value(script["command"].clone())?;
            let variables: std::collections::HashMap<String, String> =
                serde_json::from_value(script["env"].clone())?;
            let (program, arguments) = words.split_first().ok_or("there is no command")?;
            let mut command = tokio::process::Command::new(program);
            command.args(arguments).env_clear().envs(variables);
            peer.serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle)
                .await?
        }
    };
    let mut outcomes = Vec::new();
    for what in script["steps"].as_array().into_iter().flatten() {
        outcomes.push(match step(&client, &mut progress, what).await {
            Ok(outcome) => outcome,
            Err(ServiceError::McpError(error)) => json!({"error": error.code.0, "message": error.message}),
            Err(error) => return Err(error.into()),
        });
    }
    let revision = client.peer_info().map(|info| info.protocol_version.to_string());
    // A session of the 2025 revisions is ended by its client.
    client.cancel().await?;
    let questions = questions.lock().expect("nobody panics with it").clone();
    Ok(json!({"revision": revision, "outcomes": outcomes, "questions": questions}))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let script = std::env::args().nth(1).ok_or("there is no script")?;
    let outcome = tokio::time::timeout(LATE, run(&serde_json::from_str(&script)?)).await??;
    println!("{outcome}");
    Ok(())
}
