//! What the cases call the contents of files, and what they do to files.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;

use crate::support::policies::{Does, Guest, hiding, wat_policy};

/// The bytes that a case means.
pub(super) fn content(name: &str) -> Vec<u8> {
    let guest = |guest: Guest<'_>| guest.component().into_bytes();
    let wasm = |text: &str| wat::parse_str(text).unwrap();
    match name {
        "allow-all" => wasm(&wat_policy(Does::Allow)),
        "deny-all" => wasm(&wat_policy(Does::Deny("no"))),
        "ask-all" => wasm(&wat_policy(Does::Ask("sure?"))),
        "shows-all" => wasm(&hiding(&[])),
        "hides-danger" => wasm(&hiding(&["danger"])),
        "traps" => wasm(&wat_policy(Does::Trap)),
        "large-allow" => large(Does::Allow, 'a'),
        "large-a" => large(Does::Allow, 'a'),
        "large-b" => large(Does::Allow, 'b'),
        "small-deny" => wasm(&wat_policy(Does::Deny("no"))),
        "empty" => Vec::new(),
        "first 60 % of deny-all" => part(&content("deny-all"), 0, 6, 10),
        "first half of allow-all" | "truncated" => part(&content("allow-all"), 0, 1, 2),
        "a core module that exports authorize" => wasm(r#"(module (func (export "authorize")))"#),
        "component exporting gatewright:policy/authorizer@2.0.0" => guest(Guest {
            version: "2.0.0",
            ..Guest::default()
        }),
        "configurable policy that loops" => guest(Guest {
            configure: "(loop $again (br $again)) unreachable",
            ..Guest::default()
        }),
        "configurable policy that traps" => guest(Guest {
            configure: "unreachable",
            ..Guest::default()
        }),
        "component importing acme:db/query" => guest(Guest {
            before: r#"(import "acme:db/query" (instance (export "run" (func))))"#,
            ..Guest::default()
        }),
        // What every compiled artifact of the engine begins with: an ELF file.
        "cwasm of deny-all" => [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 64]].concat(),
        "cases that expect allow" => cases("allow"),
        "cases that expect deny" => cases("deny"),
        other => panic!("a content that the test does not know: {other}"),
    }
}

fn cases(expect: &str) -> Vec<u8> {
    format!(r#"[{{"name":"the first one","call":"deploy","args":{{"to":"staging"}},"expect":"{expect}"}}]"#)
        .into_bytes()
}

/// A policy with one megabyte of data.
fn large(does: Does<'_>, fill: char) -> Vec<u8> {
    let data = format!(
        r#"(data (i32.const 131072) "{}")"#,
        fill.to_string().repeat(1 << 20)
    );
    let text = wat_policy(does).replace(r#"(export "memory") 2)"#, r#"(export "memory") 32)"#);
    let at = text.find("(core instance").unwrap();
    let module_end = text[..at].rfind(')').unwrap();
    wat::parse_str(format!("{}{data}{}", &text[..module_end], &text[module_end..])).unwrap()
}

pub(super) fn part(bytes: &[u8], start: usize, end: usize, of: usize) -> Vec<u8> {
    bytes[bytes.len() * start / of..bytes.len() * end / of].to_vec()
}

pub(super) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

pub(super) fn write_and_rename(path: &Path, bytes: &[u8]) {
    let new = path.with_extension("new");
    write(&new, bytes);
    fs::rename(new, path).unwrap();
}

/// One `fs` step of a case, below `folder`.
pub(super) fn run(step: &Value, folder: &Path, fifo: &dyn Fn(&Path)) {
    let path = folder.join(step["path"].as_str().or(step["mount"].as_str()).unwrap());
    let text = |name: &str| step[name].as_str().unwrap_or_else(|| panic!("{name} in {step}"));
    match text("fs") {
        "open-truncate" => write(&path, b""),
        "append" => {
            let (at, of) = text("part").split_once('/').unwrap();
            let (at, of): (usize, usize) = (at.parse().unwrap(), of.parse().unwrap());
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(&part(&content(text("content")), at - 1, at, of))
                .unwrap();
        }
        "close" => {}
        "touch" => {
            let bytes = fs::read(&path).unwrap();
            write(&path, &bytes);
        }
        "write" | "write-in-place" => write(&path, &content(text("content"))),
        "write-temp-and-rename" if text("content") == "a FIFO without a writer" => {
            let new = path.with_extension("new");
            fifo(&new);
            fs::rename(new, &path).unwrap();
        }
        "write-temp-and-rename" => write_and_rename(&path, &content(text("content"))),
        "rename" => fs::rename(&path, folder.join(text("to"))).unwrap(),
        "delete" => fs::remove_file(&path).unwrap(),
        "mkdir" => fs::create_dir_all(&path).unwrap(),
        "remove-tree" => fs::remove_dir_all(&path).unwrap(),
        "symlink" => symlink(text("target"), &path).unwrap(),
        "k8s-swap" => {
            let (old, new) = (fs::read_link(path.join("..data")).unwrap(), path.join(text("to")));
            for (name, value) in step["content"].as_object().unwrap() {
                write(&new.join(name), &content(value.as_str().unwrap()));
            }
            symlink(text("to"), path.join("..data_tmp")).unwrap();
            fs::rename(path.join("..data_tmp"), path.join("..data")).unwrap();
            fs::remove_dir_all(path.join(old)).unwrap();
        }
        other => panic!("a step that the test does not know: {other}"),
    }
}
