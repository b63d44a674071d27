//! What the gate must look at on the way back, in the stateless era (2026-07-28).
//!
//! An upstream may ask for input in its result: only what the client declared on this request is
//! relayed, and an approval that was given travels with the upstream's own state. Results that came
//! through an approval are never cached, gated ones never shared. Everything else passes raw.

use super::ask::sealed::{Bindings, Carried, KEY_PREFIX, Purpose};
use super::tasks::Tasks;
use super::{Attempt, Caller, Gate};
use crate::decision::Seam;
use crate::seam::Guard;
use crate::vocabulary::DecisionId;
use crate::wire::era::{ClientCapabilities, Era};
use crate::wire::hints::Hints;
use crate::wire::object;
use crate::wire::upstream_frame::Answer;

/// A gated result may be cached for this long at most, in milliseconds, so that an old list does not
/// outlive the policy that judged it (semantics section 7).
pub const GATED_TTL_MS_MAX: u64 = 60_000;

/// The start of every `_meta` key that only this host may use (ruling R49).
pub const OWN_META_PREFIX: &str = "gatewright/";

/// An approval that a person gave for one call.
#[derive(Clone, Debug)]
pub struct Approval {
    pub(super) revision: String,
    pub(super) question: String,
    pub(super) bindings: Bindings,
    pub(super) carry: Option<Carry>,
}

/// What goes on to the upstream in the place of this host's state.
#[derive(Clone, Debug)]
pub struct Carry {
    pub(super) upstream_state: Option<String>,
    pub(super) responses: Option<String>,
}

/// What is remembered of a forwarded request until its answer comes. It permits nothing.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub(super) decision_id: DecisionId,
    pub(super) seam: Seam,
    pub(super) method: String,
    pub(super) caller: Caller,
    approval: Option<Approval>,
    stateful: bool,
}

impl Ticket {
    pub(super) fn new(
        id: DecisionId,
        attempt: &Attempt,
        caller: &Caller,
        approval: Option<Approval>,
    ) -> Self {
        Self {
            decision_id: id,
            seam: attempt.judged.seam,
            method: attempt.request.method().to_owned(),
            caller: caller.clone(),
            approval,
            stateful: attempt.judged.request_state.is_some() || attempt.judged.input_responses.is_some(),
        }
    }

    /// The verdict that let the request pass.
    #[must_use]
    pub fn decision_id(&self) -> DecisionId {
        self.decision_id
    }
}

/// What an upstream did that it must not, in words for the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the upstream's answer cannot be delivered: {0}")]
pub struct Undeliverable(pub(super) String);

/// An answer that may go to the client.
#[derive(Debug)]
pub struct Delivered {
    /// The answer.
    pub answer: Answer,
    /// The upstream asks for input.
    pub input_required: bool,
}

impl Gate {
    /// Checks and completes an upstream's answer. `tasks` are those of the conversation.
    ///
    /// # Errors
    ///
    /// [`Undeliverable`]; the client gets an internal error and nothing of the answer.
    pub fn deliver(
        &self,
        ticket: &Ticket,
        answer: Answer,
        tasks: &Tasks,
    ) -> Result<Delivered, Undeliverable> {
        let Some(result) = answer.result() else {
            return Ok(Delivered {
                answer,
                input_required: false,
            });
        };
        if ticket.caller.era == Era::Stateless && is_input_required(result) {
            return self.deliver_input_required(ticket, answer);
        }
        let principal = ticket.caller.principal.as_ref();
        let answer = match ticket.method.as_str() {
            "tools/call" => {
                tasks.learn(ticket.caller.era, principal, result);
                answer
            }
            "tasks/list" => {
                let own = tasks.own_of(principal, result);
                let own = own.ok_or_else(|| Undeliverable("it is no list of tasks".into()))?;
                answer.with_result(&own)
            }
            _ => answer,
        };
        let about_a_task = is_about_a_task(&ticket.method, answer.result().unwrap_or("{}"));
        Ok(Delivered {
            answer: self.hints(ticket, about_a_task).applied(answer),
            input_required: false,
        })
    }

    fn deliver_input_required(&self, ticket: &Ticket, answer: Answer) -> Result<Delivered, Undeliverable> {
        let result = answer.result().unwrap_or("{}");
        if !matches!(
            ticket.method.as_str(),
            "tools/call" | "resources/read" | "prompts/get"
        ) {
            return Err(Undeliverable(format!("`{}` cannot ask for input", ticket.method)));
        }
        let requests = object::member(result, "inputRequests").unwrap_or("{}");
        let mut marked = requests.to_owned();
        for request in object::members(requests) {
            let of_this_host = self.relayable(&request.name, request.value, &ticket.caller.capabilities)?;
            if let Some(of_this_host) = of_this_host {
                marked = object::with_member(&marked, &request.name, Some(&of_this_host));
            }
        }
        let answer = if marked == requests {
            answer
        } else {
            answer.with_result_members(&[("inputRequests", &marked)])
        };
        let result = answer.result().unwrap_or("{}");
        let Some(approval) = &ticket.approval else {
            return Ok(Delivered {
                answer,
                input_required: true,
            });
        };
        let upstream_state = match object::member(result, "requestState") {
            None | Some("null") => None,
            Some(raw) => Some(object::text(raw).ok_or_else(|| Undeliverable("its state is no text".into()))?),
        };
        let carried = Carried {
            purpose: Purpose::Carry { upstream_state },
            revision: approval.revision.clone(),
            question: approval.question.clone(),
        };
        let sealed = self
            .sealer
            .seal(&approval.bindings, carried, self.clock.as_ref())
            .map_err(|error| Undeliverable(error.to_string()))?;
        let answer = answer.with_result_members(&[("requestState", &object::quote(&sealed.state))]);
        Ok(Delivered {
            answer,
            input_required: true,
        })
    }

    /// Caching hints: none survive an approval or an exchange of input, and a gated result is private.
    pub(super) fn hints(&self, ticket: &Ticket, about_a_task: bool) -> Hints {
        match ticket.caller.era {
            Era::Handshake => Hints::Kept,
            // Its `ttlMs` is how long the task is kept.
            Era::Stateless if about_a_task => Hints::OfATask,
            Era::Stateless if ticket.approval.is_some() || ticket.stateful => Hints::Never,
            Era::Stateless if matches!(self.guards.of(ticket.seam), Guard::Unset) => Hints::Kept,
            Era::Stateless => Hints::Capped(GATED_TTL_MS_MAX),
        }
    }

    /// Checks that one of the upstream's requests may be put to this client; gives what stands in its place, if
    /// something has to.
    fn relayable(
        &self,
        key: &str,
        request: &str,
        capabilities: &ClientCapabilities,
    ) -> Result<Option<String>, Undeliverable> {
        if key.starts_with(KEY_PREFIX) {
            return Err(Undeliverable("it uses a key of this host".into()));
        }
        let method = object::member(request, "method")
            .and_then(object::text)
            .unwrap_or_default();
        let params = object::member(request, "params");
        if !matches!(
            method.as_str(),
            "elicitation/create" | "sampling/createMessage" | "roots/list"
        ) {
            return Err(Undeliverable(format!("`{method}` is no request for input")));
        }
        if !self.server_requests.may_pass(&method, params, capabilities) {
            return Err(Undeliverable(format!(
                "it asks for `{method}`, which was not declared to it"
            )));
        }
        if wears_our_marks(params) {
            return Err(Undeliverable(format!("it uses a `{OWN_META_PREFIX}` key")));
        }
        let marked = self.server_requests.marked(&method, params, &self.server);
        Ok(marked.map(|params| object::with_member(request, "params", Some(&params))))
    }
}

fn is_input_required(result: &str) -> bool {
    result_type(result).as_deref() == Some("input_required")
}

/// Whether a result hands out a task of the extension, or says how one is.
fn is_about_a_task(method: &str, result: &str) -> bool {
    method.starts_with("tasks/") || result_type(result).as_deref() == Some("task")
}

fn result_type(result: &str) -> Option<String> {
    object::member(result, "resultType").and_then(object::text)
}

/// Whether params of an upstream carry a `_meta` key that only this host may use.
#[must_use]
pub fn wears_our_marks(params: Option<&str>) -> bool {
    let meta = params
        .and_then(|params| object::member(params, "_meta"))
        .unwrap_or("{}");
    object::members(meta).any(|member| member.name.starts_with(OWN_META_PREFIX))
}
