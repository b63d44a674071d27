//! Reloading a running gate: by SIGHUP and by `gatewright reload`, all of the configuration or nothing.

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::policies::hiding;

/// A server that answers everything, in a language that every test machine has.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = {"content": []}
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        if message["method"] == "tools/list":
            result = {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

const ALLOW: &str = "[[tools]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 5000\n[[reads]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 5000\n[audit]\nto = 'off'\n";

/// A running gate and its client.
struct Gate {
    folder: TempDir,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Option<Lines<BufReader<ChildStdout>>>,
    log: Lines<BufReader<ChildStderr>>,
    next_id: u64,
}

impl Gate {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("gatewright.toml"), ALLOW).unwrap();
        let mut child = gatewright(&folder)
            .args(["wrap", "--no-cache", "--config"])
            .arg(folder.path().join("gatewright.toml"))
            .args(["--", "python3", "-c", SERVER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut gate = Self {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().map(|stdout| BufReader::new(stdout).lines()),
            log: BufReader::new(child.stderr.take().unwrap()).lines(),
            child,
            folder,
            next_id: 1,
        };
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let opened = gate.request("initialize", &params);
        assert!(opened.get("result").is_some(), "{opened}");
        gate.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        gate
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.heard()
    }

    /// The next message for the client.
    fn heard(&mut self) -> Value {
        let line = self.stdout.as_mut().unwrap().next();
        serde_json::from_str(&line.expect("the gate answers").unwrap()).unwrap()
    }

    /// The code of the refusal of a call, or none when it ran; and whether the list could be read.
    fn served(&mut self) -> (Option<String>, bool) {
        let called = self.request("tools/call", &json!({"name": "a", "arguments": {}}));
        let listed = self.request("tools/list", &json!({}));
        let code = &called["result"]["_meta"]["gatewright/refusal"]["code"];
        (code.as_str().map(str::to_owned), listed.get("result").is_some())
    }

    fn configure(&self, text: &str) {
        let new = self.path("gatewright.toml.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path("gatewright.toml")).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn hang_up(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// The first line of the log that holds this.
    fn logged(&mut self, part: &str) -> String {
        loop {
            let line = self
                .log
                .next()
                .unwrap_or_else(|| panic!("the log ends before `{part}`"))
                .unwrap();
            if line.contains(part) {
                return line;
            }
        }
    }

    fn status(&self) -> Value {
        let output = gatewright(&self.folder)
            .args(["status", "--json"])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    fn end(mut self) {
        drop(self.stdin.take());
        assert!(self.child.wait().unwrap().success());
        assert_eq!(
            0,
            fs::read_dir(self.path("gatewright")).unwrap().count(),
            "its socket is gone"
        );
    }
}

fn gatewright(folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("GATEWRIGHT_LOG", "info")
        .env_remove("GATEWRIGHT_CONFIG")
        .env_remove("GATEWRIGHT_AUDIT");
    command
}

/// What is refused at a reload, and what the log and the status say of it.
#[track_caller]
fn check_refused(text: &str, parts: &[&str]) {
    let mut gate = Gate::start();
    assert_eq!((None, true), gate.served());
    gate.configure(text);
    gate.hang_up();
    let line = gate.logged("the reload is refused");
    let status = gate.status();
    let reason = status["reloads"]["refused"]["reason"]
        .as_str()
        .unwrap()
        .to_owned();
    for part in parts {
        assert!(
            line.contains(part) && reason.contains(part),
            "`{part}` in {line} and in {status}"
        );
    }
    assert_eq!(json!(1), status["reloads"]["failed"]);
    assert_eq!((None, true), gate.served(), "both seams are as before");
    gate.end();
}

#[test]
fn a_wrong_file_changes_nothing() {
    check_refused(
        "[[tools]]\npolicy = 'builtin:deny-all'\npolicy = 'builtin:deny-all'\n",
        &["gatewright.toml", "line 3", "duplicate key"],
    );
    check_refused(
        &format!("{ALLOW}[ask]\ndeadline-ms = 50000\n").replacen(
            "deadline-ms = 5000",
            "deadline-ms = 60000",
            1,
        ),
        &["`deadline-ms`", "60000", "`ask.deadline-ms`", "50000"],
    );
}

#[test]
fn all_or_nothing() {
    check_refused(
        "[[tools]]\npolicy = 'builtin:deny-all'\n[[reads]]\npolicy = 'missing.wasm'\n[audit]\nto = 'off'\n",
        &["missing.wasm", "No such file"],
    );
    check_refused(
        "[[tools]]\npolicy = 'builtin:deny-all'\n[audit]\nto = 'off'\n",
        &["restart the gate"],
    );
}

#[test]
fn a_good_file_comes_into_force() {
    let mut gate = Gate::start();
    gate.configure(&ALLOW.replacen("allow-all", "deny-all", 1));
    gate.hang_up();
    let _line = gate.logged("every policy was loaded anew");
    assert_eq!((Some("denied".to_owned()), true), gate.served());

    gate.configure(ALLOW);
    let ordered = gatewright(&gate.folder).arg("reload").output().unwrap();
    assert!(ordered.status.success(), "{ordered:?}");
    assert_eq!((None, true), gate.served());

    gate.configure("tools = 'x'");
    let ordered = gatewright(&gate.folder).arg("reload").output().unwrap();
    let said = String::from_utf8(ordered.stdout).unwrap();
    assert!(
        ordered.status.code() == Some(1) && said.contains("stays as it is"),
        "{said}"
    );
    let shown = gatewright(&gate.folder).arg("status").output().unwrap();
    let said = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(Some(1), shown.status.code(), "something is refused");
    assert!(
        said.contains("builtin:allow-all") && said.contains("the last reload was refused"),
        "{said}"
    );
    gate.end();
    let nobody = gatewright(&tempfile::tempdir().unwrap())
        .arg("status")
        .output()
        .unwrap();
    assert!(nobody.status.code() == Some(1), "{nobody:?}");
}

/// A reload that one gate may not have heard of has not reached every gate.
#[test]
fn a_gate_that_does_not_answer_is_a_failure() {
    let gate = Gate::start();
    let socket = |pid: &str| gate.path("gatewright").join(format!("{pid}.sock"));
    // A socket of a gate that was killed: nobody listens any more.
    drop(UnixListener::bind(socket("1")).unwrap());
    let reload = || gatewright(&gate.folder).arg("reload").output().unwrap();
    let ended = reload();
    assert!(
        ended.status.success() && !socket("1").exists(),
        "it has ended, and its socket is cleared away: {ended:?}"
    );
    let silent = UnixListener::bind(socket("2")).unwrap();
    let hangs_up = std::thread::spawn(move || drop(silent.accept().unwrap()));
    let unheard = reload();
    hangs_up.join().unwrap();
    let (said, errors) = (
        String::from_utf8(unheard.stdout).unwrap(),
        String::from_utf8(unheard.stderr).unwrap(),
    );
    assert!(
        unheard.status.code() == Some(1)
            && said.contains("has reloaded")
            && errors.contains("gate 2 does not answer"),
        "{said}{errors}"
    );
    fs::remove_file(socket("2")).unwrap();
    gate.end();
}

#[test]
fn a_policy_file_is_followed() {
    let mut gate = Gate::start();
    let policy = gate.path("p.wat");
    super::files::write_and_rename(&policy, &super::files::content("allow-all"));
    gate.configure(&ALLOW.replacen("builtin:allow-all", "p.wat", 1));
    gate.hang_up();
    let _line = gate.logged("every policy was loaded anew");
    assert_eq!((None, true), gate.served());
    super::files::write_and_rename(&policy, &super::files::content("truncated"));
    let line = gate.logged("is not put in force, the last good one stays");
    assert!(line.contains("p.wat"), "{line}");
    assert_eq!((None, true), gate.served());
    super::files::write_and_rename(&policy, &super::files::content("deny-all"));
    let _line = gate.logged("policy replaced");
    assert_eq!((Some("denied".to_owned()), true), gate.served());
    gate.end();
}

/// By a signal and by its file, a policy comes into force that shows something else.
#[test]
fn a_client_hears_that_its_lists_have_changed() {
    let mut gate = Gate::start();
    let policy = gate.path("p.wat");
    let file = |hidden: &[&str]| super::files::write_and_rename(&policy, hiding(hidden).as_bytes());
    let tools = |gate: &mut Gate| gate.request("tools/list", &json!({}))["result"]["tools"].clone();
    let hides = |gate: &Gate| gate.status()["policies"][0]["hides"].clone();
    assert_eq!(
        (json!("a"), json!(false)),
        (tools(&mut gate)[0]["name"].clone(), hides(&gate))
    );
    file(&["a"]);
    gate.configure(&ALLOW.replacen("builtin:allow-all", "p.wat", 1));
    gate.hang_up();
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    assert_eq!(changed, gate.heard());
    assert_eq!((json!([]), json!(true)), (tools(&mut gate), hides(&gate)));
    let shown = gatewright(&gate.folder).arg("status").output().unwrap();
    let said = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(
        1,
        said.matches("says which entries of lists are shown").count(),
        "{said}"
    );
    file(&["b"]);
    assert_eq!(changed, gate.heard());
    assert_eq!(json!("a"), tools(&mut gate)[0]["name"]);
    gate.configure(ALLOW);
    gate.hang_up();
    assert_eq!(changed, gate.heard());
    let _line = gate.logged("every policy was loaded anew");
    assert_eq!(json!(false), hides(&gate));
    gate.end();
}

/// What clients share has both seams and policies that answer, at the start and after a reload (ruling L7).
#[test]
fn a_listener_keeps_both_seams() {
    let (mut gate, admin) = listening();
    let in_force = gate.status()["policies"].clone();
    assert_eq!(Some(2), in_force.as_array().map(Vec::len), "{in_force}");
    super::files::write(&gate.path("silent.wasm"), &super::files::content("traps"));
    let one_seam = "[[tools]]\npolicy = 'builtin:deny-all'\ndeadline-ms = 5000\n[audit]\nto = 'off'\n";
    let twice = ALLOW.replacen("[[reads]]", "policy = 'builtin:deny-all'\n[[reads]]", 1);
    let silent = ALLOW.replacen("builtin:allow-all", "silent.wasm", 1);
    let refusals = [
        (one_seam, "a network listener needs both seams"),
        (&twice, "duplicate key"),
        (&silent, "gave no answer when it was tried"),
    ];
    for (count, (text, expected)) in refusals.into_iter().enumerate() {
        gate.configure(&format!("{text}{LISTENER}"));
        gate.hang_up();
        let line = gate.logged("the reload is refused");
        let status = gate.status();
        let reason = status["reloads"]["refused"]["reason"].as_str().unwrap();
        for said in [&line, reason] {
            assert!(said.contains(expected), "{expected} in {said}");
        }
        assert_eq!(in_force, status["policies"], "the old ones serve on");
        let metrics = get(&admin, "/metrics");
        let counted = format!("gatewright_reloads_total{{result=\"failed\"}} {}\n", count + 1);
        assert!(metrics.contains(&counted), "{counted} in {metrics}");
    }
    gate.terminate();
    gate.end();
}

const LISTENER: &str = "[listen]\naddress = '127.0.0.1:0'\n[admin]\naddress = '127.0.0.1:0'\n[[endpoint]]\npath = '/mcp'\ncommand = ['true']\n";

/// A gate for many clients, which nobody speaks to, and its admin address.
fn listening() -> (Gate, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gatewright.toml");
    fs::write(&file, format!("{ALLOW}{LISTENER}")).unwrap();
    let mut child = gatewright(&folder)
        .args(["serve", "--no-cache", "--config"])
        .arg(&file)
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut gate = Gate {
        stdin: None,
        stdout: None,
        log,
        child,
        folder,
        next_id: 1,
    };
    let admin = gate.logged("admin on http://");
    let (_, admin) = admin.split_once("http://").unwrap();
    let _line = gate.logged("listening on");
    (gate, admin.to_owned())
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
