//! What the upstream sends: answers to the one request that waits, requests under ids of this host,
//! notifications in order. Values pass raw.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::state::{Conversation, Forwarded, Opening, RELAYED_MAX};
use super::{Session, Source, To};
use crate::gate::deliver::wears_our_marks;
use crate::gate::permit::Relay;
use crate::gate::server_requests::ServerRequests;
use crate::upstream::{Answered, Arrival, UpstreamFault};
use crate::wire::era::Era;
use crate::wire::frame::Notification;
use crate::wire::id::RequestId;
use crate::wire::list::{self, SUBSCRIPTION_ID};
use crate::wire::object;
use crate::wire::upstream_frame::{Answer, UpstreamRequest};

/// How long a client may take to hear that nothing more comes; one that does not read must not hold up the end.
const TOLD_WITHIN: Duration = Duration::from_millis(250);

impl Session {
    /// Takes one thing from the upstream.
    pub(super) async fn arrived(self: &Arc<Self>, arrival: Arrival) {
        match arrival {
            Arrival::Answer(upstream_id, Ok(answered)) => self.answered(upstream_id, answered).await,
            Arrival::Answer(upstream_id, Err(fault)) => self.failed(upstream_id, &fault).await,
            Arrival::Long(long) => self.offered(long),
            Arrival::Request(request, about) => self.relay_request(&request, about).await,
            Arrival::Notification(notification, about) => self.relay_notification(&notification, about).await,
            Arrival::Ended(fault) => self.ended(&fault).await,
        }
    }

    async fn answered(self: &Arc<Self>, upstream_id: u64, answered: Answered) {
        let Answered { answer, http_status } = answered;
        let source = match http_status {
            Some(status) => Source::Body(status),
            None if self.upstream.labelled() => Source::Event,
            None => Source::Line,
        };
        let forwarded = self.state().forwarded.remove(&upstream_id);
        let Some(forwarded) = forwarded else {
            self.state().dropped += 1;
            return;
        };
        self.state().opened(&forwarded, &answer);
        let answer = match forwarded.opens {
            Some(Opening::Settled(era)) => self.gate.announcing(era, answer),
            Some(Opening::Undecided | Opening::Initializing) | None => answer,
        };
        let answer = named_for_the_client(answer, &forwarded.exchange.id);
        if let Some(ticket) = &forwarded.ticket
            && self.gate.hides(ticket)
            && answer.result().is_some()
        {
            return self.show_later(upstream_id, forwarded, answer, source);
        }
        self.deliver(&forwarded, answer, source, None).await;
    }

    /// Gives an answer to the client, as far as it may have it.
    pub(super) async fn deliver(
        &self,
        forwarded: &Forwarded,
        answer: Answer,
        source: Source,
        hidden: Option<usize>,
    ) {
        let exchange = &forwarded.exchange;
        let Some(ticket) = &forwarded.ticket else {
            return self
                .answer(exchange, source, answer.to_client(&exchange.id))
                .await;
        };
        match self.gate.deliver(ticket, answer, &self.tasks_made) {
            Ok(delivered) => {
                let outcome = if delivered.input_required {
                    "input_required"
                } else {
                    outcome(&delivered.answer)
                };
                let code = delivered
                    .answer
                    .error()
                    .and_then(|error| object::member(error, "code"));
                // The effect has happened, so the client does not wait for this record.
                self.answer(exchange, source, delivered.answer.to_client(&exchange.id))
                    .await;
                self.record_answer(forwarded, outcome, code, hidden);
            }
            Err(undeliverable) => {
                let fault = UpstreamFault::Garbage(undeliverable.to_string());
                self.failed_with(forwarded, &fault).await;
            }
        }
    }

    /// A request of the upstream: relayed under an id of this host when the client declared that it can.
    async fn relay_request(&self, request: &UpstreamRequest, about: Option<u64>) {
        let relayed = {
            let mut state = self.state();
            let rules = self.gate.server_requests();
            let about = match about {
                None if !self.upstream.labelled() => state.newest_call(),
                about => about,
            };
            state
                .to(about)
                .and_then(|to| Ok((to, state.relay(request, rules)?)))
        };
        match relayed {
            Ok((to, id)) => {
                let line = match self.gate.marked(request) {
                    Some(marked) => marked.to_client(&id),
                    None => request.to_client(&id),
                };
                if !self.send(to, line).await {
                    self.state().relayed.remove(&id);
                    self.not_relayed(
                        request,
                        -32603,
                        "the client has no stream open that could carry this",
                    )
                    .await;
                }
            }
            Err((code, message)) => self.not_relayed(request, code, message).await,
        }
    }

    async fn not_relayed(&self, request: &UpstreamRequest, code: i64, message: &str) {
        tracing::warn!(code, message, "a request of the upstream was not relayed");
        let error = Relay::own_error(request.id_raw(), code, message);
        let _upstream_is_gone = self.upstream.relay(error).await;
    }

    async fn relay_notification(&self, notification: &Notification, about: Option<u64>) {
        if notification.method() == "notifications/tools/list_changed" {
            self.tools.changed();
        }
        let named = if self.tasks_made.disowns(notification) {
            None
        } else {
            self.state().named_for_the_client(notification, about)
        };
        let named = named.map(|(to, notification)| {
            let promised = self.promised(&to, notification);
            (to, promised)
        });
        let sent = match named {
            Some((to, notification)) => self.send(to, notification.to_line()).await,
            None => false,
        };
        if !sent {
            self.state().dropped += 1;
        }
    }

    /// The upstream is gone: every request that waits is told so, and what it asked is forgotten.
    async fn ended(&self, fault: &UpstreamFault) {
        tracing::error!(%fault, "the upstream is gone");
        let waiting: Vec<u64> = {
            let mut state = self.state();
            state.relayed.clear();
            state.forwarded.keys().copied().collect()
        };
        for upstream_id in waiting {
            self.failed(upstream_id, fault).await;
        }
        self.upstream_ended.cancel();
    }

    /// The time to drain is over: what still runs upstream is recorded as such, and its client told if it listens.
    pub(super) async fn give_up(&self) {
        let waited_ms = u64::try_from(self.settings.drain_within.as_millis()).unwrap_or(u64::MAX);
        let fault = UpstreamFault::Timeout(waited_ms);
        let forwarded: Vec<Forwarded> = {
            let mut state = self.state();
            let state = &mut *state;
            let running = state.forwarded.drain().chain(state.showing.drain());
            running.map(|(_, forwarded)| forwarded).collect()
        };
        for forwarded in &forwarded {
            self.record_outcome(forwarded, fault.code());
        }
        let told = async {
            for forwarded in &forwarded {
                self.answer_fault(&forwarded.exchange, &fault).await;
            }
        };
        if timeout(TOLD_WITHIN, told).await.is_err() {
            tracing::debug!("a client did not take the last answers");
        }
    }
}

impl Conversation {
    /// An answer to `initialize` or `server/discover` may settle the era of the session.
    fn opened(&mut self, forwarded: &Forwarded, answer: &Answer) {
        match (forwarded.opens, answer.result()) {
            (None, _) => {}
            (Some(Opening::Settled(Era::Handshake)), Some(result)) => {
                self.opening = Opening::Settled(Era::Handshake);
                if let Some(revision) = object::member(result, "protocolVersion").and_then(object::text) {
                    self.revision = revision;
                }
                self.lists = list::served(object::member(result, "capabilities").unwrap_or("{}"));
            }
            (Some(Opening::Settled(Era::Handshake)), None) => self.opening = Opening::Undecided,
            (Some(Opening::Settled(Era::Stateless)), Some(_)) if self.opening == Opening::Undecided => {
                self.settle_stateless();
            }
            (Some(Opening::Settled(Era::Stateless) | Opening::Undecided | Opening::Initializing), _) => {}
        }
    }

    /// Issues an id for a request of the upstream, or says why the client does not get it.
    fn relay(
        &mut self,
        request: &UpstreamRequest,
        rules: ServerRequests,
    ) -> Result<RequestId, (i64, &'static str)> {
        match self.opening {
            Opening::Settled(Era::Stateless) => {
                return Err((-32601, "revision 2026-07-28 has no requests from the server"));
            }
            Opening::Undecided | Opening::Initializing | Opening::Settled(Era::Handshake) => {}
        }
        if wears_our_marks(request.params()) {
            return Err((-32602, "`_meta` keys that start with `gatewright/` are reserved"));
        }
        if !rules.may_pass(request.method(), request.params(), &self.capabilities) {
            return Err((-32601, "it was not declared that the client can do this"));
        }
        if RELAYED_MAX <= self.relayed.len() {
            return Err((-32603, "too many requests wait for the client"));
        }
        let id = RequestId::from_integer(self.next_relay_id);
        self.next_relay_id += 1;
        self.relayed.insert(id.clone(), request.id_raw().to_owned());
        Ok(id)
    }

    /// The call that runs and was forwarded last. An upstream that cannot say to which request its own request
    /// belongs has made it in the course of one (the revisions say so), and a client looks for it there.
    fn newest_call(&self) -> Option<u64> {
        let calls = self
            .forwarded
            .iter()
            .filter(|(_, forwarded)| forwarded.ticket.is_some());
        calls.map(|(upstream_id, _)| *upstream_id).max()
    }

    /// Where something belongs that the upstream sent on the stream of the request `about`.
    fn to(&self, about: Option<u64>) -> Result<To, (i64, &'static str)> {
        match about {
            None => Ok(To::Session),
            Some(upstream_id) => self
                .forwarded
                .get(&upstream_id)
                .map(|forwarded| To::Call(forwarded.exchange.clone()))
                .ok_or((-32600, "the request that this belongs to is answered already")),
        }
    }

    /// The notification with the ids that the client knows, and where it belongs; none when it is about nothing
    /// the client has.
    fn named_for_the_client(
        &mut self,
        notification: &Notification,
        about: Option<u64>,
    ) -> Option<(To, Notification)> {
        let to = self.to(about).ok()?;
        let params = notification.params().unwrap_or("{}");
        match notification.method() {
            "notifications/cancelled" => {
                let raw = object::member(params, "requestId")?;
                let id = self
                    .relayed
                    .iter()
                    .find_map(|(id, upstream)| (upstream == raw).then(|| id.clone()))?;
                self.relayed.remove(&id);
                return Some((to, notification.with_param("requestId", Some(id.raw()))));
            }
            "notifications/progress" => return self.progress(notification, params, to),
            _ => {}
        }
        let meta = object::member(params, "_meta").unwrap_or("{}");
        match (self.era(), object::member(meta, SUBSCRIPTION_ID)) {
            (Era::Stateless, Some(raw)) => {
                let listening = &self.forwarded.get(&raw.parse::<u64>().ok()?)?.exchange;
                let meta = object::with_member(meta, SUBSCRIPTION_ID, Some(listening.id.raw()));
                let notification = notification.with_param("_meta", Some(&meta));
                Some((To::Call(listening.clone()), notification))
            }
            (Era::Stateless, None) if self.shared && to == To::Session => None,
            (Era::Stateless, None) | (Era::Handshake, _) => Some((to, notification.clone())),
        }
    }

    /// Progress belongs to the request that gave its token; after that one's answer it is dropped.
    fn progress(&self, notification: &Notification, params: &str, to: To) -> Option<(To, Notification)> {
        let raw = object::member(params, "progressToken")?;
        if to != To::Session {
            return Some((to, notification.clone()));
        }
        if self.shared {
            let forwarded = self.forwarded.get(&raw.parse::<u64>().ok()?)?;
            let token = forwarded.progress_token.as_deref()?;
            let notification = notification.with_param("progressToken", Some(token));
            return Some((To::Call(forwarded.exchange.clone()), notification));
        }
        let reported = self
            .forwarded
            .values()
            .find(|forwarded| forwarded.progress_token.as_deref() == Some(raw));
        match reported {
            Some(forwarded) => Some((To::Call(forwarded.exchange.clone()), notification.clone())),
            // A task reports on after the answer of the request that began it.
            None => Some((to, notification.clone())),
        }
    }
}

/// The end of a subscription names it by the id that the client gave it.
fn named_for_the_client(answer: Answer, id: &RequestId) -> Answer {
    let meta = answer
        .result()
        .and_then(|result| object::member(result, "_meta"))
        .unwrap_or("{}");
    if object::member(meta, SUBSCRIPTION_ID) != Some(answer.id().to_string().as_str()) {
        return answer;
    }
    let meta = object::with_member(meta, SUBSCRIPTION_ID, Some(id.raw()));
    answer.with_result_members(&[("_meta", &meta)])
}

fn outcome(answer: &Answer) -> &'static str {
    match answer.result() {
        None => "error",
        Some(result) if object::member(result, "isError") == Some("true") => "tool_error",
        Some(_) => "ok",
    }
}
