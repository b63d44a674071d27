//! The golden corpus (`tests/golden`): messages of every kind come out on the far side as they went in, byte for
//! byte, in both directions and both eras, and what the gate may change is exactly what its table says.

mod made;
mod program;
mod row;
mod way;

use std::collections::BTreeSet;
use std::sync::Arc;

use gatewright::host::Settings;
use gatewright::seam::{Guard, Guards};
use serde_json::json;

use crate::support::cases::paused;
use crate::support::chains::{hides, one};
use crate::support::harness::Harness;
use crate::support::http::{HttpHarness, Setup};
use crate::support::policies::Does;
use crate::support::upstream::{Received, raw_member};
use row::{Names, Row};
use way::{Road, Way};

/// The tools that rows call, which no policy minds.
const TOOLS: &[&str] = &[
    "caf\u{e9}",
    "fail",
    "large",
    "login",
    "plain",
    "read",
    "run",
    "slow",
    "sum",
];

/// How the client calls its progress, and the server its requests.
const TOKEN: &str = r#""t\u006fken\/""#;
const THEIRS: &str = r#""th\u0065irs\/""#;

/// The changes that no row shows, but [`an_approval_takes_what_is_its_own`] and
/// [`a_list_loses_what_is_hidden_and_no_more`].
const BY_TESTS: [&str; 2] = ["answers to questions of the gate", "entries that a policy hides"];

fn rows() -> Vec<Row> {
    [row::written(), made::made()].concat()
}

#[test]
fn lines_and_a_server_in_memory() {
    for era in ["2025", "2026"] {
        paused(run(Way::WrapLines, era));
    }
}

#[test]
fn the_program_and_a_child() {
    for era in ["2025", "2026"] {
        real(run(Way::WrapChild, era));
    }
}

#[test]
fn http_and_a_server_that_speaks_lines() {
    for era in ["2025", "2026"] {
        paused(run(Way::ServeLines, era));
    }
}

#[test]
fn http_and_a_server_that_answers_with_json() {
    for era in ["2025", "2026"] {
        real(run(Way::ServeJson, era));
    }
}

#[test]
fn http_and_a_server_that_answers_with_events() {
    for era in ["2025", "2026"] {
        real(run(Way::ServeEvents, era));
    }
}

/// Runs a test in real time: a socket and a process know no other.
fn real(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

async fn run(way: Way, era: &'static str) {
    let mut road = Road::open(way, era).await;
    for (number, row) in rows().iter().filter(|row| row.runs(way, era)).enumerate() {
        let passing = Passing {
            row,
            era,
            shares: way.shares(era),
            at: format!("`{}` of {era} by {way:?}", row.name),
            id: format!(r#""r\u006fw\/{number}""#),
        };
        passing.run(&mut road).await;
    }
}

/// One row on one way.
struct Passing<'a> {
    row: &'a Row,
    era: &'a str,
    shares: bool,
    at: String,
    /// The id of the client's request, as the client writes it.
    id: String,
}

impl Passing<'_> {
    async fn run(&self, road: &mut Road) {
        let Self { row, era, at, .. } = self;
        road.answer_next_with(self.script());
        let client = Names {
            id: &self.id,
            theirs: "",
            token: TOKEN,
        };
        road.send(&client.on(&row.request(era))).await;
        let received = road.received(1).await;
        let [request] = received.as_slice() else {
            panic!("{at}: the server gets one request: {received:?}");
        };
        let id = own_id(request);
        let server = Names {
            id: &id,
            theirs: THEIRS,
            token: if self.shares { &id } else { TOKEN },
        };
        same(&server.on(&row.request_received(era)), request, at);

        if let Some(cancels) = &row.cancels {
            road.send(&client.on(&cancels.0)).await;
            self.check_received(road, &server.on(&cancels.0)).await;
        }
        let expected = row.heard();
        let heard = road.heard(expected.len());
        assert_eq!(expected.len(), heard.len(), "{at}: {heard:?}");
        let asked = heard
            .iter()
            .find(|line| raw_member(line, "method").is_some() && raw_member(line, "id").is_some());
        let ours = asked.map(|line| own_id(line)).unwrap_or_default();
        let client = Names {
            theirs: &ours,
            ..client
        };
        for (expected, heard) in expected.iter().zip(&heard) {
            same(&client.on(expected), heard, at);
        }
        if let Some(response) = &row.response {
            road.send(&client.on(&response.0)).await;
            self.check_received(road, &server.on(&response.0)).await;
        }
        for told in &row.tells {
            road.send(&told.0).await;
            self.check_received(road, &told.0).await;
        }
    }

    /// What the server says, in which `@ID@` stands for the id that it will get.
    fn script(&self) -> Vec<String> {
        if self.row.cancels.is_some() {
            return Vec::new();
        }
        let server = Names {
            id: "@ID@",
            theirs: THEIRS,
            token: if self.shares { "@ID@" } else { TOKEN },
        };
        let says = self.row.says.iter().map(|frame| frame.0.as_str());
        says.chain([self.row.answer()])
            .map(|frame| server.on(frame))
            .collect()
    }

    async fn check_received(&self, road: &mut Road, expected: &str) {
        let received = road.received(1).await;
        let [received] = received.as_slice() else {
            panic!("{}: the server gets one message: {received:?}", self.at);
        };
        same(expected, received, &self.at);
    }
}

/// An id that the gate made: an integer.
#[track_caller]
fn own_id(line: &str) -> String {
    let id = raw_member(line, "id").unwrap_or_default();
    assert!(
        !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()),
        "the gate's own id in {line:.200}"
    );
    id
}

/// Byte for byte; of long frames only the place is shown where they part.
#[track_caller]
fn same(expected: &str, actual: &str, at: &str) {
    if expected == actual {
        return;
    }
    let parts = expected
        .bytes()
        .zip(actual.bytes())
        .position(|(one, other)| one != other);
    let parts = parts.unwrap_or_else(|| expected.len().min(actual.len()));
    let around = |text: &str| {
        let bytes = &text.as_bytes()[parts.saturating_sub(60)..text.len().min(parts + 60)];
        String::from_utf8_lossy(bytes).into_owned()
    };
    panic!(
        "{at}: at byte {parts}\nexpected …{}…\nbut got  …{}…",
        around(expected),
        around(actual)
    );
}

/// A call of 2026-07-28.
fn plain_request() -> String {
    call_of("plain", "")
}

/// The same of any tool, with further members of its params.
fn call_of(tool: &str, members: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"c\u0061ll","method":"tools/call","params":{{{members}"name":"{tool}","arguments":{{ "n":1.0 }},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}}}}}}}}}}"#
    )
}

#[test]
fn an_approval_takes_what_is_its_own() {
    for way in [Way::WrapLines, Way::ServeLines] {
        paused(approval(way));
    }
    for way in [Way::ServeJson, Way::ServeEvents] {
        real(approval(way));
    }
}

/// The retry reaches the server as the call would have, had nobody asked.
async fn approval(way: Way) {
    let mut road = Road::open(way, "2026").await;
    road.send(&call_of("asked", "")).await;
    assert_eq!(Vec::<String>::new(), road.received(0).await, "{way:?}");
    let asked = road.heard(1).pop().unwrap();
    let result = raw_member(&asked, "result").unwrap();
    let (state, requests) = (
        raw_member(&result, "requestState").unwrap(),
        raw_member(&result, "inputRequests").unwrap(),
    );
    let requests: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&requests).unwrap();
    let key = requests.keys().next().unwrap();
    let responses = json!({key: {"action": "accept", "content": {"approve": true}}, "x": {}});
    road.answer_next_with(vec![
        r#"{"jsonrpc":"2.0","id":@ID@,"result":{"resultType":"complete","content":[ ],"n":1e400}}"#
            .to_owned(),
    ]);
    road.send(&call_of(
        "asked",
        &format!(r#""requestState":{state},"inputResponses":{responses},"#),
    ))
    .await;
    let received = road.received(1).await.pop().expect("the approved call");
    let id = own_id(&received);
    same(
        &call_of("asked", "").replace(r#""c\u0061ll""#, &id),
        &received,
        &format!("{way:?}"),
    );
    let expected = r#"{"jsonrpc":"2.0","id":"c\u0061ll","result":{"resultType":"complete","content":[ ],"n":1e400,"ttlMs":0,"cacheScope":"private"}}"#;
    same(expected, &road.heard(1).pop().unwrap(), &format!("{way:?}"));
}

#[test]
fn a_list_loses_what_is_hidden_and_no_more() {
    let list = r#"{"jsonrpc":"2.0","id":@ID@,"result":{"x":1E+2, "tools" : [ {"name":"a","n":1E+2},{"n":-0,"name":"h\u0069dden"} , {"name":"b" } ],"nextCursor":"\u0032"}}"#;
    let left = r#"[{"name":"a","n":1E+2},{"name":"b" }]"#;
    for (era, hints) in [("2025", ""), ("2026", r#","ttlMs":0,"cacheScope":"private""#)] {
        paused(async {
            let guards = Guards {
                tools: Guard::Chain(Arc::new(hides(&["hidden"]))),
                reads: Guard::Chain(Arc::new(one(Does::Allow))),
            };
            let mut lines = Harness::start(guards, Settings::default(), era == "2026", None);
            lines.open(era, "2025-11-25", &json!({})).await;
            lines.upstream.answer_next_with(vec![list.to_owned()]);
            let id = r#""l\u0069st""#;
            let request = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{{"_meta":{{"@META@":0}}}}}}"#
            );
            lines.send(&row::in_era(&request, era)).await;
            while lines.take(|message| message["id"] == "list").is_none() {
                lines.settle().await;
            }
            let expected = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":1E+2, "tools" : {left},"nextCursor":"\u0032"{hints}}}}}"#
            );
            same(&expected, lines.heard().last().unwrap(), era);
        });
    }
}

/// What opens a session, in an era that has one.
const OPENING: &str = r#"{"x":-0,"method":"init\u0069alize","params":{"protocolVersion":"2025\u002d11-25","capabilities":{"elicitation":{ },"experimental":{"a":{"n":1E+2}}},"clientInfo":{"version":"1","name":"c\u00e9","icons":[]},"_meta":{"com.example/a":[1.0]}},"id":"op\u0065n","jsonrpc":"2.0"}"#;

#[test]
fn an_opening_is_carried_as_it_is() {
    let opened = |tape: Vec<Received>| {
        let [opened] = tape.as_slice() else {
            panic!("the server gets one request: {tape:?}");
        };
        let expected = OPENING.replace(r#""op\u0065n""#, &own_id(&opened.line));
        same(&expected, &opened.line, "the opening");
    };
    paused(async {
        let mut lines = Harness::start(way::guards("2025"), Settings::default(), false, None);
        lines.send(OPENING).await;
        opened(lines.upstream.tape());
        let http = HttpHarness::start(Setup::new(way::guards("2025")));
        let posted = http.post(&http.headers("2025", b""), OPENING.as_bytes()).await;
        assert_eq!(200, posted.response().unwrap().status);
        opened(http.tape());
    });
}

/// The table of `tests/golden/README.md` names what rows show, and nothing else.
#[test]
fn the_table_of_changes_is_all() {
    let text = include_str!("../golden/README.md");
    let (_, table) = text
        .split_once("## What the gate may change")
        .expect("the section");
    let listed: BTreeSet<String> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" | ").next())
        .filter(|what| *what != "what" && !what.starts_with("---"))
        .map(str::to_owned)
        .collect();
    let mut shown: BTreeSet<String> = rows().iter().flat_map(Row::changes).collect();
    shown.extend(BY_TESTS.map(str::to_owned));
    assert_eq!(listed, shown);
}

/// Every row is run somewhere, in each era that it names.
#[test]
fn no_row_is_left_out() {
    let ways = [
        Way::WrapLines,
        Way::WrapChild,
        Way::ServeLines,
        Way::ServeJson,
        Way::ServeEvents,
    ];
    for row in rows() {
        for era in row.eras() {
            let runs = ways.iter().filter(|way| row.runs(**way, era)).count();
            assert!(2 <= runs, "`{}` of {era} is run on {runs} ways", row.name);
        }
    }
}
