//! `gatewright bench`: how long a policy takes.

use std::num::NonZeroUsize;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::config;
use gatewright::decision::Decision;
use gatewright::host::guards::GuardError;
use gatewright::policy::bench::{self, Effort};
use gatewright::policy::cases::ContextFile;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::load::Policy;

use super::{cache, shown};

#[derive(Args, Debug)]
#[command(after_help = "\
Judges one call again and again, each time in a fresh sandbox. Times are of a whole judgement; for good
figures nothing else should run. Exit codes: 0 measured, 2 bad usage or no policy.")]
pub(super) struct Bench {
    /// A .wasm or .wat file or builtin:NAME, optionally with =CONFIG.json
    policy: String,
    /// The tool's name, or on the reads seam the method
    #[arg(default_value = "read_file")]
    name: String,
    /// The arguments: one JSON object
    #[arg(default_value = "{\"path\":\"/srv/share/notes/2026/december/meeting.md\"}")]
    args: String,
    /// Judgements of each thread
    #[arg(long, default_value = "10000")]
    calls: NonZeroUsize,
    /// Threads that judge at the same time
    #[arg(long, default_value = "1")]
    threads: NonZeroUsize,
}

impl Bench {
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let args_json = super::decide::arguments(self.args)?;
        let settings = config::policy("bench", &self.policy)?;
        let engine = Engine::new(&EngineSettings::default()).map_err(GuardError::from)?;
        let cold = Policy::load(&engine, settings.clone())?;
        println!("{}", shown(cold.name()));
        println!("  engine              {engine}");
        println!(
            "  configuration       {}",
            shown(&cold.facts().configured.to_string())
        );
        println!(
            "  load, compiled      {:.1} ms",
            cold.facts().load_time.as_secs_f64() * 1e3
        );
        if let Some(cache) = cache() {
            // The first of the two may be the one that fills the cache.
            Policy::load_with(&engine, settings.clone(), Some(&cache))?;
            let cached = Policy::load_with(&engine, settings, Some(&cache))?;
            println!(
                "  load, from cache    {:.1} ms",
                cached.facts().load_time.as_secs_f64() * 1e3
            );
        }
        println!("  memory of a sandbox {} bytes", cold.facts().memory_bytes);
        let context = ContextFile::default();
        let effort = Effort {
            threads: self.threads,
            calls: self.calls,
        };
        let report = bench::run(&cold, &context.call(&self.name, &args_json), effort)
            .context("cannot start the runtime")?;
        let micros = |of_a_thousand| report.within(of_a_thousand).as_secs_f64() * 1e6;
        let answer = match &report.answer {
            Ok(Decision::Allow) => "allow".to_owned(),
            Ok(Decision::Ask(_)) => "ask".to_owned(),
            Ok(Decision::Deny(_)) => "deny".to_owned(),
            Err((fault, _)) => fault.code().as_str().to_owned(),
        };
        println!(
            "  judgements          {} on {} threads, answer {answer}, {} answered otherwise",
            report.calls(),
            self.threads,
            report.others
        );
        println!(
            "  time, µs            p50 {:.1}  p90 {:.1}  p99 {:.1}  max {:.1}",
            micros(500),
            micros(900),
            micros(990),
            micros(1000)
        );
        println!("  throughput          {:.0} a second", report.per_second);
        Ok(ExitCode::SUCCESS)
    }
}
