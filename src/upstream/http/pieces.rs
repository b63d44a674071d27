//! Long answers, passed on as they come.

use bytes::Bytes;
use reqwest::Response;
use tokio::sync::{mpsc, oneshot};

use super::Connection;
use crate::upstream::{Incoming, Long, UpstreamFault};
use crate::wire::event::{EventPiece, EventSplitter};
use crate::wire::long_answer::Piece;

/// From this length on, in bytes, a message is passed on in pieces to whoever takes it so.
pub(super) const LONG_BYTES: usize = 256 * 1024;

/// Whether somebody takes a message in pieces.
pub(super) enum Offered {
    /// It is too short to ask.
    NotYet,
    /// Nobody does.
    Declined,
    /// To this one they go.
    Taken(mpsc::Sender<Piece>),
}

impl Offered {
    /// Asks once, as soon as what has come of the message is long enough.
    pub(super) async fn ask(
        &mut self,
        connection: &Connection,
        about: u64,
        http_status: Option<u16>,
        bytes: usize,
        head: impl FnOnce() -> Bytes,
    ) {
        if !matches!(self, Self::NotYet) || bytes < LONG_BYTES {
            return;
        }
        let (accept, accepted) = oneshot::channel();
        let head = head();
        connection
            .deliver(Incoming::Long(Long {
                about,
                http_status,
                head,
                accept,
            }))
            .await;
        *self = match accepted.await {
            Ok(pieces) => Self::Taken(pieces),
            Err(_dropped) => Self::Declined,
        };
    }
}

/// Why the rest of a message did not go out.
pub(super) enum Cut {
    /// Nobody takes it any more.
    NotTaken,
    /// The upstream has not sent it.
    Upstream(UpstreamFault),
}

/// Passes on a body whose beginning is `head`.
pub(super) async fn body(
    head: Bytes,
    mut response: Response,
    pieces: &mpsc::Sender<Piece>,
) -> Result<(), Cut> {
    send(pieces, Piece::Part(head)).await?;
    while let Some(chunk) = next(&mut response).await? {
        send(pieces, Piece::Part(chunk)).await?;
    }
    send(pieces, Piece::End).await
}

/// Passes on the event that the splitter is in.
pub(super) async fn event(
    splitter: &mut EventSplitter,
    response: &mut Response,
    pieces: &mpsc::Sender<Piece>,
) -> Result<(), Cut> {
    loop {
        while let Some(piece) = splitter
            .next_piece()
            .map_err(|error| Cut::Upstream(UpstreamFault::Garbage(error.to_string())))?
        {
            match piece {
                EventPiece::Data(data) => send(pieces, Piece::Part(data)).await?,
                EventPiece::End => return send(pieces, Piece::End).await,
            }
        }
        let Some(chunk) = next(response).await? else {
            let fault = UpstreamFault::Garbage("its stream ended within the answer".to_owned());
            return Err(Cut::Upstream(fault));
        };
        splitter.push(&chunk);
    }
}

async fn send(pieces: &mpsc::Sender<Piece>, piece: Piece) -> Result<(), Cut> {
    pieces.send(piece).await.map_err(|_gone| Cut::NotTaken)
}

async fn next(response: &mut Response) -> Result<Option<Bytes>, Cut> {
    super::exchange::next(response).await.map_err(Cut::Upstream)
}
