//! What the client must have got.

use base64::Engine as _;
use gatewright::decision::Seam;
use gatewright::gate::ask::question::FIRST_LINE;
use gatewright::gate::ask::sealed::{KEY_PREFIX, STATE_PREFIX};
use serde_json::{Value, json};

use super::case::{ExpectClient, InputRequired, On};
use super::run::Run;
use crate::support::refusals::{refusal, same};
use crate::support::upstream::raw_member;

/// The `_meta` key of a question of this host, and of nothing else.
const OWN_MARK: &str = "gatewright/question";

/// How a question of the upstream begins: by default it is marked as the upstream's.
const MARK: &str = "The server upstream asks:\n\n";

/// The same within a JSON string.
const MARK_JSON: &str = r"The server upstream asks:\n\n";

impl Run {
    pub(super) async fn expect_client(&mut self, expected: &Value) {
        if expected == "nothing" {
            let at = self.at.clone();
            assert_eq!(&[] as &[Value], self.harness().untaken(), "{at}: nothing");
            return;
        }
        let expected: ExpectClient = serde_json::from_value(expected.clone()).expect("known members only");
        if expected.nothing == Some(true) {
            let at = self.at.clone();
            assert_eq!(&[] as &[Value], self.harness().untaken(), "{at}: nothing");
        } else if let Some(method) = &expected.no_notification {
            let at = self.at.clone();
            let found = self.harness().heard().iter().find(|line| line.contains(method));
            assert_eq!(None, found, "{at}: no `{method}`");
        } else if let Some(either) = &expected.one_of {
            self.upstream_answers().await;
            let ran = either.iter().find(|one| self.try_answer(one).is_ok());
            let ran = ran.unwrap_or_else(|| panic!("{}: neither in {:?}", self.at, self.untaken()));
            self.ran = Some(ran.result == Some(true));
        } else if let Some(either) = &expected.exactly_one_of {
            let other = expected.other.as_ref().expect("what the others get");
            self.expect_exactly_one(either, other).await;
        } else if let Some(status) = expected.http_status {
            let at = self.at.clone();
            assert_eq!(Some(status), self.harness().over_http().last_status(), "{at}");
            let said = self.harness().take(|message| message.get("error").is_some());
            assert!(said.is_some(), "{at}: it says why");
        } else if let Some(name) = &expected.question {
            self.expect_question(name, &expected);
        } else if let Some(required) = &expected.input_required {
            self.expect_input_required(required, &expected);
        } else if let Some(method) = &expected.notification {
            self.expect_notification(method, &expected);
        } else if let Some(name) = &expected.upstream_question {
            self.expect_upstream_request("elicitation/create", name, &expected);
        } else if let Some(method) = &expected.upstream_request {
            let name = expected.called.as_ref().expect("what it is called");
            self.expect_upstream_request(method, name, &expected);
        } else {
            let id = id_token(&expected);
            let answered = self.untaken().iter().any(|message| token(message) == id);
            if expected.result == Some(true) && !answered {
                self.upstream_answers().await;
            }
            if let Err(faults) = self.try_answer(&expected) {
                panic!("{}: {faults:?} of {:?}", self.at, self.untaken());
            }
        }
    }

    /// The upstream answers what it holds, as late as it may.
    async fn upstream_answers(&mut self) {
        self.upstream().clone().release().await;
        self.harness().settle().await;
    }

    /// Of several calls one runs, and the others are told why not.
    async fn expect_exactly_one(&mut self, either: &[ExpectClient], other: &ExpectClient) {
        self.upstream_answers().await;
        let mut ran = 0;
        for one in either {
            if self.try_answer(one).is_ok() {
                ran += 1;
                continue;
            }
            let refused = ExpectClient {
                id: one.id.clone(),
                error_code: other.error_code,
                refused: other.refused.clone(),
                ..ExpectClient::default()
            };
            if let Err(faults) = self.try_answer(&refused) {
                panic!("{}: {faults:?} of {:?}", self.at, self.untaken());
            }
        }
        assert_eq!(1, ran, "{}: exactly one ran", self.at);
    }

    /// Takes the first message that is this answer.
    fn try_answer(&mut self, expected: &ExpectClient) -> Result<(), Vec<String>> {
        let (sent, stateless) = (self.sent.clone(), self.stateless);
        let mut faults = Vec::new();
        let taken = self.harness().take_raw(|message, raw| {
            let id = id_token(expected);
            let subject = sent.get(&id).map(|(seam, subject)| (*seam, subject.as_str()));
            match fits(expected, subject, stateless, message, raw) {
                Ok(()) => true,
                Err(fault) => {
                    faults.push(fault);
                    false
                }
            }
        });
        taken.map(|_| ()).ok_or(faults)
    }

    fn expect_question(&mut self, name: &str, expected: &ExpectClient) {
        let at = self.at.clone();
        let asked = self.harness().take_raw(|message, _| {
            message["method"] == "elicitation/create" && message["params"]["_meta"].get(OWN_MARK).is_some()
        });
        let (message, raw) = asked.unwrap_or_else(|| panic!("{at}: no question in {:?}", self.untaken()));
        let id = message["id"].as_str().expect("our ids are texts").to_owned();
        assert!(
            self.harness().came_on_a_call(&raw),
            "{at}: on the stream of the call"
        );
        self.captured.set(name, &id);
        self.questions.push(raw_member(&raw, "id").expect("an id"));
        self.check_question(name, &message["params"], expected);
    }

    fn check_stream(&mut self, raw: &str, expected: &ExpectClient) {
        if let Some(On::CallStream) = expected.on {
            let at = self.at.clone();
            assert!(
                self.harness().came_on_a_call(raw),
                "{at}: on the stream of the call"
            );
        }
    }

    /// The form of every question, and what the row says of this one.
    fn check_question(&mut self, name: &str, params: &Value, expected: &ExpectClient) {
        let at = self.at.clone();
        let schema = &params["requestedSchema"];
        for (member, value) in [("message", &params["message"]), ("schema", schema)] {
            self.captured
                .set(&format!("{member} of {name}"), &value.to_string());
        }
        let mode = (self.revision != "2025-06-18").then(|| json!("form"));
        assert_eq!(mode.as_ref(), params.get("mode"), "{at}: mode");
        assert_eq!(json!("object"), schema["type"], "{at}: an object is asked for");
        assert_eq!(
            json!(["approve"]),
            schema["required"],
            "{at}: one required member"
        );
        assert_eq!(
            json!("boolean"),
            schema["properties"]["approve"]["type"],
            "{at}: a boolean"
        );
        let properties = schema["properties"].as_object().expect("properties");
        assert_eq!(1, properties.len(), "{at}: one member");
        if let Some(member) = &expected.has_no_member {
            assert_eq!(None, params.get(member), "{at}: no `{member}`");
        }
        if let Some(required) = &expected.schema_required {
            assert_eq!(required, &schema["required"], "{at}");
        }
        if let Some(expected) = &expected.schema_properties {
            let types = properties
                .iter()
                .map(|(name, property)| (name.clone(), property["type"].clone()));
            let expected: Vec<_> = expected
                .iter()
                .map(|(name, kind)| (name.clone(), json!(kind)))
                .collect();
            assert_eq!(expected, types.collect::<Vec<_>>(), "{at}");
        }
        let message = params["message"].as_str().expect("a message");
        assert!(message.starts_with(FIRST_LINE), "{at}: {message}");
        for text in &expected.message_contains {
            assert!(message.contains(text), "{at}: `{text}` in {message}");
        }
        for text in &expected.message_lacks {
            assert!(!message.contains(text), "{at}: no {text:?} in {message:?}");
        }
        let mut rest = message;
        for text in &expected.message_contains_in_order {
            let (_, after) = rest
                .split_once(text)
                .unwrap_or_else(|| panic!("{at}: `{text}` in its place in {message}"));
            rest = after;
        }
        if let Some(times) = expected.times {
            let heard = self.harness().heard();
            let asked = heard.iter().filter(|line| line.contains(OWN_MARK)).count();
            assert_eq!(times, asked, "{at}: how often it was asked");
        }
    }

    fn expect_input_required(&mut self, required: &InputRequired, expected: &ExpectClient) {
        let (at, id) = (self.at.clone(), id_token(expected));
        let taken = self.harness().take_raw(|message, _| token(message) == id);
        let (message, raw) = taken.unwrap_or_else(|| panic!("{at}: no answer to {id}"));
        let result = &message["result"];
        assert_eq!("input_required", result["resultType"], "{at}: {raw}");
        let state = result["requestState"].as_str().expect("a state");
        assert!(state.starts_with(STATE_PREFIX), "{at}: the state is ours");
        self.captured.set(&required.state, state);
        for text in &expected.lacks {
            assert!(!raw.contains(text), "{at}: no `{text}` in {raw}");
        }
        let requests = result["inputRequests"].as_object().expect("requests");
        let keys: Vec<&String> = requests.keys().collect();
        match (&required.question, &required.upstream_keys) {
            (Some(name), None) => {
                let [key] = keys.as_slice() else {
                    panic!("{at}: one question, but {keys:?}");
                };
                assert!(key.starts_with(KEY_PREFIX), "{at}: `{key}` is ours");
                self.captured.set(name, key);
                let request = &requests[key.as_str()];
                assert_eq!("elicitation/create", request["method"], "{at}");
                assert!(
                    request["params"]["_meta"].get(OWN_MARK).is_some(),
                    "{at}: our mark"
                );
                self.check_question(name, &request["params"], expected);
            }
            (None, Some(expected)) => {
                assert_eq!(expected.iter().collect::<Vec<_>>(), keys, "{at}");
                let raw = raw_member(&raw, "result").and_then(|result| raw_member(&result, "inputRequests"));
                let raw = raw.expect("what it asks for");
                let asked = self.captured.get("what the upstream asked");
                let marks = asked.matches(r#""method":"elicitation/create""#).count();
                assert_eq!(
                    marks,
                    raw.matches(MARK_JSON).count(),
                    "{at}: each question says whose it is"
                );
                assert_eq!(
                    asked,
                    raw.replace(MARK_JSON, ""),
                    "{at}: else passed on to the byte"
                );
            }
            (Some(_), Some(_)) | (None, None) => panic!("{at}: whose question"),
        }
    }

    fn expect_notification(&mut self, method: &str, expected: &ExpectClient) {
        let at = self.at.clone();
        let about = expected
            .for_question
            .as_ref()
            .map(|name| self.captured.get(name).to_owned());
        let progress = expected.progress;
        let taken = self.harness().take(|message| {
            message["method"] == method
                && about
                    .as_ref()
                    .is_none_or(|id| message["params"]["requestId"] == *id)
                && progress.is_none_or(|progress| message["params"]["progress"] == progress)
        });
        let message = taken.unwrap_or_else(|| panic!("{at}: no `{method}` in {:?}", self.untaken()));
        assert_eq!(None, message.get("id"), "{at}: a notification");
    }

    /// A request of the upstream, under an id of the host.
    fn expect_upstream_request(&mut self, method: &str, name: &str, expected: &ExpectClient) {
        let at = self.at.clone();
        let taken = self.harness().take_raw(|message, _| {
            message["method"] == method && message["params"]["_meta"].get(OWN_MARK).is_none()
        });
        let (message, raw) = taken.unwrap_or_else(|| panic!("{at}: no `{method}` in {:?}", self.untaken()));
        self.check_stream(&raw, expected);
        self.captured.set(name, &raw_member(&raw, "id").expect("an id"));
        if let Some(text) = &expected.message {
            let shown = message["params"]["message"].as_str().expect("a text");
            assert_eq!(
                Some(text.as_str()),
                shown.strip_prefix(MARK),
                "{at}: says whose it is"
            );
        }
        if expected.not_styled_as_ours == Some(true) {
            assert!(!raw.contains("\"gatewright/"), "{at}: none of our marks in {raw}");
            assert!(
                !message["id"].is_string(),
                "{at}: our own questions have texts as ids"
            );
        }
    }

    pub(super) fn expect_all(&mut self, expected: &str) {
        match expected {
            "question ids are distinct, of constant length, and share no common prefix longer than a fixed label" =>
            {
                check_ids(self.captured.all("Q"), &self.at);
            }
            "S1 != S2; base64-decoded, neither contains prod, deploy, May this run" => {
                let [one, two] = ["S1", "S2"].map(|name| self.captured.get(name));
                assert_ne!(one, two, "{}", self.at);
                for state in [one, two] {
                    check_opaque(state, &["prod", "deploy", "May this run"], &self.at);
                }
            }
            unknown => panic!("{}: no known expectation `{unknown}`", self.at),
        }
    }
}

/// Whether one message is the expected answer; `subject` is what its request was about.
fn fits(
    expected: &ExpectClient,
    subject: Option<(Seam, &str)>,
    stateless: bool,
    message: &Value,
    raw: &str,
) -> Result<(), String> {
    same(&id_token(expected), &token(message), "id")?;
    same(&None, &message.get("method"), "an answer")?;
    for text in &expected.lacks {
        same(&false, &raw.contains(text.as_str()), text)?;
    }
    if let Some(code) = expected.error_code {
        same(&Some(code), &message["error"]["code"].as_i64(), "error code")?;
    }
    if expected.result == Some(true) {
        let refused = message["result"]["_meta"].get("gatewright/refusal");
        same(
            &(true, None),
            &(message.get("result").is_some(), refused),
            "a result",
        )?;
        same(
            &true,
            &raw.contains(crate::support::upstream::GOOD_TEXT),
            "the upstream's own",
        )?;
    }
    let Some(code) = &expected.refused else {
        let said = [&expected.decision, &expected.detail, &expected.detail_contains];
        same(&[&None, &None, &None], &said, "only a refusal has these")?;
        let kinds = (expected.result.is_some(), expected.error_code.is_some());
        return same(&true, &(kinds.0 != kinds.1), "an expectation of one kind");
    };
    let (seam, subject) = subject.ok_or("an answer to something that was sent")?;
    let refused = refusal(message, stateless, seam, subject)?;
    same(&json!(code), &refused["code"], "code of the refusal")?;
    if let Some(decision) = &expected.decision {
        same(&json!(decision), &refused["decision"], "decision")?;
    }
    if let Some(detail) = &expected.detail {
        same(&json!(detail), &refused["detail"], "detail")?;
    }
    let contained = expected.detail_contains.as_deref().unwrap_or_default();
    let detail = refused["detail"].as_str().ok_or("a detail is a text")?;
    same(&true, &detail.contains(contained), "the detail contains the text")
}

/// The id of an expectation as one token; `none` for null and absent.
fn id_token(expected: &ExpectClient) -> String {
    match &expected.id {
        Some(Value::String(text)) => text.clone(),
        Some(id) => id.to_string(),
        None => panic!("an answer has an id"),
    }
}

fn token(message: &Value) -> String {
    match &message["id"] {
        Value::Null => "none".to_owned(),
        id => id.to_string(),
    }
}

fn check_ids(mut ids: Vec<&str>, at: &str) {
    let asked = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(asked, ids.len(), "{at}: distinct");
    assert!(1 < asked, "{at}: several");
    let lengths: Vec<usize> = ids.iter().map(|id| id.len()).collect();
    assert!(
        lengths.iter().all(|length| *length == lengths[0]),
        "{at}: of constant length"
    );
    // Sorted, so the first and the last share what all share; there is no label.
    let (first, last) = (ids[0], ids[asked - 1]);
    let shared = first
        .bytes()
        .zip(last.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    assert!(shared < 2, "{at}: they share {shared} characters");
}

fn check_opaque(state: &str, texts: &[&str], at: &str) {
    let encoded = state.strip_prefix(STATE_PREFIX).expect("ours");
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(encoded)
        .expect("base64");
    for text in texts {
        let shown = decoded
            .windows(text.len())
            .any(|window| window == text.as_bytes());
        assert!(!shown && !state.contains(text), "{at}: `{text}` can be read");
    }
}
