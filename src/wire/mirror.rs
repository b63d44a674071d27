//! What Streamable HTTP repeats of a body in headers (revision 2026-07-28, transports, "Request Headers"):
//! checked against the body where a client sends them, made from the body where an upstream gets them.
//!
//! Nothing is ever decided on a header: one that differs from the body is an error, and that is all.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::era::Era;
use super::object;

/// `HeaderMismatch`: HTTP status 400.
pub const HEADER_MISMATCH: i64 = -32020;

/// The header that repeats the revision.
pub const PROTOCOL_VERSION: &str = "MCP-Protocol-Version";

/// The header that repeats the method.
pub const METHOD: &str = "Mcp-Method";

/// The header that repeats what the method is about.
pub const NAME: &str = "Mcp-Name";

/// The start of the headers that repeat arguments.
pub const PARAM_PREFIX: &str = "Mcp-Param-";

/// Properties of a schema that are looked at for one tool, so that a hostile schema costs little.
const PROPERTIES_MAX: usize = 4096;

const ENCODED_START: &str = "=?base64?";
const ENCODED_END: &str = "?=";

/// A header does not say what the body says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header `{header}` {why}")]
pub struct HeaderMismatch {
    /// The header.
    pub header: String,
    /// What is wrong, and what to do.
    pub why: &'static str,
}

const DIFFERS: &str = "differs from the body; send what the body says";
const MISSING: &str = "is missing; revision 2026-07-28 wants it to repeat the body";
const TWICE: &str = "is there more than once; send it once";
const UNREADABLE: &str = "cannot be read; send visible ASCII, or `=?base64?` with base64 of UTF-8 and `?=`";
const NOT_IN_BODY: &str = "repeats something that the body does not have; leave it out";

fn mismatch(header: &str, why: &'static str) -> HeaderMismatch {
    HeaderMismatch {
        header: header.to_owned(),
        why,
    }
}

/// Checks the headers that every request has. `values` gives every value of a header by its name.
///
/// What is there must agree with the body in every era (ruling R17); from 2026-07-28 on it must be there. A body
/// that does not name its revision is refused for that elsewhere.
///
/// # Errors
///
/// The first header that does not agree.
pub fn check(
    era: Era,
    method: &str,
    params: &str,
    values: impl Fn(&str) -> Vec<Vec<u8>>,
) -> Result<(), HeaderMismatch> {
    if era == Era::Stateless
        && let Some(revision) = revision(params)
    {
        agrees(
            PROTOCOL_VERSION,
            Some(&revision),
            &values(PROTOCOL_VERSION),
            true,
            plain,
        )?;
    }
    let required = era == Era::Stateless;
    agrees(METHOD, Some(method), &values(METHOD), required, plain)?;
    let name = name(method, params);
    agrees(NAME, name.as_deref(), &values(NAME), required, decode)
}

/// Checks the headers that repeat arguments, for the tool as its upstream lists it. Those that no schema knows are
/// nobody's, and ignored.
///
/// # Errors
///
/// The first header that does not agree.
pub fn check_params(
    tool_json: &str,
    params: &str,
    received: &[(String, Vec<u8>)],
) -> Result<(), HeaderMismatch> {
    for binding in bindings(tool_json) {
        let header = format!("{PARAM_PREFIX}{}", binding.name);
        let values: Vec<Vec<u8>> = received
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(&header))
            .map(|(_, value)| value.clone())
            .collect();
        let value = binding.value(params);
        let number = value
            .as_deref()
            .is_some_and(|value| binding.kind == Kind::Number && value.parse::<f64>().is_ok());
        match (number, values.as_slice()) {
            (true, [one]) if same_number(value.as_deref().unwrap_or_default(), one) => {}
            _ => agrees(&header, value.as_deref(), &values, true, decode)?,
        }
    }
    Ok(())
}

/// The headers for a request of 2026-07-28 that goes to an upstream, from its body and the called tool.
#[must_use]
pub fn headers(method: &str, params: &str, tool_json: &str) -> Vec<(String, String)> {
    let mut headers = vec![(METHOD.to_owned(), method.to_owned())];
    if let Some(revision) = revision(params) {
        headers.push((PROTOCOL_VERSION.to_owned(), revision));
    }
    if let Some(name) = name(method, params) {
        headers.push((NAME.to_owned(), encode(&name)));
    }
    for binding in bindings(tool_json) {
        if let Some(value) = binding.value(params) {
            headers.push((format!("{PARAM_PREFIX}{}", binding.name), encode(&value)));
        }
    }
    headers
}

fn agrees(
    header: &str,
    body: Option<&str>,
    values: &[Vec<u8>],
    required: bool,
    read: fn(&[u8]) -> Option<String>,
) -> Result<(), HeaderMismatch> {
    match (body, values) {
        (None, []) => Ok(()),
        (Some(_), []) if required => Err(mismatch(header, MISSING)),
        (Some(_), []) => Ok(()),
        (None, _) => Err(mismatch(header, NOT_IN_BODY)),
        (Some(body), [one]) => match read(one) {
            None => Err(mismatch(header, UNREADABLE)),
            Some(value) if value == body => Ok(()),
            Some(_) => Err(mismatch(header, DIFFERS)),
        },
        (Some(_), _) => Err(mismatch(header, TWICE)),
    }
}

/// The revision that a request names in its `_meta`.
#[must_use]
pub fn revision(params: &str) -> Option<String> {
    let meta = object::member(params, "_meta")?;
    object::member(meta, "io.modelcontextprotocol/protocolVersion").and_then(object::text)
}

/// What a request is about, for the methods that have a name.
fn name(method: &str, params: &str) -> Option<String> {
    let member = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" => "uri",
        "tasks/get" | "tasks/update" | "tasks/cancel" => "taskId",
        _ => return None,
    };
    object::member(params, member).and_then(object::text)
}

/// A value as a header: plain where it can be, else in base64.
#[must_use]
pub fn encode(value: &str) -> String {
    let plain = value.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
        && value.trim_matches([' ', '\t']) == value
        && !value.is_empty()
        && !(value.starts_with(ENCODED_START) && value.ends_with(ENCODED_END));
    if plain {
        value.to_owned()
    } else {
        format!("{ENCODED_START}{}{ENCODED_END}", STANDARD.encode(value))
    }
}

/// What a header says; none when it cannot be read.
fn decode(value: &[u8]) -> Option<String> {
    let text = plain(value)?;
    let encoded = text
        .strip_prefix(ENCODED_START)
        .and_then(|rest| rest.strip_suffix(ENCODED_END));
    match encoded {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok(),
        None => Some(text),
    }
}

fn plain(value: &[u8]) -> Option<String> {
    let visible = value.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    visible.then(|| String::from_utf8_lossy(value).into_owned())
}

/// An argument that a header repeats.
struct Binding {
    /// What stands behind `Mcp-Param-`.
    name: String,
    /// The chain of properties that leads to it.
    path: Vec<String>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
}

impl Binding {
    /// The value in the arguments, as text; none where there is none, or null.
    fn value(&self, params: &str) -> Option<String> {
        let mut value = object::member(params, "arguments")?;
        for name in &self.path {
            value = object::member(value, name)?;
        }
        match value {
            "null" => None,
            value if value.starts_with('"') => object::text(value),
            value if value.starts_with(['{', '[']) => None,
            value => Some(value.to_owned()),
        }
    }
}

/// Two spellings of one number, as the transport wants integers compared.
fn same_number(body: &str, header: &[u8]) -> bool {
    let header = decode(header).and_then(|text| text.parse::<f64>().ok());
    let body = body.parse::<f64>().ok();
    matches!((body, header), (Some(body), Some(header)) if body == header && body.is_finite())
}

/// The arguments that a tool wants repeated: none when any annotation breaks the rules, for then the tool itself
/// is one that no client calls.
fn bindings(tool_json: &str) -> Vec<Binding> {
    let Some(schema) = object::member(tool_json, "inputSchema") else {
        return Vec::new();
    };
    if !tool_json.contains("x-mcp-header") {
        return Vec::new();
    }
    let mut found: Vec<Binding> = Vec::new();
    let mut left = PROPERTIES_MAX;
    let mut open = vec![(schema, Vec::new())];
    while let Some((schema, path)) = open.pop() {
        let properties = object::member(schema, "properties").unwrap_or("{}");
        for property in object::members(properties) {
            if left == 0 {
                return Vec::new();
            }
            left -= 1;
            let mut path: Vec<String> = path.clone();
            path.push(property.name.to_string());
            if let Some(annotation) = object::member(property.value, "x-mcp-header") {
                let binding = binding(annotation, property.value, path.clone());
                match binding {
                    Some(binding) if !is_taken(&found, &binding.name) => found.push(binding),
                    Some(_) | None => return Vec::new(),
                }
            }
            open.push((property.value, path));
        }
    }
    found
}

fn is_taken(found: &[Binding], name: &str) -> bool {
    found
        .iter()
        .any(|binding| binding.name.eq_ignore_ascii_case(name))
}

fn binding(annotation: &str, property: &str, path: Vec<String>) -> Option<Binding> {
    let name = object::text(annotation)?;
    let is_token = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    let kind = match object::member(property, "type").and_then(object::text)?.as_str() {
        "string" | "boolean" => Kind::Text,
        // `number` is not permitted, and the official suite uses it.
        "integer" | "number" => Kind::Number,
        _ => return None,
    };
    is_token.then_some(Binding { name, path, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"{"name":"echo","arguments":{"region":"us","n":42,"in":{"deep":true},"none":null},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    const TOOL: &str = r#"{"name":"echo","inputSchema":{"type":"object","properties":{
        "region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"},
        "in":{"type":"object","properties":{"deep":{"type":"boolean","x-mcp-header":"Deep"}}},
        "none":{"type":"string","x-mcp-header":"None"}}}}"#;

    #[track_caller]
    fn check_call(era: Era, headers: &[(&str, &str)], expected: Option<&str>) {
        let values = |name: &str| {
            headers
                .iter()
                .filter(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.as_bytes().to_vec())
                .collect()
        };
        let found = check(era, "tools/call", CALL, values)
            .err()
            .map(|error| error.header);
        assert_eq!(expected, found.as_deref(), "{headers:?}");
    }

    #[test]
    fn the_headers_of_every_request() {
        let version = ("MCP-Protocol-Version", "2026-07-28");
        let good = [version, ("Mcp-Method", "tools/call"), ("Mcp-Name", "echo")];
        check_call(Era::Stateless, &good, None);
        check_call(Era::Stateless, &good[1..], Some(PROTOCOL_VERSION));
        check_call(Era::Stateless, &[version, ("Mcp-Name", "echo")], Some(METHOD));
        check_call(Era::Stateless, &good[..2], Some(NAME));
        check_call(
            Era::Stateless,
            &[version, good[1], ("Mcp-Name", "=?base64?ZWNobw==?=")],
            None,
        );
        check_call(
            Era::Stateless,
            &[version, good[1], ("Mcp-Name", "=?BASE64?ZWNobw==?=")],
            Some(NAME),
        );
        check_call(
            Era::Stateless,
            &[version, good[1], ("Mcp-Name", "=?base64?ZWN*bw==?=")],
            Some(NAME),
        );
        check_call(
            Era::Stateless,
            &[version, good[1], good[2], ("mcp-name", "echo")],
            Some(NAME),
        );
        check_call(Era::Handshake, &[], None);
        check_call(Era::Handshake, &[("Mcp-Method", "tools/list")], Some(METHOD));
        check_call(Era::Handshake, &[("Mcp-Name", "other")], Some(NAME));
    }

    #[test]
    fn a_name_for_a_method_without_one() {
        let values = |name: &str| match name {
            NAME => vec![b"echo".to_vec()],
            _ => Vec::new(),
        };
        let error = check(Era::Handshake, "tools/list", "{}", values).unwrap_err();
        assert_eq!(NOT_IN_BODY, error.why);
    }

    #[test]
    fn arguments() {
        #[track_caller]
        fn check_arguments(headers: &[(&str, &str)], expected: Option<&str>) {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()))
                .collect();
            let found = check_params(TOOL, CALL, &headers).err().map(|error| error.header);
            assert_eq!(expected, found.as_deref(), "{headers:?}");
        }
        let good = [
            ("Mcp-Param-Region", "us"),
            ("mcp-param-n", "42.0"),
            ("Mcp-Param-Deep", "true"),
            ("Mcp-Param-Nobodys", "x"),
        ];
        check_arguments(&good, None);
        check_arguments(&good[1..], Some("Mcp-Param-Region"));
        check_arguments(&[good[0], ("Mcp-Param-N", "43"), good[2]], Some("Mcp-Param-N"));
        check_arguments(
            &[good[0], good[1], good[2], ("Mcp-Param-None", "null")],
            Some("Mcp-Param-None"),
        );
    }

    #[test]
    fn made_for_an_upstream() {
        let made = headers("tools/call", CALL, TOOL);
        let mut made: Vec<String> = made
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        made.sort();
        assert_eq!(
            vec![
                "MCP-Protocol-Version: 2026-07-28",
                "Mcp-Method: tools/call",
                "Mcp-Name: echo",
                "Mcp-Param-Deep: true",
                "Mcp-Param-N: 42",
                "Mcp-Param-Region: us",
            ],
            made
        );
    }

    #[test]
    fn values_survive_both_ways() {
        for value in [
            "us-west1",
            "Hello, 世界",
            " padded ",
            "line1\nline2",
            "=?base64?literal?=",
            "",
        ] {
            let encoded = encode(value);
            assert_eq!(Some(value.to_owned()), decode(encoded.as_bytes()), "{encoded}");
            assert!(encoded.is_ascii() && encoded.trim() == encoded);
        }
        assert_eq!("us-west1", encode("us-west1"));
        assert_eq!("=?base64?IHBhZGRlZCA=?=", encode(" padded "));
        assert_eq!(None, decode(b"caf\xc3\xa9"));
    }

    #[test]
    fn a_bad_annotation_spoils_the_tool() {
        for schema in [
            r#"{"properties":{"a":{"type":"string","x-mcp-header":""}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A b"}}}"#,
            r#"{"properties":{"a":{"type":"object","x-mcp-header":"A"}}}"#,
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}"#,
        ] {
            let tool = format!(r#"{{"name":"t","inputSchema":{schema}}}"#);
            assert!(bindings(&tool).is_empty(), "{schema}");
        }
    }
}
