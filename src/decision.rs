//! What one policy answers, what a chain concludes, and the codes of every refusal.
//!
//! Knows neither MCP nor WebAssembly.

use crate::vocabulary::Digest;

/// One of the two places where a request is judged (semantics section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Seam {
    /// `tools/call`.
    Tools,
    /// Everything else that reads from or acts on the server.
    Reads,
}

impl Seam {
    /// The word for this seam in `ctx.seam`, in configuration and in audit records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Reads => "reads",
        }
    }
}

/// What a list has entries of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Tools.
    Tool,
    /// Resources.
    Resource,
    /// Templates of resources.
    Template,
    /// Prompts.
    Prompt,
}

impl Kind {
    /// The word for it in the contract of policies.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Template => "template",
            Self::Prompt => "prompt",
        }
    }

    /// The seam whose chain says which entries are shown: the one that judges their use.
    #[must_use]
    pub fn seam(self) -> Seam {
        match self {
            Self::Tool => Seam::Tools,
            Self::Resource | Self::Template | Self::Prompt => Seam::Reads,
        }
    }
}

/// What one policy answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request may pass.
    Allow,
    /// A person must approve; the text is the policy's prompt.
    Ask(String),
    /// The request must not pass; the text is the policy's reason.
    Deny(String),
}

/// Why a policy gave no decision (semantics section 4). Always a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// The guest trapped.
    Trap,
    /// The guest ran past its deadline.
    Timeout,
    /// The guest asked for more memory or table than its limit.
    Memory,
    /// The guest returned something too large, or that is no decision.
    Output,
    /// The host panicked or failed while judging.
    Internal,
    /// The policy could not be loaded or configured.
    Load,
}

impl Fault {
    /// The refusal code that this fault becomes.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Self::Trap => Code::PolicyTrap,
            Self::Timeout => Code::PolicyTimeout,
            Self::Memory => Code::PolicyMemory,
            Self::Output => Code::PolicyOutput,
            Self::Internal => Code::PolicyInternal,
            Self::Load => Code::PolicyLoad,
        }
    }
}

/// The machine-readable cause of a refusal (semantics section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A policy denied, or no policy of the chain decides.
    Denied,
    /// A policy asked and nobody can be asked.
    CannotAsk,
    /// The person declined.
    Declined,
    /// The question was dismissed, or the host is stopping.
    Cancelled,
    /// The answer was not an approval.
    NotApproved,
    /// Nobody answered in time.
    Timeout,
    /// The policies changed while the question was open, and they still ask.
    PolicyChanged,
    /// See [`Fault::Trap`].
    PolicyTrap,
    /// See [`Fault::Timeout`].
    PolicyTimeout,
    /// See [`Fault::Memory`].
    PolicyMemory,
    /// See [`Fault::Output`].
    PolicyOutput,
    /// See [`Fault::Internal`].
    PolicyInternal,
    /// See [`Fault::Load`].
    PolicyLoad,
    /// The audit record could not be written.
    AuditUnavailable,
}

impl Code {
    /// The code as it stands in a refusal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::CannotAsk => "cannot_ask",
            Self::Declined => "declined",
            Self::Cancelled => "cancelled",
            Self::NotApproved => "not_approved",
            Self::Timeout => "timeout",
            Self::PolicyChanged => "policy_changed",
            Self::PolicyTrap => "policy_trap",
            Self::PolicyTimeout => "policy_timeout",
            Self::PolicyMemory => "policy_memory",
            Self::PolicyOutput => "policy_output",
            Self::PolicyInternal => "policy_internal",
            Self::PolicyLoad => "policy_load",
            Self::AuditUnavailable => "audit_unavailable",
        }
    }

    /// The `detail` of a refusal whose code carries no text of a policy (ruling R34).
    #[must_use]
    pub fn fixed_detail(self) -> &'static str {
        match self {
            Self::Denied => "the policy denied this request",
            Self::CannotAsk => "this request needs an approval, and nobody can be asked here",
            Self::Declined => "the person who was asked declined this call",
            Self::Cancelled => "the question was dismissed without an answer; the call was not made",
            Self::NotApproved => {
                "the answer was not an approval: only action `accept` with exactly `approve: true` is one"
            }
            Self::Timeout => {
                "nobody answered in time; the client may not show questions, or the person was away"
            }
            Self::PolicyChanged => {
                "the policies changed while the question was open and still ask; make the call again to be asked anew"
            }
            Self::PolicyTrap => "a policy failed while judging this request; see the audit record",
            Self::PolicyTimeout => "a policy ran past its deadline; see the audit record",
            Self::PolicyMemory => "a policy asked for more memory than its limit; see the audit record",
            Self::PolicyOutput => {
                "a policy gave an answer that is no decision or is too large; see the audit record"
            }
            Self::PolicyInternal => "the host failed while judging this request; see its log",
            Self::PolicyLoad => "a policy could not be started; see the audit record",
            Self::AuditUnavailable => {
                "the audit record cannot be written, so nothing may pass; see the host's log"
            }
        }
    }
}

/// Whether a policy counts in its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Its decision counts.
    Enforce,
    /// It runs and is recorded, and does not count (semantics section 3).
    Observe,
}

/// What one policy of a chain did in one judgement, for the audit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRecord {
    /// The policy's name: its file, or `builtin:NAME`.
    pub policy: String,
    /// Digest over the component's bytes and its configuration.
    pub digest: Digest,
    /// Whether the decision counted.
    pub mode: Mode,
    /// The decision, or why there was none and what exactly happened (for the log and the record only).
    pub decision: Result<Decision, (Fault, String)>,
    /// The clock reading that the policy was told, in milliseconds since 1970: with it, a decision
    /// can be made again.
    pub now_unix_ms: u64,
    /// How long this policy took, in microseconds.
    pub micros: u64,
}

/// What a chain concludes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// Every enforcing policy allowed, and there was at least one.
    Allow,
    /// At least one policy asked and none denied: the prompts, in the order of the chain. Never empty.
    Ask(Vec<String>),
    /// The first denial.
    Deny {
        /// Why.
        code: Code,
        /// The policy's own reason for [`Code::Denied`], [`Code::fixed_detail`] for every other code.
        detail: String,
    },
}

/// What a chain concludes, with the decision of every policy that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The conclusion.
    pub conclusion: Conclusion,
    /// The revision of the chain that judged. Covers enforcing policies only (ruling L8).
    pub revision: Digest,
    /// Every policy that ran, in order.
    pub policies: Vec<PolicyRecord>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_says_that_the_client_may_not_show_questions() {
        assert!(Code::Timeout.fixed_detail().contains("may not show"));
    }
}
