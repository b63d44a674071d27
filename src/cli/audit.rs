//! `gatewright audit`: is the audit log as it was written?

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use gatewright::audit::read::verify;
use gatewright::config::default_audit_file;

use super::{EXIT_FAILED, environment};

/// Faults that are printed; a log of another kind would fill the terminal.
const FAULTS_SHOWN_MAX: usize = 20;

#[derive(Args, Debug)]
pub(super) struct Audit {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that no record was changed, removed, added or moved
    ///
    /// What was cut off at the end of a chain cannot be seen; keep the last hash elsewhere to see it.
    /// Exit codes: 0 good, 1 not.
    Verify {
        /// The log; the user's own when left out
        file: Option<PathBuf>,
    },
}

impl Audit {
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let Command::Verify { file } = self.command;
        let (path, log) = open(file)?;
        let report = verify(log).with_context(|| format!("cannot read `{}`", path.display()))?;
        for (line, what) in report.faults.iter().take(FAULTS_SHOWN_MAX) {
            println!("{}:{line}: {what}", path.display());
        }
        println!(
            "{} good records in {} chains, {} faults",
            report.good,
            report.chains,
            report.faults.len()
        );
        Ok(if report.faults.is_empty() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_FAILED)
        })
    }
}

/// The log that was named, or the user's own.
pub(super) fn open(file: Option<PathBuf>) -> Result<(PathBuf, BufReader<File>)> {
    let path = match file {
        Some(path) => path,
        None => default_audit_file(&environment)?,
    };
    let log = File::open(&path).with_context(|| {
        format!(
            "cannot read the audit log `{}`; name it with its path",
            path.display()
        )
    })?;
    Ok((path, BufReader::new(log)))
}
