//! The results of a test run in the JUnit format, for programs that show such.

use std::fmt::Write as _;

use gatewright::policy::cases::Text;

use super::Run;

pub(super) fn xml(run: &Run) -> String {
    let micros: u64 = run.outcomes.iter().map(|(_, micros)| micros).sum();
    let (tests, failures) = (run.cases.list.len(), run.failed());
    let policy = escaped(&run.policy);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n<testsuite name=\"{policy}\" tests=\"{tests}\" \
         failures=\"{failures}\" errors=\"0\" skipped=\"0\" time=\"{}\">\n",
        seconds(micros)
    );
    for (case, (outcome, micros)) in run.cases.list.iter().zip(&run.outcomes) {
        // Writing into a text cannot fail.
        let _infallible = write!(
            xml,
            "<testcase name=\"{}\" classname=\"{policy}\" time=\"{}\"",
            escaped(&case.name),
            seconds(*micros)
        );
        if outcome.expected_by(case) && outcome.says_as(case) {
            xml.push_str("/>\n");
            continue;
        }
        let words: Vec<&str> = case.expect.iter().map(|expected| expected.as_str()).collect();
        let text = match &case.text {
            None => String::new(),
            Some(Text::Says(says)) => format!(" {says:?}"),
            Some(Text::Matches(pattern)) => format!(" matching {pattern}"),
        };
        let _infallible = write!(
            xml,
            "><failure message=\"{} instead of {}\">expected {}{}\ngot      {} {}\ncall     {} {}</failure></testcase>\n",
            outcome.word(),
            words.join(" or "),
            words.join(" or "),
            escaped(&text),
            outcome.word(),
            escaped(&format!("{:?}", outcome.text())),
            escaped(&case.call),
            escaped(&case.args_json)
        );
    }
    xml.push_str("</testsuite>\n</testsuites>\n");
    xml
}

fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// The text as XML has it. Characters that XML 1.0 cannot hold at all are shown as escapes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\r' | '\t' => {
                let _infallible = write!(escaped, "&#{};", u32::from(c));
            }
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.extend(c.escape_unicode())
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_can_stand_in_xml() {
        assert_eq!("a&lt;b&gt;&amp;&quot;&#10;\\u{1b}é", escaped("a<b>&\"\n\u{1b}é"));
        assert_eq!("1.000042", seconds(1_000_042));
    }
}
