//! The sense of time of the engine: a thread that advances the epoch while anything runs that has a deadline.
//!
//! A gate that judges nothing for a while wakes nobody: people run many of them beside each other.
//!
//! INVARIANT (deadlines hold): every store of a guest holds a [`Ticking`], and while one lives the epoch
//! advances. Whoever makes one counts it and then looks whether the thread sleeps; the thread says that it
//! sleeps and then looks whether one is counted. So one of them sees the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use super::engine::EngineError;

/// How often the epoch advances. A deadline is met to within one tick.
const TICK: Duration = Duration::from_millis(1);

/// Ticks without anything that has a deadline, after which the thread sleeps.
const IDLE_TICKS: u32 = 100;

/// The thread that advances the epoch; it ends with this.
pub(super) struct Ticker {
    pace: Arc<Pace>,
    thread: Option<JoinHandle<()>>,
}

struct Pace {
    /// How many [`Ticking`] there are.
    counted: AtomicUsize,
    asleep: AtomicBool,
    stopped: AtomicBool,
    thread: OnceLock<Thread>,
}

/// Something with a deadline is there.
pub(super) struct Ticking(Arc<Pace>);

impl Ticker {
    pub(super) fn start(engine: wasmtime::Engine) -> Result<Self, EngineError> {
        let pace = Arc::new(Pace {
            counted: AtomicUsize::new(0),
            asleep: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            thread: OnceLock::new(),
        });
        let shared = Arc::clone(&pace);
        let thread = std::thread::Builder::new()
            .name("gatewright-ticker".to_owned())
            .spawn(move || shared.run(&engine))
            .map_err(|source| EngineError::Thread {
                purpose: "enforces deadlines",
                source,
            })?;
        Ok(Self {
            pace,
            thread: Some(thread),
        })
    }

    pub(super) fn ticking(&self) -> Ticking {
        self.pace.counted.fetch_add(1, Ordering::SeqCst);
        if self.pace.asleep.swap(false, Ordering::SeqCst) {
            self.pace.wake();
        }
        Ticking(Arc::clone(&self.pace))
    }
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.0.counted.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.pace.stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread that enforces deadlines has panicked");
            }
        }
    }
}

impl Pace {
    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    fn run(&self, engine: &wasmtime::Engine) {
        // Set before the thread can sleep for the first time, so whoever wakes it finds it.
        self.thread.get_or_init(std::thread::current);
        while !self.stopped.load(Ordering::SeqCst) {
            self.tick_until_idle(engine);
            self.asleep.store(true, Ordering::SeqCst);
            if self.counted.load(Ordering::SeqCst) == 0 && !self.stopped.load(Ordering::SeqCst) {
                // Waking for no reason costs a few ticks and nothing else.
                std::thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "deadlines of guests are real time, whatever a test does to tokio's clock"
    )]
    fn tick_until_idle(&self, engine: &wasmtime::Engine) {
        let start = std::time::Instant::now();
        let (mut ticks, mut idle) = (0, 0);
        while idle < IDLE_TICKS && !self.stopped.load(Ordering::SeqCst) {
            std::thread::park_timeout(TICK);
            // Each wait is a little too long. Counting from the start keeps that from adding up.
            let due = start.elapsed().as_millis() / TICK.as_millis();
            while ticks < due {
                engine.increment_epoch();
                ticks += 1;
            }
            idle = if self.counted.load(Ordering::SeqCst) == 0 {
                idle + 1
            } else {
                0
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn engine() -> wasmtime::Engine {
        wasmtime::Engine::new(wasmtime::Config::new().epoch_interruption(true)).unwrap()
    }

    #[expect(clippy::disallowed_methods, reason = "the thread keeps real time")]
    fn eventually(holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < Duration::from_secs(20), "it never holds");
            std::thread::yield_now();
        }
    }

    /// Whether a guest that never ends is cut.
    fn cuts(ticker: &Ticker, engine: &wasmtime::Engine) -> bool {
        let _ticking = ticker.ticking();
        let endless = wat::parse_str("(module (start 0) (func (loop (br 0))))").unwrap();
        let module = wasmtime::Module::new(engine, endless).unwrap();
        let mut store = wasmtime::Store::new(engine, ());
        store.set_epoch_deadline(5);
        wasmtime::Instance::new(&mut store, &module, &[]).is_err()
    }

    #[test]
    fn it_sleeps_when_nothing_runs_and_wakes_in_time() {
        let engine = engine();
        let ticker = Ticker::start(engine.clone()).unwrap();
        for _ in 0..3 {
            eventually(|| ticker.pace.asleep.load(Ordering::SeqCst));
            assert!(cuts(&ticker, &engine));
        }
        let held = ticker.ticking();
        assert!(
            cuts(&ticker, &engine),
            "it counts, and does not only remember the last one"
        );
        drop(held);
        eventually(|| ticker.pace.asleep.load(Ordering::SeqCst));
    }

    #[test]
    fn many_beginnings_and_ends_at_once_are_all_cut() {
        let engine = engine();
        let ticker = Ticker::start(engine.clone()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20).for_each(|_| assert!(cuts(&ticker, &engine))));
            }
        });
        assert_eq!(0, ticker.pace.counted.load(Ordering::SeqCst));
    }
}
