//! An MCP server as a child process on stdio.
//!
//! The child has a process group of its own, so that a launcher such as `npx` ends with everything it
//! started; a minimal environment; and an end: standard input closes, then SIGTERM, then SIGKILL,
//! within [`ENDS_WITHIN`]. Its own end is the end: what it started and left behind is killed.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::fs::{Access, access};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Incoming, Link, Outgoing};

/// A child that was told to end is gone after this long, whatever it does.
pub const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How long a child may take to end by itself once its input is closed.
const GRACE_AFTER_EOF: Duration = Duration::from_millis(1200);

/// How long a child may take to end after SIGTERM.
const GRACE_AFTER_TERM: Duration = Duration::from_millis(600);

/// What a child gets of this process's environment unless more is named.
const PASSED_ENVIRONMENT: &[&str] = &[
    "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER",
];

/// Bytes read at once from the child's output.
const READ_BYTES: usize = 64 * 1024;

/// The command that starts an upstream. Comes from configuration only, never from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildSettings {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: OsString,
    /// The arguments.
    pub arguments: Vec<OsString>,
    /// Variables set in the child beside the minimal environment.
    pub environment: Vec<(OsString, OsString)>,
}

/// The child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The operating system refused.
    #[error("cannot start the server `{}`: is it installed, and is its name right?", program.display())]
    Spawn {
        /// The program.
        program: OsString,
        /// The cause.
        source: std::io::Error,
    },
    /// The child came without its pipes.
    #[error("the server `{}` has no standard input or output", program.display())]
    Pipes {
        /// The program.
        program: OsString,
    },
}

/// A running child.
#[derive(Debug)]
pub struct Running {
    watch: JoinHandle<()>,
    end: CancellationToken,
}

impl Running {
    /// Ends the child and waits until it is gone, within [`ENDS_WITHIN`].
    pub async fn end(self) {
        self.end.cancel();
        let _joined = self.watch.await;
    }
}

/// Starts the child. Its standard error is this process's.
///
/// # Errors
///
/// [`SpawnError`] names the program.
pub fn spawn(settings: &ChildSettings) -> Result<(Link, Running), SpawnError> {
    let program = settings.program.clone();
    let passed = PASSED_ENVIRONMENT
        .iter()
        .filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut child = Command::new(found(&settings.program, &path_of(settings)))
        .arg0(&settings.program)
        .args(&settings.arguments)
        .env_clear()
        .envs(passed)
        .envs(settings.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| SpawnError::Spawn {
            program: program.clone(),
            source,
        })?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(SpawnError::Pipes { program });
    };
    let (link, lines, bytes, ended) = Link::in_memory();
    let end = CancellationToken::new();
    let watch = tokio::spawn(watch(
        child,
        stdin,
        stdout,
        Pipes {
            lines,
            bytes,
            ended,
            end: end.clone(),
        },
    ));
    Ok((link, Running { watch, end }))
}

/// Where the child will look for programs.
fn path_of(settings: &ChildSettings) -> OsString {
    let named = settings.environment.iter().rfind(|(name, _)| name == "PATH");
    match named {
        Some((_, path)) => path.clone(),
        None => std::env::var_os("PATH").unwrap_or_default(),
    }
}

/// The file of a program, or its name where none is found, whose start then fails.
///
/// A program that the standard library has to look for in a `PATH` that differs is started with `fork`, and
/// wasmtime's hook for that leaves a descriptor of this process open in it. One with a path is not.
fn found(program: &OsStr, path: &OsStr) -> PathBuf {
    let name = Path::new(program);
    if name.parent() != Some(Path::new("")) {
        return name.to_owned();
    }
    std::env::split_paths(path)
        .map(|folder| Path::new(".").join(folder).join(name))
        .find(|file| file.is_file() && access(file, Access::EXEC_OK).is_ok())
        .unwrap_or_else(|| name.to_owned())
}

struct Pipes {
    lines: mpsc::Receiver<Outgoing>,
    bytes: mpsc::Sender<Incoming>,
    ended: oneshot::Sender<String>,
    end: CancellationToken,
}

/// Carries bytes until the child or its output ends or the child has to end, then says how it ended.
async fn watch(mut child: Child, stdin: ChildStdin, stdout: ChildStdout, pipes: Pipes) {
    let Pipes {
        lines,
        bytes,
        ended,
        end,
    } = pipes;
    let group = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    let carry = async {
        tokio::select! {
            // Order does not matter: the output's end is the end, and the input's end alone is not.
            () = read_bytes(stdout, bytes, &mut child) => {}
            () = async { write_lines(stdin, lines).await; std::future::pending::<()>().await } => {}
        }
    };
    tokio::select! {
        // Order does not matter: either way the child ends next, and both pipes are closed by then.
        () = carry => {}
        () = end.cancelled() => {}
    }
    let status = stop(&mut child, group).await;
    // A launcher may be gone while what it launched still runs; the group goes as a whole.
    signal(group, Signal::KILL);
    let _nobody_asks = ended.send(describe(status));
}

async fn write_lines(mut stdin: ChildStdin, mut lines: mpsc::Receiver<Outgoing>) {
    while let Some(message) = lines.recv().await {
        if stdin.write_all(&message.into_line()).await.is_err() {
            return;
        }
    }
}

/// Carries what the child writes until its output ends or the child does. What it started may hold the
/// output open for ever, so of that only what stands in the pipe already is still carried.
async fn read_bytes(mut stdout: ChildStdout, bytes: mpsc::Sender<Incoming>, child: &mut Child) {
    let mut buffer = bytes::BytesMut::with_capacity(READ_BYTES);
    let mut left = None;
    while left != Some(0) {
        buffer.reserve(READ_BYTES);
        let read = tokio::select! {
            // Order does not matter: a read that is given up has taken nothing, and what it would have
            // taken is counted.
            read = stdout.read_buf(&mut buffer) => read,
            _status = child.wait(), if left.is_none() => {
                left = Some(rustix::io::ioctl_fionread(&stdout).unwrap_or(0));
                continue;
            }
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(count) => left = left.map(|left| left.saturating_sub(count as u64)),
        }
        if bytes
            .send(Incoming::Bytes(buffer.split().freeze()))
            .await
            .is_err()
        {
            return;
        }
    }
}

/// End of input, then SIGTERM to the group, then SIGKILL.
async fn stop(child: &mut Child, group: Option<Pid>) -> std::io::Result<ExitStatus> {
    if let Ok(status) = timeout(GRACE_AFTER_EOF, child.wait()).await {
        return status;
    }
    signal(group, Signal::TERM);
    if let Ok(status) = timeout(GRACE_AFTER_TERM, child.wait()).await {
        return status;
    }
    signal(group, Signal::KILL);
    child.wait().await
}

fn signal(group: Option<Pid>, signal: Signal) {
    // An empty group is not there any more, which is what was wanted.
    if let Some(group) = group
        && let Err(error) = kill_process_group(group, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(%error, "the server's process group cannot be signalled");
    }
}

fn describe(status: std::io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("its exit status cannot be read: {error}"),
    }
}
