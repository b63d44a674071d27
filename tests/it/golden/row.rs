//! A row of the corpus, and the two sides of a frame.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::way::Way;

const FILES: [(&str, &str); 9] = [
    ("numbers", include_str!("../../golden/numbers.json")),
    ("texts", include_str!("../../golden/texts.json")),
    ("members", include_str!("../../golden/members.json")),
    ("reads", include_str!("../../golden/reads.json")),
    ("errors", include_str!("../../golden/errors.json")),
    ("tasks", include_str!("../../golden/tasks.json")),
    ("server", include_str!("../../golden/server.json")),
    ("client", include_str!("../../golden/client.json")),
    ("changed", include_str!("../../golden/changed.json")),
];

/// What a request of the era must say of itself; in the 2025 era a member of a vendor stands in its place.
const META: &str = r#""@META@":0"#;
const STATELESS_META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const VENDOR_META: &str = r#""com.example/first":0"#;

/// What stands for something that each side knows by another name, and the change that this is.
pub(super) const BY_NAME: [(&str, &str); 3] = [
    ("\"@ID@\"", "ids"),
    ("\"@THEIRS@\"", "ids"),
    ("\"@TOKEN@\"", "progress tokens"),
];

/// A frame exactly as it stands in the file.
#[derive(Clone, Debug)]
pub(super) struct Frame(pub(super) String);

impl<'de> Deserialize<'de> for Frame {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(from).map(|raw| Self(raw.get().to_owned()))
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) name: String,
    eras: Vec<String>,
    /// Where it is run; everywhere when empty.
    #[serde(default)]
    ways: Vec<Way>,
    request: Option<Frame>,
    /// What the server says before its answer.
    #[serde(default)]
    pub(super) says: Vec<Frame>,
    answer: Option<Frame>,
    /// What the client answers to the server's request.
    pub(super) response: Option<Frame>,
    /// What the client tells afterwards.
    #[serde(default)]
    pub(super) tells: Vec<Frame>,
    /// Takes the request back, which gets no answer then.
    pub(super) cancels: Option<Frame>,
    pub(super) becomes: Option<Becomes>,
}

/// What the far side gets instead of what was sent, and why.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Becomes {
    because: String,
    request: Option<Frame>,
    #[serde(default)]
    says: Vec<Frame>,
    answer: Option<Frame>,
}

/// What something is called on the two sides.
pub(super) struct Names<'a> {
    pub(super) id: &'a str,
    pub(super) theirs: &'a str,
    pub(super) token: &'a str,
}

impl Row {
    /// An exchange in which only these two frames matter.
    pub(super) fn made(
        name: &str,
        eras: &[&str],
        ways: &[Way],
        request: Option<&str>,
        answer: Option<&str>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            eras: eras.iter().map(|era| (*era).to_owned()).collect(),
            ways: ways.to_vec(),
            request: request.map(|text| Frame(text.to_owned())),
            says: Vec::new(),
            answer: answer.map(|text| Frame(text.to_owned())),
            response: None,
            tells: Vec::new(),
            cancels: None,
            becomes: None,
        }
    }

    /// The same exchange, whose frames arrive otherwise.
    pub(super) fn becoming(mut self, because: &str, other: impl Fn(&str) -> String) -> Self {
        let other = |frame: &Option<Frame>| frame.as_ref().map(|frame| Frame(other(&frame.0)));
        self.becomes = Some(Becomes {
            because: because.to_owned(),
            request: other(&self.request),
            says: Vec::new(),
            answer: other(&self.answer),
        });
        self
    }

    pub(super) fn eras(&self) -> &[String] {
        &self.eras
    }

    pub(super) fn runs(&self, way: Way, era: &str) -> bool {
        let tells = !self.says.is_empty();
        self.eras.iter().any(|own| own == era)
            && (self.ways.is_empty() || self.ways.contains(&way))
            && way.carries(tells)
    }

    pub(super) fn request(&self, era: &str) -> String {
        let plain = r#"{"jsonrpc":"2.0","id":"@ID@","method":"tools/call","params":{"name":"plain","_meta":{"@META@":0}}}"#;
        let frame = self.request.as_ref().map_or(plain, |frame| &frame.0);
        in_era(frame, era)
    }

    pub(super) fn answer(&self) -> &str {
        let plain = r#"{"jsonrpc":"2.0","id":"@ID@","result":{"resultType":"complete","content":[]}}"#;
        self.answer.as_ref().map_or(plain, |frame| &frame.0)
    }

    /// What the server gets for the request.
    pub(super) fn request_received(&self, era: &str) -> String {
        let other = self.becomes.as_ref().and_then(|becomes| becomes.request.as_ref());
        other.map_or_else(|| self.request(era), |frame| in_era(&frame.0, era))
    }

    /// What the client gets of the server, in order.
    pub(super) fn heard(&self) -> Vec<&str> {
        let becomes = self.becomes.as_ref();
        let says = match becomes {
            Some(becomes) if !becomes.says.is_empty() => &becomes.says,
            Some(_) | None => &self.says,
        };
        let mut heard: Vec<&str> = says.iter().map(|frame| frame.0.as_str()).collect();
        if self.cancels.is_none() {
            let other = becomes.and_then(|becomes| becomes.answer.as_ref());
            heard.push(other.map_or_else(|| self.answer(), |frame| &frame.0));
        }
        heard
    }

    /// Why something of it arrives otherwise than it was sent.
    pub(super) fn changes(&self) -> BTreeSet<String> {
        let mut changes: BTreeSet<String> = self
            .becomes
            .iter()
            .map(|becomes| becomes.because.clone())
            .collect();
        let frames = [self.request("2025"), self.answer().to_owned()];
        let others = self.says.iter().chain(&self.cancels).map(|frame| frame.0.clone());
        for frame in frames.into_iter().chain(others) {
            let named = BY_NAME.iter().filter(|(name, _)| frame.contains(name));
            changes.extend(named.map(|(_, change)| (*change).to_owned()));
        }
        changes
    }
}

pub(super) fn in_era(frame: &str, era: &str) -> String {
    frame.replace(
        META,
        if era == "2026" {
            STATELESS_META
        } else {
            VENDOR_META
        },
    )
}

impl Names<'_> {
    /// The frame as this side writes it.
    pub(super) fn on(&self, frame: &str) -> String {
        let [id, theirs, token] = BY_NAME.map(|(name, _)| name);
        frame
            .replace(id, self.id)
            .replace(theirs, self.theirs)
            .replace(token, self.token)
    }
}

/// The rows of every file, each a single line where lines are spoken.
pub(super) fn written() -> Vec<Row> {
    let mut rows = Vec::new();
    for (file, text) in FILES {
        let read: Vec<Row> =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("{file}.json: {error}"));
        for row in &read {
            let differs = row.becomes.as_ref().is_none_or(|becomes| {
                row.request("2026") != row.request_received("2026")
                    || !becomes.says.is_empty()
                    || becomes
                        .answer
                        .as_ref()
                        .is_some_and(|other| other.0 != row.answer())
            });
            assert!(differs, "`{}` in {file}.json becomes what it is", row.name);
            let frames = row
                .heard()
                .into_iter()
                .map(str::to_owned)
                .chain([row.request("2026")]);
            assert!(
                frames.into_iter().all(|frame| !frame.contains(['\r', '\n'])),
                "a frame of `{}` in {file}.json is no line",
                row.name
            );
        }
        rows.extend(read);
    }
    rows
}
