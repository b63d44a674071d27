//! The official filesystem server behind `wrap`, driven by the official clients.
//!
//! What a call did is read off the disk: a refused one left nothing there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gatewright::audit::read::verify;
use serde_json::{Value, json};
use tempfile::TempDir;

/// An official client, and how it is started.
#[derive(Clone, Copy, Debug)]
enum Client {
    Python,
    TypeScript,
}

impl Client {
    fn command(self) -> Command {
        let peers = top().join("target/peers");
        let (program, folder, script) = match self {
            Self::Python => (peers.join("python/bin/python"), peers.join("python"), "client.py"),
            Self::TypeScript => (PathBuf::from("node"), peers.join("node"), "client.mjs"),
        };
        assert!(
            folder.join("complete").is_file(),
            "{} is not installed: run `cargo xtask peers`",
            folder.display()
        );
        let mut command = Command::new(program);
        command
            .arg(top().join("tests/peers").join(script))
            .current_dir(folder);
        command
    }
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A folder that is shared and one that is not, both open to the server; only the gate keeps them apart.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        fs::create_dir(place.path("share")).unwrap();
        fs::create_dir(place.path("private")).unwrap();
        fs::write(place.path("share/a.txt"), "hello").unwrap();
        fs::write(place.path("gatewright.toml"), place.configuration()).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    fn configuration(&self) -> String {
        format!(
            r#"
[[tools]]
policy = "builtin:allowlist"
config = {{ allow = ["list_*", "read_*", "write_file"], ask = ["create_directory"], prompt = "A new folder?" }}
deadline-ms = 500

[[tools]]
policy = "builtin:paths"
deadline-ms = 500
[tools.config]
roots = [{share:?}]
[tools.config.tools]
read_text_file = {{ arguments = ["path"] }}
write_file = {{ arguments = ["path"] }}
create_directory = {{ arguments = ["path"] }}

[ask]
deadline-ms = 3000

[audit]
to = "audit.jsonl"
"#,
            share = self.path("share").display().to_string()
        )
    }

    /// Runs the steps, and gives the outcome of each and the questions that were put.
    fn run(&self, client: Client, elicitation: Option<&str>, steps: &[Value]) -> (Vec<Value>, Vec<String>) {
        let server = top()
            .join("target/peers/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
        let script = json!({
            "command": [
                env!("CARGO_BIN_EXE_gatewright"), "wrap", "--config", self.path("gatewright.toml"), "--",
                "node", server, self.path("share"), self.path("private"),
            ],
            "env": {"PATH": std::env::var("PATH").unwrap(), "GATEWRIGHT_LOG": "warn"},
            "elicitation": elicitation,
            "steps": steps,
        });
        let output = client.command().arg(script.to_string()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{client:?}: {stderr}");
        let said: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{client:?}: {error} in {:?}; {stderr}", output.stdout));
        let log = fs::read(self.path("audit.jsonl")).unwrap();
        assert_eq!(
            Vec::<(u64, String)>::new(),
            verify(log.as_slice()).unwrap().faults
        );
        let outcomes = said["outcomes"].as_array().unwrap().clone();
        let questions = said["questions"].as_array().unwrap();
        (
            outcomes,
            questions
                .iter()
                .map(|question| question.as_str().unwrap().to_owned())
                .collect(),
        )
    }

    fn call(&self, name: &str, path: &str) -> Value {
        let mut arguments = json!({"path": self.path(path)});
        if name == "write_file" {
            arguments["content"] = json!("written");
        }
        json!({"do": "call", "name": name, "arguments": arguments})
    }
}

#[track_caller]
fn assert_refused(outcome: &Value, code: &str) {
    assert_eq!(json!(true), outcome["is_error"], "{outcome}");
    let refusal = &outcome["refusal"];
    assert_eq!(json!(code), refusal["code"], "{outcome}");
    assert_eq!(json!("authorization_required"), refusal["error"]);
    let text: Value = serde_json::from_str(outcome["text"].as_str().unwrap()).unwrap();
    assert_eq!(refusal, &text, "the text says the same");
}

fn lists_reads_and_writes(client: Client) {
    let place = Place::new();
    let steps = [
        json!({"do": "list_tools"}),
        place.call("read_text_file", "share/a.txt"),
        place.call("write_file", "share/b.txt"),
    ];
    let (outcomes, questions) = place.run(client, Some("decline"), &steps);
    let tools = outcomes[0]["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("write_file")) && tools.contains(&json!("create_directory")));
    assert_eq!(json!("hello"), outcomes[1]["text"]);
    assert_eq!(json!(false), outcomes[2]["is_error"], "{outcomes:?}");
    assert_eq!("written", fs::read_to_string(place.path("share/b.txt")).unwrap());
    assert!(questions.is_empty(), "{questions:?}");
}

fn denies_a_path_and_a_tool(client: Client) {
    let place = Place::new();
    let steps = [
        place.call("write_file", "private/b.txt"),
        place.call("write_file", "share/../private/c.txt"),
        place.call("delete_everything", "share/a.txt"),
        place.call("read_text_file", "share/a.txt"),
    ];
    let (outcomes, _) = place.run(client, Some("approve"), &steps);
    for outcome in &outcomes[..3] {
        assert_refused(outcome, "denied");
    }
    assert_eq!(
        0,
        fs::read_dir(place.path("private")).unwrap().count(),
        "the server saw none of them"
    );
    assert_eq!(json!("hello"), outcomes[3]["text"], "the session goes on");
}

/// Asked once; `refused` is none for an approval.
fn asks(client: Client, elicitation: Option<&str>, refused: Option<&str>) {
    let place = Place::new();
    let steps = [
        place.call("create_directory", "share/new"),
        place.call("read_text_file", "share/a.txt"),
    ];
    let (outcomes, questions) = place.run(client, elicitation, &steps);
    match refused {
        None => assert_eq!(json!(false), outcomes[0]["is_error"], "{outcomes:?}"),
        Some(code) => assert_refused(&outcomes[0], code),
    }
    assert_eq!(refused.is_none(), place.path("share/new").is_dir());
    assert_eq!(json!("hello"), outcomes[1]["text"], "the session goes on");
    match elicitation {
        None => assert!(questions.is_empty()),
        Some(_) => {
            let [question] = questions.as_slice() else {
                panic!("one question: {questions:?}")
            };
            assert!(
                question.starts_with("Gatewright asks for your approval."),
                "{question}"
            );
            assert!(
                question.contains("Tool: create_directory") && question.contains("A new folder?"),
                "{question}"
            );
        }
    }
}

macro_rules! with_both_clients {
    ($($name:ident: $check:expr;)*) => {
        mod python {
            use super::*;
            $(#[test] fn $name() { $check(Client::Python); })*
        }
        mod typescript {
            use super::*;
            $(#[test] fn $name() { $check(Client::TypeScript); })*
        }
    };
}

with_both_clients! {
    listing_reading_and_writing_run: lists_reads_and_writes;
    a_denied_path_and_a_denied_tool_leave_nothing: denies_a_path_and_a_tool;
    an_approved_call_runs: |client| asks(client, Some("approve"), None);
    a_declined_call_does_not: |client| asks(client, Some("decline"), Some("declined"));
    a_cancelled_call_does_not: |client| asks(client, Some("cancel"), Some("cancelled"));
    accepted_with_an_empty_object_is_no_approval: |client| asks(client, Some("empty"), Some("not_approved"));
    an_unanswered_call_times_out: |client| asks(client, Some("silence"), Some("timeout"));
    a_client_that_cannot_be_asked_is_told_so: |client| asks(client, None, Some("cannot_ask"));
}
