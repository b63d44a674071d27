//! Frames of an upstream: an envelope check, and values that pass raw (ruling R12).

use bytes::Bytes;

use super::frame::{ENVELOPE, Envelope, Notification, is_variant};
use super::id::RequestId;
use super::object;
use super::scan::scan_syntax;

/// One message of an upstream.
#[derive(Clone, Debug)]
pub enum UpstreamFrame {
    /// An answer to a request of this host.
    Answer(Answer),
    /// A request to the client.
    Request(UpstreamRequest),
    /// A notification.
    Notification(Notification),
}

/// A line of an upstream that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// Not a JSON object at all, such as a banner: skipped and counted.
    Skipped,
    /// Malformed, but it bears ids of this host: those requests end with an error.
    Malformed {
        /// The ids that it bears.
        ids: Vec<u64>,
        /// What is wrong, for the log.
        detail: String,
    },
}

/// An upstream's answer. The value is whatever the upstream sent.
#[derive(Clone, Debug)]
pub struct Answer {
    envelope: Envelope,
    id: u64,
}

impl Answer {
    /// The id of this host's request.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The raw result: an object.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        self.envelope.slice(self.envelope.result.as_ref())
    }

    /// The raw error: an object with an integer `code` and a string `message`.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.envelope.slice(self.envelope.error.as_ref())
    }

    /// The line for the client: every byte as received but the id.
    #[must_use]
    pub fn to_client(&self, id: &RequestId) -> Bytes {
        self.envelope.line_with_id(id.raw())
    }

    /// The same answer with members of its result set; as it is when it has no result.
    #[must_use]
    pub fn with_result_members(&self, members: &[(&str, &str)]) -> Self {
        let Some(result) = self.result() else {
            return self.clone();
        };
        let result = members.iter().fold(result.to_owned(), |result, (name, value)| {
            object::with_member(&result, name, Some(value))
        });
        self.with_result(&result)
    }

    /// The same answer with another result, an object; as it is when it has no result.
    #[must_use]
    pub fn with_result(&self, result: &str) -> Self {
        let Some(range) = self.envelope.result.clone() else {
            return self.clone();
        };
        let text = object::spliced(self.envelope.text(), range, result);
        Self {
            envelope: Envelope::locate(Bytes::from(text)),
            id: self.id,
        }
    }
}

/// A request of an upstream to the client.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    envelope: Envelope,
    method: Box<str>,
}

impl UpstreamRequest {
    /// The id's token as the upstream sent it.
    #[must_use]
    pub fn id_raw(&self) -> &str {
        self.envelope.slice(self.envelope.id.as_ref()).unwrap_or("null")
    }

    /// The method, unescaped.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// The raw params, whatever they are.
    #[must_use]
    pub fn params(&self) -> Option<&str> {
        self.envelope.slice(self.envelope.params.as_ref())
    }

    /// The same request with other params, an object.
    #[must_use]
    pub fn with_params(&self, params: &str) -> Self {
        let text = object::with_member(self.envelope.text(), "params", Some(params));
        Self {
            envelope: Envelope::locate(Bytes::from(text)),
            method: self.method.clone(),
        }
    }

    /// The line for the client, under an id of this host.
    #[must_use]
    pub fn to_client(&self, id: &RequestId) -> Bytes {
        self.envelope.line_with_id(id.raw())
    }
}

/// Values of an upstream may be nested this deep; deeper ones end the call that they answer.
pub const DEPTH_MAX: usize = 1024;

/// Reads one line of an upstream.
///
/// # Errors
///
/// [`Unreadable`] says whether anybody must be told.
pub fn read_upstream(line: Bytes) -> Result<UpstreamFrame, Unreadable> {
    if let Err(error) = scan_syntax(&line, DEPTH_MAX) {
        return Err(unreadable(&String::from_utf8_lossy(&line), error.to_string()));
    }
    let envelope = Envelope::locate(without_raw_breaks(line));
    let kind = if object::is_object(envelope.text()) {
        check(&envelope)
    } else {
        Err("a message must be an object".to_owned())
    };
    match kind {
        Ok(Kind::Answer(id)) => Ok(UpstreamFrame::Answer(Answer { envelope, id })),
        Ok(Kind::Request(method)) => Ok(UpstreamFrame::Request(UpstreamRequest { envelope, method })),
        Ok(Kind::Notification(method)) => Ok(UpstreamFrame::Notification(Notification { envelope, method })),
        Err(detail) => Err(unreadable(envelope.text(), detail)),
    }
}

/// A raw break between tokens would be a second line for some readers.
fn without_raw_breaks(line: Bytes) -> Bytes {
    let is_break = |byte: &u8| matches!(byte, b'\r' | b'\n');
    if line.iter().any(is_break) {
        // In a text that passed the scan it cannot stand inside a string.
        let spaced: Vec<u8> = line
            .iter()
            .map(|byte| if is_break(byte) { b' ' } else { *byte })
            .collect();
        return Bytes::from(spaced);
    }
    line
}

enum Kind {
    Answer(u64),
    Request(Box<str>),
    Notification(Box<str>),
}

/// The envelope: exact names, once each, and exactly one kind.
fn check(envelope: &Envelope) -> Result<Kind, String> {
    let mut seen: Vec<(Box<str>, &str)> = Vec::new();
    for member in object::members(envelope.text()) {
        if is_variant(&member.name, ENVELOPE) {
            return Err("an envelope member is written in another case".to_owned());
        }
        if ENVELOPE.contains(&member.name.as_ref()) {
            if seen.iter().any(|(name, _)| **name == *member.name) {
                return Err(format!("`{}` stands twice", member.name));
            }
            seen.push((member.name.into(), member.value));
        }
    }
    // One walk: a result may be a hundred megabytes long, and may stand before every other member.
    let value = |name: &str| {
        seen.iter()
            .find(|(seen, _)| **seen == *name)
            .map(|(_, value)| *value)
    };
    if value("jsonrpc").and_then(object::text).as_deref() != Some("2.0") {
        return Err("`jsonrpc` is not \"2.0\"".to_owned());
    }
    let id_raw = value("id");
    if let Some(method) = value("method") {
        if value("result").or(value("error")).is_some() {
            return Err("it is a request and a response".to_owned());
        }
        let method = object::text(method)
            .ok_or("`method` is no string")?
            .into_boxed_str();
        return match id_raw {
            None => Ok(Kind::Notification(method)),
            Some(raw) if raw.starts_with(['"', '-']) || raw.starts_with(|c: char| c.is_ascii_digit()) => {
                Ok(Kind::Request(method))
            }
            Some(_) => Err("the id of its request is neither a string nor a number".to_owned()),
        };
    }
    let id = id_raw.and_then(own_id).ok_or("its id is none of this host's")?;
    match (value("result"), value("error")) {
        (Some(result), None) if object::is_object(result) => Ok(Kind::Answer(id)),
        (None, Some(error)) if is_error(error) => Ok(Kind::Answer(id)),
        (Some(_), None) => Err("`result` is no object".to_owned()),
        (None, Some(_)) => Err("`error` lacks an integer `code` or a string `message`".to_owned()),
        (Some(_), Some(_)) => Err("it has a result and an error".to_owned()),
        (None, None) => Err("it has neither a method nor a result nor an error".to_owned()),
    }
}

fn is_error(error: &str) -> bool {
    object::member(error, "code")
        .is_some_and(|code| !code.starts_with('"') && RequestId::parse(code).is_some())
        && object::member(error, "message").and_then(object::text).is_some()
}

/// Ids towards the upstream are this host's own integers, written one way.
fn own_id(raw: &str) -> Option<u64> {
    let id = raw.parse::<u64>().ok()?;
    (id.to_string() == raw).then_some(id)
}

fn unreadable(text: &str, detail: String) -> Unreadable {
    match borne_ids(text) {
        ids if ids.is_empty() => Unreadable::Skipped,
        ids => Unreadable::Malformed { ids, detail },
    }
}

/// The ids of this host that a malformed line seems to answer: as integers or as their digits in a
/// string, of the object itself or of the objects in an array. The id of what is only a request is not one.
fn borne_ids(text: &str) -> Vec<u64> {
    let ids_of = |object: &str| -> Vec<u64> {
        let bears = |name: &str| object::member(object, name).is_some();
        if bears("method") && !bears("result") && !bears("error") {
            return Vec::new();
        }
        object::members(object)
            .filter(|member| member.name.eq_ignore_ascii_case("id"))
            .filter_map(|member| own_id(object::text(member.value).as_deref().unwrap_or(member.value)))
            .collect()
    };
    if object::is_object(text) {
        ids_of(text)
    } else {
        object::elements(text).flat_map(ids_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<UpstreamFrame, Unreadable> {
        read_upstream(Bytes::from(line.to_owned()))
    }

    #[test]
    fn answers_pass_raw() {
        let line = r#"{ "result" : {"n":1.10,"dup":1,"dup":2,"s":"\ud800"}, "x":1, "id":7 ,"jsonrpc":"2.0"}"#;
        let Ok(UpstreamFrame::Answer(answer)) = read(line) else {
            panic!("an answer")
        };
        assert_eq!(7, answer.id());
        let id = RequestId::parse(r#""a\u0062""#).unwrap();
        assert!(
            matches!(
                read("{\"jsonrpc\":\"2.0\",\r\n\"id\":7,\"error\":{\"code\":1,\"message\":\"\\ud800\"}}"),
                Ok(UpstreamFrame::Answer(answer)) if answer.to_client(&id).iter().filter(|byte| matches!(byte, b'\r' | b'\n')).count() == 1
            ),
            "one line, whatever the breaks between tokens and the text of its message"
        );
        assert_eq!(
            line.replace(":7 ", r#":"a\u0062" "#) + "\n",
            answer.to_client(&id)
        );
        let set = answer.with_result_members(&[("n", "2"), ("new", "true")]);
        assert_eq!(
            Some(r#"{"n":2,"dup":1,"dup":2,"s":"\ud800","new":true}"#),
            set.result()
        );
    }

    #[test]
    fn what_is_malformed_ends_the_calls_that_it_bears() {
        #[track_caller]
        fn check(line: &str, expected: &[u64]) {
            match read(line) {
                Err(Unreadable::Malformed { ids, .. }) => assert_eq!(expected, ids, "{line}"),
                Err(Unreadable::Skipped) => assert!(expected.is_empty(), "{line}"),
                Ok(frame) => panic!("{line} is {frame:?}"),
            }
        }
        check("Server listening on stdio", &[]);
        check("", &[]);
        check("[]", &[]);
        check("3", &[]);
        check(r#"{"id":3,"result":{}}"#, &[3]);
        check(r#"[{"jsonrpc":"2.0","id":3,"result":{}},{"id":4}]"#, &[3, 4]);
        check(r#"{"jsonrpc":"2.0","id":"3","result":{}}"#, &[3]);
        check(r#"{"jsonrpc":"2.0","id":3,"result":[]}"#, &[3]);
        check(r#"{"jsonrpc":"2.0","id":3,"Result":{}}"#, &[3]);
        check(r#"{"jsonrpc":"2.0","ID":3,"result":{}}"#, &[3]);
        check(r#"{"jsonrpc":"2.0","id":3,"result":{},"result":{}}"#, &[3]);
        check(
            r#"{"jsonrpc":"2.0","id":3,"result":{},"error":{"code":1,"message":""}}"#,
            &[3],
        );
        check(
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":1.5,"message":""}}"#,
            &[3],
        );
        check(r#"{"jsonrpc":"2.0","id":3,"error":{"code":1}}"#, &[3]);
        check(r#"{"jsonrpc":"2.0","id":3,"result":{"#, &[3]);
        check(r#"{"jsonrpc":"2.0","id":3,"method":"x","result":{}}"#, &[3]);
        check(r#"{"id":3,"method":"x"}"#, &[]);
        check(
            r#"{"jsonrpc":"2.0","id":3,"result":{},"\ud800":1,"result":{}}"#,
            &[3],
        );
        check(
            r#"{"jsonrpc":"2.0","id":3,"result":{},"\udfff":1,"Result":{}}"#,
            &[3],
        );
        check(r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#, &[]);
        check(r#"{"jsonrpc":"2.0","id":03,"result":{}}"#, &[]);
        check(r#"{"jsonrpc":"2.0","id":[3],"method":"x"}"#, &[]);
    }

    #[test]
    fn every_kind_is_told_apart() {
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","id":1,"error":{"code":99999999999,"message":"x"}}"#),
            Ok(UpstreamFrame::Answer(_))
        ));
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#),
            Ok(UpstreamFrame::Request(_))
        ));
        assert!(matches!(
            read(r#"{"jsonrpc":"2.0","method":"notifications/message"}"#),
            Ok(UpstreamFrame::Notification(_))
        ));
    }
}
