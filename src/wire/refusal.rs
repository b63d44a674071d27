//! Messages that this host makes itself: refusals, errors, results (semantics section 6).

use bytes::Bytes;

use super::era::Era;
use super::id::RequestId;
use super::object::quote;
use crate::decision::{Code, Seam};
use crate::vocabulary::DecisionId;

/// The JSON-RPC code of a refused read: outside -32768..-32000, so that no SDK takes it for a fault and retries.
pub const REFUSED_READ: i64 = -31403;

/// The first revision whose schema has no place for a null id; up to then it is required (ruling R2).
const FIRST_REVISION_WITHOUT_NULL_ID: &str = "2025-11-25";

/// Why a request did not run, as the client is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The tool, or on the reads seam the method.
    pub tool_or_method: String,
    /// The seam.
    pub seam: Seam,
    /// Whether the verdict was an ask.
    pub asked: bool,
    /// The machine-readable cause.
    pub code: Code,
    /// What a person can act on.
    pub detail: String,
    /// Finds the audit record.
    pub decision_id: DecisionId,
}

/// The answer to a refused request, as a line.
#[must_use]
pub fn refusal(id: &RequestId, refusal: &Refusal, era: Era) -> Bytes {
    let Refusal {
        tool_or_method,
        seam,
        asked,
        code,
        detail,
        decision_id,
    } = refusal;
    let named = match seam {
        Seam::Tools => "tool",
        Seam::Reads => "method",
    };
    let object = format!(
        r#"{{"error":"authorization_required","{named}":{},"decision":"{}","code":"{}","detail":{},"decision_id":"{decision_id}"}}"#,
        quote(tool_or_method),
        if *asked { "ask" } else { "deny" },
        code.as_str(),
        quote(detail),
    );
    match seam {
        Seam::Reads => error(
            Some(id),
            "",
            REFUSED_READ,
            &format!("authorization_required: {tool_or_method}"),
            Some(&object),
        ),
        Seam::Tools => {
            let result_type = match era {
                Era::Handshake => "",
                Era::Stateless => r#","resultType":"complete""#,
            };
            let text = quote(&object);
            result(
                id,
                &format!(
                    r#"{{"content":[{{"type":"text","text":{text}}}],"isError":true,"_meta":{{"gatewright/refusal":{object}}}{result_type}}}"#
                ),
            )
        }
    }
}

/// A JSON-RPC error, as a line. `revision` is empty when none is known.
#[must_use]
pub fn error(id: Option<&RequestId>, revision: &str, code: i64, message: &str, data: Option<&str>) -> Bytes {
    let id = match id {
        Some(id) => format!(r#""id":{},"#, id.raw()),
        None if FIRST_REVISION_WITHOUT_NULL_ID <= revision => String::new(),
        None => r#""id":null,"#.to_owned(),
    };
    let data = data.map(|data| format!(r#","data":{data}"#)).unwrap_or_default();
    let message = quote(message);
    Bytes::from(format!(
        "{{\"jsonrpc\":\"2.0\",{id}\"error\":{{\"code\":{code},\"message\":{message}{data}}}}}\n"
    ))
}

/// A result, as a line.
#[must_use]
pub fn result(id: &RequestId, result_raw: &str) -> Bytes {
    Bytes::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result_raw}}}\n",
        id.raw()
    ))
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn sample(seam: Seam) -> Refusal {
        Refusal {
            tool_or_method: match seam {
                Seam::Tools => "dep\"loy".to_owned(),
                Seam::Reads => "resources/read".to_owned(),
            },
            seam,
            asked: false,
            code: Code::Denied,
            detail: "not on the list\u{1b}".to_owned(),
            decision_id: DecisionId::from_random([1; 16]),
        }
    }

    #[test]
    fn refusals() {
        let id = RequestId::parse("7").unwrap();
        let line = |seam, era| String::from_utf8(refusal(&id, &sample(seam), era).to_vec()).unwrap();
        expect![[r#"
            {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"{\"error\":\"authorization_required\",\"tool\":\"dep\\\"loy\",\"decision\":\"deny\",\"code\":\"denied\",\"detail\":\"not on the list\\u001b\",\"decision_id\":\"01010101010101010101010101010101\"}"}],"isError":true,"_meta":{"gatewright/refusal":{"error":"authorization_required","tool":"dep\"loy","decision":"deny","code":"denied","detail":"not on the list\u001b","decision_id":"01010101010101010101010101010101"}},"resultType":"complete"}}
        "#]]
        .assert_eq(&line(Seam::Tools, Era::Stateless));
        expect![[r#"
            {"jsonrpc":"2.0","id":7,"error":{"code":-31403,"message":"authorization_required: resources/read","data":{"error":"authorization_required","method":"resources/read","decision":"deny","code":"denied","detail":"not on the list\u001b","decision_id":"01010101010101010101010101010101"}}}
        "#]]
        .assert_eq(&line(Seam::Reads, Era::Handshake));
        assert!(!line(Seam::Tools, Era::Handshake).contains("resultType"));
    }

    #[test]
    fn an_unusable_id_is_null_only_where_the_schema_wants_it() {
        let line = |revision| String::from_utf8(error(None, revision, -32700, "x", None).to_vec()).unwrap();
        assert!(line("").contains(r#""id":null"#));
        assert!(line("2025-06-18").contains(r#""id":null"#));
        assert!(!line("2025-11-25").contains(r#""id""#));
        assert!(!line("2026-07-28").contains(r#""id""#));
    }
}
