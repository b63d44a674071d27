//! `gatewright explain`: the records of one decision, for a person.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::audit::read::find;
use gatewright::vocabulary::DecisionId;
use serde_json::Value;

use super::member::{elements, number, text};
use super::{EXIT_FAILED, Usage, audit, shown};

#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 found, 1 not found, 2 bad usage.")]
pub(super) struct Explain {
    /// The decision_id of a refusal or of an audit record
    id: String,
    /// The audit log; the user's own when left out
    #[arg(long, value_name = "FILE", env = "GATEWRIGHT_AUDIT")]
    audit: Option<PathBuf>,
    /// Print the records as they are, one a line
    #[arg(long)]
    json: bool,
}

impl Explain {
    #[expect(clippy::print_stdout, clippy::print_stderr, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let id = DecisionId::parse(&self.id).ok_or_else(|| {
            Usage(format!(
                "`{}` is no decision id: those have 32 hexadecimal digits",
                self.id.escape_debug()
            ))
        })?;
        let (path, log) = audit::open(self.audit)?;
        let records =
            find(log, &id.to_string()).with_context(|| format!("cannot read `{}`", path.display()))?;
        if records.is_empty() {
            eprintln!(
                "gatewright: `{}` has no record of {id}; name another log with `--audit`",
                path.display()
            );
            return Ok(ExitCode::from(EXIT_FAILED));
        }
        for record in &records {
            if self.json {
                println!("{record}");
            } else {
                print!("{}", explained(&serde_json::from_str(record)?));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A record in words. Whoever can write the log may be a stranger, so each text of it is shown escaped.
fn explained(record: &Value) -> String {
    let mut words = String::new();
    // Writing into a text cannot fail.
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _infallible = writeln!(words, "  {name:<10} {value}");
        }
    };
    line("request", request(record));
    for name in [
        "code",
        "detail",
        "note",
        "server",
        "client",
        "principal",
        "session",
        "arguments",
        "error_code",
    ] {
        line(name, text(record, name));
    }
    for prompt in elements(record, "prompts") {
        line("prompt", shown(prompt.as_str().unwrap_or_default()));
    }
    let outcome = text(record, "ask_outcome");
    if !outcome.is_empty() {
        line(
            "answer",
            format!("{outcome} after {} ms", number(record, "waited_ms")),
        );
    }
    for policy in elements(record, "policies") {
        line("policy", policy_line(policy));
    }
    if record.get("hidden").is_some() {
        line(
            "hidden",
            format!("{} entries of the list", number(record, "hidden")),
        );
    }
    if text(record, "kind") == "outcome" {
        line("took", format!("{} ms", number(record, "took_ms")));
    }
    format!("{}  {}\n{words}", text(record, "time"), headline(record))
}

fn headline(record: &Value) -> String {
    match text(record, "kind").as_str() {
        "outcome" => match text(record, "outcome") {
            fault if fault.starts_with("policy_") => {
                format!("the server's list was withheld, a policy did not say what it shows: {fault}")
            }
            outcome => format!("the server's answer: {outcome}"),
        },
        "question" => "the person was asked".to_owned(),
        _ => verdict(record),
    }
}

fn verdict(record: &Value) -> String {
    let forwarded = record.get("forwarded") == Some(&Value::Bool(true));
    let what = if forwarded {
        "the request went to the server"
    } else {
        "the request was refused"
    };
    format!("{what} (verdict: {})", text(record, "decision"))
}

fn request(record: &Value) -> String {
    let (method, name) = (text(record, "method"), text(record, "name"));
    if method.is_empty() || method == name {
        method
    } else {
        format!("{method} {name}")
    }
}

fn policy_line(policy: &Value) -> String {
    let (fault, decision) = (text(policy, "fault"), text(policy, "decision"));
    let (what, why) = match (fault.as_str(), decision.as_str()) {
        ("", "ask") => ("ask", text(policy, "prompt")),
        ("", decision) => (decision, text(policy, "reason")),
        (fault, _) => (fault, text(policy, "what")),
    };
    let mode = if text(policy, "mode") == "observe" {
        " (observes)"
    } else {
        ""
    };
    let colon = if why.is_empty() { "" } else { ": " };
    format!(
        "{}{mode} {what} in {} µs{colon}{why}",
        text(policy, "policy"),
        number(policy, "micros")
    )
}
