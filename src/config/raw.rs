//! The configuration file as it is written. Every field is checked elsewhere.

use std::path::PathBuf;

use serde::Deserialize;
use toml::Spanned;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Raw {
    pub(super) tools: Option<Vec<RawPolicy>>,
    pub(super) reads: Option<Vec<RawPolicy>>,
    pub(super) ask: Option<RawAsk>,
    pub(super) wire: Option<RawWire>,
    pub(super) upstream: Option<Spanned<RawUpstream>>,
    pub(super) audit: Option<RawAudit>,
    pub(super) cache: Option<RawCache>,
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "the file is the same without a listener")
    )]
    pub(super) listen: Option<RawListen>,
    #[cfg_attr(
        not(feature = "http"),
        expect(dead_code, reason = "the file is the same without a listener")
    )]
    pub(super) admin: Option<RawAdmin>,
    pub(super) endpoint: Option<Vec<Spanned<RawEndpoint>>>,
}

/// The listener of `serve`.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "the file is the same without a listener")
)]
pub(super) struct RawListen {
    pub(super) address: Option<Spanned<String>>,
    pub(super) insecure_no_auth: Option<bool>,
    pub(super) hosts: Option<Vec<Spanned<String>>>,
    pub(super) origins: Option<Vec<Spanned<String>>>,
    pub(super) connections_max: Option<Spanned<i64>>,
    pub(super) header_bytes_max: Option<Spanned<i64>>,
    pub(super) read_ms: Option<Spanned<i64>>,
    pub(super) drain_ms: Option<Spanned<i64>>,
    pub(super) tls: Option<RawTls>,
}

/// The admin address of `serve`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "the file is the same without a listener")
)]
pub(super) struct RawAdmin {
    pub(super) address: Spanned<String>,
    pub(super) insecure_no_auth: Option<bool>,
    pub(super) hosts: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "the file is the same without a listener")
)]
pub(super) struct RawTls {
    pub(super) certificates: Spanned<String>,
    pub(super) key: Spanned<String>,
}

/// One guarded server of `serve`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "the file is the same without a listener")
)]
pub(super) struct RawEndpoint {
    pub(super) path: Spanned<String>,
    pub(super) name: Option<String>,
    pub(super) command: Option<Spanned<Vec<String>>>,
    pub(super) env: Option<Vec<Spanned<String>>>,
    pub(super) url: Option<Spanned<String>>,
    pub(super) headers: Option<Vec<Spanned<RawHeader>>>,
    pub(super) timeout_ms: Option<Spanned<i64>>,
    pub(super) line_bytes_max: Option<Spanned<i64>>,
    pub(super) sessions_max: Option<Spanned<i64>>,
    pub(super) streams_max: Option<Spanned<i64>>,
    pub(super) idle_ms: Option<Spanned<i64>>,
    pub(super) children_max: Option<Spanned<i64>>,
    pub(super) elicitation: Option<RawElicitation>,
    pub(super) sampling: Option<RawServerRequest>,
    pub(super) roots: Option<RawServerRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[cfg_attr(
    not(feature = "http"),
    expect(dead_code, reason = "the file is the same without a listener")
)]
pub(super) struct RawHeader {
    pub(super) name: String,
    pub(super) value: Option<String>,
    pub(super) value_env: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawPolicy {
    pub(super) policy: Spanned<String>,
    pub(super) config: Option<Spanned<toml::Table>>,
    pub(super) config_file: Option<Spanned<PathBuf>>,
    pub(super) mode: Option<RawMode>,
    pub(super) deadline_ms: Option<Spanned<i64>>,
    pub(super) memory_bytes_max: Option<Spanned<i64>>,
    pub(super) table_elements_max: Option<Spanned<i64>>,
    pub(super) output_bytes_max: Option<Spanned<i64>>,
    pub(super) log_bytes_max: Option<Spanned<i64>>,
    #[serde(default)]
    pub(super) grants: Vec<RawGrant>,
    pub(super) env: Option<Vec<Spanned<String>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawMode {
    Enforce,
    Observe,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawGrant {
    Clock,
    Random,
    Log,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawAsk {
    pub(super) deadline_ms: Option<Spanned<i64>>,
    pub(super) state_ttl_ms: Option<Spanned<i64>>,
    pub(super) open_questions_per_session: Option<Spanned<i64>>,
    pub(super) parked_per_session: Option<Spanned<i64>>,
    pub(super) parked_total: Option<Spanned<i64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawWire {
    pub(super) frame_bytes_max: Option<Spanned<i64>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawUpstream {
    pub(super) name: Option<String>,
    pub(super) timeout_ms: Option<Spanned<i64>>,
    pub(super) line_bytes_max: Option<Spanned<i64>>,
    pub(super) env: Option<Vec<Spanned<String>>>,
    pub(super) elicitation: Option<RawElicitation>,
    pub(super) sampling: Option<RawServerRequest>,
    pub(super) roots: Option<RawServerRequest>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawElicitation {
    Mark,
    Pass,
    Refuse,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawServerRequest {
    Pass,
    Refuse,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawAudit {
    pub(super) to: Option<Spanned<String>>,
    pub(super) arguments: Option<bool>,
    pub(super) on_failure: Option<RawOnFailure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RawOnFailure {
    Deny,
    Continue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RawCache {
    pub(super) directory: Spanned<String>,
}
