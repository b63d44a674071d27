//! A file of cases, as it is written and as it is used.

use std::fmt;

use serde::de::{self, DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::context::{ContextFile, raw_json};
use crate::policy::text::escaped;

/// Arguments of one case, in bytes. More than the gate takes from any client.
const ARGS_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Text kept of what a file is refused for, in bytes.
const REASON_BYTES_MAX: usize = 2048;

/// How a file of cases is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// TOML.
    Toml,
}

impl Format {
    /// How the names of such files end.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Toml => "toml",
        }
    }
}

/// The cases of a policy, in order.
#[derive(Debug)]
pub struct Cases {
    /// The cases.
    pub list: Vec<Case>,
}

/// One case of a policy.
#[derive(Debug)]
pub struct Case {
    /// What the case is called in messages.
    pub name: String,
    /// The tool's name, or on the reads seam the method.
    pub call: String,
    /// The arguments.
    pub args_json: String,
    /// What else the policy is told.
    pub ctx: ContextFile,
    /// The policy's configuration in this case; none is the one that it was loaded with.
    pub configure: Option<String>,
    /// What is expected: one of these. Never empty.
    pub expect: Vec<Expected>,
    /// What the reason or prompt must be.
    pub text: Option<Text>,
}

/// What a reason or prompt must be.
#[derive(Debug)]
pub enum Text {
    /// Exactly this.
    Says(String),
    /// A text in which this is found.
    Matches(Pattern),
}

/// A regular expression.
#[derive(Debug)]
pub struct Pattern(regex_lite::Regex);

impl Pattern {
    /// Whether it is found in the text.
    #[must_use]
    pub fn found_in(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// What a policy may be expected to do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// It allows.
    Allow,
    /// It asks.
    Ask,
    /// It denies.
    Deny,
    /// It refuses its configuration.
    Invalid,
    /// It traps.
    PolicyTrap,
    /// It runs past its deadline.
    PolicyTimeout,
    /// It wants more memory than it may have.
    PolicyMemory,
    /// It answers something that is no answer.
    PolicyOutput,
}

impl Expected {
    /// The word for it in a file of cases.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
            Self::Invalid => "invalid",
            Self::PolicyTrap => "policy_trap",
            Self::PolicyTimeout => "policy_timeout",
            Self::PolicyMemory => "policy_memory",
            Self::PolicyOutput => "policy_output",
        }
    }
}

/// A file that cannot be read as cases: one line, without anything that a terminal obeys.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("its cases cannot be read: {0}")]
pub struct CasesError(String);

impl CasesError {
    fn new(reason: &str) -> Self {
        Self(escaped(reason.as_bytes(), REASON_BYTES_MAX))
    }
}

impl Cases {
    /// Reads a file of cases.
    ///
    /// # Errors
    ///
    /// [`CasesError`] when the bytes are none.
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, CasesError> {
        match format {
            Format::Json => {
                let listed = bytes.trim_ascii_start().starts_with(b"[");
                let raw: serde_json::Result<RawFile<Box<RawValue>>> = if listed {
                    serde_json::from_slice(bytes).map(RawFile::listed)
                } else {
                    serde_json::from_slice(bytes)
                };
                Self::checked(raw.map_err(|error| CasesError::new(&error.to_string()))?)
            }
            Format::Toml => {
                let text = std::str::from_utf8(bytes).map_err(|error| CasesError::new(&error.to_string()))?;
                let raw: RawFile<toml::Value> =
                    toml::from_str(text).map_err(|error| CasesError::new(&toml_reason(text, &error)))?;
                Self::checked(raw)
            }
        }
    }

    fn checked<J: Json>(raw: RawFile<J>) -> Result<Self, CasesError> {
        let configure = raw.configure.as_ref().map(J::text).transpose();
        let configure = configure.map_err(|reason| CasesError::new(&format!("`configure`: {reason}")))?;
        let checked = |case: RawCase<J>| {
            let name = case.name.clone();
            case.checked(configure.as_deref())
                .map_err(|reason| CasesError::new(&format!("case {name:?}: {reason}")))
        };
        let list = raw.cases.into_iter().map(checked).collect::<Result<_, _>>()?;
        Ok(Self { list })
    }
}

fn toml_reason(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start));
    match before {
        Some(before) => format!("{} at line {}", error.message(), before.matches('\n').count() + 1),
        None => error.message().to_owned(),
    }
}

/// A value that stands in a file of either format.
trait Json: DeserializeOwned {
    /// As JSON text.
    fn text(&self) -> Result<String, String>;
    /// A context with such values.
    fn context(context: ContextFile<Self>) -> Result<ContextFile, String>;
}

impl Json for Box<RawValue> {
    fn text(&self) -> Result<String, String> {
        Ok(self.get().to_owned())
    }

    fn context(context: ContextFile<Self>) -> Result<ContextFile, String> {
        Ok(context)
    }
}

impl Json for toml::Value {
    fn text(&self) -> Result<String, String> {
        raw_json(self).map(|raw| raw.get().to_owned())
    }

    fn context(context: ContextFile<Self>) -> Result<ContextFile, String> {
        context.into_json()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile<J> {
    configure: Option<J>,
    cases: Vec<RawCase<J>>,
}

impl<J> RawFile<J> {
    fn listed(cases: Vec<RawCase<J>>) -> Self {
        Self {
            configure: None,
            cases,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawCase<J> {
    name: String,
    call: Option<String>,
    args: Option<J>,
    args_json: Option<String>,
    args_parts: Option<Vec<(String, usize)>>,
    ctx: Option<ContextFile<J>>,
    configure: Option<J>,
    expect: OneOf,
    says: Option<String>,
    matches: Option<String>,
}

impl<J: Json> RawCase<J> {
    fn checked(self, configure: Option<&str>) -> Result<Case, String> {
        let OneOf(expect) = self.expect;
        let configure = match &self.configure {
            Some(own) => Some(own.text().map_err(|reason| format!("`configure`: {reason}"))?),
            None => configure.map(str::to_owned),
        };
        let refused = expect.contains(&Expected::Invalid);
        if refused && configure.is_none() {
            return Err("`invalid` is expected, and there is no `configure` to refuse".to_owned());
        }
        let call = match self.call {
            Some(call) => call,
            None if refused => String::new(),
            None => return Err("`call` is missing: the tool's name, or the method".to_owned()),
        };
        let text = match (self.says, self.matches) {
            (None, None) => None,
            (Some(says), None) => Some(Text::Says(says)),
            (None, Some(pattern)) => Some(Text::Matches(Pattern(
                regex_lite::Regex::new(&pattern).map_err(|error| format!("`matches`: {error}"))?,
            ))),
            (Some(_), Some(_)) => return Err("`says` and `matches`: keep one of the two".to_owned()),
        };
        Ok(Case {
            name: self.name,
            call,
            args_json: args_json(self.args, self.args_json, self.args_parts)?,
            ctx: self.ctx.map_or_else(|| Ok(ContextFile::default()), J::context)?,
            configure,
            expect,
            text,
        })
    }
}

fn args_json<J: Json>(
    args: Option<J>,
    text: Option<String>,
    parts: Option<Vec<(String, usize)>>,
) -> Result<String, String> {
    let json = match (args, text, parts) {
        (None, None, None) => "{}".to_owned(),
        (Some(args), None, None) => args.text().map_err(|reason| format!("`args`: {reason}"))?,
        (None, Some(text), None) => text,
        (None, None, Some(parts)) => joined(&parts)?,
        _ => return Err("`args`, `args-json` and `args-parts`: keep one of them".to_owned()),
    };
    // What the gate hands to a policy is an object always.
    match serde_json::from_str::<&RawValue>(&json) {
        Ok(raw) if raw.get().starts_with('{') => Ok(json),
        Ok(_) => Err("the arguments must be one JSON object".to_owned()),
        Err(error) => Err(format!("the arguments are not JSON: {error}")),
    }
}

/// Each text so many times.
fn joined(parts: &[(String, usize)]) -> Result<String, String> {
    let bytes = parts.iter().try_fold(0_usize, |bytes, (text, count)| {
        bytes.checked_add(text.len().checked_mul(*count)?)
    });
    if bytes.is_none_or(|bytes| ARGS_BYTES_MAX < bytes) {
        return Err(format!("`args-parts` has more than {ARGS_BYTES_MAX} bytes"));
    }
    Ok(parts.iter().map(|(text, count)| text.repeat(*count)).collect())
}

/// One expectation, or a list of them of which one must hold.
struct OneOf(Vec<Expected>);

impl<'de> Deserialize<'de> for OneOf {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOfVisitor)
    }
}

struct OneOfVisitor;

impl<'de> Visitor<'de> for OneOfVisitor {
    type Value = OneOf;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an expectation, such as \"deny\", or a list of them")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<OneOf, E> {
        Expected::deserialize(de::value::StrDeserializer::new(word)).map(|one| OneOf(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOf, A::Error> {
        let mut expect = Vec::new();
        while let Some(one) = list.next_element()? {
            expect.push(one);
        }
        if expect.is_empty() {
            return Err(de::Error::custom(
                "`expect` is an empty list, so no answer is right",
            ));
        }
        Ok(OneOf(expect))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_and_toml_say_the_same() {
        let json = br#"{"configure": {"a": [1]}, "cases": [
            {"name": "n", "call": "c", "args": {"x": 1.5}, "ctx": {"claims-json": {"b": true}}, "expect": ["ask", "deny"], "says": "s"},
            {"name": "m", "configure": {}, "expect": "invalid", "matches": "^a+$"}]}"#;
        let toml = br#"
            configure = { a = [1] }
            [[cases]]
            name = "n"
            call = "c"
            args = { x = 1.5 }
            ctx = { claims-json = { b = true } }
            expect = ["ask", "deny"]
            says = "s"
            [[cases]]
            name = "m"
            configure = {}
            expect = "invalid"
            matches = "^a+$"
        "#;
        let shown = |bytes: &[u8], format| {
            let spaced = format!("{:?}", Cases::parse(bytes, format).unwrap());
            spaced
                .replace(": ", ":")
                .replace(", ", ",")
                .replace("\\\": ", "\\\":")
        };
        assert_eq!(shown(json, Format::Json), shown(toml, Format::Toml));
    }

    #[test]
    fn arguments_are_kept_as_they_are_written() {
        #[track_caller]
        fn check(case: &str, expected: &str) {
            let json = format!(r#"[{{"name": "n", "call": "c", "expect": "deny", {case}}}]"#);
            let cases = Cases::parse(json.as_bytes(), Format::Json).unwrap();
            assert_eq!(expected, cases.list[0].args_json);
        }
        check(
            r#""args": {"n":9007199254740993, "a":1e400}"#,
            r#"{"n":9007199254740993, "a":1e400}"#,
        );
        check(r#""args-json": "{\"n\":1.00}""#, r#"{"n":1.00}"#);
        check(
            r#""args-parts": [["{\"a\":\"", 1], ["xy", 3], ["\"}", 1]]"#,
            r#"{"a":"xyxyxy"}"#,
        );
        check(r#""ctx": {}"#, "{}");
    }

    #[test]
    fn what_is_wrong_is_said() {
        #[track_caller]
        fn check(text: &str, format: Format, part: &str) {
            let error = Cases::parse(text.as_bytes(), format).unwrap_err().to_string();
            assert!(error.starts_with("its cases cannot be read: "), "{error}");
            assert!(error.contains(part) && !error.contains('\n'), "{part} in {error}");
        }
        let json = |case: &str, part| check(&format!(r#"[{{"name": "n", {case}}}]"#), Format::Json, part);
        json(r#""call": "c""#, "missing field `expect`");
        json(r#""expect": "allow""#, "case \"n\": `call` is missing");
        json(r#""call": "c", "expect": "maybe""#, "unknown variant `maybe`");
        json(r#""call": "c", "expect": []"#, "no answer is right");
        json(r#""call": "c", "expect": "invalid""#, "no `configure` to refuse");
        json(
            r#""call": "c", "expect": "deny", "says": "a", "matches": "a""#,
            "keep one of the two",
        );
        json(r#""call": "c", "expect": "deny", "matches": "(""#, "`matches`");
        json(r#""call": "c", "expect": "deny", "args": [1]"#, "one JSON object");
        json(r#""call": "c", "expect": "deny", "args-json": "{""#, "not JSON");
        json(
            r#""call": "c", "expect": "deny", "args": {}, "args-json": "{}""#,
            "keep one of them",
        );
        json(
            r#""call": "c", "expect": "deny", "args-parts": [["ab", 99999999999]]"#,
            "more than",
        );
        check("{}", Format::Json, "missing field `cases`");
        check("[[cases]]\nname = \"n\"\nsay = 1\n", Format::Toml, "at line 3");
        check(
            "cases = [{ name = \"n\", call = \"c\", expect = \"deny\", args = { a = nan } }]",
            Format::Toml,
            "JSON has no number",
        );
    }
}
