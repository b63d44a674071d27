//! One request over HTTP and its answer, in whatever form it comes.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Response, StatusCode};
use tokio::time::timeout;

use super::pieces::{self, Cut, Offered};
use super::{Connection, EVENTS, Handshake, LAST_EVENT_ID, SESSION_ID, described};
use crate::upstream::{Incoming, UpstreamFault};
use crate::wire::era::Era;
use crate::wire::event::EventSplitter;
use crate::wire::object;

/// How often a stream that broke off is taken up again without anything new on it.
const RESUMED_MAX: u32 = 5;

/// How long to wait before a stream is taken up again, unless it says.
const RESUME_AFTER: Duration = Duration::from_secs(1);

/// The longest time to wait before a stream is taken up again.
const RESUME_AFTER_MAX: Duration = Duration::from_secs(30);

/// An error body is looked at up to this length, in bytes.
const ERROR_BYTES_MAX: usize = 1024 * 1024;

/// One request of this host.
pub(super) struct Exchange {
    connection: Arc<Connection>,
    id: u64,
}

/// How a stream of events ended.
enum StreamEnd {
    /// With what was waited for.
    Answered,
    /// Before it, at this place.
    BrokeOff {
        last_id: Option<String>,
        retry: Duration,
        events: u32,
    },
    /// With something that cannot be read.
    Unreadable(UpstreamFault),
}

impl Exchange {
    pub(super) fn new(connection: Arc<Connection>, id: u64) -> Self {
        Self { connection, id }
    }

    /// Sends the request and delivers everything that comes of it: in the end an answer or a failure.
    pub(super) async fn run(self, line: Bytes, tool_json: Box<str>) {
        if let Err(fault) = self.answered(line, &tool_json).await {
            self.connection.failed(self.id, fault).await;
        }
    }

    async fn answered(&self, line: Bytes, tool_json: &str) -> Result<(), UpstreamFault> {
        let connection = &self.connection;
        let mirrored = connection.mirrored(&line, tool_json);
        let opens = is_initialize(&line);
        let response = connection
            .post(line, &mirrored)
            .send()
            .await
            .map_err(|error| UpstreamFault::Unreachable(described(&error)))?;
        let status = response.status();
        if !status.is_success() {
            return self.refused(response).await;
        }
        if opens {
            self.keep_session(&response);
        }
        match content_type(&response).as_str() {
            "application/json" => self.json(response, opens).await,
            "text/event-stream" => self.events(response, opens).await,
            other => Err(UpstreamFault::Garbage(format!(
                "it is neither JSON nor a stream of events (HTTP {status}, `{}`)",
                other.escape_default()
            ))),
        }
    }

    /// A status that is no success. A JSON-RPC error that came with it is the answer; everything else is a fault.
    async fn refused(&self, response: Response) -> Result<(), UpstreamFault> {
        let status = response.status();
        let in_session = self.connection.handshake().session.is_some();
        if status == StatusCode::NOT_FOUND && in_session && self.connection.era == Era::Handshake {
            self.connection.lost.cancel();
            return Err(UpstreamFault::Exited(
                "it no longer knows this session".to_owned(),
            ));
        }
        let unreachable = |what: &str| UpstreamFault::Unreachable(format!("{what} (HTTP {status})"));
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(unreachable("it refuses the credential of this gate"));
            }
            status if status.is_redirection() => {
                return Err(unreachable(
                    "it wants to be spoken to elsewhere, which is not followed",
                ));
            }
            _ => {}
        }
        if content_type(&response) == "application/json"
            && let Ok(body) = read(response, ERROR_BYTES_MAX).await
            && is_answer(&body, Some(self.id))
        {
            self.message(body, Some(status.as_u16())).await;
            return Ok(());
        }
        Err(unreachable("it refuses the request"))
    }

    async fn json(&self, mut response: Response, opens: bool) -> Result<(), UpstreamFault> {
        let status = response.status().as_u16();
        let mut body = BytesMut::new();
        let mut offered = Offered::NotYet;
        while let Some(chunk) = next(&mut response).await? {
            within(
                body.len() + chunk.len(),
                self.connection.settings.message_bytes_max,
            )?;
            body.extend_from_slice(&chunk);
            let head = || Bytes::copy_from_slice(&body);
            offered
                .ask(&self.connection, self.id, Some(status), body.len(), head)
                .await;
            if let Offered::Taken(taker) = &offered {
                return match pieces::body(body.freeze(), response, taker).await {
                    Ok(()) | Err(Cut::NotTaken) => Ok(()),
                    Err(Cut::Upstream(fault)) => Err(fault),
                };
            }
        }
        let body = body.freeze();
        if opens {
            self.keep_revision(&body);
        }
        self.message(body, Some(status)).await;
        Ok(())
    }

    /// Delivers events until the answer has come. A stream that breaks off before is taken up again where it says
    /// that it can be (2025 revisions).
    async fn events(&self, response: Response, opens: bool) -> Result<(), UpstreamFault> {
        let mut response = response;
        let mut in_vain = 0;
        loop {
            let (last_id, retry) = match self.stream(response, opens).await {
                StreamEnd::Answered => return Ok(()),
                StreamEnd::Unreadable(fault) => return Err(fault),
                StreamEnd::BrokeOff {
                    last_id: Some(last_id),
                    retry,
                    events,
                } if self.connection.era == Era::Handshake => {
                    in_vain = if events == 0 { in_vain + 1 } else { 0 };
                    (last_id, retry)
                }
                StreamEnd::BrokeOff { .. } => {
                    return Err(UpstreamFault::Garbage(
                        "its stream ended without the answer".to_owned(),
                    ));
                }
            };
            if RESUMED_MAX < in_vain {
                return Err(UpstreamFault::Garbage(
                    "its stream breaks off again and again".to_owned(),
                ));
            }
            pause(retry).await;
            response = resume(&self.connection, Some(&last_id)).await?;
        }
    }

    async fn stream(&self, response: Response, opens: bool) -> StreamEnd {
        follow(&self.connection, response, Some(self.id), |data| {
            if opens {
                self.keep_revision(data);
            }
        })
        .await
    }

    async fn message(&self, text: Bytes, http_status: Option<u16>) {
        self.connection
            .deliver(Incoming::Message {
                text,
                about: Some(self.id),
                http_status,
            })
            .await;
    }

    /// The session that the upstream has begun with its answer.
    fn keep_session(&self, response: &Response) {
        let session = response.headers().get(SESSION_ID).cloned();
        *self
            .connection
            .handshake
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Handshake {
            session,
            revision: None,
        };
    }

    fn keep_revision(&self, answer: &[u8]) {
        let text = std::str::from_utf8(answer).unwrap_or_default();
        let revision = object::member(text, "result")
            .and_then(|result| object::member(result, "protocolVersion"))
            .and_then(object::text)
            .and_then(|revision| HeaderValue::from_str(&revision).ok());
        if let Some(revision) = revision {
            self.connection
                .handshake
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .revision = Some(revision);
        }
    }
}

/// Follows the stream for what belongs to no request, for as long as the session lasts. An upstream that has none
/// says so with its first answer.
pub(super) async fn unasked(connection: &Arc<Connection>) {
    let mut last_id: Option<String> = None;
    let mut in_vain = 0;
    while in_vain <= RESUMED_MAX {
        let Ok(response) = resume(connection, last_id.as_deref()).await else {
            return;
        };
        match follow(connection, response, None, |_| {}).await {
            StreamEnd::Answered => in_vain = 0,
            StreamEnd::Unreadable(fault) => {
                return tracing::warn!(%fault, "the upstream's stream cannot be read");
            }
            StreamEnd::BrokeOff {
                last_id: place,
                retry,
                events,
            } => {
                in_vain = if events == 0 { in_vain + 1 } else { 0 };
                last_id = place.or(last_id);
                pause(retry).await;
            }
        }
    }
}

/// Opens a stream with GET, from where it broke off.
async fn resume(connection: &Connection, last_id: Option<&str>) -> Result<Response, UpstreamFault> {
    let mut request = connection.request(Method::GET).header(ACCEPT, EVENTS);
    if let Some(last_id) = last_id {
        let place = HeaderValue::from_str(last_id)
            .map_err(|_| UpstreamFault::Garbage("the id of its event is no header value".to_owned()))?;
        request = request.header(LAST_EVENT_ID, place);
    }
    let response = request
        .send()
        .await
        .map_err(|error| UpstreamFault::Unreachable(described(&error)))?;
    if response.status().is_success() && content_type(&response) == "text/event-stream" {
        Ok(response)
    } else {
        let status = response.status();
        Err(UpstreamFault::Unreachable(format!(
            "it has no such stream (HTTP {status})"
        )))
    }
}

/// Delivers the events of one stream, until the answer to `about` has come or the stream ends.
async fn follow(
    connection: &Connection,
    mut response: Response,
    about: Option<u64>,
    mut seen: impl FnMut(&[u8]),
) -> StreamEnd {
    let mut splitter = EventSplitter::new(connection.settings.message_bytes_max);
    let mut events = 0;
    let mut offered = Offered::NotYet;
    loop {
        let Ok(Some(chunk)) = response.chunk().await else {
            let retry = splitter.retry_ms().map_or(RESUME_AFTER, Duration::from_millis);
            return StreamEnd::BrokeOff {
                last_id: splitter.last_id().map(str::to_owned),
                retry: retry.min(RESUME_AFTER_MAX),
                events,
            };
        };
        splitter.push(&chunk);
        loop {
            let event = match splitter.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => return StreamEnd::Unreadable(UpstreamFault::Garbage(error.to_string())),
            };
            // A stream that can be taken up again begins with an event that only says where it begins.
            if event.data.is_empty() {
                continue;
            }
            events += 1;
            let answers = about.is_some() && is_answer(&event.data, about);
            if answers {
                seen(&event.data);
            }
            let message = Incoming::Message {
                text: event.data,
                about,
                http_status: None,
            };
            connection.deliver(message).await;
            if answers {
                return StreamEnd::Answered;
            }
            offered = Offered::NotYet;
        }
        let Some(id) = about else { continue };
        let bytes = splitter.unfinished_bytes();
        offered
            .ask(connection, id, None, bytes, || splitter.unfinished())
            .await;
        if let Offered::Taken(taker) = &offered {
            return match pieces::event(&mut splitter, &mut response, taker).await {
                Ok(()) | Err(Cut::NotTaken) => StreamEnd::Answered,
                Err(Cut::Upstream(fault)) => StreamEnd::Unreadable(fault),
            };
        }
    }
}

/// Waits before a stream is taken up again.
async fn pause(time: Duration) {
    let _elapsed = timeout(time, std::future::pending::<()>()).await;
}

/// The whole body, within a limit.
async fn read(mut response: Response, bytes_max: usize) -> Result<Bytes, UpstreamFault> {
    let mut body = BytesMut::new();
    while let Some(chunk) = next(&mut response).await? {
        within(body.len() + chunk.len(), bytes_max)?;
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

pub(super) async fn next(response: &mut Response) -> Result<Option<Bytes>, UpstreamFault> {
    let chunk = response.chunk().await;
    chunk.map_err(|error| UpstreamFault::Unreachable(format!("its answer broke off: {}", described(&error))))
}

fn within(bytes: usize, bytes_max: usize) -> Result<(), UpstreamFault> {
    if bytes <= bytes_max {
        return Ok(());
    }
    Err(UpstreamFault::Garbage(format!(
        "it is longer than {bytes_max} bytes"
    )))
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Whether a message is the answer to a request of this host, of any request when `id` is none. Says nothing about
/// whether the answer is good.
fn is_answer(message: &[u8], id: Option<u64>) -> bool {
    let Ok(text) = std::str::from_utf8(message) else {
        return false;
    };
    let mut answers = false;
    let mut own = id.is_none();
    for member in object::members(text) {
        match member.name.as_ref() {
            "method" => return false,
            "result" | "error" => answers = true,
            "id" => own = own || id.is_some_and(|id| member.value == id.to_string()),
            _ => {}
        }
    }
    answers && own
}

fn is_initialize(line: &[u8]) -> bool {
    let text = std::str::from_utf8(line).unwrap_or_default();
    object::member(text, "method").and_then(object::text).as_deref() == Some("initialize")
}
