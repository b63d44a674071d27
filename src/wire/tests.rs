//! The shared cases, read as far as the wire alone decides them, and what holds for every frame whatever
//! its bytes are.

use base64::Engine as _;
use bytes::Bytes;
use proptest::prelude::*;
use serde_json::Value;

use super::frame::{ClientFrame, FrameError, Request, read_client};
use super::method::{Route, route};
use super::scan::ScanLimits;
use super::upstream_frame::{Unreadable, UpstreamFrame, read_upstream};
use super::{object, refusal, shape};

const CASES: &str = include_str!("../../tests/cases/wire.json");

/// The kinds of cases whose error codes are settled before a session, a policy or a header has a say.
const SETTLED_HERE: &[&str] = &[
    "batch",
    "params-shape",
    "duplicates",
    "case-variant",
    "ids",
    "arguments",
    "text",
    "numbers",
    "depth-size",
    "framing",
    "names",
];

fn cases() -> Vec<Value> {
    serde_json::from_str(CASES).unwrap()
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The bytes of a frame: text, or texts repeated, one of them until the frame is full.
fn frame_bytes(frame: &Value) -> Vec<u8> {
    if let Some(text) = frame.as_str() {
        return text.into();
    }
    let parts: Vec<(&str, &Value)> = frame["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| (part[0].as_str().unwrap(), &part[1]))
        .collect();
    let counted = |count: &Value| usize::try_from(count.as_u64().unwrap_or(0)).unwrap();
    let fixed: usize = parts
        .iter()
        .map(|(text, count)| text.len() * counted(count))
        .sum();
    let mut bytes = Vec::new();
    for (text, count) in parts {
        let times = match count.as_str().and_then(|fill| fill.strip_prefix("fill:")) {
            Some(total) => (total.parse::<usize>().unwrap() - fixed) / text.len(),
            None => counted(count),
        };
        bytes.extend(text.repeat(times).into_bytes());
    }
    bytes
}

fn frames(case: &Value) -> Vec<Vec<u8>> {
    let list = |name: &str| case[name].as_array().cloned().unwrap_or_default();
    let plain = list("frames").iter().map(frame_bytes).collect::<Vec<_>>();
    let encoded = list("frames_base64").into_iter().map(|frame| {
        base64::engine::general_purpose::STANDARD
            .decode(frame.as_str().unwrap())
            .unwrap()
    });
    plain.into_iter().chain(encoded).collect()
}

/// Reads a frame as a session does before it asks anybody: the code that it is answered with, and the id.
fn answered(frame: Vec<u8>) -> Option<(i64, Option<String>)> {
    let raw = |error: FrameError| (error.code, error.id.map(|id| id.raw().to_owned()));
    match read_client(Bytes::from(frame), &ScanLimits::default()) {
        Err(error) => Some(raw(error)),
        Ok(Some(ClientFrame::Request(request))) if matches!(route(request.method()), Route::Gated { .. }) => {
            let id = Some(request.id().raw().to_owned());
            shape::judged(&request).err().map(|error| (error.code, id))
        }
        Ok(_) => None,
    }
}

#[test]
fn the_shared_cases_get_the_codes_that_they_name() {
    let mut compared = 0;
    for case in cases() {
        let answer = &case["expect"]["answer"];
        let elsewhere = !SETTLED_HERE.contains(&text_of(&case, "kind"))
            // An empty body is the door's to refuse: on stdio the same bytes are a blank line.
            || text_of(&case, "name") == "framing/empty HTTP body";
        if elsewhere || answer.is_null() {
            continue;
        }
        let expected: Vec<i64> = match &answer["error_code"] {
            Value::Array(codes) => codes.iter().filter_map(Value::as_i64).collect(),
            code => code.as_i64().into_iter().collect(),
        };
        for frame in frames(&case) {
            let actual = answered(frame);
            let name = text_of(&case, "name");
            compared += 1;
            match actual {
                None => assert!(expected.is_empty(), "{name} passes"),
                Some((code, id)) => {
                    assert!(expected.contains(&code), "{name}: {code}");
                    assert_eq!(text_of(answer, "id"), id.as_deref().unwrap_or("none"), "{name}");
                }
            }
        }
    }
    assert!(150 < compared, "only {compared} frames were compared");
}

#[test]
fn the_shared_upstream_lines_end_the_call_or_pass() {
    let mut compared = 0;
    for case in cases() {
        let lines = case["upstream"]["stdio_lines"].as_array().cloned();
        for line in lines.unwrap_or_default() {
            let line = line
                .as_str()
                .unwrap()
                .replace("@ID@", "7")
                .replace("@ID_AS_OTHER_TYPE@", "7");
            let name = text_of(&case, "name");
            let foreign = line == "@EXIT@" || line.contains("nobody");
            let ends = case["expect"]["answer"]["error_code"].as_i64() == Some(-32603);
            compared += 1;
            match read_upstream(Bytes::from(line)) {
                Ok(UpstreamFrame::Answer(answer)) => assert!(!ends && answer.id() == 7, "{name}"),
                Err(Unreadable::Malformed { ids, .. }) => assert!(ends && ids == [7], "{name}: {ids:?}"),
                Err(Unreadable::Skipped) => assert!(foreign, "{name} is skipped"),
                Ok(other) => panic!("{name}: {other:?}"),
            }
        }
    }
    assert!(15 < compared, "only {compared} lines were compared");
}

/// What holds for a client's frame, whatever its bytes are.
fn check_client(bytes: &[u8]) {
    match read_client(Bytes::copy_from_slice(bytes), &ScanLimits::default()) {
        Ok(None) => assert!(bytes.iter().all(u8::is_ascii_whitespace)),
        Err(error) => {
            assert!([-32700, -32600].contains(&error.code), "{error:?}");
            let echoed = error.id.as_ref().map_or("", |id| id.raw());
            assert!(String::from_utf8_lossy(bytes).contains(echoed));
        }
        Ok(Some(ClientFrame::Request(request))) => check_request(&request),
        Ok(Some(ClientFrame::Notification(notification))) => {
            let line = notification.to_line();
            let (last, rest) = line.split_last().unwrap();
            assert!(*last == b'\n' && !rest.iter().any(|byte| matches!(byte, b'\r' | b'\n')));
            assert!(serde_json::from_slice::<Value>(rest).is_ok());
        }
        Ok(Some(ClientFrame::Response(response))) => {
            assert!(response.result().is_some() || response.error().is_some());
            if response.id().is_some() {
                assert!(serde_json::from_slice::<Value>(&response.to_upstream("\"u\"")).is_ok());
            }
        }
    }
}

fn check_request(request: &Request) {
    let text = request.text();
    assert!(!text.contains(['\r', '\n']));
    let parsed: Value = serde_json::from_str(text).expect("serde_json takes what the scan takes");
    assert_eq!(Some(request.method()), parsed["method"].as_str());

    let line = String::from_utf8(request.to_upstream(7).to_vec()).unwrap();
    let sent = line.strip_suffix('\n').expect("a line");
    let raw = request.id().raw();
    let only_the_id = text.match_indices(raw).any(|(at, _)| {
        let (before, after) = (text.get(..at), text.get(at + raw.len()..));
        before
            .and_then(|before| sent.strip_prefix(before)?.strip_prefix('7'))
            .is_some_and(|rest| Some(rest) == after)
    });
    assert!(only_the_id, "{text} becomes {sent}");

    let again = read_client(Bytes::from(sent.to_owned()), &ScanLimits::default());
    let Ok(Some(ClientFrame::Request(again))) = again else {
        panic!("{sent} is read as {again:?}")
    };
    assert_eq!("7", again.id().raw());
    assert_eq!(
        (request.method(), request.params()),
        (again.method(), again.params())
    );
    assert_eq!(shape::judged(request), shape::judged(&again));

    let result = refusal::result(request.id(), "{}");
    assert!(result.windows(raw.len()).any(|window| window == raw.as_bytes()));
    if request.params().is_none_or(object::is_object) {
        let set = request.with_param("k", Some("[1]"));
        assert_eq!(
            Some("[1]"),
            set.params().and_then(|params| object::member(params, "k"))
        );
        let removed = set.with_param("k", None);
        assert_eq!(
            None,
            removed.params().and_then(|params| object::member(params, "k"))
        );
        for changed in [set, removed] {
            assert!(
                serde_json::from_str::<Value>(changed.text()).is_ok(),
                "{}",
                changed.text()
            );
        }
    }
    if let Ok(judged) = shape::judged(request) {
        for object in [&judged.args_json, &judged.extra_json] {
            assert!(
                serde_json::from_str::<serde_json::Map<String, Value>>(object).is_ok(),
                "{object}"
            );
        }
    }
}

/// What holds for an upstream's line, whatever its bytes are.
fn check_upstream(bytes: &[u8]) {
    let client_id = super::id::RequestId::parse(r#""c""#).unwrap();
    let line = match read_upstream(Bytes::copy_from_slice(bytes)) {
        Err(Unreadable::Skipped) => return,
        Err(Unreadable::Malformed { ids, .. }) => return assert!(!ids.is_empty()),
        Ok(UpstreamFrame::Answer(answer)) => {
            assert!(answer.result().is_some() != answer.error().is_some());
            answer.to_client(&client_id)
        }
        Ok(UpstreamFrame::Request(request)) => request.to_client(&client_id),
        Ok(UpstreamFrame::Notification(notification)) => notification.to_line(),
    };
    let breaks = line.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count();
    assert_eq!((1, Some(&b'\n')), (breaks, line.last()));
    assert!(serde_json::from_slice::<&serde_json::value::RawValue>(&line).is_ok());
}

#[test]
fn every_shared_frame_keeps_what_holds_for_all() {
    for case in cases() {
        for frame in frames(&case) {
            check_client(&frame);
            check_upstream(&frame);
        }
    }
}

/// Texts that matter to a reader of JSON, to be put anywhere.
const PIECES: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\",
    ",",
    ":",
    "\r",
    "\n",
    "\0",
    "\u{feff}",
    "\\ud800",
    "\\u0061",
    "1e999",
    "-0",
    "null",
    "\"id\":1,",
    "\"ID\":1,",
    "\"method\":\"ping\",",
    "\"result\":{},",
    "\"params\":{},",
    "\"_meta\":{},",
    "\u{17f}",
    "é",
];

#[test]
fn changed_frames_keep_what_holds_for_all() {
    let seeds: Vec<Vec<u8>> = cases()
        .iter()
        .flat_map(frames)
        .filter(|frame| frame.len() < 4096)
        .collect();
    let index = any::<prop::sample::Index>;
    let change = (index(), prop::sample::select(PIECES), 0..4_usize);
    proptest!(|(seed in index(), changes in prop::collection::vec(change, 0..4))| {
        let mut bytes = seed.get(&seeds).clone();
        for (at, piece, removed) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + removed).min(bytes.len());
            bytes.splice(at..end, piece.bytes());
        }
        check_client(&bytes);
        check_upstream(&bytes);
    });
}
