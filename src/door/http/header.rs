//! Reading headers: names without regard to case, values as bytes, repeated ones as several.

use axum::http::HeaderMap;
use axum::http::header::HeaderName;

use super::PROTOCOL_VERSION;
use crate::wire::era::{HANDSHAKE_REVISIONS, STATELESS_REVISIONS};

/// Every value of a header.
pub(super) fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .map(|value| value.as_bytes())
        .collect()
}

/// Every value of a header that is named by a text.
pub(super) fn named<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers
        .get_all(name)
        .iter()
        .map(|value| value.as_bytes())
        .collect()
}

/// The only value of a header, as text.
pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

/// The revision that the request says it is written in; empty when it says none that is known.
pub(super) fn revision(headers: &HeaderMap) -> &'static str {
    let named = text(headers, &PROTOCOL_VERSION);
    let mut known = HANDSHAKE_REVISIONS.iter().chain(STATELESS_REVISIONS);
    known
        .find(|known| Some(**known) == named)
        .copied()
        .unwrap_or_default()
}
