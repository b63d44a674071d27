//! What a refusal tells the client: a code, and a text that says what to do and nothing of the inside.

use crate::decision::Code;

/// The `detail` of a refusal whose code carries no text of a policy (ruling R34).
#[must_use]
pub fn fixed_detail(code: Code) -> &'static str {
    match code {
        Code::Denied => "the policy denied this request",
        Code::CannotAsk => "this request needs an approval, and nobody can be asked here",
        Code::Declined => "the person who was asked declined this call",
        Code::Cancelled => "the question was dismissed without an answer; the call was not made",
        Code::NotApproved => {
            "the answer was not an approval: only action `accept` with exactly `approve: true` is one"
        }
        Code::Timeout => "nobody answered in time; the client may not show questions, or the person was away",
        Code::PolicyChanged => {
            "the policies changed while the question was open and still ask; make the call again to be asked anew"
        }
        Code::PolicyTrap => "a policy failed while judging this request; see the audit record",
        Code::PolicyTimeout => "a policy ran past its deadline; see the audit record",
        Code::PolicyMemory => "a policy asked for more memory than its limit; see the audit record",
        Code::PolicyOutput => {
            "a policy gave an answer that is no decision or is too large; see the audit record"
        }
        Code::PolicyInternal => "the host failed while judging this request; see its log",
        Code::PolicyLoad => "a policy could not be started; see the audit record",
        Code::AuditUnavailable => {
            "the audit record cannot be written, so nothing may pass; see the host's log"
        }
    }
}

/// The `detail` of every refusal on the reads seam by an ask: never the prompt (ruling R15).
pub const READS_NEVER_ASK: &str = "this read needs an approval, and reads are never asked about";

/// The `detail` of a call refused by an unset chain because the tool declares itself destructive (ruling R14).
pub const DESTRUCTIVE_UNGUARDED: &str =
    "this tool declares itself destructive and no tools policy is set; start the gate with a tools policy";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_says_that_the_client_may_not_show_questions() {
        assert!(fixed_detail(Code::Timeout).contains("may not show"));
    }
}
