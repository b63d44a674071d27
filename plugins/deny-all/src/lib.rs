//! Denies everything. Naming it closes a seam by choice.

#[cfg(target_family = "wasm")]
mod bindings;

#[cfg(target_family = "wasm")]
mod export {
    use crate::bindings;
    use crate::bindings::exports::gatewright::policy::authorizer;

    struct Policy;

    bindings::export!(Policy with_types_in bindings);

    impl authorizer::Guest for Policy {
        fn authorize(_name: String, _args_json: String, _ctx: authorizer::Context) -> authorizer::Decision {
            authorizer::Decision::Deny("everything is denied here".into())
        }
    }
}
