//! A task answers only to the principal and session that made it (semantics section 2), in both eras.

use std::sync::Arc;

use gatewright::host::Settings;
use gatewright::seam::{Guard, Guards};
use serde_json::json;

use crate::support::chains::one;
use crate::support::harness::Harness;
use crate::support::policies::Does;

fn allowing() -> Guards {
    let allow = || Guard::Chain(Arc::new(one(Does::Allow)));
    Guards {
        tools: allow(),
        reads: allow(),
    }
}

async fn session(era: &str) -> Harness {
    let mut harness = Harness::start(allowing(), Settings::default(), era == "2026", None);
    harness.open(era, "2025-11-25", &json!({})).await;
    harness
}

/// Params of a request of the era.
fn params(era: &str, own: &str) -> String {
    if era == "2025" {
        return format!("{{{own}}}");
    }
    format!(
        r#"{{{own},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"extensions":{{"io.modelcontextprotocol/tasks":{{}}}}}}}}}}"#
    )
}

async fn request(harness: &mut Harness, id: u64, method: &str, params: &str) {
    let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    harness.send(&frame).await;
}

/// Makes the task `t-1`.
async fn make(harness: &mut Harness, era: &str) {
    let (own, result) = if era == "2025" {
        (
            r#""name":"slow","task":{"ttl":1}"#,
            r#"{"task":{"taskId":"t-1","status":"working"}}"#,
        )
    } else {
        (
            r#""name":"slow""#,
            r#"{"resultType":"task","taskId":"t-1","status":"working"}"#,
        )
    };
    request(harness, 1, "tools/call", &params(era, own)).await;
    harness.upstream.release_with(result).await;
    harness.settle().await;
    let made = harness.take(|message| message["id"] == 1).unwrap();
    assert!(made.get("result").is_some(), "{made}");
}

#[tokio::test(start_paused = true)]
async fn a_task_answers_its_maker_and_nobody_else() {
    for (era, methods) in [
        ("2025", ["tasks/get", "tasks/result", "tasks/cancel"]),
        ("2026", ["tasks/get", "tasks/update", "tasks/cancel"]),
    ] {
        for method in methods {
            let mut harness = session(era).await;
            let of = |task: &str| params(era, &format!(r#""taskId":"{task}""#));
            request(&mut harness, 2, method, &of("t-1")).await;
            let unknown = harness.take(|message| message["id"] == 2).unwrap();
            assert_eq!(
                json!(-32602),
                unknown["error"]["code"],
                "{era} {method}: {unknown}"
            );
            make(&mut harness, era).await;
            request(&mut harness, 3, method, &of("t-1")).await;
            let known = harness.take(|message| message["id"] == 3).unwrap();
            assert!(known.get("result").is_some(), "{era} {method}: {known}");
            request(&mut harness, 4, method, &of("t-2")).await;
            let other = harness.take(|message| message["id"] == 4).unwrap();
            assert_eq!(unknown["error"], other["error"], "{era} {method}");
            let reached = harness.upstream.tape();
            let reached = reached.iter().filter(|received| received.method() == method);
            assert_eq!(
                1,
                reached.count(),
                "{era} {method}: only the maker's request goes upstream"
            );
            let records = harness.audit.lock().unwrap().join("");
            assert_eq!(
                2,
                records.matches(r#""code":"unknown_task""#).count(),
                "{records}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_that_only_looks_like_a_task_makes_none() {
    let mut harness = session("2026").await;
    request(&mut harness, 1, "tools/call", &params("2026", r#""name":"echo""#)).await;
    harness
        .upstream
        .release_with(r#"{"resultType":"complete","taskId":"t-9","task":{"taskId":"t-9"},"content":[]}"#)
        .await;
    request(&mut harness, 2, "tasks/get", &params("2026", r#""taskId":"t-9""#)).await;
    let refused = harness.take(|message| message["id"] == 2).unwrap();
    assert_eq!(json!(-32602), refused["error"]["code"], "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_tasks_holds_the_sessions_own() {
    let lists = [
        (
            r#"{"tasks":[{"taskId":"t-0"}, {"taskId":"t-1","x":1.10},{"taskId":"t-2"}],"nextCursor":"c"}"#,
            Some(r#"{"tasks":[{"taskId":"t-1","x":1.10}],"nextCursor":"c"}"#),
        ),
        (
            r#"{"tasks":[ {"taskId":"t-1"} ]}"#,
            Some(r#"{"tasks":[ {"taskId":"t-1"} ]}"#),
        ),
        (
            r#"{"tasks":[{"taskId":1},{"other":"t-1"}]}"#,
            Some(r#"{"tasks":[]}"#),
        ),
        (r#"{"tasks":{"taskId":"t-2"}}"#, None),
        (r#"{"list":[{"taskId":"t-2"}]}"#, None),
    ];
    for (list, expected) in lists {
        let script = vec![format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{list}}}"#)];
        let mut harness = session("2025").await;
        make(&mut harness, "2025").await;
        harness.upstream.answer_next_with(script);
        request(&mut harness, 2, "tasks/list", "{}").await;
        let (answer, raw) = harness.take_raw(|message, _| message["id"] == 2).unwrap();
        match expected {
            Some(expected) => assert!(raw.contains(expected), "{list}: {raw}"),
            None => assert_eq!(
                "upstream_garbage", answer["error"]["data"]["code"],
                "{list}: {raw}"
            ),
        }
        assert!(!raw.contains("t-2") && !raw.contains("t-0"), "{raw}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_task_reaches_its_session_only() {
    let mut harness = session("2025").await;
    let status = |task: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tasks/status","params":{{"taskId":"{task}","status":"completed"}}}}"#
        )
    };
    make(&mut harness, "2025").await;
    harness.upstream.say(&status("t-2")).await;
    harness.upstream.say(&status("t-1")).await;
    harness.settle().await;
    let heard: Vec<_> = harness
        .untaken()
        .iter()
        .map(|message| &message["params"]["taskId"])
        .collect();
    assert_eq!(vec![&json!("t-1")], heard);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_leaves_out_tasks_of_others() {
    let mut harness = session("2026").await;
    make(&mut harness, "2026").await;
    let own = r#""notifications":{"taskIds":["t-1", "t-2",3]}"#;
    request(&mut harness, 2, "subscriptions/listen", &params("2026", own)).await;
    let tape = harness.upstream.tape();
    let listen = tape
        .iter()
        .find(|received| received.method() == "subscriptions/listen")
        .unwrap();
    assert_eq!(
        Some(r#"{"taskIds":["t-1"]}"#),
        listen.param("notifications").as_deref()
    );
}

#[tokio::test(start_paused = true)]
async fn who_knows_no_tasks_is_told_so() {
    let mut harness = session("2026").await;
    let of = params("2026", r#""taskId":"t-1""#)
        .replace(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#, "{}");
    request(&mut harness, 1, "tasks/get", &of).await;
    let refused = harness.take(|message| message["id"] == 1).unwrap();
    assert_eq!(json!(-32021), refused["error"]["code"], "{refused}");
    let required = &refused["error"]["data"]["requiredCapabilities"]["extensions"];
    assert!(
        required.get("io.modelcontextprotocol/tasks").is_some(),
        "{refused}"
    );
    for removed in ["tasks/list", "tasks/result"] {
        request(&mut harness, 2, removed, &params("2026", r#""taskId":"t-1""#)).await;
        let removed = harness.take(|message| message["id"] == 2).unwrap();
        assert_eq!(json!(-32601), removed["error"]["code"], "{removed}");
    }
    let reached = harness.upstream.tape();
    assert!(
        reached
            .iter()
            .all(|received| !received.method().starts_with("tasks/")),
        "{reached:?}"
    );
}
