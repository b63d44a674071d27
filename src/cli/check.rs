//! `gatewright check`: is this a policy, and what does it ask for?

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use gatewright::clock::SystemClock;
use gatewright::config;
use gatewright::decision::Seam;
use gatewright::host::guards::GuardError;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::reload::{Loader, Proof};
use serde_json::json;

#[derive(Args, Debug)]
#[command(after_help = "\
Loads the policy exactly as `wrap` would: reads, compiles, links, configures it once, and lets it judge the cases
in NAME.cases.json beside it, if there are any.
Exit codes: 0 it is a policy, 2 it is not, with the reason and the remedy on standard error.")]
pub(super) struct Check {
    /// A .wasm or .wat file or builtin:NAME, optionally with =CONFIG.json
    #[arg(value_name = "FILE")]
    policy: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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
        let load_ms = facts.load_time.as_secs_f64() * 1000.0;
        if self.json {
            let report = json!({
                "policy": policy.name(), "digest": policy.digest().to_string(), "bytes": facts.component_bytes,
                "imports": facts.requests.iter().map(|request| json!({"import": request.import, "given": request.given.to_string()})).collect::<Vec<_>>(), "exports": facts.exports, "configurable": facts.configurable, "configured": facts.configured.to_string(), "visibility": facts.visibility,
                "load_ms": load_ms, "engine": engine.to_string(),
            });
            println!("{report}");
            return Ok(ExitCode::SUCCESS);
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
        println!("  exports        {}", list(facts.exports.iter().cloned()));
        println!(
            "  imports        {}",
            list(
                facts
                    .requests
                    .iter()
                    .map(|request| format!("{} ({})", request.import, request.given))
            )
        );
        println!("  load time      {load_ms:.1} ms");
        println!("  engine         {engine}");
        Ok(ExitCode::SUCCESS)
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    let names: Vec<String> = names.map(|name| super::shown(&name)).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join("\n                 ")
    }
}
