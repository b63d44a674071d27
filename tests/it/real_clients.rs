//! The official filesystem server behind `wrap` and `serve`, driven by the official clients; and, because it speaks the
//! 2025 revisions only, a server on the official Python package that speaks 2026-07-28 as well.
//!
//! What a call did is read off the disk: a refused one left nothing there.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use gatewright::audit::read::verify;
use serde_json::{Value, json};
use tempfile::TempDir;

/// An official client.
#[derive(Clone, Copy, Debug)]
enum Client {
    /// PyPI `mcp` 2.x.
    Python,
    /// npm `@modelcontextprotocol/sdk` 1.x.
    TypeScript,
    /// npm `@modelcontextprotocol/client` 2.x.
    TypeScript2,
}

/// How the client reaches the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    /// `gatewright wrap`.
    Stdio,
    /// `gatewright serve`.
    Http,
}

/// A server behind the gate.
#[derive(Clone, Copy, Debug)]
enum Server {
    /// `@modelcontextprotocol/server-filesystem`.
    Filesystem,
    /// `@modelcontextprotocol/server-everything`.
    Everything,
    /// `tests/peers/server.py`.
    Files,
}

/// Who talks to whom, and the revision on which they agree.
#[derive(Clone, Copy, Debug)]
struct Peers(Client, Server, &'static str, Over);

const LATEST_OF_2025: &str = "2025-11-25";
const STATELESS: &str = "2026-07-28";

/// A folder of installed peers.
pub(crate) fn installed(name: &str) -> PathBuf {
    let folder = top().join("target/peers").join(name);
    assert!(
        folder.join("complete").is_file(),
        "{} is not installed: run `cargo xtask peers`",
        folder.display()
    );
    folder
}

impl Client {
    fn command(self) -> Command {
        let (folder, program, script) = match self {
            Self::Python => (installed("python"), "bin/python", "client.py"),
            Self::TypeScript => (installed("node"), "node", "client.mjs"),
            Self::TypeScript2 => (installed("node"), "node", "client2.mjs"),
        };
        let program = match self {
            Self::Python => folder.join(program),
            Self::TypeScript | Self::TypeScript2 => PathBuf::from(program),
        };
        let mut command = Command::new(program);
        command
            .arg(top().join("tests/peers").join(script))
            .current_dir(folder);
        command
    }
}

impl Server {
    fn command(self, place: &Place) -> Vec<PathBuf> {
        match self {
            Self::Filesystem => vec![
                "node".into(),
                installed("node").join("node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"),
                place.path("share"),
                place.path("private"),
            ],
            Self::Everything => vec![
                "node".into(),
                installed("node").join("node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
            ],
            Self::Files => vec![
                installed("python").join("bin/python"),
                top().join("tests/peers/server.py"),
            ],
        }
    }
}

pub(crate) fn top() -> &'static Path {
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
config = {{ allow = ["list_*", "read_*", "write_file", "echo"], ask = ["create_directory", "edit_file"], prompt = "A new folder?" }}
deadline-ms = 2000

[[tools]]
policy = "builtin:paths"
deadline-ms = 2000
[tools.config]
roots = [{share:?}]
[tools.config.tools]
read_text_file = {{ arguments = ["path"] }}
write_file = {{ arguments = ["path"] }}
create_directory = {{ arguments = ["path"] }}
edit_file = {{ arguments = ["path"] }}
echo = {{ arguments = [] }}

[ask]
deadline-ms = 3000

[audit]
to = "audit.jsonl"
"#,
            share = self.path("share").display().to_string()
        )
    }

    /// Runs the steps, and gives the outcome of each and the questions that were put.
    fn run(&self, peers: Peers, elicitation: Option<&str>, steps: &[Value]) -> (Vec<Value>, Vec<String>) {
        let Peers(client, server, revision, over) = peers;
        let mut script = json!({
            "elicitation": elicitation,
            "legacy": revision != STATELESS,
            "steps": steps,
        });
        let serving = match over {
            Over::Stdio => {
                let gate = PathBuf::from(env!("CARGO_BIN_EXE_gatewright"));
                let mut command = vec![gate, "wrap".into(), "--config".into()];
                command.extend([self.path("gatewright.toml"), "--".into()]);
                command.extend(server.command(self));
                script["command"] = json!(command);
                script["env"] = json!({
                    "PATH": std::env::var("PATH").unwrap(), "XDG_CACHE_HOME": CACHE, "GATEWRIGHT_LOG": "warn"
                });
                None
            }
            Over::Http => {
                let serving = self.serve(server);
                script["url"] = json!(serving.url);
                Some(serving)
            }
        };
        let output = client.command().arg(script.to_string()).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{peers:?}: {stderr}");
        let said: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{peers:?}: {error} in {:?}; {stderr}", output.stdout));
        assert_eq!(json!(revision), said["revision"]);
        drop(serving);
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

    /// `gatewright serve` with the server as a child.
    fn serve(&self, server: Server) -> Serving {
        let command = json!(server.command(self));
        let listener = format!(
            "[listen]\naddress = '127.0.0.1:0'\n[[reads]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 2000\n\
             [[endpoint]]\npath = '/mcp'\ncommand = {command}\n"
        );
        fs::write(self.path("serve.toml"), self.configuration() + &listener).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["serve", "--config"])
            .arg(self.path("serve.toml"))
            .env("XDG_CACHE_HOME", CACHE)
            .env("GATEWRIGHT_LOG", "info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = log.find_map(|line| {
            line.unwrap()
                .split_once("listening on ")
                .map(|(_, url)| url.to_owned())
        });
        let url = line.expect("the gate listens");
        // Whoever writes a log that nobody reads waits in the end.
        std::thread::spawn(move || log.for_each(drop));
        Serving { child, url }
    }

    fn call(&self, name: &str, path: &str) -> Value {
        let mut arguments = json!({"path": self.path(path)});
        if name == "write_file" {
            arguments["content"] = json!("written");
        }
        json!({"do": "call", "name": name, "arguments": arguments})
    }
}

/// Compiling the policies anew would take longer than all the rest.
const CACHE: &str = env!("CARGO_TARGET_TMPDIR");

/// A gate that serves; ended when dropped.
struct Serving {
    child: Child,
    url: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let ended = self.child.wait().unwrap();
        if !std::thread::panicking() {
            assert!(ended.success(), "the gate ends as it should: {ended}");
        }
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

fn lists_reads_and_writes(peers: Peers) {
    let place = Place::new();
    let steps = [
        json!({"do": "list_tools"}),
        place.call("read_text_file", "share/a.txt"),
        place.call("write_file", "share/b.txt"),
    ];
    let (outcomes, questions) = place.run(peers, Some("decline"), &steps);
    let tools = outcomes[0]["tools"].as_array().unwrap();
    assert!(tools.contains(&json!("write_file")) && tools.contains(&json!("create_directory")));
    assert_eq!(json!("hello"), outcomes[1]["text"]);
    assert_eq!(json!(false), outcomes[2]["is_error"], "{outcomes:?}");
    assert_eq!("written", fs::read_to_string(place.path("share/b.txt")).unwrap());
    assert!(questions.is_empty(), "{questions:?}");
}

fn denies_a_path_and_a_tool(peers: Peers) {
    let place = Place::new();
    let steps = [
        place.call("write_file", "private/b.txt"),
        place.call("write_file", "share/../private/c.txt"),
        place.call("delete_everything", "share/a.txt"),
        place.call("read_text_file", "share/a.txt"),
    ];
    let (outcomes, _) = place.run(peers, Some("approve"), &steps);
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
fn asks(peers: Peers, elicitation: Option<&str>, refused: Option<&str>) {
    let place = Place::new();
    let steps = [
        place.call("create_directory", "share/new"),
        place.call("read_text_file", "share/a.txt"),
    ];
    let (outcomes, questions) = place.run(peers, elicitation, &steps);
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

/// The server has a question of its own, which follows the gate's.
fn asks_and_relays(peers: Peers) {
    let place = Place::new();
    let (outcomes, questions) = place.run(peers, Some("approve"), &[place.call("edit_file", "share/a.txt")]);
    assert_eq!(json!(false), outcomes[0]["is_error"], "{outcomes:?}");
    assert_eq!("as asked", fs::read_to_string(place.path("share/a.txt")).unwrap());
    let [ours, theirs] = questions.as_slice() else {
        panic!("two questions: {questions:?}")
    };
    assert!(ours.starts_with("Gatewright asks for your approval."), "{ours}");
    assert!(
        theirs.starts_with("The server ") && theirs.ends_with(" asks:\n\nWhat shall a.txt say?"),
        "{theirs}"
    );

    let (outcomes, questions) = place.run(peers, Some("decline"), &[place.call("edit_file", "share/a.txt")]);
    assert_refused(&outcomes[0], "declined");
    assert_eq!(1, questions.len(), "the server was not even asked: {questions:?}");
}

/// A server with a bit of everything: long lists, images, logging of its own accord.
fn sees_everything(peers: Peers) {
    let place = Place::new();
    let steps = [
        json!({"do": "list_tools"}),
        json!({"do": "call", "name": "echo", "arguments": {"message": "hello"}}),
        json!({"do": "call", "name": "get-env", "arguments": {}}),
    ];
    let (outcomes, _) = place.run(peers, None, &steps);
    assert!(
        outcomes[0]["tools"]
            .as_array()
            .unwrap()
            .contains(&json!("get-env")),
        "{outcomes:?}"
    );
    assert!(
        outcomes[1]["text"].as_str().unwrap().contains("hello"),
        "{outcomes:?}"
    );
    assert_refused(&outcomes[2], "denied");
}

macro_rules! with_peers {
    ($($peers:ident: $($check:ident)*;)*) => {
        $(mod $peers {
            $(#[test] fn $check() { super::$check(super::$peers()); })*
        })*
    };
}

fn python() -> Peers {
    Peers(Client::Python, Server::Filesystem, LATEST_OF_2025, Over::Stdio)
}

fn typescript() -> Peers {
    Peers(
        Client::TypeScript,
        Server::Filesystem,
        LATEST_OF_2025,
        Over::Stdio,
    )
}

fn python_stateless() -> Peers {
    Peers(Client::Python, Server::Files, STATELESS, Over::Stdio)
}

fn python_and_a_server_that_asks() -> Peers {
    Peers(Client::Python, Server::Files, LATEST_OF_2025, Over::Stdio)
}

fn typescript_and_a_server_that_asks() -> Peers {
    Peers(Client::TypeScript, Server::Files, LATEST_OF_2025, Over::Stdio)
}

fn python_over_http() -> Peers {
    Peers(Client::Python, Server::Filesystem, LATEST_OF_2025, Over::Http)
}

fn python_stateless_over_http() -> Peers {
    Peers(Client::Python, Server::Files, STATELESS, Over::Http)
}

fn python_over_http_and_a_server_that_asks() -> Peers {
    Peers(Client::Python, Server::Files, LATEST_OF_2025, Over::Http)
}

fn typescript_over_http() -> Peers {
    Peers(Client::TypeScript, Server::Filesystem, LATEST_OF_2025, Over::Http)
}

fn typescript_over_http_and_a_server_that_asks() -> Peers {
    Peers(Client::TypeScript, Server::Files, LATEST_OF_2025, Over::Http)
}

fn typescript2_over_http() -> Peers {
    Peers(
        Client::TypeScript2,
        Server::Filesystem,
        LATEST_OF_2025,
        Over::Http,
    )
}

fn typescript2_stateless_over_http() -> Peers {
    Peers(Client::TypeScript2, Server::Files, STATELESS, Over::Http)
}

fn python_over_http_and_everything() -> Peers {
    Peers(Client::Python, Server::Everything, LATEST_OF_2025, Over::Http)
}

fn typescript_over_http_and_everything() -> Peers {
    Peers(Client::TypeScript, Server::Everything, LATEST_OF_2025, Over::Http)
}

fn typescript2_over_http_and_everything() -> Peers {
    Peers(
        Client::TypeScript2,
        Server::Everything,
        LATEST_OF_2025,
        Over::Http,
    )
}

fn typescript2() -> Peers {
    Peers(
        Client::TypeScript2,
        Server::Filesystem,
        LATEST_OF_2025,
        Over::Stdio,
    )
}

fn an_approved_call_runs(peers: Peers) {
    asks(peers, Some("approve"), None);
}

fn a_declined_call_does_not(peers: Peers) {
    asks(peers, Some("decline"), Some("declined"));
}

fn a_cancelled_call_does_not(peers: Peers) {
    asks(peers, Some("cancel"), Some("cancelled"));
}

fn accepted_with_an_empty_object_is_no_approval(peers: Peers) {
    asks(peers, Some("empty"), Some("not_approved"));
}

fn an_unanswered_call_times_out(peers: Peers) {
    asks(peers, Some("silence"), Some("timeout"));
}

fn a_client_that_cannot_be_asked_is_told_so(peers: Peers) {
    asks(peers, None, Some("cannot_ask"));
}

with_peers! {
    python:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    typescript:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    // No call waits in this era, so none times out: the question is a result.
    python_stateless:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        a_client_that_cannot_be_asked_is_told_so
        asks_and_relays;
    python_and_a_server_that_asks: asks_and_relays;
    typescript_and_a_server_that_asks: asks_and_relays;
    python_over_http:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    typescript_over_http:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    typescript2_over_http:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        an_unanswered_call_times_out
        a_client_that_cannot_be_asked_is_told_so;
    python_stateless_over_http:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        a_client_that_cannot_be_asked_is_told_so
        asks_and_relays;
    typescript2_stateless_over_http:
        lists_reads_and_writes
        denies_a_path_and_a_tool
        an_approved_call_runs
        a_declined_call_does_not
        a_cancelled_call_does_not
        accepted_with_an_empty_object_is_no_approval
        a_client_that_cannot_be_asked_is_told_so
        asks_and_relays;
    typescript2: lists_reads_and_writes an_approved_call_runs a_declined_call_does_not;
    python_over_http_and_everything: sees_everything;
    typescript_over_http_and_everything: sees_everything;
    typescript2_over_http_and_everything: sees_everything;
    python_over_http_and_a_server_that_asks: asks_and_relays;
    typescript_over_http_and_a_server_that_asks: asks_and_relays;
}
