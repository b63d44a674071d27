//! The syntax of JSON, byte by byte, for a text that is never held as a whole.
//!
//! Takes exactly what `scan_syntax` takes, but for UTF-8, which it does not look at; tests hold the two together.

/// The bytes are no JSON text, or are nested too deeply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotJson;

/// What a byte is in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// White space between tokens.
    Space,
    /// Between the name of a member and its value.
    Colon,
    /// Between members or elements.
    Comma,
    /// The start of a container.
    Open,
    /// The end of a container.
    Close,
    /// Of the name of a member, its quotes included.
    Name,
    /// Of a string, a number or a literal.
    Scalar,
}

#[derive(Clone, Copy, Debug)]
enum Expect {
    Value,
    ValueOrClose,
    NameOrClose,
    Name,
    Colon,
    CommaOrClose,
    Text { role: Role },
    Escape { role: Role },
    Hex { role: Role, left: u8 },
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentDigits,
    Literal(&'static [u8]),
    End,
}

/// Where in a text its reader is.
#[derive(Debug)]
pub(super) struct Syntax {
    expect: Expect,
    /// For each open container whether it is an object.
    open: Vec<bool>,
    depth_max: usize,
}

impl Syntax {
    pub(super) fn new(depth_max: usize) -> Self {
        Self {
            expect: Expect::Value,
            open: Vec::new(),
            depth_max,
        }
    }

    /// How many containers are open.
    pub(super) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Whether the text could end here.
    pub(super) fn is_complete(&self) -> bool {
        match self.expect {
            Expect::End => true,
            Expect::Zero | Expect::Integer | Expect::Fraction | Expect::ExponentDigits => {
                self.open.is_empty()
            }
            _ => false,
        }
    }

    /// How many of these bytes only go on with the string that the reader is in; none outside of one.
    pub(super) fn plain(&self, bytes: &[u8]) -> usize {
        if !matches!(self.expect, Expect::Text { .. }) {
            return 0;
        }
        let special = |byte: &u8| matches!(byte, b'"' | b'\\') || *byte < b' ';
        bytes.iter().position(special).unwrap_or(bytes.len())
    }

    /// Takes one byte.
    pub(super) fn step(&mut self, byte: u8) -> Result<Role, NotJson> {
        let (role, expect) = match self.expect {
            Expect::Text { role } => match byte {
                b'"' if role == Role::Name => (role, Expect::Colon),
                b'"' => (role, self.after_value()),
                b'\\' => (role, Expect::Escape { role }),
                0..b' ' => return Err(NotJson),
                _ => return Ok(role),
            },
            Expect::Escape { role } => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => (role, Expect::Text { role }),
                b'u' => (role, Expect::Hex { role, left: 4 }),
                _ => return Err(NotJson),
            },
            Expect::Hex { role, left } if byte.is_ascii_hexdigit() => match left {
                0 | 1 => (role, Expect::Text { role }),
                left => (role, Expect::Hex { role, left: left - 1 }),
            },
            Expect::Hex { .. } => return Err(NotJson),
            Expect::Literal(rest) => match rest.split_first() {
                Some((first, [])) if *first == byte => (Role::Scalar, self.after_value()),
                Some((first, rest)) if *first == byte => (Role::Scalar, Expect::Literal(rest)),
                Some(_) | None => return Err(NotJson),
            },
            Expect::Minus
            | Expect::Zero
            | Expect::Integer
            | Expect::Point
            | Expect::Fraction
            | Expect::Exponent
            | Expect::ExponentSign
            | Expect::ExponentDigits => return self.number(byte),
            _ if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') => return Ok(Role::Space),
            Expect::Value => return self.value(byte),
            Expect::ValueOrClose if byte == b']' => return Ok(self.close()),
            Expect::ValueOrClose => return self.value(byte),
            Expect::NameOrClose if byte == b'}' => return Ok(self.close()),
            Expect::NameOrClose | Expect::Name if byte == b'"' => {
                (Role::Name, Expect::Text { role: Role::Name })
            }
            Expect::Colon if byte == b':' => (Role::Colon, Expect::Value),
            Expect::CommaOrClose => return self.comma_or_close(byte),
            Expect::NameOrClose | Expect::Name | Expect::Colon | Expect::End => return Err(NotJson),
        };
        self.expect = expect;
        Ok(role)
    }

    fn value(&mut self, byte: u8) -> Result<Role, NotJson> {
        self.expect = match byte {
            b'{' | b'[' => {
                self.open.push(byte == b'{');
                if self.depth_max < self.open.len() {
                    return Err(NotJson);
                }
                self.expect = match byte {
                    b'{' => Expect::NameOrClose,
                    _ => Expect::ValueOrClose,
                };
                return Ok(Role::Open);
            }
            b'"' => Expect::Text { role: Role::Scalar },
            b'-' => Expect::Minus,
            b'0' => Expect::Zero,
            b'1'..=b'9' => Expect::Integer,
            b't' => Expect::Literal(b"rue"),
            b'f' => Expect::Literal(b"alse"),
            b'n' => Expect::Literal(b"ull"),
            _ => return Err(NotJson),
        };
        Ok(Role::Scalar)
    }

    fn number(&mut self, byte: u8) -> Result<Role, NotJson> {
        self.expect = match (self.expect, byte) {
            (Expect::Minus, b'0') => Expect::Zero,
            (Expect::Minus, b'1'..=b'9') | (Expect::Integer, b'0'..=b'9') => Expect::Integer,
            (Expect::Zero | Expect::Integer, b'.') => Expect::Point,
            (Expect::Point | Expect::Fraction, b'0'..=b'9') => Expect::Fraction,
            (Expect::Zero | Expect::Integer | Expect::Fraction, b'e' | b'E') => Expect::Exponent,
            (Expect::Exponent, b'+' | b'-') => Expect::ExponentSign,
            (Expect::Exponent | Expect::ExponentSign | Expect::ExponentDigits, b'0'..=b'9') => {
                Expect::ExponentDigits
            }
            (Expect::Zero | Expect::Integer | Expect::Fraction | Expect::ExponentDigits, _) => {
                // Only what follows a number says that it is over.
                self.expect = self.after_value();
                return self.step(byte);
            }
            _ => return Err(NotJson),
        };
        Ok(Role::Scalar)
    }

    fn comma_or_close(&mut self, byte: u8) -> Result<Role, NotJson> {
        match (byte, self.open.last()) {
            (b',', Some(true)) => self.expect = Expect::Name,
            (b',', Some(false)) => self.expect = Expect::Value,
            (b'}', Some(true)) | (b']', Some(false)) => return Ok(self.close()),
            _ => return Err(NotJson),
        }
        Ok(Role::Comma)
    }

    fn close(&mut self) -> Role {
        self.open.pop();
        self.expect = self.after_value();
        Role::Close
    }

    fn after_value(&self) -> Expect {
        if self.open.is_empty() {
            Expect::End
        } else {
            Expect::CommaOrClose
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::scan::scan_syntax;

    fn takes(text: &[u8]) -> bool {
        let mut syntax = Syntax::new(8);
        let taken = text.iter().all(|byte| syntax.step(*byte).is_ok());
        taken && syntax.is_complete()
    }

    #[test]
    fn depth() {
        assert!(takes(b"[[[[[[[[]]]]]]]]"));
        assert!(!takes(b"[[[[[[[[[]]]]]]]]]"));
    }

    proptest! {
        #[test]
        fn agrees_with_the_scan(text in r#"[{}\[\]",:\\a1e.\-+ u0dtrufalsn]{0,24}"#) {
            prop_assert_eq!(scan_syntax(text.as_bytes(), 8).is_ok(), takes(text.as_bytes()), "{}", text);
        }

        #[test]
        fn agrees_with_the_scan_on_what_is_nearly_json(
            text in r#"(\{("a":(1|-0\.5e1|"\\u00e9\\n"|true|null|\[\]|\{\}),?){0,3}\}| |\[|\]|,){0,4}"#
        ) {
            prop_assert_eq!(scan_syntax(text.as_bytes(), 8).is_ok(), takes(text.as_bytes()), "{}", text);
        }
    }
}
