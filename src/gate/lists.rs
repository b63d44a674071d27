//! Lists on the way back: what the policies hide is left out of them, and clients are told that this can change.
//!
//! Hiding is not denying: the use of what is hidden is judged as if it were shown.
//!
//! INVARIANT: an entry leaves only when it was read in the one way in which it can be read, and the chain showed it.
//! What cannot be read so is not delivered, and a chain that does not say what it shows refuses the list.

use tokio::sync::watch;

use super::Gate;
use super::deliver::{GATED_TTL_MS_MAX, Ticket, Undeliverable};
use crate::decision::{Fault, Kind, Seam};
use crate::seam::{Authorizer, Entry, Guard, Listing};
use crate::vocabulary::Digest;
use crate::wire::era::Era;
use crate::wire::hints::Hints;
use crate::wire::list::Told;
use crate::wire::refusal::Refusal;
use crate::wire::upstream_frame::Answer;
use crate::wire::{list, object};

/// A list with what its caller may see of it.
#[derive(Debug)]
pub struct Shown {
    /// The answer.
    pub answer: Answer,
    /// How many entries were left out.
    pub hidden: usize,
}

/// Why nothing of a list is delivered.
#[derive(Debug)]
pub enum NotShown {
    /// The upstream's answer can be read in more than one way, or not at all.
    Undeliverable(Undeliverable),
    /// The policies did not say what they show. With the era in which the client is told.
    Refused(Refusal, Era),
}

impl Gate {
    /// Follows what decides which entries lists of one seam show; none where nothing ever will.
    #[must_use]
    pub fn follow_hiding(&self, seam: Seam) -> Option<watch::Receiver<Option<Digest>>> {
        match self.guards.of(seam) {
            Guard::Chain(chain) => Some(chain.hiding()),
            Guard::Unset => None,
        }
    }

    /// Whether policies have a say in what this list shows, so that it can change with them.
    #[must_use]
    pub fn changes(&self, told: Told) -> bool {
        self.follow_hiding(told.seam())
            .is_some_and(|hiding| hiding.borrow().is_some())
    }

    /// An answer to `initialize` or `server/discover` that says of which lists changes will be told.
    ///
    /// From 2026-07-28 on they are told on subscriptions, which not every server has; there the client goes by the
    /// time for which it may keep the list.
    #[must_use]
    pub fn announcing(&self, era: Era, answer: Answer) -> Answer {
        let result = answer.result().unwrap_or("{}");
        let capabilities = object::member(result, "capabilities").unwrap_or("{}");
        if era == Era::Stateless && !list::has_subscriptions(capabilities) {
            return answer;
        }
        let mut announced = capabilities.to_owned();
        for told in list::served(capabilities) {
            if self.changes(told) {
                let capability = object::member(capabilities, told.capability()).unwrap_or("{}");
                let capability = object::with_member(capability, "listChanged", Some("true"));
                announced = object::with_member(&announced, told.capability(), Some(&capability));
            }
        }
        if announced == capabilities {
            return answer;
        }
        answer.with_result_members(&[("capabilities", &announced)])
    }

    /// Whether policies have a say in what the answer to this request shows.
    #[must_use]
    pub fn hides(&self, ticket: &Ticket) -> bool {
        self.hiding(ticket).is_some()
    }

    fn hiding(&self, ticket: &Ticket) -> Option<(Kind, &dyn Authorizer)> {
        let kind = list::listed(&ticket.method)?;
        match self.guards.of(kind.seam()) {
            Guard::Chain(chain) if chain.hiding().borrow().is_some() => Some((kind, chain.as_ref())),
            Guard::Chain(_) | Guard::Unset => None,
        }
    }

    /// The answer to a request for a list, without what the policies hide.
    ///
    /// Takes as long as they do. Dropping the future leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`NotShown`]; the client gets nothing of the list.
    pub async fn shown(&self, ticket: &Ticket, answer: Answer) -> Result<Shown, NotShown> {
        let (Some((kind, chain)), Some(result)) = (self.hiding(ticket), answer.result()) else {
            return Ok(Shown { answer, hidden: 0 });
        };
        let list = list::read(kind, result)
            .map_err(|error| NotShown::Undeliverable(Undeliverable(error.to_string())))?;
        let entries: Vec<Entry<'_>> = list
            .entries
            .iter()
            .map(|entry| Entry {
                name: &entry.name,
                json: entry.json,
            })
            .collect();
        let listing = Listing {
            kind,
            entries: &entries,
            context: self.context(&ticket.caller),
        };
        let shown = chain.show(&listing).await;
        let shown = shown.map_err(|fault| NotShown::Refused(refused(ticket, fault), ticket.caller.era))?;
        let hidden = entries.len() - shown.iter().filter(|shown| **shown).count().min(entries.len());
        let kept = list.with_only(&shown);
        // What was hidden from nobody this time may be hidden from somebody, or from the same one later.
        let hinted = match ticket.caller.era {
            Era::Handshake => kept,
            Era::Stateless => Some(private(kept.as_deref().unwrap_or(result))),
        };
        let answer = match hinted {
            Some(result) => answer.with_result(&result),
            None => answer,
        };
        Ok(Shown { answer, hidden })
    }
}

/// The result as one that is nobody else's, and that does not outlive the policies for long.
fn private(result: &str) -> String {
    let ttl_ms = Hints::Capped(GATED_TTL_MS_MAX).ttl_ms(object::member(result, "ttlMs"));
    let result = object::with_member(result, "ttlMs", Some(&ttl_ms));
    object::with_member(&result, "cacheScope", Some(Hints::SCOPE))
}

fn refused(ticket: &Ticket, fault: Fault) -> Refusal {
    let code = fault.code();
    Refusal {
        tool_or_method: ticket.method.clone(),
        seam: ticket.seam,
        asked: false,
        code,
        detail: code.fixed_detail().to_owned(),
        decision_id: ticket.decision_id,
    }
}
