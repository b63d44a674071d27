//! `gatewright inspect`: what is in a component, without running any of it.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use gatewright::config;
use gatewright::policy::anatomy::Anatomy;
use gatewright::policy::cases::beside;
use gatewright::policy::limits::{Grants, Source};
use serde_json::json;

use super::check::list;
use super::shown;

#[derive(Args, Debug)]
#[command(after_help = "\
Nothing of the file is compiled or run; `gatewright check` does that.
Exit codes: 0 it can be read, 2 it cannot, with the reason and the remedy on standard error.")]
pub(super) struct Inspect {
    /// A .wasm or .wat file or builtin:NAME
    #[arg(value_name = "POLICY")]
    policy: String,
    /// Show what its imports are given when this is granted; may be repeated
    #[arg(long = "grant", value_enum, value_name = "GRANT")]
    grants: Vec<GrantName>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GrantName {
    Clock,
    Random,
    Env,
    Log,
}

impl Inspect {
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let mut settings = config::policy("inspect", &self.policy)?;
        let granted = |grant| self.grants.contains(&grant);
        let variables = granted(GrantName::Env).then(|| ("NAME".to_owned(), "VALUE".to_owned()));
        settings.grants = Grants {
            clock: granted(GrantName::Clock),
            random: granted(GrantName::Random),
            env: variables.into_iter().collect(),
            log: granted(GrantName::Log),
        };
        let anatomy = Anatomy::of(&settings)?;
        let cases = match &settings.source {
            Source::File(path) => beside(path)?.map(|(path, _)| path.display().to_string()),
            Source::Bytes { .. } => None,
        };
        if self.json {
            println!("{}", report(&settings.name, &anatomy, cases.as_deref()));
            return Ok(ExitCode::SUCCESS);
        }
        println!("{}", shown(&settings.name));
        println!("  digest     {} (component)", anatomy.digest);
        println!("  world      gatewright:policy/{}@1.0.0", anatomy.world);
        println!("  exports    {}", list(anatomy.exports.iter().cloned(), INDENT));
        let imports = anatomy.requests.iter();
        println!(
            "  imports    {}",
            list(
                imports.map(|request| format!("{} ({})", request.import, request.given)),
                INDENT
            )
        );
        println!(
            "  size       {} bytes: {} code, {} data, {} names and notes, {} the rest",
            anatomy.bytes.whole,
            anatomy.bytes.code,
            anatomy.bytes.data,
            anatomy.bytes.custom,
            rest(&anatomy)
        );
        println!(
            "  modules    {}, with {} memories of {} bytes at the start",
            anatomy.modules, anatomy.memories.0, anatomy.memories.1
        );
        let producers = anatomy.producers.iter();
        println!(
            "  made by    {}",
            list(
                producers
                    .map(|(field, name, version)| format!("{field}: {name} {version}").trim_end().to_owned()),
                INDENT
            )
        );
        println!(
            "  cases      {}",
            cases.map_or("none".to_owned(), |cases| shown(&cases))
        );
        Ok(ExitCode::SUCCESS)
    }
}

const INDENT: usize = 13;

fn rest(anatomy: &Anatomy) -> usize {
    let bytes = anatomy.bytes;
    bytes.whole.saturating_sub(bytes.code + bytes.data + bytes.custom)
}

fn report(name: &str, anatomy: &Anatomy, cases: Option<&str>) -> serde_json::Value {
    let imports = anatomy.requests.iter();
    let producers = anatomy.producers.iter();
    json!({
        "policy": name,
        "digest": anatomy.digest.to_string(),
        "world": format!("gatewright:policy/{}@1.0.0", anatomy.world),
        "exports": anatomy.exports,
        "imports": imports.map(|request| json!({"import": request.import, "given": request.given.to_string()})).collect::<Vec<_>>(),
        "bytes": anatomy.bytes.whole,
        "code_bytes": anatomy.bytes.code,
        "data_bytes": anatomy.bytes.data,
        "custom_bytes": anatomy.bytes.custom,
        "modules": anatomy.modules,
        "memories": anatomy.memories.0,
        "memory_bytes": anatomy.memories.1,
        "producers": producers.map(|(field, name, version)| json!({"field": field, "name": name, "version": version})).collect::<Vec<_>>(),
        "cases": cases,
    })
}
