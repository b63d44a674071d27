//! The one test command: everything that must hold before a change goes in, cheapest first.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::command::{cargo, root, run, shown};
use crate::{bench, conformance, docs, peers, plugins};

/// A step: its name, and what it does. Steps that run tests count them.
type Step = (&'static str, fn(&mut Count) -> Result<()>);

/// How many tests ran.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

const STEPS: [Step; 12] = [
    ("format", |_| {
        run(&mut cargo(&["fmt", "--all", "--check"])?)?;
        for apart in [
            "fuzz/Cargo.toml",
            "benches/peers/Cargo.toml",
            "tests/peers/rmcp/Cargo.toml",
            "tests/conformance/upstream/Cargo.toml",
        ] {
            run(&mut cargo(&["fmt", "--manifest-path", apart, "--check"])?)?;
        }
        run(in_plugins(&mut cargo(&["fmt", "--all", "--check"])?)?)
    }),
    ("lints", |_| {
        run(&mut cargo(&[
            "clippy",
            "--locked",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])?)
    }),
    ("lints of the library alone", |_| {
        let library = [
            "clippy",
            "--locked",
            "--package",
            "gatewright",
            "--no-default-features",
        ];
        run(cargo(&library)?.args(["--all-targets", "--", "-D", "warnings"]))
    }),
    ("carried policies", |_| plugins::check()),
    ("lints of the policies", |_| {
        run(in_plugins(&mut cargo(&[
            "clippy",
            "--locked",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])?)?)
    }),
    ("rules of the policies", |count| {
        count.run_tests(in_plugins(&mut cargo(&["test", "--locked", "--workspace"])?)?)
    }),
    ("inputs of the fuzz targets", |_| bench::corpus()),
    ("peers", |_| peers::install()),
    // Benches are linted above and not run: cargo would take them for tests.
    ("tests", |count| {
        count.run_tests(&mut cargo(&["test", "--locked", "--workspace"])?)
    }),
    ("conformance", |_| conformance::compare(false)),
    ("docs", |_| {
        run(cargo(&[
            "doc",
            "--locked",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])?
        .env("RUSTDOCFLAGS", "-D warnings"))
    }),
    ("commands of the documentation", |_| docs::run()),
];

/// Runs every step, and stops at the first that fails.
pub(crate) fn everything() -> Result<()> {
    let mut count = Count::default();
    let mut took = Vec::new();
    for (name, step) in STEPS {
        println!("\n== {name}");
        let (outcome, time) = timed(|| step(&mut count));
        took.push((name, time));
        if let Err(error) = outcome {
            report(&took, &count);
            return Err(error.context(format!("the step `{name}` failed")));
        }
    }
    report(&took, &count);
    Ok(())
}

fn report(took: &[(&str, Duration)], count: &Count) {
    println!();
    for (name, time) in took {
        println!("{:>7.1} s  {name}", time.as_secs_f64());
    }
    // The last line is what a program that runs this one looks for.
    println!("\n{} passed, {} failed", count.passed, count.failed);
}

#[expect(
    clippy::disallowed_methods,
    reason = "this measures real work; no test depends on it"
)]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    (work(), start.elapsed())
}

fn in_plugins(command: &mut Command) -> Result<&mut Command> {
    let plugins = root()?.join("plugins");
    Ok(command
        .env("CARGO_TARGET_DIR", plugins.join("target"))
        .current_dir(plugins))
}

impl Count {
    /// Runs `cargo test`, passes on what it writes, and counts.
    fn run_tests(&mut self, command: &mut Command) -> Result<()> {
        let shown = shown(command);
        println!("+ {shown}");
        let spawned = command.stdout(Stdio::piped()).spawn();
        let mut child = spawned.with_context(|| format!("cannot run `{shown}`"))?;
        let stdout = child.stdout.take().context("the output is piped")?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            self.add(&line);
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("`{shown}` failed ({status})");
        }
        Ok(())
    }

    /// Adds the closing line of one test binary; any other line is nothing.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line
            .strip_prefix("test result: ")
            .and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            match part.split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse::<u64>().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse::<u64>().unwrap_or(0),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn closing_lines_are_counted() {
        let mut count = Count::default();
        for line in [
            "running 3 tests",
            "test a ... ok",
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s",
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.11s",
            "test result: odd",
        ] {
            count.add(line);
        }
        assert_eq!(
            Count {
                passed: 15,
                failed: 2
            },
            count
        );
    }
}
