//! Lists on their way to the client.

use std::sync::Arc;

use super::state::Forwarded;
use super::{Session, Source};
use crate::gate::lists::{NotShown, Shown};
use crate::upstream::UpstreamFault;
use crate::wire::refusal;
use crate::wire::upstream_frame::Answer;

impl Session {
    /// Has the policies say what of a list is shown, and delivers that. It may take them a while, and nothing else of
    /// the upstream waits for it.
    pub(super) fn show_later(
        self: &Arc<Self>,
        upstream_id: u64,
        forwarded: Forwarded,
        answer: Answer,
        source: Source,
    ) {
        let mut state = self.state();
        let flight = state.in_flight.get(&forwarded.exchange).cloned();
        let (Some(flight), Some(ticket)) = (flight, forwarded.ticket.clone()) else {
            state.dropped += 1;
            return;
        };
        state.showing.insert(upstream_id, forwarded);
        drop(state);
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            let shown = tokio::select! {
                // In this order, so that no policy is asked about a list that nobody waits for any more.
                biased;
                () = flight.over.cancelled() => return,
                shown = session.gate.shown(&ticket, answer) => shown,
            };
            session.show(upstream_id, shown, source).await;
        });
    }

    async fn show(&self, upstream_id: u64, shown: Result<Shown, NotShown>, source: Source) {
        let forwarded = self.state().showing.remove(&upstream_id);
        // Whoever let go of it has said how it ended.
        let Some(forwarded) = forwarded else { return };
        match shown {
            Ok(Shown { answer, hidden }) => self.deliver(&forwarded, answer, source, Some(hidden)).await,
            Err(NotShown::Undeliverable(undeliverable)) => {
                let fault = UpstreamFault::Garbage(undeliverable.to_string());
                self.failed_with(&forwarded, &fault).await;
            }
            Err(NotShown::Refused(refused, era)) => {
                self.record_outcome(&forwarded, refused.code.as_str());
                let exchange = &forwarded.exchange;
                let line = refusal::refusal(&exchange.id, &refused, era);
                self.answer(exchange, Source::Host, line).await;
            }
        }
    }
}
