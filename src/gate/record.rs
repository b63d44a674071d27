//! One request on its way through the gate: its records, and what each ending leaves.
//!
//! INVARIANT (audit before effect): every function here that returns a [`Passed`] has written the
//! record first; where that fails the request is refused with `audit_unavailable`.

use bytes::Bytes;

use super::ask::AskOutcome;
use super::ask::question::Question;
use super::ask::sealed::Bindings;
use super::deliver::{Approval, Ticket};
use super::tasks::{NO_TASKS, NOT_FOUND, TASKS_REQUIRED};
use super::{Attempt, Caller, Gate, Passed};
use crate::audit::{AskRecord, QuestionRecord, Record, Subject, VerdictRecord};
use crate::decision::{Code, Conclusion, PolicyRecord, Seam, Verdict};
use crate::vocabulary::{DecisionId, Digest, RandomId};
use crate::wire::era::Era;
use crate::wire::object;
use crate::wire::refusal::Refusal;

/// The JSON-RPC message for every state that cannot be used (ruling R42).
const INVALID_STATE: &str = "invalid requestState: make the call again without it to be asked anew";

/// The revision of MCP that knows no `mode` in an elicitation.
const REVISION_WITHOUT_MODE: &str = "2025-06-18";

/// A request, who sent it, and the id of its verdict.
#[derive(Clone, Copy)]
pub(super) struct Case<'a> {
    pub(super) gate: &'a Gate,
    pub(super) id: DecisionId,
    pub(super) attempt: &'a Attempt,
    pub(super) caller: &'a Caller,
}

/// What a verdict's record says beside who and what.
struct Finding<'a> {
    policies: &'a [PolicyRecord],
    revision: Digest,
    decision: &'static str,
    code: &'a str,
    detail: &'a str,
    forwarded: bool,
    ask: Option<AskRecord>,
    note: &'a str,
}

impl<'a> Case<'a> {
    pub(super) fn bindings(&self) -> Bindings {
        self.gate.bindings(self.attempt, self.caller)
    }

    pub(super) fn question<'q>(&self, prompts: &'q [String]) -> Question<'q>
    where
        'a: 'q,
    {
        Question {
            decision_id: self.id,
            tool: &self.attempt.judged.name,
            server: &self.gate.server,
            args_json: &self.attempt.judged.args_json,
            extra_json: &self.attempt.judged.extra_json,
            prompts,
        }
    }

    pub(super) fn ticket(&self, approval: Option<Approval>) -> Ticket {
        Ticket::new(self.id, self.attempt, self.caller, approval)
    }

    /// The question of a parked call, as a request of this host to the client.
    pub(super) fn elicitation(&self, question_id: RandomId, prompts: &[String]) -> Bytes {
        let with_mode = self.caller.revision != REVISION_WITHOUT_MODE;
        let params = self.question(prompts).params(with_mode);
        Bytes::from(format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"{question_id}\",\"method\":\"elicitation/create\",\"params\":{params}}}\n"
        ))
    }

    /// Refuses for what a verdict concluded or could not get.
    pub(super) fn refuse(
        &self,
        verdict: &Verdict,
        code: Code,
        detail: &str,
        ask: Option<AskRecord>,
    ) -> Passed {
        let asked = matches!(verdict.conclusion, Conclusion::Ask(_));
        // The prompt of a read reaches the record and nobody else.
        let recorded = match (&verdict.conclusion, self.attempt.judged.seam) {
            (Conclusion::Ask(prompts), Seam::Reads) => prompts.join("\n"),
            (Conclusion::Ask(_) | Conclusion::Allow | Conclusion::Deny { .. }, Seam::Tools | Seam::Reads) => {
                detail.to_owned()
            }
        };
        let written = self.write(Finding {
            policies: &verdict.policies,
            revision: verdict.revision,
            decision: if asked { "ask" } else { "deny" },
            code: code.as_str(),
            detail: &recorded,
            forwarded: false,
            ask,
            note: "",
        });
        match written {
            Ok(()) => Passed::Refused(self.refused(asked, code, detail)),
            Err(refused) => Passed::Refused(refused),
        }
    }

    /// Refuses for a person's answer that came with a sealed state. No policy runs for it.
    pub(super) fn refuse_answer(&self, outcome: AskOutcome, code: Code) -> Passed {
        self.refuse_asked(&[], Digest::of(b""), outcome, code, 0)
    }

    /// Refuses, or for a call that was taken back stays silent, when a parked call ended without an approval.
    pub(super) fn ended_without_answer(
        &self,
        asked: &Verdict,
        outcome: AskOutcome,
        waited_ms: u64,
    ) -> Passed {
        let code = outcome.refusal().unwrap_or(Code::NotApproved);
        let refused = self.refuse_asked(&asked.policies, asked.revision, outcome, code, waited_ms);
        if outcome == AskOutcome::Withdrawn {
            Passed::Withdrawn
        } else {
            refused
        }
    }

    fn refuse_asked(
        &self,
        policies: &[PolicyRecord],
        revision: Digest,
        outcome: AskOutcome,
        code: Code,
        waited_ms: u64,
    ) -> Passed {
        let detail = code.fixed_detail();
        let written = self.write(Finding {
            policies,
            revision,
            decision: "ask",
            code: code.as_str(),
            detail,
            forwarded: false,
            ask: Some(AskRecord {
                outcome: outcome.as_str(),
                waited_ms,
            }),
            note: "",
        });
        match written {
            Ok(()) => Passed::Refused(self.refused(true, code, detail)),
            Err(refused) => Passed::Refused(refused),
        }
    }

    /// A state that cannot be used is an error, never a new question; only the record has the cause.
    pub(super) fn invalid_state(&self, cause: &str) -> Passed {
        self.invalid("invalid_state", INVALID_STATE, cause)
    }

    /// A task of somebody else is one that does not exist. In 2026-07-28, who knows no tasks is told so first, as
    /// the extension has it.
    pub(super) fn unknown_task(&self) -> Passed {
        let knows_tasks = self.caller.era == Era::Handshake || self.caller.capabilities.tasks_extension();
        if knows_tasks {
            self.invalid("unknown_task", NOT_FOUND, "")
        } else {
            self.invalid_as((-32021, Some(TASKS_REQUIRED)), "unknown_task", NO_TASKS, "")
        }
    }

    fn invalid(&self, code: &str, message: &str, note: &str) -> Passed {
        self.invalid_as((-32602, None), code, message, note)
    }

    fn invalid_as(
        &self,
        (number, data): (i64, Option<&'static str>),
        code: &str,
        message: &str,
        note: &str,
    ) -> Passed {
        let written = self.write(Finding {
            policies: &[],
            revision: Digest::of(b""),
            decision: "deny",
            code,
            detail: message,
            forwarded: false,
            ask: None,
            note,
        });
        match written {
            Ok(()) => Passed::Invalid {
                code: number,
                message: message.to_owned(),
                data,
            },
            Err(refused) => Passed::Refused(refused),
        }
    }

    /// Records that the request runs.
    pub(super) fn record_run(&self, verdict: &Verdict, ask: Option<AskRecord>) -> Result<(), Refusal> {
        self.write(Finding {
            policies: &verdict.policies,
            revision: verdict.revision,
            decision: if matches!(verdict.conclusion, Conclusion::Ask(_)) {
                "ask"
            } else {
                "allow"
            },
            code: "",
            detail: "",
            forwarded: true,
            ask,
            note: "",
        })
    }

    /// Records that a question is about to be put.
    pub(super) fn record_question(&self, verdict: &Verdict, prompts: &[String]) -> Result<(), Refusal> {
        let record = Record::Question(QuestionRecord {
            subject: self.subject(&self.attempt.judged.name, &self.attempt.judged.args_json),
            policies: &verdict.policies,
            revision: verdict.revision,
            prompts,
        });
        self.append(&record)
    }

    /// Records the verdict on one resource of a subscription.
    pub(super) fn record_part(&self, verdict: &Verdict, name: &str, args_json: &str) -> Result<(), Refusal> {
        let allowed = verdict.conclusion == Conclusion::Allow;
        let (decision, code) = match &verdict.conclusion {
            Conclusion::Allow => ("allow", ""),
            Conclusion::Ask(_) => ("ask", Code::CannotAsk.as_str()),
            Conclusion::Deny { code, .. } => ("deny", code.as_str()),
        };
        self.append(&Record::Verdict(VerdictRecord {
            subject: self.subject(name, args_json),
            policies: &verdict.policies,
            revision: verdict.revision,
            decision,
            code,
            detail: "",
            forwarded: allowed,
            ask: None,
            note: "one resource of a subscription",
        }))
    }

    fn subject<'s>(&'s self, name: &'s str, args_json: &'s str) -> Subject<'s> {
        Subject {
            decision_id: self.id,
            session: &self.caller.session,
            client: &self.caller.client_info,
            server: &self.gate.server,
            transport: self.gate.transport,
            principal: self
                .caller
                .principal
                .as_ref()
                .map(|principal| principal.subject.as_ref()),
            seam: self.attempt.judged.seam,
            method: self.attempt.request.method(),
            name,
            arguments_digest: Digest::of(args_json.as_bytes()),
            arguments: args_json,
            extra: &self.attempt.judged.extra_json,
        }
    }

    fn write(&self, finding: Finding<'_>) -> Result<(), Refusal> {
        let Finding {
            policies,
            revision,
            decision,
            code,
            detail,
            forwarded,
            ask,
            note,
        } = finding;
        let subject = self.subject(&self.attempt.judged.name, &self.attempt.judged.args_json);
        self.append(&Record::Verdict(VerdictRecord {
            subject,
            policies,
            revision,
            decision,
            code,
            detail,
            forwarded,
            ask,
            note,
        }))
    }

    fn append(&self, record: &Record<'_>) -> Result<(), Refusal> {
        self.gate.audit.append(record).map_err(|error| {
            tracing::error!(decision.id = %self.id, %error, "the audit record cannot be written; the request is refused");
            self.refused(false, Code::AuditUnavailable, Code::AuditUnavailable.fixed_detail())
        })
    }

    fn refused(&self, asked: bool, code: Code, detail: &str) -> Refusal {
        let judged = &self.attempt.judged;
        Refusal {
            tool_or_method: match judged.seam {
                Seam::Tools => judged.name.clone(),
                Seam::Reads => self.attempt.request.method().to_owned(),
            },
            seam: judged.seam,
            asked,
            code,
            detail: detail.to_owned(),
            decision_id: self.id,
        }
    }
}

/// The host takes its own question back.
pub(super) fn withdrawal(question_id: RandomId) -> Bytes {
    Bytes::from(format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{},\"reason\":\"the question is closed\"}}}}\n",
        object::quote(&question_id.to_string())
    ))
}
