//! Long answers on the way back: what the gate looks at in them without holding them.

use super::Gate;
use super::deliver::{Ticket, Undeliverable};
use super::tasks::Tasks;
use crate::wire::era::Era;
use crate::wire::id::RequestId;
use crate::wire::long_answer::LongAnswer;
use crate::wire::object;

impl Gate {
    /// Whether the answer to this request may be passed on in pieces. `head` is its beginning.
    ///
    /// What asks for input, hands out a task, lists entries or tells of an error must be looked at as a whole.
    #[must_use]
    pub fn takes_pieces(&self, ticket: &Ticket, head: &[u8]) -> bool {
        let readable = match std::str::from_utf8(head) {
            Ok(text) => Some(text),
            Err(error) => head
                .get(..error.valid_up_to())
                .and_then(|valid| std::str::from_utf8(valid).ok()),
        };
        let head = readable.unwrap_or_default();
        let has = |name: &str| object::member(head, name).is_some();
        let Some(result) = object::member(head, "result") else {
            return false;
        };
        matches!(
            ticket.method.as_str(),
            "tools/call" | "resources/read" | "prompts/get" | "tasks/result"
        ) && !has("method")
            && !has("error")
            && is_complete(ticket.caller.era, result)
    }

    /// The reader of an answer that is passed on in pieces, to the client's request `id`.
    #[must_use]
    pub fn in_pieces(&self, ticket: &Ticket, upstream_id: u64, id: RequestId) -> LongAnswer {
        let noted: &[&str] = match ticket.caller.era {
            Era::Handshake => &["isError", "task"],
            Era::Stateless => &["isError", "resultType"],
        };
        let about_a_task = ticket.method.starts_with("tasks/");
        LongAnswer::new(upstream_id, id, self.hints(ticket, about_a_task), noted)
    }

    /// What the gate must know of an answer of which all but the end has gone out; gives its outcome.
    ///
    /// # Errors
    ///
    /// [`Undeliverable`]; the end must not go out.
    pub fn delivered_in_pieces(
        &self,
        ticket: &Ticket,
        answer: &LongAnswer,
        tasks: &Tasks,
    ) -> Result<&'static str, Undeliverable> {
        let kept = answer.kept();
        if !is_complete(ticket.caller.era, &kept) {
            let detail = "what it is comes too late in a long answer".to_owned();
            return Err(Undeliverable(detail));
        }
        if ticket.method == "tools/call" {
            tasks.learn(ticket.caller.era, ticket.caller.principal.as_ref(), &kept);
        }
        Ok(match object::member(&kept, "isError") {
            Some("true") => "tool_error",
            Some(_) | None => "ok",
        })
    }
}

/// Whether a result is nothing but what was asked for.
fn is_complete(era: Era, result: &str) -> bool {
    match (era, object::member(result, "resultType")) {
        (Era::Handshake, _) | (Era::Stateless, None) => true,
        (Era::Stateless, Some(kind)) => object::text(kind).as_deref() == Some("complete"),
    }
}
