//! What an upstream may ask the client for: sampling, elicitation and roots, in both eras.
//!
//! Such a request goes the other way, so it meets no seam; these rules stand in their place. What is refused is not
//! declared to the upstream either, and a question of the upstream says whose it is (ruling R49).

use crate::wire::era::ClientCapabilities;
use crate::wire::object;

/// How questions of the upstream to the person are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ElicitationRule {
    /// They pass, and their text begins with a line that says who asks.
    #[default]
    Mark,
    /// They pass as they are.
    Pass,
    /// They are refused.
    Refuse,
}

/// The rules of one upstream. The default lets everything pass that the client has declared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerRequests {
    /// Questions to the person.
    pub elicitation: ElicitationRule,
    /// Whether requests for a completion of the client's model are refused.
    pub refuse_sampling: bool,
    /// Whether requests for the client's roots are refused.
    pub refuse_roots: bool,
}

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

impl ServerRequests {
    /// The capabilities that are refused, by their names in the specification.
    fn refused(self) -> impl Iterator<Item = &'static str> {
        [
            ("elicitation", self.elicitation == ElicitationRule::Refuse),
            ("sampling", self.refuse_sampling),
            ("roots", self.refuse_roots),
        ]
        .into_iter()
        .filter_map(|(name, refused)| refused.then_some(name))
    }

    /// Whether a request of the upstream may be put to a client with these capabilities.
    #[must_use]
    pub fn may_pass(self, method: &str, params: Option<&str>, declared: &ClientCapabilities) -> bool {
        let kind = method.split('/').next().unwrap_or_default();
        declared.may_receive(method, params) && self.refused().all(|refused| refused != kind)
    }

    /// The params of the client's `initialize` or of a request of 2026-07-28, without the capabilities that are
    /// refused; none when nothing has to go.
    #[must_use]
    pub fn declared(self, params: &str) -> Option<String> {
        self.refused().next()?;
        let meta = object::member(params, "_meta").and_then(|meta| {
            let kept = self.kept(object::member(meta, CAPABILITIES)?)?;
            Some(object::with_member(meta, CAPABILITIES, Some(&kept)))
        });
        let own = object::member(params, "capabilities").and_then(|declared| self.kept(declared));
        let with = |params: &str, name: &str, value: Option<String>| match value {
            Some(value) => object::with_member(params, name, Some(&value)),
            None => params.to_owned(),
        };
        let changed = meta.is_some() || own.is_some();
        changed.then(|| with(&with(params, "_meta", meta), "capabilities", own))
    }

    /// Raw capabilities without those that are refused; none when none of them is declared.
    fn kept(self, declared: &str) -> Option<String> {
        let kept = self.refused().fold(declared.to_owned(), |kept, name| {
            object::with_member(&kept, name, None)
        });
        (kept != declared).then_some(kept)
    }

    /// The params of an upstream's question, whose text says that `server` asks; none when they stay as they are.
    #[must_use]
    pub fn marked(self, method: &str, params: Option<&str>, server: &str) -> Option<String> {
        if method != "elicitation/create" || self.elicitation != ElicitationRule::Mark {
            return None;
        }
        let params = params.unwrap_or("{}");
        let line = format!(
            "The server {} asks:\n\n",
            super::ask::question::shown_name(server)
        );
        let line = object::quote(&line);
        let message = object::member(params, "message")
            .and_then(|raw| raw.strip_prefix('"'))
            .unwrap_or("\"");
        // The upstream's own text stays as it was written, byte for byte.
        let marked = format!("{}{message}", line.strip_suffix('"').unwrap_or(&line));
        Some(object::with_member(params, "message", Some(&marked)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSING: ServerRequests = ServerRequests {
        elicitation: ElicitationRule::Refuse,
        refuse_sampling: true,
        refuse_roots: true,
    };

    #[test]
    fn what_is_refused_is_not_declared() {
        #[track_caller]
        fn check(rules: ServerRequests, params: &str, expected: Option<&str>) {
            assert_eq!(expected, rules.declared(params).as_deref(), "{params}");
        }
        let initialize = r#"{"protocolVersion":"2025-11-25", "capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{},"x":{ }} }"#;
        check(ServerRequests::default(), initialize, None);
        check(
            REFUSING,
            initialize,
            Some(r#"{"protocolVersion":"2025-11-25", "capabilities":{"x":{ }} }"#),
        );
        check(
            REFUSING,
            r#"{"name":"a","_meta":{"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}},"a/b":1}}"#,
            Some(r#"{"name":"a","_meta":{"io.modelcontextprotocol/clientCapabilities":{},"a/b":1}}"#),
        );
        check(REFUSING, r#"{"capabilities":{"x":{}}}"#, None);
        check(REFUSING, r#"{"name":"a"}"#, None);
    }

    #[test]
    fn a_question_says_whose_it_is() {
        #[track_caller]
        fn check(rule: ElicitationRule, method: &str, params: &str, expected: Option<&str>) {
            let rules = ServerRequests {
                elicitation: rule,
                ..ServerRequests::default()
            };
            assert_eq!(expected, rules.marked(method, Some(params), "notes").as_deref());
        }
        let question = r#"{"mode":"form","message":"Your na\u006de?","requestedSchema":{}}"#;
        check(
            ElicitationRule::Mark,
            "elicitation/create",
            question,
            Some(
                r#"{"mode":"form","message":"The server notes asks:\n\nYour na\u006de?","requestedSchema":{}}"#,
            ),
        );
        for other in ["{}", r#"{"message":1}"#] {
            check(
                ElicitationRule::Mark,
                "elicitation/create",
                other,
                Some(r#"{"message":"The server notes asks:\n\n"}"#),
            );
        }
        check(ElicitationRule::Pass, "elicitation/create", question, None);
        check(ElicitationRule::Mark, "sampling/createMessage", question, None);
    }

    #[test]
    fn a_refused_kind_does_not_pass() {
        let all = ClientCapabilities::parse(r#"{"elicitation":{},"sampling":{},"roots":{}}"#);
        for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
            assert!(ServerRequests::default().may_pass(method, None, &all));
            assert!(!REFUSING.may_pass(method, None, &all), "{method}");
        }
        assert!(REFUSING.may_pass("ping", None, &all));
    }
}
