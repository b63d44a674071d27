//! Builds the policies in other languages, and puts them under load.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::{cargo, root, run, run_with_retries};
use crate::peers::{once, python};

/// Judges for so many seconds with policies in Rust, JavaScript and Python in one chain.
pub(crate) fn load(seconds: &str) -> Result<()> {
    ensure!(
        !seconds.is_empty() && seconds.bytes().all(|digit| digit.is_ascii_digit()),
        "`{seconds}` is not a number of seconds"
    );
    let root = root()?;
    let (sources, place) = (root.join("benches/languages"), root.join("target/languages"));
    once(
        &place.join("node"),
        &sources.join("package-lock.json"),
        |folder| {
            for file in ["package.json", "package-lock.json"] {
                fs::copy(sources.join(file), folder.join(file))?;
            }
            run_with_retries(
                Command::new("npm")
                    .args(["ci", "--no-audit", "--no-fund"])
                    .current_dir(folder),
            )
        },
    )?;
    once(
        &place.join("python"),
        &sources.join("requirements.txt"),
        |folder| python(folder, &sources.join("requirements.txt")),
    )?;
    let (script, wit) = (place.join("allowlist-js.wasm"), root.join("wit/policy.wit"));
    run(
        Command::new(place.join("node/node_modules/.bin/componentize-qjs"))
            .args([
                "--sync",
                "--stub-wasi",
                "--world",
                "configurable-policy-plugin",
                "--wit",
            ])
            .arg(&wit)
            .arg("--js")
            .arg(sources.join("allowlist.js"))
            .arg("--output")
            .arg(&script),
    )?;
    let snake = place.join("allowlist-py.wasm");
    run(Command::new(place.join("python/bin/componentize-py"))
        .args(["--quiet", "--world", "configurable-policy-plugin", "--wit-path"])
        .arg(&wit)
        .args(["componentize", "--stub-wasi", "allowlist", "--python-path"])
        .arg(&sources)
        .arg("--output")
        .arg(&snake))?;
    run(cargo(&["bench", "--locked", "--bench", "load", "--", seconds])?
        .arg(script)
        .arg(snake))
    .context("the load test failed")
}
