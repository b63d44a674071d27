//! `gatewright status` and `gatewright reload`: what running gates say.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::config::control_directory;
use gatewright::host::control::SOCKET_SUFFIX;
use serde_json::Value;

use super::member::{elements, number, text};
use super::{EXIT_FAILED, Usage, environment, shown};

/// How long a gate may take to answer. A reload compiles.
const ANSWERED_WITHIN: Duration = Duration::from_secs(120);

#[derive(Args, Debug)]
#[command(after_help = "\
Exit codes: 0 at least one gate runs, each answers, and none has refused a policy file or a reload; 1 otherwise.")]
pub(super) struct Status {
    /// The process id of one gate; all gates of this user when left out
    pid: Option<u32>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Reads the configuration and every policy anew, and puts all of it in force, or nothing.
Exit codes: 0 every gate reloaded, 1 one refused, with its reason, or did not answer, or none runs.")]
pub(super) struct Reload {
    /// The process id of one gate; all gates of this user when left out
    pid: Option<u32>,
}

impl Status {
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let (answers, mut good) = ask(self.pid, "status")?;
        for (_, status) in &answers {
            good &= is_good(status);
            if self.json {
                println!("{status}");
            } else {
                print!("{}", told(status));
            }
        }
        Ok(exit(good))
    }
}

impl Reload {
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    pub(super) fn run(self) -> Result<ExitCode> {
        let (answers, mut good) = ask(self.pid, "reload")?;
        for (pid, answer) in &answers {
            match answer.get("reason").and_then(Value::as_str) {
                None => println!("gate {pid} has reloaded"),
                Some(reason) => {
                    good = false;
                    println!("gate {pid} stays as it is: {}", shown(reason));
                }
            }
        }
        Ok(exit(good))
    }
}

fn exit(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(EXIT_FAILED)
    }
}

/// The answer of one gate or of every gate of this user, and whether there is one and all that run gave theirs.
#[expect(
    clippy::print_stderr,
    reason = "gates that are not there are told apart from answers"
)]
fn ask(pid: Option<u32>, word: &str) -> Result<(Vec<(u32, Value)>, bool)> {
    let directory = control_directory(&environment).ok_or_else(|| {
        Usage("neither XDG_RUNTIME_DIR nor HOME is set, so gates have no place for their sockets".to_owned())
    })?;
    let mut sockets = sockets(&directory)?;
    sockets.retain(|(found, _)| pid.is_none_or(|pid| pid == *found));
    let mut answers = Vec::new();
    let mut silent = 0_usize;
    for (found, socket) in sockets {
        match exchange(&socket, word) {
            Ok(Some(answer)) => answers.push((found, answer)),
            Ok(None) => {}
            Err(error) => {
                silent += 1;
                eprintln!("gatewright: gate {found} does not answer: {error:#}");
            }
        }
    }
    if answers.is_empty() && silent == 0 {
        eprintln!(
            "gatewright: no gate runs; those started by `gatewright wrap` and `gatewright serve` are seen in {}",
            directory.display()
        );
    }
    let all = !answers.is_empty() && silent == 0;
    Ok((answers, all))
}

fn sockets(directory: &Path) -> Result<Vec<(u32, PathBuf)>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read `{}`", directory.display())),
    };
    let mut sockets = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if let Some(pid) = name.strip_suffix(SOCKET_SUFFIX).and_then(|pid| pid.parse().ok()) {
            sockets.push((pid, path));
        }
    }
    sockets.sort();
    Ok(sockets)
}

/// A gate's answer; none when the gate has ended.
fn exchange(socket: &Path, word: &str) -> Result<Option<Value>> {
    let mut stream = match UnixStream::connect(socket) {
        // Its gate was killed and could not clean up.
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            let _was_not_there = std::fs::remove_file(socket);
            return Ok(None);
        }
        connected => connected?,
    };
    stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
    stream.write_all(format!("{word}\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    serde_json::from_str(&answer)
        .map(Some)
        .context("its answer is no JSON")
}

fn is_good(status: &Value) -> bool {
    elements(status, "policies").all(|policy| policy.get("failure").is_none_or(Value::is_null))
        && status.pointer("/reloads/refused").is_none_or(Value::is_null)
}

/// The status in words. Names and reasons come from files, so they are shown escaped.
fn told(status: &Value) -> String {
    let mut words = format!(
        "gate {}, in front of {}\n  {}\n",
        number(status, "pid"),
        text(status, "server"),
        text(status, "engine")
    );
    for policy in elements(status, "policies") {
        // Writing into a text cannot fail.
        let _infallible = writeln!(
            words,
            "  {:<6} {} {}\n         {}; replaced {} times, refused {} times",
            text(policy, "seam"),
            text(policy, "policy"),
            text(policy, "digest"),
            text(policy, "configured"),
            number(policy, "reloads_ok"),
            number(policy, "reloads_failed"),
        );
        if policy.get("hides") == Some(&Value::Bool(true)) {
            words.push_str("         says which entries of lists are shown\n");
        }
        if let Some(failure) = policy.get("failure").filter(|failure| !failure.is_null()) {
            let _infallible = writeln!(
                words,
                "         NOT IN FORCE, the one above stays: {}",
                text(failure, "reason")
            );
        }
    }
    if let Some(refused) = status
        .pointer("/reloads/refused")
        .filter(|refused| !refused.is_null())
    {
        let _infallible = writeln!(
            words,
            "  the last reload was refused: {}",
            text(refused, "reason")
        );
    }
    words
}
