//! Policies written as WebAssembly text, so that tests need no tool chain.
//!
//! [`wat_policy`] makes the ordinary ones. [`Guest`] wraps any core module into a component of the
//! contract, for the odd and hostile ones.

use std::borrow::Cow;
use std::time::Duration;

use gatewright::decision::Mode;
use gatewright::policy::limits::{Grants, Limits, PolicySettings, Source};

/// What a policy does with every call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Does<'a> {
    Allow,
    Ask(&'a str),
    Deny(&'a str),
    /// Allows these names and denies every other one.
    AllowOnly(&'a [&'a str]),
    /// Allows these names and asks for every other one.
    AskUnless(&'a [&'a str], &'a str),
    Trap,
    Loop,
}

/// A component in WebAssembly text that does it.
pub(crate) fn wat_policy(does: Does<'_>) -> String {
    let body = match does {
        Does::Allow => "(call $allow)".to_owned(),
        Does::Ask(prompt) => format!("(call $ask {})", text_at(TEXT, prompt)),
        Does::Deny(reason) => format!("(call $deny {})", text_at(TEXT, reason)),
        Does::AllowOnly(names) => allow_listed(names, &format!("(call $deny {})", text_at(TEXT, NOT_LISTED))),
        Does::AskUnless(names, prompt) => {
            allow_listed(names, &format!("(call $ask {})", text_at(TEXT, prompt)))
        }
        Does::Trap => "unreachable".to_owned(),
        Does::Loop => "(loop $again (br $again)) unreachable".to_owned(),
    };
    let data = match does {
        Does::Ask(text) | Does::Deny(text) => data_at(TEXT, text.as_bytes()),
        Does::AllowOnly(names) => data_at(TEXT, NOT_LISTED.as_bytes()) + &names_at(names),
        Does::AskUnless(names, prompt) => data_at(TEXT, prompt.as_bytes()) + &names_at(names),
        Does::Allow | Does::Trap | Does::Loop => String::new(),
    };
    Guest {
        items: &data,
        authorize: &body,
        ..Guest::default()
    }
    .component()
}

/// A component that allows everything, and hides these names in every list.
pub(crate) fn hiding(names: &[&str]) -> String {
    let hidden = placed(names).map(|(at, name)| {
        let len = name.len();
        format!("(if (call $is (local.get $name) (local.get $name_len) (i32.const {at}) (i32.const {len})) (then (return (i32.const 0))))")
    });
    Guest {
        items: &names_at(names),
        visible: &(hidden.collect::<String>() + "(i32.const 1)"),
        ..Guest::default()
    }
    .component()
}

/// Settings of a policy without configuration and grants, with default limits but for the deadline:
/// it is real time, and a busy machine must not fail a test that is not about time.
pub(crate) fn settings(name: &str, component: impl Into<Vec<u8>>) -> PolicySettings {
    PolicySettings {
        name: name.to_owned(),
        source: Source::Bytes {
            name: name.to_owned(),
            bytes: Cow::Owned(component.into()),
        },
        config_json: String::new(),
        mode: Mode::Enforce,
        limits: Limits {
            deadline: Duration::from_secs(1),
            ..Limits::default()
        },
        grants: Grants::default(),
    }
}

const NOT_LISTED: &str = "not on the list";

/// Where texts lie in the memory of [`wat_policy`], and where the heap begins.
const TEXT: usize = 1024;
const NAMES: usize = 16 * 1024;
const HEAP: usize = 64 * 1024;

fn placed<'a>(names: &'a [&'a str]) -> impl Iterator<Item = (usize, &'a str)> {
    let mut at = NAMES;
    names.iter().map(move |name| {
        let here = at;
        at += name.len();
        assert!(at <= HEAP, "too many names for a test policy");
        (here, *name)
    })
}

fn names_at(names: &[&str]) -> String {
    placed(names)
        .map(|(at, name)| data_at(at, name.as_bytes()))
        .collect()
}

fn allow_listed(names: &[&str], otherwise: &str) -> String {
    let mut body = String::new();
    for (at, name) in placed(names) {
        let len = name.len();
        body.push_str(&format!("(if (call $name_is (local.get $in) (i32.const {at}) (i32.const {len})) (then (return (call $allow))))"));
    }
    body.push_str(otherwise);
    body
}

fn text_at(at: usize, text: &str) -> String {
    assert!(TEXT + text.len() <= HEAP, "too long a text for a test policy");
    format!("(i32.const {at}) (i32.const {})", text.len())
}

/// A data segment.
pub(crate) fn data_at(at: usize, bytes: &[u8]) -> String {
    let mut segment = format!("(data (i32.const {at}) \"");
    for byte in bytes {
        segment.push_str(&format!("\\{byte:02x}"));
    }
    segment.push_str("\")\n");
    segment
}

/// The parts of a guest. The rest is the same for all: memory, a bump allocator that grows the
/// memory and traps when it cannot, `$allow`, `$ask` and `$deny` (pointer, length) that make an
/// answer, and `$name_is` (parameters, pointer, length).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guest<'a> {
    /// Version of the exported interfaces.
    pub version: &'a str,
    /// Component items before the core module: types and imports.
    pub before: &'a str,
    /// What the core module is instantiated with: `(with …)`.
    pub with: &'a str,
    /// Core imports.
    pub imports: &'a str,
    /// The core memory, exported as `memory`.
    pub memory: &'a str,
    /// Other items of the core module.
    pub items: &'a str,
    /// Body of `authorize`: `$in` points to the parameters, the result to the answer.
    pub authorize: &'a str,
    /// Body of `cabi_realloc` with `$align` and `$size`; the bump allocator when empty.
    pub realloc: &'a str,
    /// Body of the post-return function, none when empty.
    pub post_return: &'a str,
    /// Body of `configure` with `$ptr` and `$len`, not exported when empty. Answers like
    /// `authorize`: case 0 is ready, case 1 invalid.
    pub configure: &'a str,
    /// Body of `visible` with `$kind`, `$name` and `$ctx`, each followed by its length (`$name_len`), not
    /// exported when empty. Answers 1 for what is shown.
    pub visible: &'a str,
    /// The cases of `decision`.
    pub cases: &'a str,
    /// Options of `canon lift` for `authorize`.
    pub options: &'a str,
}

impl Default for Guest<'_> {
    fn default() -> Self {
        Self {
            version: "1.0.0",
            before: "",
            with: "",
            imports: "",
            memory: r#"(memory (export "memory") 2)"#,
            items: "",
            authorize: "(call $allow)",
            realloc: "",
            post_return: "",
            configure: "",
            visible: "",
            cases: r#"(case "allow") (case "ask" string) (case "deny" string)"#,
            options: "",
        }
    }
}

const CONTEXT: &str = r#"(record (field "seam" string) (field "server" string)
    (field "session" string) (field "transport" string) (field "protocol-version" string)
    (field "client-json" string) (field "principal" (option string)) (field "claims-json" string)
    (field "tool-json" string) (field "extra-json" string) (field "now-unix-ms" f64))"#;

const BUMP: &str = r#"
    (global.set $top (i32.and (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
    (local.set $at (global.get $top))
    (global.set $top (i32.add (global.get $top) (local.get $size)))
    (block $fits (loop $more
        (br_if $fits (i32.le_u (global.get $top) (i32.shl (memory.size) (i32.const 16))))
        (if (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (then unreachable))
        (br $more)))
    (local.get $at)"#;

const ANSWERS: &str = r#"
    (func $answer (param $case i32) (param $ptr i32) (param $len i32) (result i32)
        (i32.store8 (i32.const 16) (local.get $case))
        (i32.store (i32.const 20) (local.get $ptr))
        (i32.store (i32.const 24) (local.get $len))
        (i32.const 16))
    (func $allow (result i32) (call $answer (i32.const 0) (i32.const 0) (i32.const 0)))
    (func $ask (param i32 i32) (result i32) (call $answer (i32.const 1) (local.get 0) (local.get 1)))
    (func $deny (param i32 i32) (result i32) (call $answer (i32.const 2) (local.get 0) (local.get 1)))
    (func $name_is (param $in i32) (param $ptr i32) (param $len i32) (result i32)
        (call $is (i32.load (local.get $in)) (i32.load offset=4 (local.get $in)) (local.get $ptr) (local.get $len)))
    (func $is (param $name i32) (param $name_len i32) (param $ptr i32) (param $len i32) (result i32)
        (local $i i32)
        (if (i32.ne (local.get $name_len) (local.get $len)) (then (return (i32.const 0))))
        (block $end (loop $next
            (br_if $end (i32.eq (local.get $i) (local.get $len)))
            (if (i32.ne (i32.load8_u (i32.add (local.get $name) (local.get $i)))
                        (i32.load8_u (i32.add (local.get $ptr) (local.get $i))))
                (then (return (i32.const 0))))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br $next)))
        (i32.const 1))"#;

impl Guest<'_> {
    /// The whole component in WebAssembly text.
    pub(crate) fn component(&self) -> String {
        let Self {
            version,
            before,
            with,
            imports,
            memory,
            items,
            authorize,
            ..
        } = self;
        let realloc = if self.realloc.is_empty() {
            BUMP
        } else {
            self.realloc
        };
        let post_return = optional(self.post_return, |body| {
            format!(r#"(func (export "post") (param i32) {body})"#)
        });
        let post_option = optional(self.post_return, |_| {
            r#"(post-return (func $i "post"))"#.to_owned()
        });
        let configure = optional(self.configure, |body| {
            format!(r#"(func (export "configure") (param $ptr i32) (param $len i32) (result i32) {body})"#)
        });
        let authorizer = authorizer(version, self.cases, &format!("{post_option} {}", self.options));
        let configurable = optional(self.configure, |_| configurable(version));
        let visible = optional(self.visible, |body| {
            format!(
                r#"(func (export "visible") (param $kind i32) (param $kind_len i32) (param $name i32)
                    (param $name_len i32) (param $ctx i32) (param $ctx_len i32) (result i32) {body})"#
            )
        });
        let visibility = optional(self.visible, |_| visibility(version));
        format!(
            r#"(component
  {before}
  (core module $m
    {imports}
    {memory}
    (global $top (mut i32) (i32.const {HEAP}))
    {ANSWERS}
    (func $realloc (export "cabi_realloc")
        (param i32 i32) (param $align i32) (param $size i32) (result i32) (local $at i32) {realloc})
    (func (export "authorize") (param $in i32) (result i32) (local $x i32) (local $y i32) {authorize})
    {post_return}
    {configure}
    {visible}
    {items})
  (core instance $i (instantiate $m {with}))
  {authorizer}
  {configurable}
  {visibility})"#
        )
    }
}

fn optional(body: &str, make: impl FnOnce(&str) -> String) -> String {
    if body.is_empty() {
        String::new()
    } else {
        make(body)
    }
}

fn authorizer(version: &str, cases: &str, options: &str) -> String {
    format!(
        r#"(type $context {CONTEXT})
  (type $decision (variant {cases}))
  (func $authorize (param "name" string) (param "args-json" string) (param "ctx" $context)
      (result $decision)
    (canon lift (core func $i "authorize") (memory $i "memory")
        (realloc (func $i "cabi_realloc")) {options}))
  (component $authorizer
    (type $c0 {CONTEXT})
    (type $d0 (variant {cases}))
    (import "context-in" (type $c1 (eq $c0)))
    (import "decision-in" (type $d1 (eq $d0)))
    (import "authorize-in" (func $f
      (param "name" string) (param "args-json" string) (param "ctx" $c1) (result $d1)))
    (export $c2 "context" (type $c1))
    (export $d2 "decision" (type $d1))
    (export "authorize" (func $f) (func
      (param "name" string) (param "args-json" string) (param "ctx" $c2) (result $d2))))
  (instance $authorizer-instance (instantiate $authorizer
    (with "context-in" (type $context)) (with "decision-in" (type $decision))
    (with "authorize-in" (func $authorize))))
  (export "gatewright:policy/authorizer@{version}" (instance $authorizer-instance))"#
    )
}

fn configurable(version: &str) -> String {
    let cases = r#"(variant (case "ready") (case "invalid" string))"#;
    format!(
        r#"(type $configured {cases})
  (func $configure (param "config-json" string) (result $configured)
    (canon lift (core func $i "configure") (memory $i "memory") (realloc (func $i "cabi_realloc"))))
  (component $configurable
    (type $c0 {cases})
    (import "configured-in" (type $c1 (eq $c0)))
    (import "configure-in" (func $f (param "config-json" string) (result $c1)))
    (export $c2 "configured" (type $c1))
    (export "configure" (func $f) (func (param "config-json" string) (result $c2))))
  (instance $configurable-instance (instantiate $configurable
    (with "configured-in" (type $configured)) (with "configure-in" (func $configure))))
  (export "gatewright:policy/configurable@{version}" (instance $configurable-instance))"#
    )
}

fn visibility(version: &str) -> String {
    let function = r#"(param "kind" string) (param "name" string) (param "ctx-json" string) (result bool)"#;
    format!(
        r#"(func $visible {function}
    (canon lift (core func $i "visible") (memory $i "memory") (realloc (func $i "cabi_realloc"))))
  (instance $visibility-instance (export "visible" (func $visible)))
  (export "gatewright:policy/visibility@{version}" (instance $visibility-instance))"#
    )
}
