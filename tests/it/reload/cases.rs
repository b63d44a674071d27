//! The rows of `tests/cases/reload.json` that are about files. Those about a whole gate (swaps under load or
//! while a call is parked, SIGHUP) have tests of their own, named in [`ELSEWHERE`].

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use gatewright::decision::{Code, Conclusion};
use serde_json::Value;

use super::{Followed, files};

/// Rows that another test runs, and which.
const ELSEWHERE: &[(&str, &str)] = &[
    ("gone/truncated at boot", "a_truncated_policy_starts_nothing"),
    ("swap/swap under load", "load::swaps_under_load_lose_nothing"),
    (
        "swap/swap while a call is parked",
        "load::a_parked_call_is_judged_by_what_is_in_force",
    ),
    (
        "swap/failed swap while a call is parked",
        "load::a_parked_call_is_judged_by_what_is_in_force",
    ),
    (
        "swap/no decision cache",
        "load::every_swap_is_seen_by_the_next_call",
    ),
    (
        "swap/two files in one deployment",
        "load::two_files_swap_one_after_the_other",
    ),
    (
        "swap/old component's memory returns",
        "load::old_policies_are_let_go",
    ),
    (
        "config/duplicate key in the configuration",
        "hangup::a_wrong_file_changes_nothing",
    ),
    (
        "swap/list change is announced",
        "lists::a_list_change_is_announced",
    ),
    ("config/all or nothing", "hangup::all_or_nothing"),
    (
        "config/deadlines in the wrong order",
        "hangup::a_wrong_file_changes_nothing",
    ),
    (
        "config/reload that unsets a seam on a listener",
        "hangup::a_listener_keeps_both_seams",
    ),
];

fn rows() -> Vec<Value> {
    serde_json::from_str(include_str!("../../cases/reload.json")).unwrap()
}

pub(super) fn row(name: &str) -> Value {
    let found = rows().into_iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("no case is called {name}"))
}

macro_rules! rows {
    ($($test:ident: $name:literal,)*) => {
        const HERE: &[&str] = &[$($name),*];
        $(
            #[tokio::test(start_paused = true)]
            async fn $test() {
                run(&row($name)).await;
            }
        )*
    };
}

rows! {
    in_place_slow_write: "replace/in-place slow write",
    rename_without_a_quiet_moment: "replace/rename without a quiet moment",
    in_place_write_of_a_smaller_file: "replace/in-place write of a smaller file",
    editor_that_saves_by_backup_and_rename: "replace/editor that saves by backup and rename",
    target_of_the_symbolic_link_overwritten: "replace/target of the symbolic link overwritten",
    kubernetes_data_swap: "replace/kubernetes data swap",
    kubernetes_swap_of_policy_and_cases_together: "replace/kubernetes swap of policy and cases together",
    touch: "replace/touch",
    rewritten_with_the_same_bytes: "replace/rewritten with the same bytes",
    truncated_to_an_invalid_file: "broken/truncated to an invalid file",
    empty_file: "broken/empty file",
    core_module: "broken/core module",
    newer_major_version: "broken/newer major version",
    configure_loops: "broken/configure loops",
    configure_traps: "broken/configure traps",
    own_cases_fail: "broken/own cases fail",
    imports_that_nobody_grants: "broken/imports that nobody grants",
    precompiled_artifact: "broken/precompiled artifact",
    named_pipe: "broken/named pipe",
    deleted: "gone/deleted",
    directory_removed_and_recreated: "gone/directory removed and recreated",
    directory_renamed_away_and_another_in_its_place: "gone/directory renamed away and another in its place",
}

#[test]
fn every_row_has_a_test() {
    let named = HERE
        .iter()
        .copied()
        .chain(ELSEWHERE.iter().map(|(name, _)| *name));
    let mut named: Vec<&str> = named.collect();
    let rows = rows();
    let mut there: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    named.sort_unstable();
    there.sort_unstable();
    assert_eq!(there, named);
}

#[tokio::test(start_paused = true)]
async fn a_truncated_policy_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies/p.wasm");
    files::write(&path, &files::content("first half of allow-all"));
    let error = Followed::start(&[&path]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("policies/p.wasm"), "{error}");
}

/// A row in progress.
struct Run {
    folder: tempfile::TempDir,
    followed: Followed,
    /// The content that was served at the start, and the last one written.
    old: String,
    written: String,
    /// Loaded at, replaced and refused, at the start.
    start: (u64, u64, u64),
}

async fn run(row: &Value) {
    let folder = tempfile::tempdir().unwrap();
    let setup = &row["setup"];
    let path = folder.path().join(setup["file"].as_str().unwrap());
    let old = set_up(setup, folder.path(), &path);
    let followed = Followed::start(&[&path]).unwrap();
    let status = followed.status();
    let mut run = Run {
        folder,
        followed,
        written: old.clone(),
        old,
        start: (status.loaded_unix_ms, status.reloads_ok, status.reloads_failed),
    };
    run.steps(row["steps"].as_array().unwrap()).await;
}

/// Lays the files, and says which content is served.
fn set_up(setup: &Value, folder: &Path, path: &Path) -> String {
    for (name, value) in setup["beside"].as_object().into_iter().flatten() {
        files::write(&folder.join(name), &files::content(value.as_str().unwrap()));
    }
    let Some(target) = setup["symlink_to"].as_str() else {
        let content = setup["content"].as_str().unwrap();
        files::write(path, &files::content(content));
        return content.to_owned();
    };
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    match setup["tree"].as_object() {
        Some(tree) => {
            for (name, value) in tree {
                let (place, value) = (folder.join(name), value.as_str().unwrap());
                if value.starts_with("..") {
                    symlink(value, place).unwrap();
                } else {
                    files::write(&place, &files::content(value));
                }
            }
            symlink(target, path).unwrap();
        }
        None => {
            files::write(&folder.join(target), &files::content("allow-all"));
            symlink(folder.join(target), path).unwrap();
        }
    }
    "allow-all".to_owned()
}

impl Run {
    async fn steps(&mut self, steps: &[Value]) {
        for step in steps {
            let known = [
                "fs",
                "wait",
                "wait_ms",
                "expect_served",
                "expect_status",
                "expect_metric",
                "repeat",
            ];
            let kind = known.iter().find(|kind| step.get(**kind).is_some());
            match *kind.unwrap_or_else(|| panic!("a step that the test does not know: {step}")) {
                "fs" => self.file_step(step),
                "wait" => self.followed.settle().await,
                "wait_ms" => self.followed.pass(step["wait_ms"].as_u64().unwrap()).await,
                "expect_served" => self.expect_served(step["expect_served"].as_str().unwrap()).await,
                "expect_status" => self.expect_status(step["expect_status"].as_str().unwrap()),
                "expect_metric" => self.expect_metric(step["expect_metric"].as_str().unwrap()),
                "repeat" => {
                    let steps = step["steps"].as_array().unwrap();
                    for at in 0..step["repeat"].as_u64().unwrap() {
                        let turn = usize::try_from(at % 2).unwrap();
                        let content = ["allow-all", "deny-all"][turn];
                        let steps = serde_json::to_string(steps)
                            .unwrap()
                            .replace("alternating allow-all, deny-all", content);
                        let steps: Vec<Value> = serde_json::from_str(&steps).unwrap();
                        Box::pin(self.steps(&steps)).await;
                    }
                }
                other => panic!("{other}"),
            }
        }
    }

    fn file_step(&mut self, step: &Value) {
        files::run(step, self.folder.path(), &|path| {
            let made = Command::new("mkfifo").arg(path).status().unwrap();
            assert!(made.success());
        });
        if let Some(content) = step["content"].as_str() {
            self.written = content.to_owned();
        }
    }

    async fn expect_served(&self, expected: &str) {
        let expected = match expected {
            "old" => self.old.as_str(),
            "new" | "the last written" => self.written.as_str(),
            content => content,
        };
        let conclusion = match expected {
            "allow-all" | "large-allow" => Conclusion::Allow,
            "deny-all" | "small-deny" => Conclusion::Deny {
                code: Code::Denied,
                detail: "no".to_owned(),
            },
            "ask-all" => Conclusion::Ask(vec!["sure?".to_owned()]),
            other => panic!("{other}"),
        };
        assert_eq!(conclusion, self.followed.served().await);
    }

    /// What Prometheus sees.
    fn expect_metric(&self, expected: &str) {
        let (counted, (_, ok, failed)) = (self.followed.counted(), self.start);
        let grown = (counted.0 - ok, counted.1 - failed);
        let fits = match expected {
            "reloads ok +1; failed loads at most counted once each, none served" => {
                grown.0 == 1 && grown.1 <= 2
            }
            "reloads ok +1" => grown == (1, 0),
            "reloads ok +0" | "reloads ok +0, failed +0" => grown == (0, 0),
            "failed loads +1" => grown == (0, 1),
            "a missing file in between is not a failure when it is back within the quiet time" => {
                grown == (1, 0)
            }
            other => panic!("a metric that the test does not know: {other}"),
        };
        assert!(fits, "{expected}: {grown:?}");
    }

    fn expect_status(&self, expected: &str) {
        let status = self.followed.status();
        match expected {
            "new digest, loaded at, no failure" => {
                assert!(
                    self.start.0 < status.loaded_unix_ms && status.failure.is_none(),
                    "{status:?}"
                );
                return;
            }
            "loaded-at unchanged, revision unchanged" | "revision unchanged" => {
                assert_eq!(self.start.0, status.loaded_unix_ms);
                assert!(status.failure.is_none(), "{status:?}");
                return;
            }
            _ => {}
        }
        let failure = status
            .failure
            .as_ref()
            .unwrap_or_else(|| panic!("a failure: {status:?}"));
        assert_eq!(self.start.0, status.loaded_unix_ms, "the old digest is in force");
        assert!(
            status.policy.contains("p.wasm") && failure.reason.contains("p.wasm"),
            "{status:?}"
        );
        let (reason, has_digest) = match expected
            .split_once("the reason: ")
            .map_or(expected, |(_, rest)| rest)
        {
            text if text.starts_with("not a component") => (
                ["neither a WebAssembly", "core WebAssembly module"].as_slice(),
                true,
            ),
            text if text.starts_with("version not served") => (["does not export"].as_slice(), true),
            text if text.starts_with("configure timed out") => (["policy_timeout"].as_slice(), true),
            text if text.starts_with("configure trapped") => (["policy_trap"].as_slice(), true),
            text if text.starts_with("its own test cases failed") => {
                (["its own case \"the first one\" fails"].as_slice(), true)
            }
            text if text.starts_with("the import, by name") => (["imports `acme:db/query`"].as_slice(), true),
            text if text.starts_with("precompiled artifacts") => (["compiled machine code"].as_slice(), true),
            text if text.starts_with("not a regular file") => (["not a regular file"].as_slice(), false),
            "file missing, last good in force" => (["No such file"].as_slice(), false),
            other => panic!("a status that the test does not know: {other}"),
        };
        assert!(
            reason.iter().any(|part| failure.reason.contains(part)),
            "{expected}: {}",
            failure.reason
        );
        assert_eq!(has_digest, failure.file.is_some(), "its new digest: {failure:?}");
    }
}
