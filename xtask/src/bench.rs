//! Benchmarks and fuzzing: runs that take as long as one lets them.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::{cargo, output, root, run};

/// Runs the benchmarks of a judgement and of a whole wrapped server.
pub(crate) fn bench() -> Result<()> {
    run(&mut cargo(&[
        "bench", "--locked", "--bench", "judge", "--bench", "wrap",
    ])?)
}

/// Fuzzes every target for so many seconds.
pub(crate) fn fuzz(seconds: &str) -> Result<()> {
    ensure!(
        !seconds.is_empty() && seconds.bytes().all(|digit| digit.is_ascii_digit()),
        "`{seconds}` is not a number of seconds"
    );
    let root = root()?;
    let cargo_fuzz = |arguments: &[&str]| {
        let mut command = Command::new("cargo");
        // The toolchain that runs this task is pinned in the environment; the fuzzer needs another.
        command
            .args(["+nightly", "fuzz"])
            .args(arguments)
            .current_dir(&root);
        command
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("CARGO")
            .env_remove("RUSTC");
        command
    };
    let targets = output(&mut cargo_fuzz(&["list"])).context(
        "fuzzing needs a nightly toolchain (`rustup toolchain install nightly`) and `cargo install cargo-fuzz`",
    )?;
    ensure!(!targets.is_empty(), "there is no fuzz target");
    for target in targets.lines() {
        run(&mut cargo_fuzz(&[
            "run",
            target,
            "--",
            &format!("-max_total_time={seconds}"),
        ]))?;
    }
    Ok(())
}
