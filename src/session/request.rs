//! The way of one request through the session: to the gate, upstream, and to its one answer.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::client::START_REFUSED;
use super::state::{Forwarded, InFlight, Opening, Stage, Subscribed};
use super::{CallDesk, Envelope, Exchange, Session, Source, To, Turn};
use crate::audit::{OutcomeRecord, Record};
use crate::decision::Seam;
use crate::gate::ask::parked::Ends;
use crate::gate::deliver::Ticket;
use crate::gate::permit::{Cleared, Relay, Ungated};
use crate::gate::sensitive::declares_itself_destructive;
use crate::gate::{Attempt, Passed};
use crate::upstream::UpstreamFault;
use crate::wire::era::{ClientCapabilities, Era, RequestMeta};
use crate::wire::frame::Request;
use crate::wire::method::{Lifecycle, Route, route};
use crate::wire::shape::{Judged, ShapeError};
use crate::wire::{list, mirror, object, refusal};

/// The one request that stays open until the upstream ends it.
const LISTEN: &str = "subscriptions/listen";

/// A request that was admitted, and how it came.
pub(super) struct Arrived {
    pub(super) request: Request,
    pub(super) exchange: Exchange,
    pub(super) envelope: Envelope,
    /// What it says of itself, in the stateless era.
    pub(super) meta: Option<RequestMeta>,
    pub(super) at: Instant,
}

impl Session {
    /// A request that meets no seam. The opening of a session is settled by its answer.
    pub(super) async fn lifecycle(
        self: &Arc<Self>,
        exchange: Exchange,
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
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            let forwarded = Forwarded {
                exchange,
                progress_token: None,
                ticket: None,
                opens,
                subscribed: Subscribed::default(),
                since: Instant::now(),
            };
            session
                .forward(Cleared::Ungated(ungated), Box::default(), forwarded, flight, turn)
                .await;
        });
        let _passed_or_dropped = over.await;
    }

    /// A request that meets a seam. Returns when it was forwarded, refused or parked.
    pub(super) async fn gated(
        self: &Arc<Self>,
        arrived: Arrived,
        judged: Result<Judged, ShapeError>,
        flight: InFlight,
    ) {
        let judged = match judged {
            Ok(judged) => judged,
            Err(ShapeError { code, detail }) => {
                return self.answer_error(&arrived.exchange, code, &detail, None).await;
            }
        };
        if arrived.meta.is_none() && (judged.request_state.is_some() || judged.input_responses.is_some()) {
            let message = "`requestState` and `inputResponses` belong to revision 2026-07-28";
            return self.answer_error(&arrived.exchange, -32602, message, None).await;
        }
        let (turn, over) = Turn::new();
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            session.call(arrived, judged, flight, turn).await;
        });
        let _passed_or_dropped = over.await;
    }

    async fn call(self: Arc<Self>, arrived: Arrived, judged: Judged, flight: InFlight, turn: Turn) {
        let Arrived {
            request,
            exchange,
            envelope,
            meta,
            at,
        } = arrived;
        let mut caller = self.state().caller(&self.id, meta, envelope.principal);
        if envelope.answer_only {
            caller.capabilities = ClientCapabilities::default();
        }
        let mirrored = envelope.mirrored.as_deref();
        let prepared = self.prepared(&exchange, &request, &judged, caller.era, mirrored);
        let Some(tool_json) = prepared.await else {
            return;
        };
        let progress_token = progress_token(&request);
        let subscribed = subscribed(&request);
        let listed = match route(request.method()) {
            Route::Gated { listed, .. } => listed,
            Route::Lifecycle(_) => false,
        };
        let attempt = Attempt {
            request,
            judged,
            listed,
            tool_json,
            arrived: at,
        };
        let desk = CallDesk {
            session: &self,
            exchange: &exchange,
            turn: &turn,
        };
        let ends = Ends {
            withdrawn: &flight.withdrawn,
            unreachable: &flight.unreachable,
        };
        let tool = attempt.tool_json.clone().into_boxed_str();
        let passed = self.gate.pass(attempt, &caller, &desk, ends).await;
        let own = |line| self.answer(&exchange, Source::Host, line);
        match passed {
            Passed::Run(permit, ticket) => {
                let forwarded = Forwarded {
                    exchange,
                    progress_token,
                    ticket: Some(*ticket),
                    opens: None,
                    subscribed,
                    since: Instant::now(),
                };
                self.forward(Cleared::Permit(permit), tool, forwarded, flight, turn)
                    .await;
            }
            Passed::Refused(refused) => own(refusal::refusal(&exchange.id, &refused, caller.era)).await,
            Passed::InputRequired(result) => own(refusal::result(&exchange.id, &result)).await,
            Passed::Invalid { code, message, data } => {
                self.answer_error(&exchange, code, &message, data).await
            }
            Passed::Withdrawn => self.forget(&exchange, None),
        }
    }

    /// What must hold before the gate, and the tool as the upstream lists it; none when the request was answered.
    async fn prepared(
        &self,
        exchange: &Exchange,
        request: &Request,
        judged: &Judged,
        era: Era,
        mirrored: Option<&[(String, Vec<u8>)]>,
    ) -> Option<String> {
        self.check_start(era).await;
        let refused = self.state().start_refused.clone();
        if let Some(why) = refused {
            self.answer_error(exchange, START_REFUSED, &why, None).await;
            return None;
        }
        let tool_json = match self.tool_json(judged, era).await {
            Ok(tool_json) => tool_json,
            Err(fault) => {
                self.answer_fault(exchange, &fault).await;
                return None;
            }
        };
        if let Some(headers) = mirrored
            && let Err(mismatch) = mirror::check_params(&tool_json, request.params().unwrap_or("{}"), headers)
        {
            let message = mismatch.to_string();
            self.answer_error(exchange, mirror::HEADER_MISMATCH, &message, None)
                .await;
            return None;
        }
        Some(tool_json)
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
    async fn forward(
        &self,
        cleared: Cleared,
        tool_json: Box<str>,
        forwarded: Forwarded,
        flight: InFlight,
        turn: Turn,
    ) {
        let upstream_id = self.upstream.reserve_id();
        let exchange = forwarded.exchange.clone();
        let mapped_token = {
            let mut state = self.state();
            if flight.withdrawn.is_cancelled() {
                drop(state);
                self.record_outcome(&forwarded, "cancelled");
                return self.forget(&exchange, None);
            }
            if let Some(flight) = state.in_flight.get_mut(&exchange) {
                flight.stage = Stage::Upstream(upstream_id);
            }
            let mapped = state.shared && !self.upstream.labelled() && forwarded.progress_token.is_some();
            state.forwarded.insert(upstream_id, forwarded);
            mapped
        };
        let cleared = if mapped_token {
            cleared.with_progress_token(upstream_id)
        } else {
            cleared
        };
        if let Err(fault) = self.upstream.forward(cleared, upstream_id, tool_json).await {
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
        if let Some(forwarded) = forwarded {
            self.failed_with(&forwarded, fault).await;
        }
    }

    pub(super) async fn failed_with(&self, forwarded: &Forwarded, fault: &UpstreamFault) {
        if forwarded.opens == Some(Opening::Settled(Era::Handshake)) {
            self.state().opening = Opening::Undecided;
        }
        tracing::warn!(code = fault.code(), %fault, "a forwarded request has no answer");
        self.record_outcome(forwarded, fault.code());
        self.answer_fault(&forwarded.exchange, fault).await;
    }

    pub(super) async fn answer_fault(&self, exchange: &Exchange, fault: &UpstreamFault) {
        let message = match fault {
            UpstreamFault::Exited(_) => "the upstream server has ended; open a new session",
            UpstreamFault::Timeout(_) => "the upstream server did not answer in time",
            UpstreamFault::Unreachable(_) => "the upstream server cannot be reached; try again later",
            UpstreamFault::Garbage(_) => "the upstream server's answer is malformed",
        };
        let data = format!(r#"{{"code":"{}"}}"#, fault.code());
        self.answer_error(exchange, -32603, message, Some(&data)).await;
    }

    pub(super) async fn answer_error(
        &self,
        exchange: &Exchange,
        code: i64,
        message: &str,
        data: Option<&str>,
    ) {
        let revision = self.state().revision.clone();
        let line = refusal::error(Some(&exchange.id), &revision, code, message, data);
        self.answer(exchange, Source::Host, line).await;
    }

    /// Answers a request that is in flight, once: whoever comes second finds it gone and says nothing.
    pub(super) async fn answer(&self, exchange: &Exchange, source: Source, line: Bytes) {
        let flight = self.state().in_flight.remove(exchange);
        match flight {
            Some(flight) => {
                self.tell_again().await;
                self.send(To::Answer(exchange.clone(), source), line).await;
                flight.over.cancel();
            }
            None => self.state().dropped += 1,
        }
    }

    /// Lets go of a request that the client took back; it gets no answer.
    pub(super) fn forget(&self, exchange: &Exchange, upstream_id: Option<u64>) {
        let (flight, forwarded) = {
            let mut state = self.state();
            (
                state.in_flight.remove(exchange),
                upstream_id.and_then(|upstream_id| state.take_forwarded(upstream_id)),
            )
        };
        if let Some(flight) = flight {
            self.client.over(exchange);
            flight.over.cancel();
        }
        if let Some(forwarded) = forwarded {
            self.record_outcome(&forwarded, "cancelled");
        }
    }

    /// Records how a forwarded request ended. The effect has happened, so a failure is only logged.
    pub(super) fn record_outcome(&self, forwarded: &Forwarded, outcome: &str) {
        self.record_answer(forwarded, outcome, None, None);
    }

    /// As [`Self::record_outcome`], with the code of the upstream's error, and how many entries of a list were hidden.
    pub(super) fn record_answer(
        &self,
        forwarded: &Forwarded,
        outcome: &str,
        error_code: Option<&str>,
        hidden: Option<usize>,
    ) {
        let Some(decision_id) = forwarded.ticket.as_ref().map(Ticket::decision_id) else {
            return;
        };
        let record = Record::Outcome(OutcomeRecord {
            decision_id,
            session: &self.id,
            outcome,
            error_code,
            hidden,
            took_ms: u64::try_from(forwarded.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
        if let Err(error) = self.audit.append(&record) {
            tracing::error!(decision.id = %decision_id, %error, "the outcome of a forwarded call cannot be recorded");
        }
    }
}

/// The token, raw, under which the client wants to hear of the request's progress.
fn progress_token(request: &Request) -> Option<String> {
    let meta = request
        .params()
        .and_then(|params| object::member(params, "_meta"))?;
    object::member(meta, "progressToken").map(str::to_owned)
}

/// The lists of whose changes the client wants to hear on the stream of this request.
fn subscribed(request: &Request) -> Subscribed {
    let filter = match request.method() {
        LISTEN => request
            .params()
            .and_then(|params| object::member(params, "notifications")),
        _ => None,
    };
    Subscribed {
        asked: filter.map(list::asked).unwrap_or_default(),
        promised: Vec::new(),
    }
}
