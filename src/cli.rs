//! The command line: one file for each command.
//!
//! The only place with anyhow, printing and exit codes. Standard output of `wrap` belongs to the
//! protocol; everything a person reads goes to standard error.

mod audit;
mod bench;
mod check;
mod decide;
mod demo;
mod explain;
mod inspect;
mod member;
mod reloads;
#[cfg(feature = "http")]
mod serve;
mod status;
mod test;
mod wrap;

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use gatewright::audit::{AuditSettings, Sink};
use gatewright::config::default_cache_directory;
use gatewright::policy::cache::Cache;
use gatewright::seam::Guard;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing_subscriber::EnvFilter;

/// Bad usage, a bad configuration, or a policy that cannot be loaded.
const EXIT_USAGE: u8 = 2;

/// Anything else that went wrong.
const EXIT_FAILED: u8 = 1;

/// Chooses what is logged, in the syntax of `tracing_subscriber::EnvFilter`.
const LOG_VARIABLE: &str = "GATEWRIGHT_LOG";

/// What is logged unless the variable says otherwise.
const LOG_DEFAULT: &str = "warn,gatewright=info";

/// The same for the demonstration, which tells itself what goes wrong.
const LOG_DEFAULT_OF_DEMO: &str = "error";

/// Judges every tool call and every read of an MCP client with WebAssembly policies, before it reaches the server.
#[derive(Debug, Parser)]
#[command(name = "gatewright", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an MCP server behind policies, on standard input and output
    Wrap(wrap::Wrap),
    /// Run MCP servers behind policies, for many clients over HTTP
    #[cfg(feature = "http")]
    Serve(serve::Serve),
    /// Show the gate at work: a small server, a policy, and a client that is allowed, asked and refused
    Demo(demo::Demo),
    /// Say whether a file is a policy, what it asks for, and what of it it is given
    Check(check::Check),
    /// Show what is in a policy's file: world, imports and what they are given, size, producers, digest
    Inspect(inspect::Inspect),
    /// Let a policy judge its cases
    Test(test::Test),
    /// Let one policy decide one call, and print the decision as JSON
    Decide(decide::Decide),
    /// Measure how long a policy takes
    Bench(bench::Bench),
    /// Show what running gates have in force, and what they refused
    Status(status::Status),
    /// Have running gates read their configuration and policies anew
    Reload(status::Reload),
    /// Print why a request was allowed, asked about or refused
    Explain(explain::Explain),
    /// Look after the audit log
    Audit(audit::Audit),
}

/// Runs the command that the arguments name.
#[expect(clippy::print_stderr, reason = "the process has one last thing to say")]
pub(crate) fn run() -> ExitCode {
    let arguments = Arguments::parse();
    log_to_stderr(match arguments.command {
        Command::Demo(_) => LOG_DEFAULT_OF_DEMO,
        #[cfg(feature = "http")]
        Command::Serve(_) => LOG_DEFAULT,
        Command::Wrap(_)
        | Command::Check(_)
        | Command::Inspect(_)
        | Command::Test(_)
        | Command::Decide(_)
        | Command::Bench(_)
        | Command::Status(_)
        | Command::Reload(_)
        | Command::Explain(_)
        | Command::Audit(_) => LOG_DEFAULT,
    });
    let done = match arguments.command {
        Command::Wrap(wrap) => wrap.run(),
        #[cfg(feature = "http")]
        Command::Serve(serve) => serve.run(),
        Command::Demo(demo) => demo.run(),
        Command::Check(check) => check.run(),
        Command::Inspect(inspect) => inspect.run(),
        Command::Test(test) => test.run(),
        Command::Decide(decide) => decide.run(),
        Command::Bench(bench) => bench.run(),
        Command::Status(status) => status.run(),
        Command::Reload(reload) => reload.run(),
        Command::Explain(explain) => explain.run(),
        Command::Audit(audit) => audit.run(),
    };
    done.unwrap_or_else(|error| {
        eprintln!("gatewright: {error:#}");
        ExitCode::from(exit_code(&error))
    })
}

/// What was configured wrongly is told apart from what went wrong.
fn exit_code(error: &anyhow::Error) -> u8 {
    use gatewright::audit::AuditError;
    use gatewright::config::ConfigError;
    use gatewright::host::guards::GuardError;
    use gatewright::policy::load::LoadError;
    let usage = error.is::<ConfigError>()
        || error.is::<GuardError>()
        || error.is::<LoadError>()
        || error.is::<AuditError>();
    #[cfg(feature = "http")]
    let usage = usage || error.is::<gatewright::host::endpoints::BootError>();
    if usage || error.is::<Usage>() {
        EXIT_USAGE
    } else {
        EXIT_FAILED
    }
}

/// An argument that cannot be used, found after the arguments were parsed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

fn log_to_stderr(otherwise: &str) {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_unset| EnvFilter::new(otherwise));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .init();
}

/// A variable of the environment, as `config` looks it up.
fn environment(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Everything but printable ASCII as an escape, so that a terminal shows it and does not obey it.
fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c == ' ' || c.is_ascii_graphic() {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    shown
}

/// The user's cache of compiled policies, where there can be one.
fn cache() -> Option<Cache> {
    let directory = default_cache_directory(&environment)?;
    Cache::open(&directory)
        .inspect_err(|error| tracing::warn!(%error, "policies are compiled anew"))
        .ok()
}

/// SIGTERM and SIGINT stop the host: parked calls are refused, running ones may finish for a while.
fn stop_on_signals(tasks: &TaskTracker, stop: CancellationToken) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tasks.spawn(async move {
        tokio::select! {
            // Order does not matter: each of them means the end.
            () = stop.cancelled() => return,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        stop.cancel();
    });
    Ok(())
}

/// What guards a seam, for the operator.
fn guarded_by(guard: &Guard) -> String {
    match guard {
        Guard::Unset => "unjudged".to_owned(),
        Guard::Chain(chain) => format!("chain {}", chain.revision()),
    }
}

/// Where records go, for the operator.
fn place_of(audit: &AuditSettings) -> String {
    match &audit.sink {
        Sink::File(path) => path.display().to_string(),
        Sink::Stderr => "stderr".to_owned(),
        Sink::Off => "off".to_owned(),
    }
}
