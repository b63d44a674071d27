//! `gatewright decide`: one decision of one policy, as JSON.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::config;
use gatewright::decision::{Decision, Fault};
use gatewright::host::guards::GuardError;
use gatewright::policy::cases::ContextFile;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::load::Policy;
use gatewright::wire::scan::{ScanLimits, scan};
use serde_json::json;

use super::{Usage, cache};

/// The exit codes of a decision.
const EXIT_ASK: u8 = 3;
const EXIT_DENY: u8 = 4;
const EXIT_FAULT: u8 = 5;

#[derive(Args, Debug)]
#[command(after_help = "\
The context file is one JSON object with any of the members that the contract's `context` has: seam, server,
session, transport, protocol-version, client-json, principal, claims-json, tool-json, extra-json, now-unix-ms.
Members that end in -json hold JSON, not text: {\"seam\":\"tools\",\"claims-json\":{\"scope\":\"admin\"}}. Without now-unix-ms it
is always the same time.

Exit codes: 0 allow, 3 ask, 4 deny, 5 the policy failed, 2 bad usage or no policy.")]
pub(super) struct Decide {
    /// A .wasm or .wat file or builtin:NAME, optionally with =CONFIG.json
    #[arg(value_name = "FILE")]
    policy: String,
    /// The tool's name, or on the reads seam the method
    name: String,
    /// The arguments: one JSON object, or `-` to read it from standard input
    args: String,
    /// Compile the policy anew, and keep nothing of it
    #[arg(long)]
    no_cache: bool,
    /// What the policy is told beside the call
    #[arg(long, value_name = "FILE")]
    ctx: Option<PathBuf>,
}

impl Decide {
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let args_json = arguments(self.args)?;
        let context = self
            .ctx
            .as_deref()
            .map_or_else(|| Ok(ContextFile::default()), context)?;
        let engine = Engine::new(&EngineSettings::default()).map_err(GuardError::from)?;
        let cache = if self.no_cache { None } else { cache() };
        let policy = Policy::load_with(&engine, config::policy("decide", &self.policy)?, cache.as_ref())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let (decision, micros) = runtime.block_on(policy.decide(&context.call(&self.name, &args_json)));
        let (answer, exit) = answer(decision);
        let mut report = json!({
            "policy": policy.name(), "digest": policy.digest().to_string(), "micros": micros,
        });
        if let (Some(report), serde_json::Value::Object(answer)) = (report.as_object_mut(), answer) {
            report.extend(answer);
        }
        println!("{report}");
        Ok(exit)
    }
}

/// One JSON object, as strictly as the gate takes it from a client.
pub(super) fn arguments(given: String) -> Result<String> {
    let text = if given == "-" {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read the arguments from standard input")?;
        text.trim().to_owned()
    } else {
        given
    };
    match scan(text.as_bytes(), &ScanLimits::default()) {
        Ok(_) => Ok(text),
        Err(error) => Err(Usage(format!(
            "ARGS cannot be used: {error}; give one JSON object such as {{\"path\":\"/tmp/a\"}}"
        ))
        .into()),
    }
}

fn context(path: &Path) -> Result<ContextFile> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Usage(format!("cannot read the context `{}`: {error}", path.display())))?;
    let context = serde_json::from_str(&text)
        .map_err(|error| Usage(format!("cannot use the context `{}`: {error}", path.display())))?;
    Ok(context)
}

fn answer(decision: Result<Decision, (Fault, String)>) -> (serde_json::Value, ExitCode) {
    match decision {
        Ok(Decision::Allow) => (json!({"decision": "allow"}), ExitCode::SUCCESS),
        Ok(Decision::Ask(prompt)) => (json!({"decision": "ask", "prompt": prompt}), EXIT_ASK.into()),
        Ok(Decision::Deny(reason)) => (json!({"decision": "deny", "reason": reason}), EXIT_DENY.into()),
        Err((fault, what)) => (
            json!({"fault": fault.code().as_str(), "what": what}),
            EXIT_FAULT.into(),
        ),
    }
}
