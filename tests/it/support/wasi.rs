//! Core and component items for guests that use WASI.
//!
//! The memory lies in a module of its own, because a function of WASI that reads memory must be
//! lowered before the guest's module exists.

use super::policies::Guest;

/// A guest that imports these interfaces: `before` declares them and lowers core functions,
/// `functions` are the exports of the core instance that the guest imports as module `wasi`.
pub(crate) fn wasi_guest<'a>(parts: &'a Parts, authorize: &'a str) -> Guest<'a> {
    Guest {
        before: &parts.before,
        with: &parts.with,
        imports: &parts.imports,
        memory: r#"(export "memory" (memory 0))"#,
        authorize,
        ..Guest::default()
    }
}

/// The text of the items that a guest of WASI needs.
pub(crate) struct Parts {
    before: String,
    with: String,
    imports: String,
}

/// One core function that a guest imports: its name, its core type, and how it is lowered.
type Function = (&'static str, &'static str, &'static str);

impl Parts {
    fn new(interfaces: &str, functions: &[Function]) -> Self {
        let mut before = format!("{MEMORY}{interfaces}");
        let mut exports = String::new();
        let mut imports = r#"(import "mem" "memory" (memory 32))"#.to_owned();
        for (name, core_type, lower) in functions {
            before.push_str(&format!("(core func ${name} (canon lower {lower}))\n"));
            exports.push_str(&format!(r#"(export "{name}" (func ${name}))"#));
            imports.push_str(&format!(r#"(import "wasi" "{name}" (func ${name} {core_type}))"#));
        }
        let with = format!(r#"(with "mem" (instance $mem)) (with "wasi" (instance {exports}))"#);
        Self {
            before,
            with,
            imports,
        }
    }

    /// `$get_out` and `$write` (stream, pointer, length, result area) for standard output or error.
    pub(crate) fn output(stream: &str) -> Self {
        let interfaces = format!(
            r#"{STREAMS}
            (import "wasi:cli/{stream}@0.2.0" (instance $cli
                (alias outer 1 $output-stream (type $os0))
                (export "output-stream" (type $os (eq $os0)))
                (export "get-{stream}" (func (result (own $os))))))
            (alias export $cli "get-{stream}" (func $get))"#
        );
        Self::new(
            &interfaces,
            &[
                ("get_out", "(result i32)", "(func $get)"),
                (
                    "write",
                    "(param i32 i32 i32 i32)",
                    r#"(func $streams "[method]output-stream.blocking-write-and-flush") (memory $mem "memory")"#,
                ),
            ],
        )
    }

    /// `$after` (nanoseconds) makes a pollable, `$block` waits for it; `$now` reads the clock.
    pub(crate) fn timer() -> Self {
        let interfaces = r#"
            (import "wasi:io/poll@0.2.0" (instance $poll
                (export "pollable" (type $p (sub resource)))
                (export "[method]pollable.block" (func (param "self" (borrow $p))))))
            (alias export $poll "pollable" (type $pollable))
            (import "wasi:clocks/monotonic-clock@0.2.0" (instance $clock
                (alias outer 1 $pollable (type $p0))
                (export "pollable" (type $p (eq $p0)))
                (export "subscribe-duration" (func (param "when" u64) (result (own $p))))
                (export "now" (func (result u64)))))"#;
        Self::new(
            interfaces,
            &[
                (
                    "after",
                    "(param i64) (result i32)",
                    r#"(func $clock "subscribe-duration")"#,
                ),
                ("now", "(result i64)", r#"(func $clock "now")"#),
                ("block", "(param i32)", r#"(func $poll "[method]pollable.block")"#),
            ],
        )
    }

    /// `$stdin`, `$ready` (stream) makes a pollable, `$block` waits for it.
    pub(crate) fn stdin() -> Self {
        let interfaces = r#"
            (import "wasi:io/poll@0.2.0" (instance $poll
                (export "pollable" (type $p (sub resource)))
                (export "[method]pollable.block" (func (param "self" (borrow $p))))))
            (alias export $poll "pollable" (type $pollable))
            (import "wasi:io/streams@0.2.0" (instance $streams
                (alias outer 1 $pollable (type $p0))
                (export "pollable" (type $p (eq $p0)))
                (export "input-stream" (type $is (sub resource)))
                (export "[method]input-stream.subscribe"
                    (func (param "self" (borrow $is)) (result (own $p))))))
            (alias export $streams "input-stream" (type $input-stream))
            (import "wasi:cli/stdin@0.2.0" (instance $cli
                (alias outer 1 $input-stream (type $is0))
                (export "input-stream" (type $is (eq $is0)))
                (export "get-stdin" (func (result (own $is))))))"#;
        Self::new(
            interfaces,
            &[
                ("stdin", "(result i32)", r#"(func $cli "get-stdin")"#),
                (
                    "ready",
                    "(param i32) (result i32)",
                    r#"(func $streams "[method]input-stream.subscribe")"#,
                ),
                ("block", "(param i32)", r#"(func $poll "[method]pollable.block")"#),
            ],
        )
    }

    /// `$random` yields 64 bits.
    pub(crate) fn random() -> Self {
        let interfaces = r#"(import "wasi:random/random@0.2.0" (instance $random
            (export "get-random-u64" (func (result u64)))))"#;
        Self::new(
            interfaces,
            &[("random", "(result i64)", r#"(func $random "get-random-u64")"#)],
        )
    }

    /// `$exit` (0 for success).
    pub(crate) fn exit() -> Self {
        let interfaces = r#"(import "wasi:cli/exit@0.2.0" (instance $exit
            (export "exit" (func (param "status" (result))))))"#;
        Self::new(interfaces, &[("exit", "(param i32)", r#"(func $exit "exit")"#)])
    }

    /// `$environment` and `$arguments` (result area: pointer and count).
    pub(crate) fn environment() -> Self {
        let interfaces = r#"(import "wasi:cli/environment@0.2.0" (instance $environment
            (export "get-environment" (func (result (list (tuple string string)))))
            (export "get-arguments" (func (result (list string))))))"#;
        Self::new(
            interfaces,
            &[
                (
                    "environment",
                    "(param i32)",
                    r#"(func $environment "get-environment") (memory $mem "memory") (realloc (func $mem "realloc"))"#,
                ),
                (
                    "arguments",
                    "(param i32)",
                    r#"(func $environment "get-arguments") (memory $mem "memory") (realloc (func $mem "realloc"))"#,
                ),
            ],
        )
    }

    /// `$directories` (result area: pointer and count) and `$same` (two descriptors).
    pub(crate) fn files() -> Self {
        let interfaces = r#"
            (import "wasi:filesystem/types@0.2.0" (instance $types
                (export "descriptor" (type $d (sub resource)))
                (export "[method]descriptor.is-same-object" (func
                    (param "self" (borrow $d)) (param "other" (borrow $d)) (result bool)))))
            (alias export $types "descriptor" (type $descriptor))
            (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
                (alias outer 1 $descriptor (type $d0))
                (export "descriptor" (type $d (eq $d0)))
                (export "get-directories" (func (result (list (tuple (own $d) string)))))))"#;
        Self::new(
            interfaces,
            &[
                (
                    "directories",
                    "(param i32)",
                    r#"(func $preopens "get-directories") (memory $mem "memory") (realloc (func $mem "realloc"))"#,
                ),
                (
                    "same",
                    "(param i32 i32) (result i32)",
                    r#"(func $types "[method]descriptor.is-same-object")"#,
                ),
            ],
        )
    }
}

const MEMORY: &str = r#"
    (core module $mem-module
        (memory (export "memory") 32)
        (global $top (mut i32) (i32.const 1048576))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (local $at i32)
            (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
            (global.set $top (i32.add (local.get $at) (local.get 3)))
            (local.get $at)))
    (core instance $mem (instantiate $mem-module))
    "#;

const STREAMS: &str = r#"
    (import "wasi:io/error@0.2.0" (instance $io-error (export "error" (type (sub resource)))))
    (alias export $io-error "error" (type $error))
    (import "wasi:io/streams@0.2.0" (instance $streams
        (alias outer 1 $error (type $e0))
        (export "error" (type $e (eq $e0)))
        (export "output-stream" (type $os (sub resource)))
        (type $se0 (variant (case "last-operation-failed" (own $e)) (case "closed")))
        (export "stream-error" (type $se (eq $se0)))
        (export "[method]output-stream.blocking-write-and-flush" (func
            (param "self" (borrow $os)) (param "contents" (list u8)) (result (result (error $se)))))))
    (alias export $streams "output-stream" (type $output-stream))"#;
