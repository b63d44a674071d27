//! Running programs: said before, checked after.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// How often a download is tried. Registries have bad minutes, not bad hours.
const TRIES: u32 = 3;

/// The top of the repository.
pub(crate) fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here.parent().context("xtask lies in the repository")?.into())
}

/// `cargo` with these arguments, at the top of the repository.
pub(crate) fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(root()?);
    forget_package(&mut command);
    Ok(command)
}

/// Keeps from a command what cargo tells the programs that it runs: variables about the package `xtask`
/// would make build scripts elsewhere run again.
pub(crate) fn forget_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
}

/// Runs the command to its end.
///
/// # Errors
///
/// When it cannot be started or says that it failed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("+ {}", shown(command));
    let status = command
        .status()
        .with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !status.success() {
        bail!("`{}` failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs a command that downloads, again when it fails.
///
/// # Errors
///
/// What the last try failed with.
pub(crate) fn run_with_retries(command: &mut Command) -> Result<()> {
    let mut outcome = run(command);
    for _ in 1..TRIES {
        let Err(error) = &outcome else { break };
        eprintln!("xtask: {error:#}; trying again");
        outcome = run(command);
    }
    outcome
}

/// What the command writes to its standard output, without the line break at the end.
///
/// # Errors
///
/// When it cannot be started or says that it failed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run `{}`", shown(command)))?;
    if !output.status.success() {
        bail!("`{}` failed ({})", shown(command), output.status);
    }
    let text =
        String::from_utf8(output.stdout).with_context(|| format!("the output of `{}`", shown(command)))?;
    Ok(text.trim_end().into())
}

/// The command as a person would type it, near enough to read.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy()];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy()));
    words.join(" ")
}
