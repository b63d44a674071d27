//! The stdio door: one client, one line per frame.
//!
//! Standard input is read by a thread of its own, and watched for its end by another, because a blocking read cannot be cancelled and must
//! not hold up the process's end; standard output is written by another, in order.

use std::io::{Read as _, Write as _};
use std::thread;

use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::session::{ClientLink, OUTGOING_LINES_MAX};
use crate::wire::line::{Line, LineSplitter};

/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// Lines that wait to be taken; then the client's writes wait.
const INCOMING_LINES_MAX: usize = 64;

/// What says that the other side is closed, beside what is said unasked.
#[cfg(target_os = "linux")]
const HANGUP: PollFlags = PollFlags::RDHUP;
#[cfg(not(target_os = "linux"))]
const HANGUP: PollFlags = PollFlags::empty();

/// Both directions of a client on stdio.
#[derive(Debug)]
pub struct Stdio {
    /// The client.
    pub client: ClientLink,
    /// Resolves when every line that was taken has been written, after the last `outgoing` is dropped.
    pub written: oneshot::Receiver<()>,
}

/// Takes the process's standard input and output in use.
///
/// # Errors
///
/// When the threads cannot be started.
pub fn open(frame_bytes_max: usize) -> std::io::Result<Stdio> {
    let (to_session, incoming) = mpsc::channel(INCOMING_LINES_MAX);
    let (outgoing, mut lines) = mpsc::channel::<Bytes>(OUTGOING_LINES_MAX);
    let (done, written) = oneshot::channel();
    let gone = CancellationToken::new();
    let (hung_up, ended) = (gone.clone(), gone.clone());
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        read(frame_bytes_max, &to_session);
        ended.cancel();
    })?;
    thread::Builder::new()
        .name("stdin-end".to_owned())
        .spawn(move || {
            wait_for_hangup();
            hung_up.cancel();
        })?;
    thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        let mut stdout = std::io::stdout().lock();
        while let Some(line) = lines.blocking_recv() {
            if stdout.write_all(&line).and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
        let _nobody_waits = done.send(());
    })?;
    Ok(Stdio {
        client: ClientLink {
            incoming,
            outgoing,
            gone,
        },
        written,
    })
}

/// Returns when the other side of standard input is closed. The thread that reads cannot tell while the
/// session takes no lines. A file has no other side: there this never returns.
fn wait_for_hangup() {
    let stdin = std::io::stdin();
    let mut watched = [PollFd::new(&stdin, HANGUP)];
    loop {
        match poll(&mut watched, None) {
            Err(Errno::INTR) => {}
            Ok(_) | Err(_) => return,
        }
    }
}

fn read(frame_bytes_max: usize, to_session: &mpsc::Sender<Line>) {
    let mut stdin = std::io::stdin().lock();
    let mut splitter = LineSplitter::new(frame_bytes_max);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = match stdin.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => {
                tracing::warn!(%error, "standard input cannot be read; the session ends");
                break;
            }
        };
        splitter.push(buffer.get(..count).unwrap_or_default());
        while let Some(line) = splitter.next() {
            if to_session.blocking_send(line).is_err() {
                return;
            }
        }
    }
    if let Some(line) = splitter.finish() {
        let _session_is_over = to_session.blocking_send(line);
    }
}
