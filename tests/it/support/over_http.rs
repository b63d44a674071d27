//! A client over HTTP that is driven like one on stdio: frames go out as POSTs, and what comes back on any stream
//! is gathered.

use serde_json::{Value, json};

use super::http::{Exchange, HttpHarness};

pub(crate) struct OverHttp {
    pub(crate) door: HttpHarness,
    era: &'static str,
    /// Each with how many of its messages were seen.
    posts: Vec<(Exchange, usize)>,
    stream: Option<(Exchange, usize)>,
    status: Option<u16>,
    /// What came on the stream of GET.
    pub(crate) unasked: Vec<String>,
    /// What the client says that it takes, when it is not everything.
    pub(crate) accept: Option<String>,
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
            unasked: Vec::new(),
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
            self.posts.push((self.door.send("POST", &headers, frame), 0));
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
            self.unasked.extend(arrived.iter().cloned());
        }
        for (exchange, seen) in &mut self.posts {
            arrived.extend(unseen(exchange, seen));
            if let Some(response) = exchange.response() {
                self.status = Some(response.status);
            }
        }
        self.posts.retain(|(exchange, _)| !exchange.closed());
        arrived
    }
}

fn unseen(exchange: &Exchange, seen: &mut usize) -> Vec<String> {
    let texts: Vec<String> = exchange.messages().into_iter().map(|(_, text)| text).collect();
    let fresh = texts.get(*seen..).unwrap_or_default().to_vec();
    *seen = texts.len();
    fresh
}
