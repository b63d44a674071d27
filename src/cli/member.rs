//! Members of a JSON object that this program did not make: an audit record, a gate's answer.
//!
//! INVARIANT: a text comes out of here escaped, because whoever wrote it may be a stranger.

use serde_json::Value;

use super::shown;

/// The text of a member, escaped; empty when there is none.
pub(super) fn text(object: &Value, name: &str) -> String {
    shown(object.get(name).and_then(Value::as_str).unwrap_or_default())
}

/// The number of a member; 0 when there is none.
pub(super) fn number(object: &Value, name: &str) -> u64 {
    object.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// The elements of a member; none when it is no array.
pub(super) fn elements<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    object.get(name).and_then(Value::as_array).into_iter().flatten()
}
