//! The contract of `wit/policy.wit` on this side: names, versions and types.

use wasmtime::component::{ComponentType, Lift, Lower};

use crate::seam::Call;

/// The interface that every policy exports, without its version.
pub(super) const AUTHORIZER: &str = "gatewright:policy/authorizer";
/// The function of [`AUTHORIZER`].
pub(super) const AUTHORIZE: &str = "authorize";
/// The interface of policies that take a configuration, without its version.
pub(super) const CONFIGURABLE: &str = "gatewright:policy/configurable";
/// The function of [`CONFIGURABLE`].
pub(super) const CONFIGURE: &str = "configure";
/// The interface of policies that say what lists show, without its version.
pub(super) const VISIBILITY: &str = "gatewright:policy/visibility";
/// The function of [`VISIBILITY`].
pub(super) const VISIBLE: &str = "visible";
/// The versions that this host serves, for messages.
pub(super) const VERSIONS: &str = "1.0.x";

/// What `authorize` takes.
pub(super) type AuthorizeParams<'a> = (&'a str, &'a str, WireContext<'a>);
/// What `authorize` answers.
pub(super) type AuthorizeResult = (WireDecision,);
/// What `configure` takes.
pub(super) type ConfigureParams<'a> = (&'a str,);
/// What `configure` answers.
pub(super) type ConfigureResult = (WireConfigured,);

/// What `visible` takes.
pub(super) type VisibleParams<'a> = (&'a str, &'a str, &'a str);
/// What `visible` answers.
pub(super) type VisibleResult = (bool,);

/// Whether `export` is `interface` in a version that this host serves.
pub(super) fn serves(export: &str, interface: &str) -> bool {
    export
        .strip_prefix(interface)
        .and_then(|rest| rest.strip_prefix("@1.0."))
        .is_some_and(|patch| !patch.is_empty() && patch.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The record `context`.
#[derive(ComponentType, Lower)]
#[component(record)]
pub(super) struct WireContext<'a> {
    seam: &'a str,
    server: &'a str,
    session: &'a str,
    transport: &'a str,
    #[component(name = "protocol-version")]
    protocol_version: &'a str,
    #[component(name = "client-json")]
    client_json: &'a str,
    principal: Option<&'a str>,
    #[component(name = "claims-json")]
    claims_json: &'a str,
    #[component(name = "tool-json")]
    tool_json: &'a str,
    #[component(name = "extra-json")]
    extra_json: &'a str,
    #[component(name = "now-unix-ms")]
    now_unix_ms: f64,
}

impl<'a> WireContext<'a> {
    /// The context of `call`.
    #[expect(clippy::cast_precision_loss, reason = "exact until the year 287396")]
    pub(super) fn of(call: &Call<'a>) -> Self {
        let context = call.context;
        Self {
            seam: call.seam.as_str(),
            server: context.server,
            session: context.session,
            transport: context.transport,
            protocol_version: context.protocol_version,
            client_json: context.client_json,
            principal: context.principal,
            claims_json: context.claims_json,
            tool_json: context.tool_json,
            extra_json: context.extra_json,
            now_unix_ms: context.now_unix_ms as f64,
        }
    }
}

/// The variant `decision`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(super) enum WireDecision {
    #[component(name = "allow")]
    Allow,
    #[component(name = "ask")]
    Ask(String),
    #[component(name = "deny")]
    Deny(String),
}

/// The variant `configured`.
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(super) enum WireConfigured {
    #[component(name = "ready")]
    Ready,
    #[component(name = "invalid")]
    Invalid(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_versions() {
        #[track_caller]
        fn check(export: &str, expected: bool) {
            assert_eq!(expected, serves(export, AUTHORIZER), "{export}");
        }
        check("gatewright:policy/authorizer@1.0.0", true);
        check("gatewright:policy/authorizer@1.0.7", true);
        check("gatewright:policy/authorizer@1.1.0", false);
        check("gatewright:policy/authorizer@2.0.0", false);
        check("gatewright:policy/authorizer@1.0.", false);
        check("gatewright:policy/authorizer@1.0.1-rc1", false);
        check("gatewright:policy/authorizer", false);
        check("gatewright:policy/authorizers@1.0.0", false);
    }
}
