//! `gatewright explain`: the records of one decision, for a person.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::audit::read::find;
use gatewright::vocabulary::DecisionId;
use serde_json::Value;

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

/// A record in words. Every text in it may come from a stranger, so it is shown escaped.
fn explained(record: &Value) -> String {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut words = String::new();
    // Writing into a text cannot fail.
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _infallible = writeln!(words, "  {name:<10} {value}");
        }
    };
    let headline = match text("kind") {
        "outcome" => format!(
            "{}  the server's answer: {}",
            text("time"),
            shown(text("outcome"))
        ),
        "question" => format!("{}  the person was asked", text("time")),
        _ => format!("{}  {}", text("time"), verdict(record)),
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
        line(name, shown(text(name)));
    }
    for prompt in record
        .get("prompts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        line("prompt", shown(prompt.as_str().unwrap_or_default()));
    }
    if let Some(outcome) = record.get("ask_outcome").and_then(Value::as_str) {
        line(
            "answer",
            format!("{outcome} after {} ms", number(record, "waited_ms")),
        );
    }
    for policy in record
        .get("policies")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        line("policy", policy_line(policy));
    }
    if text("kind") == "outcome" {
        line("took", format!("{} ms", number(record, "took_ms")));
    }
    format!("{headline}\n{words}")
}

fn number(record: &Value, name: &str) -> u64 {
    record.get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn verdict(record: &Value) -> String {
    let decision = shown(record.get("decision").and_then(Value::as_str).unwrap_or_default());
    let forwarded = record.get("forwarded") == Some(&Value::Bool(true));
    let what = if forwarded {
        "the request went to the server"
    } else {
        "the request was refused"
    };
    format!("{what} (verdict: {decision})")
}

fn request(record: &Value) -> String {
    let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("method"), text("name")) {
        ("", _) => String::new(),
        (method, name) if method == name => shown(method),
        (method, name) => format!("{} {}", shown(method), shown(name)),
    }
}

fn policy_line(policy: &Value) -> String {
    let text = |name: &str| policy.get(name).and_then(Value::as_str).unwrap_or_default();
    let (what, why) = match (text("fault"), text("decision")) {
        ("", "ask") => ("ask", text("prompt")),
        ("", decision) => (decision, text("reason")),
        (fault, _) => (fault, text("what")),
    };
    let mode = if text("mode") == "observe" {
        " (observes)"
    } else {
        ""
    };
    let why = if why.is_empty() {
        String::new()
    } else {
        format!(": {}", shown(why))
    };
    format!(
        "{}{mode} {what} in {} µs{why}",
        shown(text("policy")),
        number(policy, "micros")
    )
}
