//! Proof that a message may go upstream.
//!
//! INVARIANT (permit): a [`Permit`] is made in `gate` and nowhere else, it owns the bytes that were
//! judged, and it is consumed when they are forwarded. No permit, no call: the fields are private.
//! INVARIANT (ungated): an [`Ungated`] holds only what semantics section 2 lets pass without a seam.

use bytes::Bytes;

use crate::vocabulary::DecisionId;
use crate::wire::era::Era;
use crate::wire::frame::{ClientFrame, Notification, Request, Response, read_client};
use crate::wire::method::{ClientNotification, Lifecycle, Route, client_notification, route};
use crate::wire::object;
use crate::wire::scan::ScanLimits;

/// A judged request that may go upstream, once.
#[derive(Debug)]
pub struct Permit {
    request: Request,
    decision_id: DecisionId,
}

impl Permit {
    /// Only the gate calls this, after the record of the verdict was written.
    pub(super) fn new(request: Request, decision_id: DecisionId) -> Self {
        Self { request, decision_id }
    }

    /// The verdict that let it pass.
    #[must_use]
    pub fn decision_id(&self) -> DecisionId {
        self.decision_id
    }

    /// The line to forward: the judged bytes under the id `id`.
    pub(crate) fn into_line(self, id: u64) -> Bytes {
        self.request.to_upstream(id)
    }
}

/// A request that meets no seam: lifecycle, or one of this host's own.
#[derive(Debug)]
pub struct Ungated {
    request: Request,
}

impl Ungated {
    /// Takes `initialize`, `server/discover`, `ping` and `logging/setLevel`; gives everything else back.
    ///
    /// # Errors
    ///
    /// The request itself when its method meets a seam.
    #[expect(
        clippy::result_large_err,
        reason = "not an error: the request goes back to whoever asked"
    )]
    pub fn lifecycle(request: Request) -> Result<(Self, Lifecycle), Request> {
        match route(request.method()) {
            Route::Lifecycle(lifecycle) => Ok((Self { request }, lifecycle)),
            Route::Gated { .. } => Err(request),
        }
    }

    /// This host's own `tools/list`, whose answer no client ever sees.
    pub(crate) fn list_tools(cursor: Option<&str>, era: Era) -> Option<Self> {
        let params = match era {
            Era::Handshake => format!(r#"{{"_meta":{{"{OWN_LISTING}":true}}}}"#),
            Era::Stateless => format!(r#"{{"_meta":{OWN_META}}}"#),
        };
        let params = match cursor {
            Some(cursor) => object::with_member(&params, "cursor", Some(&object::quote(cursor))),
            None => params,
        };
        let frame = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"tools/list","params":{params}}}"#);
        match read_client(Bytes::from(frame), &ScanLimits::default()) {
            Ok(Some(ClientFrame::Request(request))) => Some(Self { request }),
            Ok(_) | Err(_) => None,
        }
    }

    /// The line to forward, under the id `id`.
    pub(crate) fn into_line(self, id: u64) -> Bytes {
        self.request.to_upstream(id)
    }
}

/// Marks a `tools/list` of this host, so that an upstream can tell it from the client's.
pub const OWN_LISTING: &str = "gatewright/listing";

/// What this host says of itself in its own requests to a 2026-07-28 upstream.
const OWN_META: &str = concat!(
    r#"{"gatewright/listing":true,"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"gatewright","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}}"#
);

/// A request that may go upstream, and why.
#[derive(Debug)]
pub enum Cleared {
    /// It was judged.
    Permit(Permit),
    /// It meets no seam.
    Ungated(Ungated),
}

impl Cleared {
    /// The same request under a progress token of this host's, where one upstream serves several clients whose
    /// tokens may be the same (ruling R10). The token belongs to no judged part.
    pub(crate) fn with_progress_token(self, token: u64) -> Self {
        let renamed = |request: Request| {
            let params = request.params().unwrap_or("{}");
            let meta = object::member(params, "_meta").unwrap_or("{}");
            let meta = object::with_member(meta, "progressToken", Some(&token.to_string()));
            request.with_param("_meta", Some(&meta))
        };
        match self {
            Self::Permit(permit) => Self::Permit(Permit {
                request: renamed(permit.request),
                ..permit
            }),
            Self::Ungated(ungated) => Self::Ungated(Ungated {
                request: renamed(ungated.request),
            }),
        }
    }

    /// The line to forward, under the id `id`.
    pub(crate) fn into_line(self, id: u64) -> Bytes {
        match self {
            Self::Permit(permit) => permit.into_line(id),
            Self::Ungated(ungated) => ungated.into_line(id),
        }
    }
}

/// A notification or a response that may go upstream.
#[derive(Debug)]
pub struct Relay {
    line: Bytes,
    /// The request of this host that it takes back, if it does.
    cancels: Option<u64>,
}

impl Relay {
    /// A client's notification, when the closed list of its era lets it pass as it is.
    #[must_use]
    pub fn notification(notification: &Notification, era: Era) -> Option<Self> {
        match client_notification(notification.method(), era) {
            ClientNotification::Initialized | ClientNotification::Passes => Some(Self {
                line: notification.to_line(),
                cancels: None,
            }),
            ClientNotification::Cancelled | ClientNotification::Dropped => None,
        }
    }

    /// The client's cancellation of a call that is in flight upstream under the id `upstream_id`.
    #[must_use]
    pub fn cancellation(notification: &Notification, era: Era, upstream_id: u64) -> Option<Self> {
        match client_notification(notification.method(), era) {
            ClientNotification::Cancelled => {
                let mapped = notification.with_param("requestId", Some(&upstream_id.to_string()));
                Some(Self {
                    line: mapped.to_line(),
                    cancels: Some(upstream_id),
                })
            }
            ClientNotification::Initialized | ClientNotification::Passes | ClientNotification::Dropped => {
                None
            }
        }
    }

    /// This host's own cancellation of a call that ran out of time.
    pub(crate) fn own_cancellation(upstream_id: u64, reason: &str) -> Self {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":{upstream_id},\"reason\":{}}}}}\n",
            object::quote(reason)
        );
        Self {
            line: Bytes::from(line),
            cancels: Some(upstream_id),
        }
    }

    /// The client's answer to a request that this host relayed from the upstream under `upstream_id_raw`.
    #[must_use]
    pub(crate) fn response(response: &Response, upstream_id_raw: &str) -> Self {
        Self {
            line: response.to_upstream(upstream_id_raw),
            cancels: None,
        }
    }

    /// This host's own error for a request of the upstream that it does not relay.
    pub(crate) fn own_error(upstream_id_raw: &str, code: i64, message: &str) -> Self {
        let line = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":{upstream_id_raw},\"error\":{{\"code\":{code},\"message\":{}}}}}\n",
            object::quote(message)
        );
        Self {
            line: Bytes::from(line),
            cancels: None,
        }
    }

    /// The line to send, and the request of this host that it takes back.
    pub(crate) fn into_parts(self) -> (Bytes, Option<u64>) {
        (self.line, self.cancels)
    }
}
