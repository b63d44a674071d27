//! Benchmarks and fuzzing: runs that take as long as one lets them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::{cargo, output, root, run};

/// Runs the benchmarks of a judgement, of a whole wrapped server, and of other engines with the same rule.
pub(crate) fn bench() -> Result<()> {
    run(&mut cargo(&[
        "bench", "--locked", "--bench", "judge", "--bench", "wrap",
    ])?)?;
    run(&mut cargo(&[
        "run",
        "--release",
        "--locked",
        "--manifest-path",
        "benches/peers/Cargo.toml",
    ])?)
}

/// Fuzzes every target for so many seconds, starting from the shared cases.
pub(crate) fn fuzz(seconds: &str) -> Result<()> {
    ensure!(
        !seconds.is_empty() && seconds.bytes().all(|digit| digit.is_ascii_digit()),
        "`{seconds}` is not a number of seconds"
    );
    let root = root()?;
    let targets = targets(&root)?;
    output(&mut cargo_fuzz(&root, &["--version"])).context(
        "fuzzing needs a nightly toolchain (`rustup toolchain install nightly`) and `cargo install cargo-fuzz`",
    )?;
    corpus()?;
    let (time, dictionary) = (format!("-max_total_time={seconds}"), "-dict=fuzz/json.dict");
    for target in targets {
        run(&mut cargo_fuzz(&root, &["run", &target, "--", &time, dictionary]))?;
    }
    Ok(())
}

/// Writes the first inputs, and shows that what must hold for every frame holds for these.
pub(crate) fn corpus() -> Result<()> {
    let corpus = [
        "run",
        "--quiet",
        "--locked",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--no-default-features",
        "--bin",
        "corpus",
    ];
    run(&mut cargo(&corpus)?)
}

/// The names of the files in `fuzz/fuzz_targets`. `cargo fuzz list` would name other programs too.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/fuzz_targets");
    let mut targets = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        targets.extend(
            path.file_stem()
                .and_then(|name| name.to_str())
                .map(ToOwned::to_owned),
        );
    }
    targets.sort();
    ensure!(!targets.is_empty(), "there is no fuzz target");
    Ok(targets)
}

/// `cargo fuzz` of the nightly toolchain. The environment names the toolchain that runs this task,
/// and the fuzzer needs the other.
fn cargo_fuzz(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command
        .args(["+nightly", "fuzz"])
        .args(arguments)
        .current_dir(root);
    command
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env_remove("RUSTC");
    command
}
