//! Policies that follow their files: the shared cases, run on real files under paused time, and swaps under load.
//!
//! The watching loop only decides when to look; these tests look themselves, at the moments at which it
//! would, so that no real time passes.

mod cases;
mod counts;
mod files;
mod hangup;
mod lists;
mod load;

use std::path::Path;
use std::sync::Arc;

use gatewright::clock::{Clock, RandomUnavailable, SystemClock};
use gatewright::decision::{Conclusion, Seam};
use gatewright::host::metrics::Metrics;
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Limits, PolicySettings, Source};
use gatewright::policy::live::LiveChain;
use gatewright::policy::load::LoadError;
use gatewright::policy::reload::{Loader, Next, PolicyStatus, Proof, QUIET, Reloader};
use gatewright::seam::{Authorizer as _, Call, Context};
use tokio::time::Instant;

use crate::support::policies::settings;

/// Wall time that follows the paused time.
#[derive(Debug)]
struct PausedClock {
    start: Instant,
}

impl Clock for PausedClock {
    fn now_unix_ms(&self) -> u64 {
        1_796_000_000_000 + u64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        SystemClock.random(bytes)
    }
}

fn loader(proof: Proof) -> Loader {
    Loader {
        engine: Engine::new(&EngineSettings::default()).unwrap(),
        cache: None,
        clock: Arc::new(PausedClock {
            start: Instant::now(),
        }),
        proof,
    }
}

/// The policy in a file. Its deadline is real time, and these tests keep every core busy.
fn file_settings(path: &Path) -> PolicySettings {
    let settings = settings(&path.display().to_string(), Vec::new());
    PolicySettings {
        source: Source::File(path.to_owned()),
        limits: Limits {
            deadline: std::time::Duration::from_secs(30),
            // A configuration that never ends costs a test this long.
            configure_deadline: std::time::Duration::from_millis(300),
            ..settings.limits.clone()
        },
        ..settings
    }
}

/// A chain of files, and what follows them.
struct Followed {
    reloader: Reloader,
    chain: Arc<LiveChain>,
}

impl Followed {
    fn start(paths: &[&Path]) -> Result<Self, LoadError> {
        Self::start_with(Proof::Loads, paths)
    }

    fn start_with(proof: Proof, paths: &[&Path]) -> Result<Self, LoadError> {
        let mut reloader = Reloader::new(loader(proof));
        let policies = paths.iter().map(|path| file_settings(path)).collect();
        let chain = reloader.add(Seam::Tools, policies)?;
        Ok(Self { reloader, chain })
    }

    /// What the loop does when it hears something, or its period is over.
    async fn settle(&mut self) {
        while self.reloader.check() == Next::Soon {
            tokio::time::advance(QUIET).await;
        }
    }

    /// Time passes, and the loop has looked at both its ends.
    async fn pass(&mut self, ms: u64) {
        self.reloader.check();
        tokio::time::advance(std::time::Duration::from_millis(ms)).await;
        self.reloader.check();
    }

    async fn served(&self) -> Conclusion {
        self.chain.judge(&call()).await.conclusion
    }

    /// What Prometheus sees of the only policy: how often a new one came into force, and how often not.
    fn counted(&self) -> (u64, u64) {
        let text = Metrics::new().text(&self.reloader.board().read(), &[]);
        let count = |result| {
            let labels = format!("result=\"{result}\"");
            let name = "gatewright_policy_reloads_total{seam=\"tools\"";
            let fits = |line: &&str| line.starts_with(name) && line.contains(&labels);
            let line = text
                .lines()
                .find(fits)
                .unwrap_or_else(|| panic!("{result} in {text}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        (count("ok"), count("failed"))
    }

    fn status(&self) -> PolicyStatus {
        self.reloader.board().read().policies[0].clone()
    }
}

fn call() -> Call<'static> {
    Call {
        seam: Seam::Tools,
        name: "deploy",
        args_json: "{}",
        context: Context {
            server: "files",
            session: "s1",
            transport: "stdio",
            protocol_version: "2025-11-25",
            client_json: "{}",
            principal: None,
            claims_json: "{}",
            tool_json: "",
            extra_json: "{}",
            now_unix_ms: 1_800_000_000_000,
        },
    }
}
