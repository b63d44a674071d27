//! Files of policies that hide, and what sessions hear of their swaps.

use std::sync::Arc;

use gatewright::seam::{Guard, Guards};
use serde_json::{Value, json};

use super::cases::row;
use super::{Followed, files};
use crate::lists::{WAYS, request, session};
use crate::support::chains::one;
use crate::support::harness::Harness;
use crate::support::policies::Does;

/// A gate that hides by the policy in a file, and a server with two tools.
async fn gate(era: &'static str, transport: &str, followed: &Followed) -> Harness {
    let guards = Guards {
        tools: Guard::Chain(Arc::clone(&followed.chain) as _),
        reads: Guard::Chain(Arc::new(one(Does::Allow))),
    };
    let mut harness = session(era, transport, guards).await;
    for name in ["safe", "danger"] {
        harness.upstream.list_tool(json!({"name": name}));
    }
    if era == "2026" {
        let promise = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":@ID@},"notifications":{}}}"#;
        harness.upstream.answer_next_with(vec![promise.to_owned()]);
        let filter = json!({"notifications": {"toolsListChanged": true}});
        harness
            .send(&request(era, 50, "subscriptions/listen", filter))
            .await;
        let promised =
            harness.take(|message| message["method"] == "notifications/subscriptions/acknowledged");
        assert_eq!(
            json!({"toolsListChanged": true}),
            promised.expect("a promise")["params"]["notifications"]
        );
    }
    harness
}

/// The tools that the client sees.
async fn seen(harness: &mut Harness, era: &str, id: u64) -> Vec<String> {
    harness.send(&request(era, id, "tools/list", json!({}))).await;
    let listed = harness.take(|message| message["id"] == id).expect("a list");
    let tools = listed["result"]["tools"].as_array().expect("tools");
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

fn changes(harness: &mut Harness) -> Vec<Value> {
    let mut changes = Vec::new();
    while let Some(change) = harness.take(|message| message.get("id").is_none()) {
        changes.push(change["method"].clone());
    }
    changes
}

#[tokio::test(start_paused = true)]
async fn a_list_change_is_announced() {
    let row = row("swap/list change is announced");
    let (setup, steps) = (&row["setup"], row["steps"].as_array().unwrap());
    let expected = steps[3]["expect"]
        .as_str()
        .unwrap()
        .strip_suffix(" once")
        .unwrap();
    for (era, transport) in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(setup["file"].as_str().unwrap());
        files::write(&path, &files::content(setup["content"].as_str().unwrap()));
        let mut followed = Followed::start(&[&path]).unwrap();
        let mut harness = gate(era, transport, &followed).await;
        assert_eq!(["safe", "danger"], *seen(&mut harness, era, 1).await);
        files::run(&steps[1], folder.path(), &|_| unreachable!("no pipe in this row"));
        followed.settle().await;
        harness.settle().await;
        assert_eq!(vec![json!(expected)], changes(&mut harness), "{era} {transport}");
        assert_eq!(["safe"], *seen(&mut harness, era, 2).await);

        for (content, told) in [
            ("hides-danger", false),
            ("truncated", false),
            ("allow-all", true),
            ("deny-all", false),
            ("hides-danger", true),
        ] {
            files::write_and_rename(&path, &files::content(content));
            followed.settle().await;
            harness.settle().await;
            let expected = if told { vec![json!(expected)] } else { Vec::new() };
            assert_eq!(expected, changes(&mut harness), "{era} {transport} {content}");
        }
    }
}

/// Each list is one that a policy shows as a whole, whatever comes into force meanwhile, and the last word stands.
#[tokio::test(start_paused = true)]
async fn swaps_while_lists_are_asked_for() {
    for (era, transport) in WAYS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p.wasm");
        files::write(&path, &files::content("shows-all"));
        let mut followed = Followed::start(&[&path]).unwrap();
        let mut harness = gate(era, transport, &followed).await;
        let mut asked = 100;
        for swap in 0..30 {
            let hides = swap % 2 == 0;
            let content = if hides { "hides-danger" } else { "shows-all" };
            // Some of them are answered before the swap, and some after it.
            for _ in 0..4 {
                harness.send(&request(era, asked, "tools/list", json!({}))).await;
                asked += 1;
            }
            files::write_and_rename(&path, &files::content(content));
            followed.settle().await;
            harness.settle().await;
            assert_eq!(1, changes(&mut harness).len(), "{era} {transport} {swap}");
            let expected: &[&str] = if hides { &["safe"] } else { &["safe", "danger"] };
            assert_eq!(
                expected,
                seen(&mut harness, era, 7).await,
                "{era} {transport} {swap}"
            );
        }
        for id in 100..asked {
            let listed = harness
                .take(|message| message["id"] == id)
                .expect("each is answered once");
            let whole = json!([{"name": "safe"}, {"name": "danger"}]);
            let tools = &listed["result"]["tools"];
            assert!(*tools == whole || *tools == json!([{"name": "safe"}]), "{listed}");
        }
        assert!(harness.untaken().is_empty());
    }
}
