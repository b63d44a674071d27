//! An MCP server as a child process: its environment, its end, and what it may do wrong.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use gatewright::upstream::child::{ChildSettings, ENDS_WITHIN, Running, spawn};
use gatewright::upstream::{Arrival, Incoming, Link, Outgoing, Upstream, UpstreamFault};
use rustix::process::{Pid, test_kill_process};
use tokio::time::{Instant, timeout};

/// Far more than anything here takes.
const SOON: Duration = Duration::from_secs(20);

fn python(script: &str) -> ChildSettings {
    ChildSettings {
        program: "python3".into(),
        arguments: vec!["-c".into(), script.into()],
        environment: Vec::new(),
    }
}

async fn next(link: &mut Link) -> Option<Bytes> {
    let incoming = timeout(SOON, link.incoming.recv())
        .await
        .expect("the child writes or ends")?;
    match incoming {
        Incoming::Bytes(bytes) => Some(bytes),
        other => panic!("a child writes bytes, not {other:?}"),
    }
}

/// The first line that the child writes.
async fn line(link: &mut Link) -> String {
    let mut text = String::new();
    while !text.contains('\n') {
        text.push_str(std::str::from_utf8(&next(link).await.expect("a line")).unwrap());
    }
    text.trim_end().to_owned()
}

async fn ended(link: Link) -> String {
    timeout(SOON, link.ending)
        .await
        .expect("it ends")
        .expect("it says how")
}

fn lives(pid: &str) -> bool {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    // A process that has ended and was not reaped yet is gone.
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_ok() && !state.contains(") Z ")
}

/// A signal was sent to it, and arrives when it does.
async fn gone(pid: &str) {
    let start = Instant::now();
    while lives(pid) {
        assert!(start.elapsed() < SOON, "{pid} lives on");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn its_environment_is_small() {
    let settings = ChildSettings {
        program: "env".into(),
        arguments: Vec::new(),
        environment: vec![("API_KEY".into(), "k3y".into())],
    };
    let (mut link, running) = spawn(&settings).unwrap();
    let mut text = Vec::new();
    while let Some(bytes) = next(&mut link).await {
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8(text).unwrap();
    let allowed = [
        "API_KEY", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ",
        "USER",
    ];
    for line in text.lines() {
        let (name, _) = line.split_once('=').unwrap();
        assert!(allowed.contains(&name), "{name} is none of the child's business");
    }
    assert!(text.contains("API_KEY=k3y\n") && text.contains("PATH="), "{text}");
    assert!(
        std::env::var_os("CARGO_MANIFEST_DIR").is_some(),
        "there was something to leak"
    );
    running.end().await;
}

#[tokio::test]
async fn it_is_found_where_its_own_path_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = ["none", "no-program", "first", "second"].map(|place| folder.path().join(place));
    for place in &path[1..] {
        std::fs::create_dir(place).unwrap();
    }
    std::fs::write(path[1].join("server"), "this is no program").unwrap();
    symlink("/bin/echo", path[2].join("server")).unwrap();
    symlink("/bin/false", path[3].join("server")).unwrap();
    let settings = ChildSettings {
        program: "server".into(),
        arguments: vec!["found".into()],
        environment: vec![("PATH".into(), std::env::join_paths(path).unwrap())],
    };
    let (mut link, running) = spawn(&settings).unwrap();
    assert_eq!("found", line(&mut link).await);
    running.end().await;
}

#[tokio::test]
async fn lines_go_in_and_come_out_and_its_end_is_told() {
    let (mut link, running) =
        spawn(&python("print(input()[::-1], flush=True); raise SystemExit(3)")).unwrap();
    link.outgoing
        .send(Outgoing::Other(Bytes::from("abc\n")))
        .await
        .unwrap();
    assert_eq!("cba", line(&mut link).await);
    assert_eq!(None, next(&mut link).await);
    assert_eq!("exit status: 3", ended(link).await);
    running.end().await;
}

#[tokio::test]
async fn it_may_end_by_itself_when_its_input_does() {
    let script = "import sys\nfor _ in sys.stdin: pass\nprint('bye', flush=True)";
    let (mut link, running) = spawn(&python(script)).unwrap();
    drop(std::mem::replace(
        &mut link.outgoing,
        tokio::sync::mpsc::channel(1).0,
    ));
    assert_eq!("bye", line(&mut link).await);
    assert_eq!("exit status: 0", ended(link).await);
    running.end().await;
}

/// Ends what will not end, and says how long that took.
async fn end_in_time(running: Running) -> Duration {
    let start = Instant::now();
    running.end().await;
    start.elapsed()
}

#[tokio::test]
async fn one_that_will_not_end_is_killed_with_what_it_started() {
    let script = "
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
grandchild = subprocess.Popen(['sh', '-c', 'trap \"\" TERM HUP; while :; do read x < /dev/zero; done'], stdin=subprocess.DEVNULL)
print(os.getpid(), grandchild.pid, flush=True)
while True: signal.pause()
";
    let (mut link, running) = spawn(&python(script)).unwrap();
    let pids = line(&mut link).await;
    let (child, grandchild) = pids.split_once(' ').unwrap();
    assert!(lives(child) && lives(grandchild));
    let took = end_in_time(running).await;
    assert!(
        took < Duration::from_secs(5),
        "{took:?}; {ENDS_WITHIN:?} is promised"
    );
    gone(child).await;
    gone(grandchild).await;
    assert!(ended(link).await.contains("signal: 9"));
}

#[tokio::test]
async fn what_a_launcher_left_behind_is_killed() {
    let script = "
import subprocess
grandchild = subprocess.Popen(['sleep', '1000'])
print(grandchild.pid, flush=True)
";
    let (mut link, running) = spawn(&python(script)).unwrap();
    let grandchild = line(&mut link).await;
    running.end().await;
    gone(&grandchild).await;
    drop(link);
}

/// A server that crashed would otherwise leave every call waiting for as long as its helper lives.
#[tokio::test]
async fn its_end_is_told_although_what_it_started_holds_its_output() {
    const BYTES: usize = 300_000;
    let script = format!(
        "
import os, subprocess
grandchild = subprocess.Popen(['sleep', '100'])
os.write(1, b'%d\\n' % grandchild.pid)
rest = b'x' * {BYTES}
while rest: rest = rest[os.write(1, rest):]
os._exit(7)
"
    );
    let (mut link, running) = spawn(&python(&script)).unwrap();
    let mut text = Vec::new();
    while let Some(bytes) = next(&mut link).await {
        text.extend_from_slice(&bytes);
    }
    let text = String::from_utf8(text).unwrap();
    let (grandchild, rest) = text.split_once('\n').unwrap();
    assert_eq!(BYTES, rest.len(), "all that it wrote is carried");
    assert_eq!("exit status: 7", ended(link).await);
    gone(grandchild).await;
    running.end().await;
}

#[tokio::test]
async fn one_that_closes_its_output_is_ended() {
    let script = "
import os, signal
os.write(1, b'half a line')
os.close(1)
while True: signal.pause()
";
    let (mut link, running) = spawn(&python(script)).unwrap();
    assert_eq!(Some(Bytes::from("half a line")), next(&mut link).await);
    assert_eq!(None, next(&mut link).await);
    assert!(ended(link).await.contains("signal: 15"));
    running.end().await;
}

#[tokio::test]
async fn garbage_is_skipped_and_counted_and_a_huge_line_is_not_kept() {
    let script = r#"
import os
out = os.fdopen(1, "wb", buffering=0)
for line in [b"\xff\xfe\x00", b"starting up", b"[1,2]", b'{"jsonrpc":"2.0"}', b'{"id":7}', b'{"half":']:
    out.write(line + b"\n")
line = b"x" * 100_000
for _ in range(30): out.write(line)
out.write(b"\n \n" + b'{"jsonrpc":"2.0","method":"notifications/message","params":{"at":"last"}}')
"#;
    let (link, running) = spawn(&python(script)).unwrap();
    let (upstream, mut arrivals) = Upstream::connect(link, 1_000_000);
    let mut arrived = Vec::new();
    while let Some(arrival) = timeout(SOON, arrivals.next()).await.expect("it ends") {
        arrived.push(arrival);
    }
    let [
        Arrival::Answer(7, Err(UpstreamFault::Garbage(_))),
        Arrival::Notification(last, _),
        Arrival::Ended(UpstreamFault::Exited(how)),
    ] = arrived.as_slice()
    else {
        panic!("{arrived:?}")
    };
    assert_eq!(Some(r#"{"at":"last"}"#), last.params());
    assert_eq!("exit status: 0", how);
    assert_eq!(8, upstream.skipped_lines());
    running.end().await;
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let settings = ChildSettings {
        program: "no-such-server".into(),
        ..python("")
    };
    let error = spawn(&settings).unwrap_err().to_string();
    assert!(
        error.contains("`no-such-server`") && error.contains("installed"),
        "{error}"
    );
    assert!(!Path::new("no-such-server").exists());
}
