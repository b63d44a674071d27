//! Which tools are never served without a tools chain (semantics section 2, ruling R14).

use super::refuse;
use crate::decision::{Code, Conclusion, Seam, Verdict};
use crate::vocabulary::Digest;
use crate::wire::object;

/// The revision of a seam without a chain.
const UNSET_REVISION: &[u8] = b"gatewright: no chain";

/// Whether the tool, as the upstream lists it, declares itself destructive.
///
/// Only the JSON value `true` declares: `annotations.destructiveHint` or `_meta.sensitive`. The
/// schema's default of an absent hint is no declaration.
#[must_use]
pub fn declares_itself_destructive(tool_json: &str) -> bool {
    let is_true = |holder: &str, hint: &str| {
        object::member(tool_json, holder).and_then(|value| object::member(value, hint)) == Some("true")
    };
    is_true("annotations", "destructiveHint") || is_true("_meta", "sensitive")
}

/// A seam without a chain lets pass, but no tool that declares itself destructive.
pub(super) fn unset(seam: Seam, tool_json: &str) -> Verdict {
    let conclusion = match seam {
        Seam::Tools if declares_itself_destructive(tool_json) => Conclusion::Deny {
            code: Code::Denied,
            detail: refuse::DESTRUCTIVE_UNGUARDED.to_owned(),
        },
        Seam::Tools | Seam::Reads => Conclusion::Allow,
    };
    Verdict {
        conclusion,
        revision: Digest::of(UNSET_REVISION),
        policies: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_declares() {
        #[track_caller]
        fn check(tool_json: &str, expected: bool) {
            assert_eq!(expected, declares_itself_destructive(tool_json), "{tool_json}");
        }
        check(r#"{"name":"wipe","annotations":{"destructiveHint":true}}"#, true);
        check(
            r#"{"name":"wipe","annotations":{"destructiveHint": true }}"#,
            true,
        );
        check(r#"{"name":"wipe","_meta":{"sensitive":true}}"#, true);
        check(
            r#"{"name":"wipe","annotations":{"destructiveHint":false}}"#,
            false,
        );
        check(
            r#"{"name":"wipe","annotations":{"destructiveHint":"true"}}"#,
            false,
        );
        check(r#"{"name":"wipe","annotations":{"destructiveHint":1}}"#, false);
        check(r#"{"name":"wipe","annotations":{}}"#, false);
        check(r#"{"name":"wipe","destructiveHint":true}"#, false);
        check(r#"{"name":"wipe"}"#, false);
        check("", false);
    }
}
