//! docs/configuration.md names every key of the configuration, and its example of `serve` loads.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use gatewright::config::ServeConfig;

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

/// The keys of the raw structs, as the file spells them.
fn keys(source: &str) -> Vec<String> {
    source
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("pub(super) "))
        .filter_map(|field| field.split_once(": "))
        .map(|(name, _)| name.replace('_', "-"))
        .collect()
}

/// Whether code in the text has `key` as a word of its own: many keys are words of prose, too.
fn names(text: &str, key: &str) -> bool {
    let code = text.split('`').skip(1).step_by(2);
    code.flat_map(|code| code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')))
        .any(|word| word == key)
}

#[test]
fn every_key_is_documented() {
    let page = read("docs/configuration.md");
    let keys = keys(&read("src/config/raw.rs"));
    assert!(50 < keys.len(), "only {} keys were found", keys.len());
    let missing: Vec<_> = keys.iter().filter(|key| !names(&page, key)).collect();
    assert!(
        missing.is_empty(),
        "docs/configuration.md does not name {missing:?}"
    );
}

#[test]
fn keys_are_found_as_the_file_spells_them() {
    let source = "pub(super) struct Raw {\n    #[serde(default)]\n    pub(super) read_ms: Option<i64>,\n}\n";
    assert_eq!(vec!["read-ms"], keys(source));
    for (text, expected) in [
        ("`read-ms`", true),
        ("```toml\n[a]\nread-ms = 1\n```", true),
        ("read-ms", false),
        ("`thread-ms`", false),
        ("`read-ms-max`", false),
    ] {
        assert_eq!(expected, names(text, "read-ms"), "{text}");
    }
}

#[test]
fn the_example_of_serve_loads() {
    let page = read("docs/configuration.md");
    let (_, rest) = page.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gatewright.toml");
    fs::write(&file, example).unwrap();
    let environment = |name: &str| match name {
        "HOME" => Some(OsString::from("/home/ada")),
        "NOTES_AUTHORIZATION" => Some(OsString::from("Bearer k3y")),
        _ => None,
    };
    let config = ServeConfig::load(&file, true, &environment).unwrap();
    let paths: Vec<_> = config.endpoints.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(vec!["/files", "/notes"], paths);
}
