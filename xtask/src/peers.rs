//! The MCP servers and clients of others that the tests talk to, pinned under `tests/peers`.
//!
//! They end up in `target/peers/node/node_modules` and `target/peers/python`, a virtual environment, of which a copy
//! of the lock file is left beside each once it is complete, so that nothing is done again until the lock changes;
//! and in `target/peers/rmcp`, where cargo knows what is to be done.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::{cargo, root, run, run_with_retries};

/// Installs what is not installed yet.
pub(crate) fn install() -> Result<()> {
    let root = root()?;
    let (pinned, peers) = (root.join("tests/peers"), root.join("target/peers"));
    once(&peers.join("node"), &pinned.join("package-lock.json"), |folder| {
        for file in ["package.json", "package-lock.json"] {
            fs::copy(pinned.join(file), folder.join(file))?;
        }
        // No scripts: a peer has no business on this machine but when a test starts it.
        run_with_retries(
            Command::new("npm")
                .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
                .current_dir(folder),
        )
    })?;
    once(
        &peers.join("python"),
        &pinned.join("requirements.txt"),
        |folder| python(folder, &pinned.join("requirements.txt")),
    )?;
    let rust = [
        "build",
        "--locked",
        "--manifest-path",
        "tests/peers/rmcp/Cargo.toml",
    ];
    run(cargo(&rust)?.env("CARGO_TARGET_DIR", peers.join("rmcp")))
}

/// Makes a virtual environment with what the file pins.
pub(crate) fn python(folder: &Path, requirements: &Path) -> Result<()> {
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(folder))
    .context("on Debian, `apt-get install python3-venv` brings what is missing")?;
    run_with_retries(
        Command::new(folder.join("bin/python"))
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--only-binary=:all:",
                "--requirement",
            ])
            .arg(requirements),
    )
}

/// Fills `folder`, unless it is complete and for this very lock file.
pub(crate) fn once(folder: &Path, lock: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let wanted = fs::read(lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let complete = folder.join("complete");
    if fs::read(&complete).is_ok_and(|found| found == wanted) {
        println!("{} is complete", folder.display());
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fill(folder)?;
    fs::write(complete, wanted)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::once;

    #[test]
    fn filled_once_for_each_lock_and_again_after_a_failure() {
        let folder = std::env::temp_dir().join(format!("xtask-once-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (lock, place) = (folder.join("lock"), folder.join("place"));
        let fills = std::cell::Cell::new(0);
        let fill = |outcome: anyhow::Result<()>| {
            once(&place, &lock, |_| {
                fills.set(fills.get() + 1);
                outcome
            })
        };
        fs::write(&lock, "1").unwrap();
        assert!(fill(Err(anyhow::anyhow!("no network"))).is_err());
        fill(Ok(())).unwrap();
        fill(Ok(())).unwrap();
        assert_eq!(2, fills.get());
        fs::write(&lock, "2").unwrap();
        fill(Ok(())).unwrap();
        assert_eq!(3, fills.get());
        fs::remove_dir_all(&folder).unwrap();
    }
}
