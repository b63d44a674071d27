//! What is looked at before a body is read: who is spoken to, from which page, and in which form
//! (ruling R20: limits, Host, Origin, principal, content type).

use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::{HeaderMap, StatusCode, Uri};

/// Which hosts and origins a listener takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowList {
    /// Names that `Host` may have, without a port, in lower case.
    pub hosts: Vec<String>,
    /// Origins that a page may have, beside those of loopback names when a host here is one.
    pub origins: Vec<String>,
}

/// The names of this machine itself.
pub const LOOPBACK_NAMES: &[&str] = &["localhost", "127.0.0.1", "[::1]"];

/// Why a request is turned away before its body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnedAway {
    pub(super) status: StatusCode,
    pub(super) why: &'static str,
}

impl AllowList {
    /// Checks `Host` and `Origin`, so that a page in a browser cannot speak to a gate behind its back.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), TurnedAway> {
        let forbidden = |why| TurnedAway {
            status: StatusCode::FORBIDDEN,
            why,
        };
        let host = match uri.authority() {
            Some(authority) => Some(authority.as_str().to_owned()),
            None => single(headers, &HOST)
                .map_err(|()| forbidden("there is more than one `Host`, or it is not readable"))?,
        };
        let host = host.ok_or_else(|| forbidden("there is no `Host`"))?;
        if !self.takes_host(without_port(&host)) {
            return Err(forbidden(
                "this `Host` is not one of the listener's; see `listen.hosts`",
            ));
        }
        match single(headers, &ORIGIN) {
            Ok(None) => Ok(()),
            Ok(Some(origin)) if self.takes_origin(&origin) => Ok(()),
            Ok(Some(_)) | Err(()) => Err(forbidden(
                "this `Origin` is not one of the listener's; see `listen.origins`",
            )),
        }
    }

    /// Whether a `Host` header names one of the hosts.
    #[must_use]
    pub fn takes(&self, host: &str) -> bool {
        self.takes_host(without_port(host))
    }

    fn takes_host(&self, host: &str) -> bool {
        self.hosts.iter().any(|taken| taken.eq_ignore_ascii_case(host))
    }

    fn takes_origin(&self, origin: &str) -> bool {
        if self
            .origins
            .iter()
            .any(|taken| taken.eq_ignore_ascii_case(origin))
        {
            return true;
        }
        let host = ["http://", "https://"]
            .iter()
            .find_map(|scheme| origin.strip_prefix(scheme))
            .map(without_port);
        host.is_some_and(|host| {
            LOOPBACK_NAMES.iter().any(|name| name.eq_ignore_ascii_case(host)) && self.takes_host(host)
        })
    }
}

/// The one value of a header; an error when there are several or it is no text.
fn single(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(|text| Some(text.to_owned())).map_err(|_| ()),
        (Some(_), Some(_)) => Err(()),
    }
}

fn without_port(host: &str) -> &str {
    let end_of_name = host.rfind(']').map_or(0, |bracket| bracket + 1);
    let rest = host.get(end_of_name..).unwrap_or_default();
    match rest.find(':') {
        Some(colon) => host.get(..end_of_name + colon).unwrap_or_default(),
        None => host,
    }
}

/// Whether the body says that it is JSON (ruling R26).
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let Ok(Some(value)) = single(headers, &CONTENT_TYPE) else {
        return false;
    };
    let essence = value.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The forms in which a client takes an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

/// What `Accept` says; a client that says nothing takes everything.
pub(super) fn accepts(headers: &HeaderMap) -> Accepts {
    let mut accepts = Accepts {
        json: false,
        events: false,
    };
    let mut said = false;
    for value in headers.get_all(ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            said = true;
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            if parts.any(|parameter| parameter.eq_ignore_ascii_case("q=0")) {
                continue;
            }
            accepts.json |= matches!(name.as_str(), "application/json" | "application/*" | "*/*");
            accepts.events |= matches!(name.as_str(), "text/event-stream" | "text/*" | "*/*");
        }
    }
    if said {
        return accepts;
    }
    Accepts {
        json: true,
        events: true,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn hosts_and_origins() {
        let list = AllowList {
            hosts: ["localhost", "127.0.0.1", "[::1]", "gate.example.com"]
                .map(str::to_owned)
                .to_vec(),
            origins: vec!["https://app.example.com".to_owned()],
        };
        let check = |expected: bool, pairs: &[(&'static str, &str)]| {
            let outcome = list.check(&Uri::from_static("/mcp"), &headers(pairs));
            assert_eq!(expected, outcome.is_ok(), "{pairs:?}: {outcome:?}");
        };
        check(true, &[("host", "localhost:8080")]);
        check(true, &[("host", "LOCALHOST")]);
        check(true, &[("host", "[::1]:8080")]);
        check(true, &[("host", "gate.example.com")]);
        check(false, &[]);
        check(false, &[("host", "evil.example.com")]);
        check(false, &[("host", "localhost.evil.example.com")]);
        check(false, &[("host", "localhost"), ("host", "localhost")]);
        check(
            true,
            &[("host", "localhost"), ("origin", "http://localhost:3000")],
        );
        check(
            true,
            &[("host", "localhost"), ("origin", "https://app.example.com")],
        );
        check(
            false,
            &[("host", "localhost"), ("origin", "http://app.example.com")],
        );
        check(false, &[("host", "localhost"), ("origin", "null")]);
        check(
            false,
            &[
                ("host", "localhost"),
                ("origin", "http://localhost.evil.example.com"),
            ],
        );
        check(
            false,
            &[
                ("host", "localhost"),
                ("origin", "http://localhost@evil.example.com"),
            ],
        );
        check(
            false,
            &[
                ("host", "localhost"),
                ("origin", "http://localhost"),
                ("origin", "http://localhost"),
            ],
        );
    }

    #[test]
    fn forms() {
        let both = Accepts {
            json: true,
            events: true,
        };
        assert_eq!(both, accepts(&headers(&[])));
        assert_eq!(
            both,
            accepts(&headers(&[("accept", "application/json, text/event-stream")]))
        );
        assert_eq!(
            both,
            accepts(&headers(&[
                ("accept", "application/json"),
                ("accept", "text/event-stream;q=0.5")
            ]))
        );
        assert_eq!(both, accepts(&headers(&[("accept", "*/*")])));
        assert_eq!(
            Accepts {
                json: true,
                events: false
            },
            accepts(&headers(&[("accept", "application/json, text/event-stream;q=0")]))
        );
        assert_eq!(
            Accepts {
                json: false,
                events: false
            },
            accepts(&headers(&[("accept", "text/html")]))
        );
        assert!(is_json(&headers(&[(
            "content-type",
            "Application/JSON; charset=utf-8"
        )])));
        assert!(!is_json(&headers(&[("content-type", "text/plain")])));
        assert!(!is_json(&headers(&[("content-type", "application/jsonp")])));
        assert!(!is_json(&headers(&[])));
    }
}
