//! The audit log: what a record holds, that nobody can change the log unseen, and that nothing happens
//! without a record.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use gatewright::audit::read::{find, verify};
use gatewright::audit::{AuditLog, AuditSettings, OnFailure, OutcomeRecord, Record, Sink};
use gatewright::clock::SystemClock;
use gatewright::host::Settings;
use gatewright::seam::{Guard, Guards};
use gatewright::vocabulary::{Digest, RandomId};
use serde_json::{Value, json};

use crate::support::chains;
use crate::support::harness::Harness;
use crate::support::policies::Does;

fn settings(path: &Path, on_failure: OnFailure) -> AuditSettings {
    AuditSettings {
        sink: Sink::File(path.to_owned()),
        arguments: false,
        on_failure,
    }
}

fn open(path: &Path) -> AuditLog {
    AuditLog::open(&settings(path, OnFailure::Deny), Arc::new(SystemClock)).unwrap()
}

/// A record that holds this text.
fn append(log: &AuditLog, outcome: &str) {
    log.append(&Record::Outcome(OutcomeRecord {
        decision_id: RandomId::from_random([7; 16]),
        session: "s",
        outcome,
        error_code: None,
        hidden: None,
        took_ms: 1,
    }))
    .unwrap();
}

fn faults(text: &str) -> Vec<(u64, String)> {
    verify(text.as_bytes()).unwrap().faults
}

#[test]
fn whatever_is_done_to_the_lines_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let log = open(&path);
    for at in 0..4 {
        append(&log, &format!("outcome {at}"));
    }
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(faults(&text).is_empty());
    #[track_caller]
    fn check(lines: &[&str], expected: &[(u64, &str)]) {
        let found = faults(&lines.join("\n"));
        assert_eq!(expected.len(), found.len(), "{found:?}");
        for ((line, part), (at, what)) in expected.iter().zip(&found) {
            assert!(line == at && what.contains(part), "{found:?}");
        }
    }
    let changed = lines[1].replace("outcome 1", "outcome 9");
    check(&[lines[0], &changed, lines[2], lines[3]], &[(2, "changed")]);
    // One whose hash was made anew fits its own text, and not the record that follows.
    let body = changed.rsplit_once(r#","hash":"#).unwrap().0;
    let forged = format!(r#"{body},"hash":"{}"}}"#, Digest::of(body.as_bytes()));
    check(
        &[lines[0], &forged, lines[2], lines[3]],
        &[(3, "record before it")],
    );
    check(
        &[lines[0], lines[1], &forged, lines[2]],
        &[(3, "record 2"), (4, "record before it")],
    );
    check(&[lines[0], lines[2], lines[3]], &[(2, "record 1")]);
    check(
        &[lines[0], lines[2], lines[1], lines[3]],
        &[(2, "record 1"), (3, "record 3"), (4, "record 2")],
    );
    check(&[lines[0], lines[0], lines[1]], &[(2, "record 1")]);
    check(&[lines[1], lines[2]], &[(1, "record 0")]);
    check(&[lines[0], &lines[1][..40], lines[1]], &[(2, "not a record")]);
    check(&[lines[0], "{}", lines[1]], &[(2, "not a record of a chain")]);
    check(&[lines[0], lines[1]], &[]);
}

#[test]
fn several_processes_may_share_a_file() {
    const LOGS: u64 = 4;
    const RECORDS: u64 = 250;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let long = "x".repeat(10_000);
    std::thread::scope(|scope| {
        for _ in 0..LOGS {
            scope.spawn(|| {
                let log = open(&path);
                for _ in 0..RECORDS {
                    append(&log, &long);
                }
            });
        }
    });
    let report = verify(fs::read(&path).unwrap().as_slice()).unwrap();
    assert_eq!((LOGS * RECORDS, LOGS), (report.good, report.chains));
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

/// A process that was killed as the disk was full leaves half a line, which must not swallow the next record.
#[test]
fn half_a_line_of_an_earlier_process_spoils_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    append(&open(&path), "before");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, [&whole, &whole[..whole.len() / 2]].concat()).unwrap();
    append(&open(&path), "after");
    append(&open(&path), "later");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(4, text.lines().count(), "{text}");
    assert_eq!(vec![(2, "not a record".to_owned())], faults(&text));
    assert_eq!(3, find(text.as_bytes(), &"07".repeat(16)).unwrap().len());
}

#[test]
fn only_its_user_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/deep/audit.jsonl");
    append(&open(&path), "ok");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((0o600, 0o700), (mode(&path), mode(path.parent().unwrap())));
}

#[test]
fn a_log_that_cannot_be_opened_is_named() {
    let error = AuditLog::open(
        &settings(Path::new("/proc/none/audit.jsonl"), OnFailure::Deny),
        Arc::new(SystemClock),
    );
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("/proc/none/audit.jsonl") && error.contains("--audit"),
        "{error}"
    );
}

#[test]
fn hostile_text_stays_one_line_of_ascii() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl");
    let log = open(&path);
    for text in [
        "a\nb\r\n{\"kind\":\"verdict\"}",
        "\u{1b}[2J\u{202e}\u{200b}\0\u{7f}\u{85}\u{2028}",
        "\"},\"hash\":\"sha256:0000\"}",
        &"é".repeat(600_000),
    ] {
        append(&log, text);
    }
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(4, text.lines().count());
    assert!(
        text.bytes()
            .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte))
    );
    assert!(faults(&text).is_empty());
    let found = find(text.as_bytes(), &"07".repeat(16)).unwrap();
    assert_eq!(4, found.len());
    assert_eq!(0, find(text.as_bytes(), &"08".repeat(16)).unwrap().len());
    let first: Value = serde_json::from_str(&found[0]).unwrap();
    assert_eq!(
        "a\nb\r\n{\"kind\":\"verdict\"}", first["outcome"],
        "nothing is lost"
    );
}

fn guards(does: Does<'_>) -> Guards {
    let guard = Guard::Chain(Arc::new(chains::one(does)));
    Guards {
        tools: guard.clone(),
        reads: guard,
    }
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"deploy","arguments":{"to":"staging"}}}"#;
const READ: &str = r#"{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"file:///a"}}"#;

/// A session whose every record fails.
async fn unrecorded(does: Does<'_>, on_failure: OnFailure) -> Harness {
    let audit = AuditLog::open(
        &settings(Path::new("/dev/full"), on_failure),
        Arc::new(SystemClock),
    )
    .unwrap();
    let mut harness = Harness::start_recorded_by(guards(does), audit);
    harness
        .open("2025", "2025-11-25", &json!({"elicitation": {}}))
        .await;
    harness
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_does_not_happen() {
    for does in [Does::Allow, Does::Ask("sure?"), Does::Deny("no")] {
        let mut harness = unrecorded(does, OnFailure::Deny).await;
        let before = harness.upstream.tape().len();
        harness.send(CALL).await;
        harness.send(READ).await;
        let call = harness.take(|message| message["id"] == 1).unwrap();
        let read = harness.take(|message| message["id"] == 2).unwrap();
        assert_eq!(
            json!("audit_unavailable"),
            call["result"]["_meta"]["gatewright/refusal"]["code"],
            "{call}"
        );
        assert_eq!(
            (json!(-31403), json!("audit_unavailable")),
            (
                read["error"]["code"].clone(),
                read["error"]["data"]["code"].clone()
            )
        );
        assert!(
            harness
                .take(|message| message["method"] == "elicitation/create")
                .is_none(),
            "no question is put"
        );
        assert_eq!(before, harness.upstream.tape().len(), "the upstream saw neither");
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_can_say_that_requests_run_without_records() {
    let mut harness = unrecorded(Does::Allow, OnFailure::Continue).await;
    harness.send(CALL).await;
    assert_eq!(1, harness.upstream.calls().len());
    let mut harness = unrecorded(Does::Deny("no"), OnFailure::Continue).await;
    harness.send(CALL).await;
    assert_eq!(0, harness.upstream.calls().len(), "a denial stays one");
}

#[tokio::test(start_paused = true)]
async fn a_failed_policy_leaves_what_happened_inside_in_the_record_only() {
    let mut harness = Harness::start(guards(Does::Trap), Settings::default(), false, None);
    harness.open("2025", "2025-11-25", &json!({})).await;
    harness.send(CALL).await;
    let lines = harness.audit.lock().unwrap().clone();
    let [line] = lines.as_slice() else {
        panic!("{lines:?}")
    };
    let verdict: Value = serde_json::from_str(line).unwrap();
    let policy = &verdict["policies"][0];
    assert_eq!(
        (json!("policy_trap"), json!("policy_trap")),
        (verdict["code"].clone(), policy["fault"].clone())
    );
    assert!(policy["what"].as_str().unwrap().contains("unreachable"), "{line}");
    assert!(!harness.heard().concat().contains("unreachable"));
    assert!(harness.upstream.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn arguments_are_recorded_only_when_that_is_wanted() {
    for arguments in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let wanted = AuditSettings {
            arguments,
            ..settings(&path, OnFailure::Deny)
        };
        let audit = AuditLog::open(&wanted, Arc::new(SystemClock)).unwrap();
        let mut harness = Harness::start_recorded_by(guards(Does::Allow), audit);
        harness.open("2025", "2025-11-25", &json!({})).await;
        harness.send(CALL).await;
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(arguments, text.contains("staging"), "{text}");
        assert!(text.contains("arguments_digest"));
    }
}
