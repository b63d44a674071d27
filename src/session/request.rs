//! The way of one request through the session: to the gate, upstream, and to its one answer.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::client::START_REFUSED;
use super::state::{Forwarded, InFlight, Opening, Stage};
use super::{CallDesk, Session, Turn};
use crate::audit::{OutcomeRecord, Record};
use crate::decision::Seam;
use crate::gate::deliver::Ticket;
use crate::gate::permit::{Cleared, Relay, Ungated};
use crate::gate::sensitive::declares_itself_destructive;
use crate::gate::{Attempt, Caller, Passed};
use crate::upstream::UpstreamFault;
use crate::wire::era::{Era, RequestMeta};
use crate::wire::frame::Request;
use crate::wire::id::RequestId;
use crate::wire::method::{Lifecycle, Route, route};
use crate::wire::shape::{Judged, ShapeError};
use crate::wire::{object, refusal};

/// The one request that stays open until the upstream ends it.
const LISTEN: &str = "subscriptions/listen";

impl Session {
    /// A request that meets no seam. The opening of a session is settled by its answer.
    pub(super) async fn lifecycle(
        self: &Arc<Self>,
        id: &RequestId,
        ungated: Ungated,
        lifecycle: Lifecycle,
        flight: InFlight,
    ) {
        let opens = match lifecycle {
            Lifecycle::Initialize => Some(Opening::Settled(Era::Handshake)),
            Lifecycle::Discover => Some(Opening::Settled(Era::Stateless)),
            Lifecycle::Ping | Lifecycle::SetLevel => None,
        };
        let (turn, over) = Turn::new();
        let (session, id) = (Arc::clone(self), id.clone());
        self.tasks.spawn(async move {
            let forwarded = Forwarded {
                id,
                ticket: None,
                opens,
                since: Instant::now(),
            };
            session
                .forward(Cleared::Ungated(ungated), forwarded, flight, turn)
                .await;
        });
        let _passed_or_dropped = over.await;
    }

    /// A request that meets a seam. Returns when it was forwarded, refused or parked.
    pub(super) async fn gated(
        self: &Arc<Self>,
        request: Request,
        judged: Result<Judged, ShapeError>,
        meta: Option<RequestMeta>,
        flight: InFlight,
    ) {
        let arrived = Instant::now();
        let listed = match route(request.method()) {
            Route::Gated { listed, .. } => listed,
            Route::Lifecycle(_) => false,
        };
        let judged = match judged {
            Ok(judged) => judged,
            Err(ShapeError { code, detail }) => {
                return self.answer_error(request.id(), code, &detail, None).await;
            }
        };
        let caller = self.state().caller(&self.id, meta);
        if caller.era == Era::Handshake
            && (judged.request_state.is_some() || judged.input_responses.is_some())
        {
            let message = "`requestState` and `inputResponses` belong to revision 2026-07-28";
            return self.answer_error(request.id(), -32602, message, None).await;
        }
        let (turn, over) = Turn::new();
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            session
                .call(request, judged, listed, caller, arrived, flight, turn)
                .await;
        });
        let _passed_or_dropped = over.await;
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, taken apart right here"
    )]
    async fn call(
        self: Arc<Self>,
        request: Request,
        judged: Judged,
        listed: bool,
        caller: Caller,
        arrived: Instant,
        flight: InFlight,
        turn: Turn,
    ) {
        let id = request.id().clone();
        self.check_start(caller.era).await;
        let refused = self.state().start_refused.clone();
        if let Some(why) = refused {
            return self.answer_error(&id, START_REFUSED, &why, None).await;
        }
        let tool_json = match self.tool_json(&judged, caller.era).await {
            Ok(tool_json) => tool_json,
            Err(fault) => return self.answer_fault(&id, &fault).await,
        };
        let attempt = Attempt {
            request,
            judged,
            listed,
            tool_json,
            arrived,
        };
        let desk = CallDesk {
            session: &self,
            turn: &turn,
        };
        let era = caller.era;
        match self.gate.pass(attempt, &caller, &desk, &flight.withdrawn).await {
            Passed::Run(permit, ticket) => {
                let forwarded = Forwarded {
                    id,
                    ticket: Some(*ticket),
                    opens: None,
                    since: Instant::now(),
                };
                self.forward(Cleared::Permit(permit), forwarded, flight, turn)
                    .await;
            }
            Passed::Refused(refused) => self.answer(&id, refusal::refusal(&id, &refused, era)).await,
            Passed::InputRequired(result) => self.answer(&id, refusal::result(&id, &result)).await,
            Passed::Invalid { code, message } => self.answer_error(&id, code, &message, None).await,
            Passed::Withdrawn => self.forget(&id, None),
        }
    }

    /// The tool as the upstream lists it; empty when it does not, and on reads.
    async fn tool_json(&self, judged: &Judged, era: Era) -> Result<String, UpstreamFault> {
        match judged.seam {
            Seam::Reads => Ok(String::new()),
            Seam::Tools => Ok(self
                .tools
                .find(&judged.name, &self.upstream, era)
                .await?
                .unwrap_or_default()),
        }
    }

    /// Without a tools chain, a session whose upstream lists a destructive tool does not start (ruling R14).
    pub(super) async fn check_start(&self, era: Era) {
        if !self.gate.tools_unset() || std::mem::replace(&mut self.state().start_checked, true) {
            return;
        }
        let list = match self.tools.all(&self.upstream, era).await {
            Ok(list) => list,
            // Each call is looked at again, so nothing slips through.
            Err(fault) => {
                return tracing::warn!(%fault, "the server's tools could not be listed at the start");
            }
        };
        let mut destructive: Vec<&str> = list
            .iter()
            .filter(|(_, tool)| declares_itself_destructive(tool))
            .map(|(name, _)| name.as_str())
            .collect();
        destructive.sort_unstable();
        if let Some(first) = destructive.first() {
            let why = format!(
                "the server is not served: {} of its tools declare themselves destructive (first: {}) and no tools \
                 policy is set; start the gate with one, for example `--tools builtin:allowlist=rules.json`, or \
                 choose openly to allow everything with `--tools builtin:allow-all`",
                destructive.len(),
                object::quote(first),
            );
            tracing::error!("{why}");
            self.state().start_refused = Some(why);
        }
    }

    /// Forwards, then waits for the answer or for the end of the upstream's time.
    async fn forward(&self, cleared: Cleared, forwarded: Forwarded, flight: InFlight, turn: Turn) {
        let upstream_id = self.upstream.reserve_id();
        let id = forwarded.id.clone();
        {
            let mut state = self.state();
            if flight.withdrawn.is_cancelled() {
                drop(state);
                self.record_outcome(&forwarded, "cancelled", None);
                return self.forget(&id, None);
            }
            if let Some(flight) = state.in_flight.get_mut(&id) {
                flight.stage = Stage::Upstream(upstream_id);
            }
            state.forwarded.insert(upstream_id, forwarded);
        }
        if let Err(fault) = self.upstream.forward(cleared, upstream_id).await {
            return self.failed(upstream_id, &fault).await;
        }
        turn.pass();
        if flight.method == LISTEN {
            return;
        }
        if timeout(self.settings.upstream_timeout, flight.over.cancelled())
            .await
            .is_err()
        {
            let waited_ms = u64::try_from(self.settings.upstream_timeout.as_millis()).unwrap_or(u64::MAX);
            let cancel = Relay::own_cancellation(upstream_id, "the gate's time for this request is over");
            let _upstream_is_gone = self.upstream.relay(cancel).await;
            self.failed(upstream_id, &UpstreamFault::Timeout(waited_ms)).await;
        }
    }

    /// Ends a forwarded request that has no answer.
    pub(super) async fn failed(&self, upstream_id: u64, fault: &UpstreamFault) {
        let forwarded = self.state().forwarded.remove(&upstream_id);
        let Some(forwarded) = forwarded else { return };
        if forwarded.opens == Some(Opening::Settled(Era::Handshake)) {
            self.state().opening = Opening::Undecided;
        }
        tracing::warn!(code = fault.code(), %fault, "a forwarded request has no answer");
        self.record_outcome(&forwarded, fault.code(), None);
        self.answer_fault(&forwarded.id, fault).await;
    }

    async fn answer_fault(&self, id: &RequestId, fault: &UpstreamFault) {
        let message = match fault {
            UpstreamFault::Exited(_) => "the upstream server has ended; restart it",
            UpstreamFault::Timeout(_) => "the upstream server did not answer in time",
            UpstreamFault::Garbage(_) => "the upstream server's answer is malformed",
        };
        let data = format!(r#"{{"code":"{}"}}"#, fault.code());
        self.answer_error(id, -32603, message, Some(&data)).await;
    }

    pub(super) async fn answer_error(&self, id: &RequestId, code: i64, message: &str, data: Option<&str>) {
        let revision = self.state().revision.clone();
        self.answer(id, refusal::error(Some(id), &revision, code, message, data))
            .await;
    }

    /// Answers a request that is in flight, once: whoever comes second finds it gone and says nothing.
    pub(super) async fn answer(&self, id: &RequestId, line: Bytes) {
        let flight = self.state().in_flight.remove(id);
        match flight {
            Some(flight) => {
                self.to_client(line).await;
                flight.over.cancel();
            }
            None => self.state().dropped += 1,
        }
    }

    /// Lets go of a request that the client took back; it gets no answer.
    pub(super) fn forget(&self, id: &RequestId, upstream_id: Option<u64>) {
        let (flight, forwarded) = {
            let mut state = self.state();
            (
                state.in_flight.remove(id),
                upstream_id.and_then(|upstream_id| state.forwarded.remove(&upstream_id)),
            )
        };
        if let Some(flight) = flight {
            flight.over.cancel();
        }
        if let Some(forwarded) = forwarded {
            self.record_outcome(&forwarded, "cancelled", None);
        }
    }

    /// Records how a forwarded request ended. The effect has happened, so a failure is only logged.
    pub(super) fn record_outcome(&self, forwarded: &Forwarded, outcome: &str, error_code: Option<&str>) {
        let Some(decision_id) = forwarded.ticket.as_ref().map(Ticket::decision_id) else {
            return;
        };
        let record = Record::Outcome(OutcomeRecord {
            decision_id,
            session: &self.id,
            outcome,
            error_code,
            took_ms: u64::try_from(forwarded.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        if let Err(error) = self.audit.append(&record) {
            tracing::error!(decision.id = %decision_id, %error, "the outcome of a forwarded call cannot be recorded");
        }
    }
}
