//! Runs one row against the host: its steps in order, and at the end nothing may be left over.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use gatewright::clock::{Clock as _, SystemClock};
use gatewright::decision::Seam;
use gatewright::seam::{Authorizer, Guard, Guards};
use gatewright::session::Ended;
use gatewright::vocabulary::RandomId;
use serde_json::Value;

use super::captured::{Captured, bits};
use super::case::{CASES, Case, ExpectAudit, Step};
use super::setup::{Swappable, chain, settings};
use crate::support::cases::paused;
use crate::support::chains;
use crate::support::harness::Harness;
use crate::support::policies::Does;
use crate::support::upstream::{FakeUpstream, Received};

/// Over what a row is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Stdio,
    Http,
}

/// Runs the row of this name on stdio.
pub(super) fn run(name: &str) {
    run_over(Over::Stdio, name);
}

/// Runs the row of this name over HTTP.
pub(super) fn run_http(name: &str) {
    run_over(Over::Http, name);
}

fn run_over(over: Over, name: &str) {
    let case = CASES
        .iter()
        .find(|case| case.name == name)
        .expect("the case is there");
    paused(async {
        let mut run = Run::start(case, over).await;
        for (at, step) in case.steps.iter().enumerate() {
            run.at = format!("{name} over {over:?}, step {}", at + 1);
            run.step(step).await;
        }
        run.at = format!("{name}, at the end");
        run.finish().await;
    });
}

/// A row in progress.
pub(super) struct Run {
    /// None once the session was seen to end.
    harness: Option<Harness>,
    /// Further sessions, and gates of their own, by their names in the row; their upstreams get nothing.
    others: BTreeMap<String, Harness>,
    /// Whose turn it is; none for the first.
    other: Option<String>,
    pub(super) captured: Captured,
    /// The ids of the host's questions, raw.
    pub(super) questions: Vec<String>,
    /// The seam and the tool or method of each request, by its id.
    pub(super) sent: HashMap<String, (Seam, String)>,
    /// How much of the upstream's tape has been looked at.
    pub(super) looked_at: usize,
    /// Whether the last `one_of` found a result.
    pub(super) ran: Option<bool>,
    pub(super) stateless: bool,
    /// Whether the client has closed its side, or ended its session.
    gone: bool,
    /// Whether the client has closed the stream of a request.
    pub(super) stream_closed: bool,
    pub(super) revision: String,
    pub(super) at: String,
    case: &'static Case,
    over: Over,
    policy: Arc<Swappable>,
}

/// The session that a row means when it names none.
const FIRST: &str = "A";

impl Run {
    async fn start(case: &'static Case, over: Over) -> Self {
        let setup = &case.setup;
        let captured = Captured::default();
        let policy = Arc::new(Swappable::new(chain(setup, &captured)));
        let mut run = Self {
            harness: None,
            others: BTreeMap::new(),
            other: None,
            captured,
            questions: Vec::new(),
            sent: HashMap::new(),
            looked_at: 0,
            ran: None,
            stateless: case.era == "2026",
            gone: false,
            stream_closed: false,
            revision: setup
                .protocol_version
                .as_deref()
                .unwrap_or("2025-11-25")
                .to_owned(),
            at: String::new(),
            case,
            over,
            policy,
        };
        let first = run.gate().await;
        run.looked_at = first.upstream.tape().len();
        run.harness = Some(first);
        // A stateless client has no session, and what tells these callers apart are their tokens.
        for name in setup.sessions.keys().filter(|name| *name != FIRST) {
            run.another_session(name).await;
        }
        run
    }

    /// A gate of its own, and a client with an open session.
    async fn gate(&self) -> Harness {
        let guard = || Guard::Chain(Arc::clone(&self.policy) as Arc<dyn Authorizer>);
        let guards = Guards {
            tools: guard(),
            reads: guard(),
        };
        let setup = &self.case.setup;
        let (settings, capabilities) = (settings(setup), &setup.client_capabilities);
        match self.over {
            Over::Stdio => {
                let mut harness = Harness::start(guards, settings, self.stateless, None);
                harness.open(&self.case.era, &self.revision, capabilities).await;
                harness
            }
            Over::Http => {
                let era = if self.stateless { "2026" } else { "2025" };
                Harness::start_over_http(guards, settings, era, &self.revision, capabilities).await
            }
        }
    }

    /// A session beside the first, at the same gate.
    async fn another_session(&mut self, name: &str) {
        let (revision, capabilities) = (self.revision.clone(), &self.case.setup.client_capabilities);
        let first = self.harness.as_mut().expect("the first session is there");
        let session = first.another_session(&revision, capabilities).await;
        self.others.insert(name.to_owned(), session);
    }

    /// The session whose turn it is.
    pub(super) fn harness(&mut self) -> &mut Harness {
        let harness = match &self.other {
            None => self.harness.as_mut(),
            Some(name) => self.others.get_mut(name),
        };
        harness.expect("the session is there")
    }

    pub(super) fn upstream(&self) -> &FakeUpstream {
        &self.harness.as_ref().expect("the session is there").upstream
    }

    /// What reached the upstreams of all other sessions, but for their opening.
    pub(super) fn elsewhere(&self) -> Vec<Received> {
        let tapes = self.others.values().map(|other| other.upstream.tape());
        tapes
            .flatten()
            .filter(|received| {
                !["initialize", "server/discover", "notifications/initialized"].contains(&received.method())
            })
            .collect()
    }

    /// What the client got and no step has taken.
    pub(super) fn untaken(&self) -> Vec<Value> {
        let harness = match &self.other {
            None => self.harness.as_ref(),
            Some(name) => self.others.get(name),
        };
        harness.expect("the session is there").untaken().to_vec()
    }

    async fn step(&mut self, step: &Step) {
        assert!(
            step.principal.is_none(),
            "{}: a caller of another name needs a token",
            self.at
        );
        self.turn(step).await;
        match &step.steps {
            Some(steps) => self.nested(step, steps).await,
            None => self.single(step).await,
        }
    }

    /// Whose turn it is: that of whoever sends, and then of the same until somebody else sends or is named.
    async fn turn(&mut self, step: &Step) {
        let expected = step.expect_client.as_ref();
        let session = step
            .session
            .as_deref()
            .or_else(|| expected.and_then(|expected| expected["session"].as_str()));
        let name = match (&step.replica, session) {
            (Some(replica), None) => {
                if !self.others.contains_key(replica) {
                    let gate = self.gate().await;
                    self.others.insert(replica.clone(), gate);
                }
                replica
            }
            (None, Some(session)) => session,
            (None, None) if step.client.is_some() => FIRST,
            (None, None) => return,
            (Some(_), Some(_)) => panic!("{}: a session of which gate", self.at),
        };
        self.other = (name != FIRST).then(|| name.to_owned());
        self.harness().settle().await;
    }

    /// A loop, or things that happen at the same moment.
    async fn nested(&mut self, step: &Step, steps: &[Step]) {
        match (step.repeat, step.for_each.as_deref(), step.event.as_deref()) {
            (Some(times), None, None) => {
                for i in 1..=times {
                    self.captured.set("i", &i.to_string());
                    for step in steps {
                        self.single(step).await;
                    }
                }
            }
            (None, Some("bit of S1"), None) => {
                for bit in 0..bits(self.captured.get("S1")) {
                    self.captured.bit = bit;
                    for step in steps {
                        self.single(step).await;
                    }
                }
            }
            (None, None, Some("concurrently")) => {
                // On stdio the same moment is one write.
                let mut lines = String::new();
                for step in steps {
                    let frame = self.filled(step.client.as_ref().expect("the client sends"));
                    lines += &format!("{frame}\n");
                }
                self.harness().send_bytes(lines.as_bytes()).await;
            }
            unknown => panic!("{}: no known group of steps: {unknown:?}", self.at),
        }
    }

    /// A frame as it is sent, and remembered by its id.
    fn filled(&mut self, frame: &str) -> String {
        let mut guessed = [0; 16];
        SystemClock.random(&mut guessed).expect("random bytes");
        let guessed = RandomId::from_random(guessed).to_string();
        self.captured.set("random-128-bit", &guessed);
        let frame = self.captured.fill(frame);
        let sent: Value = serde_json::from_str(&frame).expect("a frame is JSON");
        if let (Some(id), Some(method)) = (sent.get("id"), sent["method"].as_str()) {
            let subject = if method == "tools/call" {
                let name = sent["params"]["name"].as_str().unwrap_or_default();
                (Seam::Tools, name.to_owned())
            } else {
                (Seam::Reads, method.to_owned())
            };
            self.sent.insert(id.to_string(), subject);
        }
        frame
    }

    async fn single(&mut self, step: &Step) {
        let mut done = 0;
        if let Some(frame) = &step.client {
            for _ in 0..step.times.unwrap_or(1) {
                let frame = self.filled(frame);
                self.harness().send(&frame).await;
            }
            done += 1;
        }
        if let Some(expected) = &step.expect_http_status {
            let status = self.harness().over_http().last_status();
            assert_eq!(expected.as_u64(), status.map(u64::from), "{}", self.at);
            done += usize::from(step.client.is_none());
        }
        if let Some(ms) = step.advance_ms {
            self.harness().advance(ms).await;
            done += 1;
        }
        if let Some(event) = &step.event {
            self.event(event).await;
            done += 1;
        }
        if let Some(expected) = &step.expect_client {
            let expected = self.captured.fill_all(expected);
            self.expect_client(&expected).await;
            done += 1;
        }
        if let Some(expected) = &step.expect_upstream {
            self.expect_upstream(expected).await;
            done += 1;
        }
        if let Some(expected) = &step.expect_audit {
            self.expect_audit(expected);
            done += 1;
        }
        if let Some(expected) = &step.expect_all {
            self.expect_all(expected);
            done += 1;
        }
        if let Some(expected) = &step.expect_process {
            self.expect_process(expected).await;
            done += 1;
        }
        assert_eq!(1, done, "{}: a step does one thing", self.at);
    }

    async fn event(&mut self, event: &str) {
        match event.split_once(':') {
            Some(("policy-swap", policy)) => {
                let does = match policy {
                    "allow-all" => Does::Allow,
                    "deny-all" => Does::Deny("denied after the swap"),
                    "ask-other-prompt" => Does::Ask("May this other thing run?"),
                    "trap" => Does::Trap,
                    unknown => panic!("{}: no known policy `{unknown}`", self.at),
                };
                self.policy.swap(chains::one(does));
            }
            Some(("upstream", what)) => self.upstream_does(what).await,
            Some(("initialize-new-session", name)) => self.another_session(name).await,
            Some(("accept", accept)) => self.harness().over_http().accept = Some(accept.to_owned()),
            None if event == "no-get-stream" => {
                self.harness().over_http().close_stream();
                self.harness().settle().await;
            }
            None if event == "disconnect-stream" => {
                self.harness().over_http().close_last();
                self.stream_closed = true;
                self.harness().settle().await;
            }
            None if event == "delete-session" => {
                let door = &self.harness().over_http().door;
                let deleted = door.request("DELETE", &door.headers("2025", b""), b"").await;
                assert_eq!(204, deleted.response().expect("an answer").status, "{}", self.at);
                self.gone = true;
                self.harness().settle().await;
            }
            None if event == "disconnect" => {
                self.gone = true;
                self.harness().disconnect().await;
            }
            None if event == "shutdown" => {
                self.harness().shutdown.cancel();
                self.harness().settle().await;
            }
            Some(_) | None => panic!("{}: no known event `{event}`", self.at),
        }
    }

    fn expect_audit(&mut self, expected: &ExpectAudit) {
        let lines = self.harness().audit.lock().unwrap().clone();
        if let Some(text) = &expected.contains {
            assert!(
                lines.iter().any(|line| line.contains(text)),
                "{}: {lines:?}",
                self.at
            );
        }
        let asked: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str::<Value>(line).expect("a record is JSON"))
            .filter(|record| record.get("ask_outcome").is_some())
            .collect();
        match (&expected.ask_outcome, asked.as_slice()) {
            (None, _) => assert!(expected.waited_ms_at_most.is_none(), "{}: who waited", self.at),
            (Some(outcome), [record]) => {
                assert_eq!(
                    Some(outcome.as_str()),
                    record["ask_outcome"].as_str(),
                    "{}",
                    self.at
                );
                let waited = record["waited_ms"].as_u64().expect("a number");
                assert!(
                    waited <= expected.waited_ms_at_most.unwrap_or(u64::MAX),
                    "{}",
                    self.at
                );
            }
            (Some(_), several) => panic!("{}: not one ask but {several:?}", self.at),
        }
    }

    async fn expect_process(&mut self, expected: &str) {
        assert_eq!("exit 0 within 5 s", expected, "{}", self.at);
        self.nothing_left();
        assert!(self.others.is_empty(), "{}: one session", self.at);
        let harness = self.harness.take().expect("it ends once");
        let ended = tokio::time::timeout(Duration::from_secs(5), harness.ended()).await;
        assert_eq!(Ok(Ended::Closed), ended, "{}: within 5 s", self.at);
    }

    /// Nothing that no step expected has happened.
    async fn finish(mut self) {
        if self.harness.is_none() {
            return;
        }
        let names: Vec<String> = self.others.keys().cloned().collect();
        for name in std::iter::once(None).chain(names.into_iter().map(Some)) {
            self.other = name;
            self.harness().settle().await;
            self.nothing_left();
        }
        for harness in self.others.into_values().chain(self.harness) {
            assert_eq!(Ended::Closed, harness.finish().await, "{}", self.at);
        }
    }

    fn nothing_left(&self) {
        let (fresh, at) = (self.fresh(), self.at.clone());
        assert!(fresh.is_empty(), "{at}: the upstream also got {fresh:?}");
        let questions: Vec<Value> = self
            .questions
            .iter()
            .map(|id| serde_json::from_str(id).expect("an id"))
            .collect();
        // A question that ended without an answer is taken back, also where the row does not say so.
        let own_withdrawal = |message: &Value| {
            message["method"] == "notifications/cancelled"
                && questions.contains(&message["params"]["requestId"])
        };
        // A client that closed only its own side can still read that its call was not made.
        let last_words =
            |message: &Value| message["result"]["_meta"]["gatewright/refusal"]["code"] == "cancelled";
        for message in self.untaken() {
            assert!(
                own_withdrawal(&message) || self.gone && last_words(&message),
                "{at}: the client also got {message}"
            );
        }
    }
}
