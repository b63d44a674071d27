//! What the records of one request hold, byte for byte: the clock and the ids are given, nothing is left out.

use std::sync::Arc;

use expect_test::{Expect, expect};
use gatewright::audit::read::verify;
use gatewright::decision::{Decision, Fault, Mode};
use gatewright::host::Settings;
use gatewright::policy::chain::{Answer, Chain, Member, Shows};
use gatewright::policy::lists::Viewing;
use gatewright::seam::{Call, Guard, Guards};
use gatewright::vocabulary::Digest;
use gatewright::wire::object;
use serde_json::{Value, json};

use crate::support::harness::{Harness, PausedClock};

/// A policy that says this, and always takes as long.
#[derive(Clone, Debug)]
struct Says(Mode, Result<Decision, (Fault, String)>);

impl Member for Says {
    fn name(&self) -> &str {
        "stand-in"
    }

    fn digest(&self) -> Digest {
        Digest::of(b"stand-in")
    }

    fn identity(&self) -> Digest {
        Digest::of(b"identity")
    }

    fn mode(&self) -> Mode {
        self.0
    }

    fn answer<'a>(&'a self, _: &'a Call<'a>) -> Answer<'a> {
        Box::pin(std::future::ready((self.1.clone(), 12)))
    }

    fn hides(&self) -> bool {
        false
    }

    fn shows<'a>(&'a self, _: Viewing<'a>) -> Shows<'a> {
        Box::pin(std::future::ready(Ok(true)))
    }
}

fn allow() -> Says {
    Says(Mode::Enforce, Ok(Decision::Allow))
}

fn ask() -> Says {
    Says(Mode::Enforce, Ok(Decision::Ask("sure?".to_owned())))
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","arguments":{"to":"staging"},"_meta":{"progressToken":7}}}"#;
const READ: &str = r#"{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///a"}}"#;

/// A session that counts its ids: the log's own is 1, the key of sealed states 2, the session's 3, and the
/// first decision's 4.
async fn session(policies: &[Says]) -> Harness {
    let members = policies.iter().cloned();
    let chain = Chain::of(members.map(|says| Arc::new(says) as Arc<dyn Member>).collect());
    let guard = Guard::Chain(Arc::new(chain));
    let guards = Guards {
        tools: guard.clone(),
        reads: guard,
    };
    let settings = Settings::default();
    let mut harness = Harness::start_at(PausedClock::counting(), guards, settings, false, None);
    harness
        .open("2025", "2025-11-25", &json!({"elicitation": {}}))
        .await;
    harness
}

/// The person answers the question 1.5 s after it was put.
async fn answer(harness: &mut Harness, answer: &Value) {
    let question = harness.take(|message| message["method"] == "elicitation/create");
    let id = question.expect("a question is put")["id"].clone();
    harness.advance(1500).await;
    let line = json!({"jsonrpc": "2.0", "id": id, "result": answer}).to_string();
    harness.send(&line).await;
}

/// The records so far, each member as it stands there.
fn check(harness: &Harness, expected: &Expect) {
    let lines = harness.audit.lock().unwrap().clone();
    let faults = verify(lines.join("\n").as_bytes()).unwrap().faults;
    assert!(faults.is_empty(), "{faults:?}");
    let text: String = lines.iter().map(|line| folded(line)).collect();
    expected.assert_eq(&text);
}

/// The members of a record, as many to a line as fit, and each policy on a line of its own.
fn folded(line: &str) -> String {
    const COLUMNS: usize = 105;
    let mut lines: Vec<String> = Vec::new();
    for member in object::members(line) {
        if member.name == "policies" {
            let policies = object::elements(member.value);
            lines.extend(policies.map(|policy| format!("    policy {policy}")));
            lines.push("   ".to_owned());
            continue;
        }
        let member = format!(" {} {}", member.name, member.value);
        match lines.last_mut() {
            None => lines.push(format!("record{member}")),
            Some(last) if last.len() + member.len() <= COLUMNS => last.push_str(&member),
            Some(_) => lines.push(format!("   {member}")),
        }
    }
    lines.join("\n") + "\n"
}

#[tokio::test(start_paused = true)]
async fn an_allowed_call() {
    let mut harness = session(&[
        allow(),
        Says(Mode::Observe, Ok(Decision::Deny("not for me".to_owned()))),
    ])
    .await;
    harness.send(CALL).await;
    harness.advance(40).await;
    harness.upstream.release().await;
    harness.settle().await;
    check(
        &harness,
        &expect![[r#"
            record v 1 time "2026-11-30T00:53:20.000Z" kind "verdict" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "tools" method "tools/call" name "deploy"
                arguments_digest "sha256:9569c816fb5395d214ec532614e09f8d505cfd2fbe19021d2b1dacc81fc41004"
                arguments "{\"to\":\"staging\"}" extra "{}" decision "allow" forwarded true
                revision "sha256:1af88e4ff6b10998cdc73577ebce97108a8e4803a04f557a1294dd31c535a7ca"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"allow","now_unix_ms":1796000000000,"micros":12}
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"observe","decision":"deny","reason":"not for me","now_unix_ms":1796000000000,"micros":12}
                chain "00000000000000000000000000000001" seq 0
                prev "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
                hash "sha256:b1b48f33531e3a07684378427c192b6742ffb285a4048babd6f8500163422083"
            record v 1 time "2026-11-30T00:53:20.040Z" kind "outcome" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" outcome "ok" took_ms 40
                chain "00000000000000000000000000000001" seq 1
                prev "sha256:b1b48f33531e3a07684378427c192b6742ffb285a4048babd6f8500163422083"
                hash "sha256:a734ee4265c46e166e38dc7c50a0531efb4e57e429a45d3c16e100ad52af1709"
        "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_failed_upstream() {
    for (result, expected) in [
        (
            r#""result":{"content":[],"isError":true}"#,
            r#""outcome":"tool_error""#,
        ),
        (
            r#""error":{"code":-32001,"message":"no"}"#,
            r#""outcome":"error","error_code":"-32001""#,
        ),
        (r#""neither":1"#, r#""outcome":"upstream_garbage""#),
    ] {
        let mut harness = session(&[allow()]).await;
        harness.send(CALL).await;
        let id = harness.upstream.calls()[0].message["id"].clone();
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},{result}}}"#);
        harness.upstream.say(&line).await;
        harness.settle().await;
        let records = harness.audit.lock().unwrap().clone();
        let [_verdict, outcome] = records.as_slice() else {
            panic!("{records:?}")
        };
        assert!(outcome.contains(expected), "{expected} in {outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_approved_call() {
    let mut harness = session(&[ask()]).await;
    harness.send(CALL).await;
    let yes = json!({"action": "accept", "content": {"approve": true}});
    answer(&mut harness, &yes).await;
    harness.upstream.release().await;
    harness.settle().await;
    check(
        &harness,
        &expect![[r#"
            record v 1 time "2026-11-30T00:53:20.000Z" kind "question" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "tools" method "tools/call" name "deploy"
                arguments_digest "sha256:9569c816fb5395d214ec532614e09f8d505cfd2fbe19021d2b1dacc81fc41004"
                arguments "{\"to\":\"staging\"}" extra "{}"
                revision "sha256:1af88e4ff6b10998cdc73577ebce97108a8e4803a04f557a1294dd31c535a7ca"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"ask","prompt":"sure?","now_unix_ms":1796000000000,"micros":12}
                prompts ["sure?"] chain "00000000000000000000000000000001" seq 0
                prev "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
                hash "sha256:6d10825428fc4cfb7c20f31fd26019b4d731e67ea5f62627a6b6183bbcfe9c14"
            record v 1 time "2026-11-30T00:53:21.500Z" kind "verdict" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "tools" method "tools/call" name "deploy"
                arguments_digest "sha256:9569c816fb5395d214ec532614e09f8d505cfd2fbe19021d2b1dacc81fc41004"
                arguments "{\"to\":\"staging\"}" extra "{}" decision "ask" forwarded true ask_outcome "approved"
                waited_ms 1500 revision "sha256:1af88e4ff6b10998cdc73577ebce97108a8e4803a04f557a1294dd31c535a7ca"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"ask","prompt":"sure?","now_unix_ms":1796000001500,"micros":12}
                chain "00000000000000000000000000000001" seq 1
                prev "sha256:6d10825428fc4cfb7c20f31fd26019b4d731e67ea5f62627a6b6183bbcfe9c14"
                hash "sha256:2fd3e59b16794ad329768da637e089dff7127cc36da5ad1641926f88ced721a3"
            record v 1 time "2026-11-30T00:53:21.500Z" kind "outcome" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" outcome "ok" took_ms 0
                chain "00000000000000000000000000000001" seq 2
                prev "sha256:2fd3e59b16794ad329768da637e089dff7127cc36da5ad1641926f88ced721a3"
                hash "sha256:06cacd3dc187b568d208afef6728bc65780fa71f6edfc22d947d14863b1bcb53"
        "#]],
    );
}

#[tokio::test(start_paused = true)]
async fn a_declined_call() {
    let mut harness = session(&[ask()]).await;
    harness.send(CALL).await;
    answer(&mut harness, &json!({"action": "decline"})).await;
    check(
        &harness,
        &expect![[r#"
            record v 1 time "2026-11-30T00:53:20.000Z" kind "question" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "tools" method "tools/call" name "deploy"
                arguments_digest "sha256:9569c816fb5395d214ec532614e09f8d505cfd2fbe19021d2b1dacc81fc41004"
                arguments "{\"to\":\"staging\"}" extra "{}"
                revision "sha256:1af88e4ff6b10998cdc73577ebce97108a8e4803a04f557a1294dd31c535a7ca"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"ask","prompt":"sure?","now_unix_ms":1796000000000,"micros":12}
                prompts ["sure?"] chain "00000000000000000000000000000001" seq 0
                prev "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
                hash "sha256:6d10825428fc4cfb7c20f31fd26019b4d731e67ea5f62627a6b6183bbcfe9c14"
            record v 1 time "2026-11-30T00:53:21.500Z" kind "verdict" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "tools" method "tools/call" name "deploy"
                arguments_digest "sha256:9569c816fb5395d214ec532614e09f8d505cfd2fbe19021d2b1dacc81fc41004"
                arguments "{\"to\":\"staging\"}" extra "{}" decision "ask" code "declined"
                detail "the person who was asked declined this call" forwarded false ask_outcome "declined"
                waited_ms 1500 revision "sha256:1af88e4ff6b10998cdc73577ebce97108a8e4803a04f557a1294dd31c535a7ca"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"ask","prompt":"sure?","now_unix_ms":1796000000000,"micros":12}
                chain "00000000000000000000000000000001" seq 1
                prev "sha256:6d10825428fc4cfb7c20f31fd26019b4d731e67ea5f62627a6b6183bbcfe9c14"
                hash "sha256:39dda243ff7fbf723abf63ec2108f24ba3bca06d0b17491f35c6e1cdebb4c117"
        "#]],
    );
    assert!(harness.upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_denied_call() {
    let deny = Says(Mode::Enforce, Ok(Decision::Deny("not today".to_owned())));
    let mut harness = session(&[allow(), deny, ask()]).await;
    harness.send(CALL).await;
    check(
        &harness,
        &expect![[r#"
            record v 1 time "2026-11-30T00:53:20.000Z" kind "verdict" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "tools" method "tools/call" name "deploy"
                arguments_digest "sha256:9569c816fb5395d214ec532614e09f8d505cfd2fbe19021d2b1dacc81fc41004"
                arguments "{\"to\":\"staging\"}" extra "{}" decision "deny" code "denied" detail "not today"
                forwarded false revision "sha256:5e9bd3d5c17a007ed540cd8c99ba997b4364a215523d7aafc6461000615f7e98"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"allow","now_unix_ms":1796000000000,"micros":12}
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"deny","reason":"not today","now_unix_ms":1796000000000,"micros":12}
                chain "00000000000000000000000000000001" seq 0
                prev "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
                hash "sha256:43457030114be3267f754674bc517db2950f53181177b1e67b7845369d185a04"
        "#]],
    );
    assert!(harness.upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_policy_failed_on() {
    let fault = (Fault::Trap, "wasm `unreachable` executed".to_owned());
    let mut harness = session(&[Says(Mode::Enforce, Err(fault))]).await;
    harness.send(CALL).await;
    check(
        &harness,
        &expect![[r#"
            record v 1 time "2026-11-30T00:53:20.000Z" kind "verdict" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "tools" method "tools/call" name "deploy"
                arguments_digest "sha256:9569c816fb5395d214ec532614e09f8d505cfd2fbe19021d2b1dacc81fc41004"
                arguments "{\"to\":\"staging\"}" extra "{}" decision "deny" code "policy_trap"
                detail "a policy failed while judging this request; see the audit record" forwarded false
                revision "sha256:1af88e4ff6b10998cdc73577ebce97108a8e4803a04f557a1294dd31c535a7ca"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","fault":"policy_trap","what":"wasm `unreachable` executed","now_unix_ms":1796000000000,"micros":12}
                chain "00000000000000000000000000000001" seq 0
                prev "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
                hash "sha256:48efd383a03ed07a53e6d60c2f47289efbd4a61eea8730948c2f41d5b526aa68"
        "#]],
    );
    assert!(harness.upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_read_that_would_have_asked() {
    let mut harness = session(&[ask()]).await;
    harness.send(READ).await;
    check(
        &harness,
        &expect![[r#"
            record v 1 time "2026-11-30T00:53:20.000Z" kind "verdict" decision_id "00000000000000000000000000000004"
                session "00000000000000000000000000000003" client "{\"name\":\"case\",\"version\":\"1\"}"
                server "upstream" transport "stdio" seam "reads" method "resources/read" name "resources/read"
                arguments_digest "sha256:927329e2e2948abfba2cfedf32ec2607db28fc57458ef2ab7227cb1028762e73"
                arguments "{\"uri\":\"file:///a\"}" extra "{}" decision "ask" code "cannot_ask" detail "sure?"
                forwarded false revision "sha256:1af88e4ff6b10998cdc73577ebce97108a8e4803a04f557a1294dd31c535a7ca"
                policy {"policy":"stand-in","digest":"sha256:d6051828bcfb0d71b36b47bae7a08a68b33db611fe7209eda303167ed78d21fe","mode":"enforce","decision":"ask","prompt":"sure?","now_unix_ms":1796000000000,"micros":12}
                chain "00000000000000000000000000000001" seq 0
                prev "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
                hash "sha256:03a00b9a6271722a052e7b21530b88e6ac17e7c5367894addbcd9b078bc67579"
        "#]],
    );
    let heard = harness.heard().concat();
    assert!(
        !heard.contains("sure?"),
        "the prompt is in the record only: {heard}"
    );
}

/// How an ask ends that nobody answers, as its record has it.
#[tokio::test(start_paused = true)]
async fn an_ask_that_nobody_answered() {
    let withdrawn = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    for (what, code, outcome, waited_ms) in [
        ("nothing", "timeout", "timeout", 50_000),
        ("withdraws", "cancelled", "cancelled", 20),
        ("leaves", "cancelled", "disconnected", 20),
        ("stops", "cancelled", "shutdown", 20),
    ] {
        let mut harness = session(&[ask()]).await;
        harness.send(CALL).await;
        harness.advance(20).await;
        match what {
            "withdraws" => harness.send(withdrawn).await,
            "leaves" => harness.disconnect().await,
            "stops" => {
                harness.shutdown.cancel();
                harness.settle().await;
            }
            _ => harness.advance(49_980).await,
        }
        let records = harness.audit.lock().unwrap().clone();
        let [question, verdict] = records.as_slice() else {
            panic!("{what}: {records:?}")
        };
        let (question, verdict): (Value, Value) = (
            serde_json::from_str(question).unwrap(),
            serde_json::from_str(verdict).unwrap(),
        );
        assert_eq!(question["decision_id"], verdict["decision_id"]);
        assert_eq!(
            json!(["ask", code, false, outcome, waited_ms]),
            json!([
                verdict["decision"],
                verdict["code"],
                verdict["forwarded"],
                verdict["ask_outcome"],
                verdict["waited_ms"]
            ]),
            "{what}"
        );
        assert!(harness.upstream.calls().is_empty());
    }
}
