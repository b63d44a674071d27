//! An answer of an upstream that is too long to be held as a whole: checked and spliced as it passes.
//!
//! Takes what `read_upstream` takes as an answer with a result, and gives the same bytes. What is wrong with it may
//! show only when a part of it has gone out already; so its last byte is held back until everything was checked, and
//! no reader takes what went out before for an answer.

use bytes::{BufMut as _, Bytes, BytesMut};

use super::frame::{ENVELOPE, is_variant};
use super::hints::Hints;
use super::id::RequestId;
use super::object;
use super::syntax::{NotJson, Role, Syntax};
use super::upstream_frame::DEPTH_MAX;

/// A part of a long answer, or its end. Without the end it broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// More of it.
    Part(Bytes),
    /// There is no more.
    End,
}

/// A long answer cannot be delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(&'static str);

/// A member name is told from the known ones up to this length, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// A value that is looked at may be this long, in bytes.
const HELD_BYTES_MAX: usize = 64 * 1024;

/// What happens to the bytes of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They pass.
    Pass,
    /// They pass, and the value is kept.
    Note(&'static str),
    /// Something else goes out in their place.
    Replace(&'static str),
}

/// The reader of one long answer.
#[derive(Debug)]
pub struct LongAnswer {
    syntax: Syntax,
    utf8: Utf8,
    upstream_id: String,
    id: RequestId,
    hints: Hints,
    /// The members of the result that are looked at.
    noted: &'static [&'static str],
    /// The name that the reader is in, from its first quote on.
    name: Vec<u8>,
    /// The last member of the envelope, where it is one that the envelope has.
    member: Option<&'static str>,
    seen: Vec<&'static str>,
    in_result: bool,
    result_is_empty: bool,
    fate: Fate,
    /// The value that is held or noted, so far.
    value: Vec<u8>,
    ttl_ms: bool,
    scope: bool,
    kept: Vec<(&'static str, String)>,
    out: BytesMut,
}

impl LongAnswer {
    /// The answer to the request that went upstream as `upstream_id`, for the client's request `id`. Of its result the
    /// members in `noted` are kept.
    #[must_use]
    pub fn new(upstream_id: u64, id: RequestId, hints: Hints, noted: &'static [&'static str]) -> Self {
        Self {
            syntax: Syntax::new(DEPTH_MAX),
            utf8: Utf8::default(),
            upstream_id: upstream_id.to_string(),
            id,
            hints,
            noted,
            name: Vec::new(),
            member: None,
            seen: Vec::new(),
            in_result: false,
            result_is_empty: true,
            fate: Fate::Pass,
            value: Vec::new(),
            ttl_ms: false,
            scope: false,
            kept: Vec::new(),
            out: BytesMut::new(),
        }
    }

    /// Takes a part, and gives what goes to the client.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; nothing more of it can be read then.
    pub fn part(&mut self, bytes: &[u8]) -> Result<Bytes, Malformed> {
        if !self.utf8.takes(bytes) {
            return Err(Malformed("it is not UTF-8"));
        }
        self.out.reserve(bytes.len() + 64);
        let mut rest = bytes;
        while let Some((byte, after)) = rest.split_first() {
            let plain = match self.fate {
                Fate::Pass if !self.in_name() => self.syntax.plain(rest),
                Fate::Pass | Fate::Note(_) | Fate::Replace(_) => 0,
            };
            if 0 < plain {
                let (run, after) = rest.split_at_checked(plain).unwrap_or((rest, &[]));
                self.out.put_slice(run);
                rest = after;
                continue;
            }
            self.byte(*byte)?;
            rest = after;
        }
        Ok(self.out.split().freeze())
    }

    /// The end of the answer, and the last that goes to the client.
    ///
    /// # Errors
    ///
    /// [`Malformed`], as for a part.
    pub fn end(&mut self) -> Result<Bytes, Malformed> {
        if !self.syntax.is_complete() || !self.utf8.is_complete() {
            return Err(Malformed("it ends too early"));
        }
        for (name, missing) in [
            ("jsonrpc", "it lacks `jsonrpc`"),
            ("id", "it lacks its id"),
            ("result", "it lacks a result"),
        ] {
            if !self.seen.contains(&name) {
                return Err(Malformed(missing));
            }
        }
        Ok(Bytes::from_static(b"}"))
    }

    /// The members of the result that were kept, as an object.
    #[must_use]
    pub fn kept(&self) -> String {
        let members = self.kept.iter().rev();
        members.fold("{}".to_owned(), |kept, (name, value)| {
            object::with_member(&kept, name, Some(value))
        })
    }

    fn in_name(&self) -> bool {
        !self.name.is_empty()
    }

    fn byte(&mut self, byte: u8) -> Result<(), Malformed> {
        let before = self.syntax.depth();
        let role = self
            .syntax
            .step(byte)
            .map_err(|NotJson| Malformed("it is no JSON text, or is nested too deeply"))?;
        let after = self.syntax.depth();
        // The container whose member or element this byte is of.
        let level = before.min(after);
        match (role, level) {
            (Role::Open, 0) if byte == b'[' => return Err(Malformed("it is no object")),
            (Role::Scalar, 0) => return Err(Malformed("it is no object")),
            (Role::Close, 0) => return self.value_ends(),
            (Role::Space, 0) if self.syntax.is_complete() => return Ok(()),
            (Role::Open, 1) if self.member == Some("result") && byte == b'{' => self.in_result = true,
            (Role::Open | Role::Scalar, 1) if self.member == Some("result") && !self.in_result => {
                return Err(Malformed("`result` is no object"));
            }
            (Role::Close, 1) if self.in_result => {
                self.value_ends()?;
                self.result_ends();
            }
            _ => {}
        }
        if level == 1 || (level == 2 && self.in_result) {
            self.boundary(role, level, byte)?;
        }
        self.pass(role, byte)
    }

    /// What begins or ends at a byte of the envelope or of the result.
    fn boundary(&mut self, role: Role, level: usize, byte: u8) -> Result<(), Malformed> {
        match role {
            Role::Name => {
                if self.name.len() <= NAME_BYTES_MAX {
                    self.name.push(byte);
                }
                if level == 2 {
                    self.result_is_empty = false;
                }
            }
            Role::Colon => {
                let name = std::mem::take(&mut self.name);
                let name = std::str::from_utf8(&name).ok().and_then(object::text);
                self.value_begins(level, name.as_deref())?;
            }
            Role::Space if self.value.is_empty() => {}
            Role::Space | Role::Comma => self.value_ends()?,
            Role::Open | Role::Close | Role::Scalar => {}
        }
        Ok(())
    }

    fn value_begins(&mut self, level: usize, name: Option<&str>) -> Result<(), Malformed> {
        let Some(name) = name else {
            // Longer than any that is known.
            return Ok(());
        };
        if level == 2 {
            self.fate = match name {
                "ttlMs" if self.hints.replaces_ttl() => Fate::Replace("ttlMs"),
                "cacheScope" if self.hints.replaces_scope() => Fate::Replace("cacheScope"),
                name => match self.noted.iter().find(|noted| **noted == name) {
                    Some(noted) => Fate::Note(noted),
                    None => Fate::Pass,
                },
            };
            return Ok(());
        }
        if is_variant(name, ENVELOPE) {
            return Err(Malformed("an envelope member is written in another case"));
        }
        self.member = ENVELOPE.iter().find(|member| **member == name).copied();
        let Some(member) = self.member else {
            return Ok(());
        };
        if self.seen.contains(&member) {
            return Err(Malformed("an envelope member stands twice"));
        }
        self.seen.push(member);
        match member {
            "id" => self.fate = Fate::Replace("id"),
            "jsonrpc" => self.fate = Fate::Note("jsonrpc"),
            "method" => return Err(Malformed("it is a request and a response")),
            "error" => return Err(Malformed("it has a result and an error")),
            _ => {}
        }
        Ok(())
    }

    fn value_ends(&mut self) -> Result<(), Malformed> {
        let fate = std::mem::replace(&mut self.fate, Fate::Pass);
        let value = String::from_utf8(std::mem::take(&mut self.value)).unwrap_or_default();
        match fate {
            Fate::Pass => {}
            Fate::Replace("id") => {
                if value != self.upstream_id {
                    return Err(Malformed("its id is not that of the request"));
                }
                self.out.put_slice(self.id.raw().as_bytes());
            }
            Fate::Replace("ttlMs") => {
                self.ttl_ms = true;
                self.out.put_slice(self.hints.ttl_ms(Some(&value)).as_bytes());
            }
            Fate::Replace(_) => {
                self.scope = true;
                self.out.put_slice(Hints::SCOPE.as_bytes());
            }
            Fate::Note("jsonrpc") => {
                if object::text(&value).as_deref() != Some("2.0") {
                    return Err(Malformed("`jsonrpc` is not \"2.0\""));
                }
            }
            Fate::Note(name) => self.kept.push((name, value)),
        }
        Ok(())
    }

    /// Adds the hints that the result lacks.
    fn result_ends(&mut self) {
        self.in_result = false;
        self.member = None;
        let mut added = Vec::new();
        if !self.ttl_ms && self.hints.adds_ttl(self.scope) {
            added.push(format!("\"ttlMs\":{}", self.hints.ttl_ms(None)));
        }
        if !self.scope && self.hints.adds_scope(self.ttl_ms) {
            added.push(format!("\"cacheScope\":{}", Hints::SCOPE));
        }
        for member in added {
            if !self.result_is_empty {
                self.out.put_u8(b',');
            }
            self.result_is_empty = false;
            self.out.put_slice(member.as_bytes());
        }
    }

    fn pass(&mut self, role: Role, byte: u8) -> Result<(), Malformed> {
        let of_the_value = match role {
            Role::Open | Role::Close | Role::Scalar | Role::Name => true,
            // Between the tokens of a container that is held.
            Role::Space | Role::Colon | Role::Comma => !self.value.is_empty(),
        };
        if self.fate != Fate::Pass && of_the_value {
            if HELD_BYTES_MAX < self.value.len() {
                return Err(Malformed("a member that must be read is too long"));
            }
            self.value.push(byte);
        }
        let replaced = matches!(self.fate, Fate::Replace(_)) && of_the_value;
        if !replaced {
            // A raw break between tokens would be a second line for some readers.
            let is_break = matches!(byte, b'\r' | b'\n');
            self.out.put_u8(if is_break { b' ' } else { byte });
        }
        Ok(())
    }
}

/// Checks that bytes which come in parts are UTF-8.
#[derive(Debug, Default)]
struct Utf8 {
    /// The start of a character that the last part ended in.
    cut: Vec<u8>,
}

impl Utf8 {
    fn takes(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !self.cut.is_empty() {
            let Some((byte, after)) = rest.split_first() else {
                return true;
            };
            self.cut.push(*byte);
            rest = after;
            match std::str::from_utf8(&self.cut) {
                Ok(_) => self.cut.clear(),
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return false,
            }
        }
        match std::str::from_utf8(rest) {
            Ok(_) => true,
            Err(error) if error.error_len().is_none() => {
                self.cut
                    .extend_from_slice(rest.get(error.valid_up_to()..).unwrap_or_default());
                true
            }
            Err(_) => false,
        }
    }

    fn is_complete(&self) -> bool {
        self.cut.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::upstream_frame::{UpstreamFrame, read_upstream};

    const HINTS: [Hints; 4] = [Hints::Kept, Hints::OfATask, Hints::Never, Hints::Capped(1000)];

    fn id() -> RequestId {
        RequestId::parse(r#""the client's""#).unwrap()
    }

    fn in_pieces(text: &[u8], size: usize, hints: Hints) -> Option<Vec<u8>> {
        let mut answer = LongAnswer::new(7, id(), hints, &[]);
        let mut out = Vec::new();
        for part in text.chunks(size) {
            out.extend_from_slice(&answer.part(part).ok()?);
        }
        out.extend_from_slice(&answer.end().ok()?);
        Some(out)
    }

    fn whole(text: &[u8], hints: Hints) -> Option<Vec<u8>> {
        match read_upstream(Bytes::copy_from_slice(text)) {
            Ok(UpstreamFrame::Answer(answer)) if answer.id() == 7 && answer.result().is_some() => {
                let line = hints.applied(answer).to_client(&id());
                Some(line.trim_ascii_end().to_vec())
            }
            Ok(_) | Err(_) => None,
        }
    }

    #[track_caller]
    fn check(text: &str) {
        for hints in HINTS {
            let expected = whole(text.as_bytes(), hints);
            for size in [1, 2, 3, 7, 4096] {
                let actual = in_pieces(text.as_bytes(), size, hints);
                let shown = |out: &Option<Vec<u8>>| {
                    out.as_deref()
                        .map(|out| String::from_utf8_lossy(out).into_owned())
                };
                assert_eq!(
                    shown(&expected),
                    shown(&actual),
                    "{text} in pieces of {size}, {hints:?}"
                );
            }
        }
    }

    #[test]
    fn reads_as_if_it_were_whole() {
        for text in [
            r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
            r#" { "result" : { "a" : [ 1 , {"ttlMs":9} ] } , "id" : 7 , "jsonrpc" : "2.0" } "#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"ttlMs":5000,"cacheScope":"public"}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"ttlMs":5}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"x":{},"cacheScope":["x", {"y":1} ] }}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"ttlMs":5000,"ttlMs":5000,"t\u0074lMs":5000}}"#,
            r#"{"jsonrpc":"2.\u0030","i\u0064":7,"result":{"a:":1,":":"\"é\ud800"}}"#,
            "{\"jsonrpc\":\"2.0\",\r\n\"id\":7,\n\"result\":{\n\"a\":1\n}\n}\n",
            r#"{"jsonrpc":"2.0","id":"7","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":8,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7.0,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":[7],"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":[]}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":1}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{"code":1,"message":""}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"method":"x"}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{},"Id":1}"#,
            r#"{"jsonrpc":"2.0","id":7}"#,
            r#"{"jsonrpc":"2.0","result":{}}"#,
            r#"{"id":7,"result":{}}"#,
            r#"{"jsonrpc":2.0,"id":7,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}} x"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":tru}}"#,
            r#"[{"jsonrpc":"2.0","id":7,"result":{}}]"#,
            "7",
            "",
        ] {
            check(text);
        }
        let long_name = "n".repeat(1000);
        check(&format!(
            r#"{{"{long_name}":1,"jsonrpc":"2.0","id":7,"result":{{"{long_name}":2,"ttlMs":1}}}}"#
        ));
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for levels in [DEPTH_MAX - 2, DEPTH_MAX - 1] {
            check(&format!(
                r#"{{"jsonrpc":"2.0","id":7,"result":{{"a":{}}}}}"#,
                deep(levels)
            ));
        }
    }

    #[test]
    fn what_is_not_utf8_is_malformed() {
        let text = b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"a\":\"\xc3\"}}";
        assert_eq!(None, in_pieces(text, 1, Hints::Kept));
        assert_eq!(None, in_pieces(text, 4096, Hints::Kept));
    }

    #[test]
    fn keeps_what_is_looked_at() {
        let mut answer = LongAnswer::new(7, id(), Hints::Kept, &["isError", "task"]);
        let text = br#"{"jsonrpc":"2.0","id":7,"result":{"task":{"id": 1},"x":{"isError":0},"isError":true,"task":2}}"#;
        answer.part(text).unwrap();
        answer.end().unwrap();
        assert_eq!(r#"{"task":{"id": 1},"isError":true}"#, answer.kept());
        let mut answer = LongAnswer::new(7, id(), Hints::Kept, &["task"]);
        let long = format!(r#"{{"result":{{"task":"{}"}}}}"#, "x".repeat(HELD_BYTES_MAX));
        assert!(answer.part(long.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn reads_any_members_as_if_they_were_whole(
            members in proptest::collection::vec(
                proptest::sample::select(vec![
                    r#""jsonrpc":"2.0""#, r#""id":7"#, r#""id" : 7 "#, r#""result":{}"#, r#""x":[1,{"id":2}]"#,
                    r#""result":{"ttlMs":70000 ,"a":"é"}"#, r#""result": {"cacheScope":"public","ttlMs":null}"#,
                    r#""result":{"a":{"ttlMs":1},"ttlMs":"x"}"#, r#""error":{"code":1,"message":"m"}"#,
                    r#""params":{}"#, r#""jsonrpc":"1.0""#, "\"y\":\n[ ]", r#""ID":7"#,
                ]),
                0..6,
            ),
            size in 1_usize..9,
            hints in proptest::sample::select(HINTS.to_vec()),
        ) {
            let text = format!("{{{}}}", members.join(","));
            prop_assert_eq!(whole(text.as_bytes(), hints), in_pieces(text.as_bytes(), size, hints), "{}", text);
        }
    }
}
