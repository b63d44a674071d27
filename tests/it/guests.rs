//! Hostile and odd guests: one test for each case of `tests/cases/guests.json`, and each is
//! followed by a good call on the same engine.

mod loads;
mod outputs;
mod sandboxes;
mod steady;
mod traps;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use gatewright::decision::{Code, Decision, Fault};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{Limits, PolicySettings};
use gatewright::policy::load::{LoadError, Policy};
use serde::Deserialize;

use crate::policies::call;
use crate::support::policies::{Does, settings, wat_policy};

/// Makes one test per case, and one that no case is without a test.
macro_rules! cases {
    ($($test:ident: $name:literal => $check:path;)*) => {
        $(
            #[tokio::test]
            async fn $test() {
                let case = Case::named($name);
                $check(&case).await;
                case.good_call().await;
            }
        )*

        #[test]
        fn no_case_is_without_a_test() {
            let tested: BTreeSet<&str> = [$($name),*].into();
            let file = rows();
            let known: BTreeSet<&str> = file.iter().map(|row| row.name.as_str()).collect();
            assert_eq!(known, tested);
        }
    };
}

cases! {
    unreachable: "trap/unreachable" => traps::unreachable;
    division_by_zero: "trap/integer division by zero" => traps::division_by_zero;
    deep_recursion: "trap/deep recursion" => traps::deep_recursion;
    null_table_call: "trap/null table call" => traps::null_table_call;
    abort_after_a_panic_message: "trap/abort after a panic message" => traps::abort_after_message;
    traps_on_one_input_only: "trap/traps on one input only" => traps::one_input_only;
    realloc_returns_a_bad_pointer: "trap/realloc returns a bad pointer" => traps::bad_realloc;
    loop_in_a_memory_fill: "time/loop in a memory fill" => traps::memory_fill;
    blocking_poll: "time/blocking poll" => traps::blocking_poll;
    loop_in_cabi_realloc: "time/loop in cabi_realloc" => traps::loop_in_realloc;
    just_inside_the_deadline: "time/just inside the deadline" => traps::just_inside;
    memory_bomb: "memory/memory bomb" => traps::memory_bomb;
    table_bomb: "memory/table bomb" => traps::table_bomb;
    allocates_the_arguments: "memory/allocates the arguments a thousand times" => traps::copies;
    large_minimum: "memory/large minimum" => loads::large_minimum;
    large_minimum_table: "memory/large minimum table" => loads::large_minimum_table;
    leak_across_calls: "memory/leak across calls" => steady::leak;
    huge_reason: "output/huge reason" => outputs::huge_reason;
    reason_of_exactly_the_limit: "output/reason of exactly the limit" => outputs::at_the_limit;
    reason_over_the_limit: "output/reason one byte over the limit" => outputs::over_the_limit;
    unknown_decision: "output/unknown decision" => outputs::unknown_decision;
    length_that_overflows: "output/length that overflows" => outputs::length_overflows;
    huge_prompt: "output/huge prompt on allow-looking ask" => outputs::huge_prompt;
    reason_with_controls: "output/reason with NUL and ANSI" => outputs::controls;
    missing_export: "load/missing export" => loads::missing_export;
    one_more_decision_case: "load/one more decision case" => loads::one_more_case;
    imports_not_provided: "load/imports not provided" => loads::unknown_import;
    looks_for_files: "sandbox/looks for files" => sandboxes::files;
    not_wasm: "load/not wasm" => loads::not_wasm;
    other_encodings: "load/latin1 or UTF-16 strings" => loads::other_encodings;
    start_function_that_loops: "load/start function that loops" => loads::start_loops;
    loop_inside_configure: "load/loop inside configure" => loads::configure_loops;
    configure_refuses: "load/configure refuses" => loads::configure_refuses;
    configure_refuses_at_length: "load/configure refuses with 10 MiB" => loads::refuses_at_length;
    giant_data_segment: "load/giant data segment" => loads::giant_data;
    one_huge_function: "load/one function of a million instructions" => loads::huge_function;
    deeply_nested: "load/deeply nested component" => loads::deeply_nested;
    patch_version: "load/export of a patch version" => loads::patch_version;
    async_export: "load/async export" => loads::async_export;
    stdout_flood: "sandbox/stdout flood" => sandboxes::flood;
    forged_frame: "sandbox/forged frame on stdout" => sandboxes::forged_frame;
    random_without_grant: "sandbox/non-determinism by random" => sandboxes::random;
    state_between_calls: "sandbox/state between calls" => sandboxes::state;
    memory_of_another: "sandbox/reads another policy's memory" => sandboxes::foreign_memory;
    exit: "sandbox/exit" => sandboxes::exit;
    nan_payload: "sandbox/NaN payload" => sandboxes::nan;
    host_panic: "sandbox/host panic" => sandboxes::host_panic;
}

/// One row of the file.
#[derive(Deserialize)]
struct Row {
    name: String,
    expect_code: String,
    message_contains: Option<String>,
}

fn rows() -> Vec<Row> {
    serde_json::from_str(include_str!("../cases/guests.json")).unwrap()
}

/// A row, and the engine that its guest and the good call after it share.
struct Case {
    row: Row,
    engine: Arc<Engine>,
}

impl Case {
    fn named(name: &str) -> Self {
        let row = rows().into_iter().find(|row| row.name == name).expect(name);
        Self {
            row,
            engine: engine(),
        }
    }

    /// Loads, with the settings of a test that is not about time.
    #[track_caller]
    fn load(&self, component: impl Into<Vec<u8>>) -> Policy {
        self.load_with(settings(&self.row.name, component))
    }

    /// Loads, with the default limits, deadline included.
    #[track_caller]
    fn load_by_default(&self, component: impl Into<Vec<u8>>) -> Policy {
        let settings = settings(&self.row.name, component);
        self.load_with(PolicySettings {
            limits: Limits::default(),
            ..settings
        })
    }

    /// Loads a guest of which the log is kept, with this deadline.
    #[track_caller]
    fn load_logged(&self, component: String, deadline: Duration) -> Policy {
        let mut settings = settings(&self.row.name, component);
        settings.grants.log = true;
        settings.limits.deadline = deadline;
        self.load_with(settings)
    }

    #[track_caller]
    fn load_with(&self, settings: PolicySettings) -> Policy {
        let loaded = Policy::load(&self.engine, settings);
        loaded.unwrap_or_else(|error| panic!("{}: {error}", self.row.name))
    }

    /// Judges the tool `x`; the code must be the one that the file expects.
    async fn judges(&self, policy: &Policy) -> Answer {
        let answer = Answer::of(policy, "x").await;
        self.expects(&answer);
        answer
    }

    #[track_caller]
    fn expects(&self, answer: &Answer) {
        let expected = &self.row.expect_code;
        let met = expected.split(" or ").any(|code| code == answer.code());
        assert!(met, "{}: expected {expected}, got {answer:?}", self.row.name);
    }

    /// Loading must fail as the file expects. Answers with the message.
    #[track_caller]
    fn refuses(&self, settings: PolicySettings) -> String {
        let Err(error) = Policy::load(&self.engine, settings) else {
            panic!("{}: loaded", self.row.name);
        };
        self.check_refusal(&error);
        error.to_string()
    }

    #[track_caller]
    fn check_refusal(&self, error: &LoadError) {
        let Row {
            name,
            expect_code,
            message_contains,
        } = &self.row;
        assert!(
            expect_code.split(" or ").any(|code| code == error.code()),
            "{name}: {error}"
        );
        let message = error.to_string();
        if let Some(part) = message_contains {
            assert!(message.contains(part), "{name}: no `{part}` in: {message}");
        }
        // Whatever a guest says, a message is one short line.
        assert!(!message.contains(char::is_control), "{name}: {message:?}");
        assert!(message.len() < 4096, "{name}: {} bytes", message.len());
        assert!(message.contains(name.as_str()), "{name} is not named: {message}");
    }

    /// What the file asks for after every guest.
    async fn good_call(&self) {
        let good = Policy::load(&self.engine, settings("good", wat_policy(Does::Allow))).unwrap();
        assert_eq!(
            "allow",
            Answer::of(&good, "x").await.code(),
            "after {}",
            self.row.name
        );
    }
}

fn engine() -> Arc<Engine> {
    Engine::new(&EngineSettings::default()).unwrap()
}

/// What a policy answered, and how long it took.
#[derive(Debug)]
struct Answer {
    decision: Result<Decision, (Fault, String)>,
    time: Duration,
}

impl Answer {
    async fn of(policy: &Policy, name: &str) -> Self {
        let (decision, micros) = policy.decide(&call(name)).await;
        Self {
            decision,
            time: Duration::from_micros(micros),
        }
    }

    /// In the words of the file.
    fn code(&self) -> &'static str {
        match &self.decision {
            Ok(Decision::Allow) => "allow",
            Ok(Decision::Ask(_)) => "ask",
            Ok(Decision::Deny(_)) => Code::Denied.as_str(),
            Err((fault, _)) => fault.code().as_str(),
        }
    }

    /// The reason or the prompt.
    fn text(&self) -> &str {
        match &self.decision {
            Ok(Decision::Ask(text) | Decision::Deny(text)) => text,
            Ok(Decision::Allow) | Err(_) => panic!("no text: {self:?}"),
        }
    }
}
