//! The two eras of MCP: the 2025 revisions with their handshake, and 2026-07-28, which is stateless.

use super::object;
use super::shape::ShapeError;

/// How sessions work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// The 2025 revisions: `initialize` opens a session.
    Handshake,
    /// 2026-07-28: every request says of itself what a handshake said before.
    Stateless,
}

/// The revisions with a handshake that this host knows.
pub const HANDSHAKE_REVISIONS: &[&str] = &["2025-03-26", "2025-06-18", "2025-11-25"];

/// The revisions of the stateless era that this host speaks.
pub const STATELESS_REVISIONS: &[&str] = &["2026-07-28"];

/// What a request of the stateless era says of itself in `_meta`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestMeta {
    /// The revision that the request is written in.
    pub protocol_version: String,
    /// What the client can do, raw.
    pub client_capabilities: String,
    /// Who the client says it is, raw.
    pub client_info: Option<String>,
}

/// Reads the `_meta` of a request; none when it names no revision at all.
///
/// # Errors
///
/// When a member has another type, or the revision comes without capabilities.
pub fn request_meta(params: Option<&str>) -> Result<Option<RequestMeta>, ShapeError> {
    let Some(meta) = params.and_then(|params| object::member(params, "_meta")) else {
        return Ok(None);
    };
    let Some(version) = object::member(meta, "io.modelcontextprotocol/protocolVersion") else {
        return Ok(None);
    };
    let invalid = |detail: &str| ShapeError {
        code: -32602,
        detail: detail.to_owned(),
    };
    let protocol_version = object::text(version)
        .ok_or_else(|| invalid("`io.modelcontextprotocol/protocolVersion` must be a string"))?;
    let client_capabilities = object::member(meta, "io.modelcontextprotocol/clientCapabilities")
        .filter(|raw| object::is_object(raw))
        .ok_or_else(|| invalid("`io.modelcontextprotocol/clientCapabilities` must be an object"))?
        .to_owned();
    let client_info = object::member(meta, "io.modelcontextprotocol/clientInfo").map(str::to_owned);
    Ok(Some(RequestMeta {
        protocol_version,
        client_capabilities,
        client_info,
    }))
}

/// What a client declared that it can do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCapabilities {
    elicitation_form: bool,
    elicitation_url: bool,
    sampling: bool,
    roots: bool,
    tasks: bool,
    tasks_extension: bool,
}

/// The name of the tasks extension of revision 2026-07-28.
const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

impl ClientCapabilities {
    /// Reads raw capabilities. Whatever is not declared as the specification has it is not declared.
    #[must_use]
    pub fn parse(raw: &str) -> Self {
        let declared = |name: &str| object::member(raw, name).filter(|value| object::is_object(value));
        let elicitation = declared("elicitation");
        let mode = |name: &str| {
            elicitation
                .and_then(|modes| object::member(modes, name))
                .is_some_and(object::is_object)
        };
        // An empty object is the form mode, from before there were two.
        let empty = elicitation.is_some_and(|modes| object::members(modes).next().is_none());
        Self {
            elicitation_form: empty || mode("form"),
            elicitation_url: mode("url"),
            sampling: declared("sampling").is_some(),
            roots: declared("roots").is_some(),
            tasks: declared("tasks").is_some(),
            tasks_extension: declared("extensions")
                .and_then(|extensions| object::member(extensions, TASKS_EXTENSION))
                .is_some_and(object::is_object),
        }
    }

    /// Whether the person behind the client can be asked by a form.
    #[must_use]
    pub fn elicitation_form(&self) -> bool {
        self.elicitation_form
    }

    /// Whether the client knows the tasks of revision 2026-07-28.
    #[must_use]
    pub fn tasks_extension(&self) -> bool {
        self.tasks_extension
    }

    /// Whether an upstream's request may be relayed to this client.
    #[must_use]
    pub fn may_receive(&self, method: &str, params: Option<&str>) -> bool {
        let mode = params
            .and_then(|params| object::member(params, "mode"))
            .map(object::text);
        match (method, mode) {
            ("ping", _) => true,
            ("elicitation/create", None) => self.elicitation_form,
            ("elicitation/create", Some(Some(mode))) if mode == "form" => self.elicitation_form,
            ("elicitation/create", Some(Some(mode))) if mode == "url" => self.elicitation_url,
            ("sampling/createMessage", _) => self.sampling,
            ("roots/list", _) => self.roots,
            ("tasks/get" | "tasks/result" | "tasks/list" | "tasks/cancel", _) => self.tasks,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_form_mode_can_ask() {
        #[track_caller]
        fn check(elicitation: &str, expected: bool) {
            let raw = format!(r#"{{"elicitation":{elicitation}}}"#);
            assert_eq!(
                expected,
                ClientCapabilities::parse(&raw).elicitation_form(),
                "{raw}"
            );
        }
        check("{}", true);
        check("{ }", true);
        check(r#"{"form":{}}"#, true);
        check(r#"{"url":{},"form":{"x":{}}}"#, true);
        check(r#"{"url":{}}"#, false);
        check(r#"{"form":true}"#, false);
        check(r#"{"form":[]}"#, false);
        check(r#"{"Form":{}}"#, false);
        for other in ["true", "null", "1", "[]", r#""form""#] {
            check(other, false);
        }
        assert!(!ClientCapabilities::parse("{}").elicitation_form());
    }

    #[test]
    fn requests_need_their_capability() {
        let all = ClientCapabilities::parse(
            r#"{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},"tasks":{}}"#,
        );
        let none = ClientCapabilities::default();
        let methods = [
            "elicitation/create",
            "sampling/createMessage",
            "roots/list",
            "tasks/get",
        ];
        for method in methods {
            assert!(
                all.may_receive(method, None) && !none.may_receive(method, None),
                "{method}"
            );
        }
        assert!(none.may_receive("ping", None));
        assert!(!all.may_receive("tools/call", None));
        assert!(all.may_receive("elicitation/create", Some(r#"{"mode":"url"}"#)));
        assert!(!all.may_receive("elicitation/create", Some(r#"{"mode":1}"#)));
        assert!(!all.may_receive("elicitation/create", Some(r#"{"mode":"other"}"#)));
    }
}
