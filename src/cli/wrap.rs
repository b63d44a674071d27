//! `gatewright wrap`: an MCP server as a child process, behind the gate.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::audit::AuditLog;
use gatewright::clock::{Clock, SystemClock};
use gatewright::config::{Config, Flags};
use gatewright::door::stdio;
use gatewright::host::Host;
use gatewright::host::guards::{self, Loaded};
use gatewright::seam::Guards;
use gatewright::session::Ended;
use gatewright::upstream::child::{self, ChildSettings};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::reloads::Reloads;
use super::{EXIT_USAGE, Usage, environment, guarded_by, place_of, stop_on_signals};

/// How long the last lines may take to be written when the session is over: a client that reads no more is gone.
const WRITTEN_WITHIN: Duration = Duration::from_millis(500);

#[derive(Args, Debug)]
#[command(after_help = "\
A POLICY is a file (.wasm or .wat) or one of builtin:allowlist, builtin:paths, builtin:allow-all and
builtin:deny-all, optionally with its configuration: POLICY=RULES.json or POLICY='{\"allow\":[\"read_*\"]}'.
Several make one chain, in order; flags replace the chain of the file.

Without --tools, tools run unjudged, but a server that lists a destructive tool is not served.
Without --reads, reads run unjudged.

The server gets a minimal environment (PATH, HOME, locale, terminal) and what --env names.
Policy files are followed: a new one replaces the old one between two judgements, once it loads and passes
its own NAME.cases.json; otherwise the old one stays. SIGHUP or `gatewright reload` reads everything anew.
`gatewright status` shows what is in force. Logs go to standard error; GATEWRIGHT_LOG=debug shows more.

Exit codes: 0 the client has gone or a signal said to stop, 2 bad usage, configuration or policy, 1 anything else.")]
pub(super) struct Wrap {
    /// A policy that judges tools/call
    #[arg(long, value_name = "POLICY")]
    tools: Vec<String>,
    /// A policy that judges everything else: resources, prompts, lists
    #[arg(long, value_name = "POLICY")]
    reads: Vec<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE", env = "GATEWRIGHT_CONFIG")]
    config: Option<PathBuf>,
    /// A variable for the server: NAME passes it on, NAME=VALUE sets it
    #[arg(long, value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Where audit records go: a file, `stderr` or `off`
    #[arg(long, value_name = "FILE", env = "GATEWRIGHT_AUDIT")]
    audit: Option<String>,
    /// What questions, records and policies call the server
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Compile policies anew, and keep nothing of it
    #[arg(long)]
    no_cache: bool,
    /// The command that starts the server
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

impl Wrap {
    pub(super) fn run(self) -> Result<ExitCode> {
        let (program, arguments) = self
            .command
            .split_first()
            .ok_or_else(|| Usage("there is no command after `--`".to_owned()))?;
        let flags = Flags {
            config: self.config,
            tools: self.tools,
            reads: self.reads,
            env: self.env,
            audit: self.audit,
            name: self.name,
            no_cache: self.no_cache,
        };
        let config = Config::load(&flags, Path::new(program), &environment)?;
        let child = ChildSettings {
            program: program.clone(),
            arguments: arguments.to_vec(),
            environment: config.environment.clone(),
        };
        // Everything that can be wrong with the gate is found before the server starts.
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let Loaded { guards, reloader } = guards::load(config.guards.clone(), Arc::clone(&clock))?;
        let audit = Arc::new(AuditLog::open(&config.audit, Arc::clone(&clock))?);
        told(&config, &guards);
        let door = stdio::open(config.host.scan.frame_bytes_max)
            .context("cannot read standard input on a thread of its own")?;
        let reloads = Reloads {
            read: {
                let program = PathBuf::from(program);
                Box::new(move || Config::load(&flags, &program, &environment).map(|config| config.guards))
            },
            server: config.host.server.clone(),
            clock: Arc::clone(&clock),
            reloader,
        };
        let host = Host::new(guards, audit, clock, config.host)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let ended = runtime.block_on(serve(&host, door, &child, reloads))?;
        // A host call of a policy may still run on a thread of the runtime; nobody waits for it.
        runtime.shutdown_background();
        Ok(match ended {
            Ended::Closed => ExitCode::SUCCESS,
            Ended::StartRefused(_) => ExitCode::from(EXIT_USAGE),
        })
    }
}

async fn serve(host: &Host, door: stdio::Stdio, child: &ChildSettings, reloads: Reloads) -> Result<Ended> {
    let (tasks, stop) = (TaskTracker::new(), host.shutdown());
    stop_on_signals(&tasks, stop.clone())?;
    let _status = reloads.start(&tasks, &stop)?;
    let (link, running) = child::spawn(child)?;
    let ended = host.serve(door.client, link).await;
    stop.cancel();
    running.end().await;
    tasks.close();
    let both = async {
        let _session_is_gone = door.written.await;
        tasks.wait().await;
    };
    if timeout(WRITTEN_WITHIN, both).await.is_err() {
        tracing::warn!("the client did not read its last lines, or a policy was still being compiled");
    }
    Ok(ended?)
}

/// One line for the operator: what guards what, and where the records are.
fn told(config: &Config, guards: &Guards) {
    tracing::info!(
        server = %config.host.server.escape_debug(),
        tools = guarded_by(&guards.tools),
        reads = guarded_by(&guards.reads),
        audit = place_of(&config.audit),
        "gate is up"
    );
}
