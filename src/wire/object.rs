//! Members of an object in text that is known to be JSON, found without parsing the values.
//!
//! Safe on any text: on what is no JSON the answers are meaningless but nothing panics or hangs.

use std::borrow::Cow;
use std::ops::Range;

use super::scan::{WHITE_SPACE, unescaped};

/// A member of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The name, unescaped.
    pub name: Cow<'a, str>,
    /// The raw text of the value.
    pub value: &'a str,
    /// Where the value stands in the object's text.
    pub range: Range<usize>,
    /// Where the whole member stands, from its name to its value.
    pub whole: Range<usize>,
}

/// The members of one object, in order.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a str,
    at: usize,
}

/// The members of the top level of `object`; none when it is no object.
#[must_use]
pub fn members(object: &str) -> Members<'_> {
    let at = skip_space(object, 0);
    let at = if object.as_bytes().get(at) == Some(&b'{') {
        at + 1
    } else {
        object.len()
    };
    Members { text: object, at }
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let name_start = skip_separators(self.text, self.at);
        if self.text.as_bytes().get(name_start) != Some(&b'"') {
            self.at = self.text.len();
            return None;
        }
        let name_end = value_end(self.text, name_start);
        let name = unescape(self.text.get(name_start..name_end)?)?;
        let colon = skip_space(self.text, name_end);
        let start = skip_space(self.text, colon + 1);
        let end = value_end(self.text, start);
        self.at = end.max(self.at + 1);
        let value = self.text.get(start..end).filter(|value| !value.is_empty())?;
        Some(Member {
            name,
            value,
            range: start..end,
            whole: name_start..end,
        })
    }
}

/// The raw text of one member of `object`.
#[must_use]
pub fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    members(object)
        .find(|member| member.name == name)
        .map(|member| member.value)
}

/// The raw elements of the array `array`, in order; none when it is no array.
pub fn elements(array: &str) -> impl Iterator<Item = &str> {
    let at = skip_space(array, 0);
    let mut at = if array.as_bytes().get(at) == Some(&b'[') {
        at + 1
    } else {
        array.len()
    };
    std::iter::from_fn(move || {
        let start = skip_separators(array, at);
        if matches!(array.as_bytes().get(start), None | Some(b']')) {
            return None;
        }
        let end = value_end(array, start);
        at = end.max(start + 1);
        array.get(start..end).filter(|element| !element.is_empty())
    })
}

/// The array with the elements that `keep` keeps, each byte for byte; none when it is no array.
#[must_use]
pub fn retained(array: &str, mut keep: impl FnMut(&str) -> bool) -> Option<String> {
    if !array.trim_start_matches(WHITE_SPACE).starts_with('[') {
        return None;
    }
    let mut dropped = false;
    let kept: Vec<&str> = elements(array)
        .filter(|element| {
            let kept = keep(element);
            dropped = dropped || !kept;
            kept
        })
        .collect();
    Some(if dropped {
        format!("[{}]", kept.join(","))
    } else {
        array.to_owned()
    })
}

/// Whether a raw value is an object.
#[must_use]
pub fn is_object(raw: &str) -> bool {
    raw.trim_start_matches(WHITE_SPACE).starts_with('{')
}

/// The text of a raw string; none for every other value.
#[must_use]
pub fn text(raw: &str) -> Option<String> {
    unescape(raw).map(Cow::into_owned)
}

/// A text as a JSON string.
#[must_use]
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            c if c < ' ' => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The object with one member set, in place or as the last one, or removed. Every other byte is kept; a text
/// that is no object is left as it is. Where the member stands more than once, each of them is set, so that it
/// does not matter which one a reader takes; the first is removed.
#[must_use]
pub fn with_member(object: &str, name: &str, value: Option<&str>) -> String {
    let mut found = members(object).filter(|member| member.name == name);
    match (found.next(), value) {
        (Some(member), Some(value)) => {
            let ranges: Vec<Range<usize>> = std::iter::once(member)
                .chain(found)
                .map(|member| member.range)
                .collect();
            let last_first = ranges.into_iter().rev();
            last_first.fold(object.to_owned(), |object, range| spliced(&object, range, value))
        }
        (Some(member), None) => without(object, member.whole),
        (None, Some(value)) => appended(object, name, value),
        (None, None) => object.to_owned(),
    }
}

/// The text with `range` replaced.
#[must_use]
pub(super) fn spliced(text: &str, range: Range<usize>, replacement: &str) -> String {
    let before = text.get(..range.start).unwrap_or_default();
    let after = text.get(range.end..).unwrap_or_default();
    [before, replacement, after].concat()
}

fn appended(object: &str, name: &str, value: &str) -> String {
    let Some(end) = object.rfind('}').filter(|_| is_object(object)) else {
        return object.to_owned();
    };
    let comma = if members(object).next().is_some() { "," } else { "" };
    spliced(object, end..end, &format!("{comma}{}:{value}", quote(name)))
}

/// A member goes together with the comma that it no longer needs.
fn without(object: &str, whole: Range<usize>) -> String {
    let after = skip_space(object, whole.end);
    if object.as_bytes().get(after) == Some(&b',') {
        let next = skip_space(object, after + 1);
        return spliced(object, whole.start..next, "");
    }
    let before = object.get(..whole.start).unwrap_or_default();
    let start = before
        .trim_end_matches(WHITE_SPACE)
        .strip_suffix(',')
        .map_or(whole.start, str::len);
    spliced(object, start..whole.end, "")
}

fn skip_space(text: &str, at: usize) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
        .count()
}

fn skip_separators(text: &str, at: usize) -> usize {
    let rest = text.as_bytes().get(at..).unwrap_or_default();
    at + rest
        .iter()
        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b','))
        .count()
}

/// Where the value that starts at `start` ends.
fn value_end(text: &str, start: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = start;
    let mut depth = 0_usize;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => at = string_end(bytes, at),
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                at += 1;
            }
            b',' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return at;
        }
    }
    at.min(bytes.len())
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(found) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        if bytes.get(at + found) == Some(&b'"') {
            return at + found + 1;
        }
        at += found + 2;
    }
    bytes.len()
}

fn unescape(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    unescaped(raw).map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn members_are_found_raw() {
        let object = r#" { "a" : 1.10 , "b\u0062":{"a":[1,"}"]}, "c":"x\"}y" ,"d":[ ] , "":null}"#;
        let found: Vec<(String, &str)> = members(object).map(|m| (m.name.into_owned(), m.value)).collect();
        let expected = [
            ("a", "1.10"),
            ("bb", r#"{"a":[1,"}"]}"#),
            ("c", r#""x\"}y""#),
            ("d", "[ ]"),
            ("", "null"),
        ];
        assert_eq!(
            expected.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            found
        );
        assert_eq!(
            vec!["a\u{fffd}", "b"],
            members(r#"{"a\ud800":1,"b":2}"#)
                .map(|member| member.name.into_owned())
                .collect::<Vec<_>>(),
            "half a surrogate pair hides no member"
        );
        assert_eq!(0, members("[1]").count());
        assert_eq!(0, members("{}").count());
        assert_eq!(0, members("").count());
    }

    #[test]
    fn elements_are_found_raw() {
        assert_eq!(
            vec!["1", r#"{"a":[2]}"#, r#""]""#, "[3,4]"],
            elements(r#"[1 , {"a":[2]},"]", [3,4] ]"#).collect::<Vec<_>>()
        );
        assert_eq!(0, elements("[]").count());
        assert_eq!(0, elements("{}").count());
    }

    #[test]
    fn retained_elements_are_kept_raw() {
        let array = r#"[ {"a":1.10} ,2, "x" ]"#;
        assert_eq!(Some(array.to_owned()), retained(array, |_| true));
        assert_eq!(
            Some(r#"[{"a":1.10},"x"]"#.to_owned()),
            retained(array, |element| element != "2")
        );
        assert_eq!(Some("[]".to_owned()), retained(array, |_| false));
        assert_eq!(None, retained(r#"{"a":[]}"#, |_| true));
    }

    #[test]
    fn with_member_keeps_every_other_byte() {
        #[track_caller]
        fn check(object: &str, name: &str, value: Option<&str>, expected: &str) {
            assert_eq!(expected, with_member(object, name, value));
        }
        check(
            r#"{"a":1, "b" : 2 ,"c":3}"#,
            "b",
            Some("9"),
            r#"{"a":1, "b" : 9 ,"c":3}"#,
        );
        check(r#"{"a":1, "b" : 2 ,"c":3}"#, "b", None, r#"{"a":1, "c":3}"#);
        check(r#"{"a":1, "b" : 2 ,"c":3}"#, "c", None, r#"{"a":1, "b" : 2 }"#);
        check(r#"{"a":1, "b" : 2 ,"c":3}"#, "a", None, r#"{"b" : 2 ,"c":3}"#);
        check(r#"{ "a":1 }"#, "a", None, "{  }");
        check("{}", "a", Some("1"), r#"{"a":1}"#);
        check("{ }", "a", Some("1"), r#"{ "a":1}"#);
        check(r#"{"a":{"b":1}}"#, "b", Some("2"), r#"{"a":{"b":1},"b":2}"#);
        check(r#"{"\u0061":1}"#, "a", Some("2"), r#"{"\u0061":2}"#);
        check("{}", "a", None, "{}");
        check("[{}]", "a", Some("1"), "[{}]");
    }

    fn json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                prop::collection::hash_map(".{0,6}", inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn members_agree_with_serde_json(value in json()) {
            let text = serde_json::to_string_pretty(&value).unwrap();
            let found: serde_json::Map<String, serde_json::Value> = members(&text)
                .map(|member| (member.name.into_owned(), serde_json::from_str(member.value).unwrap()))
                .collect();
            let expected = value.as_object().cloned().unwrap_or_default();
            prop_assert_eq!(expected, found);
        }

        #[test]
        fn any_text_is_safe(text in ".{0,64}", braces in r#"[{}\[\]",:\\a1 ]{0,64}"#) {
            for text in [text, braces] {
                let _count = members(&text).count() + elements(&text).count();
                let _changed = with_member(&text, "a", Some("1"));
                let _removed = with_member(&text, "a", None);
            }
        }

        #[test]
        fn quoted_text_reads_back(plain in any::<String>()) {
            prop_assert_eq!(Some(plain.clone()), text(&quote(&plain)));
            prop_assert_eq!(plain.clone(), serde_json::from_str::<String>(&quote(&plain)).unwrap());
        }

        #[test]
        fn setting_and_removing_a_member_is_what_it_says(value in json(), name in ".{0,6}") {
            let Some(mut expected) = value.as_object().cloned() else { return Ok(()) };
            let text = value.to_string();
            let set: serde_json::Value = serde_json::from_str(&with_member(&text, &name, Some("7"))).unwrap();
            let removed: serde_json::Value = serde_json::from_str(&with_member(&text, &name, None)).unwrap();
            expected.insert(name.clone(), 7.into());
            prop_assert_eq!(&set, &serde_json::Value::Object(expected.clone()));
            expected.remove(&name);
            prop_assert_eq!(removed, serde_json::Value::Object(expected));
        }
    }
}
