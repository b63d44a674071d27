//! Lists, and what policies hide of them: on every page, in every era, over every transport.

use std::sync::Arc;

use gatewright::decision::{Decision, Mode};
use gatewright::host::Settings;
use gatewright::policy::chain::{Answer, Chain, Member, Shows};
use gatewright::policy::lists::{LIST_DEADLINE, Viewing};
use gatewright::seam::{Call, Guard, Guards};
use gatewright::vocabulary::Digest;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::chains::{hides, of_component, one};
use crate::support::harness::Harness;
use crate::support::http::{HttpHarness, Setup};
use crate::support::http_upstream::{HttpUpstream, Scripted};
use crate::support::policies::{Does, Guest};

/// Eras and transports.
pub(crate) const WAYS: [(&str, &str); 4] = [
    ("2025", "stdio"),
    ("2025", "http"),
    ("2026", "stdio"),
    ("2026", "http"),
];

/// Each method with a list, and its members: the list, and the name of an entry.
const LISTS: [(&str, &str, &str); 5] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("resources/directory/read", "resources", "uri"),
];

/// The same chain on both seams.
fn both(chain: impl Fn() -> Chain) -> Guards {
    let guard = || Guard::Chain(Arc::new(chain()));
    Guards {
        tools: guard(),
        reads: guard(),
    }
}

pub(crate) async fn session(era: &'static str, transport: &str, guards: Guards) -> Harness {
    let settings = Settings::default();
    if transport == "http" {
        return Harness::start_over_http(guards, settings, era, "2025-11-25", &json!({})).await;
    }
    let mut harness = Harness::start(guards, settings, era == "2026", None);
    harness.open(era, "2025-11-25", &json!({})).await;
    harness
}

/// A request with these params, as the era has it.
pub(crate) fn request(era: &str, id: u64, method: &str, params: Value) -> String {
    let mut params = params;
    if era == "2026" {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}
        });
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
}

/// The line in which the upstream answers with this result.
fn good(result: &str) -> Vec<String> {
    vec![format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#)]
}

/// What the client gets for `method` when the upstream answers with this result, as text.
async fn answered(harness: &mut Harness, era: &str, method: &str, params: Value, result: &str) -> String {
    harness.upstream.answer_next_with(good(result));
    harness.send(&request(era, 7, method, params)).await;
    for _ in 0..200 {
        if let Some((_, raw)) = harness.take_raw(|message, _| message["id"] == 7) {
            return raw;
        }
        harness.settle().await;
    }
    panic!("{method} is not answered");
}

#[tokio::test(start_paused = true)]
async fn what_is_hidden_is_on_no_page_of_no_list() {
    for (era, transport) in WAYS {
        let mut harness = session(era, transport, both(|| hides(&["b", "d"]))).await;
        for (method, list, name) in LISTS {
            let hints = if era == "2025" {
                ("", "")
            } else {
                (
                    r#""resultType":"complete", "ttlMs" : 300000,"cacheScope":"public","#,
                    r#""resultType":"complete", "ttlMs" : 60000,"cacheScope":"private","#,
                )
            };
            let page = |hints: &str, entries: &str, next: &str| {
                format!(r#"{{{hints}"{list}" : {entries} {next},"x":{{"b":1,"b":1.10}}}}"#)
            };
            let first =
                format!(r#"[ {{ "{name}":"a","n":1.10}}, {{"{name}":"b"}} ,{{"{name}":"c","x":"b"}}]"#);
            let kept = format!(r#"[{{ "{name}":"a","n":1.10}},{{"{name}":"c","x":"b"}}]"#);
            let next = r#","nextCursor" : "n\u0031""#;
            let raw = answered(
                &mut harness,
                era,
                method,
                json!({"uri": "x"}),
                &page(hints.0, &first, next),
            )
            .await;
            let expected = page(hints.1, &kept, next);
            assert!(raw.contains(&expected), "{era} {transport} {method}: {raw}");

            let second = format!(r#"[{{"{name}":"\u0062"}},{{"{name}":"d"}}]"#);
            let params = json!({"cursor": "n1", "uri": "x"});
            let raw = answered(&mut harness, era, method, params, &page(hints.0, &second, "")).await;
            let expected = page(hints.1, "[]", "");
            assert!(raw.contains(&expected), "{era} {transport} {method}: {raw}");
        }
        let records = harness.audit.lock().unwrap().join("\n");
        assert_eq!(
            LISTS.len(),
            records.matches(r#""outcome":"ok","hidden":1,"#).count()
        );
        assert_eq!(
            LISTS.len(),
            records.matches(r#""outcome":"ok","hidden":2,"#).count()
        );
    }
}

/// The chain of the tools seam speaks of tools, that of the reads seam of everything else.
#[tokio::test(start_paused = true)]
async fn each_seam_hides_its_own() {
    for (era, transport) in WAYS {
        let guards = Guards {
            tools: Guard::Chain(Arc::new(hides(&["b"]))),
            reads: Guard::Chain(Arc::new(hides(&["a"]))),
        };
        let mut harness = session(era, transport, guards).await;
        for (method, list, name) in LISTS {
            let entry = |called: &str| format!(r#"{{"{name}":"{called}"}}"#);
            let result = format!(r#"{{"{list}":[{},{}]}}"#, entry("a"), entry("b"));
            let raw = answered(&mut harness, era, method, json!({"uri": "x"}), &result).await;
            let shown = if method == "tools/list" { "a" } else { "b" };
            let expected = format!(r#""{list}":[{}]"#, entry(shown));
            assert!(raw.contains(&expected), "{era} {transport} {method}: {raw}");
        }
    }
}

/// Where nobody hides anything, an answer passes raw, whatever it is.
#[tokio::test(start_paused = true)]
async fn without_a_say_of_policies_lists_pass_as_they_are() {
    let odd = r#"{"tools":[{"name":"b"},{"Name":1},{},3,{"name":"b","name":"c"}],"tools":7}"#;
    for (era, transport) in WAYS {
        for guards in [
            both(|| one(Does::Allow)),
            // The chain of the other seam is not asked.
            Guards {
                reads: Guard::Chain(Arc::new(hides(&["b"]))),
                tools: Guard::Chain(Arc::new(one(Does::Allow))),
            },
        ] {
            let mut harness = session(era, transport, guards).await;
            let raw = answered(&mut harness, era, "tools/list", json!({}), odd).await;
            assert!(raw.contains(odd), "{era} {transport}: {raw}");
            assert!(!harness.audit.lock().unwrap().join("").contains("hidden"));
        }
    }
    let mut harness = session("2025", "stdio", both(|| hides(&["z"]))).await;
    let plain = r#"{ "tools" : [ {"name":"b" } , {"name":"c"}] }"#;
    let raw = answered(&mut harness, "2025", "tools/list", json!({}), plain).await;
    assert!(raw.contains(plain), "nothing of it was hidden: {raw}");
}

/// On stdio without a reads chain too: what is shown depends on policies.
#[tokio::test(start_paused = true)]
async fn a_list_that_policies_had_a_say_in_is_nobody_elses() {
    let guards = || Guards {
        tools: Guard::Chain(Arc::new(hides(&["z"]))),
        reads: Guard::Unset,
    };
    for (hints, expected) in [
        (
            r#","ttlMs":5,"cacheScope":"public""#,
            r#","ttlMs":5,"cacheScope":"private""#,
        ),
        (r#","ttlMs":60001"#, r#","ttlMs":60000,"cacheScope":"private""#),
        (
            r#","ttlMs":-1,"cacheScope":7"#,
            r#","ttlMs":0,"cacheScope":"private""#,
        ),
        ("", r#","ttlMs":0,"cacheScope":"private""#),
    ] {
        let mut harness = session("2026", "stdio", guards()).await;
        let result = format!(r#"{{"tools":[{{"name":"a"}}]{hints}}}"#);
        let raw = answered(&mut harness, "2026", "tools/list", json!({}), &result).await;
        let expected = format!(r#"{{"tools":[{{"name":"a"}}]{expected}}}"#);
        assert!(raw.contains(&expected), "{raw}");
    }
}

/// What this host lists for itself is whole: the use of a hidden tool is judged by what the upstream says of it.
#[tokio::test(start_paused = true)]
async fn a_hidden_tool_is_judged_as_if_it_were_shown() {
    // Allows exactly what comes with a tool of the upstream, and shows nothing.
    let knows_its_tool = || {
        let guest = Guest {
            authorize: "(if (result i32) (i32.load offset=88 (local.get $in)) (then (call $allow)) (else (call $deny (i32.const 0) (i32.const 0))))",
            visible: "(i32.const 0)",
            ..Guest::default()
        };
        of_component(guest.component())
    };
    for (era, transport) in WAYS {
        let guards = Guards {
            tools: Guard::Chain(Arc::new(knows_its_tool())),
            reads: Guard::Chain(Arc::new(one(Does::Allow))),
        };
        let mut harness = session(era, transport, guards).await;
        harness
            .upstream
            .list_tool(json!({"name": "deploy", "annotations": {"destructiveHint": true}}));
        harness.send(&request(era, 1, "tools/list", json!({}))).await;
        let listed = harness.take(|message| message["id"] == 1).unwrap();
        assert_eq!(json!([]), listed["result"]["tools"], "{era} {transport}");
        harness
            .send(&request(era, 2, "tools/call", json!({"name": "deploy"})))
            .await;
        assert_eq!(1, harness.upstream.calls().len(), "{era} {transport}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_in_one_way_only_is_not_delivered() {
    let hostile = [
        r#"{"tools":[{"name":"a"},{}]}"#,
        r#"{"tools":[{"name":"a"},{"name":7}]}"#,
        r#"{"tools":[{"name":"a"},{"name":{"name":"b"}}]}"#,
        r#"{"tools":[{"name":"a"},null]}"#,
        r#"{"tools":[{"name":"a"},[{"name":"b"}]]}"#,
        r#"{"tools":[{"name":"a","n\u0061me":"b"}]}"#,
        r#"{"tools":[{"name":"a","Name":"b"}]}"#,
        r#"{"tools":[{"name":"a","inputSchema":{"type":"object","type":"array"}}]}"#,
        r#"{"tools":[{"name":"a\ud800"}]}"#,
        r#"{"tools":[{"name":"a","x":1e400}]}"#,
        r#"{"tools":[{"name":"a"}],"tools":[{"name":"b"}]}"#,
        r#"{"tools":[{"name":"a"}],"TOOLS":[{"name":"b"}]}"#,
        r#"{"tools":{"0":{"name":"a"}}}"#,
        r#"{"tools":null}"#,
        r#"{"content":[{"name":"a"}]}"#,
        "{}",
    ];
    for (era, transport) in WAYS {
        let mut harness = session(era, transport, both(|| hides(&["b"]))).await;
        let deep = format!(
            r#"{{"tools":[{{"name":"a","x":{}{}}}]}}"#,
            "[".repeat(70),
            "]".repeat(70)
        );
        for result in hostile.into_iter().chain([deep.as_str()]) {
            let raw = answered(&mut harness, era, "tools/list", json!({}), result).await;
            let message: Value = serde_json::from_str(&raw).unwrap();
            let error = &message["error"];
            assert_eq!(json!(-32603), error["code"], "{era} {transport} {result}: {raw}");
            assert_eq!(json!({"code": "upstream_garbage"}), error["data"], "{result}");
        }
        let records = harness.audit.lock().unwrap().join("\n");
        assert_eq!(
            hostile.len() + 1,
            records.matches(r#""outcome":"upstream_garbage""#).count()
        );
        let good = r#"{"tools":[{"name":"a"},{"name":"b"}]}"#;
        let raw = answered(&mut harness, era, "tools/list", json!({}), good).await;
        assert!(raw.contains(r#"[{"name":"a"}]"#), "the session lives: {raw}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_does_not_say_what_it_shows_refuses_the_list() {
    for (visible, code) in [
        ("unreachable", "policy_trap"),
        ("(loop $again (br $again)) unreachable", "policy_timeout"),
        (
            "(drop (memory.grow (i32.const 60000))) (i32.const 1)",
            "policy_memory",
        ),
    ] {
        for (era, transport) in WAYS {
            let fails = || {
                let guest = Guest {
                    visible,
                    ..Guest::default()
                };
                of_component(guest.component())
            };
            let mut harness = session(era, transport, both(fails)).await;
            let result = r#"{"tools":[{"name":"secret"}]}"#;
            let raw = answered(&mut harness, era, "tools/list", json!({}), result).await;
            let message: Value = serde_json::from_str(&raw).unwrap();
            let (error, data) = (&message["error"], &message["error"]["data"]);
            assert_eq!(json!(-31403), error["code"], "{era} {transport} {raw}");
            assert_eq!(
                (&json!("tools/list"), &json!("deny"), &json!(code)),
                (&data["method"], &data["decision"], &data["code"])
            );
            assert!(!raw.contains("secret"), "{raw}");
            let records = harness.audit.lock().unwrap().join("\n");
            let id = data["decision_id"].as_str().unwrap();
            let outcome = format!(r#""decision_id":"{id}","session":"#);
            let recorded = records
                .lines()
                .find(|line| line.contains("\"outcome\"") && line.contains(&outcome));
            assert!(
                recorded.unwrap().contains(&format!(r#""outcome":"{code}""#)),
                "{records}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_ten_thousand() {
    let entries: Vec<String> = (0..10_000)
        .map(|at| {
            format!(
                r#"{{"name":"{}","n":{at}}}"#,
                if at % 2 == 0 { "even" } else { "odd" }
            )
        })
        .collect();
    let result = format!(r#"{{"tools":[{}]}}"#, entries.join(" , "));
    let kept: Vec<&str> = entries.iter().step_by(2).map(String::as_str).collect();
    let kept = format!(r#"{{"tools":[{}]}}"#, kept.join(","));
    let mut harness = session("2025", "stdio", both(|| hides(&["odd"]))).await;
    let raw = answered(&mut harness, "2025", "tools/list", json!({}), &result).await;
    assert!(raw.contains(&kept));
}

/// Allows everything, and shows everything once it is told to.
#[derive(Debug)]
struct Ponders(CancellationToken);

impl Member for Ponders {
    fn name(&self) -> &str {
        "ponders"
    }

    fn digest(&self) -> Digest {
        Digest::of(b"ponders")
    }

    fn identity(&self) -> Digest {
        self.digest()
    }

    fn mode(&self) -> Mode {
        Mode::Enforce
    }

    fn answer<'a>(&'a self, _call: &'a Call<'a>) -> Answer<'a> {
        Box::pin(std::future::ready((Ok(Decision::Allow), 1)))
    }

    fn hides(&self) -> bool {
        true
    }

    fn shows<'a>(&'a self, _viewing: Viewing<'a>) -> Shows<'a> {
        Box::pin(async {
            self.0.cancelled().await;
            Ok(true)
        })
    }
}

/// A session with a list of tools about which a policy ponders.
async fn pondering(era: &'static str, transport: &str) -> (Harness, CancellationToken) {
    let go = CancellationToken::new();
    let guards = Guards {
        tools: Guard::Chain(Arc::new(Chain::of(vec![Arc::new(Ponders(go.clone()))]))),
        reads: Guard::Chain(Arc::new(one(Does::Allow))),
    };
    let mut harness = session(era, transport, guards).await;
    harness
        .upstream
        .answer_next_with(good(r#"{"tools":[{"name":"a"}]}"#));
    harness.send(&request(era, 1, "tools/list", json!({}))).await;
    assert!(harness.untaken().is_empty(), "{:?}", harness.untaken());
    (harness, go)
}

#[tokio::test(start_paused = true)]
async fn nothing_waits_for_a_list_that_is_pondered() {
    for (era, transport) in WAYS {
        let (mut harness, go) = pondering(era, transport).await;
        harness.send(&request(era, 2, "prompts/list", json!({}))).await;
        let other = harness.take(|message| message["id"] == 2).unwrap();
        assert!(other.get("result").is_some(), "{era} {transport}: {other}");
        go.cancel();
        harness.settle().await;
        let listed = harness.take(|message| message["id"] == 1).unwrap();
        assert_eq!(
            json!([{"name": "a"}]),
            listed["result"]["tools"],
            "{era} {transport}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_not_pondered_for_ever() {
    for (era, transport) in WAYS {
        let (mut harness, _go) = pondering(era, transport).await;
        harness
            .advance(u64::try_from(LIST_DEADLINE.as_millis()).unwrap())
            .await;
        let refused = harness.take(|message| message["id"] == 1).unwrap();
        assert_eq!(
            json!("policy_timeout"),
            refused["error"]["data"]["code"],
            "{era} {transport}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_was_taken_back_is_not_answered() {
    for (era, transport) in [("2025", "stdio"), ("2025", "http"), ("2026", "stdio")] {
        let (mut harness, go) = pondering(era, transport).await;
        harness
            .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
            .await;
        go.cancel();
        harness.settle().await;
        assert!(
            harness.untaken().is_empty(),
            "{era} {transport}: {:?}",
            harness.untaken()
        );
        let records = harness.audit.lock().unwrap().join("\n");
        assert_eq!(1, records.matches(r#""outcome":"#).count(), "{records}");
        assert!(
            records.contains(r#""outcome":"cancelled""#),
            "{era} {transport}: {records}"
        );
    }
}

/// The end of an upstream is no end of what it has answered.
#[tokio::test(start_paused = true)]
async fn a_list_outlives_its_upstream() {
    let go = CancellationToken::new();
    let guards = Guards {
        tools: Guard::Chain(Arc::new(Chain::of(vec![Arc::new(Ponders(go.clone()))]))),
        reads: Guard::Unset,
    };
    let mut harness = session("2025", "stdio", guards).await;
    let mut script = good(r#"{"tools":[{"name":"a"}]}"#);
    script.push("@EXIT@".to_owned());
    harness.upstream.answer_next_with(script);
    harness.send(&request("2025", 1, "tools/list", json!({}))).await;
    assert!(harness.untaken().is_empty());
    go.cancel();
    harness.settle().await;
    let listed = harness.take(|message| message["id"] == 1).unwrap();
    assert_eq!(json!([{"name": "a"}]), listed["result"]["tools"]);
}

#[tokio::test(start_paused = true)]
async fn an_end_leaves_no_list_without_an_answer() {
    let (mut harness, _go) = pondering("2025", "stdio").await;
    harness.shutdown.cancel();
    harness.advance(3000).await;
    let told = harness.take(|message| message["id"] == 1).unwrap();
    assert!(told.get("error").is_some(), "{told}");
}

/// An upstream behind a URL answers with one JSON text or on a stream of events, among other things that come there.
#[tokio::test]
async fn hidden_in_every_body_and_on_every_event() {
    let result = r#"{"tools":[{"name":"a"},{"name":"b"}],"nextCursor":"n"}"#;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#);
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}"#;
    let split = answer.replace(r#","nextCursor""#, ",\ndata: \"nextCursor\"");
    let bodies = [
        ("application/json", answer.clone()),
        ("application/json", answer.replace(',', ",\r\n")),
        ("text/event-stream", format!("data: {answer}\n\n")),
        (
            "text/event-stream",
            format!("id: 1\ndata:\n\ndata: {log}\n\ndata: {log}\n\nid: 2\nevent: message\ndata: {split}\n\n"),
        ),
    ];
    for era in ["2025", "2026"] {
        for (content_type, body) in &bodies {
            let upstream = HttpUpstream::start(Some(Scripted {
                status: 200,
                content_type: (*content_type).to_owned(),
                location: None,
                body: body.clone(),
                reset: false,
            }))
            .await;
            let mut harness = HttpHarness::before(Setup::new(both(|| hides(&["b"]))), &upstream);
            if era == "2025" {
                harness.initialize("2025-11-25", &json!({})).await;
            }
            let list = request(era, 7, "tools/list", json!({}));
            let listed = harness
                .post(&harness.headers(era, list.as_bytes()), list.as_bytes())
                .await;
            let messages = listed.messages();
            let (answer, raw) = messages.last().unwrap();
            assert_eq!(
                json!([{"name": "a"}]),
                answer["result"]["tools"],
                "{era} {body}: {raw}"
            );
            assert_eq!(json!("n"), answer["result"]["nextCursor"], "{era} {body}: {raw}");
            let whole = String::from_utf8(listed.response().unwrap().body).unwrap();
            assert!(!whole.contains(r#""b""#), "{era} {body}: {whole}");
        }
    }
}
