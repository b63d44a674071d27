//! What an upstream behind a URL gets: headers of this host only, and the configured credential.

use std::sync::Arc;

use gatewright::seam::{Guard, Guards};
use serde_json::json;

use crate::support::chains::one;
use crate::support::http::{HttpHarness, Setup};
use crate::support::http_upstream::HttpUpstream;
use crate::support::policies::Does;

/// What a client sends that is nobody else's business.
const PRIVATE: &[(&str, &str)] = &[
    ("Authorization", "Bearer of-the-client"),
    ("Cookie", "session=1"),
    ("X-Forwarded-For", "192.0.2.1"),
    ("X-Custom", "1"),
    ("Mcp-Param-Unknown", "1"),
];

#[tokio::test]
async fn nothing_of_the_clients_headers_goes_on() {
    for era in ["2025", "2026"] {
        let allow = || Guard::Chain(Arc::new(one(Does::Allow)));
        let guards = Guards {
            tools: allow(),
            reads: allow(),
        };
        let upstream = HttpUpstream::start(None)
            .await
            .with_header("authorization", "Bearer configured");
        let mut harness = HttpHarness::before(Setup::new(guards), &upstream);
        let mut call =
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "d\u{e9}ploy"}});
        if era == "2025" {
            harness.initialize("2025-11-25", &json!({})).await;
        } else {
            call["params"]["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}
            });
        }
        let body = call.to_string();
        let mut headers = harness.headers(era, body.as_bytes());
        headers.extend(
            PRIVATE
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())),
        );
        let answered = harness.post(&headers, body.as_bytes()).await;
        assert_eq!(200, answered.response().unwrap().status, "{era}");
        let posted = upstream.posted();
        let call = posted
            .iter()
            .find(|posted| posted.received.method() == "tools/call")
            .unwrap();
        let mut names: Vec<&str> = call.headers.keys().map(|name| name.as_str()).collect();
        names.sort_unstable();
        let common = [
            "accept",
            "authorization",
            "content-length",
            "content-type",
            "host",
        ];
        let own: &[&str] = match era {
            "2025" => &["mcp-protocol-version"],
            _ => &["mcp-method", "mcp-name", "mcp-protocol-version"],
        };
        assert_eq!([&common, own].concat(), names, "{era}");
        assert_eq!("Bearer configured", call.headers["authorization"]);
        if era == "2026" {
            assert_eq!("=?base64?ZMOpcGxveQ==?=", call.headers["mcp-name"]);
        }
    }
}
