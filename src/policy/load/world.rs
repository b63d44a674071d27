//! What a component imports and exports, held against the contract.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, Linker};

use super::{LoadError, REASON_BYTES_MAX, reason};
use crate::policy::contract::{
    AUTHORIZE, AUTHORIZER, CONFIGURABLE, CONFIGURE, VERSIONS, VISIBILITY, VISIBLE, serves,
};
use crate::policy::engine::Engine;
use crate::policy::sandbox::State;
use crate::policy::text::escaped;

/// A component that this host can instantiate, and where its functions are.
pub(super) struct Linked {
    pub(super) imports: Vec<String>,
    pub(super) exports: Vec<String>,
    pub(super) instance: InstancePre<State>,
    pub(super) authorize: ComponentExportIndex,
    pub(super) configure: Option<ComponentExportIndex>,
    pub(super) visible: Option<ComponentExportIndex>,
}

/// Holds a component against the contract and resolves what it imports.
pub(super) fn linked(engine: &Engine, policy: &str, component: &Component) -> Result<Linked, LoadError> {
    let imports = imports(engine, component);
    let exports = exports(engine, component);
    let instance = link(engine, policy, component, &imports)?;
    let export = |interface, name| {
        function(component, &exports, interface, name).map_err(|(export, reason)| LoadError::Export {
            policy: policy.to_owned(),
            export,
            reason,
        })
    };
    let authorize = export(AUTHORIZER, AUTHORIZE)?;
    let optional = |interface, name| {
        let there = exports.iter().any(|export| serves(export, interface));
        there.then(|| export(interface, name)).transpose()
    };
    let configure = optional(CONFIGURABLE, CONFIGURE)?;
    let visible = optional(VISIBILITY, VISIBLE)?;
    Ok(Linked {
        imports,
        exports,
        instance,
        authorize,
        configure,
        visible,
    })
}

/// What a component imports.
fn imports(engine: &Engine, component: &Component) -> Vec<String> {
    let types = component.component_type();
    types
        .imports(engine.wasm())
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// What a component exports.
fn exports(engine: &Engine, component: &Component) -> Vec<String> {
    let types = component.component_type();
    types
        .exports(engine.wasm())
        .map(|(name, _)| name.to_owned())
        .collect()
}

/// Resolves every import, or says which one is not provided.
fn link(
    engine: &Engine,
    policy: &str,
    component: &Component,
    imports: &[String],
) -> Result<InstancePre<State>, LoadError> {
    let missing = |import: &str, reason: String| LoadError::Import {
        policy: policy.to_owned(),
        import: import.to_owned(),
        reason,
    };
    if let Some(import) = imports.iter().find(|import| !import.starts_with("wasi:")) {
        return Err(missing(
            import,
            "only interfaces of WASI 0.2 are known".to_owned(),
        ));
    }
    let mut linker = Linker::new(engine.wasm());
    if !imports.is_empty() {
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).map_err(|error| LoadError::Host {
            policy: policy.to_owned(),
            reason: reason(&error),
        })?;
    }
    linker.instantiate_pre(component).map_err(|error| {
        let reason = reason(&error);
        let import = imports.iter().find(|import| reason.contains(import.as_str()));
        missing(import.map_or("wasi", String::as_str), reason)
    })
}

/// Finds `function` in the version of `interface` that this host serves, or says which export is
/// missing and what is there instead.
fn function(
    component: &Component,
    exports: &[String],
    interface: &str,
    function: &str,
) -> Result<ComponentExportIndex, (String, String)> {
    let Some(export) = exports.iter().find(|export| serves(export, interface)) else {
        let found = match exports {
            [] => "it exports nothing".to_owned(),
            _ => format!("it exports `{}`", exports.join("`, `")),
        };
        let found = escaped(found.as_bytes(), REASON_BYTES_MAX);
        return Err((format!("{interface}@{VERSIONS}"), found));
    };
    let (item, instance) = component
        .get_export(None, export)
        .ok_or_else(|| (export.clone(), "it cannot be found".to_owned()))?;
    if !matches!(item, ComponentItem::ComponentInstance(_)) {
        return Err((export.clone(), "it is not an interface".to_owned()));
    }
    let wanted = format!("{export}#{function}");
    match component.get_export(Some(&instance), function) {
        Some((ComponentItem::ComponentFunc(_), index)) => Ok(index),
        Some(_) => Err((wanted, "it is not a function".to_owned())),
        None => Err((wanted, "it is missing".to_owned())),
    }
}
