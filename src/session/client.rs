//! What the client sends: admission in the order of the rules, and who may answer what.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::request::Arrived;
use super::state::{Conversation, IN_FLIGHT_MAX, InFlight, Opening, Stage};
use super::{Envelope, Exchange, Session, Source, To};
use crate::gate::ask::Answer;
use crate::gate::permit::{Relay, Ungated};
use crate::vocabulary::RandomId;
use crate::wire::era::{ClientCapabilities, Era, RequestMeta, STATELESS_REVISIONS, request_meta};
use crate::wire::frame::{Notification, Request, Response, read_client};
use crate::wire::id::RequestId;
use crate::wire::line::Line;
use crate::wire::method::{ClientNotification, Route, client_notification, route};
use crate::wire::shape::{self, ShapeError};
use crate::wire::{object, refusal};

/// What revision 2026-07-28 has removed (ruling R28; its changelog).
const REMOVED: &[&str] = &[
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
    // The tasks extension has neither.
    "tasks/list",
    "tasks/result",
];

/// `UnsupportedProtocolVersion` of revision 2026-07-28.
const UNSUPPORTED_VERSION: i64 = -32022;

/// The start of the session was refused; the same code as a refused read, so that no client retries.
pub(super) const START_REFUSED: i64 = refusal::REFUSED_READ;

/// Why a request is answered at once, before any policy.
struct Rejected {
    code: i64,
    message: String,
    data: Option<String>,
}

impl Rejected {
    fn new(code: i64, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }
}

impl From<ShapeError> for Rejected {
    fn from(error: ShapeError) -> Self {
        Self::new(error.code, error.detail)
    }
}

impl Session {
    /// Takes one line of the client. Returns when the next one may be taken.
    pub(super) async fn receive(self: &Arc<Self>, line: Line) {
        let read = match line {
            Line::Frame(bytes) => read_client(bytes, &self.settings.scan),
            Line::TooLong => {
                let limit = self.settings.scan.frame_bytes_max;
                let message = format!("the frame is longer than {limit} bytes");
                return self.unreadable(None, -32600, &message).await;
            }
        };
        match read {
            Ok(None) => {}
            Ok(Some(frame)) => self.take(frame, Envelope::default()).await,
            Err(error) => {
                self.unreadable(error.id.as_ref(), error.code, &error.detail)
                    .await;
            }
        }
    }

    pub(super) async fn request(self: &Arc<Self>, request: Request, envelope: Envelope) {
        let exchange = Exchange {
            post: envelope.post,
            id: request.id().clone(),
        };
        let judged = shape::judged(&request);
        // A name that differs only in case spoils the frame itself, whatever else its era would say of it.
        if let Err(error) = &judged
            && error.code == -32600
        {
            return self
                .reject(exchange, Rejected::new(error.code, &*error.detail))
                .await;
        }
        let admitted = self.state().admit(&request, &exchange);
        let (meta, flight) = match admitted {
            Ok(admitted) => admitted,
            Err(rejected) => return self.reject(exchange, rejected).await,
        };
        match Ungated::lifecycle(self.gate.declared(request.clone())) {
            Ok((ungated, lifecycle)) => self.lifecycle(exchange, ungated, lifecycle, flight).await,
            Err(_meets_a_seam) => {
                let arrived = Arrived {
                    request,
                    exchange,
                    envelope,
                    meta,
                    at: Instant::now(),
                };
                self.gated(arrived, judged, flight).await;
            }
        }
    }

    pub(super) async fn notification(self: &Arc<Self>, notification: &Notification) {
        let (era, opening) = {
            let state = self.state();
            (state.era(), state.opening)
        };
        let kind = client_notification(notification.method(), era);
        if kind == ClientNotification::Cancelled {
            return self.cancelled(notification, era).await;
        }
        let relay = match opening {
            Opening::Undecided => None,
            Opening::Initializing | Opening::Settled(_) => Relay::notification(notification, era),
        };
        let Some(relay) = relay else {
            self.state().dropped += 1;
            return;
        };
        if self.upstream.relay(relay).await.is_ok() && kind == ClientNotification::Initialized {
            self.check_start(era).await;
        }
    }

    /// The client takes a request back (ruling R18): only one of its own that is in flight.
    async fn cancelled(&self, notification: &Notification, era: Era) {
        let id = notification
            .params()
            .and_then(|params| object::member(params, "requestId"))
            .and_then(RequestId::parse);
        let exchange = id.map(|id| Exchange { post: 0, id });
        let flight = exchange
            .as_ref()
            .and_then(|exchange| self.state().in_flight.get(exchange).cloned());
        let (Some(exchange), Some(flight)) = (exchange, flight) else {
            self.state().dropped += 1;
            return;
        };
        match flight.stage {
            Stage::Gate => flight.withdrawn.cancel(),
            // The opening of a session cannot be taken back.
            Stage::Upstream(_) if flight.method == "initialize" => self.state().dropped += 1,
            Stage::Upstream(upstream_id) => {
                if let Some(relay) = Relay::cancellation(notification, era, upstream_id) {
                    let _upstream_is_gone = self.upstream.relay(relay).await;
                }
                self.forget(&exchange, Some(upstream_id));
            }
        }
    }

    /// The stream that would carry the answer of `exchange` is closed. From 2026-07-28 on that takes the
    /// request back; before, it closes an open question and nothing else (semantics section 5).
    pub async fn unreachable(&self, exchange: &Exchange) {
        let (era, flight) = {
            let state = self.state();
            (state.era(), state.in_flight.get(exchange).cloned())
        };
        let Some(flight) = flight else { return };
        match (era, flight.stage) {
            (Era::Handshake, _) => flight.unreachable.cancel(),
            (Era::Stateless, Stage::Gate) => flight.withdrawn.cancel(),
            (Era::Stateless, Stage::Upstream(upstream_id)) => {
                let cancel = Relay::own_cancellation(upstream_id, "the client has closed its stream");
                let _upstream_is_gone = self.upstream.relay(cancel).await;
                self.forget(exchange, Some(upstream_id));
            }
        }
    }

    /// An answer of the client: taken only for an id that this host issued to this very session.
    pub(super) async fn response(&self, response: &Response) {
        let Some(id) = response.id() else {
            self.state().dropped += 1;
            return;
        };
        if let Some(question) = object::text(id.raw()).as_deref().and_then(RandomId::parse) {
            let answer = match (response.result(), response.error()) {
                (Some(result), None) => Answer::read(result),
                (Some(_) | None, Some(_)) | (None, None) => Answer::NotApproved,
            };
            if self.questions.answer(question, answer) {
                return;
            }
        }
        let well_formed = response.result().is_some() != response.error().is_some();
        let upstream_id_raw = if well_formed {
            self.state().relayed.remove(id)
        } else {
            None
        };
        match upstream_id_raw {
            Some(upstream_id_raw) => {
                let _upstream_is_gone = self
                    .upstream
                    .relay(Relay::response(response, &upstream_id_raw))
                    .await;
            }
            None => self.state().dropped += 1,
        }
    }

    /// Answers a frame that is no message.
    async fn unreadable(&self, id: Option<&RequestId>, code: i64, message: &str) {
        let revision = self.state().revision.clone();
        let line = refusal::error(id, &revision, code, message, None);
        self.send(To::Session, line).await;
    }

    /// Answers a request that is not in flight.
    async fn reject(&self, exchange: Exchange, rejected: Rejected) {
        let Rejected { code, message, data } = rejected;
        let revision = self.state().revision.clone();
        let line = refusal::error(Some(&exchange.id), &revision, code, &message, data.as_deref());
        self.send(To::Answer(exchange, Source::Host), line).await;
    }
}

impl Conversation {
    /// Admits a request to the conversation, or says why not. What is admitted is in flight.
    fn admit(
        &mut self,
        request: &Request,
        exchange: &Exchange,
    ) -> Result<(Option<RequestMeta>, InFlight), Rejected> {
        if let Some(why) = &self.start_refused {
            return Err(Rejected::new(START_REFUSED, why.clone()));
        }
        let params = request.params().unwrap_or("{}");
        if matches!(route(request.method()), Route::Lifecycle(_)) && !object::is_object(params) {
            return Err(Rejected::new(-32602, "`params` must be an object"));
        }
        if self.in_flight.contains_key(exchange) {
            return Err(Rejected::new(-32600, "a request with this id is still in flight"));
        }
        if IN_FLIGHT_MAX <= self.in_flight.len() {
            let message = format!("{IN_FLIGHT_MAX} requests are in flight already; wait for their answers");
            return Err(Rejected::new(-32603, message));
        }
        let meta = self.enter(request)?;
        let flight = InFlight {
            stage: Stage::Gate,
            over: CancellationToken::new(),
            withdrawn: CancellationToken::new(),
            unreachable: CancellationToken::new(),
            method: request.method().to_owned(),
        };
        self.in_flight.insert(exchange.clone(), flight.clone());
        Ok((meta, flight))
    }

    /// The era's rules for one request (rulings R17, R27 and R28).
    fn enter(&mut self, request: &Request) -> Result<Option<RequestMeta>, Rejected> {
        let meta = request_meta(request.params());
        match self.opening {
            Opening::Initializing | Opening::Settled(Era::Handshake) => self.enter_handshake(request, meta?),
            Opening::Settled(Era::Stateless) => enter_stateless(request, meta?).map(Some),
            Opening::Undecided => self.enter_undecided(request, meta?),
        }
    }

    fn enter_handshake(
        &self,
        request: &Request,
        meta: Option<RequestMeta>,
    ) -> Result<Option<RequestMeta>, Rejected> {
        if request.method() == "initialize" {
            return Err(Rejected::new(-32600, "the session is initialized already"));
        }
        match meta {
            None => Ok(None),
            Some(meta) => Err(unsupported(&meta.protocol_version, &[self.revision.as_str()])),
        }
    }

    fn enter_undecided(
        &mut self,
        request: &Request,
        meta: Option<RequestMeta>,
    ) -> Result<Option<RequestMeta>, Rejected> {
        if request.method() == "initialize" {
            self.initializing(request);
            return Ok(None);
        }
        match (request.method(), meta) {
            ("ping", None) => Ok(None),
            ("server/discover", None) => Err(missing_meta()),
            (_, None) => Err(Rejected::new(
                -32600,
                "send `initialize` first, or the `_meta` of revision 2026-07-28",
            )),
            ("server/discover", Some(meta)) => enter_stateless(request, Some(meta)).map(Some),
            (_, Some(meta)) => {
                let meta = enter_stateless(request, Some(meta))?;
                self.settle_stateless();
                Ok(Some(meta))
            }
        }
    }

    fn initializing(&mut self, request: &Request) {
        let params = request.params().unwrap_or("{}");
        self.opening = Opening::Initializing;
        self.revision = object::member(params, "protocolVersion")
            .and_then(object::text)
            .unwrap_or_default();
        self.client_info = object::member(params, "clientInfo")
            .unwrap_or_default()
            .to_owned();
        self.capabilities = ClientCapabilities::parse(object::member(params, "capabilities").unwrap_or("{}"));
    }

    /// From now on the session is one of revision 2026-07-28.
    pub(super) fn settle_stateless(&mut self) {
        self.opening = Opening::Settled(Era::Stateless);
        STATELESS_REVISIONS
            .first()
            .copied()
            .unwrap_or_default()
            .clone_into(&mut self.revision);
    }
}

fn enter_stateless(request: &Request, meta: Option<RequestMeta>) -> Result<RequestMeta, Rejected> {
    if REMOVED.contains(&request.method()) {
        let message = format!("method not found in revision 2026-07-28: {}", request.method());
        return Err(Rejected::new(-32601, message));
    }
    let meta = meta.ok_or_else(missing_meta)?;
    if STATELESS_REVISIONS.contains(&meta.protocol_version.as_str()) {
        Ok(meta)
    } else {
        Err(unsupported(&meta.protocol_version, STATELESS_REVISIONS))
    }
}

fn missing_meta() -> Rejected {
    Rejected::new(
        -32602,
        "`_meta` lacks `io.modelcontextprotocol/protocolVersion` or `io.modelcontextprotocol/clientCapabilities`",
    )
}

fn unsupported(requested: &str, supported: &[&str]) -> Rejected {
    let supported: Vec<String> = supported.iter().map(|revision| object::quote(revision)).collect();
    Rejected {
        code: UNSUPPORTED_VERSION,
        message: "unsupported protocol version".to_owned(),
        data: Some(format!(
            r#"{{"supported":[{}],"requested":{}}}"#,
            supported.join(","),
            object::quote(requested)
        )),
    }
}
