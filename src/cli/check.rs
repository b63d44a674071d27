//! `gatewright check`: is this a policy, what does it ask for, and what is suspicious about it?

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gatewright::clock::SystemClock;
use gatewright::config;
use gatewright::decision::Seam;
use gatewright::host::guards::GuardError;
use gatewright::policy::cases::{Cases, Origin, beside};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{PolicySettings, Source};
use gatewright::policy::lints::lints;
use gatewright::policy::reload::{Loader, Proof};
use serde_json::json;

use super::EXIT_FAILED;

#[derive(Args, Debug)]
#[command(after_help = "\
Loads the policy exactly as `wrap` would: reads, compiles, links, configures it once, and lets it judge the cases
in NAME.cases.json or NAME.cases.toml beside it, if there are any. Then looks for what is suspicious:
  no-cases          no cases lie beside it
  allows-garbage    it allows calls of tools that no server has
  fails-on-garbage  it traps or times out on odd arguments
  slow-start        a judgement takes a fifth of its deadline or more, or loading takes seconds
  nondeterministic  two runs decide differently, when it is granted the clock and random numbers if it imports them
  unused-imports    it imports interfaces, and no judgement uses any

Exit codes: 0 it is a policy, 1 something is suspicious and `--strict` is given, 2 it is no policy, with the reason
and the remedy on standard error.")]
pub(super) struct Check {
    /// A .wasm or .wat file or builtin:NAME, optionally with =CONFIG.json
    #[arg(value_name = "FILE")]
    policy: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Exit with 1 when something is suspicious
    #[arg(long)]
    strict: bool,
}

impl Check {
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let settings = config::policy("check", &self.policy)?;
        let engine = Engine::new(&EngineSettings::default()).map_err(GuardError::from)?;
        let loader = Loader {
            engine: Arc::clone(&engine),
            cache: None,
            clock: Arc::new(SystemClock),
            proof: Proof::Loads,
        };
        let policy = loader.load(Seam::Tools, &settings)?;
        let facts = policy.facts();
        let origin = Origin {
            engine: &engine,
            settings: &settings,
            cache: None,
        };
        let lints = lints(&policy, origin, cases(&settings)?.as_ref())?;
        let exit = if self.strict && !lints.is_empty() {
            ExitCode::from(EXIT_FAILED)
        } else {
            ExitCode::SUCCESS
        };
        let load_ms = facts.load_time.as_secs_f64() * 1000.0;
        if self.json {
            let report = json!({
                "policy": policy.name(), "digest": policy.digest().to_string(), "bytes": facts.component_bytes,
                "imports": facts.requests.iter().map(|request| json!({"import": request.import, "given": request.given.to_string()})).collect::<Vec<_>>(), "exports": facts.exports, "configurable": facts.configurable, "configured": facts.configured.to_string(), "visibility": facts.visibility,
                "load_ms": load_ms, "engine": engine.to_string(),
                "warnings": lints.iter().map(|lint| json!({"code": lint.code, "message": lint.message})).collect::<Vec<_>>(),
            });
            println!("{report}");
            return Ok(exit);
        }
        println!("{} is a policy", policy.name());
        println!(
            "  digest         {} (component and configuration)",
            policy.digest()
        );
        println!("  size           {} bytes", facts.component_bytes);
        println!("  configuration  {}", super::shown(&facts.configured.to_string()));
        println!(
            "  lists          {}",
            if facts.visibility {
                "it says which entries are shown"
            } else {
                "every entry is shown"
            }
        );
        println!("  exports        {}", list(facts.exports.iter().cloned(), INDENT));
        println!(
            "  imports        {}",
            list(
                facts
                    .requests
                    .iter()
                    .map(|request| format!("{} ({})", request.import, request.given)),
                INDENT
            )
        );
        println!("  load time      {load_ms:.1} ms");
        println!("  engine         {engine}");
        for lint in &lints {
            println!("  warning        {} ({})", super::shown(&lint.message), lint.code);
        }
        Ok(exit)
    }
}

const INDENT: usize = 17;

/// The cases beside a policy in a file.
fn cases(settings: &PolicySettings) -> Result<Option<Cases>> {
    let Source::File(path) = &settings.source else {
        return Ok(None);
    };
    match beside(path)? {
        Some((path, format)) => super::test::read(&path, format).map(Some),
        None => Ok(None),
    }
}

/// Names one below the other, so far from the left.
pub(super) fn list(names: impl Iterator<Item = String>, indent: usize) -> String {
    let names: Vec<String> = names.map(|name| super::shown(&name)).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(&format!("\n{:indent$}", ""))
    }
}
