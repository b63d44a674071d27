//! The policy as a component: what the host calls.

use std::sync::OnceLock;

use crate::bindings;
use crate::bindings::exports::gatewright::policy::{authorizer, configurable};
use crate::rules::Rules;

/// Set by `configure`, once in the life of an instance.
static RULES: OnceLock<Rules> = OnceLock::new();

struct Policy;

bindings::export!(Policy with_types_in bindings);

impl configurable::Guest for Policy {
    fn configure(config_json: String) -> configurable::Configured {
        match Rules::parse(&config_json) {
            Ok(rules) => match RULES.set(rules) {
                Ok(()) => configurable::Configured::Ready,
                Err(_) => configurable::Configured::Invalid("configured twice".into()),
            },
            Err(error) => configurable::Configured::Invalid(error),
        }
    }
}

impl authorizer::Guest for Policy {
    fn authorize(name: String, args_json: String, _ctx: authorizer::Context) -> authorizer::Decision {
        let Some(rules) = RULES.get() else {
            return authorizer::Decision::Deny("the policy has no configuration".into());
        };
        match rules.judge(&name, &args_json) {
            Ok(()) => authorizer::Decision::Allow,
            Err(reason) => authorizer::Decision::Deny(reason),
        }
    }
}
