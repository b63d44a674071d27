//! Asks: approvals in progress.
//!
//! In the 2025 revisions a call is parked while its question is open ([`parked`]); from 2026-07-28 on
//! the ask travels as a sealed `requestState` in the client's hands ([`sealed`]). What is an approval
//! is decided in one place, [`Answer::read`].

pub mod parked;
pub mod question;
pub mod sealed;

use std::time::Duration;

use crate::decision::Code;
use crate::wire::object;

/// The limits of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskSettings {
    /// How long a parked call waits, counted from its arrival. The official TypeScript clients give up at 60 s.
    pub deadline: Duration,
    /// How long a sealed state can be used.
    pub state_ttl: Duration,
    /// Questions of one session that are open at the same time; further ones queue (ruling R37).
    pub open_questions_per_session: usize,
    /// Parked calls of one session, those that queue included.
    pub parked_per_session: usize,
    /// Parked calls of the whole host.
    pub parked_total: usize,
}

impl Default for AskSettings {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(50),
            state_ttl: Duration::from_secs(300),
            open_questions_per_session: 1,
            parked_per_session: 32,
            parked_total: 1024,
        }
    }
}

/// What a person's answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `accept` with exactly `approve: true`. Nothing else is an approval.
    Approved,
    /// The action `decline`, whatever its content.
    Declined,
    /// The action `cancel`, whatever its content.
    Cancelled,
    /// Everything else.
    NotApproved,
}

impl Answer {
    /// Reads the result of an elicitation, raw (semantics section 5; rulings R30 and R31).
    #[must_use]
    pub fn read(result: &str) -> Self {
        let action = object::member(result, "action").and_then(object::text);
        match action.as_deref() {
            Some("accept") if approves(result) => Self::Approved,
            Some("decline") => Self::Declined,
            Some("cancel") => Self::Cancelled,
            Some(_) | None => Self::NotApproved,
        }
    }

    /// The refusal that the answer becomes; none for an approval.
    #[must_use]
    pub fn refusal(self) -> Option<Code> {
        match self {
            Self::Approved => None,
            Self::Declined => Some(Code::Declined),
            Self::Cancelled => Some(Code::Cancelled),
            Self::NotApproved => Some(Code::NotApproved),
        }
    }
}

/// Extra members count inside `content` only; members beside `action` and `content` are ignored.
fn approves(result: &str) -> bool {
    let Some(content) = object::member(result, "content") else {
        return false;
    };
    let mut members = object::members(content);
    let only = (members.next(), members.next());
    matches!(only, (Some(member), None) if member.name == "approve" && member.value == "true")
}

/// How an ask ended, as the audit record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskOutcome {
    /// A person answered.
    Answered(Answer),
    /// Nobody answered in time.
    Timeout,
    /// The client took the call back.
    Withdrawn,
    /// The client went away.
    Disconnected,
    /// The host is stopping.
    Shutdown,
}

impl AskOutcome {
    /// The word in the audit record.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered(Answer::Approved) => "approved",
            Self::Answered(Answer::Declined) => "declined",
            Self::Answered(Answer::Cancelled) | Self::Withdrawn => "cancelled",
            Self::Answered(Answer::NotApproved) => "not_approved",
            Self::Timeout => "timeout",
            Self::Disconnected => "disconnected",
            Self::Shutdown => "shutdown",
        }
    }

    /// The refusal that the outcome becomes; none for an approval.
    #[must_use]
    pub fn refusal(self) -> Option<Code> {
        match self {
            Self::Answered(answer) => answer.refusal(),
            Self::Timeout => Some(Code::Timeout),
            Self::Withdrawn | Self::Disconnected | Self::Shutdown => Some(Code::Cancelled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_shape_approves() {
        #[track_caller]
        fn check(result: &str, expected: Answer) {
            assert_eq!(expected, Answer::read(result), "{result}");
        }
        check(
            r#"{"action":"accept","content":{"approve":true}}"#,
            Answer::Approved,
        );
        check(
            r#"{"action":"accept","content":{"\u0061pprove":true}}"#,
            Answer::Approved,
        );
        check(
            r#"{ "content" : { "approve" : true } , "action" : "accept", "_meta":{} }"#,
            Answer::Approved,
        );
        check(
            r#"{"action":"accept","content":{"approve":false}}"#,
            Answer::NotApproved,
        );
        check(
            r#"{"action":"accept","content":{"approve":"true"}}"#,
            Answer::NotApproved,
        );
        check(
            r#"{"action":"accept","content":{"approve":1}}"#,
            Answer::NotApproved,
        );
        check(
            r#"{"action":"accept","content":{"approve":true,"x":1}}"#,
            Answer::NotApproved,
        );
        check(
            r#"{"action":"accept","content":{"Approve":true}}"#,
            Answer::NotApproved,
        );
        check(r#"{"action":"accept","content":{}}"#, Answer::NotApproved);
        check(r#"{"action":"accept","content":[true]}"#, Answer::NotApproved);
        check(r#"{"action":"accept","content":null}"#, Answer::NotApproved);
        check(r#"{"action":"accept"}"#, Answer::NotApproved);
        check(
            r#"{"action":["accept"],"content":{"approve":true}}"#,
            Answer::NotApproved,
        );
        check(
            r#"{"action":"Accept","content":{"approve":true}}"#,
            Answer::NotApproved,
        );
        check(
            r#"{"action":"decline","content":{"approve":true}}"#,
            Answer::Declined,
        );
        check(r#"{"action":"cancel"}"#, Answer::Cancelled);
        check(r#"{}"#, Answer::NotApproved);
        check("true", Answer::NotApproved);
        check("[]", Answer::NotApproved);
    }
}
