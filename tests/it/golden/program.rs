//! `gatewright wrap` and a child process that plays what it is told to.

use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc;

use serde_json::json;
use tempfile::TempDir;

use super::way::{DENIED, SERVER, capabilities};
use crate::support::serving::{SOON, gatewright};

/// Writes down what it receives, and answers each request with the lines of a file.
const PLAYER: &str = r#"
import json, sys
tape = open("tape", "ab", buffering=0)
opened = {
    "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}},
    "server/discover": {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": "p", "version": "1"}},
}
for line in sys.stdin.buffer:
    message = json.loads(line)
    method = message.get("method")
    meta = message.get("params", {}).get("_meta", {})
    own = "gatewright/listing" in meta or "synchronize" in meta
    if not own:
        tape.write(line)
    if method is None or "id" not in message:
        continue
    name = json.dumps(message["id"]).encode()
    if own or method in opened:
        result = opened.get(method, {"resultType": "complete", "tools": []})
        answers = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode() + b"\n"
    else:
        answers = open("script", "rb").read().replace(b"@ID@", name)
    sys.stdout.buffer.write(answers)
    sys.stdout.buffer.flush()
"#;

/// A client of the program.
pub(super) struct Program {
    folder: TempDir,
    child: Child,
    stdin: ChildStdin,
    stdout: mpsc::Receiver<Vec<u8>>,
    era: &'static str,
    /// What the gate has said and nobody has taken.
    said: VecDeque<String>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

impl Program {
    pub(super) fn open(era: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let denied = if era == "2026" { DENIED } else { "nothing" };
        let configuration = format!(
            "[[tools]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 5000\n\
             [[reads]]\npolicy = 'builtin:allowlist'\nconfig = {{ allow = ['*'], deny = ['{denied}'] }}\ndeadline-ms = 5000\n\
             [upstream]\nname = '{SERVER}'\nroots = 'refuse'\n[audit]\nto = 'off'\n"
        );
        fs::write(folder.path().join("gatewright.toml"), configuration).unwrap();
        let mut child = gatewright(folder.path())
            .env("GATEWRIGHT_LOG", "warn")
            .args([
                "wrap",
                "--config",
                "gatewright.toml",
                "--",
                "python3",
                "-c",
                PLAYER,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).split(b'\n');
        let (line, stdout) = mpsc::channel();
        std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|said| line.send(said)));
        let mut program = Self {
            folder,
            stdin: child.stdin.take().unwrap(),
            child,
            stdout,
            era,
            said: VecDeque::new(),
        };
        program.begin();
        program
    }

    fn begin(&mut self) {
        if self.era == "2025" {
            let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities(), "clientInfo": {"name": "c", "version": "1"}});
            self.write(
                &json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string(),
            );
            self.next();
            self.write(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        } else {
            let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
            self.write(
                &json!({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": meta}})
                    .to_string(),
            );
            self.next();
        }
    }

    /// Waits until everything that was sent has reached the child: the answer to a request comes after all else.
    fn synchronize(&mut self) {
        let mut meta = json!({"synchronize": true});
        if self.era == "2026" {
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let request =
            json!({"jsonrpc": "2.0", "id": "synchronize", "method": "tools/list", "params": {"_meta": meta}});
        self.write(&request.to_string());
        loop {
            let line = self.stdout.recv_timeout(SOON).expect("the gate says something");
            let line = String::from_utf8(line).unwrap();
            if line.contains("\"synchronize\"") {
                return;
            }
            self.said.push_back(line);
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&mut self, frame: &str) {
        self.stdin.write_all(format!("{frame}\n").as_bytes()).unwrap();
    }

    fn next(&mut self) -> String {
        if let Some(said) = self.said.pop_front() {
            return said;
        }
        let line = self.stdout.recv_timeout(SOON).expect("the gate says something");
        String::from_utf8(line).unwrap()
    }

    pub(super) fn answer_next_with(&mut self, frames: &[String]) {
        let lines: String = frames.iter().map(|frame| format!("{frame}\n")).collect();
        fs::write(self.path("script"), lines).unwrap();
    }

    pub(super) fn send(&mut self, frame: &str) {
        self.write(frame);
    }

    pub(super) fn heard(&mut self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }

    /// What the child has got, when everything that was sent has reached it.
    pub(super) fn tape(&mut self) -> Vec<String> {
        self.synchronize();
        let tape = fs::read_to_string(self.path("tape")).unwrap();
        tape.lines().map(str::to_owned).collect()
    }
}
