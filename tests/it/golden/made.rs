//! Rows that are too long to be written, or that no file should hold.

use std::fmt::Write as _;

use super::row::Row;
use super::way::Way;

/// How long the large frames are at least, in bytes.
const LARGE: usize = 1024 * 1024;

/// Levels of a client's frame, its own object among them (ruling R7).
const CLIENT_LEVELS: usize = 64;

/// Levels of a server's frame, as `wire::upstream_frame` takes them.
const SERVER_LEVELS: usize = 1024;

const BOTH: &[&str] = &["2025", "2026"];

pub(super) fn made() -> Vec<Row> {
    let call = |arguments: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"@ID@","method":"tools/call","params":{{"name":"large","arguments":{arguments},"_meta":{{"@META@":0}}}}}}"#
        )
    };
    let result = |content: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"@ID@","result":{{"resultType":"complete","content":[],"structuredContent":{content},"isError":false}}}}"#
        )
    };
    let (client, server) = (large(ENTRY), large(&[ENTRY, ODD_ENTRY].concat()));
    let row = |name: &str, ways: &[Way], request: Option<&str>, answer: Option<&str>| {
        Row::made(name, BOTH, ways, request, answer)
    };
    vec![
        row(
            "a megabyte each way",
            &[],
            Some(&call(&client)),
            Some(&result(&server)),
        ),
        row(
            "as deep as may be",
            &[],
            // Two levels are the frame and its params, and the arguments are the third.
            Some(&call(&format!("{{\"a\":{}}}", nested(CLIENT_LEVELS - 3)))),
            Some(&result(&nested(SERVER_LEVELS - 2))),
        ),
        row(
            "line breaks",
            &[Way::ServeLines, Way::ServeJson, Way::ServeEvents],
            Some(&broken(&call(r#"{"a":[1.0,{}],"b":"\r\n"}"#), "\r\n")),
            None,
        )
        .becoming("line breaks", spaced),
        row(
            "line breaks in an answer",
            &[Way::ServeJson, Way::ServeEvents],
            None,
            Some(&broken(&result(r#"{"a":[1e400,{}],"b":"\r\n"}"#), "\n")),
        )
        .becoming("line breaks", spaced),
    ]
}

const ENTRY: &str = r#"{"n":1.0,"z":-0,"big":12345678901234567890123,"e":1E+2,"text":"\u00e9é \/ \ud83d\ude00 \"]}", "empty" : [ { } , [] ],"":null}"#;

/// What only a server may send.
const ODD_ENTRY: &str = r#",{"much":1e400,"half":"\ud83d","twice":1,"twice":2}"#;

fn large(entry: &str) -> String {
    let mut text = String::with_capacity(LARGE + LARGE / 8);
    text.push_str(r#"{"rows":[0"#);
    let mut number = 0;
    while text.len() < LARGE {
        write!(text, ",{number},{entry}").unwrap();
        number += 1;
    }
    text.push_str("]}");
    text
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// With a break after every comma and brace outside of texts, as a pretty printer writes.
fn broken(frame: &str, line_end: &str) -> String {
    let (mut text, mut in_text) = (String::new(), false);
    let mut before = ' ';
    for c in frame.chars() {
        text.push(c);
        if c == '"' && before != '\\' {
            in_text = !in_text;
        }
        if !in_text && matches!(c, ',' | '{' | '[') {
            text.push_str(line_end);
            text.push_str("  ");
        }
        before = c;
    }
    text
}

fn spaced(frame: &str) -> String {
    frame.replace(['\r', '\n'], " ")
}
