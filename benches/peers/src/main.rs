//! A fresh sandbox for each decision beside engines that people embed, in one run: `cedar-policy`,
//! `regorus` and `cel`, in process, warm, with parsed policies, and the same rule: the tool's name
//! is on a list of 200.
//!
//! `cargo run --release --manifest-path benches/peers/Cargo.toml`, on a machine with nothing else to
//! do. The rows `listed` have the list in the policy, as people write it; the rows `looked up` have it
//! as data that is looked up, where that is faster. The host hands over the arguments with every call.
//! A peer that never looks at them need not, so there are rows with the name only, and rows with the
//! arguments parsed, as any rule on them needs.

use std::str::FromStr as _;

use cedar_policy::{Authorizer, Decision, Entities, EntityUid, PolicySet, Request};
use measure::{SIZES, TOOL, Turn, arguments, fail, host_rows, names, row};

mod contract {
    wasmtime::component::bindgen!({ path: "../../wit", world: "configurable-policy-plugin" });
}

mod plain {
    wasmtime::component::bindgen!({ path: "../../wit", world: "policy-plugin" });
}

#[path = "../../measure.rs"]
#[expect(dead_code, reason = "the other benchmark uses more of it")]
mod measure;

fn main() {
    host_rows();
    for (bytes, rounds) in SIZES {
        for threads in [1, 2] {
            for (input, bytes_given) in [("name", None), ("name, arguments", Some(bytes))] {
                let row = |peer: &str, subject: &(dyn Fn() -> Turn + Sync)| {
                    row(&format!("{peer}, {input}"), bytes, threads, rounds / 5, subject);
                };
                row("cedar listed", &|| cedar(bytes_given));
                row("regorus listed", &|| rego(List::InPolicy, bytes_given));
                row("regorus looked up", &|| rego(List::AsData, bytes_given));
                row("cel listed", &|| cel(List::InPolicy, bytes_given));
                row("cel looked up", &|| cel(List::AsData, bytes_given));
            }
        }
    }
}

fn or_fail<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| fail(&error))
}

/// The input as one JSON text.
fn input(bytes: Option<usize>) -> String {
    match bytes {
        None => format!(r#"{{"name":"{TOOL}"}}"#),
        Some(bytes) => format!(r#"{{"name":"{TOOL}","args":{}}}"#, arguments(bytes)),
    }
}

fn cedar(bytes: Option<usize>) -> Turn {
    let list = names().join("\",\"");
    let source =
        format!(r#"permit(principal, action, resource) when {{ ["{list}"].contains(context.name) }};"#);
    let policies = or_fail(PolicySet::from_str(&source));
    let [caller, action, tool] =
        [r#"Caller::"c""#, r#"Action::"call""#, r#"Tool::"t""#].map(|uid| or_fail(EntityUid::from_str(uid)));
    let (authorizer, entities, input) = (Authorizer::new(), Entities::empty(), input(bytes));
    Box::new(move || {
        let context = or_fail(cedar_policy::Context::from_json_str(&input, None));
        let request = Request::new(caller.clone(), action.clone(), tool.clone(), context, None);
        let answer = authorizer.is_authorized(&or_fail(request), &policies, &entities);
        if answer.decision() != Decision::Allow {
            fail(&"cedar denies");
        }
    })
}

/// Where the list of names is.
#[derive(Clone, Copy)]
enum List {
    InPolicy,
    AsData,
}

fn rego(list: List, bytes: Option<usize>) -> Turn {
    let mut engine = regorus::Engine::new();
    let rule = match list {
        // It takes no long lines.
        List::InPolicy => format!(
            "listed := {{\"{}\"}}\nallow if input.name in listed",
            names().join("\",\n\"")
        ),
        List::AsData => "allow if data.listed[input.name]".to_owned(),
    };
    let source = format!("package gate\nimport rego.v1\ndefault allow := false\n{rule}\n");
    or_fail(engine.add_policy("gate.rego".to_owned(), source));
    let listed: serde_json::Map<_, _> = names().into_iter().map(|name| (name, true.into())).collect();
    let data = serde_json::json!({ "listed": listed }).to_string();
    or_fail(engine.add_data_json(&data));
    let input = input(bytes);
    Box::new(move || {
        or_fail(engine.set_input_json(&input));
        let answer = or_fail(engine.eval_rule("data.gate.allow".to_owned()));
        if answer != regorus::Value::from(true) {
            fail(&"regorus denies");
        }
    })
}

fn cel(list: List, bytes: Option<usize>) -> Turn {
    let source = match list {
        List::InPolicy => format!(r#"name in ["{}"]"#, names().join("\",\"")),
        List::AsData => "name in listed".to_owned(),
    };
    let program = or_fail(cel::Program::compile(&source));
    let listed: std::collections::HashMap<String, bool> =
        names().into_iter().map(|name| (name, true)).collect();
    let mut root = cel::Context::default();
    or_fail(root.add_variable("listed", listed));
    let args = bytes.map(arguments);
    Box::new(move || {
        let mut scope = root.new_inner_scope();
        or_fail(scope.add_variable("name", TOOL));
        if let Some(args) = &args {
            let args: serde_json::Value = or_fail(serde_json::from_str(args));
            or_fail(scope.add_variable("args", or_fail(cel::to_value(args))));
        }
        match program.execute(&scope) {
            Ok(cel::Value::Bool(true)) => {}
            other => fail(&format!("{other:?}")),
        }
    })
}
