//! The tools of the tasks extension.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::*;
use rmcp::task_manager::{TaskExit, TaskManager, TaskOptions};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::input::{answer, asks, question};
use super::{Context, finished, text, typed};

pub(crate) const TOOLS: &[&str] = &[
    "greet",
    "slow_compute",
    "failing_job",
    "protocol_error_job",
    "confirm_delete",
    "multi_input",
    "test_tool_with_task",
];

/// Tools that only a client can call which knows tasks.
const NEED_TASKS: &[&str] = &[
    "failing_job",
    "test_tool_with_task",
    "confirm_delete",
    "multi_input",
];

fn result(value: Value) -> Result<CallToolResult, ErrorData> {
    finished(value)
}

fn input(request: Value) -> Result<InputRequest, ErrorData> {
    typed(request)
}

pub(crate) async fn tool(
    tasks: &TaskManager,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<CallToolResponse, ErrorData> {
    let name = request.name.to_string();
    let knows_tasks = context
        .client_capabilities()
        .is_some_and(|declared| declared.supports_tasks());
    if NEED_TASKS.contains(&name.as_str()) && !knows_tasks {
        let missing = ClientCapabilities::builder().enable_tasks().build();
        return Err(ErrorData::missing_required_client_capability(missing));
    }
    let arguments = json!(request.arguments.clone().unwrap_or_default());
    if name == "greet" {
        let who = arguments["name"].as_str().unwrap_or("friend");
        return Ok(result(text(format!("Hello, {who}!")))?.into());
    }
    let mut user_name = None;
    if name == "test_tool_with_task" {
        let Some(answered) = answer(request.input_responses.as_ref(), "user_name") else {
            return Ok(asks(
                json!({"user_name": question("What is your name?", "name", "string")}),
                None,
            )?
            .into());
        };
        user_name = Some(
            json!(answered)["content"]["name"]
                .as_str()
                .unwrap_or("friend")
                .to_owned(),
        );
    }
    if !knows_tasks {
        return run(&name, &arguments).await.map(Into::into);
    }
    let task = tasks.spawn(TaskOptions::default(), move |task| {
        Box::pin(async move {
            match name.as_str() {
                "confirm_delete" => {
                    let asked =
                        input(question("Delete it?", "confirm", "boolean")).map_err(TaskExit::Error)?;
                    let answer = task.request_input("confirm", asked).await?;
                    let answer = json!(answer)["content"]["confirm"].clone();
                    result(text(format!("confirmed = {answer}"))).map_err(TaskExit::Error)
                }
                "multi_input" => {
                    let asked =
                        |what: &str| input(question(what, "value", "string")).map_err(TaskExit::Error);
                    let first = task.request_input("input-a", asked("Provide value A")?);
                    let second = task.request_input("input-b", asked("Provide value B")?);
                    let (first, second) = tokio::join!(first, second);
                    let value = |answer: Value| answer["content"]["value"].clone();
                    let (first, second) = (value(json!(first?)), value(json!(second?)));
                    result(text(format!("a = {first}, b = {second}"))).map_err(TaskExit::Error)
                }
                "test_tool_with_task" => {
                    sleep(Duration::from_millis(200)).await;
                    result(text(format!("Hello, {}! (async)", user_name.unwrap_or_default())))
                        .map_err(TaskExit::Error)
                }
                _ => tokio::select! {
                    () = task.cancelled() => Err(TaskExit::Cancelled),
                    done = run(&name, &arguments) => done.map_err(TaskExit::Error),
                },
            }
        })
    });
    Ok(CreateTaskResult::new(task).into())
}

/// The work of a tool that can do without a task.
async fn run(name: &str, arguments: &Value) -> Result<CallToolResult, ErrorData> {
    match name {
        "slow_compute" => {
            let seconds = arguments["seconds"].as_f64().unwrap_or(1.0);
            sleep(Duration::from_secs_f64(seconds)).await;
            result(text(format!("done after {seconds} s")))
        }
        "failing_job" => {
            sleep(Duration::from_secs(1)).await;
            let mut failed = text("this job fails on purpose");
            failed["isError"] = json!(true);
            result(failed)
        }
        _ => {
            sleep(Duration::from_millis(200)).await;
            Err(ErrorData::internal_error(
                "this job fails in the protocol on purpose",
                None,
            ))
        }
    }
}
