//! The strict scan: one pass over a client's frame (semantics section 7; RFC 8259 and RFC 7493).
//!
//! A frame that passes means the same to every JSON parser: no duplicate names at any depth, no lone
//! surrogates, no number that rounds to infinity. Containers are kept on a stack of our own that the
//! depth limit bounds, so no input can exhaust the thread's.

use std::collections::HashSet;

/// The limits of one frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// The longest frame, in bytes, white space included and the line end not.
    pub frame_bytes_max: usize,
    /// The deepest nesting; the frame's own object is level 1.
    pub depth_max: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 4 * 1024 * 1024,
            depth_max: 64,
        }
    }
}

/// Why a frame is not taken. `at` is a byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// The bytes are not UTF-8.
    #[error("not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Where.
        at: usize,
    },
    /// The bytes are not exactly one JSON text.
    #[error("not JSON at byte {at}: {what}")]
    NotJson {
        /// Where.
        at: usize,
        /// What was wrong there.
        what: &'static str,
    },
    /// The JSON text is not an object.
    #[error("a frame must be one JSON object")]
    NotAnObject,
    /// An object has two members of the same name.
    #[error("duplicate member name at byte {at}")]
    Duplicate {
        /// Where the second one stands.
        at: usize,
    },
    /// A string holds half of a surrogate pair.
    #[error("lone surrogate at byte {at}")]
    LoneSurrogate {
        /// Where.
        at: usize,
    },
    /// A number rounds to infinity.
    #[error("number outside the range of IEEE doubles at byte {at}")]
    NumberRange {
        /// Where.
        at: usize,
    },
    /// The nesting is too deep.
    #[error("nested deeper than {max} levels")]
    Depth {
        /// The limit.
        max: usize,
    },
    /// The frame is too long.
    #[error("the frame is longer than {max} bytes")]
    Size {
        /// The limit.
        max: usize,
    },
}

impl ScanError {
    /// The JSON-RPC code (ruling R1): parse error for what is not JSON, invalid request for JSON that is not taken.
    #[must_use]
    pub fn code(&self) -> i64 {
        match self {
            Self::NotUtf8 { .. } | Self::NotJson { .. } => -32700,
            Self::NotAnObject
            | Self::Duplicate { .. }
            | Self::LoneSurrogate { .. }
            | Self::NumberRange { .. }
            | Self::Depth { .. }
            | Self::Size { .. } => -32600,
        }
    }
}

/// Checks one frame of a client.
///
/// The first fault ends the scan; a frame with several may get the code of either (ruling R1).
///
/// # Errors
///
/// [`ScanError`] says what is wrong and where.
pub fn scan<'a>(bytes: &'a [u8], limits: &ScanLimits) -> Result<&'a str, ScanError> {
    if limits.frame_bytes_max < bytes.len() {
        return Err(ScanError::Size {
            max: limits.frame_bytes_max,
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| ScanError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    Scanner {
        bytes,
        at: 0,
        strict: true,
        depth_max: limits.depth_max,
        open: Vec::new(),
    }
    .run()?;
    if text.trim_start_matches(WHITE_SPACE).starts_with('{') {
        Ok(text)
    } else {
        Err(ScanError::NotAnObject)
    }
}

/// Checks that `bytes` are exactly one JSON text, nested at most `depth_max` deep: the check for what an
/// upstream sends, whose values pass raw.
///
/// # Errors
///
/// [`ScanError::NotUtf8`], [`ScanError::NotJson`] or [`ScanError::Depth`].
pub fn scan_syntax(bytes: &[u8], depth_max: usize) -> Result<&str, ScanError> {
    let text = std::str::from_utf8(bytes).map_err(|error| ScanError::NotUtf8 {
        at: error.valid_up_to(),
    })?;
    Scanner {
        bytes,
        at: 0,
        strict: false,
        depth_max,
        open: Vec::new(),
    }
    .run()?;
    Ok(text)
}

/// The text of one JSON string. Half of a surrogate pair, which only an upstream's text can hold, reads as
/// U+FFFD: a string that a lax reader takes must not hide what stands behind it.
pub(super) fn unescaped(raw: &str) -> Option<String> {
    let mut scanner = Scanner {
        bytes: raw.as_bytes(),
        at: 0,
        strict: false,
        depth_max: 0,
        open: Vec::new(),
    };
    if scanner.peek() != Some(b'"') {
        return None;
    }
    let text = scanner.string(true).ok()?;
    (scanner.at == raw.len()).then_some(text)
}

/// White space of JSON, between tokens.
pub(super) const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

/// A container that is open.
enum Container {
    Array,
    /// With the names seen so far, unescaped; empty where duplicates are not looked for.
    Object(Names),
}

/// The names of one object. Few are compared one by one, many through a set.
#[derive(Default)]
struct Names {
    few: Vec<Box<str>>,
    many: HashSet<Box<str>>,
}

const FEW: usize = 16;

impl Names {
    /// Returns whether the name is new.
    fn insert(&mut self, name: Box<str>) -> bool {
        if !self.many.is_empty() {
            return self.many.insert(name);
        }
        if self.few.contains(&name) {
            return false;
        }
        self.few.push(name);
        if FEW < self.few.len() {
            self.many = std::mem::take(&mut self.few).into_iter().collect();
        }
        true
    }
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether more than syntax and depth counts.
    strict: bool,
    depth_max: usize,
    open: Vec<Container>,
}

impl<'a> Scanner<'a> {
    fn run(mut self) -> Result<(), ScanError> {
        self.value()?;
        while !self.open.is_empty() {
            self.after_value()?;
        }
        self.white_space();
        if self.peek().is_some() {
            Err(self.not_json("text after the end of the value"))
        } else {
            Ok(())
        }
    }

    /// Reads a value; for a container that is not empty, up to and including the start of its first value.
    fn value(&mut self) -> Result<(), ScanError> {
        loop {
            self.white_space();
            match self.peek() {
                Some(b'{') => {
                    self.enter(Container::Object(Names::default()))?;
                    if self.closes(b'}') {
                        return Ok(());
                    }
                    self.name()?;
                }
                Some(b'[') => {
                    self.enter(Container::Array)?;
                    if self.closes(b']') {
                        return Ok(());
                    }
                }
                Some(b'"') => return self.string(false).map(drop),
                Some(b'-' | b'0'..=b'9') => return self.number(),
                Some(b't') => return self.literal(b"true"),
                Some(b'f') => return self.literal(b"false"),
                Some(b'n') => return self.literal(b"null"),
                Some(_) => return Err(self.not_json("a value was expected")),
                None => return Err(self.not_json("the text ends too early")),
            }
        }
    }

    /// Reads what follows a value inside a container.
    fn after_value(&mut self) -> Result<(), ScanError> {
        self.white_space();
        let in_object = matches!(self.open.last(), Some(Container::Object(_)));
        match (self.peek(), in_object) {
            (Some(b','), true) => {
                self.at += 1;
                self.white_space();
                self.name()?;
                self.value()
            }
            (Some(b','), false) => {
                self.at += 1;
                self.value()
            }
            (Some(b'}'), true) | (Some(b']'), false) => {
                self.at += 1;
                self.open.pop();
                Ok(())
            }
            (Some(_), _) => Err(self.not_json("`,` or the end of a container was expected")),
            (None, _) => Err(self.not_json("the text ends too early")),
        }
    }

    fn enter(&mut self, container: Container) -> Result<(), ScanError> {
        self.at += 1;
        self.open.push(container);
        if self.depth_max < self.open.len() {
            return Err(ScanError::Depth { max: self.depth_max });
        }
        Ok(())
    }

    fn closes(&mut self, end: u8) -> bool {
        self.white_space();
        let closes = self.peek() == Some(end);
        if closes {
            self.at += 1;
            self.open.pop();
        }
        closes
    }

    fn name(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        if self.peek() != Some(b'"') {
            return Err(self.not_json("a member name was expected"));
        }
        let name = self.string(self.strict)?;
        if self.strict
            && let Some(Container::Object(names)) = self.open.last_mut()
            && !names.insert(name.into_boxed_str())
        {
            return Err(ScanError::Duplicate { at: start });
        }
        self.white_space();
        if self.peek() != Some(b':') {
            return Err(self.not_json("`:` was expected"));
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a string; keeps its unescaped text when asked to.
    fn string(&mut self, keep: bool) -> Result<String, ScanError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let plain =
                memchr::memchr2(b'"', b'\\', rest).map_or(rest, |end| rest.get(..end).unwrap_or(rest));
            if let Some(control) = plain.iter().position(|byte| *byte < b' ') {
                self.at += control;
                return Err(self.not_json("a raw control character in a string"));
            }
            if keep {
                text.push_str(std::str::from_utf8(plain).unwrap_or_default());
            }
            self.at += plain.len();
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    let c = self.escape()?;
                    if keep {
                        text.push(c);
                    }
                }
                Some(_) | None => return Err(self.not_json("the text ends inside a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ScanError> {
        let start = self.at;
        self.at += 1;
        let Some(kind) = self.peek() else {
            return Err(self.not_json("the text ends inside a string"));
        };
        self.at += 1;
        Ok(match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(start),
            _ => return Err(self.not_json("an unknown escape")),
        })
    }

    fn unicode_escape(&mut self, start: usize) -> Result<char, ScanError> {
        let first = self.hex4()?;
        if let Some(c) = char::from_u32(u32::from(first)) {
            return Ok(c);
        }
        let high = (0xd800..0xdc00).contains(&first);
        if high && self.rest().starts_with(b"\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex4()?;
            if let Some(Ok(c)) = char::decode_utf16([first, second]).next() {
                return Ok(c);
            }
            self.at = back;
        }
        if self.strict {
            Err(ScanError::LoneSurrogate { at: start })
        } else {
            Ok(char::REPLACEMENT_CHARACTER)
        }
    }

    fn hex4(&mut self) -> Result<u16, ScanError> {
        let digits = self.rest().first_chunk::<4>().copied();
        let mut unit = 0_u16;
        for digit in digits.ok_or_else(|| self.not_json("the text ends inside an escape"))? {
            let value = char::from(digit)
                .to_digit(16)
                .ok_or_else(|| self.not_json("four hexadecimal digits were expected"))?;
            unit = unit << 4 | u16::try_from(value).unwrap_or(0);
        }
        self.at += 4;
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            Some(_) | None => return Err(self.not_json("a digit was expected")),
        }
        let mut plain = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            plain = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits()?;
        }
        // Without an exponent, up to 300 characters cannot reach 1.8e308; the rest is parsed to be sure.
        let text = self.bytes.get(start..self.at).unwrap_or_default();
        if !self.strict || (plain && text.len() <= 300) {
            return Ok(());
        }
        let finite = std::str::from_utf8(text)
            .ok()
            .and_then(|text| text.parse::<f64>().ok())
            .is_some_and(f64::is_finite);
        if finite {
            Ok(())
        } else {
            Err(ScanError::NumberRange { at: start })
        }
    }

    fn some_digits(&mut self) -> Result<(), ScanError> {
        let start = self.at;
        self.digits();
        if start == self.at {
            Err(self.not_json("a digit was expected"))
        } else {
            Ok(())
        }
    }

    fn digits(&mut self) {
        self.at += self
            .rest()
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
    }

    fn literal(&mut self, literal: &[u8]) -> Result<(), ScanError> {
        if self.rest().starts_with(literal) {
            self.at += literal.len();
            return Ok(());
        }
        Err(self.not_json("a value was expected"))
    }

    fn white_space(&mut self) {
        self.at += self
            .rest()
            .iter()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'))
            .count();
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn not_json(&self, what: &'static str) -> ScanError {
        ScanError::NotJson { at: self.at, what }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(bytes: impl AsRef<[u8]>, code: Option<i64>) {
        let actual = scan(bytes.as_ref(), &ScanLimits::default());
        assert_eq!(
            code,
            actual.err().map(|error| error.code()),
            "{:?}",
            String::from_utf8_lossy(bytes.as_ref())
        );
    }

    #[test]
    fn syntax() {
        for good in [
            "{}",
            " {\t}\r\n",
            r#"{"a":[1,-0,0.5,1e2,1E-2,-1.50e00,true,false,null,"",[],{}]}"#,
        ] {
            check(good, None);
        }
        let bad = [
            "",
            " ",
            "{",
            "}",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            r#"{,}"#,
            r#"{"a":1 "b":2}"#,
            "{}{}",
            "{} x",
            r#"{"a":[1,]}"#,
            r#"{"a":[1}"#,
            r#"{"a":01}"#,
            r#"{"a":1.}"#,
            r#"{"a":.5}"#,
            r#"{"a":+1}"#,
            r#"{"a":1e}"#,
            r#"{"a":-}"#,
            r#"{"a":NaN}"#,
            r#"{"a":nul}"#,
            r#"{"a":truex}"#,
            r#"{"a":"x}"#,
            r#"{"a":"\x"}"#,
            r#"{"a":"\u12"}"#,
            r#"{"a":"\u12g4"}"#,
            "{\"a\":\"\t\"}",
            "{'a':1}",
            "{a:1}",
            "{\"a\":1}\0",
            "\u{feff}{}",
        ];
        for bad in bad {
            check(bad, Some(-32700));
        }
        check(b"\xff", Some(-32700));
        check(b"{\"a\":\"\xed\xa0\x80\"}", Some(-32700));
        for other in ["[]", "1", r#""x""#, "null", "[{}]"] {
            check(other, Some(-32600));
        }
    }

    #[test]
    fn what_parsers_read_differently_is_refused() {
        for bad in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":1}"#,
            r#"{"x":[{"a/b":1,"a\/b":2}]}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":"\ude00\ud83d"}"#,
            r#"{"a":"\ud83dx"}"#,
            r#"{"\ud800":1}"#,
            r#"{"a":1e999}"#,
            r#"{"a":-1.8e308}"#,
        ] {
            check(bad, Some(-32600));
        }
        check(format!(r#"{{"a":1{}}}"#, "0".repeat(400)), Some(-32600));
        check(format!(r#"{{"a":{}}}"#, "9".repeat(300)), None);
        for good in [
            r#"{"a":1,"A":2}"#,
            r#"{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}"#,
            r#"{"a":"\ud83d\ude00"}"#,
            r#"{"a":1e-999}"#,
        ] {
            check(good, None);
        }
    }

    #[test]
    fn depth_and_size() {
        let nested =
            |levels: usize| format!(r#"{{"a":{}1{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1));
        check(nested(64), None);
        check(nested(65), Some(-32600));
        check("[".repeat(1_000_000), Some(-32600));
        let limits = ScanLimits {
            frame_bytes_max: 10,
            ..ScanLimits::default()
        };
        assert!(scan(br#"{"a":1234}"#, &limits).is_ok());
        assert_eq!(Err(ScanError::Size { max: 10 }), scan(br#"{"a":12345}"#, &limits));
    }

    #[test]
    fn a_hundred_thousand_names_are_compared_quickly() {
        let members: Vec<String> = (0..100_000).map(|n| format!(r#""{n}":{n}"#)).collect();
        check(format!("{{{}}}", members.join(",")), None);
        check(format!(r#"{{{},"77":0}}"#, members.join(",")), Some(-32600));
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_syntax(text in r#"[{}\[\]",:\\a1e.\-+ u0dtrufalsn]{0,24}"#) {
            let ours = scan(text.as_bytes(), &ScanLimits::default());
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            match ours {
                Ok(_) => prop_assert!(theirs, "{text}"),
                Err(error) if error.code() == -32700 => prop_assert!(!theirs, "{text}: {error}"),
                Err(_) => {}
            }
        }
    }
}
