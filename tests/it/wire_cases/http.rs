//! Runs one row over HTTP: each frame is a POST.

use serde_json::{Value, json};

use super::case::{Answer, CASES, Case, Header, NoAnswer};
use super::run::{Sent, check_bytes, check_judged, fits, guards};
use crate::support::cases::paused;
use crate::support::http::{Exchange, Headers, HttpHarness, Setup};
use crate::support::http_upstream::{HttpUpstream, Scripted};
use crate::support::upstream::Received;

/// Runs the row of this name in every era that it names, in front of each kind of upstream that it knows.
pub(super) fn run(name: &str) {
    let case = CASES
        .iter()
        .find(|case| case.name == name)
        .expect("the case is there");
    let (lines, http) = case.upstream.as_ref().map_or((None, None), |upstream| {
        (upstream.stdio_lines.clone(), upstream.http.clone())
    });
    // An upstream whose end ends the session is one behind a URL here.
    let exits = lines.iter().flatten().any(|line| line == "@EXIT@");
    for era in case.eras() {
        if (lines.is_some() && !exits) || http.is_none() {
            let lines = lines.clone();
            paused(async {
                let mut setup = Setup::new(guards(&case.policy));
                setup.script = lines;
                Run::new(case, era, HttpHarness::start(setup), None).run().await;
            });
        }
        if let Some(http) = http.clone() {
            let script = Scripted {
                status: http.status,
                content_type: http.content_type,
                location: http.location,
                body: http.body,
                reset: http.reset,
            };
            real(async {
                let upstream = HttpUpstream::start(Some(script)).await;
                let harness = HttpHarness::before(Setup::new(guards(&case.policy)), &upstream);
                Run::new(case, era, harness, Some(upstream)).run().await;
            });
        }
    }
}

/// Runs a test in real time: a socket knows no other.
fn real(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

struct Run<'a> {
    case: &'a Case,
    era: &'static str,
    at: String,
    harness: HttpHarness,
    /// None for upstreams in memory.
    upstream: Option<HttpUpstream>,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, era: &'static str, harness: HttpHarness, upstream: Option<HttpUpstream>) -> Self {
        let kind = if upstream.is_some() { "a URL" } else { "lines" };
        Self {
            case,
            era,
            at: format!("{} in {era} over HTTP before {kind}", case.name),
            harness,
            upstream,
        }
    }

    fn tape(&self) -> Vec<Received> {
        match &self.upstream {
            Some(upstream) => upstream
                .posted()
                .into_iter()
                .map(|posted| posted.received)
                .collect(),
            None => self.harness.tape(),
        }
    }

    async fn run(mut self) {
        let case = self.case;
        if case.open && self.era == "2025" {
            self.harness.initialize("2025-11-25", &json!({})).await;
        }
        if !case.upstream_tools.is_empty() {
            self.check_lives().await;
        }
        for tool in &case.upstream_tools {
            let mut tool = tool.clone();
            tool.as_object_mut()
                .expect("a tool is an object")
                .remove("appears");
            self.harness.list_tool(&tool);
        }
        let frames = case.frames();
        let (answers, forwarded) = (case.answers(), case.forwarded());
        let (mut received, mut exchanges) = (Vec::new(), Vec::new());
        for (frame, expected) in frames.iter().zip(&forwarded) {
            let before = self.tape().len();
            exchanges.push(self.harness.post(&self.headers(frame), frame).await);
            let new = self.tape().split_off(before);
            if let Some(expected) = expected {
                let tape: Vec<_> = new.iter().map(|received| &received.line).collect();
                assert_eq!(
                    usize::from(*expected),
                    new.len(),
                    "{}: the tape {tape:?}",
                    self.at
                );
            }
            received.extend(new);
        }
        self.harness.release().await;
        for (at, ((frame, answer), exchange)) in frames.iter().zip(answers).zip(&exchanges).enumerate() {
            self.check_answer(frame, answer, forwarded[at], exchange);
        }
        check_bytes(case, &received, &self.at);
        check_judged(&self.harness.audit, &received, &self.at);
        if let Some(times) = case.expect.forwarded_times {
            assert_eq!(times, received.len(), "{}: how often it was forwarded", self.at);
        }
        if case.expect.session_lives {
            self.check_lives().await;
        }
    }

    /// What a well-behaved client sends with the frame, but what the row replaces.
    fn headers(&self, frame: &[u8]) -> Headers {
        let mut headers = self.harness.headers(self.era, frame);
        for (name, value) in &self.case.headers {
            let at = headers
                .iter()
                .position(|(known, _)| known.eq_ignore_ascii_case(name));
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            let values = match value {
                Header::Removed(()) => Vec::new(),
                Header::Once(value) => vec![value.clone()],
                Header::Twice(values) => values.clone(),
            };
            for value in values.iter().rev() {
                let value = value.replace("${PORT}", "8080").into_bytes();
                headers.insert(at.unwrap_or(headers.len()), (name.clone(), value));
            }
        }
        headers
    }

    fn check_answer(&self, frame: &[u8], answer: &Answer, forwarded: Option<bool>, exchange: &Exchange) {
        let at = &self.at;
        let response = exchange.response().unwrap_or_else(|| panic!("{at}: no response"));
        let messages = response.messages();
        for text in &self.case.expect.never_reaches_client {
            let shown = String::from_utf8_lossy(&response.body);
            assert!(
                !shown.contains(text.as_str()),
                "{at}: `{text}` never reaches the client"
            );
        }
        if let Some(status) = self.case.expect.http_status {
            assert_eq!(status, response.status, "{at}: the status of {messages:?}");
        }
        let given = match answer {
            Answer::Word(NoAnswer::None) => {
                return assert_eq!(0, messages.len(), "{at}: no answer, but {messages:?}");
            }
            Answer::Word(NoAnswer::NoneOrError) => {
                return for (message, _) in messages {
                    assert!(message.get("error").is_some(), "{at}: {message}");
                };
            }
            Answer::Given(given) => given,
        };
        if given.refused.is_some() {
            assert_eq!(
                Some(false),
                forwarded,
                "{at}: what is refused must not reach the upstream"
            );
        }
        let sent = Sent {
            frame,
            stateless: self.era == "2026",
        };
        // Notifications of the upstream may come before the answer.
        let (notifications, answers): (Vec<_>, Vec<_>) = messages
            .iter()
            .partition(|(message, _)| message.get("method").is_some());
        assert!(
            notifications
                .iter()
                .all(|(message, _)| message.get("id").is_none()),
            "{at}: {notifications:?}"
        );
        let [(message, raw)] = answers.as_slice() else {
            panic!("{at}: one answer, but {messages:?} under {}", response.status);
        };
        if let Err(fault) = fits(sent, given, message, raw) {
            panic!("{at}: {fault}: {given:?}, but {raw} under {}", response.status);
        }
        if given.result == Some(true) || given.refused.is_some() {
            assert_eq!(200, response.status, "{at}: {raw}");
        }
    }

    async fn check_lives(&self) {
        if self.era == "2025" && self.harness.session.is_none() {
            return;
        }
        let mut request = json!({"jsonrpc": "2.0", "id": "alive", "method": "tools/list"});
        if self.era == "2026" {
            request["params"]["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}
            });
        }
        let body = request.to_string();
        let headers = self.harness.headers(self.era, body.as_bytes());
        let exchange = self.harness.post(&headers, body.as_bytes()).await;
        let messages: Vec<(Value, String)> = exchange.messages();
        assert!(
            messages.iter().any(|(message, _)| message["id"] == "alive"),
            "{}: the session lives: {messages:?}",
            self.at
        );
    }
}
