//! The host: wires the parts together and owns their end.

#[cfg(feature = "http")]
pub mod admin;
pub mod control;
#[cfg(feature = "http")]
pub mod endpoints;
pub mod guards;
#[cfg(feature = "http")]
pub mod metrics;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::audit::AuditLog;
use crate::clock::{Clock, RandomUnavailable};
use crate::gate::ask::AskSettings;
use crate::gate::server_requests::ServerRequests;
use crate::gate::{Gate, GateSettings};
use crate::seam::Guards;
use crate::session::{ClientLink, DRAIN_WITHIN, Ended, OneStream, Parts, Session, SessionSettings};
use crate::upstream::{Link, Upstream};
use crate::wire::scan::ScanLimits;

/// Everything about one guarded upstream that is not a part of its own.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The upstream's configured name: policies, questions and records carry it.
    pub server: String,
    /// The limits of asking.
    pub asks: AskSettings,
    /// What the upstream may ask the client for.
    pub server_requests: ServerRequests,
    /// Limits of one frame of the client.
    pub scan: ScanLimits,
    /// The longest line taken from the upstream, in bytes.
    pub upstream_line_bytes_max: usize,
    /// How long the upstream may take to answer a forwarded request.
    pub upstream_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: "upstream".to_owned(),
            asks: AskSettings::default(),
            server_requests: ServerRequests::default(),
            scan: ScanLimits::default(),
            upstream_line_bytes_max: 256 * 1024 * 1024,
            upstream_timeout: Duration::from_secs(600),
        }
    }
}

/// A gate in front of one upstream, for clients on stdio.
#[derive(Debug)]
pub struct Host {
    gate: Arc<Gate>,
    audit: Arc<AuditLog>,
    settings: Settings,
    shutdown: CancellationToken,
}

impl Host {
    /// A host that serves nobody yet.
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub fn new(
        guards: Guards,
        audit: Arc<AuditLog>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Result<Self, RandomUnavailable> {
        let gate_settings = GateSettings {
            guards,
            server: settings.server.clone(),
            transport: "stdio",
            asks: settings.asks,
            server_requests: settings.server_requests,
        };
        let gate = Arc::new(Gate::new(gate_settings, Arc::clone(&audit), clock)?);
        Ok(Self {
            gate,
            audit,
            settings,
            shutdown: CancellationToken::new(),
        })
    }

    /// Stops everything that runs when cancelled: parked calls are refused, running ones may finish for a while.
    #[must_use]
    pub fn shutdown(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Serves one client until it has gone or the host stops. The upstream is told that nothing more will
    /// come; ending it is the caller's part.
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub async fn serve(&self, client: ClientLink, link: Link) -> Result<Ended, RandomUnavailable> {
        let ClientLink {
            incoming,
            outgoing,
            gone,
        } = client;
        let (upstream, arrivals) = Upstream::connect(link, self.settings.upstream_line_bytes_max);
        let session = Session::new(Parts {
            gate: Arc::clone(&self.gate),
            audit: Arc::clone(&self.audit),
            upstream: Arc::clone(&upstream),
            client: Arc::new(OneStream(outgoing)),
            settings: SessionSettings {
                scan: self.settings.scan.clone(),
                upstream_timeout: self.settings.upstream_timeout,
                drain_within: DRAIN_WITHIN,
            },
            shutdown: self.shutdown.clone(),
        })?;
        let ended = session.run(incoming, arrivals, gone).await;
        upstream.close();
        Ok(ended)
    }
}
