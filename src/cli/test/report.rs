//! The results of a test run, for a person.

use std::fmt::Write as _;
use std::path::Path;

use gatewright::policy::cases::{Case, Coverage, Outcome, Text};

use super::Run;
use crate::cli::shown;

/// A longer text is shown cut, in characters.
const TEXT_CHARS_MAX: usize = 160;

/// Characters shown before the first that differs, where a text is cut.
const BEFORE: usize = 40;

/// Answers named that no case reaches.
const BESIDES_MAX: usize = 12;

pub(super) fn report(run: &Run, cases: &Path) -> String {
    let mut report = format!(
        "{}, cases of {}\n",
        shown(&run.policy),
        shown(&cases.to_string_lossy())
    );
    let mut micros = 0;
    for (case, (outcome, took)) in run.cases.list.iter().zip(&run.outcomes) {
        micros += took;
        report.push_str(&line(case, outcome));
    }
    let (all, failed) = (run.cases.list.len(), run.failed());
    let words = format!(
        "{all} cases, {} passed, {failed} failed, judged in {}.{:03} ms\n",
        all - failed,
        micros / 1000,
        micros % 1000
    );
    report.push_str(&words);
    report.push_str(&coverage(&run.coverage));
    report
}

fn line(case: &Case, outcome: &Outcome) -> String {
    let name = shown(&case.name);
    if outcome.expected_by(case) && outcome.says_as(case) {
        return format!("  ok    {name}\n");
    }
    let mut lines = format!("  FAIL  {name}\n");
    // Writing into a text cannot fail.
    let mut line = |name: &str, value: String| {
        let _infallible = writeln!(lines, "          {name:<9} {value}");
    };
    line(
        "call",
        format!("{} {}", shown(&case.call), cut(&case.args_json, 0)),
    );
    if let Some(configure) = &case.configure {
        line("configure", cut(configure, 0));
    }
    let expected: Vec<&str> = case.expect.iter().map(|expected| expected.as_str()).collect();
    let expected = expected.join(" or ");
    let answer = |text: &str, from: usize| match text {
        "" => outcome.word().to_owned(),
        text => format!("{} {}", outcome.word(), cut(text, from)),
    };
    if !outcome.expected_by(case) {
        line("expected", expected);
        line("got", answer(outcome.text(), 0));
        return lines;
    }
    match &case.text {
        Some(Text::Says(says)) => {
            let same = same(says, outcome.text());
            let from = same.saturating_sub(BEFORE);
            line("expected", format!("{} {}", outcome.word(), cut(says, from)));
            line("got", answer(outcome.text(), from));
            let before = outcome.word().len() + 1 + shown_before(outcome.text(), from, same);
            line("", format!("{:before$}^ differs from here", ""));
        }
        Some(Text::Matches(pattern)) => {
            line(
                "expected",
                format!(
                    "{expected} with a text that matches {}",
                    shown(&pattern.to_string())
                ),
            );
            line("got", answer(outcome.text(), 0));
        }
        None => {}
    }
    lines
}

/// How many characters are the same at the beginning.
fn same(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
}

/// The text from its so manieth character, escaped, and cut when it is long.
fn cut(text: &str, from: usize) -> String {
    let all = text.chars().count();
    let head: String = text.chars().skip(from).take(TEXT_CHARS_MAX).collect();
    let start = if 0 < from { "..." } else { "" };
    if from + TEXT_CHARS_MAX < all {
        return format!("{start}{}... ({} bytes)", shown(&head), text.len());
    }
    format!("{start}{}", shown(&head))
}

/// How many columns [`cut`] takes for the characters before the so manieth.
fn shown_before(text: &str, from: usize, to: usize) -> usize {
    let before: String = text.chars().skip(from).take(to - from).collect();
    shown(&before).len() + if 0 < from { 3 } else { 0 }
}

fn coverage(coverage: &Coverage) -> String {
    let mut lines = String::new();
    if !coverage.unreached.is_empty() {
        let words = coverage.unreached.join(", ");
        lines.push_str(&format!("no case reaches: {words}\n"));
    }
    if coverage.besides.is_empty() {
        lines.push_str(&format!(
            "{} variations of the cases lead to no other answer\n",
            coverage.tried
        ));
        return lines;
    }
    lines.push_str(&format!(
        "{} variations of the cases lead to answers that no case reaches:\n",
        coverage.tried
    ));
    for found in coverage.besides.iter().take(BESIDES_MAX) {
        let text = cut(found.outcome.text(), 0);
        let colon = if text.is_empty() { "" } else { " " };
        lines.push_str(&format!(
            "  {}{colon}{text}\n          {} {}\n",
            found.outcome.word(),
            cut(&found.call, 0),
            cut(&found.args_json, 0)
        ));
    }
    let more = coverage.besides.len().saturating_sub(BESIDES_MAX);
    if 0 < more {
        lines.push_str(&format!("  and {more} more\n"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_around_the_difference() {
        assert_eq!("abc", cut("abc", 0));
        assert_eq!("...c", cut("abc", 2));
        assert_eq!(
            format!("{}... (1000 bytes)", "a".repeat(TEXT_CHARS_MAX)),
            cut(&"a".repeat(1000), 0)
        );
        assert_eq!(
            (2, 0, 3),
            (same("abc", "abd"), same("", "x"), same("éàü!", "éàü?"))
        );
    }
}
