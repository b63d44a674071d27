//! A call that no client made, with which a policy is tried before it comes into force.

use super::load::{LoadError, Policy};
use super::text::escaped;
use crate::decision::{Fault, Seam};
use crate::seam::{Call, Context};

/// The tool that is called, and the server that would have it.
const CANARY: &str = "gatewright/canary";

/// A policy that misses its deadline is tried this often: the machine may be busy with compiling it.
const TRIES: usize = 3;

/// Text kept of what went wrong, in bytes.
const REASON_BYTES_MAX: usize = 2048;

/// Whether the policy gives a decision, whichever. Blocks for as long as judging takes.
///
/// # Errors
///
/// [`LoadError::Silent`] says what came instead of one.
pub(super) fn decides(policy: &Policy, seam: Seam, now_unix_ms: u64) -> Result<(), LoadError> {
    // A thread of its own, because a runtime cannot be entered where the caller is in one.
    let tried = std::thread::scope(|scope| scope.spawn(|| tried(policy, &call(seam, now_unix_ms))).join());
    let tried = tried.unwrap_or_else(|_panic| Err("the host panicked while it was tried".to_owned()));
    tried.map_err(|reason| LoadError::Silent {
        policy: policy.name().to_owned(),
        seam,
        reason,
    })
}

fn tried(policy: &Policy, call: &Call<'_>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| format!("it cannot be tried: {error}"))?;
    let mut last = String::new();
    for _ in 0..TRIES {
        let (decided, _) = runtime.block_on(policy.decide(call));
        let Err((fault, detail)) = decided else {
            return Ok(());
        };
        let detail = escaped(detail.as_bytes(), REASON_BYTES_MAX);
        last = format!("{}: {detail}", fault.code().as_str());
        if fault != Fault::Timeout {
            break;
        }
    }
    Err(last)
}

fn call(seam: Seam, now_unix_ms: u64) -> Call<'static> {
    Call {
        seam,
        name: match seam {
            Seam::Tools => CANARY,
            Seam::Reads => "tools/list",
        },
        args_json: "{}",
        context: Context {
            server: CANARY,
            session: "",
            transport: "http",
            protocol_version: "",
            client_json: "",
            principal: None,
            claims_json: "{}",
            tool_json: "",
            extra_json: "{}",
            now_unix_ms,
        },
    }
}
