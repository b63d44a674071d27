//! `gatewright wrap` as a client starts it: what reaches the server, what is answered when the server or the
//! client goes away, and what is said when it cannot start.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gatewright::audit::read::verify;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server that writes down what it receives, complains on its standard error, and leaves when it is
/// told to. It never answers `hold`, and after `hang` it does not even read. One that is `stubborn` leaves
/// neither at the end of its input nor at SIGTERM.
const SERVER: &str = r#"
import json, os, signal, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
tape = open(sys.argv[1], "a", buffering=1)
print("the server is up", file=sys.stderr, flush=True)
for line in sys.stdin:
    tape.write(line)
    message = json.loads(line)
    name = message.get("params", {}).get("name")
    if name == "leave":
        os._exit(7)
    if name == "hang":
        signal.pause()
    if "id" not in message or name == "hold":
        continue
    result = {"content": []}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    if message["method"] == "tools/list":
        wipe = {"name": "wipe", "inputSchema": {"type": "object"}, "annotations": {"destructiveHint": "destructive" in sys.argv}}
        result = {"tools": [wipe]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
while "stubborn" in sys.argv:
    signal.pause()
"#;

/// A chain that lets everything pass.
const ALLOW_ALL: Option<&str> = Some("policy = 'builtin:allow-all'");

/// How long an end may take.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// Far more than anything here takes.
const SOON: Duration = Duration::from_secs(20);

struct Gate {
    folder: TempDir,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: mpsc::Receiver<String>,
    /// All of it at once, when neither the gate nor the server can write any more.
    stderr: mpsc::Receiver<String>,
}

impl Drop for Gate {
    /// Only a test that failed leaves something to end.
    fn drop(&mut self) {
        let _ended = self.child.kill();
    }
}

fn gatewright(folder: &Path) -> Command {
    as_gatewright(env!("CARGO_BIN_EXE_gatewright"), folder)
}

/// A program in the place and with the environment of the gate.
fn as_gatewright(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env_remove("GATEWRIGHT_CONFIG")
        .env("GATEWRIGHT_AUDIT", folder.join("audit.jsonl"))
        .env("GATEWRIGHT_LOG", "error")
        .env("HOME", folder)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CACHE_HOME");
    command
}

impl Gate {
    /// The policy judges the tools of a server that has this `nature`.
    fn start(policy: Option<&str>, nature: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let command = gatewright(folder.path());
        Self::start_by(command, folder, policy, nature)
    }

    /// As [`Self::start`], by a command that ends in the gate's own arguments.
    fn start_by(mut command: Command, folder: TempDir, policy: Option<&str>, nature: &str) -> Self {
        // Deadlines are real time, and a busy machine must not fail a test that is not about time.
        let configuration = policy.map_or(String::new(), |policy| {
            format!("[[tools]]\n{policy}\ndeadline-ms = 5000\n")
        });
        fs::write(folder.path().join("gatewright.toml"), configuration).unwrap();
        let mut child = command
            .args(["wrap", "--config", "gatewright.toml", "--"])
            .args(["python3", "-c", SERVER, "tape", nature])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut stderr = child.stderr.take().unwrap();
        let (line, stdout) = mpsc::channel();
        let (text, all) = mpsc::channel();
        // On threads of their own, so that a gate that says nothing fails a test and does not hold it up.
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|said| line.send(said)));
        std::thread::spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).map(|_| text.send(said))
        });
        let mut gate = Self {
            folder,
            stdin: child.stdin.take(),
            stdout,
            stderr: all,
            child,
        };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        gate.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
        let opened = gate.next().unwrap();
        assert!(opened.get("result").is_some(), "{opened}");
        gate.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        gate
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn call(&mut self, id: u64, name: &str) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": {}}}));
    }

    /// The next message, or none when the gate has closed its output.
    fn next(&mut self) -> Option<Value> {
        match self.stdout.recv_timeout(SOON) {
            Ok(line) => Some(serde_json::from_str(&line).unwrap()),
            Err(mpsc::RecvTimeoutError::Disconnected) => None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the gate says nothing and does not end"),
        }
    }

    /// The code of the refusal that comes next, or null for an answer of the server.
    fn next_code(&mut self) -> Value {
        let answer = self.next().unwrap();
        assert!(answer["result"].is_object(), "{answer}");
        answer["result"]["_meta"]["gatewright/refusal"]["code"].clone()
    }

    fn tape(&self) -> String {
        fs::read_to_string(self.folder.path().join("tape")).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap()
    }

    /// The client closes its side. How the gate ended, and what it and the server wrote for the operator.
    fn leave(mut self) -> (ExitStatus, String) {
        drop(self.stdin.take());
        self.ended()
    }

    /// Waits for the end of both: the server holds the same standard error as the gate.
    #[expect(clippy::disallowed_methods, reason = "a process ends in real time")]
    fn ended(mut self) -> (ExitStatus, String) {
        let start = Instant::now();
        while self.next().is_some() {}
        let stderr = self.stderr.recv_timeout(SOON).expect("both end");
        let status = self.child.wait().unwrap();
        let took = start.elapsed();
        assert!(took < ENDS_WITHIN, "{took:?}");
        (status, stderr)
    }
}

#[test]
fn a_refused_call_never_reaches_the_server() {
    let policy = "policy = 'builtin:allowlist'\nconfig = { allow = ['wipe'], ask = ['deploy'] }";
    let mut gate = Gate::start(Some(policy), "");
    for (id, name) in [(1, "wipe"), (2, "steal"), (3, "deploy")] {
        gate.call(id, name);
    }
    let answers: Vec<Value> = (0..3).map(|_| gate.next().unwrap()).collect();
    let code = |id: u64| {
        let answer = answers.iter().find(|answer| answer["id"] == id).unwrap();
        answer["result"]["_meta"]["gatewright/refusal"]["code"].clone()
    };
    assert_eq!(
        [Value::Null, json!("denied"), json!("cannot_ask")],
        [code(1), code(2), code(3)]
    );
    let tape = gate.tape();
    assert!(
        tape.contains(r#""name":"wipe""#) && !tape.contains("steal") && !tape.contains("deploy"),
        "{tape}"
    );
    let (status, stderr) = gate.leave();
    assert!(status.success());
    assert!(
        stderr.contains("the server is up"),
        "its standard error is passed on: {stderr}"
    );
}

#[test]
fn the_end_of_the_server_is_told_to_every_call_that_waits() {
    let mut gate = Gate::start(ALLOW_ALL, "");
    gate.call(1, "hold");
    gate.call(2, "hold");
    gate.call(3, "leave");
    let mut ids: Vec<u64> = (0..3)
        .map(|_| {
            let answer = gate.next().unwrap();
            assert_eq!(json!(-32603), answer["error"]["code"], "{answer}");
            assert_eq!(
                json!("upstream_exited"),
                answer["error"]["data"]["code"],
                "{answer}"
            );
            answer["id"].as_u64().unwrap()
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(vec![1, 2, 3], ids);
    gate.call(4, "wipe");
    assert_eq!(
        json!(-32603),
        gate.next().unwrap()["error"]["code"],
        "and to those that come later"
    );
    assert!(gate.leave().0.success());
}

#[test]
fn the_end_of_the_client_ends_both() {
    let mut gate = Gate::start(ALLOW_ALL, "");
    gate.call(1, "hold");
    assert!(
        gate.leave().0.success(),
        "within {ENDS_WITHIN:?}, though a call runs"
    );
}

#[test]
fn a_server_that_does_not_read_holds_up_no_end() {
    let mut gate = Gate::start(ALLOW_ALL, "");
    gate.call(1, "hang");
    // Until nothing on the way takes any more: then the gate cannot even read the client's end.
    let stdin = gate.stdin.take().unwrap();
    rustix::io::ioctl_fionbio(&stdin, true).unwrap();
    let padding = "x".repeat(2000);
    for id in 2.. {
        let mut watched = [PollFd::new(&stdin, PollFlags::OUT)];
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        if poll(&mut watched, Some(&second)).unwrap() == 0 {
            break;
        }
        let params = json!({"name": "wipe", "arguments": {"padding": padding}});
        let line = format!(
            "{}\n",
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        );
        assert_eq!(line.len(), rustix::io::write(&stdin, line.as_bytes()).unwrap());
    }
    gate.stdin = Some(stdin);
    assert!(gate.leave().0.success());
}

#[test]
fn sigterm_ends_both() {
    let mut gate = Gate::start(ALLOW_ALL, "");
    gate.call(1, "wipe");
    assert!(gate.next().is_some());
    gate.signal(Signal::TERM);
    assert!(gate.ended().0.success(), "though the client is still there");
}

#[test]
fn a_server_that_will_not_end_is_gone_in_time() {
    for by_signal in [false, true] {
        let mut gate = Gate::start(ALLOW_ALL, "stubborn");
        gate.call(1, "hold");
        gate.call(2, "wipe");
        assert_eq!(json!(2), gate.next().unwrap()["id"]);
        let (status, _) = if by_signal {
            gate.signal(Signal::TERM);
            gate.ended()
        } else {
            gate.leave()
        };
        assert!(status.success());
    }
}

/// The record that does not fit is cut, and the next one starts on a line of its own.
#[test]
fn a_full_disk_refuses_until_there_is_room_again() {
    const BYTES_MAX: u64 = 2000;
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    // A program that python starts in its own place goes on ignoring SIGXFSZ, as python does.
    let exec = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])";
    let mut command = as_gatewright("python3", folder.path());
    command.args(["-c", exec, env!("CARGO_BIN_EXE_gatewright")]);
    let mut gate = Gate::start_by(command, folder, ALLOW_ALL, "");
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = |current| Rlimit { current, maximum };
    prlimit(Some(gate.pid()), Resource::Fsize, limit(Some(BYTES_MAX))).unwrap();
    let mut codes = Vec::new();
    for id in 1..=4 {
        gate.call(id, "wipe");
        codes.push(gate.next_code());
    }
    let unavailable = json!("audit_unavailable");
    assert_eq!((&Value::Null, &unavailable), (&codes[0], &codes[3]));
    let ran = codes.iter().filter(|code| code.is_null()).count();
    assert!(codes[ran..].iter().all(|code| *code == unavailable), "{codes:?}");
    assert_eq!(BYTES_MAX, fs::metadata(&audit).unwrap().len(), "a record was cut");
    prlimit(Some(gate.pid()), Resource::Fsize, limit(maximum)).unwrap();
    gate.call(5, "wipe");
    assert_eq!(Value::Null, gate.next_code());
    let calls = gate.tape().matches("tools/call").count();
    assert_eq!(ran + 1, calls, "what was refused never reached the server");
    drop(gate.stdin.take());
    while gate.next().is_some() {}
    let report = verify(fs::read(&audit).unwrap().as_slice()).unwrap();
    let [(_, fault)] = report.faults.as_slice() else {
        panic!("{report:?}")
    };
    assert!(report.chains == 1 && fault.contains("not a record"), "{report:?}");
}

#[test]
fn a_destructive_tool_without_a_tools_chain_is_not_served() {
    let mut gate = Gate::start(None, "destructive");
    gate.call(1, "wipe");
    let answer = gate.next().unwrap();
    assert_eq!(json!(-31403), answer["error"]["code"], "{answer}");
    assert!(
        answer["error"]["message"].as_str().unwrap().contains("--tools"),
        "{answer}"
    );
    assert!(!gate.tape().contains("tools/call"), "{}", gate.tape());
    let (status, stderr) = gate.leave();
    assert_eq!(Some(2), status.code());
    assert!(stderr.contains("wipe"), "the operator reads it too: {stderr}");

    let mut gate = Gate::start(ALLOW_ALL, "destructive");
    gate.call(1, "wipe");
    assert!(
        gate.next().unwrap().get("result").is_some(),
        "a chain that allows it serves it"
    );
    assert!(gate.leave().0.success());
}

#[test]
fn only_named_variables_reach_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatewright(folder.path())
        .args([
            "wrap", "--env", "NAMED", "--env", "SET=a=b", "--", "sh", "-c", "env >&2",
        ])
        .env("NAMED", "passed")
        .env("SECRET", "leaked")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("NAMED=passed\n") && stderr.contains("SET=a=b\n"),
        "{stderr}"
    );
    assert!(
        !stderr.contains("SECRET") && !stderr.contains("GATEWRIGHT"),
        "{stderr}"
    );
}

/// Of wasmtime's hook for `fork`, a server once got a descriptor.
#[test]
fn no_descriptor_but_the_three_reaches_the_server() {
    const LIST: &str = r#"
import os, sys
# The descriptor by which the folder is listed is gone when it is looked at.
fds = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]
print(sorted(int(fd) for fd in fds), file=sys.stderr)
"#;
    let folder = tempfile::tempdir().unwrap();
    let said = |mut command: Command| {
        let output = command
            .args(["python3", "-c", LIST])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let mut gate = gatewright(folder.path());
    gate.args(["wrap", "--tools", "builtin:allow-all", "--"]);
    let (bare, wrapped) = (said(Command::new("env")), said(gate));
    assert!(bare.starts_with("[0, 1, 2"), "{bare}");
    assert_eq!(
        bare, wrapped,
        "what whoever runs this test leaves open is not ours"
    );
}

/// What cannot start says why in one place and starts no server.
#[track_caller]
fn check_no_start(arguments: &[&str], code: i32, parts: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("wrong.toml"),
        "[[tools]]\npolicy = 'builtin:allowlist'\nmode = 'sometimes'\n",
    )
    .unwrap();
    fs::write(folder.path().join("half.wasm"), b"\0asm\x0d\0\x01\0\x01").unwrap();
    let started: PathBuf = folder.path().join("started");
    let output = gatewright(folder.path())
        .arg("wrap")
        .args(arguments)
        .args(["--", "touch"])
        .arg(&started)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (Some(code), ""),
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).as_ref()
        ),
        "{stderr}"
    );
    for part in parts {
        assert!(stderr.contains(part), "`{part}` in {stderr}");
    }
    assert!(!started.exists(), "the server was started: {stderr}");
}

#[test]
fn what_is_wrong_is_found_before_the_server_starts() {
    check_no_start(
        &["--config", "wrong.toml"],
        2,
        &["wrong.toml", "line 3", "mode", "`enforce` or `observe`"],
    );
    check_no_start(
        &["--config", "none.toml"],
        2,
        &["cannot read `none.toml`", "No such file"],
    );
    check_no_start(
        &["--tools", "half.wasm"],
        2,
        &["half.wasm", "neither a WebAssembly component"],
    );
    check_no_start(
        &["--tools", "none.wasm"],
        2,
        &["none.wasm", "check that the path is right"],
    );
    check_no_start(
        &["--tools", "builtin:allowlist"],
        2,
        &["refuses its configuration"],
    );
    check_no_start(
        &["--reads", "builtin:none"],
        2,
        &["--reads builtin:none", "there is no such policy"],
    );
    check_no_start(
        &["--env", "NOT_SET_ANYWHERE"],
        2,
        &["--env NOT_SET_ANYWHERE", "is not set here"],
    );
    check_no_start(
        &["--audit", "/proc/none/audit"],
        2,
        &["/proc/none/audit", "--audit"],
    );
    check_no_start(&["--nonsense"], 2, &["--nonsense"]);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let output = gatewright(folder.path())
        .args(["wrap", "--", "no-such-server"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && stderr.contains("`no-such-server`"),
        "{stderr}"
    );
}
