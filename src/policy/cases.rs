//! A policy's own test cases, and one call written down as JSON.
//!
//! `NAME.cases.json` beside `NAME.wasm` holds an array of cases. A policy that fails one of its own is not
//! put in force.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::load::Policy;
use super::text::escaped;
use crate::decision::{Decision, Seam};
use crate::seam::{Call, Context};

/// The clock reading of a case that names none: the same on every machine.
const NOW_UNIX_MS: u64 = 1_800_000_000_000;

/// Text kept of what a case failed with, in bytes.
const REASON_BYTES_MAX: usize = 2048;

/// What a policy is told beside the call, as JSON has it. Members are named as in the contract's `context`;
/// those that end in `-json` hold JSON, not text. What is left out is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ContextFile {
    seam: Option<SeamName>,
    server: Option<String>,
    session: Option<String>,
    transport: Option<String>,
    protocol_version: Option<String>,
    client_json: Option<Box<RawValue>>,
    principal: Option<String>,
    claims_json: Option<Box<RawValue>>,
    tool_json: Option<Box<RawValue>>,
    extra_json: Option<Box<RawValue>>,
    now_unix_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SeamName {
    Tools,
    Reads,
}

impl ContextFile {
    /// The call that a policy is asked about.
    #[must_use]
    pub fn call<'a>(&'a self, name: &'a str, args_json: &'a str) -> Call<'a> {
        let json =
            |value: &'a Option<Box<RawValue>>, otherwise| value.as_deref().map_or(otherwise, RawValue::get);
        let text = |value: &'a Option<String>, otherwise| value.as_deref().unwrap_or(otherwise);
        Call {
            seam: match self.seam {
                None | Some(SeamName::Tools) => Seam::Tools,
                Some(SeamName::Reads) => Seam::Reads,
            },
            name,
            args_json,
            context: Context {
                server: text(&self.server, "upstream"),
                session: text(&self.session, ""),
                transport: text(&self.transport, "stdio"),
                protocol_version: text(&self.protocol_version, ""),
                client_json: json(&self.client_json, ""),
                principal: self.principal.as_deref(),
                claims_json: json(&self.claims_json, "{}"),
                tool_json: json(&self.tool_json, ""),
                extra_json: json(&self.extra_json, "{}"),
                now_unix_ms: self.now_unix_ms.unwrap_or(NOW_UNIX_MS),
            },
        }
    }
}

/// One case of a policy.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What the case is called in messages.
    name: String,
    /// The tool's name, or on the reads seam the method.
    call: String,
    /// The arguments, `{}` when left out.
    args: Option<Box<RawValue>>,
    #[serde(default)]
    ctx: ContextFile,
    expect: Expected,
    /// The whole reason or prompt.
    says: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
enum Expected {
    Allow,
    Ask,
    Deny,
}

/// Lets the policy judge every case of the file, and says what is wrong with the first that fails.
///
/// # Errors
///
/// The reason, in words and without anything that a terminal obeys, also when the file cannot be read as cases.
pub(super) fn passes(policy: &Policy, cases_json: &[u8]) -> Result<(), String> {
    let cases: Vec<Case> = serde_json::from_slice(cases_json).map_err(|error| {
        format!(
            "its cases cannot be read: {}",
            escaped(error.to_string().as_bytes(), REASON_BYTES_MAX)
        )
    })?;
    // A thread of its own, because a runtime cannot be entered where the caller is in one.
    std::thread::scope(|scope| {
        let judged = scope.spawn(|| judge(policy, &cases)).join();
        judged.unwrap_or_else(|_panic| Err("the host panicked while its cases ran".to_owned()))
    })
}

fn judge(policy: &Policy, cases: &[Case]) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| format!("its cases cannot be run: {error}"))?;
    for case in cases {
        let args_json = case.args.as_deref().map_or("{}", RawValue::get);
        let call = case.ctx.call(&case.call, args_json);
        let (decided, _) = runtime.block_on(policy.decide(&call));
        let (decision, text) = match decided {
            Ok(Decision::Allow) => (Expected::Allow, String::new()),
            Ok(Decision::Ask(prompt)) => (Expected::Ask, prompt),
            Ok(Decision::Deny(reason)) => (Expected::Deny, reason),
            Err((fault, what)) => {
                // A trap names functions of the guest, which are called whatever its author likes.
                let what = escaped(what.as_bytes(), REASON_BYTES_MAX);
                return Err(failed(
                    case,
                    &format!("it failed with {}: {what}", fault.code().as_str()),
                ));
            }
        };
        if decision != case.expect {
            return Err(failed(
                case,
                &format!(
                    "{:?} was expected, and it said {decision:?} {text:?}",
                    case.expect
                ),
            ));
        }
        if case.says.as_ref().is_some_and(|says| *says != text) {
            return Err(failed(case, &format!("it said {text:?}, not what was expected")));
        }
    }
    Ok(())
}

fn failed(case: &Case, what: &str) -> String {
    format!("its own case {:?} fails: {what}", case.name)
}
