//! Frames of a client: one strict reading, and the splices that are allowed afterwards.
//!
//! INVARIANT: a [`Request`] holds the very bytes that passed the scan; [`Request::to_upstream`] changes
//! the id and nothing else, and `with_param` only the member that it names.

use std::ops::Range;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::id::RequestId;
use super::object::{self, Member};
use super::scan::{ScanLimits, scan};

/// One message of a client.
#[derive(Clone, Debug)]
pub enum ClientFrame {
    /// It has a method and an id.
    Request(Request),
    /// It has a method and no id.
    Notification(Notification),
    /// It has a result or an error; never answered, well formed or not.
    Response(Response),
}

/// Why a frame is answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct FrameError {
    /// The JSON-RPC code.
    pub code: i64,
    /// The id to echo; none when the frame has no usable one (ruling R2).
    pub id: Option<RequestId>,
    /// What is wrong.
    pub detail: String,
}

/// The text of a frame and where its envelope stands in it.
#[derive(Clone, Debug)]
pub(super) struct Envelope {
    pub(super) text: Bytes,
    pub(super) id: Option<Range<usize>>,
    pub(super) params: Option<Range<usize>>,
    pub(super) result: Option<Range<usize>>,
    pub(super) error: Option<Range<usize>>,
}

impl Envelope {
    /// The text. It was checked to be UTF-8 when the frame was read.
    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.text).unwrap_or_default()
    }

    pub(super) fn slice(&self, range: Option<&Range<usize>>) -> Option<&str> {
        // Only the part is looked at, not a whole answer for the sake of its id.
        std::str::from_utf8(self.text.get(range?.clone())?).ok()
    }

    /// The line with another id, ended by LF. Bytes outside the id are copied once.
    pub(super) fn line_with_id(&self, id: &str) -> Bytes {
        let Range { start, end } = self.id.clone().unwrap_or(0..0);
        let mut line = BytesMut::with_capacity(self.text.len() + id.len() + 1);
        line.put_slice(self.text.get(..start).unwrap_or_default());
        line.put_slice(id.as_bytes());
        line.put_slice(self.text.get(end..).unwrap_or_default());
        line.put_u8(b'\n');
        line.freeze()
    }

    pub(super) fn line(&self) -> Bytes {
        let mut line = BytesMut::with_capacity(self.text.len() + 1);
        line.put_slice(&self.text);
        line.put_u8(b'\n');
        line.freeze()
    }

    /// The frame with one member of `params` set or removed.
    fn with_param(&self, name: &str, value: Option<&str>) -> Self {
        let params = object::with_member(self.slice(self.params.as_ref()).unwrap_or("{}"), name, value);
        let text = object::with_member(self.text(), "params", Some(&params));
        Self::locate(Bytes::from(text))
    }

    /// Finds the envelope in a text that was read before.
    pub(super) fn locate(text: Bytes) -> Self {
        let mut envelope = Self {
            text,
            id: None,
            params: None,
            result: None,
            error: None,
        };
        let (mut id, mut params, mut result, mut error) = (None, None, None, None);
        for member in object::members(envelope.text()) {
            match member.name.as_ref() {
                "id" => id = Some(member.range),
                "params" => params = Some(member.range),
                "result" => result = Some(member.range),
                "error" => error = Some(member.range),
                _ => {}
            }
        }
        (envelope.id, envelope.params, envelope.result, envelope.error) = (id, params, result, error);
        envelope
    }
}

/// A client's request.
#[derive(Clone, Debug)]
pub struct Request {
    envelope: Envelope,
    id: RequestId,
    method: Box<str>,
}

impl Request {
    /// The id as the client gave it.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
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

    /// The whole frame.
    #[must_use]
    pub fn text(&self) -> &str {
        self.envelope.text()
    }

    /// The same request with one member of `params` set or removed. Not public: `value` is raw, and what
    /// came of text from elsewhere would pass for what was read.
    #[must_use]
    pub(crate) fn with_param(&self, name: &str, value: Option<&str>) -> Self {
        let envelope = self.envelope.with_param(name, value);
        Self {
            envelope,
            id: self.id.clone(),
            method: self.method.clone(),
        }
    }

    /// The same request with other params, an object.
    pub(crate) fn with_params(&self, params: &str) -> Self {
        let text = object::with_member(self.envelope.text(), "params", Some(params));
        Self {
            envelope: Envelope::locate(Bytes::from(text)),
            id: self.id.clone(),
            method: self.method.clone(),
        }
    }

    /// The line for the upstream: every byte as received but the id.
    #[must_use]
    pub fn to_upstream(&self, id: u64) -> Bytes {
        self.envelope.line_with_id(&id.to_string())
    }
}

/// A notification, of a client or of an upstream.
#[derive(Clone, Debug)]
pub struct Notification {
    pub(super) envelope: Envelope,
    pub(super) method: Box<str>,
}

impl Notification {
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

    /// The same notification with one member of `params` set or removed; raw, as in a request.
    #[must_use]
    pub(crate) fn with_param(&self, name: &str, value: Option<&str>) -> Self {
        Self {
            envelope: self.envelope.with_param(name, value),
            method: self.method.clone(),
        }
    }

    /// The line to pass on.
    #[must_use]
    pub fn to_line(&self) -> Bytes {
        self.envelope.line()
    }
}

/// A client's response.
#[derive(Clone, Debug)]
pub struct Response {
    envelope: Envelope,
    id: Option<RequestId>,
}

impl Response {
    /// The id that it answers; none when it has no usable one.
    #[must_use]
    pub fn id(&self) -> Option<&RequestId> {
        self.id.as_ref()
    }

    /// The raw result.
    #[must_use]
    pub fn result(&self) -> Option<&str> {
        self.envelope.slice(self.envelope.result.as_ref())
    }

    /// The raw error.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.envelope.slice(self.envelope.error.as_ref())
    }

    /// The line for the upstream, under the id that the upstream used.
    #[must_use]
    pub fn to_upstream(&self, id_raw: &str) -> Bytes {
        self.envelope.line_with_id(id_raw)
    }
}

/// The members of an envelope, which no other member may resemble.
pub(super) const ENVELOPE: &[&str] = &["jsonrpc", "id", "method", "params", "result", "error"];

/// Reads one line of a client; nothing for a line of white space.
///
/// Raw line breaks, which in JSON can only stand between tokens, become spaces before anything is
/// looked at (ruling R13), so that what is judged is what fits on a line.
///
/// # Errors
///
/// [`FrameError`] is what the client is told.
pub fn read_client(line: Bytes, limits: &ScanLimits) -> Result<Option<ClientFrame>, FrameError> {
    if line
        .iter()
        .all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
        && line.len() <= limits.frame_bytes_max
    {
        return Ok(None);
    }
    let line = one_line(line);
    scan(&line, limits).map_err(|error| FrameError {
        code: error.code(),
        id: None,
        detail: error.to_string(),
    })?;
    classify(Envelope::locate(line)).map(Some)
}

fn one_line(line: Bytes) -> Bytes {
    if !line.iter().any(|byte| matches!(byte, b'\r' | b'\n')) {
        return line;
    }
    // At both ends it is part of no token; inside a string it is no JSON, which the scan must still see.
    let mut in_string = false;
    let mut escaped = false;
    let spaced: Vec<u8> = line
        .iter()
        .map(|byte| {
            match byte {
                b'"' if !escaped => in_string = !in_string,
                b'\r' | b'\n' if !in_string => return b' ',
                _ => {}
            }
            escaped = in_string && *byte == b'\\' && !escaped;
            *byte
        })
        .collect();
    Bytes::from(spaced)
}

fn classify(envelope: Envelope) -> Result<ClientFrame, FrameError> {
    let id_raw = envelope.slice(envelope.id.as_ref());
    let id = id_raw.and_then(RequestId::parse);
    let invalid = |detail: &str| FrameError {
        code: -32600,
        id: id.clone(),
        detail: detail.to_owned(),
    };
    let members: Vec<Member<'_>> = object::members(envelope.text()).collect();
    if let Some(member) = members.iter().find(|member| is_variant(&member.name, ENVELOPE)) {
        return Err(invalid(&format!(
            "the member {} differs from the envelope's only in case",
            object::quote(&member.name)
        )));
    }
    if object::member(envelope.text(), "jsonrpc")
        .and_then(object::text)
        .as_deref()
        != Some("2.0")
    {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    let method = members
        .iter()
        .find(|member| member.name == "method")
        .map(|member| member.value);
    let answers = envelope.result.is_some() || envelope.error.is_some();
    match (method, answers) {
        (Some(_), true) => Err(invalid("a frame is a request or a response, not both")),
        (None, true) => Ok(ClientFrame::Response(Response { id, envelope })),
        (None, false) => Err(invalid("a frame needs `method`, `result` or `error`")),
        (Some(method), false) => {
            let Some(method) = object::text(method) else {
                return Err(invalid("`method` must be a string"));
            };
            let method = method.into_boxed_str();
            match (id_raw.is_some(), id.clone()) {
                (false, _) => Ok(ClientFrame::Notification(Notification { envelope, method })),
                (true, Some(id)) => Ok(ClientFrame::Request(Request { envelope, id, method })),
                (true, None) => Err(invalid(
                    "`id` must be a string or an integer of at most 256 bytes",
                )),
            }
        }
    }
}

/// Whether `name` equals one of `names` under simple case folding but not in its bytes (ruling R5).
pub(super) fn is_variant(name: &str, names: &[&str]) -> bool {
    names
        .iter()
        .any(|known| *known != name && folded(name).eq(folded(known)))
}

/// Simple case folding, as far as it can lead to ASCII.
fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|c| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        c => c.to_ascii_lowercase(),
    })
}
