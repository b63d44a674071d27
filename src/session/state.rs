//! What a conversation remembers: its era, who calls, and what is in flight.
//!
//! INVARIANT: an id of the client is in flight at most once, and leaves together with its answer, so
//! each request is answered exactly once.

use std::collections::HashMap;

use tokio_util::sync::CancellationToken;

use super::Exchange;
use crate::gate::Caller;
use crate::gate::deliver::Ticket;
use crate::vocabulary::Principal;
use crate::wire::era::{ClientCapabilities, Era, RequestMeta};
use crate::wire::id::RequestId;
use crate::wire::list::Told;

/// Requests of one session that may be in flight at the same time.
pub(super) const IN_FLIGHT_MAX: usize = 4096;

/// Requests of the upstream that may wait for the client at the same time.
pub(super) const RELAYED_MAX: usize = 1024;

/// The era of a session is fixed by its opening and never by a single frame (ruling R27).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// Nothing has settled it yet.
    Undecided,
    /// `initialize` was sent and not answered yet: a session of the 2025 revisions, if it succeeds.
    Initializing,
    /// The session has an era.
    Settled(Era),
}

/// Where a request of the client is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// At the gate: judged or parked.
    Gate,
    /// Upstream, under this id.
    Upstream(u64),
}

/// A request of the client that has no answer yet.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) stage: Stage,
    /// Cancelled when the client takes the request back, and when it is answered.
    pub(super) over: CancellationToken,
    /// Cancelled only when the client takes it back.
    pub(super) withdrawn: CancellationToken,
    /// Cancelled when the stream that would carry its question has ended.
    pub(super) unreachable: CancellationToken,
    pub(super) method: String,
}

/// What is known of a forwarded request when its answer comes.
#[derive(Debug)]
pub(super) struct Forwarded {
    pub(super) exchange: Exchange,
    /// The token, raw, under which the upstream may report its progress.
    pub(super) progress_token: Option<String>,
    pub(super) ticket: Option<Ticket>,
    pub(super) opens: Option<Opening>,
    pub(super) subscribed: Subscribed,
    pub(super) since: tokio::time::Instant,
}

/// The lists of whose changes a request wants to hear (2026-07-28).
#[derive(Debug, Default)]
pub(super) struct Subscribed {
    pub(super) asked: Vec<Told>,
    /// Those for which this was promised. Nothing comes before the promise.
    pub(super) promised: Vec<Told>,
}

/// A conversation.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Whether the requests of many clients run here, whose progress tokens may be the same.
    pub(super) shared: bool,
    pub(super) opening: Opening,
    pub(super) revision: String,
    pub(super) client_info: String,
    /// The lists that the server has, in a session of the 2025 revisions.
    pub(super) lists: Vec<Told>,
    /// Lists of whose changes the client could not be told yet.
    pub(super) untold: Vec<Told>,
    pub(super) capabilities: ClientCapabilities,
    pub(super) in_flight: HashMap<Exchange, InFlight>,
    pub(super) forwarded: HashMap<u64, Forwarded>,
    /// Forwarded requests for lists that were answered, while policies say what of the answer is shown.
    pub(super) showing: HashMap<u64, Forwarded>,
    pub(super) relayed: HashMap<RequestId, String>,
    pub(super) next_relay_id: u64,
    /// Set when the session's start was refused: what every request is told.
    pub(super) start_refused: Option<String>,
    pub(super) start_checked: bool,
    /// Notifications, responses and late answers that were dropped.
    pub(super) dropped: u64,
}

impl Conversation {
    pub(super) fn new() -> Self {
        Self {
            shared: false,
            opening: Opening::Undecided,
            revision: String::new(),
            client_info: String::new(),
            lists: Vec::new(),
            untold: Vec::new(),
            capabilities: ClientCapabilities::default(),
            in_flight: HashMap::new(),
            forwarded: HashMap::new(),
            showing: HashMap::new(),
            relayed: HashMap::new(),
            next_relay_id: 1,
            start_refused: None,
            start_checked: false,
            dropped: 0,
        }
    }

    pub(super) fn shared() -> Self {
        let mut conversation = Self::new();
        conversation.shared = true;
        conversation.settle_stateless();
        conversation
    }

    /// Lets go of a forwarded request, wherever its answer is.
    pub(super) fn take_forwarded(&mut self, upstream_id: u64) -> Option<Forwarded> {
        let forwarded = self.forwarded.remove(&upstream_id);
        forwarded.or_else(|| self.showing.remove(&upstream_id))
    }

    /// The era in which frames are read now.
    pub(super) fn era(&self) -> Era {
        match self.opening {
            Opening::Settled(era) => era,
            Opening::Undecided | Opening::Initializing => Era::Handshake,
        }
    }

    /// Who calls, for a request with `meta` in the stateless era.
    pub(super) fn caller(
        &self,
        session: &str,
        meta: Option<RequestMeta>,
        principal: Option<Principal>,
    ) -> Caller {
        match meta {
            Some(meta) => Caller {
                session: String::new(),
                era: Era::Stateless,
                revision: meta.protocol_version,
                client_info: meta.client_info.unwrap_or_default(),
                capabilities: ClientCapabilities::parse(&meta.client_capabilities),
                principal,
            },
            None => Caller {
                session: session.to_owned(),
                era: Era::Handshake,
                revision: self.revision.clone(),
                client_info: self.client_info.clone(),
                capabilities: self.capabilities.clone(),
                principal,
            },
        }
    }
}
