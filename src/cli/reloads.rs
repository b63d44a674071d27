//! What a running gate does when its files change, at SIGHUP, and when `gatewright reload` says so.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use gatewright::clock::Clock;
use gatewright::config::{ConfigError, control_directory};
use gatewright::host::control::{Control, Reloaded};
use gatewright::host::guards::{self, ChainSettings, GuardSettings};
use gatewright::policy::reload::{Board, Reloader, Replace, ReplaceError, Watch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::environment;

/// Orders that may wait; whoever gives one waits for its end.
const ORDERS_MAX: usize = 4;

/// Reads the whole configuration anew and gives its chains.
pub(super) type ReadAnew = Box<dyn Fn() -> Result<GuardSettings, ConfigError> + Send + Sync>;

/// Everything that reloading needs.
pub(super) struct Reloads {
    pub(super) read: ReadAnew,
    /// How the server is called.
    pub(super) server: String,
    pub(super) clock: Arc<dyn Clock>,
    /// None when no seam has a chain.
    pub(super) reloader: Option<Reloader>,
}

impl Reloads {
    /// Starts everything, and gives what shows the status; it ends with `stop`. Must be called in a runtime.
    pub(super) fn start(self, tasks: &TaskTracker, stop: &CancellationToken) -> Result<Board> {
        let hangups = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
        let (to_reload, reloads) = mpsc::channel(ORDERS_MAX);
        let (board, orders) = match self.reloader {
            None => (Board::default(), None),
            Some(reloader) => {
                let (to_reloader, orders) = mpsc::channel(ORDERS_MAX);
                let board = reloader.board();
                tasks.spawn(reloader.run(Watch::new(), orders, stop.clone()));
                (board, Some(to_reloader))
            }
        };
        if let Some(control) = open_control() {
            tasks.spawn(control.serve(self.server, board.clone(), to_reload.clone(), stop.clone()));
        }
        let anew = Anew {
            read: self.read,
            clock: self.clock,
            orders,
            board: board.clone(),
        };
        // The sender is held here, so that without a control socket the channel stays open.
        tasks.spawn(anew.run(hangups, (to_reload, reloads), stop.clone()));
        Ok(board)
    }
}

/// A gate that cannot be asked for its status still guards.
fn open_control() -> Option<Control> {
    let directory = control_directory(&environment)?;
    Control::open(&directory)
        .inspect_err(|error| {
            let directory = directory.display();
            tracing::warn!("`gatewright status` cannot ask this gate: no socket in `{directory}`: {error}");
        })
        .ok()
}

/// Reads the whole configuration anew.
struct Anew {
    read: ReadAnew,
    clock: Arc<dyn Clock>,
    orders: Option<mpsc::Sender<Replace>>,
    board: Board,
}

impl Anew {
    async fn run(
        self,
        mut hangups: Signal,
        (_open, mut reloads): (mpsc::Sender<Reloaded>, mpsc::Receiver<Reloaded>),
        stop: CancellationToken,
    ) {
        loop {
            let asked = tokio::select! {
                // The stop comes first, so that nothing is loaded after it.
                biased;
                () = stop.cancelled() => return,
                Some(reloaded) = reloads.recv() => Some(reloaded),
                Some(()) = hangups.recv() => None,
            };
            let done = self.reload().await.map_err(|error| format!("{error:#}"));
            if let Err(reason) = &done {
                self.board.refuse(reason.clone(), self.clock.now_unix_ms());
            }
            if let Some(asked) = asked {
                let _client_is_gone = asked.send(done);
            }
        }
    }

    /// All of it, or nothing. Only the chains change: everything else of the configuration is checked, and
    /// needs a restart.
    async fn reload(&self) -> Result<()> {
        let guards = (self.read)()?;
        match &self.orders {
            Some(orders) => guards::replace(orders, guards, Arc::clone(&self.clock)).await?,
            None if has_chain(&guards) => return Err(ReplaceError::Seams.into()),
            None => {}
        }
        Ok(())
    }
}

fn has_chain(guards: &GuardSettings) -> bool {
    !matches!(
        (&guards.tools, &guards.reads),
        (ChainSettings::Unset, ChainSettings::Unset)
    )
}
