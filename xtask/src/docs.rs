//! Runs what the documentation tells a reader to run, and holds the output against what it shows.
//!
//! Every block of a Markdown file that is marked `sh` is run by bash, in order, from one block to the next
//! in the folder where the last one ended, in a copy of the repository. A block marked `text` right after it
//! is what it prints, line by line; `…` in it stands for anything. Blocks of other kinds are not run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

use crate::command::{forget_package, output, root};

/// What a reader runs and this does not: it is the very command that runs this.
const RUN_ELSEWHERE: &[&str] = &["cargo xtask test\n"];

/// A block to run, and what it prints when the text says so.
#[derive(Debug, Default, PartialEq, Eq)]
struct Block {
    line: usize,
    script: String,
    prints: Option<String>,
}

/// Runs README.md, everything in docs/, and plugins/README.md.
pub(crate) fn run() -> Result<()> {
    let root = root()?;
    let place = std::env::temp_dir().join(format!("gatewright-docs-{}", std::process::id()));
    let done = run_in(&root, &place);
    // Left there after a failure, for whoever looks into it.
    if done.is_ok() {
        fs::remove_dir_all(&place)?;
    }
    done.with_context(|| format!("in {}", place.display()))
}

fn run_in(root: &Path, place: &Path) -> Result<()> {
    let copy = place.join("gatewright");
    copy_repository(root, &copy)?;
    // Dependencies are compiled once for everybody.
    std::os::unix::fs::symlink(root.join("target"), copy.join("target"))?;
    for file in files(root)? {
        let text = fs::read_to_string(root.join(&file)).with_context(|| format!("cannot read {file}"))?;
        let mut here = copy.clone();
        for block in blocks(&text) {
            if RUN_ELSEWHERE.contains(&block.script.as_str()) {
                continue;
            }
            println!("+ {file}:{}", block.line);
            let at = || format!("{file}:{}", block.line);
            here = run_block(&block, &here, place).with_context(at)?;
        }
    }
    Ok(())
}

fn files(root: &Path) -> Result<Vec<String>> {
    let mut files = vec!["README.md".to_owned(), "plugins/README.md".to_owned()];
    for entry in fs::read_dir(root.join("docs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            files.push(format!("docs/{name}"));
        }
    }
    files.sort();
    Ok(files)
}

/// Every file that git has or would take.
fn copy_repository(root: &Path, copy: &Path) -> Result<()> {
    let listed = output(
        Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root),
    )?;
    for file in listed.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (root.join(file), copy.join(file));
        // Deleted and not committed yet.
        if !from.is_file() {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(&from, &to).with_context(|| format!("cannot copy {file}"))?;
    }
    Ok(())
}

/// Runs one block, and says in which folder it ended.
fn run_block(block: &Block, here: &Path, place: &Path) -> Result<PathBuf> {
    let ended = place.join("ended-in");
    let installed = place.join("installed");
    let path = format!(
        "{}:{}",
        installed.join("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let script = format!("exec 2>&1\n{}\npwd > '{}'\n", block.script, ended.display());
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", &script])
        .current_dir(here)
        .env("PATH", path)
        .env("CARGO_INSTALL_ROOT", &installed)
        .env("XDG_STATE_HOME", place.join("state"))
        .env("XDG_CACHE_HOME", place.join("cache"))
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTUP_TOOLCHAIN")
        .stdin(Stdio::null());
    forget_package(&mut command);
    let result = command.output().context("cannot run bash")?;
    let printed = String::from_utf8_lossy(&result.stdout);
    if !result.status.success() {
        bail!(
            "the block failed ({}):\n{}\n{printed}",
            result.status,
            block.script
        );
    }
    if let Some(prints) = &block.prints {
        ensure!(
            matches(prints, &printed),
            "the block prints\n{printed}\nand the text shows\n{prints}"
        );
    }
    Ok(PathBuf::from(fs::read_to_string(&ended)?.trim_end()))
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = text.lines().enumerate();
    let mut follows = false;
    while let Some((at, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else {
            follows &= line.is_empty();
            continue;
        };
        let body: String = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| *line != "```")
            .flat_map(|line| [line, "\n"])
            .collect();
        match (kind, blocks.last_mut()) {
            ("sh", _) => blocks.push(Block {
                line: at + 1,
                script: body,
                prints: None,
            }),
            ("text", Some(block)) if follows => block.prints = Some(body),
            _ => {}
        }
        follows = kind == "sh";
    }
    blocks
}

/// Line by line; `…` stands for anything within a line.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<_>, Vec<_>) = (pattern.lines().collect(), text.lines().collect());
    pattern.len() == text.len()
        && pattern
            .iter()
            .zip(text)
            .all(|(pattern, line)| line_matches(pattern, line))
}

fn line_matches(pattern: &str, line: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('…') else {
        return pattern == line;
    };
    let Some(mut line) = line.strip_prefix(start) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('…').collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some((_, after)) = line.split_once(piece) else {
            return false;
        };
        line = after;
    }
    line.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::{Block, blocks, line_matches, matches};

    #[test]
    fn blocks_are_found_with_what_they_print() {
        let text = "a\n```sh\none\ntwo\n```\n\n```text\nout\n```\n\n```sh\nthree\n```\nwords\n```text\nno\n```\n```json\n{}\n```\n";
        let block = |line, script: &str, prints: Option<&str>| Block {
            line,
            script: script.to_owned(),
            prints: prints.map(str::to_owned),
        };
        assert_eq!(
            vec![block(2, "one\ntwo\n", Some("out\n")), block(11, "three\n", None)],
            blocks(text)
        );
    }

    #[test]
    fn dots_stand_for_anything_in_a_line() {
        for (pattern, line, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("a…", "abc", true),
            ("…c", "abc", true),
            ("a…c…e", "abcde", true),
            ("a…c…e", "abde", false),
            ("a…a", "a", false),
            ("…", "", true),
        ] {
            assert_eq!(expected, line_matches(pattern, line), "{pattern} {line}");
        }
        assert!(!matches("a\n", "a\nb\n"));
        assert!(matches("a\n…\n", "a\nb\n"));
    }
}
