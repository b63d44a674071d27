//! The standard policies: built, carried, and shown to be what their sources say.
//!
//! `src/policy/carried` holds one component for each policy, `BUILT_WITH` (compiler and host) and
//! `SHA256SUMS` (every source and every component, in the format of `sha256sum`). A source that
//! changes without a new build fails everywhere; where the compiler is the recorded one, the
//! components are built again and compared byte for byte.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use crate::command::{cargo, output, root, run, run_with_retries};

const POLICIES: [&str; 4] = ["allow-all", "allowlist", "deny-all", "paths"];
const TARGET: &str = "wasm32-unknown-unknown";
const CARRIED: &str = "src/policy/carried";
const SUMS: &str = "src/policy/carried/SHA256SUMS";
const BUILT_WITH: &str = "src/policy/carried/BUILT_WITH";

/// Builds every policy and puts it where the host carries it.
pub(crate) fn build() -> Result<()> {
    if !has_target()? {
        add_target()?;
    }
    let root = root()?;
    fs::create_dir_all(root.join(CARRIED))?;
    let flags = flags()?;
    for policy in POLICIES {
        let component = built(&root, &flags, policy)?;
        fs::write(root.join(carried(policy)), &component)?;
        println!("{policy}: {} bytes", component.len());
    }
    fs::write(root.join(BUILT_WITH), compiler()?)?;
    fs::write(root.join(SUMS), sums(&root)?)?;
    Ok(())
}

/// Fails if a source or a component is not what was recorded, or a new build differs.
pub(crate) fn check() -> Result<()> {
    let root = root()?;
    let recorded = fs::read_to_string(root.join(SUMS)).with_context(|| format!("cannot read {SUMS}"))?;
    let changed = differing_files(&recorded, &sums(&root)?);
    ensure!(
        changed.is_empty(),
        "the carried policies are not those of the sources; run `cargo xtask plugins`. Changed: {}",
        changed.join(", ")
    );
    println!("the carried policies and their sources are the recorded ones");

    let (recorded, here) = (fs::read_to_string(root.join(BUILT_WITH))?, compiler()?);
    if recorded != here {
        println!("not built again: recorded with\n{recorded}here is\n{here}");
        return Ok(());
    }
    if !has_target()? && add_target().is_err() {
        println!("not built again: this toolchain has no {TARGET}, and none can be had");
        return Ok(());
    }
    let flags = flags()?;
    for policy in POLICIES {
        let same = built(&root, &flags, policy)? == fs::read(root.join(carried(policy)))?;
        ensure!(
            same,
            "a new build of `{policy}` differs from the carried one; run `cargo xtask plugins`"
        );
    }
    println!("a new build of every policy is the carried one, byte for byte");
    Ok(())
}

/// Writes the bindings of every policy anew from `wit/`.
pub(crate) fn bindings() -> Result<()> {
    let root = root()?;
    let version = output(Command::new("wit-bindgen").arg("--version"))
        .context("install it with `cargo install wit-bindgen-cli@0.61.1`")?;
    ensure!(
        version.ends_with(" 0.61.1"),
        "the policies use wit-bindgen 0.61.1, not `{version}`"
    );
    for policy in POLICIES {
        let (world, file) = match policy {
            "allow-all" | "deny-all" => ("policy-plugin", "policy_plugin.rs"),
            _ => ("configurable-policy-plugin", "configurable_policy_plugin.rs"),
        };
        let source = root.join("plugins").join(policy).join("src");
        run(Command::new("wit-bindgen")
            .args([
                "rust",
                "wit/policy.wit",
                "--default-bindings-module",
                "bindings",
                "--world",
                world,
                "--out-dir",
            ])
            .arg(&source)
            .current_dir(&root))?;
        fs::rename(source.join(file), source.join("bindings.rs"))?;
    }
    run(cargo(&["fmt", "--all"])?.current_dir(root.join("plugins")))
}

fn carried(policy: &str) -> String {
    format!("{CARRIED}/{policy}.wasm")
}

/// Builds one policy and hands back its component.
///
/// One at a time: built together, the policies share the features of their dependencies.
fn built(root: &Path, flags: &str, policy: &str) -> Result<Vec<u8>> {
    let plugins = root.join("plugins");
    let package = format!("gatewright-{policy}");
    run(cargo(&[
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--target",
        TARGET,
        "--package",
        &package,
    ])?
    .current_dir(&plugins)
    .env("CARGO_TARGET_DIR", plugins.join("target"))
    .env("CARGO_ENCODED_RUSTFLAGS", flags)
    .env_remove("RUSTFLAGS"))?;
    let file = format!(
        "target/{TARGET}/release/gatewright_{}.wasm",
        policy.replace('-', "_")
    );
    fs::read(plugins.join(&file)).with_context(|| format!("cannot read plugins/{file}"))
}

/// Compiler flags that keep the folders of the building machine out of the component.
///
/// Fetches the dependencies first: cargo names the folder of their sources after the registry that
/// it was told to use, which may be a mirror.
fn flags() -> Result<String> {
    let root = root()?;
    run_with_retries(cargo(&["fetch", "--quiet", "--locked"])?.current_dir(root.join("plugins")))?;
    let home = match std::env::var("CARGO_HOME") {
        Ok(home) => home,
        Err(_) => format!("{}/.cargo", std::env::var("HOME").context("HOME is not set")?),
    };
    let sysroot = output(
        Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(&root),
    )?;
    let mut flags = vec![format!(
        "--remap-path-prefix={sysroot}/lib/rustlib/src/rust=/rust"
    )];
    for registry in
        fs::read_dir(Path::new(&home).join("registry/src")).context("cargo keeps sources elsewhere")?
    {
        flags.push(format!(
            "--remap-path-prefix={}=/registry",
            registry?.path().display()
        ));
    }
    Ok(flags.join("\u{1f}"))
}

/// The compiler and its host, in the form of [`BUILT_WITH`]. The host counts because cargo puts it
/// into the names of symbols, and so into their order.
fn compiler() -> Result<String> {
    let version = output(
        Command::new("rustc")
            .arg("--version")
            .arg("--verbose")
            .current_dir(root()?),
    )?;
    let lines = version
        .lines()
        .filter(|line| line.starts_with("rustc ") || line.starts_with("host: "));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

fn has_target() -> Result<bool> {
    let sysroot = output(
        Command::new("rustc")
            .args(["--print", "sysroot"])
            .current_dir(root()?),
    )?;
    Ok(Path::new(&sysroot)
        .join("lib/rustlib")
        .join(TARGET)
        .join("lib")
        .is_dir())
}

fn add_target() -> Result<()> {
    run_with_retries(Command::new("rustup").args(["target", "add", TARGET]).current_dir(root()?)).with_context(|| {
        format!(
            "policies are built for {TARGET}, and rustup cannot add it. On Debian, its own compiler builds the \
             standard library: `apt-get install rustc-web rust-web-src`, then in plugins/, with the rustlib/*/bin \
             folder of rustup's toolchain on PATH: `RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 cargo build --release \
             --target {TARGET} -Zbuild-std=std,panic_abort`"
        )
    })
}

/// A line `DIGEST  FILE` for every source and every carried component, in the order of the names.
fn sums(root: &Path) -> Result<String> {
    let mut files = BTreeSet::new();
    for file in [
        "plugins/Cargo.toml",
        "plugins/Cargo.lock",
        "plugins/.cargo/config.toml",
    ] {
        files.insert(file.to_owned());
    }
    collect(root, "wit", &mut files)?;
    for policy in POLICIES {
        files.insert(format!("plugins/{policy}/Cargo.toml"));
        files.insert(carried(policy));
        collect(root, &format!("plugins/{policy}/src"), &mut files)?;
    }
    let mut lines = String::new();
    for file in files {
        let bytes = fs::read(root.join(&file)).with_context(|| format!("cannot read {file}"))?;
        for byte in Sha256::digest(bytes) {
            write!(lines, "{byte:02x}")?;
        }
        writeln!(lines, "  {file}")?;
    }
    Ok(lines)
}

fn collect(root: &Path, folder: &str, files: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {folder}"))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            bail!("a file in {folder} has a name that is not UTF-8");
        };
        let path = format!("{folder}/{name}");
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

/// The files whose lines are in only one of the two lists.
fn differing_files(recorded: &str, actual: &str) -> Vec<String> {
    let recorded: BTreeSet<_> = recorded.lines().collect();
    let actual: BTreeSet<_> = actual.lines().collect();
    let files = recorded
        .symmetric_difference(&actual)
        .filter_map(|line| line.split_once("  "));
    files
        .map(|(_, file)| file.to_owned())
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::differing_files;

    #[test]
    fn what_changed_is_named_once() {
        let differing = |recorded, actual| differing_files(recorded, actual).join(" ");
        assert_eq!("", differing("1  a\n2  b\n", "1  a\n2  b\n"));
        assert_eq!("b", differing("1  a\n2  b\n", "1  a\n3  b\n"));
        assert_eq!("b c", differing("1  a\n2  b\n", "1  a\n2  c\n"));
    }
}
