//! The audit log: one JSON line per verdict, question and outcome, chained by hashes.
//!
//! A record is written before its effect leaves the host; what cannot be written is a refusal
//! (semantics section 4). Several processes may append to one file: each has a chain of its own, named
//! by a random id, and each record is one write.
//!
//! Deliberately does not know what the records are about: text of strangers is data here.

mod line;
pub mod read;

use std::fmt;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::{Clock, RandomUnavailable};
use crate::decision::{PolicyRecord, Seam};
use crate::vocabulary::{DecisionId, Digest, RandomId};

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Appended to a file, which is made with mode 0600 if it is not there.
    File(PathBuf),
    /// Standard error, one record a line.
    Stderr,
    /// Nowhere.
    Off,
}

/// What happens to a request whose record cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is refused.
    Deny,
    /// It goes on, and the failure is logged. Only a configuration file can choose this.
    Continue,
}

/// The settings of the audit log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// Where records go.
    pub sink: Sink,
    /// Whether arguments are recorded, not only their digest.
    pub arguments: bool,
    /// What a failure means.
    pub on_failure: OnFailure,
}

/// Who asked for what.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The id of the verdict.
    pub decision_id: DecisionId,
    /// The session, empty where there is none.
    pub session: &'a str,
    /// What the client says of itself, raw JSON or empty.
    pub client: &'a str,
    /// The upstream's configured name.
    pub server: &'a str,
    /// `stdio`, `http` or `embedded`.
    pub transport: &'a str,
    /// The authenticated subject.
    pub principal: Option<&'a str>,
    /// The seam.
    pub seam: Seam,
    /// The method.
    pub method: &'a str,
    /// The name that the policies were given.
    pub name: &'a str,
    /// Digest of the arguments' bytes.
    pub arguments_digest: Digest,
    /// The arguments, raw JSON; written only when the settings say so.
    pub arguments: &'a str,
    /// Everything else that would reach the upstream, raw JSON; written like the arguments.
    pub extra: &'a str,
}

/// A question is about to be put.
#[derive(Clone, Copy, Debug)]
pub struct QuestionRecord<'a> {
    /// Who asked for what.
    pub subject: Subject<'a>,
    /// Every policy that ran.
    pub policies: &'a [PolicyRecord],
    /// The revision of the chain.
    pub revision: Digest,
    /// The prompts, in order.
    pub prompts: &'a [String],
}

/// A verdict is about to take effect.
#[derive(Clone, Copy, Debug)]
pub struct VerdictRecord<'a> {
    /// Who asked for what.
    pub subject: Subject<'a>,
    /// Every policy that ran.
    pub policies: &'a [PolicyRecord],
    /// The revision of the chain.
    pub revision: Digest,
    /// `allow`, `ask` or `deny`.
    pub decision: &'static str,
    /// The code of the refusal, empty for a request that runs.
    pub code: &'a str,
    /// The detail of the refusal; for a read that asks, the prompt that nobody else sees.
    pub detail: &'a str,
    /// Whether the request goes upstream.
    pub forwarded: bool,
    /// How the ask ended, if there was one.
    pub ask: Option<AskRecord>,
    /// What only the record says.
    pub note: &'a str,
}

/// How an ask ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskRecord {
    /// The word for it.
    pub outcome: &'static str,
    /// How long the question was open, in milliseconds.
    pub waited_ms: u64,
}

/// A forwarded request has ended.
#[derive(Clone, Copy, Debug)]
pub struct OutcomeRecord<'a> {
    /// The verdict that let it pass.
    pub decision_id: DecisionId,
    /// The session, empty where there is none.
    pub session: &'a str,
    /// `ok`, `tool_error`, `error`, `input_required`, `cancelled`, what went wrong upstream, or how the policies
    /// failed to say what a list shows.
    pub outcome: &'a str,
    /// The code of the upstream's error, as it stood there.
    pub error_code: Option<&'a str>,
    /// How many entries of a list the policies hid; none when they had no say in it.
    pub hidden: Option<usize>,
    /// From forwarding to the end, in milliseconds.
    pub took_ms: u64,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// Written before a question is sent.
    Question(QuestionRecord<'a>),
    /// Written before a verdict takes effect.
    Verdict(VerdictRecord<'a>),
    /// Written after a forwarded request has ended.
    Outcome(OutcomeRecord<'a>),
}

/// The audit log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The file or its directory cannot be made or opened.
    #[error("cannot open the audit log `{}`; name another with `--audit PATH`, or `--audit stderr`", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A record cannot be written.
    #[error("cannot write to the audit log")]
    Write {
        /// The cause.
        source: std::io::Error,
    },
    /// There are no random bytes for the chain's id.
    #[error(transparent)]
    Random(#[from] RandomUnavailable),
}

/// Sees every record, whether or not it is kept anywhere.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A record was due; `written` says that it did not fail to be written.
    fn recorded(&self, record: &Record<'_>, written: bool);
}

enum Output {
    File(File),
    Stderr,
    Memory(Arc<Mutex<Vec<String>>>),
    Off,
}

/// The end of the chain so far.
struct Chain {
    output: Output,
    seq: u64,
    prev: Digest,
    /// A line was cut, by a failed write or before this process; the next one starts on a line of its own.
    torn: bool,
}

/// An open audit log.
pub struct AuditLog {
    id: RandomId,
    chain: Mutex<Chain>,
    arguments: bool,
    on_failure: OnFailure,
    clock: Arc<dyn Clock>,
    observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for AuditLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditLog")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl AuditLog {
    /// Opens the log.
    ///
    /// # Errors
    ///
    /// [`AuditError`] names the file and what to do.
    pub fn open(settings: &AuditSettings, clock: Arc<dyn Clock>) -> Result<Self, AuditError> {
        let output = match &settings.sink {
            Sink::File(path) => Output::File(open_file(path).map_err(|source| AuditError::Open {
                path: path.clone(),
                source,
            })?),
            Sink::Stderr => Output::Stderr,
            Sink::Off => Output::Off,
        };
        let mut log = Self::new(output, settings.arguments, settings.on_failure, clock)?;
        if let Sink::File(path) = &settings.sink {
            let chain = log.chain.get_mut().unwrap_or_else(PoisonError::into_inner);
            chain.torn = ends_inside_a_line(path).unwrap_or(false);
        }
        Ok(log)
    }

    /// A log in memory, with arguments, and the lines that it holds.
    ///
    /// # Panics
    ///
    /// Never with a clock that has random bytes.
    #[must_use]
    pub fn in_memory(clock: Arc<dyn Clock>) -> (Self, Arc<Mutex<Vec<String>>>) {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let output = Output::Memory(Arc::clone(&lines));
        #[expect(clippy::expect_used, reason = "stated in the documentation")]
        let log = Self::new(output, true, OnFailure::Deny, clock).expect("random bytes");
        (log, lines)
    }

    fn new(
        output: Output,
        arguments: bool,
        on_failure: OnFailure,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, AuditError> {
        let mut bytes = [0; 16];
        clock.random(&mut bytes)?;
        let chain = Chain {
            output,
            seq: 0,
            prev: Digest::of(b""),
            torn: false,
        };
        Ok(Self {
            id: RandomId::from_random(bytes),
            chain: Mutex::new(chain),
            arguments,
            on_failure,
            clock,
            observer: None,
        })
    }

    /// The same log, which shows every record to `observer`.
    #[must_use]
    pub fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self {
            observer: Some(observer),
            ..self
        }
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// [`AuditError::Write`] when it could not be written whole and the settings do not say to go on.
    pub fn append(&self, record: &Record<'_>) -> Result<(), AuditError> {
        let written = self.write(record);
        if let Some(observer) = &self.observer {
            observer.recorded(record, written.is_ok());
        }
        match (written, self.on_failure) {
            (Ok(()), _) => Ok(()),
            (Err(source), OnFailure::Deny) => Err(AuditError::Write { source }),
            (Err(error), OnFailure::Continue) => {
                tracing::error!(%error, "an audit record is lost, and the settings say to go on");
                Ok(())
            }
        }
    }

    fn write(&self, record: &Record<'_>) -> std::io::Result<()> {
        let mut chain = self.chain.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(chain.output, Output::Off) {
            return Ok(());
        }
        let place = line::Place {
            chain: self.id,
            seq: chain.seq,
            prev: chain.prev,
        };
        let (line, hash) = line::write(record, &place, self.clock.now_unix_ms(), self.arguments);
        chain.put(line)?;
        chain.seq += 1;
        chain.prev = hash;
        Ok(())
    }
}

impl Chain {
    fn put(&mut self, mut line: String) -> std::io::Result<()> {
        line.push('\n');
        if self.torn {
            line.insert(0, '\n');
        }
        let written = match &mut self.output {
            Output::File(file) => file.write_all(line.as_bytes()),
            Output::Stderr => std::io::stderr().lock().write_all(line.as_bytes()),
            Output::Memory(lines) => {
                line.pop();
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                Ok(())
            }
            Output::Off => Ok(()),
        };
        self.torn = written.is_err();
        written
    }
}

fn open_file(path: &Path) -> std::io::Result<File> {
    if let Some(directory) = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
    {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
}

/// Whether a process before this one left half a line at the end of the file. Of anything but a regular file
/// that cannot be known.
fn ends_inside_a_line(path: &Path) -> std::io::Result<bool> {
    let metadata = std::fs::metadata(path)?;
    let Some(last) = metadata.len().checked_sub(1).filter(|_| metadata.is_file()) else {
        return Ok(false);
    };
    let mut byte = [0];
    File::open(path)?.read_exact_at(&mut byte, last)?;
    Ok(byte != *b"\n")
}
