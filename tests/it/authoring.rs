//! What helps to write a policy: its cases, what `check` finds suspicious, and what `inspect` shows.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::policies::{Does, Guest, wat_policy};

fn gatewright(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command
        .args(arguments)
        .env("GATEWRIGHT_LOG", "off")
        // Nothing is kept in the folders of whoever runs the tests.
        .env_remove("HOME")
        .env_remove("XDG_CACHE_HOME");
    command
}

/// Exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output = gatewright(arguments).output().unwrap();
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

/// A carried policy as a file.
fn carried(folder: &Path, name: &str) -> String {
    let path = folder.join(format!("{name}.wasm"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/policy/carried/{name}.wasm"));
    fs::copy(from, &path).unwrap();
    path.to_str().unwrap().to_owned()
}

#[track_caller]
fn contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` in\n{text}");
    }
}

#[test]
fn cases_pass_and_fail_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let policy = write(
        folder.path(),
        "p.wat",
        &wat_policy(Does::AskUnless(&["read"], "sure about it?")),
    );
    write(
        folder.path(),
        "p.cases.json",
        r#"[{"name": "reads", "call": "read", "expect": "allow"},
            {"name": "writes", "call": "write", "args": {"path": "a"}, "expect": ["ask", "deny"], "matches": "^sure .* it"}]"#,
    );
    let (code, stdout, stderr) = run(&["test", &policy]);
    assert_eq!((0, ""), (code, stderr.as_str()), "{stdout}");
    contains(
        &stdout,
        &[
            "  ok    reads\n  ok    writes\n2 cases, 2 passed, 0 failed, judged in ",
            "no case reaches: deny\n",
            "variations of the cases lead to no other answer",
        ],
    );

    let other = write(
        folder.path(),
        "other.json",
        r#"[{"name": "denies", "call": "write", "args": {"a": 1}, "expect": "deny"},
            {"name": "asks", "call": "write", "expect": "ask", "says": "sure of it?"},
            {"name": "matches", "call": "write", "expect": "ask", "matches": "^it"},
            {"name": "asks otherwise", "call": "write", "expect": "ask", "says": "sure about it?"}]"#,
    );
    let (code, stdout, _) = run(&["test", &policy, "--cases", &other]);
    assert_eq!(1, code, "{stdout}");
    contains(
        &stdout,
        &[
            "  FAIL  denies\n          call      write {\"a\": 1}\n          expected  deny\n          got       ask sure about it?\n",
            "          expected  ask sure of it?\n          got       ask sure about it?\n                             ^ differs from here\n",
            "          expected  ask with a text that matches ^it\n",
            "  ok    asks otherwise\n4 cases, 1 passed, 3 failed",
            "no case reaches: allow, deny",
        ],
    );
}

#[test]
fn variations_name_answers_that_no_case_reaches() {
    let folder = tempfile::tempdir().unwrap();
    let policy = write(folder.path(), "p.wat", &wat_policy(Does::AllowOnly(&["read"])));
    write(
        folder.path(),
        "p.cases.toml",
        "[[cases]]\nname = \"reads\"\ncall = \"read\"\nexpect = \"allow\"\n",
    );
    let (code, stdout, _) = run(&["test", &policy]);
    assert_eq!(0, code, "{stdout}");
    contains(
        &stdout,
        &[
            "no case reaches: ask, deny",
            "answers that no case reaches:\n  deny not on the list\n          readx {}\n",
        ],
    );
}

#[test]
fn a_case_may_name_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let cases = write(
        folder.path(),
        "c.toml",
        r#"
            configure = { allow = ["read_*"] }
            [[cases]]
            name = "of the file"
            call = "read_file"
            expect = "allow"
            [[cases]]
            name = "of the case"
            configure = { allow = [], ask = ["read_file"], prompt = "really?" }
            call = "read_file"
            expect = "ask"
            [[cases]]
            name = "refused"
            configure = { alow = [] }
            expect = "invalid"
            matches = "alow"
            [[cases]]
            name = "not refused"
            configure = { allow = ["x"] }
            call = "read_file"
            expect = "invalid"
        "#,
    );
    let (code, stdout, _) = run(&["test", r#"builtin:allowlist={"deny":["*"]}"#, "--cases", &cases]);
    assert_eq!(1, code, "{stdout}");
    contains(
        &stdout,
        &[
            "  ok    of the file\n  ok    of the case\n  ok    refused\n  FAIL  not refused\n",
            "          configure {\"allow\":[\"x\"]}\n          expected  invalid\n          got       deny ",
        ],
    );
}

#[test]
fn the_same_cases_count_when_a_policy_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let policy = carried(folder.path(), "allowlist");
    let configured = format!(r#"{policy}={{"allow":["a"]}}"#);
    let cases = |text: &str| write(folder.path(), "allowlist.cases.toml", text);
    cases("[[cases]]\nname = \"n\"\nconfigure = { ask = [\"b\"] }\ncall = \"b\"\nexpect = \"ask\"\n");
    assert_eq!(0, run(&["check", &configured]).0);
    cases("[[cases]]\nname = \"n\"\nconfigure = { allow = [\"b\"] }\ncall = \"b\"\nexpect = \"ask\"\n");
    let (code, _, stderr) = run(&["check", &configured]);
    assert_eq!(2, code);
    contains(
        &stderr,
        &["its own case \"n\" fails: ask was expected, and it said allow"],
    );
    write(folder.path(), "allowlist.cases.json", "[]");
    let (code, _, stderr) = run(&["check", &configured]);
    assert_eq!(2, code);
    contains(&stderr, &["a `.cases.json` and a `.cases.toml`; keep one"]);
}

#[test]
fn test_refuses_bad_usage() {
    let folder = tempfile::tempdir().unwrap();
    let policy = write(folder.path(), "p.wat", &wat_policy(Does::Allow));
    #[track_caller]
    fn check(arguments: &[&str], part: &str) {
        let (code, stdout, stderr) = run(&[&["test"], arguments].concat());
        assert_eq!((2, ""), (code, stdout.as_str()), "{stderr}");
        assert!(stderr.contains(part), "`{part}` in {stderr}");
    }
    check(&[&policy], "write some into `p.cases.json`");
    check(&["builtin:allow-all"], "name a file with `--cases`");
    check(&[&policy, "--cases", "none.json"], "No such file");
    check(&[&policy, "--cases", "cases.yaml"], "neither a .json nor a .toml");
    let broken = write(folder.path(), "broken.json", "[{]");
    check(&[&policy, "--cases", &broken], "its cases cannot be read");
    let good = write(folder.path(), "good.json", "[]");
    check(&["none.wasm", "--cases", &good], "cannot read policy `none.wasm`");
}

#[test]
fn faults_can_be_expected_and_are_written_for_other_programs() {
    let folder = tempfile::tempdir().unwrap();
    let policy = write(folder.path(), "p.wat", &wat_policy(Does::Trap));
    let cases = write(
        folder.path(),
        "c.json",
        r#"[{"name": "traps & ends", "call": "a", "expect": "policy_trap"}, {"name": "<b>", "call": "a", "args": {"x": "\u0001<"}, "expect": "allow"}]"#,
    );
    let junit = folder.path().join("junit.xml");
    let (code, stdout, _) = run(&[
        "test",
        &policy,
        "--cases",
        &cases,
        "--junit",
        junit.to_str().unwrap(),
    ]);
    assert_eq!(1, code, "{stdout}");
    let xml = fs::read_to_string(&junit).unwrap();
    contains(
        &xml,
        &[
            "tests=\"2\" failures=\"1\" errors=\"0\"",
            "<testcase name=\"traps &amp; ends\" classname=",
            "<testcase name=\"&lt;b&gt;\"",
            "<failure message=\"policy_trap instead of allow\">expected allow\n",
            r#"call     a {&quot;x&quot;: &quot;\u0001&lt;&quot;}</failure>"#,
        ],
    );
}

#[test]
fn watching_tests_again_after_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let policy = write(folder.path(), "p.wat", &wat_policy(Does::Allow));
    let cases = |expect: &str| {
        let text = format!(r#"[{{"name": "n", "call": "a", "expect": "{expect}"}}]"#);
        write(folder.path(), "p.cases.json", &text)
    };
    cases("deny");
    let mut child = gatewright(&["test", "--watch", &policy])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut until = |part: &str| {
        let found = lines.by_ref().map(Result::unwrap).any(|line| line.contains(part));
        assert!(found, "the output ended without `{part}`");
    };
    until("1 cases, 0 passed, 1 failed");
    cases("allow");
    until("1 cases, 1 passed, 0 failed");
    // What cannot be loaded is said, and waited for to change again.
    fs::write(&policy, "(component").unwrap();
    fs::write(&policy, wat_policy(Does::Deny("no"))).unwrap();
    until("1 cases, 0 passed, 1 failed");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn check_warns_of_what_is_suspicious() {
    let folder = tempfile::tempdir().unwrap();
    #[track_caller]
    fn check(policy: &str, warnings: &[&str]) {
        let (code, stdout, stderr) = run(&["check", "--json", policy]);
        assert_eq!((0, ""), (code, stderr.as_str()));
        let report: Value = serde_json::from_str(&stdout).unwrap();
        let codes = report["warnings"].as_array().unwrap().iter();
        let codes: Vec<&str> = codes.map(|warning| warning["code"].as_str().unwrap()).collect();
        assert_eq!(warnings, codes, "{report}");
        let (code, _, _) = run(&["check", "--strict", policy]);
        assert_eq!(i32::from(!warnings.is_empty()), code);
    }
    let file = |name: &str, text: &str| write(folder.path(), name, text);
    check("builtin:deny-all", &[]);
    check("builtin:allow-all", &["allows-garbage"]);
    let careful = file("careful.wat", &wat_policy(Does::AllowOnly(&["read"])));
    check(&careful, &["no-cases"]);
    file("careful.cases.json", "[]");
    check(&careful, &["no-cases"]);
    file(
        "careful.cases.json",
        r#"[{"name": "n", "call": "read", "expect": "allow"}]"#,
    );
    check(&careful, &[]);
    check(
        &file("trap.wat", &wat_policy(Does::Trap)),
        &["no-cases", "fails-on-garbage"],
    );
    check(
        &file("loop.wat", &wat_policy(Does::Loop)),
        &["no-cases", "fails-on-garbage", "slow-start"],
    );
    let idle = Guest {
        before: RANDOM_TYPE,
        ..Guest::default()
    };
    check(
        &file("idle.wat", &idle.component()),
        &["no-cases", "allows-garbage", "unused-imports"],
    );
    let dice = Guest {
        before: RANDOM_LOWERED,
        with: r#"(with "r" (instance (export "u64" (func $u64))))"#,
        imports: r#"(import "r" "u64" (func $u64 (result i64)))"#,
        authorize: "(if (i64.eqz (i64.and (call $u64) (i64.const 1))) (then (return (call $deny (i32.const 0) (i32.const 0))))) (call $ask (i32.const 0) (i32.const 0))",
        ..Guest::default()
    };
    check(
        &file("dice.wat", &dice.component()),
        &["no-cases", "nondeterministic"],
    );
}

/// Random numbers, imported and not used.
const RANDOM_TYPE: &str = r#"(import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))"#;

/// Random numbers as `$u64`.
const RANDOM_LOWERED: &str = r#"(import "wasi:random/random@0.2.0" (instance $random
    (export "get-random-u64" (func (result u64)))))
    (core func $u64 (canon lower (func $random "get-random-u64")))"#;

#[test]
fn inspect_shows_what_is_in_the_file() {
    let (code, stdout, _) = run(&["inspect", "builtin:allowlist"]);
    assert_eq!(0, code);
    contains(
        &stdout,
        &[
            "builtin:allowlist\n  digest     sha256:",
            "  world      gatewright:policy/configurable-policy-plugin@1.0.0\n",
            "  imports    none\n",
            "  made by    processed-by: wit-component 0.",
            "             processed-by: wit-bindgen-rust 0.",
            "  modules    1, with 1 memories of ",
            "  cases      none\n",
        ],
    );
    let folder = tempfile::tempdir().unwrap();
    let idle = Guest {
        before: RANDOM_TYPE,
        ..Guest::default()
    };
    let idle = write(folder.path(), "idle.wat", &idle.component());
    let (_, stdout, _) = run(&["inspect", &idle]);
    contains(&stdout, &["random@0.2.0 (always the same without `random`)"]);
    write(folder.path(), "idle.cases.toml", "cases = []");
    let (_, stdout, _) = run(&["inspect", "--json", "--grant", "random", &idle]);
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!("granted by `random`", report["imports"][0]["given"]);
    assert_eq!("gatewright:policy/policy-plugin@1.0.0", report["world"]);
    contains(report["cases"].as_str().unwrap(), &["idle.cases.toml"]);
    // It is looked at, and never run: what cannot be loaded can be inspected.
    let empty = write(folder.path(), "empty.wat", "(component)");
    assert_eq!(0, run(&["inspect", &empty]).0);
    let (code, _, stderr) = run(&["inspect", &write(folder.path(), "module.wat", "(module)")]);
    assert_eq!(2, code);
    contains(&stderr, &["core WebAssembly module"]);
}
