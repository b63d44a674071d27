//! What surrounds one guest: its limits, and a WASI in which there is nothing.
//!
//! Invariant: nothing of the host's environment, files, network, standard streams, time or
//! randomness is reachable from here without a grant.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use wasmtime::ResourceLimiter;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};
use wasmtime_wasi::{
    Deterministic, HostMonotonicClock, HostWallClock, ResourceTable, WasiCtx, WasiCtxBuilder, WasiCtxView,
    WasiView,
};

use super::engine::{CORE_INSTANCES_MAX, MEMORIES_MAX, TABLES_MAX};
use super::limits::{Grants, Limits};
use super::ticker::Ticking;

/// What a guest may write to an output stream at once, in bytes.
pub(super) const WRITE_BYTES_MAX: usize = 64 * 1024;

/// Where the monotonic clock stands without a grant, in nanoseconds. Not 0: the runtime of Go
/// takes that for a broken clock.
const MONOTONIC_NANOS: u64 = 1_000_000_000;

/// Resources of WASI that one judgement may hold. Past it the guest traps.
const HANDLES_MAX: usize = 1024;

/// What every random source yields over and over without a grant.
const RANDOM_BYTES: [u8; 16] = *b"not random at al";

/// Wall time while a guest is configured: 2000-01-01, the same on every machine and at every start.
pub(super) const CONFIGURE_UNIX_MS: u64 = 946_684_800_000;

/// Which part of its life an instance is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It starts and takes its configuration: nothing is granted, and time is the same always.
    Configuring,
    /// It judges, with its grants.
    Judging,
}

/// The state of one instance.
pub(super) struct State {
    pub(super) limiter: Limiter,
    pub(super) log: Log,
    log_bytes_max: usize,
    surroundings: Surroundings,
    /// Made when the guest first touches WASI: most never do.
    wasi: Option<Wasi>,
    /// A guest that runs has a deadline.
    _ticking: Ticking,
}

/// What there is to see through WASI.
struct Surroundings {
    phase: Phase,
    grants: Arc<Grants>,
    now_unix_ms: u64,
}

struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
}

impl State {
    pub(super) fn new(
        limits: &Limits,
        phase: Phase,
        grants: &Arc<Grants>,
        now_unix_ms: u64,
        ticking: Ticking,
    ) -> Self {
        let log_bytes_max = if grants.log { limits.log_bytes_max } else { 0 };
        let log = match phase {
            Phase::Configuring => Log::new(0),
            Phase::Judging => Log::new(log_bytes_max),
        };
        Self {
            limiter: Limiter::new(limits),
            log,
            log_bytes_max,
            surroundings: Surroundings {
                phase,
                grants: Arc::clone(grants),
                now_unix_ms,
            },
            wasi: None,
            _ticking: ticking,
        }
    }

    /// From here on the guest judges. What it holds of WASI it keeps.
    pub(super) fn configured(&mut self) {
        self.surroundings.phase = Phase::Judging;
        self.log.keep(self.log_bytes_max);
        if let Some(wasi) = &mut self.wasi {
            wasi.context = self.surroundings.context(&self.log);
        }
    }

    /// Whether the guest used anything of WASI.
    pub(super) fn used_wasi(&self) -> bool {
        self.wasi.is_some()
    }

    /// Whether the guest holds anything of WASI: a stream, a pollable.
    pub(super) fn holds_handles(&self) -> bool {
        self.wasi.as_ref().is_some_and(|wasi| !wasi.table.is_empty())
    }
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let Self {
            log,
            surroundings,
            wasi,
            ..
        } = self;
        let wasi = wasi.get_or_insert_with(|| {
            let mut table = ResourceTable::new();
            table.set_max_capacity(HANDLES_MAX);
            Wasi {
                context: surroundings.context(log),
                table,
            }
        });
        WasiCtxView {
            ctx: &mut wasi.context,
            table: &mut wasi.table,
        }
    }
}

impl Surroundings {
    fn context(&self, log: &Log) -> WasiCtx {
        let nothing = Grants::default();
        let (grants, now_unix_ms) = match self.phase {
            Phase::Configuring => (&nothing, CONFIGURE_UNIX_MS),
            Phase::Judging => (&*self.grants, self.now_unix_ms),
        };
        // No arguments, no directory, standard input at its end: all by default.
        let mut builder = WasiCtxBuilder::new();
        builder
            .stdout(log.clone())
            .stderr(log.clone())
            .allow_tcp(false)
            .allow_udp(false)
            .allow_ip_name_lookup(false)
            .max_random_size(64 * 1024);
        for (name, value) in grants.env.iter() {
            builder.env(name, value);
        }
        if !grants.clock {
            builder
                .wall_clock(Standing(Duration::from_millis(now_unix_ms)))
                .monotonic_clock(Standing(Duration::from_nanos(MONOTONIC_NANOS)));
        }
        if !grants.random {
            builder
                .secure_random(Deterministic::new(RANDOM_BYTES.to_vec()))
                .insecure_random(Deterministic::new(RANDOM_BYTES.to_vec()))
                .insecure_random_seed(u128::from_be_bytes(RANDOM_BYTES));
        }
        builder.build()
    }
}

/// A clock that stands still.
struct Standing(Duration);

impl HostWallClock for Standing {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        self.0
    }
}

impl HostMonotonicClock for Standing {
    fn resolution(&self) -> u64 {
        1_000_000
    }

    fn now(&self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Says no to growth past a limit, and remembers that it did.
#[derive(Debug)]
pub(super) struct Limiter {
    memory_bytes_left: usize,
    table_elements_left: usize,
    refused: Option<String>,
}

impl Limiter {
    fn new(limits: &Limits) -> Self {
        Self {
            memory_bytes_left: limits.memory_bytes_max,
            table_elements_left: limits.table_elements_max,
            refused: None,
        }
    }

    /// How much memory there may still be, in bytes.
    pub(super) fn left(&self) -> usize {
        self.memory_bytes_left
    }

    /// Gives more memory than the limit, for what is not the guest's own doing.
    pub(super) fn spare(&mut self, bytes: usize) {
        self.memory_bytes_left = self.memory_bytes_left.saturating_add(bytes);
    }

    /// What was refused, if anything ever was: then the judgement is lost (ruling G5).
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    fn granted(&mut self, taken: Result<(), String>) -> bool {
        let granted = taken.is_ok();
        if let Err(refused) = taken {
            tracing::debug!(refused, "a policy was refused room");
            self.refused = Some(refused);
        }
        granted
    }
}

/// Takes `more` of what is left, or says why not.
fn take(left: &mut usize, more: usize, what: &str) -> Result<(), String> {
    let rest = left
        .checked_sub(more)
        .ok_or_else(|| format!("{more} more {what} were asked for, and the limit leaves {left}"))?;
    *left = rest;
    Ok(())
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, wasmtime::Error> {
        let more = desired.saturating_sub(current);
        let taken = take(&mut self.memory_bytes_left, more, "bytes of memory");
        Ok(self.granted(taken))
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> Result<bool, wasmtime::Error> {
        let more = desired.saturating_sub(current);
        let taken = take(&mut self.table_elements_left, more, "table elements");
        Ok(self.granted(taken))
    }

    fn instances(&self) -> usize {
        usize::try_from(CORE_INSTANCES_MAX).unwrap_or(usize::MAX)
    }

    fn tables(&self) -> usize {
        usize::try_from(TABLES_MAX).unwrap_or(usize::MAX)
    }

    fn memories(&self) -> usize {
        usize::try_from(MEMORIES_MAX).unwrap_or(usize::MAX)
    }
}

/// What a guest wrote to its standard output and error: the beginning of it, and how much more
/// there was (ruling G1). Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Log(Arc<Mutex<Written>>);

/// The contents of a [`Log`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// The beginning.
    pub(super) bytes: Vec<u8>,
    /// Bytes dropped after it.
    pub(super) dropped: u64,
    bytes_max: usize,
}

impl Log {
    fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Written {
            bytes_max,
            ..Written::default()
        })))
    }

    /// Takes out what was written so far.
    pub(super) fn take(&self) -> Written {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = Written {
            bytes_max: written.bytes_max,
            ..Written::default()
        };
        std::mem::replace(&mut written, fresh)
    }

    /// From here on keeps so many bytes.
    fn keep(&self, bytes_max: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes_max = bytes_max;
    }

    fn append(&self, bytes: &[u8]) {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = written.bytes_max.saturating_sub(written.bytes.len());
        let (kept, dropped) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        written.bytes.extend_from_slice(kept);
        written.dropped = written.dropped.saturating_add(dropped.len() as u64);
    }
}

impl IsTerminal for Log {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Log {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        // Preview 2 takes the stream below. This one is for interfaces that are never linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Log {
    async fn ready(&mut self) {}
}

impl OutputStream for Log {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.append(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_keeps_the_beginning_and_counts_the_rest() {
        let log = Log::new(4);
        log.append(b"ab");
        log.append(b"cdef");
        log.append(b"g");
        let written = log.take();
        assert_eq!(
            (b"abcd".as_slice(), 3),
            (written.bytes.as_slice(), written.dropped)
        );
        log.append(b"xyz");
        assert_eq!(b"xyz".as_slice(), log.take().bytes);
    }

    #[test]
    fn limits_count_all_memories_and_tables_together() {
        let mut limiter = Limiter::new(&Limits {
            memory_bytes_max: 100,
            table_elements_max: 10,
            ..Limits::default()
        });
        let mut grows = |current, desired| limiter.memory_growing(current, desired, None).unwrap();
        assert!(grows(0, 60));
        assert!(grows(0, 40));
        assert!(!grows(40, 41));
        assert_eq!(
            Some("1 more bytes of memory were asked for, and the limit leaves 0"),
            limiter.refused()
        );

        let mut limiter = Limiter::new(&Limits {
            table_elements_max: 10,
            ..Limits::default()
        });
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert_eq!(None, limiter.refused());
        assert!(!limiter.table_growing(10, 11, None).unwrap());
        assert!(limiter.refused().is_some());
    }
}
