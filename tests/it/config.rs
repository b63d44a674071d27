//! The configuration: what a file, the environment and flags become, and what is said of a wrong one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use expect_test::expect;
use gatewright::audit::{OnFailure, Sink};
use gatewright::clock::SystemClock;
use gatewright::config::{Config, ConfigError, Flags};
use gatewright::decision::Mode;
use gatewright::host::guards::{self, ChainSettings};
use gatewright::policy::limits::Source;
use tempfile::TempDir;

fn environment(name: &str) -> Option<OsString> {
    match name {
        "HOME" => Some("/home/ada".into()),
        "API_KEY" => Some("k3y".into()),
        _ => None,
    }
}

fn load(flags: &Flags) -> Result<Config, ConfigError> {
    Config::load(flags, Path::new("/usr/bin/notes-server"), &environment)
}

/// The file is `gatewright.toml` in a folder of its own.
fn load_text(text: &str) -> (TempDir, Result<Config, ConfigError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gatewright.toml");
    fs::write(&path, text).unwrap();
    let loaded = load(&Flags {
        config: Some(path),
        ..Flags::default()
    });
    (folder, loaded)
}

/// The message, without the name of the folder.
#[track_caller]
fn check_wrong(text: &str, expected: &expect_test::Expect) {
    let (folder, loaded) = load_text(text);
    let error = loaded.expect_err("the file is wrong").to_string();
    expected.assert_eq(&error.replace(&format!("{}/", folder.path().display()), ""));
}

#[test]
fn nothing_said_is_no_chain_and_the_users_own_log() {
    let config = load(&Flags::default()).unwrap();
    assert!(matches!(config.guards.tools, ChainSettings::Unset));
    assert!(matches!(config.guards.reads, ChainSettings::Unset));
    assert_eq!("notes-server", config.host.server);
    let log = PathBuf::from("/home/ada/.local/state/gatewright/audit.jsonl");
    assert_eq!(Sink::File(log), config.audit.sink);
    assert_eq!(OnFailure::Deny, config.audit.on_failure);
    assert!(config.environment.is_empty());
}

#[test]
fn a_whole_file() {
    let (folder, loaded) = load_text(
        r#"
[[tools]]
policy = "builtin:allowlist"
config = { allow = ["read_*", "with \"quotes\" and é"], ask = ["deploy"] }
deadline-ms = 20
memory-bytes-max = 134217728

[[tools]]
policy = "policies/second.wasm"
mode = "observe"
grants = ["clock"]

[[reads]]
policy = "builtin:allow-all"

[ask]
deadline-ms = 1500
parked-per-session = 3

[wire]
frame-bytes-max = 2048

[upstream]
name = "files"
timeout-ms = 9000
env = ["API_KEY", "MODE=test=1"]

[audit]
to = "audit.jsonl"
arguments = true
on-failure = "continue"
"#,
    );
    let config = loaded.unwrap();
    let [first, second] = config.guards.tools.policies() else {
        panic!("two policies")
    };
    assert_eq!(
        r#"{"allow":["read_*","with \"quotes\" and é"],"ask":["deploy"]}"#,
        first.config_json
    );
    assert_eq!(Duration::from_millis(20), first.limits.deadline);
    assert_eq!(
        (Mode::Observe, true, false),
        (second.mode, second.grants.clock, second.grants.random)
    );
    let Source::File(path) = &second.source else {
        panic!("a file")
    };
    assert_eq!(
        &folder.path().join("policies/second.wasm"),
        path,
        "as seen from the file"
    );
    assert_eq!(1, config.guards.reads.policies().len());
    assert_eq!(
        134_217_728, config.guards.engine.memory_bytes_max,
        "room for the largest"
    );
    assert_eq!(Duration::from_millis(1500), config.host.asks.deadline);
    assert_eq!(3, config.host.asks.parked_per_session);
    assert_eq!(2048, config.host.scan.frame_bytes_max);
    assert_eq!("files", config.host.server);
    assert_eq!(Duration::from_secs(9), config.host.upstream_timeout);
    let environment: [(OsString, OsString); 2] =
        [("API_KEY".into(), "k3y".into()), ("MODE".into(), "test=1".into())];
    assert_eq!(environment.as_slice(), config.environment);
    assert_eq!(Sink::File(folder.path().join("audit.jsonl")), config.audit.sink);
    assert!(config.audit.arguments);
    assert_eq!(OnFailure::Continue, config.audit.on_failure);
}

#[test]
fn an_empty_chain_is_a_chain() {
    let (_folder, loaded) = load_text("tools = []\n");
    assert!(matches!(loaded.unwrap().guards.tools, ChainSettings::Policies(policies) if policies.is_empty()));
}

#[test]
fn flags_come_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gatewright.toml");
    fs::write(
        &path,
        "[[tools]]\npolicy = 'builtin:deny-all'\n[audit]\nto = 'off'\n[upstream]\nname = 'f'\nenv = ['A=1']\n",
    )
    .unwrap();
    let rules = folder.path().join("rules.json");
    fs::write(&rules, r#"{"allow": ["a"]}"#).unwrap();
    let config = load(&Flags {
        config: Some(path),
        tools: vec![
            format!("builtin:allowlist={}", rules.display()),
            r#"builtin:allowlist={"ask":["b=c"]}"#.into(),
        ],
        reads: vec!["builtin:allow-all".into()],
        env: vec!["A=2".into()],
        audit: Some("stderr".into()),
        name: Some("flag".into()),
        no_cache: true,
    })
    .unwrap();
    let configs: Vec<_> = config
        .guards
        .tools
        .policies()
        .iter()
        .map(|policy| policy.config_json.as_str())
        .collect();
    assert_eq!([r#"{"allow": ["a"]}"#, r#"{"ask":["b=c"]}"#].as_slice(), configs);
    assert_eq!(
        (Sink::Stderr, "flag"),
        (config.audit.sink, config.host.server.as_str())
    );
    assert_eq!(
        Some(&("A".into(), "2".into())),
        config.environment.last(),
        "the last one wins"
    );
}

#[test]
fn a_wrong_policy_is_named_with_line_and_field() {
    check_wrong(
        "[[tools]]\npolicy = 'builtin:allowlist'\ndedline-ms = 5\n",
        &expect![[r#"
            cannot use `gatewright.toml`: TOML parse error at line 3, column 1
              |
            3 | dedline-ms = 5
              | ^^^^^^^^^^
            unknown field `dedline-ms`, expected one of `policy`, `config`, `config-file`, `mode`, `deadline-ms`, `memory-bytes-max`, `table-elements-max`, `output-bytes-max`, `log-bytes-max`, `grants`, `env`"#]],
    );
    check_wrong(
        "[[tools]]\npolicy = 'builtin:nope'\n",
        &expect![
            "cannot use `gatewright.toml`: line 2: `policy`: there is no such policy; the carried ones are allow-all, allowlist, deny-all, paths"
        ],
    );
    check_wrong(
        "\n\n[[reads]]\npolicy = ''\n",
        &expect![
            "cannot use `gatewright.toml`: line 4: `policy`: this names no policy; give a file or `builtin:NAME`"
        ],
    );
    check_wrong(
        "[[tools]]\n",
        &expect![[r#"
        cannot use `gatewright.toml`: TOML parse error at line 1, column 1
          |
        1 | [[tools]]
          | ^^^^^^^^^
        missing field `policy`"#]],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\ndeadline-ms = 0\n",
        &expect![
            "cannot use `gatewright.toml`: line 3: `deadline-ms`: 0 is out of range; give a number from 1 to 86400000"
        ],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\ndeadline-ms = -5\n",
        &expect![
            "cannot use `gatewright.toml`: line 3: `deadline-ms`: -5 is out of range; give a number from 1 to 86400000"
        ],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\ndeadline-ms = 60000\n[ask]\ndeadline-ms = 50000\n",
        &expect![
            "the `deadline-ms` of policy `a.wasm` is 60000, and must be less than `ask.deadline-ms`, which is 50000; lower the one or raise the other"
        ],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\nmemory-bytes-max = 99999999999\n",
        &expect![
            "cannot use `gatewright.toml`: line 3: `memory-bytes-max`: 99999999999 is out of range; give a number from 65536 to 4294967296"
        ],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\nconfig = { since = 2026-12-01 }\n",
        &expect![[
            r#"cannot use `gatewright.toml`: line 3: `config`: JSON has no dates; write "2026-12-01" as a text"#
        ]],
    );
}

#[test]
fn a_wrong_configuration_or_mode_is_named() {
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\nconfig = { n = nan }\n",
        &expect!["cannot use `gatewright.toml`: line 3: `config`: JSON has no number NaN"],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\nconfig = {}\nconfig-file = 'x.json'\n",
        &expect![
            "cannot use `gatewright.toml`: line 4: `config-file`: there is a `config` as well; keep one of the two"
        ],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\nconfig-file = 'none.json'\n",
        &expect!["cannot read `none.json`; check that the path is right and the file readable and UTF-8"],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\nmode = 'watch'\n",
        &expect![[r#"
            cannot use `gatewright.toml`: TOML parse error at line 3, column 8
              |
            3 | mode = 'watch'
              |        ^^^^^^^
            unknown variant `watch`, expected `enforce` or `observe`"#]],
    );
    check_wrong(
        "[[tools]]\npolicy = 'a.wasm'\ngrants = ['network']\n",
        &expect![[r#"
            cannot use `gatewright.toml`: TOML parse error at line 3, column 11
              |
            3 | grants = ['network']
              |           ^^^^^^^^^
            unknown variant `network`, expected one of `clock`, `random`, `log`"#]],
    );
    check_wrong(
        "[ask]\ndeadline-ms = 999999999999\n",
        &expect![
            "cannot use `gatewright.toml`: line 2: `ask.deadline-ms`: 999999999999 is out of range; give a number from 1 to 86400000"
        ],
    );
    check_wrong(
        "[wire]\nframe-bytes-max = 10\n",
        &expect![
            "cannot use `gatewright.toml`: line 2: `wire.frame-bytes-max`: 10 is out of range; give a number from 1024 to 1073741824"
        ],
    );
    check_wrong(
        "[upstream]\nenv = ['A=1', 'NOT_SET']\n",
        &expect![
            "cannot use `gatewright.toml`: line 2: `upstream.env`: the variable `NOT_SET` is not set here; set it, or give `NOT_SET=VALUE`"
        ],
    );
    check_wrong(
        "[upstream]\nenv = ['=1']\n",
        &expect![
            "cannot use `gatewright.toml`: line 2: `upstream.env`: this is no variable; give `NAME` or `NAME=VALUE`"
        ],
    );
    check_wrong(
        "[audit]\nto = ''\n",
        &expect![
            "cannot use `gatewright.toml`: line 2: `audit.to`: this names no place for records; give a file, `stderr` or `off`"
        ],
    );
}

#[test]
fn a_wrong_table_is_named_with_line_and_field() {
    check_wrong(
        "[audit]\non-failure = 'ignore'\n",
        &expect![[r#"
        cannot use `gatewright.toml`: TOML parse error at line 2, column 14
          |
        2 | on-failure = 'ignore'
          |              ^^^^^^^^
        unknown variant `ignore`, expected `deny` or `continue`"#]],
    );
    check_wrong(
        "tools = 'builtin:allowlist'\n",
        &expect![[r#"
        cannot use `gatewright.toml`: TOML parse error at line 1, column 9
          |
        1 | tools = 'builtin:allowlist'
          |         ^^^^^^^^^^^^^^^^^^^
        invalid type: string "builtin:allowlist", expected a sequence"#]],
    );
    check_wrong(
        "[ask]\n[ask]\n",
        &expect![[r#"
        cannot use `gatewright.toml`: TOML parse error at line 2, column 2
          |
        2 | [ask]
          |  ^^^
        duplicate key"#]],
    );
}

#[test]
fn a_wrong_flag_is_named() {
    #[track_caller]
    fn check(flags: &Flags, expected: &expect_test::Expect) {
        expected.assert_eq(&load(flags).unwrap_err().to_string());
    }
    let tools = |text: &str| Flags {
        tools: vec![text.into()],
        ..Flags::default()
    };
    check(
        &tools("builtin:nope"),
        &expect![
            "cannot use `--tools builtin:nope`: there is no such policy; the carried ones are allow-all, allowlist, deny-all, paths"
        ],
    );
    check(
        &tools(""),
        &expect!["cannot use `--tools `: this names no policy; give a file or `builtin:NAME`"],
    );
    check(
        &tools("builtin:allowlist={]"),
        &expect![
            "cannot use `--tools builtin:allowlist={]`: the configuration of the policy is not JSON: key must be a string at line 1 column 2"
        ],
    );
    check(
        &tools("builtin:allowlist=/dev/null"),
        &expect!["cannot read `/dev/null`: it is not a regular file"],
    );
    check(
        &Flags {
            env: vec!["NOT_SET".into()],
            ..Flags::default()
        },
        &expect![
            "cannot use `--env NOT_SET`: the variable `NOT_SET` is not set here; set it, or give `NOT_SET=VALUE`"
        ],
    );
    check(
        &Flags {
            audit: Some(String::new()),
            ..Flags::default()
        },
        &expect!["cannot use `--audit `: this names no place for records; give a file, `stderr` or `off`"],
    );
    check(
        &Flags {
            config: Some("/".into()),
            ..Flags::default()
        },
        &expect!["cannot read `/`: it is not a regular file"],
    );
    let nowhere = Config::load(&Flags::default(), Path::new("x"), &|_| None).unwrap_err();
    expect!["there is no place for audit records: neither XDG_STATE_HOME nor HOME is set to an absolute path; give `--audit FILE`, `--audit stderr` or `--audit off`"].assert_eq(&nowhere.to_string());
}

#[test]
fn a_huge_file_and_bytes_that_are_no_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gatewright.toml");
    let flags = Flags {
        config: Some(path.clone()),
        ..Flags::default()
    };
    fs::write(&path, "#".repeat(4 * 1024 * 1024 + 1)).unwrap();
    assert!(matches!(load(&flags), Err(ConfigError::TooLong { .. })));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(matches!(load(&flags), Err(ConfigError::Read { .. })));
    fs::write(&path, format!("x = {}", "[".repeat(100_000))).unwrap();
    assert!(matches!(load(&flags), Err(ConfigError::Syntax { .. })));
}

#[test]
fn a_policy_that_cannot_be_loaded_starts_nothing() {
    let (folder, loaded) = load_text("[[tools]]\npolicy = 'missing.wasm'\n");
    let error = guards::load(loaded.unwrap().guards, Arc::new(SystemClock))
        .unwrap_err()
        .to_string();
    let file = folder.path().join("missing.wasm");
    assert!(
        error.contains(&format!("cannot read policy `{}`", file.display())),
        "{error}"
    );
    let (_folder, loaded) = load_text("[[tools]]\npolicy = 'builtin:allowlist'\nconfig = { alow = ['x'] }\n");
    let error = guards::load(loaded.unwrap().guards, Arc::new(SystemClock))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("refuses its configuration") && error.contains("alow"),
        "{error}"
    );
}
