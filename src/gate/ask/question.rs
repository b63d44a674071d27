//! The question that the host puts to the person (semantics section 5, rulings R49 and R52).
//!
//! The message is built here and not by the policy alone: the policy's text is quoted, everything
//! that could deceive an eye is shown escaped, and a fixed first line says who asks.

use std::fmt::Write as _;

use unicode_security::{
    GeneralSecurityProfile as _, MixedScript as _, is_potential_mixed_script_confusable_char,
};

use crate::vocabulary::{DecisionId, Digest};
use crate::wire::object;

/// The first line of every question of this host, and of nothing else.
pub const FIRST_LINE: &str = "Gatewright asks for your approval.";

/// Arguments longer than this are shown as their first and last halves, in bytes (ruling R52).
pub const SHOWN_BYTES_MAX: usize = 4096;

/// What a question shows.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The verdict that asks.
    pub decision_id: DecisionId,
    /// The tool that would be called.
    pub tool: &'a str,
    /// The upstream's configured name.
    pub server: &'a str,
    /// The arguments as they were received.
    pub args_json: &'a str,
    /// Everything else that would reach the upstream, `{}` if nothing.
    pub extra_json: &'a str,
    /// The prompt of every asking policy, in order.
    pub prompts: &'a [String],
}

impl Question<'_> {
    /// The text that the person reads.
    #[must_use]
    pub fn message(&self) -> String {
        let mut message = format!(
            "{FIRST_LINE}\n\nTool: {}\nServer: {}\n",
            shown_name(self.tool),
            shown_name(self.server)
        );
        shown_json(&mut message, "Arguments", self.args_json);
        if self.extra_json != "{}" {
            shown_json(&mut message, "Sent along", self.extra_json);
        }
        message.push_str("\nThe policy says:\n");
        for prompt in self.prompts {
            quoted(&mut message, prompt);
        }
        message.push_str("\nApprove only if you want exactly this call to be made, once.");
        message
    }

    /// The params of `elicitation/create`. `with_mode` is false for the revision that knows no `mode`.
    #[must_use]
    pub fn params(&self, with_mode: bool) -> String {
        let mode = if with_mode { r#""mode":"form","# } else { "" };
        format!(
            concat!(
                r#"{{{mode}"message":{message},"requestedSchema":{{"type":"object","properties":{{"approve":"#,
                r#"{{"type":"boolean","title":"Approve","description":"Make this call, once"}}}},"#,
                r#""required":["approve"]}},"_meta":{{"gatewright/question":{{"decision_id":"{id}","tool":{tool}}}}}}}"#
            ),
            mode = mode,
            message = object::quote(&self.message()),
            id = self.decision_id,
            tool = object::quote(self.tool),
        )
    }

    /// Identifies what was asked: the message without the id of the decision.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(self.message().as_bytes())
    }
}

/// A name on a line of its own: everything outside printable ASCII is escaped, because a name is compared by eye.
pub(in crate::gate) fn shown_name(name: &str) -> String {
    let mut shown = String::new();
    for c in name.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            shown.push(c)
        } else {
            escape(&mut shown, c)
        }
    }
    shown
}

/// JSON text as received, escaped for the eye, cut in the middle past the limit.
fn shown_json(message: &mut String, label: &str, json: &str) {
    if json.len() <= SHOWN_BYTES_MAX {
        let _infallible = writeln!(message, "{label}: {}", shown_text(json));
        return;
    }
    let half = SHOWN_BYTES_MAX / 2;
    let head = json.get(..json.floor_char_boundary(half)).unwrap_or_default();
    let tail = json
        .get(json.ceil_char_boundary(json.len() - half)..)
        .unwrap_or_default();
    let _infallible = writeln!(
        message,
        "{label}: {} [... cut: {} bytes in all, {} ...] {}",
        shown_text(head),
        json.len(),
        Digest::of(json.as_bytes()),
        shown_text(tail)
    );
}

/// The policy's own words: each line marked, links and angle brackets defused.
fn quoted(message: &mut String, prompt: &str) {
    if prompt.trim().is_empty() {
        message.push_str("> (no text)\n");
        return;
    }
    for line in prompt.split('\n') {
        let shown = shown_text(line.strip_suffix('\r').unwrap_or(line));
        let defused = shown
            .replace("://", "[:]//")
            .replace('<', "\\u003c")
            .replace('>', "\\u003e");
        let _infallible = writeln!(message, "> {defused}");
    }
}

/// Text with every character escaped that is not printable ASCII or an honest letter of one script.
fn shown_text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars() {
        if c.is_alphanumeric() || is_mark(c) {
            word.push(c);
            continue;
        }
        shown_word(&mut shown, &word);
        word.clear();
        if c == ' ' || c.is_ascii_graphic() {
            shown.push(c)
        } else {
            escape(&mut shown, c)
        }
    }
    shown_word(&mut shown, &word);
    shown
}

/// Combining marks belong to the word that they stand in.
fn is_mark(c: char) -> bool {
    !c.is_ascii() && !c.is_alphanumeric() && c.identifier_allowed()
}

/// A word is shown as it is when all its letters are allowed in identifiers (UTS 39), belong to one
/// script, and at least one of them cannot be taken for a letter of another script.
fn shown_word(shown: &mut String, word: &str) {
    let honest = word.is_ascii()
        || word.chars().all(|c| c.identifier_allowed())
            && word.is_single_script()
            && word
                .chars()
                .any(|c| !is_potential_mixed_script_confusable_char(c));
    for c in word.chars() {
        if honest || c.is_ascii() {
            shown.push(c)
        } else {
            escape(shown, c)
        }
    }
}

/// `\uXXXX`, as a pair of surrogates beyond the basic plane, so that the text stays JSON.
fn escape(shown: &mut String, c: char) {
    let mut units = [0_u16; 2];
    for unit in c.encode_utf16(&mut units) {
        let _infallible = write!(shown, "\\u{unit:04x}");
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn question<'a>(tool: &'a str, args_json: &'a str, prompts: &'a [String]) -> Question<'a> {
        Question {
            decision_id: DecisionId::from_random([7; 16]),
            tool,
            server: "notes",
            args_json,
            extra_json: "{}",
            prompts,
        }
    }

    #[test]
    fn a_question_reads_well() {
        let prompts = [
            "Deploy to production?".to_owned(),
            "Costs money: see https://example.org/<x>".to_owned(),
        ];
        expect![[r#"
            Gatewright asks for your approval.

            Tool: deploy
            Server: notes
            Arguments: {"env":"prod","n":1.10}

            The policy says:
            > Deploy to production?
            > Costs money: see https[:]//example.org/\u003cx\u003e

            Approve only if you want exactly this call to be made, once."#]]
        .assert_eq(&question("deploy", r#"{"env":"prod","n":1.10}"#, &prompts).message());
    }

    #[test]
    fn what_could_deceive_is_escaped() {
        #[track_caller]
        fn check(text: &str, expected: &str) {
            assert_eq!(expected, shown_text(text));
        }
        check("plain ASCII, <b>", "plain ASCII, <b>");
        check("café Ærøskøbing", "café Ærøskøbing");
        check("привет мир", "привет мир");
        check("こんにちは", "こんにちは");
        check("d\u{435}ploy", "d\\u0435ploy");
        check("\u{441}\u{43e}\u{440}\u{443}", "\\u0441\\u043e\\u0440\\u0443");
        check("a\u{202e}b\u{200b}c\u{1b}[2K", "a\\u202eb\\u200bc\\u001b[2K");
        check("\u{2028}\u{85}\u{7f}\u{9b}", "\\u2028\\u0085\\u007f\\u009b");
        check("\u{e0041}", "\\udb40\\udc41");
        check("ｄanger", "\\uff44anger");
    }

    #[test]
    fn names_are_ascii_only() {
        let prompts = [String::new()];
        let message = question("сору\n\nServer: other", "{}", &prompts).message();
        assert!(
            message.contains("Tool: \\u0441\\u043e\\u0440\\u0443\\u000a\\u000aServer: other\n"),
            "{message}"
        );
        assert!(message.contains("> (no text)"), "{message}");
    }

    #[test]
    fn long_arguments_show_both_ends() {
        let args = format!(r#"{{"cmd":"{} && rm -rf /"}}"#, "é".repeat(20_000));
        let prompts = ["p".to_owned()];
        let message = question("run", &args, &prompts).message();
        assert!(message.contains(&format!(
            "cut: {} bytes in all, {}",
            args.len(),
            Digest::of(args.as_bytes())
        )));
        assert!(message.contains("&& rm -rf /"), "the end is shown");
        assert!(message.len() < 3 * SHOWN_BYTES_MAX);
    }

    #[test]
    fn the_form_has_one_required_boolean() {
        let prompts = ["p".to_owned()];
        let params = question("deploy", "{}", &prompts).params(true);
        let value: serde_json::Value = serde_json::from_str(&params).unwrap();
        assert_eq!("form", value["mode"]);
        assert_eq!(
            serde_json::json!(["approve"]),
            value["requestedSchema"]["required"]
        );
        assert_eq!(
            "boolean",
            value["requestedSchema"]["properties"]["approve"]["type"]
        );
        assert_eq!("deploy", value["_meta"]["gatewright/question"]["tool"]);
        let without: serde_json::Value =
            serde_json::from_str(&question("deploy", "{}", &prompts).params(false)).unwrap();
        assert_eq!(None, without.get("mode"));
    }
}
