//! What a policy is told beside a call, written down.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::decision::Seam;
use crate::policy::json_of_toml::json;
use crate::seam::{Call, Context};

/// The clock reading of a case that names none: the same on every machine.
const NOW_UNIX_MS: u64 = 1_800_000_000_000;

/// What a policy is told beside the call. Members are named as in the contract's `context`; those that end in
/// `-json` hold JSON, not text. What is left out is empty.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ContextFile<Json = Box<RawValue>> {
    seam: Option<SeamName>,
    server: Option<String>,
    session: Option<String>,
    transport: Option<String>,
    protocol_version: Option<String>,
    client_json: Option<Json>,
    principal: Option<String>,
    claims_json: Option<Json>,
    tool_json: Option<Json>,
    extra_json: Option<Json>,
    now_unix_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SeamName {
    Tools,
    Reads,
}

impl ContextFile {
    /// The call that a policy is asked about.
    #[must_use]
    pub fn call<'a>(&'a self, name: &'a str, args_json: &'a str) -> Call<'a> {
        let json =
            |value: &'a Option<Box<RawValue>>, otherwise| value.as_deref().map_or(otherwise, RawValue::get);
        let text = |value: &'a Option<String>, otherwise| value.as_deref().unwrap_or(otherwise);
        Call {
            seam: match self.seam {
                None | Some(SeamName::Tools) => Seam::Tools,
                Some(SeamName::Reads) => Seam::Reads,
            },
            name,
            args_json,
            context: Context {
                server: text(&self.server, "upstream"),
                session: text(&self.session, ""),
                transport: text(&self.transport, "stdio"),
                protocol_version: text(&self.protocol_version, ""),
                client_json: json(&self.client_json, ""),
                principal: self.principal.as_deref(),
                claims_json: json(&self.claims_json, "{}"),
                tool_json: json(&self.tool_json, ""),
                extra_json: json(&self.extra_json, "{}"),
                now_unix_ms: self.now_unix_ms.unwrap_or(NOW_UNIX_MS),
            },
        }
    }
}

impl ContextFile<toml::Value> {
    /// The same as JSON.
    pub(super) fn into_json(self) -> Result<ContextFile, String> {
        let raw = |value: Option<toml::Value>| value.as_ref().map(raw_json).transpose();
        Ok(ContextFile {
            seam: self.seam,
            server: self.server,
            session: self.session,
            transport: self.transport,
            protocol_version: self.protocol_version,
            client_json: raw(self.client_json)?,
            principal: self.principal,
            claims_json: raw(self.claims_json)?,
            tool_json: raw(self.tool_json)?,
            extra_json: raw(self.extra_json)?,
            now_unix_ms: self.now_unix_ms,
        })
    }
}

/// A value of a TOML file as JSON text.
pub(super) fn raw_json(value: &toml::Value) -> Result<Box<RawValue>, String> {
    RawValue::from_string(json(value)?.to_string()).map_err(|error| error.to_string())
}
