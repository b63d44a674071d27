//! The chain: the policies of one seam in order, and how their decisions combine (semantics
//! section 3).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

use super::judge::caught;
use super::lists::{self, Viewing};
use super::load::Policy;
use crate::decision::{Code, Conclusion, Decision, Fault, Mode, PolicyRecord, Verdict};
use crate::seam::{Authorizer, Call, Judgement, Listing, Showing};
use crate::vocabulary::Digest;

/// What one policy answers: a decision or a fault, and the microseconds that it took.
pub type Answer<'a> = Pin<Box<dyn Future<Output = (Result<Decision, (Fault, String)>, u64)> + Send + 'a>>;

/// Whether one entry of a list is shown, or a fault.
pub type Shows<'a> = Pin<Box<dyn Future<Output = Result<bool, (Fault, String)>> + Send + 'a>>;

/// One policy of a chain. [`Policy`] is the one that counts; the others stand in for it in tests.
pub trait Member: Send + Sync + fmt::Debug {
    /// How it is called in records.
    fn name(&self) -> &str;

    /// Digest over its code and configuration.
    fn digest(&self) -> Digest;

    /// Digest over everything that makes it decide as it does.
    fn identity(&self) -> Digest;

    /// Whether its decisions count.
    fn mode(&self) -> Mode;

    /// Judges one call.
    fn answer<'a>(&'a self, call: &'a Call<'a>) -> Answer<'a>;

    /// Whether it says which entries of lists are shown.
    fn hides(&self) -> bool;

    /// Says whether an entry of a list is shown.
    fn shows<'a>(&'a self, viewing: Viewing<'a>) -> Shows<'a>;
}

impl Member for Policy {
    fn name(&self) -> &str {
        self.name()
    }

    fn digest(&self) -> Digest {
        self.digest()
    }

    fn identity(&self) -> Digest {
        self.identity()
    }

    fn mode(&self) -> Mode {
        self.mode()
    }

    fn answer<'a>(&'a self, call: &'a Call<'a>) -> Answer<'a> {
        Box::pin(self.decide(call))
    }

    fn hides(&self) -> bool {
        self.facts().visibility
    }

    fn shows<'a>(&'a self, viewing: Viewing<'a>) -> Shows<'a> {
        Box::pin(self.view(viewing))
    }
}

/// The policies of one seam, in order.
#[derive(Clone, Debug)]
pub struct Chain {
    members: Vec<Arc<dyn Member>>,
    revision: Digest,
}

impl Chain {
    /// A chain of these policies.
    #[must_use]
    pub fn new(policies: Vec<Policy>) -> Self {
        Self::of(
            policies
                .into_iter()
                .map(|policy| Arc::new(policy) as Arc<dyn Member>)
                .collect(),
        )
    }

    /// A chain of anything that answers.
    #[must_use]
    pub fn of(members: Vec<Arc<dyn Member>>) -> Self {
        // Observers are left out: an approval must outlive a change of what only watches.
        let identities: Vec<Digest> = members
            .iter()
            .filter(|member| member.mode() == Mode::Enforce)
            .map(|member| member.identity())
            .collect();
        let revision = Digest::of_parts(identities.iter().map(|identity| identity.as_bytes().as_slice()));
        Self { members, revision }
    }

    /// What decides which entries of lists are shown; none when every one is.
    pub(super) fn hiding_revision(&self) -> Option<Digest> {
        lists::revision(&self.members)
    }

    async fn conclude(&self, call: &Call<'_>) -> Verdict {
        let mut policies = Vec::with_capacity(self.members.len());
        let mut prompts = Vec::new();
        let mut denial = None;
        for member in &self.members {
            let record = record(member.as_ref(), call).await;
            let effect = effect(&record);
            policies.push(record);
            match effect {
                Effect::Nothing => {}
                Effect::Ask(prompt) => prompts.push(prompt),
                Effect::Deny(code, detail) => {
                    denial = Some(Conclusion::Deny { code, detail });
                    break;
                }
            }
        }
        let conclusion = denial.unwrap_or_else(|| self.undenied(prompts));
        Verdict {
            conclusion,
            revision: self.revision,
            policies,
        }
    }

    /// The conclusion when no policy that counts denied.
    fn undenied(&self, prompts: Vec<String>) -> Conclusion {
        let nobody = |detail: &str| Conclusion::Deny {
            code: Code::Denied,
            detail: detail.to_owned(),
        };
        if self.members.is_empty() {
            return nobody("the policy chain is empty");
        }
        if self.members.iter().all(|member| member.mode() == Mode::Observe) {
            return nobody("every policy of the chain only observes");
        }
        if prompts.is_empty() {
            Conclusion::Allow
        } else {
            Conclusion::Ask(prompts)
        }
    }
}

impl Authorizer for Chain {
    fn judge<'a>(&'a self, call: &'a Call<'a>) -> Judgement<'a> {
        Box::pin(self.conclude(call))
    }

    fn revision(&self) -> Digest {
        self.revision
    }

    fn show<'a>(&'a self, listing: &'a Listing<'a>) -> Showing<'a> {
        Box::pin(lists::shown(&self.members, listing))
    }

    fn hiding(&self) -> watch::Receiver<Option<Digest>> {
        // Nobody keeps the sender: this chain never changes.
        watch::Sender::new(self.hiding_revision()).subscribe()
    }
}

async fn record(member: &dyn Member, call: &Call<'_>) -> PolicyRecord {
    let answer = caught(async { Ok(member.answer(call).await) }).await;
    let (decision, micros) = answer.unwrap_or_else(|fault| (Err(fault), 0));
    if let Err((fault, detail)) = &decision {
        let code = fault.code().as_str();
        let detail = super::text::escaped(detail.as_bytes(), DETAIL_BYTES_MAX);
        tracing::warn!(
            policy = member.name(),
            code,
            "the policy gave no decision: {detail}"
        );
    }
    PolicyRecord {
        policy: member.name().to_owned(),
        digest: member.digest(),
        mode: member.mode(),
        decision,
        now_unix_ms: call.context.now_unix_ms,
        micros,
    }
}

/// Text of a fault in the log, in bytes.
const DETAIL_BYTES_MAX: usize = 4096;

/// What one record does to the conclusion.
enum Effect {
    Nothing,
    Ask(String),
    Deny(Code, String),
}

fn effect(record: &PolicyRecord) -> Effect {
    match (record.mode, &record.decision) {
        (Mode::Observe, _) | (Mode::Enforce, Ok(Decision::Allow)) => Effect::Nothing,
        (Mode::Enforce, Ok(Decision::Ask(prompt))) => Effect::Ask(prompt.clone()),
        (Mode::Enforce, Ok(Decision::Deny(reason))) => Effect::Deny(Code::Denied, reason.clone()),
        (Mode::Enforce, Err((fault, _))) => {
            let code = fault.code();
            Effect::Deny(code, code.fixed_detail().to_owned())
        }
    }
}
