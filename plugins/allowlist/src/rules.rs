//! The rules: read from the configuration, asked about one name.

use crate::glob;
use crate::json::Json;

/// What the rules say of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Listed under `allow`.
    Allow,
    /// Listed under `ask`: the question.
    Ask(String),
    /// Listed under `deny`, or not listed: the reason.
    Deny(String),
}

/// A checked configuration. Holds at least one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    lists: Lists,
    prompt: Option<String>,
    scopes: Vec<(String, Lists)>,
}

/// Three lists of names and globs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lists {
    allow: Vec<String>,
    ask: Vec<String>,
    deny: Vec<String>,
}

impl Rules {
    /// Reads the configuration.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it and what to do.
    pub fn parse(config_json: &str) -> Result<Self, String> {
        let config =
            Json::parse(config_json).map_err(|error| format!("the configuration is not JSON: {error}"))?;
        let Json::Object(members) = config else {
            return Err(format!(
                "the configuration is {}; give an object such as {EXAMPLE}",
                config.kind()
            ));
        };
        let mut rules = Self {
            lists: Lists::default(),
            prompt: None,
            scopes: Vec::new(),
        };
        for (name, value) in &members {
            match name.as_str() {
                "allow" | "ask" | "deny" => rules.lists.read("", name, value)?,
                "prompt" => rules.prompt = Some(prompt(value)?),
                "scopes" => rules.scopes = scopes(value)?,
                _ => return Err(unknown(name, "`allow`, `ask`, `deny`, `prompt` and `scopes`")),
            }
        }
        if rules.lists.is_empty() && rules.scopes.iter().all(|(_, lists)| lists.is_empty()) {
            return Err(format!(
                "no list has an entry; give at least one, for example {EXAMPLE}"
            ));
        }
        Ok(rules)
    }

    /// Judges one name for a caller with these verified claims.
    #[must_use]
    pub fn judge(&self, name: &str, claims_json: &str) -> Decision {
        let mut lists = vec![&self.lists];
        if !self.scopes.is_empty() {
            // A scope may deny, so claims that cannot be read are no reason to leave its lists out.
            let Some(held) = held_scopes(claims_json) else {
                return Decision::Deny("the scopes in the claims cannot be read".into());
            };
            lists.extend(
                self.scopes
                    .iter()
                    .filter(|(scope, _)| held.contains(scope))
                    .map(|(_, lists)| lists),
            );
        }
        let listed = |list: fn(&Lists) -> &[String]| {
            lists
                .iter()
                .any(|lists| list(lists).iter().any(|entry| glob::matches(entry, name)))
        };
        if listed(|lists| &lists.deny) {
            return Decision::Deny(format!("`{name}` is on the deny list"));
        }
        if listed(|lists| &lists.ask) {
            return Decision::Ask(match &self.prompt {
                Some(prompt) => prompt.clone(),
                None => format!("`{name}` needs a person's approval"),
            });
        }
        if listed(|lists| &lists.allow) {
            return Decision::Allow;
        }
        Decision::Deny(format!("`{name}` is not on the list"))
    }
}

impl Lists {
    fn is_empty(&self) -> bool {
        self.allow.is_empty() && self.ask.is_empty() && self.deny.is_empty()
    }

    /// Reads the member `name` of the object at `place`: `""`, or `scopes.SCOPE.`.
    fn read(&mut self, place: &str, name: &str, value: &Json) -> Result<(), String> {
        let list = match name {
            "allow" => &mut self.allow,
            "ask" => &mut self.ask,
            "deny" => &mut self.deny,
            _ => return Err(unknown(&format!("{place}{name}"), "`allow`, `ask` and `deny`")),
        };
        let Some(entries) = value.texts() else {
            return Err(match value {
                Json::List(_) => {
                    format!("`{place}{name}` holds something else than texts; put names and globs in quotes")
                }
                other => format!(
                    "`{place}{name}` is {}; give a list of names and globs",
                    other.kind()
                ),
            });
        };
        if entries.contains(&"") {
            return Err(format!(
                "`{place}{name}` has an empty entry, which no name matches; remove it"
            ));
        }
        *list = entries.into_iter().map(Into::into).collect();
        Ok(())
    }
}

const EXAMPLE: &str = r#"{"allow":["read_*"]}"#;

fn prompt(value: &Json) -> Result<String, String> {
    match value {
        Json::Text(text) if text.is_empty() => {
            Err("`prompt` is empty; say what a person should know, or leave it out".into())
        }
        Json::Text(text) => Ok(text.clone()),
        other => Err(format!("`prompt` is {}; give a text", other.kind())),
    }
}

fn scopes(value: &Json) -> Result<Vec<(String, Lists)>, String> {
    let Json::Object(scopes) = value else {
        return Err(format!(
            "`scopes` is {}; give an object with a member for each scope",
            value.kind()
        ));
    };
    scopes
        .iter()
        .map(|(scope, value)| {
            if scope.is_empty() || scope.contains(' ') {
                return Err(format!("`scopes` names `{scope}`; a scope is not empty and has no space, because claims part scopes by spaces"));
            }
            let Json::Object(members) = value else {
                return Err(format!("`scopes.{scope}` is {}; give an object with lists", value.kind()));
            };
            let mut lists = Lists::default();
            for (name, value) in members {
                lists.read(&format!("scopes.{scope}."), name, value)?;
            }
            Ok((scope.clone(), lists))
        })
        .collect()
}

fn unknown(name: &str, known: &str) -> String {
    format!("`{name}` is unknown; the members are {known}")
}

/// The scopes that the claims hold, under the names that issuers use. `None` when they cannot be read.
fn held_scopes(claims_json: &str) -> Option<Vec<String>> {
    let Ok(Json::Object(claims)) = Json::parse(claims_json) else {
        return None;
    };
    let mut held = Vec::new();
    for (_, value) in claims
        .iter()
        .filter(|(name, _)| matches!(name.as_str(), "scope" | "scp" | "scopes"))
    {
        match value {
            Json::Text(text) => held.extend(text.split(' ').map(Into::into)),
            list => held.extend(list.texts()?.into_iter().map(Into::into)),
        }
    }
    Some(held)
}

#[cfg(test)]
mod tests {
    use super::{Decision, Rules};

    #[track_caller]
    fn check(config: &str, name: &str, claims: &str, expected: &str) {
        let decision = match Rules::parse(config).unwrap().judge(name, claims) {
            Decision::Allow => "allow".into(),
            Decision::Ask(prompt) => format!("ask: {prompt}"),
            Decision::Deny(reason) => format!("deny: {reason}"),
        };
        assert_eq!(expected, decision);
    }

    #[test]
    fn deny_then_ask_then_allow() {
        let config = r#"{"allow":["*"],"ask":["write_*","rm"],"deny":["rm","write_secret"]}"#;
        check(config, "read_file", "{}", "allow");
        check(
            config,
            "write_file",
            "{}",
            "ask: `write_file` needs a person's approval",
        );
        check(
            config,
            "write_secret",
            "{}",
            "deny: `write_secret` is on the deny list",
        );
        check(config, "rm", "{}", "deny: `rm` is on the deny list");
    }

    #[test]
    fn what_is_not_listed_is_denied() {
        check(
            r#"{"allow":["read_file"]}"#,
            "Read_File",
            "{}",
            "deny: `Read_File` is not on the list",
        );
        check(r#"{"deny":["rm"]}"#, "ls", "{}", "deny: `ls` is not on the list");
        check(r#"{"ask":["rm"]}"#, "ls", "{}", "deny: `ls` is not on the list");
        check(
            r#"{"allow":["read_file"]}"#,
            "read_file\u{200b}",
            "{}",
            "deny: `read_file\u{200b}` is not on the list",
        );
    }

    #[test]
    fn methods_of_the_reads_seam_are_names() {
        check(
            r#"{"allow":["resources/*","tools/list"]}"#,
            "resources/read",
            "{}",
            "allow",
        );
        check(
            r#"{"allow":["resources/*","tools/list"]}"#,
            "prompts/get",
            "{}",
            "deny: `prompts/get` is not on the list",
        );
    }

    #[test]
    fn own_prompt() {
        check(
            r#"{"ask":["deploy"],"prompt":"Production."}"#,
            "deploy",
            "{}",
            "ask: Production.",
        );
    }

    #[test]
    fn scopes_count_besides_the_general_lists() {
        let config = r#"{"allow":["ls"],"scopes":{
            "admin":{"allow":["rm","mkfs"],"deny":["mkfs"]},
            "guest":{"ask":["ls"]}}}"#;
        let not_listed = "deny: `rm` is not on the list";
        check(config, "rm", r#"{"scope":"openid admin"}"#, "allow");
        check(config, "rm", r#"{"scp":["admin"]}"#, "allow");
        check(config, "rm", r#"{"scp":"admin openid"}"#, "allow");
        check(config, "rm", r#"{"scopes":["x","admin"]}"#, "allow");
        check(config, "ls", r#"{"scope":"admin"}"#, "allow");
        check(
            config,
            "ls",
            r#"{"scope":"guest"}"#,
            "ask: `ls` needs a person's approval",
        );
        check(
            config,
            "mkfs",
            r#"{"scope":"admin"}"#,
            "deny: `mkfs` is on the deny list",
        );
        check(config, "rm", "{}", not_listed);
        check(config, "rm", r#"{"scope":"administrator"}"#, not_listed);
        check(config, "rm", r#"{"scope":"Admin"}"#, not_listed);
        check(config, "rm", r#"{"scopes":["openid admin"]}"#, not_listed);
        check(config, "rm", r#"{"role":"admin"}"#, not_listed);
    }

    #[test]
    fn claims_that_cannot_be_read_deny_where_scopes_matter() {
        let with_scopes = r#"{"allow":["ls"],"scopes":{"guest":{"deny":["ls"]}}}"#;
        let expected = "deny: the scopes in the claims cannot be read";
        for claims in [
            "",
            "[]",
            r#"{"scope":1}"#,
            r#"{"scp":["a",1]}"#,
            r#"{"scope":"a","scope":"b"}"#,
        ] {
            check(with_scopes, "ls", claims, expected);
            check(r#"{"allow":["ls"]}"#, "ls", claims, "allow");
        }
    }

    #[test]
    fn configurations_that_are_refused() {
        #[track_caller]
        fn check(config: &str, expected: &str) {
            assert_eq!(expected, Rules::parse(config).unwrap_err());
        }
        let example = r#"{"allow":["read_*"]}"#;
        check(
            "{}",
            &format!("no list has an entry; give at least one, for example {example}"),
        );
        check(
            r#"{"allow":[],"scopes":{"a":{"deny":[]}}}"#,
            &format!("no list has an entry; give at least one, for example {example}"),
        );
        check(
            "[]",
            &format!("the configuration is a list; give an object such as {example}"),
        );
        check(
            r#"{"allowed":["a"]}"#,
            "`allowed` is unknown; the members are `allow`, `ask`, `deny`, `prompt` and `scopes`",
        );
        check(
            r#"{"allow":"a"}"#,
            "`allow` is a text; give a list of names and globs",
        );
        check(
            r#"{"allow":["a",1]}"#,
            "`allow` holds something else than texts; put names and globs in quotes",
        );
        check(
            r#"{"deny":["a",""]}"#,
            "`deny` has an empty entry, which no name matches; remove it",
        );
        check(r#"{"ask":["a"],"prompt":null}"#, "`prompt` is null; give a text");
        check(
            r#"{"ask":["a"],"prompt":""}"#,
            "`prompt` is empty; say what a person should know, or leave it out",
        );
        check(
            r#"{"allow":["a"],"scopes":[]}"#,
            "`scopes` is a list; give an object with a member for each scope",
        );
        check(
            r#"{"scopes":{"a":["x"]}}"#,
            "`scopes.a` is a list; give an object with lists",
        );
        check(
            r#"{"scopes":{"a":{"alow":["x"]}}}"#,
            "`scopes.a.alow` is unknown; the members are `allow`, `ask` and `deny`",
        );
        check(
            r#"{"scopes":{"a":{"allow":{}}}}"#,
            "`scopes.a.allow` is an object; give a list of names and globs",
        );
        check(
            r#"{"scopes":{"a b":{}}}"#,
            "`scopes` names `a b`; a scope is not empty and has no space, because claims part scopes by spaces",
        );
        assert!(
            Rules::parse(r#"{"allow":["a"],"allow":["b"]}"#)
                .unwrap_err()
                .contains("the member `allow` occurs twice")
        );
        assert!(
            Rules::parse("")
                .unwrap_err()
                .starts_with("the configuration is not JSON: ")
        );
    }
}
