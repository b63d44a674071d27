//! A row of `tests/cases/wire.json`. Whatever stands in a row and is not named here is an error, so
//! that nothing is skipped unseen.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use base64::Engine as _;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Every row.
pub(super) static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../cases/wire.json")).expect("wire.json has known members only")
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    era: Eras,
    transport: Transport,
    #[serde(default)]
    frames: Vec<Frame>,
    #[serde(default)]
    frames_base64: Vec<String>,
    #[serde(default = "opened")]
    pub(super) open: bool,
    pub(super) policy: Policy,
    pub(super) upstream: Option<Upstream>,
    #[serde(default)]
    pub(super) upstream_tools: Vec<Value>,
    pub(super) expect: Expect,
    /// Replace what a well-behaved client would send; over HTTP only.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, Header>,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "source")]
    _source: IgnoredAny,
    #[serde(rename = "why")]
    _why: IgnoredAny,
    #[serde(rename = "ruling")]
    _ruling: Option<IgnoredAny>,
}

fn opened() -> bool {
    true
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Eras {
    #[serde(rename = "2025")]
    Handshake,
    #[serde(rename = "2026")]
    Stateless,
    #[serde(rename = "both")]
    Both,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Transport {
    Stdio,
    Http,
    Both,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Frame {
    Text(String),
    Parts(Parts),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parts {
    parts: Vec<(String, Count)>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Count {
    Times(usize),
    Fill(String),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Policy {
    Both(SeamPolicy),
    Each(EachSeam),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EachSeam {
    pub(super) tools: SeamPolicy,
    pub(super) reads: SeamPolicy,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum SeamPolicy {
    Named(NamedPolicy),
    Listed(Listed),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NamedPolicy {
    AllowAll,
    DenyAll,
    AskAll,
    Unset,
    Empty,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    pub(super) allow: Vec<String>,
}

/// What the upstream says in place of a good result.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upstream {
    pub(super) stdio_lines: Option<Vec<String>>,
    pub(super) http: Option<HttpAnswer>,
}

/// What an upstream behind a URL answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HttpAnswer {
    pub(super) status: u16,
    #[serde(default)]
    pub(super) content_type: String,
    pub(super) location: Option<String>,
    #[serde(default)]
    pub(super) body: String,
    #[serde(default)]
    pub(super) reset: bool,
}

/// A header as a row has it.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Header {
    Removed(()),
    Once(String),
    Twice(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expect {
    answer: Option<Answer>,
    answers: Option<Vec<Answer>>,
    forwarded: Forwarded,
    pub(super) forwarded_times: Option<usize>,
    #[serde(default, deserialize_with = "present")]
    pub(super) forwarded_bytes: Option<Value>,
    pub(super) forwarded_bytes_of: Option<BytesOf>,
    #[serde(default)]
    pub(super) never_reaches_client: Vec<String>,
    pub(super) session_lives: bool,
    pub(super) http_status: Option<u16>,
    #[serde(rename = "note")]
    _note: Option<IgnoredAny>,
}

/// Tells `null` from no member at all.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BytesOf {
    Arguments,
    ParamsContains,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Forwarded {
    All(bool),
    Each(Vec<bool>),
    Word(Either),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Either {
    Either,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Word(NoAnswer),
    Given(Given),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NoAnswer {
    None,
    /// The status says it all.
    NoneOrError,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    /// The raw token, or `none` for null or absent.
    pub(super) id: String,
    pub(super) result: Option<bool>,
    pub(super) error_code: Option<OneOf>,
    pub(super) error_message: Option<String>,
    pub(super) refused: Option<String>,
    pub(super) detail_contains: Option<String>,
    pub(super) result_contains: Option<String>,
    pub(super) from: Option<From>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOf {
    One(i64),
    Any(Vec<i64>),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum From {
    Upstream,
}

impl OneOf {
    pub(super) fn holds(&self, code: Option<i64>) -> bool {
        match (self, code) {
            (Self::One(one), Some(code)) => *one == code,
            (Self::Any(any), Some(code)) => any.contains(&code),
            (Self::One(_) | Self::Any(_), None) => false,
        }
    }
}

impl Case {
    /// Whether a client on stdio in front of a child process meets it.
    pub(super) fn applies_to_stdio(&self) -> bool {
        let upstream_is_http_only = self
            .upstream
            .as_ref()
            .is_some_and(|upstream| upstream.stdio_lines.is_none());
        self.transport != Transport::Http && !upstream_is_http_only
    }

    /// Whether a client over HTTP meets it.
    pub(super) fn applies_to_http(&self) -> bool {
        let upstream_is_a_line_only = self
            .upstream
            .as_ref()
            .is_some_and(|upstream| upstream.http.is_none() && upstream.stdio_lines.is_none());
        self.transport != Transport::Stdio && !upstream_is_a_line_only
    }

    /// The eras in which it is run, by the year of their revision.
    pub(super) fn eras(&self) -> &'static [&'static str] {
        match self.era {
            Eras::Handshake => &["2025"],
            Eras::Stateless => &["2026"],
            Eras::Both => &["2025", "2026"],
        }
    }

    /// The frames as bytes, without their ends.
    pub(super) fn frames(&self) -> Vec<Vec<u8>> {
        assert!(
            self.frames.is_empty() != self.frames_base64.is_empty(),
            "frames in one way"
        );
        let raw = self.frames_base64.iter().map(|frame| {
            base64::engine::general_purpose::STANDARD
                .decode(frame)
                .expect("base64")
        });
        self.frames.iter().map(Frame::bytes).chain(raw).collect()
    }

    /// What is expected for each frame, in order.
    pub(super) fn answers(&self) -> Vec<&Answer> {
        match (&self.expect.answer, &self.expect.answers) {
            (Some(answer), None) => vec![answer],
            (None, Some(answers)) => answers.iter().collect(),
            (Some(_), Some(_)) | (None, None) => panic!("answers in one way"),
        }
    }

    /// Whether each frame reaches the upstream; none where it may or may not.
    pub(super) fn forwarded(&self) -> Vec<Option<bool>> {
        match &self.expect.forwarded {
            Forwarded::All(forwarded) => vec![Some(*forwarded)],
            Forwarded::Each(each) => each.iter().copied().map(Some).collect(),
            Forwarded::Word(Either::Either) => vec![None],
        }
    }
}

impl Frame {
    fn bytes(&self) -> Vec<u8> {
        let parts = match self {
            Self::Text(text) => return text.clone().into_bytes(),
            Self::Parts(Parts { parts }) => parts,
        };
        let mut rest: usize = parts
            .iter()
            .map(|(text, count)| match count {
                Count::Times(times) => text.len() * times,
                Count::Fill(_) => 0,
            })
            .sum();
        let mut bytes = Vec::new();
        for (text, count) in parts {
            let times = match count {
                Count::Times(times) => *times,
                Count::Fill(fill) => {
                    let whole: usize = fill
                        .strip_prefix("fill:")
                        .and_then(|n| n.parse().ok())
                        .expect("fill:N");
                    let times = (whole - rest) / text.len();
                    rest = whole;
                    times
                }
            };
            bytes.extend(text.as_bytes().iter().copied().cycle().take(text.len() * times));
        }
        if parts.iter().any(|(_, count)| matches!(count, Count::Fill(_))) {
            assert_eq!(rest, bytes.len(), "the frame is filled exactly");
        }
        bytes
    }
}
