//! How a record is written: one line of ASCII JSON, whatever strangers put into it.

use super::{OutcomeRecord, QuestionRecord, Record, Subject, VerdictRecord};
use crate::decision::{Decision, Mode, PolicyRecord};
use crate::vocabulary::{Digest, RandomId};

/// The version of the line format.
const VERSION: u8 = 1;

/// One text in a record is cut at this many bytes, with a notice; the digests cover the whole.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// The member that ends a line; its value covers every byte before it.
pub(super) const HASH_MEMBER: &str = ",\"hash\":\"";

/// Where a record stands in its chain.
pub(super) struct Place {
    pub(super) chain: RandomId,
    pub(super) seq: u64,
    pub(super) prev: Digest,
}

/// The line without its end, and its hash.
pub(super) fn write(
    record: &Record<'_>,
    place: &Place,
    now_unix_ms: u64,
    arguments: bool,
) -> (String, Digest) {
    let mut line = Line::default();
    line.raw("v", &VERSION.to_string());
    line.text("time", &rfc3339(now_unix_ms));
    match record {
        Record::Question(question) => line.question(question, arguments),
        Record::Verdict(verdict) => line.verdict(verdict, arguments),
        Record::Outcome(outcome) => line.outcome(outcome),
    }
    line.text("chain", &place.chain.to_string());
    line.raw("seq", &place.seq.to_string());
    line.text("prev", &place.prev.to_string());
    let body = format!("{{{}", line.0);
    let hash = Digest::of(body.as_bytes());
    (format!("{body}{HASH_MEMBER}{hash}\"}}"), hash)
}

#[derive(Default)]
struct Line(String);

impl Line {
    fn raw(&mut self, name: &str, value: &str) {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push('"');
        self.0.push_str(name);
        self.0.push_str("\":");
        self.0.push_str(value);
    }

    fn text(&mut self, name: &str, value: &str) {
        self.raw(name, &quoted(value));
    }

    fn question(&mut self, question: &QuestionRecord<'_>, arguments: bool) {
        self.text("kind", "question");
        self.subject(&question.subject, arguments);
        self.chain(question.policies, question.revision);
        let prompts: Vec<String> = question.prompts.iter().map(|prompt| quoted(prompt)).collect();
        self.raw("prompts", &format!("[{}]", prompts.join(",")));
    }

    fn verdict(&mut self, verdict: &VerdictRecord<'_>, arguments: bool) {
        self.text("kind", "verdict");
        self.subject(&verdict.subject, arguments);
        self.text("decision", verdict.decision);
        for (name, value) in [
            ("code", verdict.code),
            ("detail", verdict.detail),
            ("note", verdict.note),
        ] {
            if !value.is_empty() {
                self.text(name, value);
            }
        }
        self.raw("forwarded", if verdict.forwarded { "true" } else { "false" });
        if let Some(ask) = &verdict.ask {
            self.text("ask_outcome", ask.outcome);
            self.raw("waited_ms", &ask.waited_ms.to_string());
        }
        self.chain(verdict.policies, verdict.revision);
    }

    fn outcome(&mut self, outcome: &OutcomeRecord<'_>) {
        self.text("kind", "outcome");
        self.text("decision_id", &outcome.decision_id.to_string());
        self.text("session", outcome.session);
        self.text("outcome", outcome.outcome);
        if let Some(code) = outcome.error_code {
            self.text("error_code", code);
        }
        if let Some(hidden) = outcome.hidden {
            self.raw("hidden", &hidden.to_string());
        }
        self.raw("took_ms", &outcome.took_ms.to_string());
    }

    fn subject(&mut self, subject: &Subject<'_>, arguments: bool) {
        self.text("decision_id", &subject.decision_id.to_string());
        self.text("session", subject.session);
        self.text("client", subject.client);
        self.text("server", subject.server);
        self.text("transport", subject.transport);
        if let Some(principal) = subject.principal {
            self.text("principal", principal);
        }
        self.text("seam", subject.seam.as_str());
        self.text("method", subject.method);
        self.text("name", subject.name);
        self.text("arguments_digest", &subject.arguments_digest.to_string());
        if arguments {
            self.text("arguments", subject.arguments);
            self.text("extra", subject.extra);
        }
    }

    fn chain(&mut self, policies: &[PolicyRecord], revision: Digest) {
        if policies.is_empty() {
            return;
        }
        self.text("revision", &revision.to_string());
        let policies: Vec<String> = policies.iter().map(policy).collect();
        self.raw("policies", &format!("[{}]", policies.join(",")));
    }
}

fn policy(record: &PolicyRecord) -> String {
    let mut line = Line::default();
    line.text("policy", &record.policy);
    line.text("digest", &record.digest.to_string());
    line.text(
        "mode",
        match record.mode {
            Mode::Enforce => "enforce",
            Mode::Observe => "observe",
        },
    );
    match &record.decision {
        Ok(Decision::Allow) => line.text("decision", "allow"),
        Ok(Decision::Ask(prompt)) => {
            line.text("decision", "ask");
            line.text("prompt", prompt);
        }
        Ok(Decision::Deny(reason)) => {
            line.text("decision", "deny");
            line.text("reason", reason);
        }
        Err((fault, what)) => {
            line.text("fault", fault.code().as_str());
            line.text("what", what);
        }
    }
    line.raw("now_unix_ms", &record.now_unix_ms.to_string());
    line.raw("micros", &record.micros.to_string());
    format!("{{{}}}", line.0)
}

/// A JSON string in which everything but printable ASCII is escaped, so that a terminal can show it.
fn quoted(text: &str) -> String {
    let (text, cut) = match text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)) {
        Some(head) if head.len() < text.len() => (head, Some(text.len())),
        Some(_) | None => (text, None),
    };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            ' '..='~' => quoted.push(c),
            _ => {
                let mut units = [0_u16; 2];
                for unit in c.encode_utf16(&mut units) {
                    quoted.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    if let Some(bytes) = cut {
        quoted.push_str(&format!(" [cut: {bytes} bytes in all]"));
    }
    quoted.push('"');
    quoted
}

/// Milliseconds since 1970 as `2026-12-01T10:11:12.345Z`.
fn rfc3339(unix_ms: u64) -> String {
    let (days, ms) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    // The civil calendar from a day count, with years that start in March (H. Hinnant, "chrono-Compatible
    // Low-Level Date Algorithms").
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (seconds, ms) = (ms / 1000, ms % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!("1970-01-01T00:00:00.000Z", rfc3339(0));
        assert_eq!("2024-02-29T23:59:59.999Z", rfc3339(1_709_251_199_999));
        assert_eq!("2026-12-01T10:11:24.007Z", rfc3339(1_796_119_884_007));
        assert_eq!("2100-03-01T00:00:00.000Z", rfc3339(4_107_542_400_000));
    }

    #[test]
    fn a_policy_is_recorded_with_its_clock_reading() {
        let record = PolicyRecord {
            policy: "p".to_owned(),
            digest: Digest::of(b""),
            mode: Mode::Enforce,
            decision: Ok(Decision::Allow),
            now_unix_ms: 1_796_119_884_007,
            micros: 9,
        };
        let line = policy(&record);
        assert!(line.contains(r#""now_unix_ms":1796119884007,"#), "{line}");
    }

    #[test]
    fn text_is_ascii_and_bounded() {
        assert_eq!(
            r#""a\"\\\u001b[2J\u202e\ud83d\ude00\u000a""#,
            quoted("a\"\\\u{1b}[2J\u{202e}😀\n")
        );
        let long = quoted(&"é".repeat(TEXT_BYTES_MAX));
        assert!(long.ends_with("[cut: 131072 bytes in all]\""));
        assert!(long.len() < 4 * TEXT_BYTES_MAX);
    }
}
