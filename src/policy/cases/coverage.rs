//! What cases leave out: decisions that none of them reaches, and answers that a small change of one reaches.
//!
//! A policy is a black box, so its answers are found by trying: every case is varied in its name and in each of its
//! arguments. What is found is only what the variations happen to meet.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Map, Value};

use super::file::{Case, Cases, Expected};
use super::run::{Outcome, Subject};
use crate::decision::Decision;
use crate::policy::garbage;

/// Variations that are tried.
const TRIED_MAX: usize = 600;

/// Variations that may end without a decision, each of which may take a whole deadline.
const FAILED_MAX: usize = 20;

/// Arguments longer than this are not varied, in bytes.
const VARIED_BYTES_MAX: usize = 64 * 1024;

/// Texts that stand for a thing of its kind.
const TEXTS: [&str; 6] = ["", "/", "../x", ".env", "http://example.com/", "x"];

/// What no case reaches.
#[derive(Debug, Default)]
pub struct Coverage {
    /// Of allow, ask and deny, those that no case reaches.
    pub unreached: Vec<&'static str>,
    /// Answers that a variation of a case reached and no case does.
    pub besides: Vec<Found>,
    /// How many variations were tried.
    pub tried: usize,
}

/// An answer, and one call that leads to it.
#[derive(Debug)]
pub struct Found {
    /// The answer.
    pub outcome: Outcome,
    /// The tool's name, or the method.
    pub call: String,
    /// The arguments.
    pub args_json: String,
}

impl Coverage {
    /// Compares what the cases reached with what variations of them do.
    pub fn of(subject: &mut Subject<'_>, cases: &Cases, reached: &[Outcome]) -> Self {
        let words: BTreeSet<&str> = reached.iter().map(Outcome::word).collect();
        let decisions = [Expected::Allow, Expected::Ask, Expected::Deny].map(Expected::as_str);
        let unreached = decisions
            .into_iter()
            .filter(|word| !words.contains(word))
            .collect();
        let known: HashSet<String> = reached.iter().map(kind).collect();
        let mut besides = BTreeMap::new();
        let (mut tried, mut failed) = (0, 0);
        let mut seen = HashSet::new();
        for case in &cases.list {
            for (name, args_json) in variations(case, cases) {
                if TRIED_MAX <= tried || FAILED_MAX <= failed {
                    break;
                }
                if !seen.insert((name.clone(), args_json.clone(), case.configure.clone())) {
                    continue;
                }
                tried += 1;
                let call = case.ctx.call(&name, &args_json);
                let (outcome, _) = subject.decide(case.configure.as_deref(), &call);
                failed += usize::from(!matches!(outcome, Outcome::Decided(_)));
                let kind = kind(&outcome);
                if !known.contains(&kind) {
                    besides.entry(kind).or_insert(Found {
                        outcome,
                        call: name,
                        args_json,
                    });
                }
            }
        }
        Self {
            unreached,
            besides: besides.into_values().collect(),
            tried,
        }
    }
}

/// Answers that differ only in what they quote, and in numbers, are of one kind.
fn kind(outcome: &Outcome) -> String {
    let mut kind = format!("{} ", outcome.word());
    if !matches!(outcome, Outcome::Decided(Decision::Ask(_) | Decision::Deny(_))) {
        return kind;
    }
    let mut quote = None;
    for c in outcome.text().chars() {
        match quote {
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None if c == '`' || c == '"' => {
                quote = Some(c);
                kind.push('…');
            }
            None if c.is_ascii_digit() => {}
            None => kind.push(c),
        }
    }
    kind
}

/// Calls that differ from the case in one thing.
fn variations(case: &Case, cases: &Cases) -> Vec<(String, String)> {
    let mut names: Vec<String> = cases.list.iter().map(|other| other.call.clone()).collect();
    names.push(format!("{}x", case.call));
    names.push(case.call.to_uppercase());
    names.push("no_such_tool".to_owned());
    names.extend(garbage::CALLS.map(|(name, _)| name.to_owned()));
    let mut calls = vec![(case.call.clone(), "{}".to_owned())];
    calls.extend(names.into_iter().map(|name| (name, case.args_json.clone())));
    if case.args_json.len() <= VARIED_BYTES_MAX
        && let Ok(Value::Object(args)) = serde_json::from_str(&case.args_json)
    {
        calls.extend(
            objects(&args)
                .into_iter()
                .map(|args| (case.call.clone(), Value::Object(args).to_string())),
        );
    }
    calls
}

/// Objects that differ from this one in one member.
fn objects(args: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let mut varied = Vec::new();
    for (name, value) in args {
        let mut without = args.clone();
        without.remove(name);
        varied.push(without);
        let mut with = |value: Value| {
            let mut with = args.clone();
            with.insert(name.clone(), value);
            varied.push(with);
        };
        for other in [Value::Null, Value::Bool(true), 0.into(), (-1).into(), 1e15.into()] {
            with(other);
        }
        with(Value::Array(Vec::new()));
        with(Value::Object(Map::new()));
        TEXTS.into_iter().for_each(|text| with(text.into()));
        if let Value::String(text) = value {
            with(format!("{text}/../x").into());
            with(format!("{text}x").into());
            with(text.to_uppercase().into());
        }
    }
    let mut more = args.clone();
    more.insert("unexpected".to_owned(), Value::Bool(true));
    varied.push(more);
    varied
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_things_and_numbers_make_no_new_answer() {
        let kind = |text: &str| kind(&Outcome::Decided(Decision::Deny(text.to_owned())));
        assert_eq!(kind("`a` is 5 too long"), kind("`b` is 77 too long"));
        assert_ne!(kind("`a` is too long"), kind("`a` is too short"));
    }

    #[test]
    fn each_member_is_taken_out_and_changed() {
        let args: Map<String, Value> = serde_json::from_str(r#"{"path": "a", "n": 1}"#).unwrap();
        let varied: Vec<String> = objects(&args)
            .into_iter()
            .map(|args| Value::Object(args).to_string())
            .collect();
        for expected in [
            r#"{"n":1}"#,
            r#"{"path":"a"}"#,
            r#"{"n":1,"path":"a/../x"}"#,
            r#"{"n":null,"path":"a"}"#,
        ] {
            assert!(
                varied.iter().any(|args| args == expected),
                "{expected} in {varied:?}"
            );
        }
    }
}
