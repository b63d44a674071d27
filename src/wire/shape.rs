//! What the gate reads of a request, and the shape that it must have before any policy sees it
//! (semantics section 2; rulings R5, R6, R21 and R48).

use super::frame::{Request, is_variant};
use super::method::{Route, route};
use super::object::{self, Member};
use crate::decision::Seam;
use crate::vocabulary::{Digest, ToolName};

/// Why a request is no request that can be judged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct ShapeError {
    /// The JSON-RPC code: -32602, or -32600 for a member that differs only in case from one that is read.
    pub code: i64,
    /// What is wrong.
    pub detail: String,
}

/// What a policy is given of a request, byte for byte, and what an approval is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judged {
    /// The seam that the request meets.
    pub seam: Seam,
    /// The tool's name, or the method.
    pub name: String,
    /// The arguments, raw.
    pub args_json: String,
    /// Everything else in `params` that will reach the upstream, raw, `{}` if nothing.
    pub extra_json: String,
    /// Covers everything in `params` that will be forwarded.
    pub params_digest: Digest,
    /// Answers that came with the request (2026-07-28), raw.
    pub input_responses: Option<String>,
    /// The state that came with the request (2026-07-28), unescaped.
    pub request_state: Option<String>,
}

/// The members of `_meta` that belong to one request and not to what it asks for.
const PER_REQUEST_META: &[&str] = &[
    "progressToken",
    "traceparent",
    "tracestate",
    "baggage",
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
];

/// The members of `params` that belong to one exchange of input and not to what is asked for.
const PER_EXCHANGE: &[&str] = &["inputResponses", "requestState"];

/// What a member that the gate reads must be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Object,
    /// An object, or null, which is the same as absent.
    ObjectOrNull,
    /// A string, or null, which is the same as absent.
    TextOrNull,
}

/// How the arguments of a method are made up.
#[derive(Clone, Copy)]
enum Arguments {
    /// `params.arguments`.
    OwnMember,
    /// An object of these members, those that are present.
    Members(&'static [&'static str]),
    /// The params as they are.
    Params,
}

/// The members that the gate reads for a method: what must be there, and what may be.
struct Shape {
    required: &'static [(&'static str, Kind)],
    optional: &'static [(&'static str, Kind)],
    arguments: Arguments,
}

/// Read for every method.
const ALWAYS: &[(&str, Kind)] = &[
    ("_meta", Kind::Object),
    ("inputResponses", Kind::ObjectOrNull),
    ("requestState", Kind::TextOrNull),
];

fn shape(method: &str) -> Shape {
    use Kind::{Object, Text};
    let of = |required, optional, arguments| Shape {
        required,
        optional,
        arguments,
    };
    match method {
        "tools/call" => of(
            &[("name", Text)],
            &[("arguments", Object), ("task", Object)],
            Arguments::OwnMember,
        ),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
            of(&[("uri", Text)], &[], Arguments::Members(&["uri"]))
        }
        "resources/list" | "resources/templates/list" | "prompts/list" | "tools/list" => {
            of(&[], &[("cursor", Text)], Arguments::Members(&["cursor"]))
        }
        "prompts/get" => of(
            &[("name", Text)],
            &[("arguments", Object)],
            Arguments::Members(&["name", "arguments"]),
        ),
        "completion/complete" => of(
            &[("ref", Object), ("argument", Object)],
            &[("context", Object)],
            Arguments::Members(&["ref", "argument", "context"]),
        ),
        "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update" => {
            of(&[("taskId", Text)], &[], Arguments::Params)
        }
        "tasks/list" => of(&[], &[("cursor", Text)], Arguments::Params),
        _ => of(&[], &[], Arguments::Params),
    }
}

/// Reads what will be judged.
///
/// # Errors
///
/// [`ShapeError`] for a request that is answered before any policy and never forwarded.
pub fn judged(request: &Request) -> Result<Judged, ShapeError> {
    let method = request.method();
    let params = request.params().unwrap_or("{}");
    if !object::is_object(params) {
        return Err(invalid("`params` must be an object"));
    }
    let members: Vec<Member<'_>> = object::members(params).collect();
    let shape = shape(method);
    check(&members, &shape)?;
    let value = |name: &str| {
        members
            .iter()
            .find(|member| member.name == name)
            .map(|member| member.value)
    };
    let seam = match route(method) {
        Route::Gated { seam, .. } => seam,
        Route::Lifecycle(_) => Seam::Reads,
    };
    let name = match seam {
        Seam::Reads => method.to_owned(),
        Seam::Tools => {
            let name = value("name").and_then(object::text).unwrap_or_default();
            ToolName::try_from(name.as_str()).map_err(|error| invalid(&error.to_string()))?;
            name
        }
    };
    let (args_json, extra_json) = match shape.arguments {
        Arguments::OwnMember => (
            value("arguments").unwrap_or("{}").to_owned(),
            extra(&members, &["name", "arguments"]),
        ),
        Arguments::Members(names) => (object_of(&members, names), extra(&members, names)),
        Arguments::Params => (params.to_owned(), "{}".to_owned()),
    };
    Ok(Judged {
        seam,
        name,
        args_json,
        extra_json,
        params_digest: digest(&members),
        input_responses: value("inputResponses")
            .filter(|raw| *raw != "null")
            .map(str::to_owned),
        request_state: value("requestState").and_then(object::text),
    })
}

fn check(members: &[Member<'_>], shape: &Shape) -> Result<(), ShapeError> {
    let read = || shape.required.iter().chain(shape.optional).chain(ALWAYS);
    for member in members {
        for (name, _) in read() {
            refuse_variant(&member.name, name)?;
        }
    }
    for (name, kind) in read() {
        let found = members.iter().find(|member| member.name == *name);
        let fits = |raw: &str| match kind {
            Kind::Text => raw.starts_with('"'),
            Kind::Object => object::is_object(raw),
            Kind::ObjectOrNull => object::is_object(raw) || raw == "null",
            Kind::TextOrNull => raw.starts_with('"') || raw == "null",
        };
        match found {
            Some(member) if !fits(member.value) => {
                let what = match kind {
                    Kind::Text | Kind::TextOrNull => "a string",
                    Kind::Object | Kind::ObjectOrNull => "an object",
                };
                return Err(invalid(&format!("`params.{name}` must be {what}")));
            }
            None if shape.required.iter().any(|(required, _)| required == name) => {
                return Err(invalid(&format!("`params.{name}` is missing")));
            }
            Some(_) | None => {}
        }
    }
    Ok(())
}

/// Refuses a name that another reader could take for `read` (ruling R5).
fn refuse_variant(name: &str, read: &str) -> Result<(), ShapeError> {
    if !is_variant(name, &[read]) {
        return Ok(());
    }
    let detail = format!(
        "the member {} differs from `{read}` only in case",
        object::quote(name)
    );
    Err(ShapeError { code: -32600, detail })
}

fn refuse_variants(object: &str, read: &str) -> Result<(), ShapeError> {
    object::members(object).try_for_each(|member| refuse_variant(&member.name, read))
}

/// An object of the named members, raw, in the order of the params.
fn object_of(members: &[Member<'_>], names: &[&str]) -> String {
    let kept = members
        .iter()
        .filter(|member| names.contains(&member.name.as_ref()));
    joined(kept.map(|member| (member.name.as_ref(), member.value.to_owned())))
}

/// Every member that reaches the upstream and is neither judged nor the protocol's own.
fn extra(members: &[Member<'_>], judged: &[&str]) -> String {
    let others = members.iter().filter(|member| {
        !judged.contains(&member.name.as_ref()) && !PER_EXCHANGE.contains(&member.name.as_ref())
    });
    joined(others.filter_map(|member| {
        if member.name != "_meta" {
            return Some((member.name.as_ref(), member.value.to_owned()));
        }
        let meta = joined(lasting_meta(member.value).map(|(name, value)| (name, value.to_owned())));
        (meta != "{}").then_some(("_meta", meta))
    }))
}

fn lasting_meta(meta: &str) -> impl Iterator<Item = (String, &str)> {
    object::members(meta)
        .filter(|member| !PER_REQUEST_META.contains(&member.name.as_ref()))
        .map(|member| (member.name.into_owned(), member.value))
}

fn joined<N: AsRef<str>>(members: impl Iterator<Item = (N, String)>) -> String {
    let members: Vec<String> = members
        .map(|(name, value)| format!("{}:{value}", object::quote(name.as_ref())))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// Over the exact bytes of everything that will be forwarded, whatever the order of its members.
fn digest(members: &[Member<'_>]) -> Digest {
    // The place is a part of its own, so that no member of the params can be named like one of `_meta`.
    let mut parts: Vec<(&str, String, &str)> = Vec::new();
    for member in members {
        match member.name.as_ref() {
            "_meta" => {
                parts.extend(lasting_meta(member.value).map(|(name, value)| ("_meta", name, value)));
            }
            name if PER_EXCHANGE.contains(&name) => {}
            name => parts.push(("params", name.to_owned(), member.value)),
        }
    }
    parts.sort_unstable();
    Digest::of_parts(
        parts
            .iter()
            .flat_map(|(place, name, value)| [place.as_bytes(), name.as_bytes(), value.as_bytes()]),
    )
}

/// The resources that a `subscriptions/listen` request asks for.
///
/// # Errors
///
/// When they are not a list of strings, or a member on the way to them differs only in case from one that
/// is read: a reader that folds case would subscribe to what no policy saw.
pub fn listen_uris(params: &str) -> Result<Vec<String>, ShapeError> {
    refuse_variants(params, "notifications")?;
    let filter = object::member(params, "notifications").unwrap_or("{}");
    if !object::is_object(filter) {
        return Err(invalid("`params.notifications` must be an object"));
    }
    refuse_variants(filter, "resourceSubscriptions")?;
    refuse_variants(filter, "taskIds")?;
    let Some(uris) = object::member(filter, "resourceSubscriptions") else {
        return Ok(Vec::new());
    };
    if !uris.starts_with('[') {
        return Err(invalid(
            "`params.notifications.resourceSubscriptions` must be an array",
        ));
    }
    object::elements(uris)
        .map(|uri| object::text(uri).ok_or_else(|| invalid("a resource to subscribe to must be a string")))
        .collect()
}

/// The `notifications` member without the resources that `keep` does not keep.
#[must_use]
pub fn listen_without(params: &str, keep: &dyn Fn(&str) -> bool) -> String {
    let filter = object::member(params, "notifications").unwrap_or("{}");
    let Some(uris) = object::member(filter, "resourceSubscriptions") else {
        return filter.to_owned();
    };
    let kept = object::retained(uris, |uri| object::text(uri).is_some_and(|uri| keep(&uri)));
    object::with_member(
        filter,
        "resourceSubscriptions",
        Some(kept.as_deref().unwrap_or("[]")),
    )
}

fn invalid(detail: &str) -> ShapeError {
    ShapeError {
        code: -32602,
        detail: detail.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::frame::{ClientFrame, read_client};
    use super::super::scan::ScanLimits;
    use super::*;

    fn read(method: &str, params: &str) -> Result<Judged, ShapeError> {
        let frame = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        match read_client(Bytes::from(frame), &ScanLimits::default()) {
            Ok(Some(ClientFrame::Request(request))) => judged(&request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_policy_is_given_the_raw_bytes() {
        #[track_caller]
        fn check(method: &str, params: &str, name: &str, args_json: &str, extra_json: &str) {
            let judged = read(method, params).unwrap();
            assert_eq!(
                (name, args_json, extra_json),
                (&*judged.name, &*judged.args_json, &*judged.extra_json)
            );
        }
        check(
            "tools/call",
            r#"{"name":"a","arguments":{ "n":1.10 }}"#,
            "a",
            r#"{ "n":1.10 }"#,
            "{}",
        );
        check("tools/call", r#"{"name":"\u0061"}"#, "a", "{}", "{}");
        check(
            "tools/call",
            r#"{"task":{"ttl":1},"name":"a","_meta":{"progressToken":1,"x/y":2},"v":3,"requestState":"s","inputResponses":{}}"#,
            "a",
            "{}",
            r#"{"task":{"ttl":1},"_meta":{"x/y":2},"v":3}"#,
        );
        check(
            "resources/read",
            r#"{"uri":"file:\/\/x","v":1}"#,
            "resources/read",
            r#"{"uri":"file:\/\/x"}"#,
            r#"{"v":1}"#,
        );
        check("tools/list", "{}", "tools/list", "{}", "{}");
        check(
            "tools/list",
            r#"{"cursor":""}"#,
            "tools/list",
            r#"{"cursor":""}"#,
            "{}",
        );
        check(
            "prompts/get",
            r#"{"arguments":{},"name":"p"}"#,
            "prompts/get",
            r#"{"arguments":{},"name":"p"}"#,
            "{}",
        );
        check(
            "tasks/get",
            r#"{"taskId":"t","v":1}"#,
            "tasks/get",
            r#"{"taskId":"t","v":1}"#,
            "{}",
        );
        check("vendor/x", r#"{"v":1}"#, "vendor/x", r#"{"v":1}"#, "{}");
    }

    #[test]
    fn shapes() {
        #[track_caller]
        fn check(method: &str, params: &str, code: i64) {
            assert_eq!(
                Err(code),
                read(method, params).map_err(|error| error.code),
                "{method} {params}"
            );
        }
        for params in [
            "null",
            "[]",
            "1",
            r#""x""#,
            "{}",
            r#"{"name":1}"#,
            r#"{"name":""}"#,
        ] {
            check("tools/call", params, -32602);
        }
        for value in ["null", "[]", "1", r#""{}""#, "false"] {
            check(
                "tools/call",
                &format!(r#"{{"name":"a","arguments":{value}}}"#),
                -32602,
            );
        }
        check("tools/call", r#"{"name":"a","_meta":null}"#, -32602);
        check("tools/call", r#"{"name":"a","requestState":1}"#, -32602);
        check("tools/call", r#"{"name":"a","inputResponses":[]}"#, -32602);
        check("tools/call", r#"{"name":"a","Arguments":{}}"#, -32600);
        check("tools/call", r#"{"name":"a","ta\u017fk":{}}"#, -32600);
        check("tools/call", r#"{"name":"a","tas\u212a":{}}"#, -32600);
        check("resources/read", "{}", -32602);
        check("resources/read", r#"{"uri":"x","URI":"y"}"#, -32600);
        check("tools/list", r#"{"cursor":1}"#, -32602);
        check("completion/complete", r#"{"ref":{},"argument":[]}"#, -32602);
    }

    #[test]
    fn the_digest_covers_what_is_forwarded() {
        let digest = |params: &str| read("tools/call", params).unwrap().params_digest;
        let plain = digest(r#"{"name":"a","arguments":{"x":1}}"#);
        for same in [
            r#"{"arguments":{"x":1},"name":"a"}"#,
            r#"{"name":"a","arguments":{"x":1},"_meta":{}}"#,
            r#"{"name":"a","arguments":{"x":1},"_meta":{"progressToken":7},"requestState":"s","inputResponses":{"k":1}}"#,
        ] {
            assert_eq!(plain, digest(same), "{same}");
        }
        for other in [
            r#"{"name":"b","arguments":{"x":1}}"#,
            r#"{"name":"a","arguments":{"x": 1}}"#,
            r#"{"name":"a","arguments":{"x":1},"task":{}}"#,
            r#"{"name":"a","arguments":{"x":1},"_meta":{"v":1}}"#,
        ] {
            assert_ne!(plain, digest(other), "{other}");
        }
        assert_ne!(
            digest(r#"{"name":"a","_meta":{"v":1}}"#),
            digest(r#"{"name":"a","_meta\u0000v":1}"#)
        );
    }

    #[test]
    fn denied_resources_are_left_out() {
        let params =
            r#"{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["a","\u0062","c"]}}"#;
        assert_eq!(vec!["a", "b", "c"], listen_uris(params).unwrap());
        let kept = listen_without(params, &|uri| uri != "b");
        assert_eq!(
            r#"{"toolsListChanged":true,"resourceSubscriptions":["a","c"]}"#,
            kept
        );
        assert_eq!(0, listen_uris("{}").unwrap().len());
        assert!(listen_uris(r#"{"notifications":{"resourceSubscriptions":[1]}}"#).is_err());
        assert!(listen_uris(r#"{"notifications":{"resourceSubscriptions":"a"}}"#).is_err());
        for hidden in [
            r#"{"Notifications":{"resourceSubscriptions":["a"]}}"#,
            r#"{"notifications":{"resourceSub\u017fcriptions":["a"]}}"#,
        ] {
            assert_eq!(Err(-32600), listen_uris(hidden).map_err(|error| error.code));
        }
        for other in ["null", "1", r#"[{"resourceSubscriptions":["a"]}]"#] {
            let params = format!(r#"{{"notifications":{other}}}"#);
            assert_eq!(Err(-32602), listen_uris(&params).map_err(|error| error.code));
        }
        let none = r#"{"toolsListChanged":true}"#;
        assert_eq!(
            none,
            listen_without(&format!(r#"{{"notifications":{none}}}"#), &|_| false)
        );
    }
}
