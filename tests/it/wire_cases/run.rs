//! Runs one row against the host.

use gatewright::decision::{Mode, Seam};
use gatewright::host::Settings;
use gatewright::policy::chain::Chain;
use gatewright::seam::{Guard, Guards};
use gatewright::session::Ended;
use gatewright::vocabulary::Digest;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

use super::case::{Answer, BytesOf, CASES, Case, From, Given, NamedPolicy, NoAnswer, Policy, SeamPolicy};
use crate::support::cases::paused;
use crate::support::chains;
use crate::support::harness::Harness;
use crate::support::policies::Does;
use crate::support::refusals::{refusal, same};
use crate::support::upstream::{GOOD_TEXT, Received, raw_member};

/// What `ask-all` asks in these rows.
const PROMPT: &str = "PROMPT-TEXT";

/// Runs the row of this name in every era that it names.
pub(super) fn run(name: &str) {
    let case = CASES
        .iter()
        .find(|case| case.name == name)
        .expect("the case is there");
    for era in case.eras() {
        paused(run_in(case, era));
    }
}

async fn run_in(case: &Case, era: &'static str) {
    let at = format!("{} in {era}", case.name);
    let mut harness = start(case, era).await;
    let frames = case.frames();
    let (answers, forwarded) = (case.answers(), case.forwarded());
    assert_eq!(
        (frames.len(), frames.len()),
        (answers.len(), forwarded.len()),
        "{at}: one expectation for each frame"
    );

    let mut received = Vec::new();
    for (frame, expected) in frames.iter().zip(&forwarded) {
        let before = harness.upstream.tape().len();
        harness.send_bytes(&[frame.as_slice(), b"\n"].concat()).await;
        let new = harness.upstream.tape().split_off(before);
        if let Some(expected) = expected {
            let tape: Vec<_> = new.iter().map(|received| &received.line).collect();
            assert_eq!(usize::from(*expected), new.len(), "{at}: the tape {tape:?}");
        }
        received.extend(new);
    }
    harness.upstream.release().await;
    harness.settle().await;

    for ((frame, answer), forwarded) in frames.iter().zip(answers).zip(forwarded) {
        let sent = Sent {
            frame,
            stateless: era == "2026",
        };
        check_answer(&mut harness, sent, answer, forwarded, &at);
    }
    assert_eq!(
        &[] as &[Value],
        harness.untaken(),
        "{at}: nothing else reaches the client"
    );
    check_bytes(case, &received, &at);
    check_judged(&harness.audit, &received, &at);
    if let Some(times) = case.expect.forwarded_times {
        assert_eq!(times, received.len(), "{at}: how often it was forwarded");
    }
    for text in &case.expect.never_reaches_client {
        let found = harness.heard().iter().find(|line| line.contains(text));
        assert_eq!(None, found, "{at}: `{text}` never reaches the client");
    }
    assert!(case.expect.session_lives, "{at}: every session lives");
    check_lives(&mut harness, era, &at).await;
    assert_eq!(Ended::Closed, harness.finish().await, "{at}");
}

/// A session of the era, open unless the row opens it.
async fn start(case: &Case, era: &str) -> Harness {
    let script = case
        .upstream
        .as_ref()
        .and_then(|upstream| upstream.stdio_lines.clone());
    let mut harness = Harness::start(guards(&case.policy), Settings::default(), era == "2026", script);
    if case.open {
        harness.open(era, "2025-11-25", &json!({})).await;
    }
    if !case.upstream_tools.is_empty() {
        // In an era without a handshake a session starts with its first judged request.
        check_lives(&mut harness, era, &case.name).await;
    }
    for tool in &case.upstream_tools {
        let mut tool = tool.clone();
        let members = tool.as_object_mut().expect("a tool is an object");
        assert_eq!(
            Some(json!("after start")),
            members.remove("appears"),
            "the only time that is known"
        );
        harness.upstream.list_tool(tool);
    }
    harness
}

pub(super) fn guards(policy: &Policy) -> Guards {
    match policy {
        Policy::Both(policy) => Guards {
            tools: guard(policy),
            reads: guard(policy),
        },
        Policy::Each(each) => Guards {
            tools: guard(&each.tools),
            reads: guard(&each.reads),
        },
    }
}

fn guard(policy: &SeamPolicy) -> Guard {
    let does = match policy {
        SeamPolicy::Named(NamedPolicy::Unset) => return Guard::Unset,
        SeamPolicy::Named(NamedPolicy::Empty) => return Guard::Chain(Arc::new(Chain::new(Vec::new()))),
        SeamPolicy::Named(NamedPolicy::AllowAll) => Does::Allow,
        SeamPolicy::Named(NamedPolicy::DenyAll) => Does::Deny("denied by the case"),
        SeamPolicy::Named(NamedPolicy::AskAll) => Does::Ask(PROMPT),
        SeamPolicy::Listed(listed) => {
            let names: Vec<&str> = listed.allow.iter().map(String::as_str).collect();
            let policy = chains::policy(Mode::Enforce, Does::AllowOnly(&names));
            return Guard::Chain(Arc::new(Chain::of(vec![policy])));
        }
    };
    Guard::Chain(Arc::new(chains::one(does)))
}

/// A frame of the client.
#[derive(Clone, Copy)]
pub(super) struct Sent<'a> {
    pub(super) frame: &'a [u8],
    pub(super) stateless: bool,
}

impl Sent<'_> {
    fn read(self) -> Result<Value, String> {
        serde_json::from_slice(self.frame).map_err(|error| error.to_string())
    }
}

fn check_answer(harness: &mut Harness, sent: Sent<'_>, answer: &Answer, forwarded: Option<bool>, at: &str) {
    let given = match answer {
        Answer::Word(NoAnswer::None) => return,
        Answer::Word(NoAnswer::NoneOrError) => panic!("{at}: only HTTP has a status"),
        Answer::Given(given) => given,
    };
    if given.refused.is_some() {
        assert_eq!(
            Some(false),
            forwarded,
            "{at}: what is refused must not reach the upstream"
        );
    }
    let mut faults = Vec::new();
    let taken = harness.take_raw(|message, raw| match fits(sent, given, message, raw) {
        Ok(()) => true,
        Err(fault) => {
            faults.push(fault);
            false
        }
    });
    assert!(
        taken.is_some(),
        "{at}: no answer fits {given:?}: {faults:?} of {:?}",
        harness.untaken()
    );
}

/// Whether one message of the host is the expected answer to the frame.
pub(super) fn fits(sent: Sent<'_>, given: &Given, message: &Value, raw: &str) -> Result<(), String> {
    let id = raw_member(raw, "id").filter(|id| id != "null");
    same(&given.id, &id.unwrap_or_else(|| "none".to_owned()), "id")?;
    same(&json!("2.0"), &message["jsonrpc"], "jsonrpc")?;
    let kinds = ["result", "error"].map(|kind| message.get(kind).is_some());
    match (given.result, &given.error_code, &given.refused) {
        (Some(true), None, None) => same(&[true, false], &kinds, "a result")?,
        (None, Some(codes), _) => {
            same(&[false, true], &kinds, "an error")?;
            let code = message["error"]["code"].as_i64();
            if !codes.holds(code) {
                return Err(format!("error code {code:?}"));
            }
            same(
                &true,
                &message["error"]["message"].is_string(),
                "a message in text",
            )?;
        }
        (None, None, Some(_)) => {}
        (Some(_), _, _) | (None, None, None) => return Err("an expectation of one kind".to_owned()),
    }
    if let Some(text) = &given.error_message {
        same(&json!(text), &message["error"]["message"], "message")?;
    }
    if given.result == Some(true) {
        fits_result(&sent.read()?, message)?;
    }
    for text in given.result_contains.iter() {
        same(
            &true,
            &raw.contains(text.as_str()),
            "the result contains the text",
        )?;
    }
    match given.from {
        Some(From::Upstream) => same(&true, &raw.contains(GOOD_TEXT), "the upstream's own result")?,
        None => {}
    }
    match &given.refused {
        Some(code) => fits_refusal(sent, code, given.detail_contains.as_deref(), message),
        None if given.detail_contains.is_some() => Err("only a refusal has a detail".to_owned()),
        None => Ok(()),
    }
}

/// A result is no refusal, and an `initialize` names a revision that the upstream speaks.
fn fits_result(sent: &Value, message: &Value) -> Result<(), String> {
    let refused = message["result"]["_meta"].get("gatewright/refusal");
    same(&None, &refused, "a result and no refusal")?;
    if sent["method"] == "initialize" {
        let revision = message["result"]["protocolVersion"].as_str().unwrap_or_default();
        let spoken = ["2025-06-18", "2025-11-25"].contains(&revision);
        same(&true, &spoken, "a revision that the upstream speaks")?;
    }
    Ok(())
}

fn fits_refusal(sent: Sent<'_>, code: &str, detail: Option<&str>, message: &Value) -> Result<(), String> {
    let frame = sent.read()?;
    let method = frame["method"].as_str().unwrap_or_default();
    let (seam, subject) = if method == "tools/call" {
        let name = frame["params"]["name"].as_str().unwrap_or_default();
        (Seam::Tools, name)
    } else {
        (Seam::Reads, method)
    };
    let refused = refusal(message, sent.stateless, seam, subject)?;
    same(&json!(code), &refused["code"], "code of the refusal")?;
    let text = refused["detail"].as_str().ok_or("a detail is a text")?;
    same(
        &true,
        &text.contains(detail.unwrap_or_default()),
        "the detail contains the text",
    )
}

/// What the upstream got is what the client sent, to the byte.
pub(super) fn check_bytes(case: &Case, received: &[Received], at: &str) {
    let (of, expected) = match (case.expect.forwarded_bytes_of, &case.expect.forwarded_bytes) {
        (None, None) => return,
        (Some(of), Some(expected)) => (of, expected),
        (Some(_), None) | (None, Some(_)) => panic!("{at}: bytes, and of what"),
    };
    let [received] = received else {
        panic!("{at}: bytes of one frame");
    };
    match of {
        BytesOf::Arguments => {
            let expected = expected.as_str().map(str::to_owned);
            assert_eq!(expected, received.param("arguments"), "{at}: arguments");
        }
        BytesOf::ParamsContains => {
            let params = raw_member(&received.line, "params").unwrap_or_default();
            for text in expected.as_array().expect("a list of texts") {
                let text = text.as_str().expect("a text");
                assert!(params.contains(text), "{at}: `{text}` in {params}");
            }
        }
    }
}

/// What a policy judged, by the digest in the record, is what the upstream got.
pub(super) fn check_judged(audit: &Mutex<Vec<String>>, received: &[Received], at: &str) {
    let audit = audit.lock().unwrap().clone();
    let mut judged = audit
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).expect("a record is JSON"))
        .filter(|record| record["kind"] == "verdict" && record["forwarded"] == true);
    for call in received
        .iter()
        .filter(|received| received.method() == "tools/call")
    {
        let arguments = call.param("arguments").unwrap_or_else(|| "{}".to_owned());
        let record = judged
            .find(|record| record["method"] == "tools/call")
            .unwrap_or_else(|| panic!("{at}: no record of a call that was forwarded"));
        let digest = Digest::of(arguments.as_bytes()).to_string();
        assert_eq!(
            json!(digest),
            record["arguments_digest"],
            "{at}: judged and forwarded"
        );
        assert_eq!(
            call.message["params"]["name"], record["name"],
            "{at}: judged and forwarded"
        );
    }
}

async fn check_lives(harness: &mut Harness, era: &str, at: &str) {
    let mut request = json!({"jsonrpc": "2.0", "id": "alive", "method": "tools/list"});
    if era == "2026" {
        request["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}
        });
    }
    harness.send(&request.to_string()).await;
    let answer = harness.take(|message| message["id"] == "alive");
    assert!(answer.is_some(), "{at}: the session lives");
}
