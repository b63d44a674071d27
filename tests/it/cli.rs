//! The commands that a person runs: what they print, where, and how they exit.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use gatewright::audit::{AuditLog, AuditSettings, OnFailure, Record, Sink, Subject, VerdictRecord};
use gatewright::clock::SystemClock;
use gatewright::decision::{Decision, Fault, Mode, PolicyRecord, Seam};
use gatewright::vocabulary::{Digest, RandomId};
use serde_json::Value;

use crate::support::policies::{Does, wat_policy};

fn gatewright(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command
        .args(arguments)
        .env_remove("GATEWRIGHT_LOG")
        .env_remove("GATEWRIGHT_AUDIT")
        .env_remove("GATEWRIGHT_CONFIG")
        .env("GATEWRIGHT_LOG", "off")
        // Nothing is kept in the folders of whoever runs the tests.
        .env_remove("HOME")
        .env_remove("XDG_CACHE_HOME");
    command
}

/// Exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    told(gatewright(arguments).output().unwrap())
}

fn told(output: Output) -> (i32, String, String) {
    (
        output.status.code().expect("it exits by itself"),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn help_and_version() {
    let (code, stdout, _) = run(&["--help"]);
    assert_eq!(0, code);
    for command in [
        "wrap", "demo", "check", "inspect", "test", "decide", "explain", "audit",
    ] {
        assert!(stdout.contains(&format!("  {command} ")), "{stdout}");
        let (code, stdout, _) = run(&[command, "--help"]);
        assert!(code == 0 && !stdout.is_empty(), "{command}");
    }
    let (code, stdout, _) = run(&["--version"]);
    assert_eq!(
        (0, format!("gatewright {}\n", env!("CARGO_PKG_VERSION"))),
        (code, stdout)
    );
    assert_eq!(2, run(&["no-such-command"]).0);
    assert_eq!(2, run(&["wrap"]).0, "wrap needs a command");
}

#[test]
fn check_says_what_a_policy_is() {
    let folder = tempfile::tempdir().unwrap();
    let good = write(folder.path(), "good.wat", &wat_policy(Does::Allow));
    let (code, stdout, stderr) = run(&["check", &good]);
    assert_eq!((0, ""), (code, stderr.as_str()));
    for part in [
        format!("{good} is a policy"),
        "exports        gatewright:policy/authorizer@1.0.0".to_owned(),
        "imports        none".to_owned(),
        "configuration  takes no configuration".to_owned(),
        "load time".to_owned(),
    ] {
        assert!(stdout.contains(&part), "{part} in {stdout}");
    }
    let (code, stdout, _) = run(&["check", "--json", "builtin:allowlist={\"allow\":[\"a\"]}"]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(0, code);
    assert_eq!(
        (true, "builtin:allowlist"),
        (report["configurable"] == true, report["policy"].as_str().unwrap())
    );
    assert!(report["bytes"].as_u64().unwrap() > 10_000);
}

#[test]
fn check_refuses_with_reason_and_remedy() {
    let folder = tempfile::tempdir().unwrap();
    #[track_caller]
    fn check(policy: &str, parts: &[&str]) {
        let (code, stdout, stderr) = run(&["check", policy]);
        assert_eq!((2, ""), (code, stdout.as_str()), "{stderr}");
        for part in parts {
            assert!(stderr.contains(part), "`{part}` in {stderr}");
        }
        assert_eq!(1, stderr.lines().count(), "{stderr}");
    }
    check(
        "none.wasm",
        &["cannot read policy `none.wasm`", "check that the path is right"],
    );
    check("builtin:none", &["there is no such policy", "allowlist"]);
    check("builtin:allowlist", &["refuses its configuration", "for example"]);
    check("builtin:allow-all={\"a\":1}", &["takes no configuration"]);
    let module = write(folder.path(), "module.wat", "(module)");
    check(&module, &["core WebAssembly module", "wasm-tools component new"]);
    let empty = write(folder.path(), "empty.wat", "(component)");
    check(&empty, &["does not export", "gatewright:policy"]);
    let text = write(folder.path(), "text.wasm", "this is no policy");
    check(&text, &["neither a WebAssembly component nor its text format"]);
    check(folder.path().to_str().unwrap(), &["not a regular file"]);
    let cased = write(folder.path(), "cased.wat", &wat_policy(Does::Allow));
    write(
        folder.path(),
        "cased.cases.json",
        r#"[{"name": "keeps out", "call": "a", "expect": "deny"}]"#,
    );
    check(
        &cased,
        &["\"keeps out\" fails", "correct the policy or its `.cases.json`"],
    );
    // What strangers wrote is shown as one line without anything that a terminal obeys.
    write(folder.path(), "cased.cases.json", "[{\"a\\u001b[2J\": 1}]");
    check(&cased, &["its cases cannot be read", "a\\u{1b}[2J"]);
    let traps = write(folder.path(), "traps.wat", &wat_policy(Does::Trap));
    write(
        folder.path(),
        "traps.cases.json",
        r#"[{"name": "runs", "call": "a", "expect": "allow"}]"#,
    );
    check(&traps, &["\"runs\" fails: it failed with policy_trap"]);
}

#[test]
fn decide_answers_in_json_and_exit_code() {
    #[track_caller]
    fn check(policy: &str, name: &str, expected_code: i32, member: &str, expected: &str) {
        let (code, stdout, stderr) = run(&["decide", policy, name, "{}"]);
        assert_eq!(expected_code, code, "{stdout}{stderr}");
        let answer: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(Some(expected), answer[member].as_str(), "{answer}");
        assert!(answer["digest"].as_str().unwrap().starts_with("sha256:") && answer["micros"].is_u64());
    }
    let folder = tempfile::tempdir().unwrap();
    let rules = r#"builtin:allowlist={"allow":["a"],"ask":["b"],"prompt":"sure?"}"#;
    check(rules, "a", 0, "decision", "allow");
    check(rules, "b", 3, "decision", "ask");
    check(rules, "c", 4, "decision", "deny");
    check("builtin:deny-all", "a", 4, "decision", "deny");
    let file = |name, does| write(folder.path(), name, &wat_policy(does));
    check(&file("trap.wat", Does::Trap), "a", 5, "fault", "policy_trap");
    check(&file("loop.wat", Does::Loop), "a", 5, "fault", "policy_timeout");
}

#[test]
fn decide_refuses_bad_usage() {
    let folder = tempfile::tempdir().unwrap();
    #[track_caller]
    fn check(arguments: &[&str], part: &str) {
        let (code, stdout, stderr) = run(&[&["decide"], arguments].concat());
        assert_eq!((2, ""), (code, stdout.as_str()), "{stderr}");
        assert!(stderr.contains(part), "`{part}` in {stderr}");
    }
    check(&["builtin:allow-all", "a"], "ARGS");
    check(&["builtin:allow-all", "a", "[]"], "must be one JSON object");
    check(
        &["builtin:allow-all", "a", "{\"a\":1,\"a\":2}"],
        "ARGS cannot be used",
    );
    check(&["builtin:allow-all", "a", "{"], "ARGS cannot be used");
    check(
        &["builtin:allow-all", "a", "{}", "--ctx", "none.json"],
        "cannot read the context",
    );
    let ctx = write(folder.path(), "ctx.json", r#"{"sever": "x"}"#);
    check(
        &["builtin:allow-all", "a", "{}", "--ctx", &ctx],
        "unknown field `sever`",
    );
    check(&["none.wasm", "a", "{}"], "cannot read policy");
}

#[test]
fn decide_tells_the_policy_the_context_and_reads_arguments_from_stdin() {
    let folder = tempfile::tempdir().unwrap();
    let rules = r#"builtin:allowlist={"scopes":{"admin":{"allow":["wipe"]}},"deny":["*"]}"#;
    let ctx = write(
        folder.path(),
        "ctx.json",
        r#"{"principal": "ada", "claims-json": {"scope": "admin"}, "now-unix-ms": 5}"#,
    );
    assert_eq!(4, run(&["decide", rules, "wipe", "{}"]).0);
    let with_scope = run(&[
        "decide",
        r#"builtin:allowlist={"scopes":{"admin":{"allow":["wipe"]}},"allow":["x"]}"#,
        "wipe",
        "{}",
        "--ctx",
        &ctx,
    ]);
    assert_eq!(0, with_scope.0, "{with_scope:?}");

    let roots = r#"builtin:paths={"roots":["/srv"],"tools":{"read":{"arguments":["path"]}}}"#;
    let mut child = gatewright(&["decide", roots, "read", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"{\"path\":\"/etc/passwd\"}\n")
        .unwrap();
    let (code, stdout, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!(4, code, "{stdout}{stderr}");
}

#[test]
fn bench_measures_a_policy() {
    let (code, stdout, stderr) = run(&["bench", "builtin:deny-all", "--calls", "50", "--threads", "2"]);
    assert_eq!((0, ""), (code, stderr.as_str()));
    for part in [
        "100 on 2 threads, answer deny, 0 answered otherwise",
        "p99",
        "a second",
        "load, compiled",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    assert_eq!(2, run(&["bench", "builtin:deny-all", "--calls", "0"]).0);
    assert_eq!(2, run(&["bench", "none.wasm"]).0);
}

/// A log with one record: a policy failed on a hostile name.
fn one_record(path: &Path) -> RandomId {
    let settings = AuditSettings {
        sink: Sink::File(path.to_owned()),
        arguments: true,
        on_failure: OnFailure::Deny,
    };
    let log = AuditLog::open(&settings, Arc::new(SystemClock)).unwrap();
    let id = RandomId::from_random([7; 16]);
    let policies = [
        PolicyRecord {
            policy: "a.wasm".into(),
            digest: Digest::of(b"a"),
            mode: Mode::Observe,
            decision: Ok(Decision::Ask("really?".into())),
            micros: 12,
            now_unix_ms: 5,
        },
        PolicyRecord {
            policy: "b.wasm".into(),
            digest: Digest::of(b"b"),
            mode: Mode::Enforce,
            decision: Err((Fault::Trap, "unreachable".into())),
            micros: 34,
            now_unix_ms: 5,
        },
    ];
    log.append(&Record::Verdict(VerdictRecord {
        subject: Subject {
            decision_id: id,
            session: "s",
            client: "{}",
            server: "notes",
            transport: "stdio",
            principal: None,
            seam: Seam::Tools,
            method: "tools/call",
            name: "wipe\u{1b}[2J\u{202e}",
            arguments_digest: Digest::of(b"{}"),
            arguments: "{}",
            extra: "{}",
        },
        policies: &policies,
        revision: Digest::of(b"r"),
        decision: "deny",
        code: "policy_trap",
        detail: "a policy failed",
        forwarded: false,
        ask: None,
        note: "",
    }))
    .unwrap();
    id
}

#[test]
fn explain_tells_a_decision_and_escapes_what_strangers_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let (id, path) = (one_record(&log).to_string(), log.to_str().unwrap());
    let (code, stdout, _) = run(&["explain", &id, "--audit", path]);
    assert_eq!(0, code);
    let (_time, rest) = stdout.split_once("  ").unwrap();
    expect_test::expect![[r#"
        the request was refused (verdict: deny)
          request    tools/call wipe\u{1b}[2J\u{202e}
          code       policy_trap
          detail     a policy failed
          server     notes
          client     {}
          session    s
          arguments  {}
          policy     a.wasm (observes) ask in 12 µs: really?
          policy     b.wasm policy_trap in 34 µs: unreachable
    "#]]
    .assert_eq(rest);
    let (code, stdout, _) = run(&["explain", &id, "--audit", path, "--json"]);
    assert_eq!(
        (0, fs::read_to_string(&log).unwrap()),
        (code, stdout),
        "the record as it is"
    );

    let (code, _, stderr) = run(&["explain", "0123", "--audit", path]);
    assert!(code == 2 && stderr.contains("32 hexadecimal digits"), "{stderr}");
    let (code, _, stderr) = run(&["explain", &"0".repeat(32), "--audit", path]);
    assert!(code == 1 && stderr.contains("has no record"), "{stderr}");
    let (code, _, stderr) = run(&["explain", &id, "--audit", "/none/audit.jsonl"]);
    assert!(
        code == 1 && stderr.contains("cannot read the audit log"),
        "{stderr}"
    );
}

#[test]
fn explain_tells_what_became_of_a_list() {
    let folder = tempfile::tempdir().unwrap();
    let id = "0".repeat(32);
    let told = |outcome: &str, more: &str| {
        let record = format!(
            r#"{{"time":"T","kind":"outcome","decision_id":"{id}","session":"s","outcome":"{outcome}"{more},"took_ms":3}}"#
        );
        let log = write(folder.path(), "audit.jsonl", &record);
        run(&["explain", &id, "--audit", &log]).1
    };
    expect_test::expect![[r#"
        T  the server's answer: ok
          session    s
          hidden     2 entries of the list
          took       3 ms
    "#]]
    .assert_eq(&told("ok", r#","hidden":2"#));
    expect_test::expect![[r#"
        T  the server's list was withheld, a policy did not say what it shows: policy_trap
          session    s
          took       3 ms
    "#]]
    .assert_eq(&told("policy_trap", ""));
}

/// Whoever changes a log can write anything into any member of it.
#[test]
fn explain_escapes_every_text_of_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let id = "0".repeat(32);
    let hostile = "\u{1b}[2J\u{202e}";
    let record = |kind: &str| {
        serde_json::json!({
            "decision_id": id, "kind": kind, "time": hostile, "outcome": hostile, "decision": hostile,
            "method": hostile, "name": "x", "detail": hostile, "prompts": [hostile], "ask_outcome": hostile,
            "policies": [
                {"policy": hostile, "decision": hostile, "reason": hostile},
                {"policy": hostile, "fault": hostile, "what": hostile},
                {"policy": hostile, "decision": "ask", "prompt": hostile},
            ],
        })
    };
    let records = ["verdict", "question", "outcome", hostile].map(|kind| format!("{}\n", record(kind)));
    let log = write(folder.path(), "audit.jsonl", &records.concat());
    let (code, stdout, _) = run(&["explain", &id, "--audit", &log]);
    assert_eq!(0, code);
    let plain = |c: char| c == '\n' || c == 'µ' || (' '..='~').contains(&c);
    assert!(stdout.chars().all(plain), "{stdout:?}");
    assert_eq!(4, stdout.matches("ask in 0 µs: \\u{1b}").count(), "{stdout}");
}

#[test]
fn audit_verify_finds_a_changed_record() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit.jsonl");
    let _id = one_record(&log);
    let path = log.to_str().unwrap();
    assert_eq!((0, "1 good records in 1 chains, 0 faults\n".to_owned()), {
        let (code, stdout, _) = run(&["audit", "verify", path]);
        (code, stdout)
    });
    fs::write(
        &log,
        fs::read_to_string(&log).unwrap().replace("b.wasm", "c.wasm"),
    )
    .unwrap();
    let (code, stdout, _) = run(&["audit", "verify", path]);
    assert!(
        code == 1 && stdout.contains(":1: the record was changed"),
        "{stdout}"
    );
}

#[test]
fn demo_tells_the_whole_story() {
    let (code, stdout, stderr) = run(&["demo"]);
    assert_eq!((0, ""), (code, stderr.as_str()));
    for part in [
        "server > Buy milk, Call Ada",
        "server > deployed to staging",
        "refused, code declined",
        "refused, code timeout",
        "refused, code denied",
        "refused, code policy_trap",
        "refused, code policy_timeout",
        "their hash chain is whole",
    ] {
        assert!(stdout.contains(part), "{part} in {stdout}");
    }
    let (_, received) = stdout.split_once("nothing else did:\n").unwrap();
    let received: Vec<_> = received
        .lines()
        .take_while(|line| !line.is_empty())
        .map(str::trim)
        .collect();
    assert_eq!(
        ["list_notes {}", r#"deploy {"target":"staging"}"#].as_slice(),
        received
    );
}

#[test]
fn demo_lets_a_person_answer() {
    let mut child = gatewright(&["demo", "--interactive"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"n\ny\nn\n").unwrap();
    let (code, stdout, stderr) = told(child.wait_with_output().unwrap());
    assert_eq!((0, ""), (code, stderr.as_str()));
    assert!(
        stdout.contains("deployed to production") && !stdout.contains("deployed to staging"),
        "{stdout}"
    );
}
