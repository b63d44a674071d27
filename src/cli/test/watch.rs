//! `gatewright test --watch`: again, whenever the policy or its cases change.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use gatewright::policy::cases::Format;
use gatewright::policy::limits::{PolicySettings, Source};
use gatewright::policy::reload::{PERIOD, QUIET, Watch};
use gatewright::vocabulary::Digest;
use tokio::time::timeout;

use super::Test;

/// Tests, and tests again after each change. Only an error at the first look at the arguments ends it.
#[expect(clippy::print_stderr, reason = "a run that fails is no end")]
pub(super) fn run(test: &Test, settings: PolicySettings) -> Result<ExitCode> {
    let files = files(test, &settings);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .context("cannot start the runtime")?;
    let mut watch = Watch::new();
    loop {
        watch.follow(&files);
        let before = state(&files);
        let done = test
            .tested(settings.clone())
            .and_then(|tested| test.once(&tested));
        if let Err(error) = done {
            eprintln!("gatewright: {error:#}");
        }
        eprintln!("waiting for a change");
        while state(&files) == before {
            runtime.block_on(heard(&watch));
        }
    }
}

/// Every file that may be of the test, there or not.
fn files(test: &Test, settings: &PolicySettings) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Source::File(path) = &settings.source {
        files.push(path.clone());
        if test.cases.is_none() {
            files.extend(
                [Format::Json, Format::Toml]
                    .map(|format| path.with_extension(format!("cases.{}", format.extension()))),
            );
        }
    }
    files.extend(test.cases.clone());
    files
}

/// What lies there now.
fn state(files: &[PathBuf]) -> Digest {
    let contents: Vec<Vec<u8>> = files
        .iter()
        .map(|file| std::fs::read(file).unwrap_or_default())
        .collect();
    Digest::of_parts(contents.iter().map(Vec::as_slice))
}

/// Waits until something was heard and it is quiet again, or for some seconds where nothing is.
async fn heard(watch: &Watch) {
    if timeout(PERIOD, watch.heard()).await.is_err() {
        return;
    }
    let longest: Duration = PERIOD;
    let quiet = async { while timeout(QUIET, watch.heard()).await.is_ok() {} };
    // A folder in which something is written all the time is looked at all the same.
    let _looked_at_anyway = timeout(longest, quiet).await;
}
