//! The admin address: is the gate alive, does it serve, what has it counted, what is in force.
//!
//! Everything here is read only, and on an address of its own, which is not for clients.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::door::http::{AllowList, HttpDoor};
use crate::host::control::status_json;
use crate::host::metrics::Metrics;
use crate::policy::reload::Board;

/// What the admin address shows.
#[derive(Clone, Debug)]
pub struct Admin {
    /// How the guarded servers are called.
    pub server: String,
    /// What is in force.
    pub board: Board,
    /// What was counted.
    pub metrics: Arc<Metrics>,
    /// The door, which must be open.
    pub door: Arc<HttpDoor>,
    /// Who may be spoken to.
    pub allow: AllowList,
    /// Cancelled when the gate stops.
    pub stop: CancellationToken,
}

const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Admin {
    /// Serves until `over`, which comes after the stop: whoever looks after the gate sees that it stops.
    pub async fn serve(self, listener: TcpListener, over: CancellationToken) {
        let router = Router::new()
            .route("/healthz", get(|| async { "ok\n" }))
            .route("/readyz", get(ready))
            .route("/metrics", get(metrics))
            .route("/status", get(status))
            .layer(axum::middleware::from_fn_with_state(self.clone(), only_named))
            .with_state(self);
        let served = axum::serve(listener, router).with_graceful_shutdown(over.cancelled_owned());
        if let Err(error) = served.await {
            tracing::error!(%error, "the admin address is served no more");
        }
    }
}

/// A page in a browser must not read this through a name of its own.
async fn only_named(
    State(admin): State<Admin>,
    headers: HeaderMap,
    request: axum::extract::Request,
    next: axum::middleware::Next,
) -> Response {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    if host.is_some_and(|host| admin.allow.takes(host)) {
        next.run(request).await
    } else {
        (
            StatusCode::FORBIDDEN,
            "this `Host` is not one of the admin address\n",
        )
            .into_response()
    }
}

/// Whether clients are served: not before the door is open, and not once the gate stops.
async fn ready(State(admin): State<Admin>) -> Response {
    if admin.stop.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response();
    }
    "ready\n".into_response()
}

async fn metrics(State(admin): State<Admin>) -> Response {
    let text = admin.metrics.text(&admin.board.read(), &admin.door.counts());
    ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response()
}

async fn status(State(admin): State<Admin>) -> Response {
    let status = status_json(&admin.server, &admin.board.read());
    ([(CONTENT_TYPE, "application/json")], format!("{status}\n")).into_response()
}
