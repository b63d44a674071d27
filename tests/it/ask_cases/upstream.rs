//! What the upstream does of its own, and what it must have received.

use gatewright::gate::ask::sealed::{KEY_PREFIX, STATE_PREFIX};
use serde_json::{Value, json};

use super::case::{ExpectResponse, ExpectUpstream};
use super::run::Run;
use crate::support::upstream::{Received, raw_member};

impl Run {
    /// What reached the upstream since the last look. Looking does not move on.
    pub(super) fn fresh(&self) -> Vec<Received> {
        let elsewhere = self.elsewhere();
        assert!(elsewhere.is_empty(), "{}: elsewhere {elsewhere:?}", self.at);
        self.upstream().tape().split_off(self.looked_at)
    }

    pub(super) async fn expect_upstream(&mut self, expected: &Value) {
        let fresh = self.fresh();
        let calls = fresh
            .iter()
            .filter(|received| received.method() == "tools/call")
            .count();
        let at = self.at.clone();
        match expected.as_str() {
            Some("nothing" | "nothing more") => {
                // A stream that the client closes is a cancellation, and reaches the upstream as one.
                let other = fresh
                    .iter()
                    .find(|received| !self.stream_closed || received.method() != "notifications/cancelled");
                assert!(other.is_none(), "{at}: nothing, but {fresh:?}");
            }
            Some("the call is cancelled") => {
                let [cancelled] = fresh.as_slice() else {
                    panic!("{at}: one message, but {fresh:?}");
                };
                let call = self.upstream().calls().pop().expect("a call was forwarded");
                assert_eq!("notifications/cancelled", cancelled.method(), "{at}");
                assert_eq!(
                    call.message["id"], cancelled.message["params"]["requestId"],
                    "{at}"
                );
            }
            Some("at most one call, and none when refused") => {
                let ran = self.ran.expect("one of two was expected before");
                assert_eq!((usize::from(ran), calls), (calls, fresh.len()), "{at}: {fresh:?}");
            }
            Some("no tools/call deploy") => {
                let tape = self.upstream().tape();
                let deployed = tape.iter().find(|received| {
                    received.method() == "tools/call" && received.message["params"]["name"] == "deploy"
                });
                assert!(deployed.is_none(), "{at}: {deployed:?}");
                assert!(fresh.is_empty(), "{at}: nothing, but {fresh:?}");
            }
            Some(unknown) => panic!("{at}: no known expectation `{unknown}`"),
            None => {
                let expected: ExpectUpstream =
                    serde_json::from_value(expected.clone()).expect("known members only");
                check(&fresh, &expected, &at);
            }
        }
        self.looked_at += fresh.len();
    }

    /// An event that begins with `upstream:`.
    pub(super) async fn upstream_does(&mut self, what: &str) {
        let upstream = self.upstream().clone();
        match what.split_once(' ') {
            None if what == "answer" => upstream.release().await,
            Some(("progress", "0 of 10")) => {
                let calls = upstream.calls();
                let call = calls.last().expect("a call runs");
                let token = &call.message["params"]["_meta"]["progressToken"];
                let params = json!({"progressToken": token, "progress": 0, "total": 10});
                let line = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
                upstream.say(&line.to_string()).await;
            }
            Some(("elicitation/create", how)) => {
                let (id, what) = how
                    .strip_prefix("id=")
                    .and_then(|how| how.split_once(' '))
                    .expect("an id");
                let params = self.elicitation(what);
                let line = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"elicitation/create","params":{params}}}"#
                );
                upstream.say(&line).await;
            }
            Some(("sampling/createMessage", how)) => {
                let id = how.strip_prefix("id=").expect("an id");
                let params = json!({"messages": [], "maxTokens": 1});
                let line = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{params}}}"#
                );
                upstream.say(&line).await;
            }
            Some(("input_required", how)) => {
                let result = input_required(how);
                let asked = raw_member(&result, "inputRequests").expect("requests");
                self.captured.set("what the upstream asked", &asked);
                upstream.release_with(&result).await;
            }
            Some(_) | None => panic!("{}: the upstream cannot do `{what}`", self.at),
        }
        self.harness().settle().await;
    }

    fn elicitation(&self, what: &str) -> Value {
        if what == OUR_MARK {
            let schema = json!({"type": "object", "properties": {"approve": {"type": "boolean"}}});
            return json!({"message": "May this run?", "requestedSchema": schema, "_meta": our_mark()});
        }
        if let Some(message) = what.strip_prefix("message=") {
            let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
            return json!({"message": message, "requestedSchema": schema});
        }
        let name = what
            .strip_prefix("copies the message and schema of ")
            .unwrap_or_else(|| panic!("{}: no known question `{what}`", self.at));
        let copied = |member: &str| -> Value {
            let captured = self.captured.get(&format!("{member} of {name}"));
            serde_json::from_str(captured).expect("JSON")
        };
        json!({"message": copied("message"), "requestedSchema": copied("schema")})
    }
}

/// The end of an event in which the upstream dresses like this host.
const OUR_MARK: &str = "with our mark";

fn our_mark() -> Value {
    json!({"gatewright/question": {"decision_id": "0".repeat(32), "tool": "deploy"}})
}

/// `inputRequests={u1:Which colour?} requestState=UP-STATE`, or `… no requestState`.
fn input_required(how: &str) -> String {
    let (requests, state) = how
        .strip_prefix("inputRequests={")
        .and_then(|how| how.split_once("} "))
        .expect("requests, then a state");
    let (key, message) = requests.split_once(':').expect("key:message");
    let schema = json!({"type": "object", "properties": {"colour": {"type": "string"}}});
    let mut params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let state = match state.strip_suffix(OUR_MARK) {
        Some(state) => {
            params["_meta"] = our_mark();
            state.trim_end()
        }
        None => state,
    };
    let mut result = json!({
        "resultType": "input_required",
        "inputRequests": {key: {"method": "elicitation/create", "params": params}}
    });
    match state.split_once("requestState=") {
        Some(("", state)) => result["requestState"] = json!(state),
        Some(_) | None => assert_eq!("no requestState", state, "a state or none"),
    }
    result.to_string()
}

fn check(fresh: &[Received], expected: &ExpectUpstream, at: &str) {
    let ExpectUpstream {
        call,
        times,
        lacks,
        input_responses,
        request_state,
        response,
    } = expected;
    if let Some(response) = response {
        assert!(call.is_none() && times.is_none(), "{at}: one thing at a time");
        return check_response(fresh, response, at);
    }
    let call = call.as_ref().expect("a call or a response");
    let lines: Vec<&str> = fresh.iter().map(|received| received.line.as_str()).collect();
    assert_eq!(times.unwrap_or(1), fresh.len(), "{at}: {lines:?}");
    for received in fresh {
        assert_eq!("tools/call", received.method(), "{at}");
        assert_eq!(
            Some(call.name.as_str()),
            received.message["params"]["name"].as_str(),
            "{at}"
        );
        assert_eq!(
            Some(&call.arguments),
            received.param("arguments").as_ref(),
            "{at}"
        );
        let ours = [KEY_PREFIX, STATE_PREFIX].map(|ours| received.line.contains(ours));
        assert_eq!([false, false], ours, "{at}: nothing of ours goes upstream");
        for member in lacks {
            assert_eq!(None, received.param(member), "{at}: no `{member}`");
        }
        if let Some(raw) = input_responses {
            assert_eq!(Some(raw), received.param("inputResponses").as_ref(), "{at}");
        }
        if let Some(state) = request_state {
            assert_eq!(
                Some(state.as_str()),
                received.message["params"]["requestState"].as_str(),
                "{at}"
            );
        }
    }
}

fn check_response(fresh: &[Received], expected: &ExpectResponse, at: &str) {
    let [received] = fresh else {
        panic!("{at}: one response, but {fresh:?}");
    };
    assert_eq!(
        None,
        received.message.get("method"),
        "{at}: a response has no method"
    );
    assert_eq!(expected.id, received.message["id"], "{at}: the upstream's own id");
    let member = |name| raw_member(&received.line, name);
    let (result, error) = (member("result"), &received.message["error"]["code"]);
    match expected.error_code {
        Some(code) => assert_eq!((None, &json!(code)), (result, error), "{at}: an error"),
        None => {
            assert_eq!(None, member("error"), "{at}: no error");
            assert!(result.is_some(), "{at}: {}", received.line);
            if let Some(raw) = &expected.result_bytes {
                assert_eq!(Some(raw), result.as_ref(), "{at}");
            }
        }
    }
}
