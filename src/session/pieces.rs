//! Long answers, passed on to the client as they come from the upstream.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Exchange, Session, Source};
use crate::gate::deliver::Ticket;
use crate::upstream::{Long, UpstreamFault};
use crate::wire::long_answer::{LongAnswer, Piece};

/// Why the rest of an answer does not go to the client.
enum Cut {
    /// The client takes no more.
    Client,
    /// It cannot be delivered.
    Answer(String),
    /// The upstream has not sent it, and says why elsewhere.
    Upstream,
}

impl Session {
    /// Takes a long answer in pieces, if the gate can follow it so and the client's transport can carry it so.
    pub(super) fn offered(self: &Arc<Self>, long: Long) {
        let state = self.state();
        let Some(forwarded) = state.forwarded.get(&long.about) else {
            return;
        };
        let flight = state.in_flight.get(&forwarded.exchange).cloned();
        let (Some(flight), Some(ticket)) = (flight, forwarded.ticket.clone()) else {
            return;
        };
        let exchange = forwarded.exchange.clone();
        drop(state);
        if !self.gate.takes_pieces(&ticket, &long.head) {
            return;
        }
        let source = long.http_status.map_or(Source::Event, Source::Body);
        let Some(client) = self.client.in_pieces(&exchange, source) else {
            return;
        };
        let (taker, pieces) = mpsc::channel(1);
        if long.accept.send(taker).is_err() {
            // The request is over; whoever ended it finds the client's stream closed.
            return;
        }
        let session = Arc::clone(self);
        self.tasks.spawn(async move {
            let passed = session.pass_on(long.about, &ticket, &exchange, pieces, client);
            tokio::select! {
                // In this order, so that nothing goes to a client whose request is over.
                biased;
                () = flight.over.cancelled() => {}
                () = passed => {}
            }
        });
    }

    async fn pass_on(
        &self,
        upstream_id: u64,
        ticket: &Ticket,
        exchange: &Exchange,
        mut pieces: mpsc::Receiver<Piece>,
        client: mpsc::Sender<Piece>,
    ) {
        let mut answer = self.gate.in_pieces(ticket, upstream_id, exchange.id.clone());
        match self.pass(ticket, &mut answer, &mut pieces, &client).await {
            Ok(outcome) => {
                let (flight, forwarded) = {
                    let mut state = self.state();
                    let forwarded = state.forwarded.remove(&upstream_id);
                    (state.in_flight.remove(exchange), forwarded)
                };
                if let Some(forwarded) = forwarded {
                    self.record_outcome(&forwarded, outcome);
                }
                if let Some(flight) = flight {
                    flight.over.cancel();
                }
            }
            Err(Cut::Client) => self.forget(exchange, Some(upstream_id)),
            Err(Cut::Answer(detail)) => self.failed(upstream_id, &UpstreamFault::Garbage(detail)).await,
            // Until then the client's stream stays as it is.
            Err(Cut::Upstream) => std::future::pending().await,
        }
    }

    async fn pass(
        &self,
        ticket: &Ticket,
        answer: &mut LongAnswer,
        pieces: &mut mpsc::Receiver<Piece>,
        client: &mpsc::Sender<Piece>,
    ) -> Result<&'static str, Cut> {
        loop {
            let (part, outcome) = match pieces.recv().await.ok_or(Cut::Upstream)? {
                Piece::Part(bytes) => (answer.part(&bytes), None),
                Piece::End => {
                    let last = answer.end();
                    let delivered = self.gate.delivered_in_pieces(ticket, answer, &self.tasks_made);
                    let outcome = delivered.map_err(|error| Cut::Answer(error.to_string()))?;
                    (last, Some(outcome))
                }
            };
            let part = part.map_err(|error| Cut::Answer(error.to_string()))?;
            if !part.is_empty() {
                let sent = client.send(Piece::Part(part)).await;
                sent.map_err(|_gone| Cut::Client)?;
            }
            if let Some(outcome) = outcome {
                let sent = client.send(Piece::End).await;
                return sent.map(|()| outcome).map_err(|_gone| Cut::Client);
            }
        }
    }
}
