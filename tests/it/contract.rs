//! `wit/policy.wit` and this host mean the same contract: the types that the toolkit generates from
//! the file accept the very components that the host accepts.

use wasmtime::component::{Component, Linker};

use crate::support::policies::{Does, Guest, data_at, hiding, wat_policy};

mod wit {
    wasmtime::component::bindgen!({ path: "wit", world: "configurable-policy-plugin" });
}

mod plain {
    wasmtime::component::bindgen!({ path: "wit", world: "policy-plugin" });
}

mod visible {
    wasmtime::component::bindgen!({ path: "wit", world: "visibility-policy-plugin" });
}

#[test]
fn the_file_and_the_host_agree() {
    use plain::exports::gatewright::policy::authorizer::{Context, Decision};

    let engine = wasmtime::Engine::default();
    let mut store = wasmtime::Store::new(&engine, ());
    let component = Component::new(&engine, wat::parse_str(wat_policy(Does::Deny("no"))).unwrap());
    let policy =
        plain::PolicyPlugin::instantiate(&mut store, &component.unwrap(), &Linker::new(&engine)).unwrap();
    let text = || "{}".to_owned();
    let context = Context {
        seam: "tools".to_owned(),
        server: text(),
        session: text(),
        transport: text(),
        protocol_version: text(),
        client_json: text(),
        principal: None,
        claims_json: text(),
        tool_json: text(),
        extra_json: text(),
        now_unix_ms: 1.0,
    };
    let authorizer = policy.gatewright_policy_authorizer();
    let decision = authorizer
        .call_authorize(&mut store, "x", "{}", &context)
        .unwrap();
    assert!(matches!(decision, Decision::Deny(reason) if reason == "no"));
}

#[test]
fn configurable_policies_too() {
    use wit::exports::gatewright::policy::configurable::Configured;

    let items = data_at(1024, b"why");
    let guest = Guest {
        items: &items,
        configure: "(call $answer (i32.const 1) (i32.const 1024) (i32.const 3))",
        ..Guest::default()
    };
    let engine = wasmtime::Engine::default();
    let mut store = wasmtime::Store::new(&engine, ());
    let component = Component::new(&engine, wat::parse_str(guest.component()).unwrap()).unwrap();
    let linker = Linker::new(&engine);
    let policy = wit::ConfigurablePolicyPlugin::instantiate(&mut store, &component, &linker).unwrap();
    let configurable = policy.gatewright_policy_configurable();
    let configured = configurable.call_configure(&mut store, "{}").unwrap();
    assert!(matches!(configured, Configured::Invalid(text) if text == "why"));
}

#[test]
fn policies_that_hide_too() {
    let engine = wasmtime::Engine::default();
    let mut store = wasmtime::Store::new(&engine, ());
    let component = Component::new(&engine, wat::parse_str(hiding(&["b"])).unwrap()).unwrap();
    let linker = Linker::new(&engine);
    let policy = visible::VisibilityPolicyPlugin::instantiate(&mut store, &component, &linker).unwrap();
    let visibility = policy.gatewright_policy_visibility();
    let mut shows = |name| visibility.call_visible(&mut store, "tool", name, "{}").unwrap();
    assert_eq!([true, false, true], ["a", "b", "bb"].map(&mut shows));
}
