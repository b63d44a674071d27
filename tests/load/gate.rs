//! The gate as a process, and what the operating system says of it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;

/// A gate that serves `/child` and `/http`; killed when dropped.
pub(crate) struct Gate {
    pub(crate) address: String,
    folder: TempDir,
    process: Child,
}

impl Drop for Gate {
    /// Only a test that failed leaves something to end.
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

impl Gate {
    pub(crate) fn start(child: &str, url: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("record");
        fs::write(&record, "").unwrap();
        let command = json!(["python3", "-c", child, record]);
        let configuration = format!(
            "[[tools]]\npolicy = 'builtin:allowlist'\nconfig = {{ allow = ['echo'], deny = ['forbidden'] }}\n\
             deadline-ms = 5000\n\
             [[reads]]\npolicy = 'builtin:allow-all'\ndeadline-ms = 5000\n\
             [audit]\nto = 'audit.jsonl'\n[listen]\naddress = '127.0.0.1:0'\n\
             [[endpoint]]\npath = '/child'\ncommand = {command}\n\
             [[endpoint]]\npath = '/http'\nurl = '{url}'\nsessions-max = 4096\n"
        );
        fs::write(folder.path().join("gatewright.toml"), configuration).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_gatewright"))
            .args(["serve", "--config", "gatewright.toml"])
            .current_dir(folder.path())
            .env("GATEWRIGHT_LOG", "info")
            .env("HOME", folder.path())
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .env_remove("GATEWRIGHT_CONFIG")
            .env_remove("GATEWRIGHT_AUDIT")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let (line, log) = mpsc::channel();
        // Read to its end, so that the gate never waits for it.
        std::thread::spawn(move || {
            for said in lines.map_while(Result::ok) {
                let _nobody_reads_on = line.send(said);
            }
        });
        let mut before = String::new();
        let address = loop {
            let said = log.recv_timeout(Duration::from_secs(60));
            let said = said.unwrap_or_else(|error| panic!("the gate does not listen ({error}): {before}"));
            before.push_str(&said);
            if let Some((_, url)) = said.split_once("listening on http://") {
                break url.split('/').next().unwrap().to_owned();
            }
        };
        Self {
            address,
            folder,
            process,
        }
    }

    fn record(&self) -> String {
        fs::read_to_string(self.folder.path().join("record")).unwrap()
    }

    /// Kills one of the children that run: the oldest, or the newest, in turn with their number.
    pub(crate) fn kill_a_child(&self) {
        let record = self.record();
        let running: Vec<u32> = record
            .lines()
            .filter_map(|line| line.strip_prefix("pid ")?.parse().ok())
            .filter(|pid| fs::exists(format!("/proc/{pid}/fd/0")).unwrap_or(false))
            .collect();
        let chosen = if running.len().is_multiple_of(2) {
            running.first()
        } else {
            running.last()
        };
        if let Some(pid) = chosen {
            signal(*pid, Signal::KILL);
        }
    }

    /// The calls that reached children.
    pub(crate) fn received(&self) -> Vec<(String, u64)> {
        let record = self.record();
        record
            .lines()
            .filter_map(|line| line.strip_prefix("call ")?.split_once(' '))
            .map(|(name, n)| (name.to_owned(), n.parse().unwrap()))
            .collect()
    }

    fn status(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    pub(crate) fn peak_kib(&self) -> u64 {
        self.status("VmHWM:")
    }

    pub(crate) fn open_files(&self) -> usize {
        let files = fs::read_dir(format!("/proc/{}/fd", self.process.id()));
        files.unwrap().count()
    }

    /// The memory that is held once it is at most this, or no less for a second.
    pub(crate) fn settled_kib(&self, expected: u64, within: Duration) -> u64 {
        let held = || self.status("VmRSS:");
        if expected == 0 {
            return settled(held, |before, now| before <= now, within);
        }
        settled(held, |_, now| now <= expected, within)
    }

    /// How many files are open, once it is at most so many.
    pub(crate) fn settled_files(&self, expected: usize, within: Duration) -> usize {
        settled(|| self.open_files(), |_, now| now <= expected, within)
    }

    /// Tells it to stop, and expects it to end as it should.
    pub(crate) fn end(mut self) {
        signal(self.process.id(), Signal::TERM);
        let ended = self.process.wait().unwrap();
        assert!(ended.success(), "{ended}");
    }
}

/// Looks again and again until two looks fit.
fn settled<T: Copy + std::fmt::Display>(
    look: impl Fn() -> T,
    fit: impl Fn(T, T) -> bool,
    within: Duration,
) -> T {
    let (_never, timer) = mpsc::channel::<()>();
    let pause = Duration::from_millis(500);
    let mut before = look();
    for _ in 0..within.as_millis() / pause.as_millis() {
        let _elapsed = timer.recv_timeout(pause);
        let now = look();
        if fit(before, now) {
            return now;
        }
        before = now;
    }
    panic!("it does not come down: {before}");
}
