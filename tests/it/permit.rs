//! The compiler enforces that no request reaches an upstream unjudged: only the gate makes a permit.
//!
//! Each file in `tests/compile_fail` says in its lines marked `//~` which error it must give there. They are
//! compiled against the library of this very build; `control.rs` compiles, which shows that the others
//! fail for the reason they name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The errors of a file: line and code.
fn errors(file: &Path) -> Vec<(usize, String)> {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition=2024",
            "--emit=metadata",
            "--error-format=json",
            "--out-dir",
        ])
        .arg(folder.path())
        .arg(format!("--extern=gatewright={}", library(&deps).display()))
        .arg(format!("-Ldependency={}", deps.display()))
        .arg(file)
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    let messages = stderr
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|_| panic!("{stderr}")));
    let mut errors: Vec<_> = messages
        .filter(|message| message["level"] == "error" && !message["spans"].as_array().unwrap().is_empty())
        .map(|message| {
            let line = message["spans"][0]["line_start"].as_u64().unwrap();
            let code = message["code"]["code"].as_str();
            (
                usize::try_from(line).unwrap(),
                code.unwrap_or_else(|| panic!("{message}")).to_owned(),
            )
        })
        .collect();
    assert_eq!(errors.is_empty(), output.status.success(), "{stderr}");
    errors.sort();
    errors
}

/// The library as it was built for these tests: the newest one.
fn library(deps: &Path) -> PathBuf {
    let entries = fs::read_dir(deps).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            name.starts_with("libgatewright-") && name.ends_with(".rlib")
        })
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .expect("the library was built before its tests")
}

/// What the file says of itself.
fn expected(file: &Path) -> Vec<(usize, String)> {
    let text = fs::read_to_string(file).unwrap();
    let marked = text.lines().enumerate().filter_map(|(at, line)| {
        let (_, code) = line.split_once("//~ ")?;
        Some((at + 1, code.trim().to_owned()))
    });
    marked.collect()
}

#[test]
fn a_permit_cannot_be_made_or_used_twice() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail");
    let mut failing = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let file = entry.unwrap().path();
        let expected = expected(&file);
        assert_eq!(
            file.ends_with("control.rs"),
            expected.is_empty(),
            "{}",
            file.display()
        );
        assert_eq!(expected, errors(&file), "{}", file.display());
        failing += usize::from(!expected.is_empty());
    }
    assert!(8 <= failing, "only {failing} files were compiled");
}
