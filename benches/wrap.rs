//! What `wrap` adds to one call: the same server, unwrapped and wrapped, in one run.
//!
//! The server is this program itself, started with `--server`: it answers each line at once, so that what
//! is measured is the way there and back. Calls to all of them take turns, one at a time, so that a busy
//! moment of the machine meets each alike. Prints a table of microseconds; the last columns are what is
//! added to the median of the unwrapped server, and its ratio.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Rounds before and while it is measured; each round makes one call to every server.
const WARM_UP: usize = 300;
const ROUNDS: usize = 5_000;

/// Bytes of arguments.
const SIZES: [usize; 2] = [200, 10_000];

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--server") {
        serve();
        return ExitCode::SUCCESS;
    }
    say(&format!("{ROUNDS} calls each, taking turns"));
    for size in SIZES {
        measure(size);
    }
    ExitCode::SUCCESS
}

/// An MCP server that does nothing, as fast as it can.
fn serve() {
    let (mut input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    let mut line = String::new();
    while input.read_line(&mut line).is_ok_and(|count| 0 < count) {
        if let Some(id) = id(&line) {
            let result = if line.contains("\"method\":\"initialize\"") {
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}"#
            } else if line.contains("\"method\":\"tools/list\"") {
                r#"{"tools":[{"name":"read_file","inputSchema":{"type":"object"}}]}"#
            } else {
                r#"{"content":[{"type":"text","text":"ok"}]}"#
            };
            let answer = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n");
            if output
                .write_all(answer.as_bytes())
                .and_then(|()| output.flush())
                .is_err()
            {
                return;
            }
        }
        line.clear();
    }
}

/// The raw id of a message. Both this program and the gate write it first.
fn id(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once("\"id\":")?;
    rest.split([',', '}']).next()
}

/// A server as its client sees it.
struct Server {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    took: Vec<Duration>,
}

impl Server {
    fn start(name: &'static str, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| fail(&format!("cannot start {name}: {error}")));
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            fail("no pipes")
        };
        let mut server = Self {
            name,
            child,
            input,
            output: BufReader::new(output),
            took: Vec::with_capacity(ROUNDS),
        };
        server.exchange(
            r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#,
        );
        server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        server
    }

    fn send(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.input
            .write_all(line.as_bytes())
            .unwrap_or_else(|error| fail(&format!("{} reads no more: {error}", self.name)));
    }

    fn exchange(&mut self, line: &str) -> String {
        self.send(line);
        let mut answer = String::new();
        match self.output.read_line(&mut answer) {
            Ok(count) if 0 < count => answer,
            Ok(_) | Err(_) => fail(&format!("{} ended", self.name)),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "measures real work")]
    fn call(&mut self, id: usize, arguments: &str) -> Duration {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"read_file\",\"arguments\":{arguments}}}}}"
        );
        let start = Instant::now();
        let answer = self.exchange(&line);
        let took = start.elapsed();
        if answer.contains("isError") || !answer.contains(&format!("\"id\":{id},")) {
            fail(&format!("{} answered {answer}", self.name));
        }
        took
    }

    fn end(self) {
        let Self { mut child, input, .. } = self;
        drop(input);
        let _exit = child.wait();
    }
}

fn measure(size: usize) {
    let entries: Vec<String> = (0..199).map(|at| format!("\"tool_number_{at}\"")).collect();
    let allowlist = format!(
        "builtin:allowlist={{\"allow\":[{},\"read_file\"]}}",
        entries.join(",")
    );
    let mut servers = vec![
        Server::start("unwrapped", server()),
        Server::start("wrap, no policy, no audit", wrapped(&["--audit", "off"])),
        Server::start(
            "wrap, allow-all, no audit",
            wrapped(&["--audit", "off", "--tools", "builtin:allow-all"]),
        ),
        Server::start(
            "wrap, allow-all, audit to a file",
            wrapped(&[
                "--audit",
                "target/bench-audit.jsonl",
                "--tools",
                "builtin:allow-all",
            ]),
        ),
        Server::start(
            "wrap, allowlist of 200, audit to a file",
            wrapped(&["--audit", "target/bench-audit.jsonl", "--tools", &allowlist]),
        ),
    ];
    let arguments = format!("{{\"path\":\"{}\"}}", "a".repeat(size - 11));
    for round in 0..WARM_UP + ROUNDS {
        for server in &mut servers {
            let took = server.call(round + 1, &arguments);
            if WARM_UP <= round {
                server.took.push(took);
            }
        }
    }
    report(size, servers);
    let _left_over = std::fs::remove_file("target/bench-audit.jsonl");
}

fn server() -> Command {
    let mut command = Command::new(own_path());
    command.arg("--server");
    command
}

fn wrapped(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gatewright"));
    command
        .arg("wrap")
        .args(flags)
        .arg("--")
        .arg(own_path())
        .arg("--server")
        .env("GATEWRIGHT_LOG", "error");
    command
}

fn own_path() -> std::path::PathBuf {
    std::env::current_exe().unwrap_or_else(|error| fail(&format!("no path of this program: {error}")))
}

fn report(size: usize, servers: Vec<Server>) {
    say(&format!(
        "\n{:<42} {:>8} {:>8} {:>8} {:>10} {:>6}",
        format!("{size} bytes of arguments, µs"),
        "p50",
        "p99",
        "max",
        "added p50",
        "ratio"
    ));
    let mut unwrapped = None;
    for mut server in servers {
        server.took.sort_unstable();
        let at = |part: f64| micros(&server.took, part);
        let median = at(0.5);
        let base = *unwrapped.get_or_insert(median);
        say(&format!(
            "{:<42} {:>8.1} {:>8.1} {:>8.1} {:>10.1} {:>6.2}",
            server.name,
            median,
            at(0.99),
            at(1.0),
            median - base,
            median / base
        ));
        server.end();
    }
}

/// The value that this part of all values does not exceed.
fn micros(sorted: &[Duration], part: f64) -> f64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a position in a list of thousands"
    )]
    let at = ((sorted.len() - 1) as f64 * part).round() as usize;
    sorted.get(at).copied().unwrap_or_default().as_secs_f64() * 1e6
}

#[expect(clippy::print_stdout, reason = "the result")]
fn say(line: &str) {
    println!("{line}");
}

#[expect(
    clippy::print_stderr,
    clippy::exit,
    reason = "a benchmark that cannot run has nothing else to say"
)]
fn fail(why: &str) -> ! {
    eprintln!("wrap: {why}");
    std::process::exit(1)
}
