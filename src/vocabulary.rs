//! The nouns of the product, each of which cannot be wrong once made.
//!
//! Knows no other module. Rules: semantics section 1; a tool's name has 1 to 128 bytes of UTF-8
//! and no other restriction, because a policy must see exactly what the client sent.

use std::fmt;

/// The name of a tool, as the client sent it: 1 to [`ToolName::MAX_BYTES`] bytes of UTF-8.
///
/// May hold control characters; escape it where it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToolName(Box<str>);

/// Why a text is not the name of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolNameError {
    /// The name has no bytes.
    #[error("the tool's name is empty")]
    Empty,
    /// The name is longer than [`ToolName::MAX_BYTES`].
    #[error("the tool's name has {bytes} bytes; at most {max} are taken", max = ToolName::MAX_BYTES)]
    TooLong {
        /// Length of the refused name in bytes.
        bytes: usize,
    },
}

impl ToolName {
    /// The longest name taken, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<&str> for ToolName {
    type Error = ToolNameError;

    fn try_from(text: &str) -> Result<Self, ToolNameError> {
        if text.is_empty() {
            return Err(ToolNameError::Empty);
        }
        if Self::MAX_BYTES < text.len() {
            return Err(ToolNameError::TooLong { bytes: text.len() });
        }
        Ok(Self(text.into()))
    }
}

/// An authenticated caller. There is none on stdio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The authenticated subject.
    pub subject: Box<str>,
    /// Every verified claim as one JSON object.
    pub claims_json: Box<str>,
}

/// A SHA-256 digest. Shown as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::Digest as _;
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The digest of several parts, each preceded by its length, so that no two lists of parts
    /// share a digest by having the same concatenation.
    #[must_use]
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        use sha2::Digest as _;
        let mut hasher = sha2::Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 128 random bits, shown as 32 hexadecimal digits: the shape of every id that this host makes up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RandomId(u128);

/// Names the audit record of one verdict; a refusal carries it and `gatewright explain` finds it.
pub type DecisionId = RandomId;

impl RandomId {
    /// Takes 16 random bytes from [`Clock::random`](crate::clock::Clock::random).
    #[must_use]
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Reads what [`fmt::Display`] wrote: exactly 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let lower_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(lower_hex) {
            return None;
        }
        u128::from_str_radix(text, 16).ok().map(Self)
    }
}

impl fmt::Display for RandomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for RandomId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names() {
        #[track_caller]
        fn check(text: &str, expected: Result<&str, ToolNameError>) {
            let actual = ToolName::try_from(text);
            assert_eq!(
                expected,
                actual.as_ref().map(ToolName::as_str).map_err(|error| *error)
            );
        }
        check("deploy", Ok("deploy"));
        check("", Err(ToolNameError::Empty));
        check("a\nb", Ok("a\nb"));
        check(&"n".repeat(128), Ok(&"n".repeat(128)));
        check(&"n".repeat(129), Err(ToolNameError::TooLong { bytes: 129 }));
        check(&"é".repeat(64), Ok(&"é".repeat(64)));
        check(&"é".repeat(65), Err(ToolNameError::TooLong { bytes: 130 }));
    }

    #[test]
    fn random_ids_read_back_exactly() {
        let id = RandomId::from_random([0xab; 16]);
        assert_eq!(Some(id), RandomId::parse(&id.to_string()));
        assert_eq!(None, RandomId::parse(&id.to_string().to_uppercase()));
        assert_eq!(None, RandomId::parse("+1"));
        assert_eq!(None, RandomId::parse(&"a".repeat(33)));
    }

    #[test]
    fn parts_are_told_apart() {
        let joined = |parts: &[&[u8]]| Digest::of_parts(parts.iter().copied());
        assert_ne!(joined(&[b"ab", b"c"]), joined(&[b"a", b"bc"]));
        assert_ne!(joined(&[b"abc"]), joined(&[b"abc", b""]));
    }
}
