//! Reading an audit log back: finding a decision, and checking the chains.

use std::collections::HashMap;
use std::io::{BufRead, Read as _};

use serde_json::Value;

use super::line::HASH_MEMBER;
use crate::vocabulary::Digest;

/// A line longer than this is no record, in bytes.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// What checking a log found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that are as they were written, in their place.
    pub good: u64,
    /// Chains, one per process that wrote.
    pub chains: u64,
    /// What is wrong: line number, counted from 1, and words.
    pub faults: Vec<(u64, String)>,
}

/// Checks every chain of a log: each record's hash, and that none is missing, added or moved.
///
/// What was cut off at the end of a chain cannot be seen; keep the last hash elsewhere to see it.
///
/// # Errors
///
/// When the log cannot be read.
pub fn verify(reader: impl BufRead) -> std::io::Result<Report> {
    let mut report = Report::default();
    let mut ends: HashMap<String, (u64, String)> = HashMap::new();
    for_each_line(reader, |number, line| match checked(line, &mut ends) {
        Ok(()) => report.good += 1,
        Err(what) => report.faults.push((number, what)),
    })?;
    report.chains = ends.len() as u64;
    Ok(report)
}

fn checked(line: &str, ends: &mut HashMap<String, (u64, String)>) -> Result<(), String> {
    let record: Value = serde_json::from_str(line).map_err(|_| "not a record".to_owned())?;
    let text = |name: &str| record.get(name).and_then(Value::as_str).map(str::to_owned);
    let (Some(chain), Some(prev), Some(hash), Some(seq)) = (
        text("chain"),
        text("prev"),
        text("hash"),
        record.get("seq").and_then(Value::as_u64),
    ) else {
        return Err("not a record of a chain".to_owned());
    };
    let body = line
        .rfind(HASH_MEMBER)
        .and_then(|at| line.get(..at))
        .unwrap_or_default();
    let whole = format!("{body}{HASH_MEMBER}{hash}\"}}");
    let same = Digest::of(body.as_bytes()).to_string() == hash && whole == line;
    let end = ends.insert(chain, (seq, hash));
    if !same {
        return Err("the record was changed after it was written".to_owned());
    }
    let expected = end.map_or((0, Digest::of(b"").to_string()), |(seq, hash)| {
        (seq.wrapping_add(1), hash)
    });
    if seq != expected.0 {
        return Err(format!("record {} of its chain should stand here", expected.0));
    }
    if prev != expected.1 {
        return Err("the record before it in its chain is not the one that was written".to_owned());
    }
    Ok(())
}

/// The lines of one decision as they stand in the log, in their order. This host writes ASCII; what somebody
/// else put there may be anything.
///
/// # Errors
///
/// When the log cannot be read.
pub fn find(reader: impl BufRead, decision_id: &str) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for_each_line(reader, |_, line| {
        if line.contains(decision_id)
            && let Ok(record) = serde_json::from_str::<Value>(line)
            && record.get("decision_id").and_then(Value::as_str) == Some(decision_id)
        {
            found.push(line.to_owned());
        }
    })?;
    Ok(found)
}

/// Empty lines are left out: one stands after a record that was cut. What is not UTF-8 is given as a text that
/// is no record, and what is too long in pieces that are none, so that both are found.
fn for_each_line(mut reader: impl BufRead, mut each: impl FnMut(u64, &str)) -> std::io::Result<()> {
    let mut number = 0;
    loop {
        let mut line = Vec::new();
        let count = reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if count == 0 {
            return Ok(());
        }
        number += 1;
        let text = std::str::from_utf8(&line).unwrap_or("-").trim_end_matches('\n');
        if !text.is_empty() {
            each(number, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_record_is_a_fault_in_its_line() {
        #[track_caller]
        fn check(log: &[u8], faults: &[u64]) {
            let report = verify(log).unwrap();
            let lines: Vec<u64> = report.faults.iter().map(|(line, _)| *line).collect();
            assert_eq!((0, faults), (report.good, lines.as_slice()));
        }
        check(b"", &[]);
        check(b"\n\n", &[]);
        check(b"{}\n\nx\n\xff\n", &[1, 3, 4]);
        // A number that nothing can follow, in a record with the right hash.
        let body = format!(r#"{{"chain":"c","prev":"p","seq":{}"#, u64::MAX);
        let last = format!("{body}{HASH_MEMBER}{}\"}}", Digest::of(body.as_bytes()));
        check(format!("{last}\n{last}\n").as_bytes(), &[1, 2]);
    }
}
