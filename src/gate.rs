//! The gate: every request that meets a seam passes here, and nowhere else.
//!
//! [`Gate::pass`] is the life of a call: judge, then run, ask or refuse. The record is written before
//! the outcome leaves, a question's own record before the question is sent, and a [`permit::Permit`]
//! is made only after the record of the verdict that allows it.
//!
//! The gate does not know policies (they are behind [`crate::seam::Authorizer`]) and does not know
//! transports: a question leaves through the [`Desk`] that the session provides.

pub mod ask;
pub mod deliver;
mod listen;
pub mod lists;
pub mod permit;
mod pieces;
mod record;
pub mod refuse;
pub mod sensitive;
pub mod server_requests;
pub mod tasks;

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::audit::{AskRecord, AuditLog};
use crate::clock::Clock;
use crate::decision::{Code, Conclusion, Seam, Verdict};
use crate::seam::{Call, Context, Guard, Guards};
use crate::vocabulary::{Principal, RandomId};
use crate::wire::era::{ClientCapabilities, Era};
use crate::wire::frame::Request;
use crate::wire::object;
use crate::wire::refusal::Refusal;
use crate::wire::shape::Judged;
use crate::wire::upstream_frame::UpstreamRequest;

use ask::parked::{Ends, Questions, Total};
use ask::sealed::{Bindings, Carried, KEY_PREFIX, Purpose, STATE_PREFIX, SealError, Sealer, StateError};
use ask::{Answer, AskOutcome, AskSettings};
use deliver::{Approval, Carry, Ticket};
use permit::Permit;
use record::Case;
use server_requests::ServerRequests;
use tasks::Tasks;

/// Judges requests and makes permits.
#[derive(Debug)]
pub struct Gate {
    guards: Guards,
    server: String,
    transport: &'static str,
    audit: Arc<AuditLog>,
    clock: Arc<dyn Clock>,
    sealer: Sealer,
    asks: AskSettings,
    server_requests: ServerRequests,
    parked_total: Arc<Total>,
}

/// What a gate is made of.
#[derive(Debug)]
pub struct GateSettings {
    /// The chains.
    pub guards: Guards,
    /// The upstream's configured name.
    pub server: String,
    /// `stdio`, `http` or `embedded`.
    pub transport: &'static str,
    /// The limits of asking.
    pub asks: AskSettings,
    /// What the upstream may ask the client for.
    pub server_requests: ServerRequests,
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Opaque session id, empty in an era without sessions.
    pub session: String,
    /// The era of the session.
    pub era: Era,
    /// The negotiated revision, empty when not known.
    pub revision: String,
    /// What the client says of itself, raw JSON: untrusted.
    pub client_info: String,
    /// What the client can do, on this session or on this request.
    pub capabilities: ClientCapabilities,
    /// The authenticated caller, none on stdio.
    pub principal: Option<Principal>,
}

/// One request that meets a seam.
#[derive(Debug)]
pub struct Attempt {
    /// The frame as it arrived.
    pub request: Request,
    /// What the gate reads of it.
    pub judged: Judged,
    /// Whether its method stands in the table of semantics section 2.
    pub listed: bool,
    /// The tool as the upstream lists it, empty if unknown or on reads.
    pub tool_json: String,
    /// When it arrived: an ask's deadline counts from here.
    pub arrived: Instant,
}

/// Where questions of the 2025 revisions go out, and where their answers come in.
pub trait Desk: Send + Sync {
    /// The questions of this very session.
    fn questions(&self) -> &Questions;

    /// The tasks that were made in this conversation.
    fn tasks(&self) -> &Tasks;

    /// Sends a line to the client on the stream that carries the call.
    fn send(&self, line: Bytes) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Called once when the call is parked: other requests of the session go on from here.
    fn parked(&self);
}

/// How a request left the gate.
#[derive(Debug)]
pub enum Passed {
    /// It may go upstream.
    Run(Permit, Box<Ticket>),
    /// It may not.
    Refused(Refusal),
    /// The client is asked for input (2026-07-28): the raw result.
    InputRequired(String),
    /// It is no request that can be judged: a JSON-RPC error.
    Invalid {
        /// The JSON-RPC code.
        code: i64,
        /// The error's message.
        message: String,
        /// The error's `data`, raw.
        data: Option<&'static str>,
    },
    /// The client took it back; nothing is answered.
    Withdrawn,
}

/// What came with the request from an earlier ask (2026-07-28).
enum Presented {
    /// No state of ours.
    Nothing {
        /// There is a state, and it is not ours.
        foreign_state: bool,
    },
    /// Our state, without an answer to its question.
    Unanswered,
    /// Our state and a person's answer.
    Answered(Answer, Carried),
    /// Our state that carries an approval given before.
    Approved(Carried),
}

impl Gate {
    /// A gate with a fresh sealing key.
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub fn new(
        settings: GateSettings,
        audit: Arc<AuditLog>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, crate::clock::RandomUnavailable> {
        let GateSettings {
            guards,
            server,
            transport,
            asks,
            server_requests,
        } = settings;
        let sealer = Sealer::new(asks.state_ttl, clock.as_ref())?;
        Ok(Self {
            guards,
            server,
            transport,
            audit,
            clock,
            sealer,
            asks,
            server_requests,
            parked_total: Total::new(&asks),
        })
    }

    /// The questions of a new session.
    #[must_use]
    pub fn questions(&self, shutdown: CancellationToken) -> Questions {
        Questions::new(&self.asks, Arc::clone(&self.parked_total), shutdown)
    }

    /// A new 128-bit id.
    ///
    /// # Errors
    ///
    /// When the operating system gives no random bytes.
    pub fn random_id(&self) -> Result<RandomId, crate::clock::RandomUnavailable> {
        let mut bytes = [0; 16];
        self.clock.random(&mut bytes)?;
        Ok(RandomId::from_random(bytes))
    }

    /// Whether the tools seam has no chain, so that destructive tools must not be served.
    #[must_use]
    pub fn tools_unset(&self) -> bool {
        matches!(self.guards.tools, Guard::Unset)
    }

    /// What the upstream may ask the client for.
    #[must_use]
    pub fn server_requests(&self) -> ServerRequests {
        self.server_requests
    }

    /// A request of the client as it may reach the upstream: without capabilities that the upstream may not use.
    #[must_use]
    pub fn declared(&self, request: Request) -> Request {
        let declared = request
            .params()
            .and_then(|params| self.server_requests.declared(params));
        match declared {
            Some(params) => request.with_params(&params),
            None => request,
        }
    }

    /// A question of the upstream whose text says so; none when it stays as it is.
    #[must_use]
    pub fn marked(&self, request: &UpstreamRequest) -> Option<UpstreamRequest> {
        let params = self
            .server_requests
            .marked(request.method(), request.params(), &self.server)?;
        Some(request.with_params(&params))
    }

    /// The life of a call.
    ///
    /// Dropping the future closes an open question and leaves nothing behind.
    pub async fn pass(&self, attempt: Attempt, caller: &Caller, desk: &dyn Desk, ends: Ends<'_>) -> Passed {
        let Ok(id) = self.random_id() else {
            return Passed::Invalid {
                code: -32603,
                message: Code::PolicyInternal.fixed_detail().to_owned(),
                data: None,
            };
        };
        if !attempt.listed && matches!(self.guards.of(attempt.judged.seam), Guard::Unset) {
            return Passed::Invalid {
                code: -32601,
                message: format!("method not found: {}", attempt.request.method()),
                data: None,
            };
        }
        let case = Case {
            gate: self,
            id,
            attempt: &attempt,
            caller,
        };
        let presented = match self.presented(&attempt, caller) {
            Ok(presented) => presented,
            Err(cause) => return case.invalid_state(&cause.to_string()),
        };
        if let Presented::Answered(answer, _) = &presented
            && let Some(code) = answer.refusal()
        {
            return case.refuse_answer(AskOutcome::Answered(*answer), code);
        }
        let verdict = self.judge(&attempt, caller).await;
        let prompts = match &verdict.conclusion {
            Conclusion::Deny { code, detail } => return case.refuse(&verdict, *code, detail, None),
            Conclusion::Allow => {
                let approval = presented.approval(&attempt, &case);
                return self.run(case, desk, &verdict, approval, None).await;
            }
            Conclusion::Ask(prompts) => prompts,
        };
        match (attempt.judged.seam, presented) {
            (Seam::Reads, _) => case.refuse(&verdict, Code::CannotAsk, refuse::READS_NEVER_ASK, None),
            (Seam::Tools, Presented::Nothing { foreign_state: true }) => {
                case.invalid_state("the state is not ours")
            }
            (Seam::Tools, Presented::Nothing { foreign_state: false } | Presented::Unanswered) => {
                self.ask(case, &verdict, prompts, desk, ends).await
            }
            (Seam::Tools, presented @ (Presented::Answered(..) | Presented::Approved(_))) => {
                let approval = presented.approval(&attempt, &case);
                if approval
                    .as_ref()
                    .is_some_and(|given| given.revision == verdict.revision.to_string())
                {
                    self.run(case, desk, &verdict, approval, None).await
                } else {
                    case.refuse(
                        &verdict,
                        Code::PolicyChanged,
                        Code::PolicyChanged.fixed_detail(),
                        None,
                    )
                }
            }
        }
    }

    /// Judges once, or applies the rule of a seam without a chain.
    async fn judge(&self, attempt: &Attempt, caller: &Caller) -> Verdict {
        self.judge_as(
            attempt.judged.seam,
            &attempt.judged.name,
            &attempt.judged.args_json,
            attempt,
            caller,
        )
        .await
    }

    async fn judge_as(
        &self,
        seam: Seam,
        name: &str,
        args_json: &str,
        attempt: &Attempt,
        caller: &Caller,
    ) -> Verdict {
        let chain = match self.guards.of(seam) {
            Guard::Chain(chain) => chain,
            Guard::Unset => return sensitive::unset(seam, &attempt.tool_json),
        };
        let context = Context {
            tool_json: &attempt.tool_json,
            extra_json: &attempt.judged.extra_json,
            ..self.context(caller)
        };
        let call = Call {
            seam,
            name,
            args_json,
            context,
        };
        chain.judge(&call).await
    }

    /// What a policy may know of who calls, now.
    fn context<'a>(&'a self, caller: &'a Caller) -> Context<'a> {
        let principal = caller.principal.as_ref();
        Context {
            server: &self.server,
            session: &caller.session,
            transport: self.transport,
            protocol_version: &caller.revision,
            client_json: &caller.client_info,
            principal: principal.map(|principal| principal.subject.as_ref()),
            claims_json: principal.map_or("{}", |principal| &principal.claims_json),
            tool_json: "",
            extra_json: "{}",
            now_unix_ms: self.clock.now_unix_ms(),
        }
    }

    /// Writes the record and makes the permit: the only place that makes one.
    async fn run(
        &self,
        case: Case<'_>,
        desk: &dyn Desk,
        verdict: &Verdict,
        approval: Option<Approval>,
        ask: Option<AskRecord>,
    ) -> Passed {
        if desk.tasks().keeps_from(case.caller, &case.attempt.request) {
            return case.unknown_task();
        }
        let request = match self.narrowed(&case, desk.tasks()).await {
            Ok(request) => request,
            Err(refused) => return refused,
        };
        if let Err(refused) = case.record_run(verdict, ask) {
            return Passed::Refused(refused);
        }
        let request = self.declared(forwarded(request, &case, approval.as_ref()));
        let ticket = case.ticket(approval);
        Passed::Run(Permit::new(request, case.id), Box::new(ticket))
    }

    /// Asks the person, in the way of the caller's era, or refuses when nobody can be asked.
    async fn ask(
        &self,
        case: Case<'_>,
        verdict: &Verdict,
        prompts: &[String],
        desk: &dyn Desk,
        ends: Ends<'_>,
    ) -> Passed {
        if !case.caller.capabilities.elicitation_form() {
            return case.refuse(verdict, Code::CannotAsk, &prompts.join("\n"), None);
        }
        match case.caller.era {
            Era::Stateless => self.ask_sealed(&case, verdict, prompts),
            Era::Handshake => self.ask_parked(case, verdict, prompts, desk, ends).await,
        }
    }

    fn ask_sealed(&self, case: &Case<'_>, verdict: &Verdict, prompts: &[String]) -> Passed {
        let question = case.question(prompts);
        let carried = Carried {
            purpose: Purpose::Ask,
            revision: verdict.revision.to_string(),
            question: question.digest().to_string(),
        };
        let sealed = match self.sealer.seal(&case.bindings(), carried, self.clock.as_ref()) {
            Ok(sealed) => sealed,
            Err(SealError::Random(_) | SealError::TooLong) => {
                return case.refuse(verdict, Code::CannotAsk, Code::CannotAsk.fixed_detail(), None);
            }
        };
        if let Err(refused) = case.record_question(verdict, prompts) {
            return Passed::Refused(refused);
        }
        Passed::InputRequired(format!(
            r#"{{"resultType":"input_required","inputRequests":{{{key}:{{"method":"elicitation/create","params":{params}}}}},"requestState":{state}}}"#,
            key = object::quote(&sealed.key),
            params = question.params(true),
            state = object::quote(&sealed.state),
        ))
    }

    /// Parks the call, asks, and judges again at the answer (semantics section 5).
    async fn ask_parked(
        &self,
        case: Case<'_>,
        verdict: &Verdict,
        prompts: &[String],
        desk: &dyn Desk,
        ends: Ends<'_>,
    ) -> Passed {
        let parked = match desk.questions().park() {
            Ok(parked) => parked,
            Err(full) => return case.refuse(verdict, Code::CannotAsk, &full.to_string(), None),
        };
        desk.parked();
        let deadline = case.attempt.arrived + self.asks.deadline;
        let turn = match parked.turn(deadline, ends).await {
            Ok(turn) => turn,
            Err(outcome) => return case.ended_without_answer(verdict, outcome, 0),
        };
        let Ok(question_id) = self.random_id() else {
            return case.refuse(verdict, Code::CannotAsk, Code::CannotAsk.fixed_detail(), None);
        };
        if let Err(refused) = case.record_question(verdict, prompts) {
            return Passed::Refused(refused);
        }
        let asked = Instant::now();
        let waiting = turn.register(question_id);
        desk.send(case.elicitation(question_id, prompts)).await;
        let outcome = waiting.until(deadline, ends).await;
        let waited_ms = u64::try_from(asked.elapsed().as_millis()).unwrap_or(u64::MAX);
        match outcome {
            AskOutcome::Answered(Answer::Approved) => self.approved(case, desk, verdict, waited_ms).await,
            AskOutcome::Answered(Answer::Declined | Answer::Cancelled | Answer::NotApproved) => {
                case.ended_without_answer(verdict, outcome, waited_ms)
            }
            AskOutcome::Timeout | AskOutcome::Withdrawn | AskOutcome::Disconnected | AskOutcome::Shutdown => {
                desk.send(record::withdrawal(question_id)).await;
                case.ended_without_answer(verdict, outcome, waited_ms)
            }
        }
    }

    /// The person approved: the chain judges again, and only what it asked before counts as approved.
    async fn approved(&self, case: Case<'_>, desk: &dyn Desk, asked: &Verdict, waited_ms: u64) -> Passed {
        let verdict = self.judge(case.attempt, case.caller).await;
        let ask = Some(AskRecord {
            outcome: AskOutcome::Answered(Answer::Approved).as_str(),
            waited_ms,
        });
        match &verdict.conclusion {
            Conclusion::Deny { code, detail } => case.refuse(&verdict, *code, detail, ask),
            Conclusion::Allow => self.run(case, desk, &verdict, None, ask).await,
            Conclusion::Ask(_) if verdict.revision == asked.revision => {
                self.run(case, desk, &verdict, None, ask).await
            }
            Conclusion::Ask(_) => {
                let ask = Some(AskRecord {
                    outcome: "policy_changed",
                    waited_ms,
                });
                case.refuse(
                    &verdict,
                    Code::PolicyChanged,
                    Code::PolicyChanged.fixed_detail(),
                    ask,
                )
            }
        }
    }

    /// Opens what came from an earlier ask. All bindings are checked, then the nonce is spent.
    fn presented(&self, attempt: &Attempt, caller: &Caller) -> Result<Presented, StateError> {
        let state = match (caller.era, &attempt.judged.request_state) {
            (Era::Stateless, Some(state)) => state,
            (Era::Stateless, None) | (Era::Handshake, _) => {
                return Ok(Presented::Nothing { foreign_state: false });
            }
        };
        if !state.starts_with(STATE_PREFIX) {
            return Ok(Presented::Nothing { foreign_state: true });
        }
        let bindings = self.bindings(attempt, caller);
        let opened = self.sealer.open(state, &bindings, self.clock.as_ref())?;
        if let Purpose::Carry { .. } = opened.carried.purpose {
            return Ok(Presented::Approved(opened.carried));
        }
        let responses = attempt.judged.input_responses.as_deref().unwrap_or("{}");
        Ok(match object::member(responses, &opened.key) {
            Some(result) => Presented::Answered(Answer::read(result), opened.carried),
            None => Presented::Unanswered,
        })
    }

    fn bindings(&self, attempt: &Attempt, caller: &Caller) -> Bindings {
        Bindings {
            server: self.server.clone(),
            principal: caller
                .principal
                .as_ref()
                .map(|principal| principal.subject.to_string()),
            seam: attempt.judged.seam.as_str().to_owned(),
            method: attempt.request.method().to_owned(),
            name: attempt.judged.name.clone(),
            params: attempt.judged.params_digest.to_string(),
        }
    }
}

impl Presented {
    /// The approval that a person gave for this very call, if one did.
    fn approval(self, attempt: &Attempt, case: &Case<'_>) -> Option<Approval> {
        let carried = match self {
            Self::Answered(Answer::Approved, carried) | Self::Approved(carried) => carried,
            Self::Answered(Answer::Declined | Answer::Cancelled | Answer::NotApproved, _)
            | Self::Unanswered
            | Self::Nothing { .. } => return None,
        };
        let upstream_state = match carried.purpose {
            Purpose::Ask => None,
            Purpose::Carry { upstream_state } => Some(Carry {
                upstream_state,
                responses: attempt.judged.input_responses.clone(),
            }),
        };
        Some(Approval {
            revision: carried.revision,
            question: carried.question,
            bindings: case.bindings(),
            carry: upstream_state,
        })
    }
}

/// The request without what belongs to this host: our state and our answers never go upstream, and an
/// upstream's own state takes the place that ours had.
fn forwarded(request: Request, case: &Case<'_>, approval: Option<&Approval>) -> Request {
    let ours = case.caller.era == Era::Stateless
        && case
            .attempt
            .judged
            .request_state
            .as_deref()
            .is_some_and(|state| state.starts_with(STATE_PREFIX));
    if !ours {
        return request;
    }
    let carry = approval.and_then(|approval| approval.carry.as_ref());
    let state = carry
        .and_then(|carry| carry.upstream_state.as_deref())
        .map(object::quote);
    let responses = carry
        .and_then(|carry| carry.responses.as_deref())
        .map(without_ours);
    request.with_param("requestState", state.as_deref()).with_param(
        "inputResponses",
        responses.as_deref().filter(|responses| *responses != "{}"),
    )
}

fn without_ours(responses: &str) -> String {
    let ours: Vec<String> = object::members(responses)
        .filter(|member| member.name.starts_with(KEY_PREFIX))
        .map(|member| member.name.into_owned())
        .collect();
    ours.iter().fold(responses.to_owned(), |kept, name| {
        object::with_member(&kept, name, None)
    })
}
