//! JSON as a policy must read it: nothing that two readers could take differently.
//!
//! A member name that occurs twice is an error, whatever the nesting. The host refuses such
//! requests before a policy sees them; a policy that is copied elsewhere may not have that host.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// One JSON value. Numbers are known to be numbers and no more: no rule here compares them.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Any number.
    Number,
    /// A string.
    Text(String),
    /// An array.
    List(Vec<Json>),
    /// An object: its members in order, no name twice.
    Object(Vec<(String, Json)>),
}

impl Json {
    /// Reads one whole JSON text.
    ///
    /// # Errors
    ///
    /// Says where the text stops being JSON, or which member name occurs twice.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }

    /// What kind of value this is, for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// The texts of a list that holds nothing else.
    #[must_use]
    pub fn texts(&self) -> Option<Vec<&str>> {
        let Self::List(items) = self else { return None };
        items
            .iter()
            .map(|item| match item {
                Self::Text(text) => Some(text.as_str()),
                Self::Null | Self::Bool(_) | Self::Number | Self::List(_) | Self::Object(_) => None,
            })
            .collect()
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Json, E> {
        Ok(Json::Number)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Json, E> {
        Ok(Json::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Json, E> {
        Ok(Json::Number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::Text(text.into()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Json::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut seen = std::collections::BTreeSet::new();
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if !seen.insert(name.clone()) {
                return Err(A::Error::custom(format_args!("the member `{name}` occurs twice")));
            }
            members.push((name, map.next_value()?));
        }
        Ok(Json::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn twice_is_an_error_at_any_depth() {
        #[track_caller]
        fn check(text: &str, member: &str) {
            let error = Json::parse(text).unwrap_err();
            assert!(
                error.contains(&format!("the member `{member}` occurs twice")),
                "{error}"
            );
        }
        check(r#"{"a":1,"a":1}"#, "a");
        check(r#"{"x":[{"a":1,"\u0061":2}]}"#, "a");
        check(r#"{"__proto__":{},"__proto__":{}}"#, "__proto__");
    }

    #[test]
    fn values() {
        #[track_caller]
        fn check(text: &str, expected: Json) {
            assert_eq!(Ok(expected), Json::parse(text));
        }
        check("null", Json::Null);
        check(
            " [true, -0, 1e-999] ",
            Json::List(vec![Json::Bool(true), Json::Number, Json::Number]),
        );
        check(
            r#"{"é":"\u00e9"}"#,
            Json::Object(vec![("é".into(), Json::Text("é".into()))]),
        );
        for broken in ["", "{} {}", "{a:1}", "[1,]", r#""\ud800""#] {
            assert!(Json::parse(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn texts_of_a_list() {
        let texts = |text: &str| Json::parse(text).unwrap().texts().map(|texts| texts.join("+"));
        assert_eq!(Some("a+b".into()), texts(r#"["a","b"]"#));
        assert_eq!(Some(String::new()), texts("[]"));
        assert_eq!(None, texts(r#"["a",1]"#));
        assert_eq!(None, texts(r#""a""#));
    }
}
