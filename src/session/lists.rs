//! Lists on their way to the client, and word of it when the policies change what they show.

use std::sync::Arc;

use tokio::sync::watch;

use super::state::{Conversation, Forwarded, Opening};
use super::{Exchange, Session, Source, To};
use crate::decision::Seam;
use crate::gate::lists::{NotShown, Shown};
use crate::upstream::UpstreamFault;
use crate::vocabulary::Digest;
use crate::wire::era::Era;
use crate::wire::frame::Notification;
use crate::wire::list::{self, Told};
use crate::wire::upstream_frame::Answer;
use crate::wire::{object, refusal};

/// What the upstream says first on a subscription: what it will tell there (2026-07-28).
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

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

    /// Tells the client whenever policies come into force that show other entries. Never ends by itself.
    pub(super) async fn announce(&self) {
        let mut tools = self.gate.follow_hiding(Seam::Tools);
        let mut reads = self.gate.follow_hiding(Seam::Reads);
        loop {
            let seam = tokio::select! {
                // Order does not matter: what changes at the same time is told next.
                () = changed(&mut tools) => Seam::Tools,
                () = changed(&mut reads) => Seam::Reads,
            };
            let (lists, subscriptions) = self.state().concerned(seam);
            for told in lists {
                self.tell(told).await;
            }
            for (exchange, told) in subscriptions {
                let line = told.changed(Some(exchange.id.raw()));
                let _client_is_gone = self.send(To::Call(exchange), line).await;
            }
        }
    }

    /// Tells a client of the 2025 revisions of a change, now or as soon as something is open that can carry it.
    async fn tell(&self, told: Told) {
        if self.send(To::Session, told.changed(None)).await {
            return;
        }
        let untold = &mut self.state().untold;
        if !untold.contains(&told) {
            untold.push(told);
        }
    }

    /// Tells of what could not be told before. An answer is about to go out, so a stream is open.
    pub(super) async fn tell_again(&self) {
        let untold = std::mem::take(&mut self.state().untold);
        for told in untold {
            self.tell(told).await;
        }
    }

    /// What a subscription is promised: what the upstream promises, and word of the lists that policies change.
    pub(super) fn promised(&self, to: &To, notification: Notification) -> Notification {
        let (ACKNOWLEDGED, To::Call(exchange)) = (notification.method(), to) else {
            return notification;
        };
        let mut state = self.state();
        let forwarded = state.forwarded.values_mut();
        let mut subscribed = forwarded.filter(|forwarded| forwarded.exchange == *exchange);
        let Some(Forwarded { subscribed, .. }) = subscribed.next() else {
            return notification;
        };
        let params = notification.params().unwrap_or("{}");
        let filter = object::member(params, "notifications").unwrap_or("{}");
        let added = subscribed.asked.iter().filter(|told| self.gate.changes(**told));
        let promised = added.fold(filter.to_owned(), |filter, told| {
            object::with_member(&filter, told.filter(), Some("true"))
        });
        subscribed.promised = list::asked(&promised);
        if promised == filter {
            return notification;
        }
        notification.with_param("notifications", Some(&promised))
    }
}

impl Conversation {
    /// Who must hear that a chain shows other entries: of which lists the session as a whole, and which subscriptions.
    fn concerned(&self, seam: Seam) -> (Vec<Told>, Vec<(Exchange, Told)>) {
        let of_this_seam = |told: &Told| told.seam() == seam;
        match self.opening {
            // Nobody has seen a list yet.
            Opening::Undecided | Opening::Initializing => (Vec::new(), Vec::new()),
            Opening::Settled(Era::Handshake) => {
                let lists = self.lists.iter().copied().filter(of_this_seam);
                (lists.collect(), Vec::new())
            }
            Opening::Settled(Era::Stateless) => {
                let subscriptions = self.forwarded.values().flat_map(|forwarded| {
                    let promised = forwarded.subscribed.promised.iter().copied();
                    promised.map(|told| (forwarded.exchange.clone(), told))
                });
                let concerned = subscriptions.filter(|(_, told)| of_this_seam(told));
                (Vec::new(), concerned.collect())
            }
        }
    }
}

/// Waits until other policies decide what is shown; for ever where that cannot be. Cancel-safe.
async fn changed(hiding: &mut Option<watch::Receiver<Option<Digest>>>) {
    if let Some(hiding) = hiding
        && hiding.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}
