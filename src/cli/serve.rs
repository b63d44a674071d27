//! `gatewright serve`: MCP servers behind the gate, for many clients over HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::audit::{AuditLog, Observer};
use gatewright::clock::{Clock, SystemClock};
use gatewright::config::ServeConfig;
use gatewright::door::http::{EndpointLimits, HttpDoor, Upstreams};
use gatewright::host::admin::Admin;
use gatewright::host::endpoints::{Common, EndpointSettings, Guarded, both_guarded, connects};
use gatewright::host::guards::{self, Loaded};
use gatewright::host::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::reloads::Reloads;
use super::{environment, guarded_by, place_of, stop_on_signals};

/// How long conversations may take to end beside what their calls may take.
const ENDED_WITHIN: Duration = Duration::from_secs(5);

#[derive(Args, Debug)]
#[command(after_help = "\
The file names the listener, an [[endpoint]] for each server, and the chains [[tools]] and [[reads]], which every
endpoint shares. Each path guards one server: a command, or the URL of an MCP server over HTTP.

Without a chain for either seam nothing is served; `policy = \"builtin:allow-all\"` allows everything openly.
Policy files are followed, and SIGHUP or `gatewright reload` reads the chains anew. SIGTERM and SIGINT refuse what
waits for a person, let calls finish, and end.

Exit codes: 0 a signal said to stop, 2 bad usage, configuration or policy, 1 anything else.")]
pub(super) struct Serve {
    /// The configuration file
    #[arg(long, value_name = "FILE", env = "GATEWRIGHT_CONFIG")]
    config: PathBuf,
    /// Compile policies anew, and keep nothing of it
    #[arg(long)]
    no_cache: bool,
}

impl Serve {
    pub(super) fn run(self) -> Result<ExitCode> {
        let config = ServeConfig::load(&self.config, self.no_cache, &environment)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let loaded = guards::load(config.guards.clone(), Arc::clone(&clock))?;
        let metrics = Metrics::new();
        let audit = AuditLog::open(&config.audit, Arc::clone(&clock))?
            .observed_by(Arc::clone(&metrics) as Arc<dyn Observer>);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(self.serve(config, loaded, Arc::new(audit), metrics, clock))?;
        // A host call of a policy may still run on a thread of the runtime; nobody waits for it.
        runtime.shutdown_background();
        Ok(ExitCode::SUCCESS)
    }

    async fn serve(
        self,
        config: ServeConfig,
        loaded: Loaded,
        audit: Arc<AuditLog>,
        metrics: Arc<Metrics>,
        clock: Arc<dyn Clock>,
    ) -> Result<()> {
        let Loaded { guards, reloader } = loaded;
        both_guarded(&guards)?;
        let (tasks, conversations, stop) = (TaskTracker::new(), TaskTracker::new(), CancellationToken::new());
        let drain_within = config.listen.drain_within;
        let common = Common {
            guards: guards.clone(),
            audit,
            clock: Arc::clone(&clock),
            shutdown: stop.clone(),
            tasks: conversations.clone(),
            drain_within,
        };
        let names: Vec<String> = config
            .endpoints
            .iter()
            .map(|one| one.host.server.clone())
            .collect();
        let paths: Vec<String> = config.endpoints.iter().map(|one| one.path.clone()).collect();
        let endpoints = guarded(config.endpoints, &common)?;
        let listener = bind(config.address, "the address of clients").await?;
        let scheme = if config.listen.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let door = Arc::new(HttpDoor::new(config.listen, endpoints, stop.clone()));
        stop_on_signals(&tasks, stop.clone())?;
        let (file, no_cache) = (self.config, self.no_cache);
        let reloads = Reloads {
            read: Box::new(move || {
                ServeConfig::load(&file, no_cache, &environment).map(|config| config.guards)
            }),
            server: names.join(", "),
            clock,
            reloader,
        };
        let server = reloads.server.clone();
        let board = reloads.start(&tasks, &stop)?;
        let drained = CancellationToken::new();
        if let Some((address, allow)) = config.admin {
            let listener = bind(address, "the admin address").await?;
            let address = listener.local_addr().context("cannot tell where it listens")?;
            tracing::info!("admin on http://{address}");
            let admin = Admin {
                server,
                board,
                metrics,
                door: Arc::clone(&door),
                allow,
                stop: stop.clone(),
            };
            tasks.spawn(admin.serve(listener, drained.clone()));
        }
        tracing::info!(
            tools = guarded_by(&guards.tools),
            reads = guarded_by(&guards.reads),
            audit = place_of(&config.audit),
            "gate is up"
        );
        let address = listener.local_addr().context("cannot tell where it listens")?;
        for path in paths {
            tracing::info!("listening on {scheme}://{address}{path}");
        }
        door.serve(listener).await;
        stop.cancel();
        drained.cancel();
        wait_for([tasks, conversations], drain_within + ENDED_WITHIN).await;
        Ok(())
    }
}

type Endpoints = Vec<(String, Arc<dyn Upstreams>, EndpointLimits)>;

/// The guarded server behind each path.
fn guarded(endpoints: Vec<EndpointSettings>, common: &Common) -> Result<Endpoints> {
    let one = |settings: EndpointSettings| {
        let connects = connects(&settings)?;
        let guarded = Guarded::new(settings.host, connects, common.clone())?;
        Ok((settings.path, guarded as Arc<_>, settings.limits))
    };
    endpoints.into_iter().map(one).collect()
}

async fn bind(address: SocketAddr, what: &str) -> Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}, {what}"))
}

async fn wait_for(trackers: [TaskTracker; 2], within: Duration) {
    let ended = async {
        for tracker in &trackers {
            tracker.close();
            tracker.wait().await;
        }
    };
    if timeout(within, ended).await.is_err() {
        tracing::warn!("not everything had ended when the gate did");
    }
}
