//! What holds for every frame, whatever its bytes are.
//!
//! The wire is compiled from the host's own sources rather than linked with the whole host: a fuzzing
//! build then does not instrument a WebAssembly compiler, and it shows that the wire needs nothing else.

#[path = "../../src"]
mod sources {
    pub mod decision;
    pub mod vocabulary;
    pub mod wire;
}

pub use sources::{decision, vocabulary, wire};

use bytes::Bytes;
use serde_json::Value;
use wire::frame::{ClientFrame, Request, read_client};
use wire::id::RequestId;
use wire::line::{Line, LineSplitter};
use wire::scan::ScanLimits;
use wire::upstream_frame::{Answer, Unreadable, UpstreamFrame, read_upstream};
use wire::{era, object, refusal, shape};

/// Reads `bytes` as a client's frame and asserts what must hold.
pub fn client_frame(bytes: &[u8]) {
    any_text_is_safe(bytes);
    match read_client(Bytes::copy_from_slice(bytes), &ScanLimits::default()) {
        Ok(None) => assert!(bytes.iter().all(u8::is_ascii_whitespace)),
        Err(error) => {
            assert!(error.code == -32700 || error.code == -32600);
            // A scan that refuses as no JSON what another parser takes would be a difference, too.
            if error.code == -32700 {
                assert!(serde_json::from_slice::<Value>(bytes).is_err());
            }
            let echoed = error.id.as_ref().map_or("", RequestId::raw);
            assert!(String::from_utf8_lossy(bytes).contains(echoed));
            one_json_line(&refusal::error(
                error.id.as_ref(),
                "",
                error.code,
                &error.detail,
                None,
            ));
        }
        Ok(Some(ClientFrame::Request(request))) => request_holds(&request),
        Ok(Some(ClientFrame::Notification(notification))) => {
            one_json_line(&notification.to_line());
            let changed = notification.with_param("requestId", Some("7"));
            one_json_line(&changed.to_line());
        }
        Ok(Some(ClientFrame::Response(response))) => {
            assert!(response.result().is_some() || response.error().is_some());
            if response.id().is_some() {
                one_json_line(&response.to_upstream("\"u\""));
            }
        }
    }
}

fn request_holds(request: &Request) {
    let text = request.text();
    let parsed: Value = serde_json::from_str(text).expect("serde_json takes what the scan takes");
    assert_eq!(Some(request.method()), parsed["method"].as_str());

    let line = request.to_upstream(7);
    one_json_line(&line);
    let sent = std::str::from_utf8(&line).expect("text").trim_end_matches('\n');
    let raw = request.id().raw();
    let only_the_id = text.match_indices(raw).any(|(at, _)| {
        sent.strip_prefix(&text[..at])
            .and_then(|rest| rest.strip_prefix('7'))
            == Some(&text[at + raw.len()..])
    });
    assert!(only_the_id, "more than the id differs upstream");

    let again = read_client(Bytes::copy_from_slice(sent.as_bytes()), &ScanLimits::default());
    let Ok(Some(ClientFrame::Request(again))) = again else {
        panic!("what goes upstream is read as {again:?}")
    };
    assert_eq!("7", again.id().raw());
    assert_eq!(
        (request.method(), request.params()),
        (again.method(), again.params())
    );
    let judged = shape::judged(request);
    assert_eq!(judged, shape::judged(&again));

    one_json_line(&refusal::result(request.id(), "{}"));
    let _meta = era::request_meta(request.params());
    if request.params().is_none_or(object::is_object) {
        let set = request.with_param("k", Some("[1]"));
        let value = |request: &Request| {
            let params = request.params().unwrap_or("{}");
            object::member(params, "k").map(str::to_owned)
        };
        assert_eq!(Some("[1]"), value(&set).as_deref());
        let removed = set.with_param("k", None);
        assert_eq!(None, value(&removed));
        one_json_line(&set.to_upstream(7));
        one_json_line(&removed.to_upstream(7));
    }
    if let Ok(judged) = judged {
        for object in [&judged.args_json, &judged.extra_json] {
            assert!(
                serde_json::from_str::<Value>(object)
                    .expect("JSON for a policy")
                    .is_object()
            );
        }
        listen_holds(request.params().unwrap_or("{}"));
    }
}

fn listen_holds(params: &str) {
    let Ok(uris) = shape::listen_uris(params) else {
        return;
    };
    let kept = shape::listen_without(params, &|uri| uri.len() % 2 == 0);
    assert!(serde_json::from_str::<Value>(&kept).expect("JSON").is_object());
    let even = uris
        .into_iter()
        .filter(|uri| uri.len() % 2 == 0)
        .collect::<Vec<_>>();
    assert_eq!(
        Ok(even),
        shape::listen_uris(&format!("{{\"notifications\":{kept}}}"))
    );
}

/// Reads `bytes` as a line of an upstream and asserts what must hold.
pub fn upstream_frame(bytes: &[u8]) {
    any_text_is_safe(bytes);
    let client_id = RequestId::from_integer(5);
    match read_upstream(Bytes::copy_from_slice(bytes)) {
        Err(Unreadable::Skipped) => {}
        Err(Unreadable::Malformed { ids, .. }) => assert!(!ids.is_empty()),
        Ok(UpstreamFrame::Answer(answer)) => answer_holds(&answer, &client_id),
        Ok(UpstreamFrame::Request(request)) => one_json_line(&request.to_client(&client_id)),
        Ok(UpstreamFrame::Notification(notification)) => one_json_line(&notification.to_line()),
    }
}

fn answer_holds(answer: &Answer, client_id: &RequestId) {
    assert!(answer.result().is_some() != answer.error().is_some());
    let line = answer.to_client(client_id);
    one_json_line(&line);
    let Ok(UpstreamFrame::Answer(again)) = read_upstream(line.slice(..line.len() - 1)) else {
        panic!("what goes to the client is no answer")
    };
    assert_eq!(5, again.id());
    assert_eq!((answer.result(), answer.error()), (again.result(), again.error()));
    let set = answer.with_result_members(&[("ttlMs", "0"), ("cacheScope", "\"private\"")]);
    one_json_line(&set.to_client(client_id));
    assert_eq!(answer.error(), set.error());
    if let Some(result) = set.result() {
        assert_eq!(Some("0"), object::member(result, "ttlMs"));
        assert_eq!(Some("\"private\""), object::member(result, "cacheScope"));
    }
}

/// Text that nobody checked: a walk over it ends, and a splice of it panics nowhere. Lines come out the same
/// however the stream is cut.
fn any_text_is_safe(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _walked = object::members(&text).count() + object::elements(&text).count();
    let _set = object::with_member(&text, "a", Some("1"));
    let _removed = object::with_member(&text, "a", None);
    assert_eq!(lines(&[bytes]), lines(&bytes.chunks(3).collect::<Vec<_>>()));
}

fn lines(pieces: &[&[u8]]) -> Vec<Line> {
    let mut splitter = LineSplitter::new(16);
    let mut lines = Vec::new();
    for piece in pieces {
        splitter.push(piece);
        while let Some(line) = splitter.next() {
            lines.push(line);
        }
    }
    lines.extend(splitter.finish());
    lines
}

fn one_json_line(line: &[u8]) {
    let breaks = line.iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count();
    assert_eq!((1, Some(&b'\n')), (breaks, line.last()));
    serde_json::from_slice::<&serde_json::value::RawValue>(line).expect("a line is one JSON text");
}
