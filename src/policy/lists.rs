//! What a chain shows of a list: every entry that no policy of it hides.
//!
//! A policy that does not say whether an entry is shown loses the whole list: neither what it would hide may be
//! seen, nor may anything be hidden that nobody hid.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::chain::Member;
use super::judge::caught;
use super::text::escaped;
use crate::decision::{Fault, Kind, Mode};
use crate::seam::{Context, Entry, Listing};
use crate::vocabulary::Digest;

/// How long all policies together may take for one list, or one page of it. Past it: `policy_timeout`. Each answer
/// for one entry has the deadline of a judgement besides.
pub const LIST_DEADLINE: Duration = Duration::from_secs(2);

/// Text of a fault in the log, in bytes.
const DETAIL_BYTES_MAX: usize = 4096;

/// One entry of a list, as a policy is asked about it.
#[derive(Clone, Copy, Debug)]
pub struct Viewing<'a> {
    /// What it is.
    pub kind: Kind,
    /// What it is called.
    pub name: &'a str,
    /// Who asks, and the whole entry: one JSON object.
    pub ctx_json: &'a str,
    /// The one clock reading of this list, in milliseconds since 1970.
    pub now_unix_ms: u64,
}

/// Whether this policy hides entries. One that only observes hides nothing.
pub(super) fn hides(member: &dyn Member) -> bool {
    match member.mode() {
        Mode::Enforce => member.hides(),
        Mode::Observe => false,
    }
}

/// Digest over everything that decides what is shown; none when everything is.
pub(super) fn revision(members: &[Arc<dyn Member>]) -> Option<Digest> {
    let hiding = members.iter().filter(|member| hides(member.as_ref()));
    let identities: Vec<Digest> = hiding.map(|member| member.identity()).collect();
    let parts = identities.iter().map(|identity| identity.as_bytes().as_slice());
    (!identities.is_empty()).then(|| Digest::of_parts(parts))
}

/// Which entries are shown, in their order.
pub(super) async fn shown(members: &[Arc<dyn Member>], listing: &Listing<'_>) -> Result<Vec<bool>, Fault> {
    let hiding: Vec<&dyn Member> = members
        .iter()
        .map(AsRef::as_ref)
        .filter(|member| hides(*member))
        .collect();
    let all = timeout(LIST_DEADLINE, each(&hiding, listing)).await;
    all.unwrap_or_else(|_elapsed| {
        let (entries, ms) = (listing.entries.len(), LIST_DEADLINE.as_millis());
        tracing::warn!(
            entries,
            code = Fault::Timeout.code().as_str(),
            "the policies did not say within {ms} ms what a list shows"
        );
        Err(Fault::Timeout)
    })
}

async fn each(hiding: &[&dyn Member], listing: &Listing<'_>) -> Result<Vec<bool>, Fault> {
    let who = who(listing);
    let mut shown = Vec::with_capacity(listing.entries.len());
    for entry in listing.entries {
        shown.push(one(hiding, listing, entry, &who).await?);
        // A long list must hold up the others of this thread no longer than one judgement does.
        tokio::task::yield_now().await;
    }
    Ok(shown)
}

/// Whether every policy shows the entry.
async fn one(
    hiding: &[&dyn Member],
    listing: &Listing<'_>,
    entry: &Entry<'_>,
    who: &str,
) -> Result<bool, Fault> {
    let ctx_json = format!(r#"{who},"entry-json":{}}}"#, entry.json);
    let viewing = Viewing {
        kind: listing.kind,
        name: entry.name,
        ctx_json: &ctx_json,
        now_unix_ms: listing.context.now_unix_ms,
    };
    for member in hiding {
        match caught(member.shows(viewing)).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err((fault, detail)) => {
                let detail = escaped(detail.as_bytes(), DETAIL_BYTES_MAX);
                tracing::warn!(
                    policy = member.name(),
                    code = fault.code().as_str(),
                    "the policy did not say whether an entry of a list is shown: {detail}"
                );
                return Err(fault);
            }
        }
    }
    Ok(true)
}

/// Who asks, as a JSON object without its end. Members are named as in the contract's `context`; those that end in
/// `-json` hold JSON, not text.
fn who(listing: &Listing<'_>) -> String {
    let Context {
        server,
        session,
        transport,
        protocol_version,
        client_json,
        principal,
        claims_json,
        now_unix_ms,
        ..
    } = listing.context;
    let texts = [
        ("seam", Some(listing.kind.seam().as_str())),
        ("server", Some(server)),
        ("session", Some(session)),
        ("transport", Some(transport)),
        ("protocol-version", Some(protocol_version)),
        ("principal", principal),
    ];
    let mut who = format!(r#"{{"now-unix-ms":{now_unix_ms}"#);
    for (name, text) in texts {
        if let Some(text) = text {
            // Writing into a text cannot fail.
            let _infallible = write!(who, r#","{name}":{}"#, serde_json::Value::from(text));
        }
    }
    for (name, json) in [("client-json", client_json), ("claims-json", claims_json)] {
        if !json.is_empty() {
            let _infallible = write!(who, r#","{name}":{json}"#);
        }
    }
    who
}
