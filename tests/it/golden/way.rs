//! The ways through the gate, each with a client and a server that say what they are told to.

use std::sync::Arc;

use gatewright::gate::server_requests::ServerRequests;
use gatewright::host::Settings;
use gatewright::seam::{Guard, Guards};
use serde::Deserialize;
use serde_json::{Value, json};

use super::program::Program;
use crate::support::chains::one;
use crate::support::harness::Harness;
use crate::support::http::{Exchange, HttpHarness, Setup};
use crate::support::http_upstream::{HttpUpstream, Scripted};
use crate::support::policies::Does;
use crate::support::serving::SOON;
use crate::support::upstream::Received;

/// How the client speaks with the gate, and the gate with the server.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Way {
    /// Lines, and a server in memory.
    WrapLines,
    /// The program, and a child process.
    WrapChild,
    /// HTTP, and a server in memory that speaks lines.
    ServeLines,
    /// HTTP, and a server behind a URL that answers with JSON.
    ServeJson,
    /// HTTP, and a server behind a URL that answers with events.
    ServeEvents,
}

impl Way {
    /// Whether the server can say anything before its answer, if it has to.
    pub(super) fn carries(self, says: bool) -> bool {
        !says || self != Self::ServeJson
    }

    /// Whether clients of 2026-07-28 share a server that cannot tell their requests apart.
    pub(super) fn shares(self, era: &str) -> bool {
        self == Self::ServeLines && era == "2026"
    }
}

/// How the server is called in questions.
pub(super) const SERVER: &str = "golden";

/// What a policy of the reads seam denies in 2026-07-28.
pub(super) const DENIED: &str = "resources/subscribe";

/// What the client declares where it opens a session.
pub(super) fn capabilities() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "tasks": {}})
}

/// The methods of the corpus that the reads seam allows in 2026-07-28.
const READS: &[&str] = &[
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "prompts/get",
    "prompts/list",
    "tools/list",
    "completion/complete",
    "subscriptions/listen",
    "tasks/get",
    "tasks/update",
    "skills/get",
    "com.example/odd",
];

pub(super) fn guards(era: &str) -> Guards {
    let guard = |does| Guard::Chain(Arc::new(one(does)));
    let reads = if era == "2026" {
        Does::AllowOnly(READS)
    } else {
        Does::Allow
    };
    Guards {
        // Whatever a row calls; the test of an approval calls another.
        tools: guard(Does::AskUnless(super::TOOLS, "sure?")),
        reads: guard(reads),
    }
}

fn settings() -> Settings {
    Settings {
        server: SERVER.to_owned(),
        server_requests: ServerRequests {
            refuse_roots: true,
            ..ServerRequests::default()
        },
        ..Settings::default()
    }
}

/// A session on one way.
pub(super) struct Road {
    way: Way,
    era: &'static str,
    ends: Ends,
    /// Lines of the tape that were taken.
    taped: usize,
    /// Lines of the client that were taken.
    heard: usize,
}

enum Ends {
    Lines(Box<Harness>),
    Http(Box<Http>),
    Program(Box<Program>),
}

struct Http {
    door: HttpHarness,
    /// None for servers in memory.
    url: Option<HttpUpstream>,
    posts: Vec<Exchange>,
}

impl Road {
    pub(super) async fn open(way: Way, era: &'static str) -> Self {
        let ends = match way {
            Way::WrapLines => {
                let mut harness = Harness::start(guards(era), settings(), era == "2026", None);
                harness.open(era, "2025-11-25", &capabilities()).await;
                Ends::Lines(Box::new(harness))
            }
            Way::WrapChild => Ends::Program(Box::new(Program::open(era))),
            Way::ServeLines => Ends::Http(Box::new(Http::open(era, None).await)),
            Way::ServeJson | Way::ServeEvents => {
                let url = HttpUpstream::start(None).await;
                Ends::Http(Box::new(Http::open(era, Some(url)).await))
            }
        };
        let mut road = Self {
            way,
            era,
            ends,
            taped: 0,
            heard: 0,
        };
        road.taped = road.tape().len();
        if let Ends::Lines(harness) = &road.ends {
            road.heard = harness.heard().len();
        }
        road
    }

    /// What the server answers to the next request, in which `@ID@` stands for its id; the last frame is the answer.
    pub(super) fn answer_next_with(&mut self, frames: Vec<String>) {
        match &mut self.ends {
            Ends::Lines(harness) => harness.upstream.answer_next_with(frames),
            Ends::Program(program) => program.answer_next_with(&frames),
            Ends::Http(http) => match &http.url {
                None => http.door.answer_next_with(frames),
                Some(url) => url.answer_next_with(self.way.scripted(&frames)),
            },
        }
    }

    pub(super) async fn send(&mut self, frame: &str) {
        match &mut self.ends {
            Ends::Lines(harness) => harness.send(frame).await,
            Ends::Program(program) => program.send(frame),
            Ends::Http(http) => {
                let headers = http.door.headers(self.era, frame.as_bytes());
                let posted = http.door.post(&headers, frame.as_bytes()).await;
                http.posts.push(posted);
            }
        }
    }

    /// What the client has got since the last look, once that are `count` messages.
    pub(super) fn heard(&mut self, count: usize) -> Vec<String> {
        match &mut self.ends {
            Ends::Lines(harness) => {
                let new = harness.heard()[self.heard..].to_vec();
                self.heard = harness.heard().len();
                new
            }
            Ends::Program(program) => program.heard(count),
            Ends::Http(http) => http
                .posts
                .drain(..)
                .filter_map(|posted| posted.response())
                .flat_map(|response| response.texts())
                .collect(),
        }
    }

    fn tape(&mut self) -> Vec<String> {
        let lines = |tape: Vec<Received>| tape.into_iter().map(|received| received.line).collect();
        match &mut self.ends {
            Ends::Lines(harness) => lines(harness.upstream.tape()),
            Ends::Program(program) => program.tape(),
            Ends::Http(http) => match &http.url {
                None => lines(http.door.tape()),
                Some(url) => url
                    .posted()
                    .into_iter()
                    .map(|posted| posted.received.line)
                    .collect(),
            },
        }
    }

    /// What the server has got since the last look, once that are `count` messages.
    pub(super) async fn received(&mut self, count: usize) -> Vec<String> {
        let wanted = self.taped + count;
        let behind_url = matches!(&self.ends, Ends::Http(http) if http.url.is_some());
        // A client is answered when its notification is on its way; everywhere else nothing is left to run.
        let arrived = async {
            while behind_url && self.tape().len() < wanted {
                tokio::task::yield_now().await;
            }
        };
        let _missing_is_seen_below = tokio::time::timeout(SOON, arrived).await;
        let tape = self.tape();
        let new = tape[self.taped..].to_vec();
        self.taped = tape.len();
        new
    }
}

impl Http {
    async fn open(era: &str, url: Option<HttpUpstream>) -> Self {
        let mut setup = Setup::new(guards(era));
        setup.settings = settings();
        let mut door = match &url {
            None => HttpHarness::start(setup),
            Some(url) => HttpHarness::before(setup, url),
        };
        if era == "2025" {
            door.initialize("2025-11-25", &capabilities()).await;
        } else {
            // Begins the conversation that all clients share, and with it the server.
            let request = super::plain_request();
            let headers = door.headers(era, request.as_bytes());
            let opened = door.post(&headers, request.as_bytes()).await;
            door.release().await;
            assert_eq!(200, opened.response().unwrap().status);
        }
        let posts = Vec::new();
        Self { door, url, posts }
    }
}

impl Way {
    fn scripted(self, frames: &[String]) -> Scripted {
        let events = self == Self::ServeEvents;
        let body = if events {
            frames.iter().map(|frame| event(frame)).collect()
        } else {
            frames.concat()
        };
        let content_type = if events {
            "text/event-stream"
        } else {
            "application/json"
        };
        Scripted {
            status: 200,
            content_type: content_type.to_owned(),
            location: None,
            body,
            reset: false,
        }
    }
}

/// An event; a line break in its data begins a new field.
fn event(frame: &str) -> String {
    let fields: Vec<String> = frame.split('\n').map(|line| format!("data: {line}\n")).collect();
    format!("event: message\n{}\n", fields.concat())
}
