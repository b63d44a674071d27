//! Wall time and random bytes, injected, so that a test can fix both.
//!
//! Spans of time are `tokio::time::Instant` and never come from here.

use std::fmt;

/// Where wall time and random bytes come from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Milliseconds since 1970-01-01T00:00:00Z.
    fn now_unix_ms(&self) -> u64;

    /// Fills `bytes` from a cryptographic source.
    ///
    /// # Errors
    ///
    /// [`RandomUnavailable`] when the operating system gives none; whoever asked must refuse.
    fn random(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable>;
}

/// The operating system gave no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the operating system gave no random bytes")]
pub struct RandomUnavailable;

/// The clock and the random source of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads wall time")]
    fn now_unix_ms(&self) -> u64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), RandomUnavailable> {
        getrandom::fill(bytes).map_err(|_| RandomUnavailable)
    }
}
