//! `gatewright serve` as a process, and clients who speak to it over sockets.

use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::http::Response;

/// Far more than anything here takes.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Compiling the policies anew would take longer than all the rest.
pub(crate) const CACHE: &str = env!("CARGO_TARGET_TMPDIR");

/// The gate's program, with nothing of the environment of whoever runs the tests.
pub(crate) fn gatewright(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command
        .current_dir(folder)
        .env("GATEWRIGHT_LOG", "info")
        .env("HOME", folder)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_CACHE_HOME", CACHE)
        .env_remove("XDG_STATE_HOME")
        .env_remove("GATEWRIGHT_CONFIG")
        .env_remove("GATEWRIGHT_AUDIT");
    command
}

/// A gate that serves; killed when dropped.
pub(crate) struct Serving {
    folder: TempDir,
    child: Child,
    log: mpsc::Receiver<String>,
    /// The URL of each endpoint, in the order of the file.
    pub(crate) urls: Vec<String>,
    admin: Option<String>,
}

impl Drop for Serving {
    /// Only a test that failed leaves something to end.
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Starts `gatewright serve` with the file `gatewright.toml` of the folder.
fn start(folder: &Path) -> (Child, mpsc::Receiver<String>) {
    let mut child = gatewright(folder)
        .args(["serve", "--config", "gatewright.toml"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let (line, log) = mpsc::channel();
    // On a thread of its own, so that a gate that says nothing fails a test and does not hold it up, and one that
    // says much never waits.
    std::thread::spawn(move || {
        for said in lines.map_while(Result::ok) {
            let _nobody_reads_on = line.send(said);
        }
    });
    (child, log)
}

impl Serving {
    /// Serves what this file says.
    pub(crate) fn start(configuration: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), configuration)
    }

    /// As [`Self::start`], in a folder that holds what the file names.
    pub(crate) fn start_in(folder: TempDir, configuration: &str) -> Self {
        fs::write(folder.path().join("gatewright.toml"), configuration).unwrap();
        let (child, log) = start(folder.path());
        let mut serving = Self {
            folder,
            child,
            log,
            urls: Vec::new(),
            admin: None,
        };
        let endpoints = configuration.matches("[[endpoint]]").count();
        if configuration.contains("[admin]") {
            let line = serving.logged("admin on http://");
            serving.admin = line
                .split_once("admin on http://")
                .map(|(_, address)| address.to_owned());
        }
        while serving.urls.len() < endpoints {
            let line = serving.logged("listening on ");
            let (_, url) = line.split_once("listening on ").unwrap();
            serving.urls.push(url.to_owned());
        }
        serving
    }

    /// How a gate ends that does not start, and what it says.
    pub(crate) fn refused(folder: &Path, configuration: &str) -> (ExitStatus, String) {
        fs::write(folder.join("gatewright.toml"), configuration).unwrap();
        let (mut child, log) = start(folder);
        let mut said = String::new();
        loop {
            match log.recv_timeout(SOON) {
                Ok(line) => said.push_str(&(line + "\n")),
                Err(mpsc::RecvTimeoutError::Disconnected) => return (child.wait().unwrap(), said),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    child.kill().unwrap();
                    panic!("the gate has started with {configuration}: {said}");
                }
            }
        }
    }

    /// The most memory that the gate has held so far, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Puts a file in its place as a whole.
    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        let new = self.path(&format!("{name}.new"));
        fs::write(&new, content).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// The next line of the log that holds this.
    #[track_caller]
    pub(crate) fn logged(&self, part: &str) -> String {
        let mut said = String::new();
        loop {
            match self.log.recv_timeout(SOON) {
                Ok(line) if line.contains(part) => return line,
                Ok(line) => said.push_str(&(line + "\n")),
                Err(error) => panic!("`{part}` is not logged ({error}): {said}"),
            }
        }
    }

    /// A client of the endpoint at this place of the file.
    pub(crate) fn client(&self, endpoint: usize) -> Client {
        let (_, place) = self.urls[endpoint].split_once("://").unwrap();
        let (authority, path) = place.split_once('/').unwrap();
        Client {
            authority: authority.to_owned(),
            path: format!("/{path}"),
            session: None,
        }
    }

    /// What the admin address answers.
    pub(crate) fn admin(&self, path: &str) -> Response {
        self.admin_as(path, self.admin.as_ref().unwrap())
            .expect("an answer")
    }

    /// As [`Self::admin`], by the name of `host`; none when it is served no more.
    pub(crate) fn admin_as(&self, path: &str, host: &str) -> Option<Response> {
        let stream = connect(self.admin.as_ref().expect("the file names an admin address"))?;
        exchange(
            stream,
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        )
    }

    pub(crate) fn admin_text(&self, path: &str) -> String {
        let response = self.admin(path);
        assert_eq!(200, response.status, "{response:?}");
        String::from_utf8(response.body).unwrap()
    }

    pub(crate) fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits until the gate and everything that it started are gone. What it logged meanwhile.
    pub(crate) fn ended(&mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        loop {
            match self.log.recv_timeout(SOON) {
                Ok(line) => said.push_str(&(line + "\n")),
                Err(mpsc::RecvTimeoutError::Disconnected) => return (self.child.wait().unwrap(), said),
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the gate does not end: {said}"),
            }
        }
    }

    /// Tells it to stop, and expects it to end as it should.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.terminate();
        let (ended, said) = self.ended();
        assert!(ended.success(), "{ended}: {said}");
    }
}

/// A client of one endpoint, with a connection for each request.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) authority: String,
    pub(crate) path: String,
    pub(crate) session: Option<String>,
}

impl Client {
    /// Opens a session of the 2025 revisions.
    pub(crate) fn open(mut self) -> Self {
        let opened = self.initialize().expect("an answer");
        assert_eq!(200, opened.status, "{opened:?}");
        self.session = Some(opened.header("mcp-session-id").expect("a session").to_owned());
        let told = self.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        assert_eq!(202, told.status, "{told:?}");
        self
    }

    /// Asks for a session; none when nobody listens.
    pub(crate) fn initialize(&self) -> Option<Response> {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let body = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        exchange(connect(&self.authority)?, &self.request(&[], &body.to_string()))
    }

    /// Sends a message, and waits for the answer.
    pub(crate) fn post(&self, message: &Value) -> Response {
        self.post_with(&[], message)
    }

    /// The same with further headers.
    pub(crate) fn post_with(&self, headers: &[&str], message: &Value) -> Response {
        let stream = connect(&self.authority).expect("the gate listens");
        exchange(stream, &self.request(headers, &message.to_string())).expect("an answer")
    }

    /// Calls a tool; the answer as JSON.
    pub(crate) fn call(&self, name: &str) -> Value {
        let response = self.post(&call(name));
        assert_eq!(200, response.status, "{response:?}");
        let (message, _) = response.messages().pop().expect("an answer");
        message
    }

    /// A request as it is sent; a `Host` among the headers replaces that of the gate.
    pub(crate) fn request(&self, headers: &[&str], body: &str) -> Vec<u8> {
        let mut lines = vec![
            format!("POST {} HTTP/1.1", self.path),
            "Connection: close".to_owned(),
            "Content-Type: application/json".to_owned(),
            "Accept: application/json, text/event-stream".to_owned(),
            format!("Content-Length: {}", body.len()),
        ];
        if !headers.iter().any(|header| header.starts_with("Host:")) {
            lines.push(format!("Host: {}", self.authority));
        }
        if let Some(session) = &self.session {
            lines.push(format!("Mcp-Session-Id: {session}"));
            lines.push("MCP-Protocol-Version: 2025-11-25".to_owned());
        }
        lines.extend(headers.iter().map(|header| (*header).to_owned()));
        format!("{}\r\n\r\n{body}", lines.join("\r\n")).into_bytes()
    }
}

/// A call of a tool without arguments.
pub(crate) fn call(name: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": {}}})
}

/// None when nobody listens.
pub(crate) fn connect(authority: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect(authority).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    Some(stream)
}

/// Sends a request that closes its connection; none when it is closed without a response.
pub(crate) fn exchange(mut stream: impl Read + Write, request: &[u8]) -> Option<Response> {
    // One who stops takes no more, and may say so before it has read everything.
    let _closed_early = stream.write_all(request);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(
            std::io::ErrorKind::ConnectionReset,
            error.kind(),
            "{error}: {answer:?}"
        );
    }
    Response::parse(&answer)
}
