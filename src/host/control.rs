//! Asking a running gate for its status, and telling it to reload.
//!
//! Each gate listens on a socket of its own in a directory that only its user can enter. A client sends one
//! word and a line end, `status` or `reload`, and gets one JSON object.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::getuid;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::policy::reload::{Board, Failure, PolicyStatus, Status};

/// How long a client may take to say what it wants.
const ASKED_WITHIN: Duration = Duration::from_secs(5);

/// The longest word that a client can send, in bytes.
const WORD_BYTES_MAX: u64 = 64;

/// What a socket's name ends with; before it stands the id of the process.
pub const SOCKET_SUFFIX: &str = ".sock";

/// Takes the answer to an order to load everything anew: nothing, or why it was refused.
pub type Reloaded = oneshot::Sender<Result<(), String>>;

/// The socket of this gate; it is removed when this is dropped.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
}

impl Control {
    /// Listens on a socket that is named after this process. Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// When the directory is not this user's alone, or the socket cannot be made.
    pub fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        check_private(&std::fs::symlink_metadata(directory)?)?;
        let path = directory.join(format!("{}{SOCKET_SUFFIX}", std::process::id()));
        // Left there by a process of the same id that was killed.
        let _was_not_there = std::fs::remove_file(&path);
        Ok(Self {
            listener: UnixListener::bind(&path)?,
            path,
        })
    }

    /// Answers until `stop`.
    pub async fn serve(
        self,
        server: String,
        board: Board,
        reloads: mpsc::Sender<Reloaded>,
        stop: CancellationToken,
    ) {
        loop {
            let stream = tokio::select! {
                // The stop comes first; a client that comes later finds nobody.
                biased;
                () = stop.cancelled() => return,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "the control socket takes nobody any more");
                        return;
                    }
                },
            };
            // One after the other: answers are short, and a reload is done once at a time anyway.
            let answered = timeout(ASKED_WITHIN, asked(stream)).await;
            if let Ok(Ok((word, stream))) = answered {
                let answer = match word.as_str() {
                    "status" => status_json(&server, &board.read()),
                    "reload" => reload(&reloads).await,
                    _ => json!({"error": "unknown word; say `status` or `reload`"}),
                };
                let _client_is_gone = timeout(ASKED_WITHIN, answer_with(stream, &answer)).await;
            }
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _was_not_there = std::fs::remove_file(&self.path);
    }
}

/// Only this user may enter: whoever can write to a socket can order a reload.
fn check_private(directory: &Metadata) -> io::Result<()> {
    let mine = directory.is_dir() && directory.uid() == getuid().as_raw() && directory.mode() & 0o077 == 0;
    if mine {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "it is not a directory of this user alone; make it one with mode 0700",
        ))
    }
}

async fn asked(mut stream: UnixStream) -> io::Result<(String, UnixStream)> {
    let mut word = String::new();
    BufReader::new((&mut stream).take(WORD_BYTES_MAX))
        .read_line(&mut word)
        .await?;
    Ok((word.trim_end().to_owned(), stream))
}

async fn answer_with(mut stream: UnixStream, answer: &Value) -> io::Result<()> {
    stream.write_all(format!("{answer}\n").as_bytes()).await?;
    stream.shutdown().await
}

async fn reload(reloads: &mpsc::Sender<Reloaded>) -> Value {
    let (done, answer) = oneshot::channel();
    let refused = match reloads.send(done).await {
        Ok(()) => answer.await.unwrap_or_else(|_closed| Err(STOPPING.to_owned())),
        Err(_closed) => Err(STOPPING.to_owned()),
    };
    match refused {
        Ok(()) => json!({"reloaded": true}),
        Err(reason) => json!({"reloaded": false, "reason": reason}),
    }
}

const STOPPING: &str = "the gate is stopping";

/// What is in force and what was refused, as `gatewright status --json` prints it.
pub(super) fn status_json(server: &str, status: &Status) -> Value {
    json!({
        "v": 1,
        "pid": std::process::id(),
        "version": env!("CARGO_PKG_VERSION"),
        "server": server,
        "engine": status.engine,
        "policies": status.policies.iter().map(policy_json).collect::<Vec<_>>(),
        "reloads": {"ok": status.replaced_ok, "failed": status.replaced_failed,
            "refused": status.refused.as_ref().map(failure_json)},
    })
}

fn policy_json(policy: &PolicyStatus) -> Value {
    json!({
        "seam": policy.seam.as_str(),
        "policy": policy.policy,
        "digest": policy.digest.to_string(),
        "loaded_unix_ms": policy.loaded_unix_ms,
        "configured": policy.configured,
        "hides": policy.hides,
        "reloads_ok": policy.reloads_ok,
        "reloads_failed": policy.reloads_failed,
        "failure": policy.failure.as_ref().map(failure_json),
    })
}

fn failure_json(failure: &Failure) -> Value {
    json!({
        "file_digest": failure.file.map(|digest| digest.to_string()),
        "reason": failure.reason,
        "at_unix_ms": failure.at_unix_ms,
    })
}
