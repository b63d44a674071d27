//! The seam: where a request meets a policy.
//!
//! A chain of policies is anything that implements [`Authorizer`]; the rest of the host knows
//! nothing else about policies.
//!
//! Invariant: no I/O here, and no word about transports or WebAssembly.
//! Invariant: an authorizer always concludes; a fault inside it is a denial (semantics section 4).

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;

use crate::decision::{Fault, Kind, Seam, Verdict};
use crate::vocabulary::Digest;

/// One request as a policy sees it. Every text is exactly what arrived, JSON as raw text.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The seam that the request met.
    pub seam: Seam,
    /// The tool's name, or on the reads seam the method.
    pub name: &'a str,
    /// The arguments as one JSON object, byte for byte as they will be forwarded.
    pub args_json: &'a str,
    /// What else a policy may know.
    pub context: Context<'a>,
}

/// What a policy is told beside the name and the arguments: the record `context` of the WIT contract.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The upstream's configured name.
    pub server: &'a str,
    /// Opaque session id, empty where the protocol has no sessions.
    pub session: &'a str,
    /// `stdio`, `http` or `embedded`.
    pub transport: &'a str,
    /// The negotiated revision of MCP, empty when not known yet.
    pub protocol_version: &'a str,
    /// What the client says of itself: untrusted.
    pub client_json: &'a str,
    /// The authenticated subject, none on stdio.
    pub principal: Option<&'a str>,
    /// Verified claims, `{}` without a principal.
    pub claims_json: &'a str,
    /// The tool as the upstream lists it: the upstream's claim. Empty if unknown or on reads.
    pub tool_json: &'a str,
    /// Every other member of `params` that will reach the upstream, `{}` if none (ruling R21).
    pub extra_json: &'a str,
    /// The one clock reading of this decision, in milliseconds since 1970.
    pub now_unix_ms: u64,
}

/// One entry of a list, as the upstream has it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What it is called: the name, the URI or the template.
    pub name: &'a str,
    /// The whole entry, raw: the upstream's claim.
    pub json: &'a str,
}

/// A list that a caller asked for, or one page of it.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// What the entries are.
    pub kind: Kind,
    /// The entries, in order.
    pub entries: &'a [Entry<'a>],
    /// Who asked. The texts about one tool and one request are empty.
    pub context: Context<'a>,
}

/// Which entries of a list are shown, in their order; or how it failed to be said, and then the list is refused.
/// Dropping it cancels it.
pub type Showing<'a> = Pin<Box<dyn Future<Output = Result<Vec<bool>, Fault>> + Send + 'a>>;

/// A judgement in progress. Dropping it cancels it and leaves nothing behind.
pub type Judgement<'a> = Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;

/// Judges the requests of one seam.
pub trait Authorizer: Send + Sync + fmt::Debug {
    /// Judges one call. Called concurrently, once per attempt, and never retried.
    fn judge<'a>(&'a self, call: &'a Call<'a>) -> Judgement<'a>;

    /// The revision that would judge now.
    fn revision(&self) -> Digest;

    /// Says which entries of a list are shown. One answer for the whole list, by one revision.
    fn show<'a>(&'a self, listing: &'a Listing<'a>) -> Showing<'a>;

    /// What decides which entries are shown; none while every one is. It changes with the policies.
    fn hiding(&self) -> watch::Receiver<Option<Digest>>;
}

/// What guards one seam.
#[derive(Clone, Debug)]
pub enum Guard {
    /// No chain is configured. On stdio the process boundary is the guard (semantics section 2).
    Unset,
    /// A chain, possibly an empty one, which denies.
    Chain(Arc<dyn Authorizer>),
}

/// What guards both seams.
#[derive(Clone, Debug)]
pub struct Guards {
    /// Guards `tools/call`.
    pub tools: Guard,
    /// Guards everything else.
    pub reads: Guard,
}

impl Guards {
    /// The guard of one seam.
    #[must_use]
    pub fn of(&self, seam: Seam) -> &Guard {
        match seam {
            Seam::Tools => &self.tools,
            Seam::Reads => &self.reads,
        }
    }
}
