//! What the official conformance suite asks a server for, on the official Rust SDK: over Streamable HTTP, or with
//! the argument `stdio` on standard input and output. What never changes stands in `fixtures.json`.

#![expect(deprecated, reason = "the suite asks for what 2026-07-28 has deprecated, too")]

mod input;
mod tasks;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rmcp::model::*;
use rmcp::service::{RequestContext, SubscriptionContext, SubscriptionSink};
use rmcp::task_manager::TaskManager;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Mutex;
use tokio::time::sleep;

/// Between two notifications of one call.
const PAUSE: Duration = Duration::from_millis(20);

type Context = RequestContext<RoleServer>;

#[derive(Clone)]
struct Fixture {
    data: Arc<Value>,
    tasks: TaskManager,
    states: RequestStateCodec,
    sinks: Arc<Mutex<HashMap<u64, SubscriptionSink>>>,
    next_sink: Arc<AtomicU64>,
}

/// A value of the protocol from its JSON.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

/// A result that asks for nothing more.
fn finished<T: DeserializeOwned>(mut result: Value) -> Result<T, ErrorData> {
    result["resultType"] = json!("complete");
    typed(result)
}

/// A result of one text.
fn text(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}], "isError": false})
}

impl Fixture {
    fn new() -> Self {
        Self {
            data: Arc::new(
                serde_json::from_str(include_str!("fixtures.json")).expect("the fixtures are JSON"),
            ),
            tasks: TaskManager::new(),
            states: RequestStateCodec::new_unchecked(b"a key that is long enough for a test and no secret"),
            sinks: Arc::default(),
            next_sink: Arc::default(),
        }
    }

    /// A list of `fixtures.json`, which may be cached for a minute.
    fn list<T: DeserializeOwned>(&self, name: &str) -> Result<T, ErrorData> {
        finished(json!({name: self.data[name], "ttlMs": 60_000, "cacheScope": "public"}))
    }

    async fn notifies(&self, name: &str, context: &Context) -> Result<(), ErrorData> {
        let log = |level, what: &str| {
            let data = LoggingMessageNotificationParam::new(level, json!(what)).with_logger("fixture");
            context.peer.notify_logging_message(data)
        };
        match name {
            "test_tool_with_logging" => {
                for what in [
                    "Tool execution started",
                    "Tool processing data",
                    "Tool execution completed",
                ] {
                    let _gone = log(LoggingLevel::Info, what).await;
                    sleep(PAUSE).await;
                }
            }
            "test_logging_tool" => {
                if let Some(level) = context.meta.log_level() {
                    let _gone = log(level, "a level was asked for").await;
                }
            }
            "test_tool_with_progress" => {
                for progress in [0.0, 50.0, 100.0] {
                    if let Some(token) = context.meta.get_progress_token() {
                        let data = ProgressNotificationParam::new(token, progress).with_total(100.0);
                        let _gone = context.peer.notify_progress(data).await;
                    }
                    sleep(PAUSE).await;
                }
            }
            "test_trigger_tool_change" | "test_trigger_prompt_change" => {
                let sinks: Vec<_> = self.sinks.lock().await.values().cloned().collect();
                for sink in sinks {
                    let _gone = if name == "test_trigger_tool_change" {
                        sink.notify_tool_list_changed().await
                    } else {
                        sink.notify_prompt_list_changed().await
                    };
                }
            }
            "test_reconnection" => sleep(5 * PAUSE).await,
            "test_missing_capability" => {
                let declared = context.meta.client_capabilities().unwrap_or_default();
                if declared.sampling.is_none() {
                    let missing = ClientCapabilities::builder().enable_sampling().build();
                    return Err(ErrorData::missing_required_client_capability(missing));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Asks the client in the course of a call, as the 2025 revisions do.
    async fn asks(&self, name: &str, arguments: &Value, context: &Context) -> Result<Value, ErrorData> {
        if name == "test_sampling" {
            let prompt = arguments["prompt"].as_str().unwrap_or("Hello");
            let request = typed(json!({
                "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}], "maxTokens": 100
            }))?;
            let said = context.peer.create_message(request).await;
            let said = said.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
            let said = serde_json::to_value(said).unwrap_or_default();
            let content = &said["content"];
            let answer = content["text"].as_str().or(content[0]["text"].as_str());
            return Ok(text(format!("LLM response: {}", answer.unwrap_or("none"))));
        }
        let message = arguments["message"].as_str().unwrap_or("Please fill this in");
        let schema = self.data["schemas"][name].clone();
        let request = typed(json!({"mode": "form", "message": message, "requestedSchema": schema}))?;
        let said = context.peer.create_elicitation(request).await;
        let said = said.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let said = serde_json::to_value(said).unwrap_or_default();
        let (action, content) = (said["action"].as_str().unwrap_or("none"), &said["content"]);
        Ok(text(format!("User response: action={action}, content={content}")))
    }
}

impl ServerHandler for Fixture {
    fn get_tool(&self, name: &str) -> Option<Tool> {
        let tools = self.data["tools"].as_array()?;
        let tool = tools.iter().find(|tool| tool["name"] == name)?;
        typed(tool.clone()).ok()
    }

    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_resources_list_changed()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_logging()
            .enable_completions()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities).with_server_info(Implementation::new("conformance-upstream", "0.0.0"))
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        _context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        let info = self.get_info();
        Ok(InitializeResult::new(info.capabilities)
            .with_protocol_version(request.protocol_version)
            .with_server_info(info.server_info))
    }

    async fn ping(&self, _context: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn set_level(&self, _request: SetLevelRequestParams, _context: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn subscribe(&self, _request: SubscribeRequestParams, _context: Context) -> Result<(), ErrorData> {
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: Context,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.supported_by(&self.get_info().capabilities))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let key = self.next_sink.fetch_add(1, Ordering::Relaxed);
        self.sinks.lock().await.insert(key, context.sink().clone());
        context.cancelled().await;
        self.sinks.lock().await.remove(&key);
        Ok(())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        self.list("tools")
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.list("resources")
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.list("resourceTemplates")
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.list("prompts")
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _context: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        let templated = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let contents = match (self.data["contents"].get(uri), templated) {
            (Some(known), _) => known.clone(),
            (None, Some(id)) => {
                let data = json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"uri": uri, "mimeType": "application/json", "text": data.to_string()})
            }
            (None, None) => {
                let message = format!("Resource not found: {uri}");
                return Err(ErrorData::resource_not_found(message, Some(json!({"uri": uri}))));
            }
        };
        let result = json!({"contents": [contents], "ttlMs": 60_000, "cacheScope": "public"});
        Ok(finished::<ReadResourceResult>(result)?.into())
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.as_str();
        if name == "test_input_required_result_prompt" {
            return input::prompt(request.input_responses.as_ref());
        }
        let messages = if name == "test_prompt_with_arguments" {
            let arguments = json!(request.arguments.unwrap_or_default());
            let said = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
            let text = format!(
                "Prompt with arguments: arg1='{}', arg2='{}'",
                said("arg1"),
                said("arg2")
            );
            json!([{"role": "user", "content": {"type": "text", "text": text}}])
        } else {
            self.data["messages"][name].clone()
        };
        if messages.is_null() {
            return Err(ErrorData::invalid_params(format!("Unknown prompt: {name}"), None));
        }
        Ok(finished::<GetPromptResult>(json!({"messages": messages}))?.into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _context: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let asked = request.argument.value;
        let values = [format!("{asked}1"), format!("{asked}2")];
        finished(json!({"completion": {"values": values, "total": 2, "hasMore": false}}))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.to_string();
        if name.starts_with("test_input_required_result_") || name == "test_streaming_elicitation" {
            return input::tool(&self.states, &request, &context.meta);
        }
        if tasks::TOOLS.contains(&name.as_str()) {
            return tasks::tool(&self.tasks, &request, &context).await;
        }
        let arguments = json!(request.arguments.unwrap_or_default());
        self.notifies(&name, &context).await?;
        let result = match name.as_str() {
            "test_sampling"
            | "test_elicitation"
            | "test_elicitation_sep1034_defaults"
            | "test_elicitation_sep1330_enums" => self.asks(&name, &arguments, &context).await?,
            "test_custom_header" => match arguments["value"].as_str() {
                Some(value) => text(value),
                None => return Err(ErrorData::invalid_params("`value` must be a string", None)),
            },
            _ => match self.data["results"].get(&name) {
                Some(result) => result.clone(),
                None => return Err(ErrorData::invalid_params(format!("Unknown tool: {name}"), None)),
            },
        };
        Ok(finished::<CallToolResult>(result)?.into())
    }

    async fn get_task(&self, request: GetTaskParams, _context: Context) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(&self, request: UpdateTaskParams, _context: Context) -> Result<(), ErrorData> {
        self.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _context: Context) -> Result<(), ErrorData> {
        self.tasks.cancel_task(&request.task_id)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fixture = Fixture::new();
    if std::env::args().nth(1).as_deref() == Some("stdio") {
        let running = fixture.serve(rmcp::transport::stdio()).await?;
        running.waiting().await?;
        return Ok(());
    }
    let service = StreamableHttpService::new(
        move || Ok(fixture.clone()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await?;
    Ok(())
}
