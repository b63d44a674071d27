//! The rules: read from the configuration, asked about one call.

use crate::json::Json;
use crate::path;

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Never empty; each as segments.
    roots: Vec<Vec<String>>,
    deny: Vec<Denied>,
    tools: Vec<(String, Tool)>,
    other_tools: OtherTools,
}

/// An entry of the deny list, folded.
#[derive(Clone, Debug)]
enum Denied {
    /// A segment, wherever it occurs.
    Name(String),
    /// A path and everything below.
    Tree(Vec<String>),
}

/// Which arguments of a tool are paths.
#[derive(Clone, Debug, Default)]
struct Tool {
    arguments: Vec<String>,
    lists: Vec<String>,
}

/// What happens to a tool without an entry.
#[derive(Clone, Copy, Debug)]
enum OtherTools {
    Deny,
    Allow,
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
                "the configuration is {}; give an object with `roots` and `tools`",
                config.kind()
            ));
        };
        let mut rules = Self {
            roots: Vec::new(),
            deny: Vec::new(),
            tools: Vec::new(),
            other_tools: OtherTools::Deny,
        };
        for (name, value) in &members {
            match name.as_str() {
                "roots" => rules.roots = roots(value)?,
                "deny" => rules.deny = deny(value)?,
                "tools" => rules.tools = tools(value)?,
                "other-tools" => rules.other_tools = other_tools(value)?,
                _ => {
                    return Err(format!(
                        "`{name}` is unknown; the members are `roots`, `deny`, `tools` and `other-tools`"
                    ));
                }
            }
        }
        if rules.roots.is_empty() {
            return Err(
                "`roots` is missing or empty; name the folders to stay in, `/` for everywhere".into(),
            );
        }
        if rules.tools.is_empty() {
            return Err(
                "`tools` is missing or empty; name the tools and which of their arguments are paths, \
                        for example {\"read_file\":{\"arguments\":[\"path\"]}}"
                    .into(),
            );
        }
        Ok(rules)
    }

    /// Judges one call.
    ///
    /// # Errors
    ///
    /// The reason for the denial.
    pub fn judge(&self, name: &str, args_json: &str) -> Result<(), String> {
        let Some((_, tool)) = self.tools.iter().find(|(listed, _)| listed == name) else {
            let variant = self.tools.iter().find(|(listed, _)| fold(listed) == fold(name));
            return match (self.other_tools, variant) {
                (OtherTools::Deny, _) => Err(format!("`{name}` has no rule about its paths")),
                (OtherTools::Allow, Some((listed, _))) => {
                    Err(format!("`{name}` may be taken for `{listed}`"))
                }
                (OtherTools::Allow, None) => Ok(()),
            };
        };
        let Ok(Json::Object(arguments)) = Json::parse(args_json) else {
            return Err("the arguments cannot be read".into());
        };
        no_case_variants(tool, &arguments)?;
        for argument in &tool.arguments {
            match member(&arguments, argument) {
                Some(Json::Text(text)) => self.judge_path(argument, text)?,
                Some(other) => return Err(format!("`{argument}` is {}, not a path", other.kind())),
                None => return Err(format!("`{argument}` is missing")),
            }
        }
        for argument in &tool.lists {
            let Some(value) = member(&arguments, argument) else {
                return Err(format!("`{argument}` is missing"));
            };
            let Some(paths) = value.texts() else {
                return Err(format!("`{argument}` is not a list of paths"));
            };
            paths
                .into_iter()
                .try_for_each(|text| self.judge_path(argument, text))?;
        }
        Ok(())
    }

    fn judge_path(&self, argument: &str, text: &str) -> Result<(), String> {
        let readings =
            path::both_readings(text).map_err(|doubt| format!("the path in `{argument}` {doubt}"))?;
        for segments in readings {
            if !self.roots.iter().any(|root| path::is_under(&segments, root)) {
                return Err(format!("the path in `{argument}` is not under an allowed folder"));
            }
            if self.deny.iter().any(|denied| denied.covers(&segments)) {
                return Err(format!("the path in `{argument}` is on the deny list"));
            }
        }
        Ok(())
    }
}

impl Denied {
    fn covers(&self, segments: &[String]) -> bool {
        let mut folded = segments.iter().map(|segment| path::folded(segment));
        match self {
            Self::Name(name) => folded.any(|segment| segment == *name),
            Self::Tree(tree) => tree.iter().all(|wanted| folded.next().as_ref() == Some(wanted)),
        }
    }
}

/// Some servers find their arguments without regard to case, and would take `Path` for `path`.
fn no_case_variants(tool: &Tool, arguments: &[(String, Json)]) -> Result<(), String> {
    for judged in tool.arguments.iter().chain(&tool.lists) {
        let variant = arguments
            .iter()
            .find(|(name, _)| name != judged && fold(name) == fold(judged));
        if let Some((variant, _)) = variant {
            return Err(format!("`{variant}` may be taken for `{judged}`"));
        }
    }
    Ok(())
}

fn fold(name: &str) -> String {
    name.chars().flat_map(path::fold).collect()
}

fn member<'a>(members: &'a [(String, Json)], name: &str) -> Option<&'a Json> {
    members
        .iter()
        .find(|(found, _)| found == name)
        .map(|(_, value)| value)
}

fn texts<'a>(place: &str, value: &'a Json) -> Result<Vec<&'a str>, String> {
    value
        .texts()
        .ok_or_else(|| format!("`{place}` must be a list of texts"))
}

fn roots(value: &Json) -> Result<Vec<Vec<String>>, String> {
    texts("roots", value)?
        .into_iter()
        .map(|root| match path::segments(root) {
            Ok(segments) => Ok(segments.into_iter().map(Into::into).collect()),
            Err(doubt) => Err(format!(
                "`roots` has `{root}`, which {doubt}; give a plain absolute path"
            )),
        })
        .collect()
}

fn deny(value: &Json) -> Result<Vec<Denied>, String> {
    texts("deny", value)?
        .into_iter()
        .map(|entry| {
            // The fold is that of single letters; beyond ASCII, file systems differ in theirs.
            if !entry.is_ascii() {
                return Err(format!(
                    "`deny` has `{entry}`; entries are ASCII, because file systems fold \
                                    other letters differently"
                ));
            }
            let absolute = if entry.starts_with('/') {
                entry.into()
            } else {
                format!("/{entry}")
            };
            let segments = path::segments(&absolute).map_err(|doubt| {
                format!("`deny` has `{entry}`, which {doubt}; give a name or a plain absolute path")
            })?;
            let folded: Vec<_> = segments.into_iter().map(path::folded).collect();
            match folded.as_slice() {
                [] => Err(format!("`deny` has `{entry}`, which names nothing; remove it")),
                [name] if !entry.starts_with('/') => Ok(Denied::Name(name.clone())),
                _ if !entry.starts_with('/') => Err(format!(
                    "`deny` has `{entry}`; give one name, or an absolute path"
                )),
                _ => Ok(Denied::Tree(folded)),
            }
        })
        .collect()
}

fn tools(value: &Json) -> Result<Vec<(String, Tool)>, String> {
    let Json::Object(tools) = value else {
        return Err(format!(
            "`tools` is {}; give an object with a member for each tool",
            value.kind()
        ));
    };
    tools
        .iter()
        .map(|(name, value)| {
            let Json::Object(members) = value else {
                return Err(format!(
                    "`tools.{name}` is {}; give an object, `{{}}` to judge nothing",
                    value.kind()
                ));
            };
            let mut tool = Tool::default();
            for (member, value) in members {
                let place = format!("tools.{name}.{member}");
                let arguments = match member.as_str() {
                    "arguments" => &mut tool.arguments,
                    "lists" => &mut tool.lists,
                    _ => {
                        return Err(format!(
                            "`{place}` is unknown; the members are `arguments` and `lists`"
                        ));
                    }
                };
                *arguments = texts(&place, value)?.into_iter().map(Into::into).collect();
            }
            Ok((name.clone(), tool))
        })
        .collect()
}

fn other_tools(value: &Json) -> Result<OtherTools, String> {
    match value {
        Json::Text(text) if text == "deny" => Ok(OtherTools::Deny),
        Json::Text(text) if text == "allow" => Ok(OtherTools::Allow),
        _ => Err("`other-tools` must be \"deny\" or \"allow\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;

    const CONFIG: &str = r#"{"roots":["/srv/share","/data/"],"deny":[".git","/srv/share/Private"],"tools":{
        "read":{"arguments":["path"]},"many":{"lists":["paths"]},"list":{}}}"#;

    #[track_caller]
    fn check(config: &str, tool: &str, arguments: &str, expected: Result<(), &str>) {
        assert_eq!(
            expected.map_err(Into::into),
            Rules::parse(config).unwrap().judge(tool, arguments)
        );
    }

    #[test]
    fn reasons() {
        check(CONFIG, "read", r#"{"path":"/data/x"}"#, Ok(()));
        check(
            CONFIG,
            "read",
            r#"{"path":"/dat"}"#,
            Err("the path in `path` is not under an allowed folder"),
        );
        check(
            CONFIG,
            "read",
            r#"{"path":"x"}"#,
            Err("the path in `path` is not an absolute path"),
        );
        check(
            CONFIG,
            "read",
            r#"{"path":"/data/.GIT/config"}"#,
            Err("the path in `path` is on the deny list"),
        );
        check(
            CONFIG,
            "read",
            r#"{"path":"/srv/share/private/x"}"#,
            Err("the path in `path` is on the deny list"),
        );
        check(
            CONFIG,
            "read",
            r#"{"path":"/srv/share/%50rivate"}"#,
            Err("the path in `path` is on the deny list"),
        );
        check(CONFIG, "read", r#"{"path":"/srv/share/x/private"}"#, Ok(()));
        check(
            CONFIG,
            "read",
            r#"{"path":{}}"#,
            Err("`path` is an object, not a path"),
        );
        check(
            CONFIG,
            "many",
            r#"{"paths":["/data",null]}"#,
            Err("`paths` is not a list of paths"),
        );
        check(CONFIG, "many", "{}", Err("`paths` is missing"));
        check(CONFIG, "list", r#"{"path":"/etc"}"#, Ok(()));
    }

    #[test]
    fn what_two_readers_could_take_differently_is_denied() {
        check(
            CONFIG,
            "read",
            r#"{"path":"/data/x","Path":"/etc"}"#,
            Err("`Path` may be taken for `path`"),
        );
        check(
            CONFIG,
            "read",
            r#"{"path":"/data/x","PATH":null}"#,
            Err("`PATH` may be taken for `path`"),
        );
        check(
            CONFIG,
            "many",
            r#"{"paths":[],"path\u017f":["/etc"]}"#,
            Err("`path\u{17f}` may be taken for `paths`"),
        );
        check(
            CONFIG,
            "read",
            r#"{"path":"/data/x","path":"/etc"}"#,
            Err("the arguments cannot be read"),
        );
        check(
            CONFIG,
            "read",
            r#"{"path":"/data/x","__proto__":{"path":"/etc"}}"#,
            Ok(()),
        );
        check(
            CONFIG,
            "read",
            r#"{"__proto__":{"path":"/data/x"}}"#,
            Err("`path` is missing"),
        );
        check(CONFIG, "read", "[]", Err("the arguments cannot be read"));
    }

    #[test]
    fn other_tools() {
        check(
            CONFIG,
            "write",
            r#"{"path":"/data/x"}"#,
            Err("`write` has no rule about its paths"),
        );
        let open = CONFIG.replacen('{', r#"{"other-tools":"allow","#, 1);
        check(&open, "write", r#"{"path":"/etc"}"#, Ok(()));
        check(
            &open,
            "READ",
            r#"{"path":"/etc"}"#,
            Err("`READ` may be taken for `read`"),
        );
        check(
            &open,
            "read",
            r#"{"path":"/etc"}"#,
            Err("the path in `path` is not under an allowed folder"),
        );
    }

    #[test]
    fn configurations_that_are_refused() {
        #[track_caller]
        fn check(config: &str, expected: &str) {
            assert_eq!(expected, Rules::parse(config).unwrap_err());
        }
        let tools = r#""tools":{"t":{"arguments":["path"]}}"#;
        check(
            "{}",
            "`roots` is missing or empty; name the folders to stay in, `/` for everywhere",
        );
        check(
            &format!(r#"{{"roots":[],{tools}}}"#),
            "`roots` is missing or empty; name the folders to stay in, `/` for everywhere",
        );
        check(
            r#"{"roots":["/"]}"#,
            "`tools` is missing or empty; name the tools and which of their arguments are paths, for example {\"read_file\":{\"arguments\":[\"path\"]}}",
        );
        check(
            r#"{"roots":["srv"]}"#,
            "`roots` has `srv`, which is not an absolute path; give a plain absolute path",
        );
        check(
            r#"{"roots":["/srv/../etc"]}"#,
            "`roots` has `/srv/../etc`, which has a segment of dots, which may be a parent folder; give a plain absolute path",
        );
        check(r#"{"roots":"/srv"}"#, "`roots` must be a list of texts");
        check(
            r#"{"root":["/srv"]}"#,
            "`root` is unknown; the members are `roots`, `deny`, `tools` and `other-tools`",
        );
        check(
            r#"{"deny":["a/b"]}"#,
            "`deny` has `a/b`; give one name, or an absolute path",
        );
        check(
            r#"{"deny":["/"]}"#,
            "`deny` has `/`, which names nothing; remove it",
        );
        check(
            r#"{"deny":[""]}"#,
            "`deny` has ``, which names nothing; remove it",
        );
        check(
            r#"{"deny":["é"]}"#,
            "`deny` has `é`; entries are ASCII, because file systems fold other letters differently",
        );
        check(
            r#"{"tools":{"t":{"list":[]}}}"#,
            "`tools.t.list` is unknown; the members are `arguments` and `lists`",
        );
        check(
            r#"{"tools":{"t":["path"]}}"#,
            "`tools.t` is a list; give an object, `{}` to judge nothing",
        );
        check(
            r#"{"tools":{"t":{"arguments":"path"}}}"#,
            "`tools.t.arguments` must be a list of texts",
        );
        check(
            r#"{"other-tools":true}"#,
            "`other-tools` must be \"deny\" or \"allow\"",
        );
        check(
            "null",
            "the configuration is null; give an object with `roots` and `tools`",
        );
        assert!(
            Rules::parse(r#"{"roots":["/a"],"roots":["/b"]}"#)
                .unwrap_err()
                .contains("occurs twice")
        );
    }
}
