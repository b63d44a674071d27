//! Who hears that policies show other entries of lists, and who is told that this can happen.

use std::sync::Arc;

use gatewright::host::Settings;
use gatewright::policy::chain::Chain;
use gatewright::policy::live::LiveChain;
use gatewright::seam::{Guard, Guards};
use serde_json::{Value, json};

use crate::lists::{WAYS, request, session};
use crate::support::chains::{hides, one};
use crate::support::harness::Harness;
use crate::support::policies::Does;

/// Two chains that can be replaced.
struct Live {
    tools: Arc<LiveChain>,
    reads: Arc<LiveChain>,
}

impl Live {
    fn new(tools: Chain, reads: Chain) -> Self {
        Self {
            tools: LiveChain::new(tools),
            reads: LiveChain::new(reads),
        }
    }

    fn guards(&self) -> Guards {
        Guards {
            tools: Guard::Chain(Arc::clone(&self.tools) as _),
            reads: Guard::Chain(Arc::clone(&self.reads) as _),
        }
    }
}

fn allow() -> Chain {
    one(Does::Allow)
}

/// The notifications that came and were not looked at, as text.
fn told(harness: &mut Harness) -> Vec<String> {
    let mut told = Vec::new();
    while let Some((_, raw)) = harness.take_raw(|message, _| message.get("id").is_none()) {
        told.push(raw);
    }
    told
}

fn word(list: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed"}}"#)
}

#[tokio::test(start_paused = true)]
async fn each_seam_tells_of_its_own_lists() {
    for transport in ["stdio", "http"] {
        let live = Live::new(allow(), allow());
        let mut harness = session("2025", transport, live.guards()).await;
        live.tools.replace(hides(&["a"]));
        harness.settle().await;
        assert_eq!(vec![word("tools")], told(&mut harness), "{transport}");
        live.reads.replace(hides(&["a"]));
        harness.settle().await;
        assert_eq!(
            vec![word("prompts"), word("resources")],
            told(&mut harness),
            "{transport}"
        );
        live.reads.replace(hides(&["a"]));
        live.tools.replace(one(Does::Allow));
        harness.settle().await;
        assert_eq!(vec![word("tools")], told(&mut harness), "{transport}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_could_see_no_difference_hears_nothing() {
    let live = Live::new(allow(), allow());
    let mut harness = Harness::start(live.guards(), Settings::default(), false, None);
    // Nobody has said hello yet.
    live.tools.replace(hides(&["a"]));
    harness.settle().await;
    assert!(harness.heard().is_empty());
    // A server that has resources and nothing else.
    harness
        .upstream
        .declare(json!({"resources": {}, "tools": false, "logging": {}}));
    harness.open("2025", "2025-11-25", &json!({})).await;
    live.tools.replace(hides(&["b"]));
    live.reads.replace(hides(&["b"]));
    harness.settle().await;
    assert_eq!(vec![word("resources")], told(&mut harness));
    // Policies that judge otherwise show the same.
    live.reads.replace(Chain::of(vec![]));
    harness.settle().await;
    assert_eq!(vec![word("resources")], told(&mut harness));
    live.reads.replace(one(Does::Deny("no")));
    harness.settle().await;
    assert!(harness.untaken().is_empty());
}

/// A client without an open stream hears of it with its next answer; one that takes only JSON, when it opens one.
#[tokio::test(start_paused = true)]
async fn word_that_cannot_be_sent_waits() {
    let live = Live::new(allow(), allow());
    let mut harness = session("2025", "http", live.guards()).await;
    harness.over_http().close_stream();
    harness.settle().await;
    live.tools.replace(hides(&["a"]));
    harness.settle().await;
    live.tools.replace(hides(&["b"]));
    harness.settle().await;
    harness.over_http().accept = Some("application/json".to_owned());
    harness.send(&request("2025", 1, "prompts/list", json!({}))).await;
    assert!(harness.take(|message| message["id"] == 1).is_some());
    assert!(harness.untaken().is_empty());
    harness.over_http().accept = None;
    harness.send(&request("2025", 2, "prompts/list", json!({}))).await;
    assert_eq!(
        vec![word("tools")],
        told(&mut harness),
        "once, whatever was missed"
    );
    assert!(harness.take(|message| message["id"] == 2).is_some());
    harness.send(&request("2025", 3, "prompts/list", json!({}))).await;
    assert!(told(&mut harness).is_empty());
}

const PROMISE: &str = "notifications/subscriptions/acknowledged";

/// The line in which an upstream promises what is in `filter`.
fn promise(filter: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"{PROMISE}","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":@ID@}},"notifications":{filter}}}}}"#
    )
}

/// Subscribes, and gives what is promised, raw.
async fn subscribe(harness: &mut Harness, id: u64, asked: &str, promised: &str) -> String {
    harness.upstream.answer_next_with(vec![promise(promised)]);
    let params: Value = serde_json::from_str(&format!(r#"{{"notifications":{asked}}}"#)).unwrap();
    harness
        .send(&request("2026", id, "subscriptions/listen", params))
        .await;
    let (_, raw) = harness
        .take_raw(|message, _| message["method"] == PROMISE)
        .expect("a promise");
    raw
}

fn subscribed_word(list: &str, id: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/{list}/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn subscriptions_hear_what_they_asked_for() {
    for transport in ["stdio", "http"] {
        let live = Live::new(hides(&["a"]), allow());
        let mut harness = session("2026", transport, live.guards()).await;
        let of_this = |id: u64, filter: &str| promise(filter).replace("@ID@", &id.to_string());
        // Tools change with policies, so they are promised whatever the upstream says; prompts do not now.
        let raw = subscribe(
            &mut harness,
            1,
            r#"{"toolsListChanged":true,"promptsListChanged":true}"#,
            r#"{"x":1.0}"#,
        )
        .await;
        assert_eq!(of_this(1, r#"{"x":1.0,"toolsListChanged":true}"#), raw);
        let asked = r#"{"toolsListChanged":false,"resourcesListChanged":true}"#;
        let promised = r#"{"resourcesListChanged" : true}"#;
        let raw = subscribe(&mut harness, 2, asked, promised).await;
        assert_eq!(of_this(2, promised), raw, "as the upstream promises");
        let raw = subscribe(
            &mut harness,
            3,
            r#"{"toolsListChanged":true}"#,
            r#"{"toolsListChanged": true}"#,
        )
        .await;
        assert_eq!(of_this(3, r#"{"toolsListChanged": true}"#), raw);
        assert!(harness.untaken().is_empty());

        live.tools.replace(hides(&["b"]));
        harness.settle().await;
        let mut heard = told(&mut harness);
        heard.sort();
        assert_eq!(
            vec![subscribed_word("tools", 1), subscribed_word("tools", 3)],
            heard,
            "{transport}"
        );
        live.reads.replace(hides(&["b"]));
        harness.settle().await;
        assert_eq!(
            vec![subscribed_word("resources", 2)],
            told(&mut harness),
            "{transport}"
        );
    }
}

/// A subscription begins with the promise, and what was taken back hears nothing.
#[tokio::test(start_paused = true)]
async fn nothing_comes_before_a_promise_or_after_the_end() {
    for transport in ["stdio", "http"] {
        let live = Live::new(hides(&["a"]), allow());
        let mut harness = session("2026", transport, live.guards()).await;
        harness.upstream.answer_next_with(Vec::new());
        let asked = json!({"notifications": {"toolsListChanged": true}});
        harness
            .send(&request("2026", 1, "subscriptions/listen", asked))
            .await;
        live.tools.replace(hides(&["b"]));
        harness.settle().await;
        assert!(harness.untaken().is_empty(), "{transport}");

        subscribe(&mut harness, 2, r#"{"toolsListChanged":true}"#, "{}").await;
        if transport == "http" {
            harness.over_http().close_last();
        } else {
            let taken_back =
                r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}}"#;
            harness.send(taken_back).await;
        }
        harness.settle().await;
        live.tools.replace(hides(&["c"]));
        harness.settle().await;
        assert!(harness.untaken().is_empty(), "{transport}");
    }
}

/// The raw capabilities that a client is told of.
async fn declared(harness: &mut Harness, era: &str, capabilities: &str) -> String {
    harness
        .upstream
        .declare(serde_json::from_str(capabilities).unwrap());
    if era == "2025" {
        harness.open(era, "2025-11-25", &json!({})).await;
        let opened = harness
            .heard()
            .iter()
            .find(|line| line.contains(r#""id":"open""#));
        return opened.unwrap().clone();
    }
    harness.send(&request(era, 9, "server/discover", json!({}))).await;
    harness.take_raw(|message, _| message["id"] == 9).unwrap().1
}

#[tokio::test(start_paused = true)]
async fn changes_are_declared_where_policies_make_them() {
    let check = async |era: &str, (tools, reads): (&[&str], &[&str]), declares: &str, expected: &str| {
        let chain = |hidden: &[&str]| if hidden.is_empty() { allow() } else { hides(hidden) };
        let live = Live::new(chain(tools), chain(reads));
        let mut harness = Harness::start(live.guards(), Settings::default(), era == "2026", None);
        let raw = declared(&mut harness, era, declares).await;
        let expected = format!(r#""capabilities":{expected},"#);
        assert!(raw.contains(&expected), "{era}: {raw}");
    };
    let nothing: &[&str] = &[];
    let all = r#"{"logging":{},"prompts":{},"resources":{"subscribe":true},"tools":{"x":1}}"#;
    for era in ["2025", "2026"] {
        check(era, (nothing, nothing), all, all).await;
        check(
            era,
            (&["a"], nothing),
            all,
            r#"{"logging":{},"prompts":{},"resources":{"subscribe":true},"tools":{"x":1,"listChanged":true}}"#,
        )
        .await;
        check(
            era,
            (nothing, &["a"]),
            all,
            r#"{"logging":{},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"tools":{"x":1}}"#,
        )
        .await;
        let told = r#"{"prompts":{"listChanged":true},"tools":{"listChanged":true}}"#;
        check(era, (&["a"], &["a"]), told, told).await;
        let unlike = r#"{"prompts":{"listChanged":true},"tools":{"listChanged":false}}"#;
        check(era, (&["a"], &["a"]), unlike, told).await;
        check(era, (&["a"], &["a"]), r#"{"logging":{}}"#, r#"{"logging":{}}"#).await;
    }
    // A server of 2026-07-28 that tells nothing has no subscriptions to tell it on.
    let silent = r#"{"prompts":{},"tools":{}}"#;
    check("2026", (&["a"], &["a"]), silent, silent).await;
    let told = r#"{"prompts":{"listChanged":true},"tools":{"listChanged":true}}"#;
    check("2025", (&["a"], &["a"]), silent, told).await;
}

#[tokio::test(start_paused = true)]
async fn changes_are_declared_over_http_too() {
    let live = Live::new(hides(&["a"]), allow());
    let mut harness = session("2025", "http", live.guards()).await;
    let door = harness.over_http().door.another_client();
    let body = request(
        "2025",
        1,
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}),
    );
    let opened = door.post(&door.headers("2025", b""), body.as_bytes()).await;
    let capabilities = &opened.messages()[0].0["result"]["capabilities"];
    assert_eq!(
        json!({"tools": {"listChanged": true}, "resources": {}, "prompts": {}}),
        *capabilities
    );

    let mut harness = session("2026", "http", live.guards()).await;
    let raw = declared(
        &mut harness,
        "2026",
        r#"{"resources":{"subscribe":true},"tools":{}}"#,
    )
    .await;
    assert!(raw.contains(r#""tools":{"listChanged":true}"#), "{raw}");
}

/// An upstream's own word passes as before.
#[tokio::test(start_paused = true)]
async fn the_upstream_tells_of_its_own_changes() {
    for (era, transport) in WAYS {
        let live = Live::new(hides(&["a"]), allow());
        let mut harness = session(era, transport, live.guards()).await;
        if era == "2026" {
            subscribe(
                &mut harness,
                1,
                r#"{"toolsListChanged":true}"#,
                r#"{"toolsListChanged":true}"#,
            )
            .await;
            let id = harness.upstream.tape().last().unwrap().message["id"]
                .as_u64()
                .unwrap();
            harness.upstream.say(&subscribed_word("tools", id)).await;
            harness.settle().await;
            assert_eq!(
                vec![subscribed_word("tools", 1)],
                told(&mut harness),
                "{transport}"
            );
        } else {
            harness.upstream.say(&word("tools")).await;
            harness.settle().await;
            assert_eq!(vec![word("tools")], told(&mut harness), "{transport}");
        }
    }
}
