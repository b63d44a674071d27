//! Results of revision 2026-07-28 that ask the client for input before there is an answer.

use rmcp::ErrorData;
use rmcp::model::*;
use serde_json::{Map, Value, json};

use super::{finished, text, typed};

/// A question by a form with one member.
pub(crate) fn question(message: &str, member: &str, kind: &str) -> Value {
    let schema = json!({"type": "object", "properties": {member: {"type": kind}}, "required": [member]});
    json!({"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}})
}

fn completion(prompt: &str) -> Value {
    json!({"method": "sampling/createMessage", "params": {
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}], "maxTokens": 100
    }})
}

fn roots() -> Value {
    json!({"method": "roots/list"})
}

/// A result that asks for these.
pub(crate) fn asks(requests: Value, state: Option<String>) -> Result<InputRequiredResult, ErrorData> {
    let mut result = json!({"resultType": "input_required", "inputRequests": requests});
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    typed(result)
}

/// The client's answer under this key, if it is one.
pub(crate) fn answer<'a>(responses: Option<&'a InputResponses>, key: &str) -> Option<&'a Map<String, Value>> {
    responses?.get(key).and_then(Value::as_object)
}

fn said<'a>(answer: &'a Map<String, Value>, pointer: [&str; 2]) -> &'a str {
    let inner = answer.get(pointer[0]).and_then(|inner| inner.get(pointer[1]));
    inner.and_then(Value::as_str).unwrap_or("nothing")
}

fn done(words: impl Into<String>) -> Result<CallToolResponse, ErrorData> {
    Ok(finished::<CallToolResult>(text(words))?.into())
}

pub(crate) fn prompt(responses: Option<&InputResponses>) -> Result<GetPromptResponse, ErrorData> {
    let Some(answer) = answer(responses, "user_context") else {
        return Ok(asks(
            json!({"user_context": question("Which context?", "context", "string")}),
            None,
        )?
        .into());
    };
    let words = format!(
        "Prompt with elicited context: {}",
        said(answer, ["content", "context"])
    );
    let messages = json!([{"role": "user", "content": {"type": "text", "text": words}}]);
    Ok(finished::<GetPromptResult>(json!({"messages": messages}))?.into())
}

pub(crate) fn tool(
    states: &RequestStateCodec,
    request: &CallToolRequestParams,
    meta: &RequestMetaObject,
) -> Result<CallToolResponse, ErrorData> {
    let responses = request.input_responses.as_ref();
    let sealed = |state: Value| {
        let sealed = states.seal_json(&state);
        sealed
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))
            .map(Some)
    };
    let state: Option<Value> = match request.request_state.as_deref() {
        None => None,
        Some(presented) => {
            let opened = states.open_json(presented);
            Some(opened.map_err(|_| ErrorData::invalid_params("requestState failed verification", None))?)
        }
    };
    let name_asked = question("What is your name?", "name", "string");
    match request
        .name
        .strip_prefix("test_input_required_result_")
        .unwrap_or(&request.name)
    {
        "elicitation" => match answer(responses, "user_name") {
            Some(answer) => done(format!("Hello, {}!", said(answer, ["content", "name"]))),
            None => Ok(asks(json!({"user_name": name_asked}), None)?.into()),
        },
        "sampling" => match answer(responses, "capital_question") {
            Some(answer) => done(format!(
                "Sampling response: {}",
                said(answer, ["content", "text"])
            )),
            None => {
                let asked = json!({"capital_question": completion("What is the capital of France?")});
                Ok(asks(asked, None)?.into())
            }
        },
        "list_roots" => match answer(responses, "client_roots") {
            Some(answer) => done(format!("Client roots: {}", json!(answer.get("roots")))),
            None => Ok(asks(json!({"client_roots": roots()}), None)?.into()),
        },
        "request_state" | "tampered_state" => match state {
            Some(_) => done("Confirmed: state-ok"),
            None => {
                let asked = json!({"confirm": question("Please confirm", "ok", "boolean")});
                Ok(asks(asked, sealed(json!({"stage": "confirm"}))?)?.into())
            }
        },
        "multiple_inputs" => {
            let keys = ["user_name", "greeting", "client_roots"];
            if state.is_some() && keys.iter().all(|key| answer(responses, key).is_some()) {
                return done("All inputs received");
            }
            let asked = json!({
                "user_name": name_asked, "greeting": completion("Generate a greeting"), "client_roots": roots()
            });
            Ok(asks(asked, sealed(json!({"stage": "gather"}))?)?.into())
        }
        "multi_round" => match state.map_or(0, |state| state["round"].as_i64().unwrap_or(0)) {
            0 => Ok(asks(json!({"step1": name_asked}), sealed(json!({"round": 1}))?)?.into()),
            1 => {
                let asked = json!({"step2": question("Which colour?", "color", "string")});
                Ok(asks(asked, sealed(json!({"round": 2}))?)?.into())
            }
            _ => done("Multi-round flow complete"),
        },
        "capabilities" if responses.is_some() => done("Capability-aware flow complete"),
        "capabilities" => {
            let declared = meta.client_capabilities().unwrap_or_default();
            let mut asked = Map::new();
            if declared.elicitation.is_some() {
                asked.insert("user_name".to_owned(), name_asked);
            }
            if declared.sampling.is_some() {
                asked.insert("greeting".to_owned(), completion("Generate a greeting"));
            }
            if declared.roots.is_some() {
                asked.insert("client_roots".to_owned(), roots());
            }
            if asked.is_empty() {
                return done("The client can be asked for nothing");
            }
            Ok(asks(Value::Object(asked), None)?.into())
        }
        "test_streaming_elicitation" => {
            let asked = json!({"streaming_elicitation": question("Provide a value", "value", "string")});
            Ok(asks(asked, None)?.into())
        }
        other => Err(ErrorData::invalid_params(format!("Unknown tool: {other}"), None)),
    }
}
