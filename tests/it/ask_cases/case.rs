//! A row of `tests/cases/ask.json`. Whatever stands in a row and is not named here is an error, so
//! that nothing is skipped unseen.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

/// Every row.
pub(super) static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../cases/ask.json")).expect("ask.json has known members only")
});

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) era: String,
    transport: Transport,
    pub(super) setup: Setup,
    pub(super) steps: Vec<Step>,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    #[serde(rename = "source")]
    _source: IgnoredAny,
    #[serde(rename = "why")]
    _why: IgnoredAny,
    #[serde(rename = "ruling")]
    _ruling: Option<IgnoredAny>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Transport {
    Stdio,
    Http,
    Both,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setup {
    pub(super) policy: Policy,
    pub(super) prompt: String,
    /// What `initialize` declares; null where each request says it.
    pub(super) client_capabilities: Value,
    pub(super) deadline_ms: u64,
    pub(super) state_ttl_ms: u64,
    pub(super) chain: Option<Vec<String>>,
    pub(super) open_questions_per_session: Option<usize>,
    pub(super) parked_per_session: Option<usize>,
    pub(super) upstream_timeout_ms: Option<u64>,
    pub(super) protocol_version: Option<String>,
    /// Sessions and whose they are, over HTTP. Without tokens every caller is the same, so a row runs here whose
    /// expectation holds by the session alone.
    #[serde(default)]
    pub(super) sessions: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Policy {
    Named(NamedPolicy),
    Listed(Listed),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum NamedPolicy {
    AllowAll,
    AskAll,
}

/// Allows some names, asks for others, denies the rest.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    pub(super) allow: Vec<String>,
    pub(super) ask: Vec<String>,
}

/// One step: exactly one of its members says what is done, but for those of HTTP and of loops.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Step {
    pub(super) client: Option<String>,
    pub(super) advance_ms: Option<u64>,
    pub(super) event: Option<String>,
    pub(super) repeat: Option<usize>,
    pub(super) for_each: Option<String>,
    pub(super) steps: Option<Vec<Self>>,
    pub(super) expect_client: Option<Value>,
    pub(super) expect_upstream: Option<Value>,
    pub(super) expect_audit: Option<ExpectAudit>,
    pub(super) expect_all: Option<String>,
    pub(super) expect_process: Option<String>,
    /// Only over HTTP.
    pub(super) expect_http_status: Option<Value>,
    pub(super) session: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) replica: Option<String>,
    pub(super) times: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectAudit {
    pub(super) ask_outcome: Option<String>,
    pub(super) waited_ms_at_most: Option<u64>,
    pub(super) contains: Option<String>,
}

/// What the next message to the client is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectClient {
    /// Who is looked at; the step has named it already.
    #[serde(rename = "session")]
    pub(super) _session: Option<IgnoredAny>,
    pub(super) nothing: Option<bool>,
    pub(super) id: Option<Value>,
    pub(super) result: Option<bool>,
    pub(super) refused: Option<String>,
    pub(super) error_code: Option<i64>,
    pub(super) decision: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) detail_contains: Option<String>,
    pub(super) lacks: Vec<String>,
    pub(super) input_required: Option<InputRequired>,
    /// The host's own question, and what it is called from here on.
    pub(super) question: Option<String>,
    pub(super) has_no_member: Option<String>,
    pub(super) schema_required: Option<Value>,
    pub(super) schema_properties: Option<BTreeMap<String, String>>,
    pub(super) message_contains: Vec<String>,
    pub(super) message_lacks: Vec<String>,
    pub(super) message_contains_in_order: Vec<String>,
    pub(super) times: Option<usize>,
    pub(super) notification: Option<String>,
    #[serde(rename = "for")]
    pub(super) for_question: Option<String>,
    pub(super) progress: Option<u64>,
    pub(super) no_notification: Option<String>,
    pub(super) upstream_question: Option<String>,
    pub(super) message: Option<String>,
    pub(super) not_styled_as_ours: Option<bool>,
    /// On which stream; there is only one on stdio.
    pub(super) on: Option<On>,
    pub(super) http_status: Option<u16>,
    pub(super) upstream_request: Option<String>,
    #[serde(rename = "as")]
    pub(super) called: Option<String>,
    pub(super) one_of: Option<Vec<Self>>,
    pub(super) exactly_one_of: Option<Vec<Self>>,
    pub(super) other: Option<Box<Self>>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum On {
    CallStream,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InputRequired {
    pub(super) question: Option<String>,
    pub(super) upstream_keys: Option<Vec<String>>,
    pub(super) state: String,
}

/// What the upstream has received since the last look.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectUpstream {
    #[serde(rename = "tools/call")]
    pub(super) call: Option<ExpectCall>,
    pub(super) times: Option<usize>,
    #[serde(default)]
    pub(super) lacks: Vec<String>,
    pub(super) input_responses: Option<String>,
    pub(super) request_state: Option<String>,
    pub(super) response: Option<ExpectResponse>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectCall {
    pub(super) name: String,
    /// The exact text.
    pub(super) arguments: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectResponse {
    pub(super) id: Value,
    pub(super) result_bytes: Option<String>,
    pub(super) error_code: Option<i64>,
}

impl Case {
    /// Whether a client on stdio meets it.
    pub(super) fn applies_to_stdio(&self) -> bool {
        self.transport != Transport::Http
    }

    /// Whether a client over HTTP meets it.
    pub(super) fn applies_to_http(&self) -> bool {
        self.transport != Transport::Stdio
    }
}
