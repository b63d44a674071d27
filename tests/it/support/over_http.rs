//! A client over HTTP that is driven like one on stdio: frames go out as POSTs, and what comes back on any stream
//! is gathered.

use serde_json::{Value, json};

use super::http::{Exchange, HttpHarness};

pub(crate) struct OverHttp {
    pub(crate) door: HttpHarness,
    era: &'static str,
    posts: Vec<Posted>,
    /// With how many of its messages were seen.
    stream: Option<(Exchange, usize)>,
    status: Option<u16>,
    /// What came on the stream of a `tools/call`.
    pub(crate) on_calls: Vec<String>,
    /// What the client says that it takes, when it is not everything.
    pub(crate) accept: Option<String>,
}

/// A request, with how many of its messages were seen.
struct Posted {
    exchange: Exchange,
    seen: usize,
    is_call: bool,
}

impl OverHttp {
    pub(crate) async fn open(
        mut door: HttpHarness,
        era: &'static str,
        revision: &str,
        capabilities: &Value,
    ) -> Self {
        if era == "2025" {
            door.initialize(revision, capabilities).await;
        } else {
            let body = json!({"jsonrpc": "2.0", "id": "open", "method": "server/discover", "params": {"_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {}
            }}});
            let body = body.to_string();
            let opened = door
                .post(&door.headers(era, body.as_bytes()), body.as_bytes())
                .await;
            assert!(
                opened.messages()[0].0.get("result").is_some(),
                "{:?}",
                opened.messages()
            );
        }
        let mut client = Self {
            door,
            era,
            posts: Vec::new(),
            stream: None,
            status: None,
            on_calls: Vec::new(),
            accept: None,
        };
        if era == "2025" {
            let headers = client.door.headers(era, b"");
            let stream = client.door.request("GET", &headers, b"").await;
            assert_eq!(200, stream.response().expect("a stream").status);
            client.stream = Some((stream, 0));
        }
        client
    }

    /// A POST for each line, all at the same moment.
    pub(super) fn send(&mut self, lines: &[u8]) {
        for frame in lines
            .split(|byte| *byte == b'\n')
            .filter(|frame| !frame.is_empty())
        {
            let mut headers = self.door.headers(self.era, frame);
            if let Some(accept) = &self.accept {
                headers.retain(|(name, _)| name != "Accept");
                headers.push(("Accept".to_owned(), accept.clone().into_bytes()));
            }
            let sent: Value = serde_json::from_slice(frame).unwrap_or_default();
            self.posts.push(Posted {
                exchange: self.door.send("POST", &headers, frame),
                seen: 0,
                is_call: sent["method"] == "tools/call",
            });
        }
    }

    /// Closes every stream.
    pub(super) fn disconnect(&mut self) {
        self.posts.clear();
        self.stream = None;
    }

    /// Closes the stream of GET.
    pub(crate) fn close_stream(&mut self) {
        self.stream = None;
    }

    /// Closes the stream of the last request.
    pub(crate) fn close_last(&mut self) {
        self.posts.pop();
    }

    /// The status of the request that was answered last.
    pub(crate) fn last_status(&self) -> Option<u16> {
        self.status
    }

    /// What came since the last look.
    pub(super) fn arrived(&mut self) -> Vec<String> {
        let mut arrived = Vec::new();
        if let Some((stream, seen)) = &mut self.stream {
            arrived = unseen(stream, seen);
        }
        for posted in &mut self.posts {
            let fresh = unseen(&posted.exchange, &mut posted.seen);
            if posted.is_call {
                self.on_calls.extend(fresh.iter().cloned());
            }
            arrived.extend(fresh);
            if let Some(response) = posted.exchange.response() {
                self.status = Some(response.status);
            }
        }
        self.posts.retain(|posted| !posted.exchange.closed());
        arrived
    }
}

fn unseen(exchange: &Exchange, seen: &mut usize) -> Vec<String> {
    let texts: Vec<String> = exchange.messages().into_iter().map(|(_, text)| text).collect();
    let fresh = texts.get(*seen..).unwrap_or_default().to_vec();
    *seen = texts.len();
    fresh
}
