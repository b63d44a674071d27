//! The table of methods: which seam each one meets (semantics section 2).

use super::era::Era;
use crate::decision::Seam;

/// Where a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// It meets no seam.
    Lifecycle(Lifecycle),
    /// It meets exactly one seam.
    Gated {
        /// The seam.
        seam: Seam,
        /// Whether its method stands in the table; one that does not needs a reads chain to pass at all.
        listed: bool,
    },
}

/// The requests that meet no seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifecycle {
    /// `initialize`.
    Initialize,
    /// `server/discover`.
    Discover,
    /// `ping`.
    Ping,
    /// `logging/setLevel`.
    SetLevel,
}

/// Where a request with this method goes. Names are compared byte for byte.
#[must_use]
pub fn route(method: &str) -> Route {
    match method {
        "initialize" => Route::Lifecycle(Lifecycle::Initialize),
        "server/discover" => Route::Lifecycle(Lifecycle::Discover),
        "ping" => Route::Lifecycle(Lifecycle::Ping),
        "logging/setLevel" => Route::Lifecycle(Lifecycle::SetLevel),
        "tools/call" => Route::Gated {
            seam: Seam::Tools,
            listed: true,
        },
        "resources/read"
        | "resources/subscribe"
        | "resources/unsubscribe"
        | "resources/list"
        | "resources/templates/list"
        | "resources/directory/read"
        | "prompts/list"
        | "prompts/get"
        | "tools/list"
        | "completion/complete"
        | "subscriptions/listen"
        | "tasks/get"
        | "tasks/result"
        | "tasks/list"
        | "tasks/cancel"
        | "tasks/update"
        | "skills/list"
        | "skills/get" => Route::Gated {
            seam: Seam::Reads,
            listed: true,
        },
        _ => Route::Gated {
            seam: Seam::Reads,
            listed: false,
        },
    }
}

/// What happens to a client's notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientNotification {
    /// `notifications/initialized`: passes.
    Initialized,
    /// `notifications/cancelled`: passes when it names a request in flight.
    Cancelled,
    /// Passes as it is.
    Passes,
    /// Dropped and counted: every other one, a request's method without an id among them.
    Dropped,
}

/// The closed list of notifications that a client may send on stdio.
#[must_use]
pub fn client_notification(method: &str, era: Era) -> ClientNotification {
    match (era, method) {
        (Era::Handshake | Era::Stateless, "notifications/cancelled") => ClientNotification::Cancelled,
        (Era::Handshake, "notifications/initialized") => ClientNotification::Initialized,
        (
            Era::Handshake,
            "notifications/progress" | "notifications/roots/list_changed" | "notifications/tasks/status",
        ) => ClientNotification::Passes,
        (Era::Handshake | Era::Stateless, _) => ClientNotification::Dropped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        for near in [
            "tools/call ",
            "Tools/call",
            "tools/call\0",
            "tools/Call",
            "",
            "tools",
        ] {
            assert_eq!(
                Route::Gated {
                    seam: Seam::Reads,
                    listed: false
                },
                route(near),
                "{near:?}"
            );
        }
    }

    #[test]
    fn a_request_method_is_no_notification() {
        for method in [
            "tools/call",
            "initialize",
            "ping",
            "notifications/initialized/../tools/call",
        ] {
            for era in [Era::Handshake, Era::Stateless] {
                assert_eq!(ClientNotification::Dropped, client_notification(method, era));
            }
        }
    }
}
