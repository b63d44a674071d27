//! Ids of requests: echoed to the client byte for byte, compared by kind and value (ruling R10).

use std::hash::{Hash, Hasher};

use super::object;

/// The id of a request: a string, or an integer of any size, at most [`RequestId::MAX_BYTES`] long as a token.
///
/// `1` and `"1"` are two ids; `"a"` and `"\u0061"` are one.
#[derive(Clone, Debug)]
pub struct RequestId {
    raw: Box<str>,
    /// The unescaped text of a string; none for an integer, whose token is its value.
    text: Option<Box<str>>,
}

impl RequestId {
    /// The longest token taken, in bytes.
    pub const MAX_BYTES: usize = 256;

    /// Reads a raw JSON token.
    #[must_use]
    pub fn parse(raw: &str) -> Option<Self> {
        if Self::MAX_BYTES < raw.len() {
            return None;
        }
        if raw.starts_with('"') {
            return Some(Self {
                raw: raw.into(),
                text: Some(object::text(raw)?.into()),
            });
        }
        let digits = raw.strip_prefix('-').unwrap_or(raw);
        let integer = digits == "0"
            || (!digits.starts_with('0')
                && !digits.is_empty()
                && digits.bytes().all(|byte| byte.is_ascii_digit()));
        integer.then(|| Self {
            raw: raw.into(),
            text: None,
        })
    }

    /// An integer that this host made up.
    #[must_use]
    pub fn from_integer(id: u64) -> Self {
        Self {
            raw: id.to_string().into(),
            text: None,
        }
    }

    /// The token as it was received.
    #[must_use]
    pub fn raw(&self) -> &str {
        &self.raw
    }

    fn value(&self) -> (bool, &str) {
        match &self.text {
            Some(text) => (true, text),
            None => (false, &self.raw),
        }
    }
}

impl PartialEq for RequestId {
    fn eq(&self, other: &Self) -> bool {
        self.value() == other.value()
    }
}

impl Eq for RequestId {}

impl Hash for RequestId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.value().hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids() {
        let id = |raw: &str| RequestId::parse(raw);
        for good in [
            "0",
            "-0",
            "7",
            "-12",
            "123456789012345678901234567890",
            r#""""#,
            r#""a\u0062\/c""#,
            r#""\u0000""#,
        ] {
            assert_eq!(Some(good), id(good).as_ref().map(RequestId::raw));
        }
        for bad in [
            "", "-", "01", "-01", "1.0", "1e0", "1.5", "null", "true", "[1]", "{}", "+1", "0x1", "\"",
        ] {
            assert!(id(bad).is_none(), "{bad}");
        }
        assert_ne!(id("1"), id(r#""1""#));
        assert_eq!(id(r#""a""#), id(r#""\u0061""#));
        assert!(id(&format!("\"{}\"", "a".repeat(254))).is_some());
        assert!(id(&format!("\"{}\"", "a".repeat(255))).is_none());
    }
}
