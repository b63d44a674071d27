//! Runs one row against the host: its steps in order, and at the end nothing may be left over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gatewright::clock::{Clock as _, SystemClock};
use gatewright::decision::{Mode, Seam};
use gatewright::gate::ask::AskSettings;
use gatewright::host::Settings;
use gatewright::policy::chain::{Chain, Member};
use gatewright::seam::{Authorizer, Call, Guard, Guards, Judgement, Listing, Showing};
use gatewright::session::Ended;
use gatewright::vocabulary::{Digest, RandomId};
use serde_json::Value;
use tokio::sync::watch;

use super::captured::{Captured, bits};
use super::case::{CASES, Case, ExpectAudit, NamedPolicy, Policy, Setup, Step};
use crate::support::cases::paused;
use crate::support::chains;
use crate::support::harness::Harness;
use crate::support::policies::Does;
use crate::support::upstream::FakeUpstream;

/// The longest prompt that fits the small policy.
const SMALL_PROMPT_BYTES: usize = 60_000;

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
    policy: Arc<Swappable>,
}

/// A chain that can be exchanged between two judgements, as a reload does.
#[derive(Debug)]
struct Swappable(Mutex<Arc<Chain>>);

impl Swappable {
    fn now(&self) -> Arc<Chain> {
        Arc::clone(&self.0.lock().unwrap())
    }
}

impl Authorizer for Swappable {
    fn judge<'a>(&'a self, call: &'a Call<'a>) -> Judgement<'a> {
        let chain = self.now();
        Box::pin(async move { chain.judge(call).await })
    }

    fn revision(&self) -> Digest {
        self.now().revision()
    }

    fn show<'a>(&'a self, listing: &'a Listing<'a>) -> Showing<'a> {
        let chain = self.now();
        Box::pin(async move { chain.show(listing).await })
    }

    fn hiding(&self) -> watch::Receiver<Option<Digest>> {
        self.now().hiding()
    }
}

impl Run {
    async fn start(case: &Case, over: Over) -> Self {
        let setup = &case.setup;
        assert!(setup.sessions.is_none(), "one session");
        let captured = Captured::default();
        let policy = Arc::new(Swappable(Mutex::new(Arc::new(chain(setup, &captured)))));
        let guard = || Guard::Chain(Arc::clone(&policy) as Arc<dyn Authorizer>);
        let guards = Guards {
            tools: guard(),
            reads: guard(),
        };
        let stateless = case.era == "2026";
        let revision = setup.protocol_version.as_deref().unwrap_or("2025-11-25");
        let capabilities = &setup.client_capabilities;
        let harness = match over {
            Over::Stdio => {
                let mut harness = Harness::start(guards, settings(setup), stateless, None);
                harness.open(&case.era, revision, capabilities).await;
                harness
            }
            Over::Http => {
                let era = if stateless { "2026" } else { "2025" };
                Harness::start_over_http(guards, settings(setup), era, revision, capabilities).await
            }
        };
        let looked_at = harness.upstream.tape().len();
        Self {
            harness: Some(harness),
            captured,
            questions: Vec::new(),
            sent: HashMap::new(),
            looked_at,
            ran: None,
            stateless,
            gone: false,
            stream_closed: false,
            revision: revision.to_owned(),
            at: String::new(),
            policy,
        }
    }

    pub(super) fn harness(&mut self) -> &mut Harness {
        self.harness.as_mut().expect("the session is there")
    }

    pub(super) fn upstream(&self) -> &FakeUpstream {
        &self.harness.as_ref().expect("the session is there").upstream
    }

    /// What the client got and no step has taken.
    pub(super) fn untaken(&self) -> Vec<Value> {
        let harness = self.harness.as_ref().expect("the session is there");
        harness.untaken().to_vec()
    }

    async fn step(&mut self, step: &Step) {
        let several = (&step.session, &step.principal, &step.replica);
        assert!(
            matches!(several, (None, None, None)),
            "{}: one client and one gate",
            self.at
        );
        match &step.steps {
            Some(steps) => self.nested(step, steps).await,
            None => self.single(step).await,
        }
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
                *self.policy.0.lock().unwrap() = Arc::new(chains::one(does));
            }
            Some(("upstream", what)) => self.upstream_does(what).await,
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
        let harness = self.harness.take().expect("it ends once");
        let ended = tokio::time::timeout(Duration::from_secs(5), harness.ended()).await;
        assert_eq!(Ok(Ended::Closed), ended, "{}: within 5 s", self.at);
    }

    /// Nothing that no step expected has happened.
    async fn finish(mut self) {
        if self.harness.is_none() {
            return;
        }
        self.nothing_left();
        let harness = self.harness.take().expect("the session is there");
        assert_eq!(Ended::Closed, harness.finish().await, "{}", self.at);
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

fn settings(setup: &Setup) -> Settings {
    let defaults = Settings::default();
    let asks = AskSettings {
        deadline: Duration::from_millis(setup.deadline_ms),
        state_ttl: Duration::from_millis(setup.state_ttl_ms),
        open_questions_per_session: setup
            .open_questions_per_session
            .unwrap_or(defaults.asks.open_questions_per_session),
        parked_per_session: setup
            .parked_per_session
            .unwrap_or(defaults.asks.parked_per_session),
        ..defaults.asks
    };
    Settings {
        asks,
        upstream_timeout: setup
            .upstream_timeout_ms
            .map_or(defaults.upstream_timeout, Duration::from_millis),
        ..defaults
    }
}

fn chain(setup: &Setup, captured: &Captured) -> Chain {
    if let Some(members) = &setup.chain {
        return Chain::of(members.iter().map(|member| named(member)).collect());
    }
    let prompt = captured.fill(&setup.prompt);
    match &setup.policy {
        Policy::Named(NamedPolicy::AllowAll) => chains::one(Does::Allow),
        Policy::Named(NamedPolicy::AskAll) if SMALL_PROMPT_BYTES < prompt.len() => {
            Chain::of(vec![chains::asks_at_length(&prompt)])
        }
        Policy::Named(NamedPolicy::AskAll) => chains::one(Does::Ask(&prompt)),
        Policy::Listed(listed) => {
            let allowed: Vec<&str> = listed.allow.iter().map(String::as_str).collect();
            let all: Vec<&str> = listed
                .ask
                .iter()
                .map(String::as_str)
                .chain(allowed.clone())
                .collect();
            Chain::of(vec![
                chains::policy(Mode::Enforce, Does::AllowOnly(&all)),
                chains::policy(Mode::Enforce, Does::AskUnless(&allowed, &prompt)),
            ])
        }
    }
}

fn named(member: &str) -> Arc<dyn Member> {
    let (mode, does) = match member.strip_prefix("observe:") {
        Some(does) => (Mode::Observe, does),
        None => (Mode::Enforce, member),
    };
    let does = match does.split_once(':') {
        Some(("ask", prompt)) => Does::Ask(prompt),
        None if does == "allow" => Does::Allow,
        None if does == "trap" => Does::Trap,
        Some(_) | None => panic!("no known policy `{member}`"),
    };
    chains::policy(mode, does)
}
