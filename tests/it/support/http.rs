//! An HTTP door between clients and fake upstreams, all in memory: requests are raw bytes, so that they can be
//! anything, and each has a connection of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gatewright::audit::AuditLog;
use gatewright::clock::{Clock, SystemClock};
use gatewright::door::http::{
    AllowList, EndpointLimits, HttpDoor, LOOPBACK_NAMES, ListenSettings, Unavailable,
};
use gatewright::host::Settings;
use gatewright::host::endpoints::{Common, Connected, Connects, Guarded};
use gatewright::seam::Guards;
use gatewright::wire::era::Era;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::harness::PausedClock;
use super::http_upstream::HttpUpstream;
use super::upstream::{FakeUpstream, Received, read};

/// Where the endpoint is.
pub(crate) const PATH: &str = "/mcp";

/// Bytes between client and door that nobody has read; more than any frame of the cases.
const PIPE_BYTES: usize = 16 * 1024 * 1024;

/// Upstreams in memory, one for each link.
#[derive(Default)]
pub(crate) struct Fakes {
    started: Mutex<Vec<FakeUpstream>>,
    script: Mutex<Option<Vec<String>>>,
    tools: Mutex<Vec<Value>>,
}

impl std::fmt::Debug for Fakes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fakes")
    }
}

impl Connects for Fakes {
    fn connect(&self, era: Era) -> Result<Connected, Unavailable> {
        let script = self.script.lock().unwrap().clone();
        let (upstream, link) = FakeUpstream::start(era == Era::Stateless, script);
        for tool in self.tools.lock().unwrap().iter() {
            upstream.list_tool(tool.clone());
        }
        self.started.lock().unwrap().push(upstream);
        Ok(Connected {
            link,
            end: Box::pin(std::future::ready(())),
        })
    }

    fn ended(&self, _early: bool) {}
}

impl Fakes {
    fn all(&self) -> Vec<FakeUpstream> {
        self.started.lock().unwrap().clone()
    }
}

/// How a door is set up.
pub(crate) struct Setup {
    pub(crate) guards: Guards,
    pub(crate) settings: Settings,
    pub(crate) limits: EndpointLimits,
    pub(crate) script: Option<Vec<String>>,
    pub(crate) listen: ListenSettings,
}

impl Setup {
    pub(crate) fn new(guards: Guards) -> Self {
        Self {
            guards,
            settings: Settings::default(),
            limits: EndpointLimits::default(),
            script: None,
            listen: listen(),
        }
    }
}

/// The settings of a listener on loopback.
pub(crate) fn listen() -> ListenSettings {
    ListenSettings {
        allow: AllowList {
            hosts: LOOPBACK_NAMES.iter().map(|name| (*name).to_owned()).collect(),
            origins: Vec::new(),
        },
        scan: Settings::default().scan,
        connections_max: 4096,
        header_bytes_max: 64 * 1024,
        read_within: Duration::from_secs(30),
        drain_within: Duration::from_secs(10),
        tls: None,
    }
}

/// A door with one endpoint.
pub(crate) struct HttpHarness {
    pub(crate) door: Arc<HttpDoor>,
    pub(crate) audit: Arc<Mutex<Vec<String>>>,
    pub(crate) stop: CancellationToken,
    fakes: Arc<Fakes>,
    /// Time is not paused, and each response is waited for.
    real_time: bool,
    /// The open session, in an era that has one.
    pub(crate) session: Option<String>,
}

/// Headers, in order; a name may stand twice.
pub(crate) type Headers = Vec<(String, Vec<u8>)>;

impl HttpHarness {
    /// In front of upstreams in memory. Must run under paused time on a current-thread runtime.
    pub(crate) fn start(setup: Setup) -> Self {
        let fakes = Arc::new(Fakes::default());
        *fakes.script.lock().unwrap() = setup.script.clone();
        let connects = Arc::clone(&fakes) as Arc<dyn Connects>;
        Self::with(setup, PausedClock::now(), fakes, connects, false)
    }

    /// In front of a server behind a URL, in real time.
    pub(crate) fn before(setup: Setup, upstream: &HttpUpstream) -> Self {
        let connects = Arc::new(upstream.clone()) as Arc<dyn Connects>;
        Self::with(setup, Arc::new(SystemClock), Arc::default(), connects, true)
    }

    fn with(
        setup: Setup,
        clock: Arc<dyn Clock>,
        fakes: Arc<Fakes>,
        connects: Arc<dyn Connects>,
        real_time: bool,
    ) -> Self {
        let (audit, records) = AuditLog::in_memory(Arc::clone(&clock));
        let stop = CancellationToken::new();
        let common = Common {
            guards: setup.guards,
            audit: Arc::new(audit),
            clock,
            shutdown: stop.clone(),
            tasks: TaskTracker::new(),
            drain_within: setup.listen.drain_within,
        };
        let guarded = Guarded::new(setup.settings, connects, common).unwrap();
        let endpoints = vec![(PATH.to_owned(), guarded as Arc<_>, setup.limits)];
        Self {
            door: Arc::new(HttpDoor::new(setup.listen, endpoints, stop.clone())),
            audit: records,
            stop,
            fakes,
            real_time,
            session: None,
        }
    }

    /// The same door to another client, who has no session yet.
    pub(crate) fn another_client(&self) -> Self {
        Self {
            door: Arc::clone(&self.door),
            audit: Arc::clone(&self.audit),
            stop: self.stop.clone(),
            fakes: Arc::clone(&self.fakes),
            real_time: self.real_time,
            session: None,
        }
    }

    /// Opens a session of the 2025 revisions as a well-behaved client does.
    pub(crate) async fn initialize(&mut self, revision: &str, capabilities: &Value) {
        let body = json!({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": {
            "protocolVersion": revision, "capabilities": capabilities,
            "clientInfo": {"name": "case", "version": "1"}
        }});
        let opened = self
            .post(&self.headers("2025", b""), body.to_string().as_bytes())
            .await;
        let response = opened.response().expect("the session opens");
        assert_eq!(200, response.status, "{response:?}");
        self.session = Some(
            response
                .header("mcp-session-id")
                .expect("a session id")
                .to_owned(),
        );
        let body = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let told = self.post(&self.headers("2025", body), body).await;
        assert_eq!(202, told.response().expect("it is taken").status);
    }

    /// What a well-behaved client sends with this body.
    pub(crate) fn headers(&self, era: &str, body: &[u8]) -> Headers {
        let mut headers: Headers = [
            ("Host", "localhost"),
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ]
        .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
        .to_vec();
        let mut add = |name: &str, value: &str| headers.push((name.to_owned(), value.as_bytes().to_vec()));
        if era == "2025" {
            if let Some(session) = &self.session {
                add("Mcp-Session-Id", session);
                add("MCP-Protocol-Version", "2025-11-25");
            }
            return headers;
        }
        // The last value of each member of the body, as far as it can be read at all.
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let version = &body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        add("MCP-Protocol-Version", version.as_str().unwrap_or("2026-07-28"));
        let Some(method) = body["method"].as_str() else {
            return headers;
        };
        add("Mcp-Method", method);
        let name = match method {
            "tools/call" | "prompts/get" => &body["params"]["name"],
            "resources/read" => &body["params"]["uri"],
            "tasks/get" | "tasks/update" | "tasks/cancel" => &body["params"]["taskId"],
            _ => &Value::Null,
        };
        if let Some(name) = name.as_str() {
            add("Mcp-Name", &header_value(name));
        }
        headers
    }

    /// Sends a body, and lets everything run that can run without time passing.
    pub(crate) async fn post(&self, headers: &[(String, Vec<u8>)], body: &[u8]) -> Exchange {
        self.request("POST", headers, body).await
    }

    pub(crate) async fn request(&self, method: &str, headers: &[(String, Vec<u8>)], body: &[u8]) -> Exchange {
        let exchange = self.send(method, headers, body);
        if self.real_time {
            exchange.ended().await;
        } else {
            self.settle().await;
        }
        exchange
    }

    /// Sends a request, and lets nothing run.
    pub(crate) fn send(&self, method: &str, headers: &[(String, Vec<u8>)], body: &[u8]) -> Exchange {
        let exchange = self.connect();
        exchange.write(request(method, headers, body));
        exchange
    }

    /// A connection on which nothing was sent yet.
    pub(crate) fn connect(&self) -> Exchange {
        self.connection(PIPE_BYTES, usize::MAX)
    }

    /// A connection whose client stops reading after so many bytes.
    pub(crate) fn connect_deaf(&self, after: usize) -> Exchange {
        self.connection(64 * 1024, after)
    }

    fn connection(&self, pipe_bytes: usize, reads: usize) -> Exchange {
        let (ours, theirs) = tokio::io::duplex(pipe_bytes);
        tokio::spawn(self.door.connection(theirs));
        let (mut reading, mut writing) = tokio::io::split(ours);
        let (to_write, mut writes) = tokio::sync::mpsc::unbounded_channel::<Vec<u8>>();
        let received = Arc::new(Mutex::new(Incoming::default()));
        let (gone, closed) = (CancellationToken::new(), CancellationToken::new());
        let (taking, over, ended) = (Arc::clone(&received), gone.clone(), closed.clone());
        let read = async move {
            let mut piece = vec![0; 64 * 1024];
            let mut read = 0;
            while let Ok(count @ 1..) = reading.read(&mut piece).await {
                taking.lock().unwrap().bytes.extend_from_slice(&piece[..count]);
                read += count;
                if reads <= read {
                    std::future::pending::<()>().await;
                }
            }
            taking.lock().unwrap().closed = true;
            ended.cancel();
        };
        let write = async move {
            while let Some(bytes) = writes.recv().await {
                if writing.write_all(&bytes).await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::spawn(async move {
            tokio::select! {
                () = read => {}
                () = write => {}
                () = over.cancelled() => {}
            }
        });
        Exchange {
            received,
            to_write,
            gone,
            closed,
        }
    }

    pub(crate) async fn settle(&self) {
        for _ in 0..600 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn advance(&self, time: Duration) {
        self.settle().await;
        tokio::time::advance(time).await;
        self.settle().await;
    }

    /// What clients' requests left at the upstreams, in the order of the links.
    pub(crate) fn tape(&self) -> Vec<Received> {
        self.fakes.all().iter().flat_map(FakeUpstream::tape).collect()
    }

    /// The upstream that was started last.
    pub(crate) fn upstream(&self) -> FakeUpstream {
        self.fakes.all().pop().expect("an upstream was started")
    }

    /// How many were started.
    pub(crate) fn upstreams(&self) -> usize {
        self.fakes.all().len()
    }

    /// Every upstream, also those to come, lists this tool.
    pub(crate) fn list_tool(&self, tool: &Value) {
        self.fakes.tools.lock().unwrap().push(tool.clone());
        for upstream in self.fakes.all() {
            upstream.list_tool(tool.clone());
        }
    }

    /// The upstream that was started last answers the next request with these lines, as a script does.
    pub(crate) fn answer_next_with(&self, script: Vec<String>) {
        self.upstream().answer_next_with(script);
    }

    /// Answers every `tools/call` that is held.
    pub(crate) async fn release(&self) {
        for upstream in self.fakes.all() {
            upstream.release().await;
        }
        self.settle().await;
    }
}

/// A request as it is sent, on a connection of its own.
pub(crate) fn request(method: &str, headers: &[(String, Vec<u8>)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {PATH} HTTP/1.1\r\nConnection: close\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if method == "POST" {
        bytes.extend(format!("Content-Length: {}\r\n", body.len()).into_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// A header's value as revision 2026-07-28 writes it: plain where that is safe, base64 otherwise.
fn header_value(text: &str) -> String {
    use base64::Engine as _;
    let inner = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let edges = text.starts_with(' ') || text.ends_with(' ') || text.is_empty();
    if inner && !edges && !text.to_ascii_lowercase().starts_with("=?base64?") {
        return text.to_owned();
    }
    format!(
        "=?base64?{}?=",
        base64::engine::general_purpose::STANDARD.encode(text)
    )
}

#[derive(Default)]
struct Incoming {
    bytes: Vec<u8>,
    closed: bool,
}

/// One connection as its client sees it. Dropping it closes the connection.
pub(crate) struct Exchange {
    received: Arc<Mutex<Incoming>>,
    to_write: tokio::sync::mpsc::UnboundedSender<Vec<u8>>,
    gone: CancellationToken,
    closed: CancellationToken,
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

/// A response, as far as it has come.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// As far as these bytes go; none before all headers are there.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8(bytes[..end].to_vec()).expect("headers are ASCII");
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().expect("a status");
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let rest = &bytes[end + 4..];
        let chunked = headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Some(Self {
            status,
            headers,
            body: if chunked { unchunked(rest) } else { rest.to_vec() },
        })
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The JSON-RPC messages in it, each with its text, and no keep-alive.
    pub(crate) fn messages(&self) -> Vec<(Value, String)> {
        let read = |text: String| (read(&text), text);
        self.texts().into_iter().map(read).collect()
    }

    /// The same as they were sent.
    pub(crate) fn texts(&self) -> Vec<String> {
        let text = String::from_utf8(self.body.clone()).expect("a body is UTF-8");
        if self.header("content-type") == Some("text/event-stream") {
            text.lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .map(str::to_owned)
                .collect()
        } else if text.is_empty() {
            Vec::new()
        } else {
            vec![text]
        }
    }
}

impl Exchange {
    pub(crate) fn write(&self, bytes: impl Into<Vec<u8>>) {
        let _gone = self.to_write.send(bytes.into());
    }

    /// Waits until the door has closed the connection.
    pub(crate) async fn ended(&self) {
        let waited = tokio::time::timeout(Duration::from_secs(30), self.closed.cancelled()).await;
        waited.expect("the door answers");
    }

    /// Whether the door has closed the connection.
    pub(crate) fn closed(&self) -> bool {
        self.received.lock().unwrap().closed
    }

    /// The response as far as it has come; none before its headers are there.
    pub(crate) fn response(&self) -> Option<Response> {
        Response::parse(&self.received.lock().unwrap().bytes)
    }

    /// The messages that came so far.
    pub(crate) fn messages(&self) -> Vec<(Value, String)> {
        self.response()
            .map_or_else(Vec::new, |response| response.messages())
    }
}

/// Chunks joined, as far as they have come whole.
fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = String::from_utf8_lossy(&rest[..end]).into_owned();
        let size = usize::from_str_radix(&size, 16).expect("a chunk has a size");
        let Some(chunk) = rest.get(end + 2..end + 2 + size) else {
            break;
        };
        body.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    body
}
