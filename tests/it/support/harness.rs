//! A host between a client and a fake upstream, all in memory and under paused time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use gatewright::audit::AuditLog;
use gatewright::clock::{Clock, RandomUnavailable, SystemClock};
use gatewright::host::{Host, Settings};
use gatewright::seam::Guards;
use gatewright::session::{ClientLink, Ended};
use gatewright::wire::line::{Line, LineSplitter};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::http::{HttpHarness, Setup};
use super::over_http::OverHttp;
use super::upstream::FakeUpstream;

/// Wall time that follows tokio's paused time.
#[derive(Debug)]
pub(crate) struct PausedClock {
    start: Instant,
    /// Counts what was drawn, in the place of chance.
    drawn: Option<AtomicU64>,
}

impl PausedClock {
    pub(crate) fn now() -> Arc<dyn Clock> {
        Arc::new(Self {
            start: Instant::now(),
            drawn: None,
        })
    }

    /// As [`Self::now`], and the ids are 1, 2, 3: a test can name them.
    pub(crate) fn counting() -> Arc<dyn Clock> {
        Arc::new(Self {
            start: Instant::now(),
            drawn: Some(AtomicU64::new(0)),
        })
    }
}

impl Clock for PausedClock {
    fn now_unix_ms(&self) -> u64 {
        1_796_000_000_000 + u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        let Some(drawn) = &self.drawn else {
            return SystemClock.random(bytes);
        };
        let number = drawn.fetch_add(1, Ordering::SeqCst) + 1;
        bytes.fill(0);
        for (byte, digit) in bytes.iter_mut().rev().zip(number.to_le_bytes()) {
            *byte = digit;
        }
        Ok(())
    }
}

/// One session in front of one fake upstream.
pub(crate) struct Harness {
    pub(crate) upstream: FakeUpstream,
    pub(crate) audit: Arc<Mutex<Vec<String>>>,
    pub(crate) shutdown: CancellationToken,
    way: Way,
    seen: Vec<Value>,
    raw: Vec<String>,
    heard: Vec<String>,
}

/// How the client speaks with the host.
enum Way {
    Lines(Box<Lines>),
    Http(Box<OverHttp>),
}

struct Lines {
    to_host: Option<mpsc::Sender<Line>>,
    splitter: LineSplitter,
    from_host: mpsc::Receiver<Bytes>,
    served: JoinHandle<Ended>,
}

impl Lines {
    async fn send(&mut self, bytes: &[u8]) {
        self.splitter.push(bytes);
        while let Some(line) = self.splitter.next() {
            let to_host = self.to_host.as_ref().expect("the client is there");
            to_host.send(line).await.expect("the host reads");
        }
    }

    fn arrived(&mut self) -> Vec<String> {
        let mut arrived = Vec::new();
        while let Ok(line) = self.from_host.try_recv() {
            let line = String::from_utf8(line.to_vec()).expect("the host sends UTF-8");
            let line = line.strip_suffix('\n').expect("a line ends").to_owned();
            assert!(!line.contains('\n'), "one message is one line: {line}");
            arrived.push(line);
        }
        arrived
    }
}

impl Harness {
    /// Must run under paused time on a current-thread runtime.
    pub(crate) fn start(
        guards: Guards,
        settings: Settings,
        stateless: bool,
        script: Option<Vec<String>>,
    ) -> Self {
        Self::start_at(PausedClock::now(), guards, settings, stateless, script)
    }

    /// As [`Self::start`], with the time and the ids of this clock.
    pub(crate) fn start_at(
        clock: Arc<dyn Clock>,
        guards: Guards,
        settings: Settings,
        stateless: bool,
        script: Option<Vec<String>>,
    ) -> Self {
        let (audit, records) = AuditLog::in_memory(Arc::clone(&clock));
        let served = Self::serve(clock, guards, settings, stateless, script, audit);
        Self {
            audit: records,
            ..served
        }
    }

    /// A 2025 session whose records go to this log, and not to [`Self::audit`].
    pub(crate) fn start_recorded_by(guards: Guards, audit: AuditLog) -> Self {
        Self::serve(
            PausedClock::now(),
            guards,
            Settings::default(),
            false,
            None,
            audit,
        )
    }

    fn serve(
        clock: Arc<dyn Clock>,
        guards: Guards,
        settings: Settings,
        stateless: bool,
        script: Option<Vec<String>>,
        audit: AuditLog,
    ) -> Self {
        let frame_bytes_max = settings.scan.frame_bytes_max;
        let host = Host::new(guards, Arc::new(audit), clock, settings).unwrap();
        let (upstream, link) = FakeUpstream::start(stateless, script);
        let (to_host, incoming) = mpsc::channel(64);
        let (outgoing, from_host) = mpsc::channel(4096);
        let client = ClientLink {
            incoming,
            outgoing,
            gone: CancellationToken::new(),
        };
        let shutdown = host.shutdown();
        let served = tokio::spawn(async move { host.serve(client, link).await.unwrap() });
        Self {
            upstream,
            audit: Arc::default(),
            shutdown,
            way: Way::Lines(Box::new(Lines {
                to_host: Some(to_host),
                splitter: LineSplitter::new(frame_bytes_max),
                from_host,
                served,
            })),
            seen: Vec::new(),
            raw: Vec::new(),
            heard: Vec::new(),
        }
    }

    /// A session over HTTP, already open.
    pub(crate) async fn start_over_http(
        guards: Guards,
        settings: Settings,
        era: &'static str,
        revision: &str,
        capabilities: &Value,
    ) -> Self {
        let mut setup = Setup::new(guards);
        setup.settings = settings;
        let over_http = OverHttp::open(HttpHarness::start(setup), era, revision, capabilities).await;
        Self::over(over_http)
    }

    /// A session of another client at the same door.
    pub(crate) async fn another_session(&mut self, revision: &str, capabilities: &Value) -> Self {
        let door = self.over_http().door.another_client();
        Self::over(OverHttp::open(door, "2025", revision, capabilities).await)
    }

    fn over(over_http: OverHttp) -> Self {
        Self {
            upstream: over_http.door.upstream(),
            audit: Arc::clone(&over_http.door.audit),
            shutdown: over_http.door.stop.clone(),
            way: Way::Http(Box::new(over_http)),
            seen: Vec::new(),
            raw: Vec::new(),
            heard: Vec::new(),
        }
    }

    /// The client over HTTP.
    pub(crate) fn over_http(&mut self) -> &mut OverHttp {
        match &mut self.way {
            Way::Http(over_http) => over_http,
            Way::Lines(_) => panic!("this client speaks lines"),
        }
    }

    /// Whether what the client got came on the stream of a call; on stdio there is only one.
    pub(crate) fn came_on_a_call(&self, raw: &str) -> bool {
        match &self.way {
            Way::Http(over_http) => over_http.on_calls.iter().any(|line| line == raw),
            Way::Lines(_) => true,
        }
    }

    /// Opens a session as a well-behaved client of the era does.
    pub(crate) async fn open(&mut self, era: &str, revision: &str, capabilities: &Value) {
        if era == "2025" {
            let params = json!({
                "protocolVersion": revision, "capabilities": capabilities,
                "clientInfo": {"name": "case", "version": "1"}
            });
            self.send(
                &json!({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": params})
                    .to_string(),
            )
            .await;
            self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#)
                .await;
        } else {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}
            });
            self.send(&json!({"jsonrpc": "2.0", "id": "open", "method": "server/discover", "params": {"_meta": meta}}).to_string())
                .await;
        }
        let opened = self
            .take(|message| message["id"] == "open")
            .expect("the session opens");
        assert!(opened.get("result").is_some(), "{opened}");
    }

    pub(crate) async fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes()).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        match &mut self.way {
            Way::Lines(lines) => lines.send(bytes).await,
            Way::Http(over_http) => over_http.send(bytes),
        }
        self.settle().await;
    }

    /// The client goes away.
    pub(crate) async fn disconnect(&mut self) {
        match &mut self.way {
            Way::Lines(lines) => lines.to_host = None,
            Way::Http(over_http) => over_http.disconnect(),
        }
        self.settle().await;
    }

    /// Lets everything run that can run without time passing.
    pub(crate) async fn settle(&mut self) {
        let arrived = match &mut self.way {
            Way::Lines(lines) => {
                for _ in 0..200 {
                    tokio::task::yield_now().await;
                }
                lines.arrived()
            }
            Way::Http(over_http) => {
                over_http.door.settle().await;
                over_http.arrived()
            }
        };
        for line in arrived {
            self.seen.push(super::upstream::read(&line));
            self.heard.push(line.clone());
            self.raw.push(line);
        }
    }

    /// Moves time.
    pub(crate) async fn advance(&mut self, ms: u64) {
        self.settle().await;
        tokio::time::advance(std::time::Duration::from_millis(ms)).await;
        self.settle().await;
    }

    /// Takes the first message not yet taken that fits.
    pub(crate) fn take(&mut self, fits: impl Fn(&Value) -> bool) -> Option<Value> {
        let at = self.seen.iter().position(fits)?;
        self.raw.remove(at);
        Some(self.seen.remove(at))
    }

    /// As [`Self::take`], for a look at the text as it was sent as well.
    pub(crate) fn take_raw(&mut self, mut fits: impl FnMut(&Value, &str) -> bool) -> Option<(Value, String)> {
        let mut both = self.seen.iter().zip(&self.raw);
        let at = both.position(|(message, raw)| fits(message, raw))?;
        Some((self.seen.remove(at), self.raw.remove(at)))
    }

    /// Everything that was sent and not taken.
    pub(crate) fn untaken(&self) -> &[Value] {
        &self.seen
    }

    /// Every line that the client ever got.
    pub(crate) fn heard(&self) -> &[String] {
        &self.heard
    }

    /// Ends the session and waits for its end.
    pub(crate) async fn finish(mut self) -> Ended {
        self.disconnect().await;
        self.ended().await
    }

    /// Waits until the session has ended by itself.
    pub(crate) async fn ended(self) -> Ended {
        match self.way {
            Way::Lines(lines) => lines.served.await.expect("the session does not panic"),
            Way::Http(over_http) => {
                over_http.door.door.close().await;
                Ended::Closed
            }
        }
    }
}
