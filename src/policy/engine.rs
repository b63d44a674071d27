//! The engine: one compiler and one instance allocator for every policy, and the clock tick that
//! ends a guest which runs past its deadline.

use std::num::NonZeroUsize;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::Semaphore;
use wasmtime::{Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

use super::sandbox::State;
use super::ticker::{Ticker, Ticking};

/// The engine does not tell its version, so a test compares this with the lock file.
const VERSION: &str = "48.0.8";

/// Stack of one guest, in bytes.
const GUEST_STACK_BYTES_MAX: usize = 512 * 1024;

/// Stack of a judgement that can wait, kept and wiped instead of returned to the system, in bytes.
const STACK_KEPT_BYTES: usize = 64 * 1024;

/// Frames kept of the stack of a guest that trapped.
const BACKTRACE_FRAMES_MAX: usize = 16;

/// Sandboxes of failed judgements that may wait to be taken down, and hold their memory so long.
const RETIRED_MAX: usize = 8;

/// Core instances, memories and tables that one component may have. Real ones need many: a policy
/// in Python has 38 core modules and some 10 memories.
pub(super) const CORE_INSTANCES_MAX: u32 = 64;
pub(super) const MEMORIES_MAX: u32 = 16;
pub(super) const TABLES_MAX: u32 = 64;

/// What the engine reserves room for. No policy can have limits above these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Linear memory that one judgement may have, in bytes.
    pub memory_bytes_max: usize,
    /// Table elements that one judgement may have.
    pub table_elements_max: usize,
    /// Judgements that may run at the same time.
    pub judgements_max: u32,
    /// Memory kept from one judgement to the next instead of being returned to the system, in
    /// bytes; always wiped in between. Counts only where the kernel can find dirty pages.
    pub memory_kept_bytes: usize,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            memory_bytes_max: 64 * 1024 * 1024,
            table_elements_max: 100_000,
            judgements_max: 64,
            memory_kept_bytes: 16 * 1024 * 1024,
        }
    }
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The settings or the machine do not allow an engine.
    #[error("cannot set up the WebAssembly engine: {reason}")]
    Engine {
        /// What the engine said.
        reason: String,
    },
    /// One of the engine's two threads cannot be started.
    #[error("cannot start the thread that {purpose}")]
    Thread {
        /// What it is for.
        purpose: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Where the memory of an instance comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// From slots reserved at start-up; dirty pages are found by the kernel and wiped.
    PoolingWithPagemapScan,
    /// From slots reserved at start-up.
    Pooling,
    /// From the system, each time: this machine allows no reservation.
    OnDemand,
}

impl Allocation {
    /// The word for it in `check` and `status`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PoolingWithPagemapScan => "pooling with pagemap scan",
            Self::Pooling => "pooling",
            Self::OnDemand => "on demand",
        }
    }
}

/// Compiles policies and gives their judgements memory and a sense of time.
///
/// Owns two threads, one that advances the epoch and one that takes down the sandboxes of failed
/// judgements; dropping the last handle stops and joins both.
pub struct Engine {
    wasm: wasmtime::Engine,
    allocation: Allocation,
    settings: EngineSettings,
    /// Judgements that may wait inside a host call at the same time. The others hold a thread of
    /// the runtime from start to end, so their number is bounded by it.
    waiting: Semaphore,
    undertaker: Undertaker,
    ticker: Ticker,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("allocation", &self.allocation)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Display for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "wasmtime {}, memory {}",
            Self::version(),
            self.allocation.as_str()
        )
    }
}

impl Engine {
    /// Makes an engine and starts its ticker.
    ///
    /// Where the machine cannot reserve address space for a pool, instances get their memory from
    /// the system one by one: slower, and otherwise the same.
    ///
    /// # Errors
    ///
    /// [`EngineError`] when the settings contradict each other or the machine gives no thread.
    pub fn new(settings: &EngineSettings) -> Result<Arc<Self>, EngineError> {
        let (wasm, allocation) = pooled(settings).or_else(|error| {
            tracing::warn!(reason = %error, "no pool for policy instances; each gets its memory from the system");
            wasmtime::Engine::new(&hardened())
                .map(|wasm| (wasm, Allocation::OnDemand))
                .map_err(|error| EngineError::Engine { reason: format!("{error:#}") })
        })?;
        let ticker = Ticker::start(wasm.clone())?;
        let undertaker = Undertaker::start()?;
        // One half of the pool is for judgements that wait, so that these cannot starve the rest.
        let waiting = usize::try_from(settings.judgements_max / 2).unwrap_or(1).max(1);
        Ok(Arc::new(Self {
            wasm,
            allocation,
            settings: settings.clone(),
            waiting: Semaphore::new(waiting),
            undertaker,
            ticker,
        }))
    }

    /// The version of the WebAssembly engine.
    #[must_use]
    pub fn version() -> &'static str {
        VERSION
    }

    /// Where the memory of an instance comes from on this machine.
    #[must_use]
    pub fn allocation(&self) -> Allocation {
        self.allocation
    }

    /// What the engine reserves room for.
    #[must_use]
    pub fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    /// The engine itself.
    pub(super) fn wasm(&self) -> &wasmtime::Engine {
        &self.wasm
    }

    /// Where a judgement that may wait inside a host call takes its turn.
    pub(super) fn waiting(&self) -> &Semaphore {
        &self.waiting
    }

    /// Takes a sandbox down after the answer of its judgement has left: wiping all the memory that
    /// a failing guest may have used takes longer than a deadline may be missed by.
    pub(super) fn retire(&self, store: Store<State>) {
        self.undertaker.take(store);
    }

    /// Lets the epoch advance: without it no deadline holds.
    pub(super) fn ticking(&self) -> Ticking {
        self.ticker.ticking()
    }

    /// The number of ticks after which `span` has certainly passed.
    pub(super) fn ticks(span: Duration) -> u64 {
        // One more, because the current tick is already under way.
        u64::try_from(span.as_millis())
            .unwrap_or(u64::MAX - 1)
            .saturating_add(1)
    }
}

/// A configuration in which a guest can neither tell machines apart nor outlive its deadline.
///
/// What is off here is off by default as the engine is built for this host. It is said all the same,
/// because a crate beside it that builds the engine with more would turn it on.
fn hardened() -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .epoch_interruption(true)
        .cranelift_nan_canonicalization(true)
        .relaxed_simd_deterministic(true)
        .wasm_memory64(false)
        .wasm_features(wasmtime::WasmFeatures::THREADS, false)
        .wasm_shared_everything_threads(false)
        .wasm_gc(false)
        .wasm_stack_switching(false)
        .concurrency_support(false)
        .memory_init_cow(true)
        // What one guest left on a stack is gone before another one runs on it.
        .async_stack_zeroing(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES_MAX))
        .max_wasm_stack(GUEST_STACK_BYTES_MAX);
    config
}

fn pooled(settings: &EngineSettings) -> Result<(wasmtime::Engine, Allocation), wasmtime::Error> {
    let scan = PoolingAllocationConfig::is_pagemap_scan_available();
    let judgements = settings.judgements_max.max(2);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(judgements)
        .total_core_instances(judgements.saturating_mul(CORE_INSTANCES_MAX))
        // Half the judgements may wait and so pile up; that many can have all that they may. The
        // others are never more than the machine has threads.
        .total_memories(judgements.saturating_mul(MEMORIES_MAX / 2))
        .total_tables(judgements.saturating_mul(TABLES_MAX / 2))
        .total_stacks(judgements)
        .max_core_instances_per_component(CORE_INSTANCES_MAX)
        .max_memories_per_component(MEMORIES_MAX)
        .max_tables_per_component(TABLES_MAX)
        .max_memories_per_module(MEMORIES_MAX)
        .max_tables_per_module(MEMORIES_MAX)
        .max_memory_size(settings.memory_bytes_max)
        .table_elements(settings.table_elements_max)
        .max_component_instance_size(4 * 1024 * 1024)
        .max_core_instance_size(4 * 1024 * 1024)
        .async_stack_keep_resident(STACK_KEPT_BYTES)
        .pagemap_scan(Enabled::Auto);
    if scan {
        // Without the scan this is slower than giving the memory back.
        pool.linear_memory_keep_resident(settings.memory_kept_bytes)
            .table_keep_resident(64 * 1024);
    }
    let mut config = hardened();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    let allocation = if scan {
        Allocation::PoolingWithPagemapScan
    } else {
        Allocation::Pooling
    };
    wasmtime::Engine::new(&config).map(|engine| (engine, allocation))
}

/// The thread that takes down the sandboxes of failed judgements.
struct Undertaker {
    /// The thread ends when this is gone.
    stores: Option<mpsc::SyncSender<Store<State>>>,
    thread: Option<JoinHandle<()>>,
}

impl Undertaker {
    fn start() -> Result<Self, EngineError> {
        let (stores, retired) = mpsc::sync_channel(RETIRED_MAX);
        let thread = std::thread::Builder::new()
            .name("gatewright-undertaker".to_owned())
            .spawn(move || retired.into_iter().for_each(drop))
            .map_err(|source| EngineError::Thread {
                purpose: "takes sandboxes down",
                source,
            })?;
        Ok(Self {
            stores: Some(stores),
            thread: Some(thread),
        })
    }

    /// When too many wait already, whoever brings another one takes it down itself.
    fn take(&self, store: Store<State>) {
        if let Some(stores) = &self.stores {
            drop(stores.try_send(store));
        }
    }
}

impl Drop for Undertaker {
    fn drop(&mut self) {
        drop(self.stores.take());
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the thread that takes sandboxes down has panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_locked_one() {
        let locked = format!("name = \"wasmtime\"\nversion = \"{}\"\n", Engine::version());
        assert!(include_str!("../../Cargo.lock").contains(&locked), "{locked}");
    }

    #[test]
    fn a_deadline_never_ends_early() {
        assert_eq!(1, Engine::ticks(Duration::ZERO));
        assert_eq!(51, Engine::ticks(Duration::from_millis(50)));
        assert_eq!(u64::MAX, Engine::ticks(Duration::MAX));
    }

    #[test]
    fn the_threads_end_with_the_engine() {
        let engine = Engine::new(&EngineSettings::default()).unwrap();
        assert_eq!(1, Arc::strong_count(&engine));
        // Joins both: a thread that does not end hangs here.
        drop(engine);
    }

    #[test]
    fn an_impossible_pool_is_no_obstacle() {
        let settings = EngineSettings {
            judgements_max: u32::MAX,
            ..EngineSettings::default()
        };
        let engine = Engine::new(&settings).unwrap();
        assert_eq!(Allocation::OnDemand, engine.allocation());
    }
}
