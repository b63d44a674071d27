//! Guests that must not get into force, or only just.

use std::time::Duration;

use gatewright::policy::limits::{PolicySettings, Source};
use gatewright::policy::load::{LoadError, Policy};

use super::{Answer, Case};
use crate::support::policies::{Does, Guest, data_at, settings, wat_policy};

/// How long loading may take beside what the guest makes it wait.
const LOADING: Duration = Duration::from_secs(20);

#[track_caller]
fn refuses(case: &Case, component: impl Into<Vec<u8>>) -> String {
    case.refuses(settings(&case.row.name, component))
}

pub(super) async fn large_minimum(case: &Case) {
    for pages in ["65536", "1025"] {
        let memory = format!(r#"(memory (export "memory") {pages})"#);
        refuses(
            case,
            Guest {
                memory: &memory,
                ..Guest::default()
            }
            .component(),
        );
    }
    // Within the limit each, and not together: seen when it is tried.
    let two = Guest {
        memory: r#"(memory (export "memory") 600)"#,
        items: "(memory $other 600)",
        ..Guest::default()
    };
    refuses(case, two.component());
}

pub(super) async fn large_minimum_table(case: &Case) {
    for elements in ["4294967295", "100001"] {
        let items = format!("(table {elements} funcref)");
        refuses(
            case,
            Guest {
                items: &items,
                ..Guest::default()
            }
            .component(),
        );
    }
}

pub(super) async fn missing_export(case: &Case) {
    let other = r#"(component (component $c) (instance $i (instantiate $c))
        (export "acme:thing/other@1.0.0" (instance $i)))"#;
    let message = refuses(case, other);
    assert!(
        message.contains("gatewright:policy/authorizer@1.0.x"),
        "{message}"
    );
    assert!(message.contains("acme:thing/other@1.0.0"), "{message}");
    let message = refuses(case, "(component)");
    assert!(message.contains("exports nothing"), "{message}");
    let message = refuses(
        case,
        Guest {
            version: "2.0.0",
            ..Guest::default()
        }
        .component(),
    );
    assert!(message.contains("authorizer@2.0.0"), "{message}");
    let empty = r#"(component (component $c) (instance $i (instantiate $c))
        (export "gatewright:policy/authorizer@1.0.0" (instance $i)))"#;
    let message = refuses(case, empty);
    assert!(message.contains("authorizer@1.0.0#authorize"), "{message}");
}

pub(super) async fn one_more_case(case: &Case) {
    let cases = r#"(case "allow") (case "ask" string) (case "deny" string) (case "maybe")"#;
    let message = refuses(
        case,
        Guest {
            cases,
            ..Guest::default()
        }
        .component(),
    );
    assert!(message.contains("gatewright:policy/authorizer"), "{message}");
    let cases = r#"(case "allow") (case "deny" string) (case "ask" string)"#;
    refuses(
        case,
        Guest {
            cases,
            ..Guest::default()
        }
        .component(),
    );
}

pub(super) async fn unknown_import(case: &Case) {
    let before = r#"(import "acme:db/query" (instance (export "run" (func))))"#;
    refuses(
        case,
        Guest {
            before,
            ..Guest::default()
        }
        .component(),
    );
    // One of WASI that there is not, and an unknown function of one that there is.
    let loads = |before| {
        let guest = Guest {
            before,
            ..Guest::default()
        };
        Policy::load(&case.engine, settings("odd", guest.component())).unwrap_err()
    };
    let error = loads(r#"(import "wasi:http/types@0.2.0" (instance (export "run" (func))))"#);
    assert!(matches!(&error, LoadError::Import { .. }), "{error}");
    assert!(error.to_string().contains("wasi:http/types@0.2.0"), "{error}");
    let error = loads(r#"(import "wasi:cli/exit@0.2.0" (instance (export "run" (func))))"#);
    assert!(error.to_string().contains("wasi:cli/exit@0.2.0"), "{error}");
}

pub(super) async fn not_wasm(case: &Case) {
    let page = "<!DOCTYPE html>\n<html><body><h1>404 Not Found</h1></body></html>\n";
    let message = refuses(case, page);
    assert!(
        message.contains("neither a WebAssembly component nor its text"),
        "{message}"
    );
    refuses(case, "");
    refuses(case, b"\xff\xfe\x00".as_slice());
    refuses(case, b"\0asm".as_slice());
    let message = refuses(case, b"\x7fELF\x02\x01\x01\0".as_slice());
    assert!(message.contains("machine code"), "{message}");
    let message = refuses(case, "(module)");
    assert!(message.contains("wasm-tools component new"), "{message}");
    let whole = wat::parse_str(wat_policy(Does::Allow)).unwrap();
    for bytes in [9, whole.len() / 2, whole.len() - 1] {
        refuses(case, &whole[..bytes]);
    }
}

pub(super) async fn other_encodings(case: &Case) {
    for options in ["string-encoding=utf16", "string-encoding=latin1+utf16"] {
        refuses(
            case,
            Guest {
                options,
                ..Guest::default()
            }
            .component(),
        );
    }
}

/// Loading must be given up soon after the configure deadline.
#[track_caller]
fn gives_up(case: &Case, component: String) {
    let mut settings = settings(&case.row.name, component);
    settings.limits.configure_deadline = Duration::from_millis(200);
    let start = tokio::time::Instant::now();
    let message = case.refuses(settings);
    assert!(message.contains("policy_timeout"), "{message}");
    assert!(start.elapsed() < LOADING, "{:?}", start.elapsed());
}

pub(super) async fn start_loops(case: &Case) {
    let items = "(func $start (loop $again (br $again))) (start $start)";
    gives_up(
        case,
        Guest {
            items,
            ..Guest::default()
        }
        .component(),
    );
}

pub(super) async fn configure_loops(case: &Case) {
    let configure = "(loop $again (br $again)) unreachable";
    gives_up(
        case,
        Guest {
            configure,
            ..Guest::default()
        }
        .component(),
    );
}

pub(super) async fn configure_refuses(case: &Case) {
    let reason = "no root given";
    let items = data_at(1024, reason.as_bytes());
    let configure = "(call $answer (i32.const 1) (i32.const 1024) (i32.const 13))";
    let message = refuses(
        case,
        Guest {
            items: &items,
            configure,
            ..Guest::default()
        }
        .component(),
    );
    assert!(message.contains("refuses its configuration"), "{message}");
}

pub(super) async fn refuses_at_length(case: &Case) {
    let configure = "(memory.fill (i32.const 65536) (i32.const 0x1b) (i32.const 10485760))
        (call $answer (i32.const 1) (i32.const 65536) (i32.const 10485760))";
    let memory = r#"(memory (export "memory") 200)"#;
    let message = refuses(
        case,
        Guest {
            memory,
            configure,
            ..Guest::default()
        }
        .component(),
    );
    assert!(message.contains(r"\u{1b}\u{1b}"), "{message}");
    assert!(message.contains("(cut after 512 of 10485760 bytes)"), "{message}");
}

/// A section of a binary.
fn section(id: u8, contents: &[u8]) -> Vec<u8> {
    let mut section = vec![id];
    let mut len = u32::try_from(contents.len()).unwrap();
    while 0x80 <= len {
        section.push(len.to_le_bytes()[0] | 0x80);
        len >>= 7;
    }
    section.push(len.to_le_bytes()[0]);
    section.extend_from_slice(contents);
    section
}

const MODULE: &[u8] = b"\0asm\x01\0\0\0";
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

pub(super) async fn giant_data(case: &Case) {
    // One memory of 200 MB, and one segment at 0 that fills it.
    let bytes = 200_000_000;
    let mut segment = vec![1, 0, 0x41, 0, 0x0b];
    segment.extend(&section(0, &vec![b'x'; bytes])[1..]);
    // The page count in LEB128: 3052.
    let memory = section(5, &[1, 0, 0xec, 0x17]);
    let module = [MODULE, &memory, &section(11, &segment)].concat();
    refuses(case, [COMPONENT, &section(1, &module)].concat());
    // The same in a memory that is small enough.
    let memory = section(5, &[1, 0, 1]);
    let module = [MODULE, &memory, &section(11, &segment)].concat();
    refuses(case, [COMPONENT, &section(1, &module)].concat());
}

pub(super) async fn huge_function(case: &Case) {
    let guest = |unit: &str| {
        let items = format!("(func (local $y i32) {})", unit.repeat(500_000));
        settings(
            &case.row.name,
            Guest {
                items: &items,
                ..Guest::default()
            }
            .component(),
        )
    };
    let message = case.refuses(guest("(drop (i32.const 1))\n"));
    assert!(
        message.contains("1500004 bytes of code; the limit is 1048576"),
        "{message}"
    );
    // A million instructions can also be small enough.
    let policy = case.load_with(guest("nop nop\n"));
    case.judges(&policy).await;
}

pub(super) async fn deeply_nested(case: &Case) {
    let nested = |levels: usize| {
        (0..levels).fold(COMPONENT.to_vec(), |inner, _| {
            [COMPONENT, &section(4, &inner)].concat()
        })
    };
    let message = refuses(case, nested(200));
    assert!(
        message.contains("components are nested 33 deep; the limit is 32"),
        "{message}"
    );
    refuses(case, nested(20_000));
    let text = format!("{}{}", "(component ".repeat(200), ")".repeat(200));
    refuses(case, text);
    // As many as are allowed fail for another reason.
    let message = refuses(case, nested(31));
    assert!(message.contains("does not export"), "{message}");
}

pub(super) async fn patch_version(case: &Case) {
    let guest = Guest {
        version: "1.0.7",
        configure: "(call $allow)",
        ..Guest::default()
    };
    let policy = case.load(guest.component());
    assert!(policy.facts().configurable);
    case.judges(&policy).await;
}

pub(super) async fn async_export(case: &Case) {
    let component = Guest {
        options: "async",
        ..Guest::default()
    }
    .component();
    let message = refuses(case, component);
    assert!(message.contains("async"), "{message}");
}

/// No cases of the file: files that are none, and configurations that nobody takes.
#[test]
fn files_and_configurations() {
    let engine = super::engine();
    let folder = tempfile::tempdir().unwrap();
    let from = |path: &std::path::Path| PolicySettings {
        source: Source::File(path.to_owned()),
        ..settings("p", "")
    };
    let load = |settings| Policy::load(&engine, settings);

    let good = folder.path().join("good.wat");
    std::fs::write(&good, wat_policy(Does::Allow)).unwrap();
    let text = load(from(&good)).unwrap();
    let binary = folder.path().join("good.wasm");
    std::fs::write(&binary, wat::parse_str(wat_policy(Does::Allow)).unwrap()).unwrap();
    assert_eq!(text.digest(), load(from(&binary)).unwrap().digest());
    assert!(text.facts().imports.is_empty());
    assert_eq!(["gatewright:policy/authorizer@1.0.0"], *text.facts().exports);
    assert_eq!(
        std::fs::metadata(&binary).unwrap().len(),
        text.facts().component_bytes as u64
    );

    let error = load(from(&folder.path().join("none.wasm"))).unwrap_err();
    assert!(matches!(error, LoadError::Read { .. }), "{error}");
    let error = load(from(folder.path())).unwrap_err();
    assert!(matches!(error, LoadError::NotAFile { .. }), "{error}");
    let mut small = from(&binary);
    small.limits.file_bytes_max = 100;
    let error = load(small).unwrap_err();
    assert!(error.to_string().contains("limit"), "{error}");
    let mut large = from(&binary);
    large.limits.memory_bytes_max = usize::MAX;
    let error = load(large).unwrap_err();
    assert!(error.to_string().contains("more than the host's"), "{error}");

    for (config, taken) in [("", true), ("{}", true), (" {} \n", true), (r#"{"a":1}"#, false)] {
        let settings = PolicySettings {
            config_json: config.to_owned(),
            ..settings("p", wat_policy(Does::Allow))
        };
        assert_eq!(taken, load(settings).is_ok(), "{config:?}");
    }
}

/// The configuration arrives as it was given, `{}` when none was, and decides over the digest.
#[tokio::test]
async fn configurations_arrive() {
    let engine = super::engine();
    // Keeps the configuration where it lies and denies with it.
    let guest = Guest {
        items: "(global $ptr (mut i32) (i32.const 0)) (global $len (mut i32) (i32.const 0))",
        configure: "(global.set $ptr (local.get $ptr)) (global.set $len (local.get $len)) (call $allow)",
        authorize: "(call $deny (global.get $ptr) (global.get $len))",
        ..Guest::default()
    };
    let load = |config: &str| {
        let settings = settings("configured", guest.component());
        Policy::load(
            &engine,
            PolicySettings {
                config_json: config.to_owned(),
                ..settings
            },
        )
        .unwrap()
    };
    let config = r#"{"root": "/srv/ü"}"#;
    assert_eq!(config, Answer::of(&load(config), "x").await.text());
    assert_eq!("{}", Answer::of(&load(""), "x").await.text());
    assert_eq!(load("").digest(), load("{}").digest());
    assert_ne!(load("").digest(), load(config).digest());
}

/// No cases of the file: what the engine could do and is not let.
#[test]
fn proposals_that_stay_off() {
    let engine = super::engine();
    for (memory, items) in [
        (r#"(memory (export "memory") 1 2 shared)"#, ""),
        (r#"(memory (export "memory") i64 1)"#, ""),
        (
            r#"(memory (export "memory") 2)"#,
            "(type $gc (struct (field i32)))",
        ),
    ] {
        let component = Guest {
            memory,
            items,
            ..Guest::default()
        }
        .component();
        let error = Policy::load(&engine, settings("odd", component)).unwrap_err();
        assert!(
            matches!(error, LoadError::Compile { .. }),
            "{memory} {items}: {error}"
        );
    }
}
