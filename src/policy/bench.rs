//! How long a policy takes: many judgements of one call, as `gatewright bench` shows them.

use std::num::NonZeroUsize;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use super::judge::Failure;
use super::load::Policy;
use crate::decision::{Decision, Fault};
use crate::seam::Call;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Threads that judge at the same time.
    pub threads: NonZeroUsize,
    /// Judgements of each thread. A tenth as many run before, and do not count.
    pub calls: NonZeroUsize,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// What the policy answered the first time.
    pub answer: Result<Decision, (Fault, String)>,
    /// Judgements that ended otherwise than the first one.
    pub others: usize,
    /// The time of each judgement, the shortest first. Never empty.
    times: Vec<Duration>,
    /// Judgements in each second, all threads together.
    pub per_second: f64,
}

impl Report {
    /// The time that so many of a thousand judgements stayed within: 500 is the median, 990 what
    /// only one of a hundred took longer than, 1000 the longest.
    #[must_use]
    pub fn within(&self, of_a_thousand: usize) -> Duration {
        let last = self.times.len().saturating_sub(1);
        let at = last.saturating_mul(of_a_thousand).div_ceil(1000).min(last);
        self.times.get(at).copied().unwrap_or_default()
    }

    /// How many judgements were measured.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.times.len()
    }
}

/// Judges `call` again and again, on threads of its own. Blocks until that is done.
///
/// # Errors
///
/// When the system gives no runtime, or a thread panicked.
pub fn run(policy: &Policy, call: &Call<'_>, effort: Effort) -> std::io::Result<Report> {
    let start = Barrier::new(effort.threads.get());
    let measured: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..effort.threads.get())
            .map(|_| scope.spawn(|| judge(policy, call, effort.calls.get(), &start)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(std::io::Error::other("a thread panicked")))
            })
            .collect::<std::io::Result<_>>()
    })?;
    let longest = measured.iter().map(|run| run.time).max().unwrap_or_default();
    let answer = measured.first().map(|run| run.answer.clone());
    let answer = answer.unwrap_or_else(|| Err((Fault::Internal, "nothing was measured".to_owned())));
    let others = measured
        .iter()
        .map(|run| {
            if run.answer == answer {
                run.others
            } else {
                run.times.len()
            }
        })
        .sum();
    let mut times: Vec<Duration> = measured.into_iter().flat_map(|run| run.times).collect();
    times.sort_unstable();
    let calls = u32::try_from(times.len()).unwrap_or(u32::MAX);
    Ok(Report {
        answer,
        others,
        times,
        per_second: f64::from(calls) / longest.as_secs_f64().max(f64::MIN_POSITIVE),
    })
}

/// What one thread measured.
struct Run {
    answer: Result<Decision, Failure>,
    others: usize,
    times: Vec<Duration>,
    time: Duration,
}

#[expect(clippy::disallowed_methods, reason = "measures real work")]
fn judge(policy: &Policy, call: &Call<'_>, calls: usize, start: &Barrier) -> std::io::Result<Run> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    // Everybody comes this far, so that nobody waits for one that failed.
    let warm = runtime.map(|runtime| {
        let (answer, _) = runtime.block_on(policy.decide(call));
        for _ in 0..calls / 10 {
            drop(runtime.block_on(policy.decide(call)));
        }
        (runtime, answer)
    });
    start.wait();
    let (runtime, answer) = warm?;
    let begun = Instant::now();
    let mut times = Vec::with_capacity(calls);
    let mut others = 0;
    for _ in 0..calls {
        let start = Instant::now();
        let (decision, _) = runtime.block_on(policy.decide(call));
        times.push(start.elapsed());
        others += usize::from(decision != answer);
    }
    Ok(Run {
        answer,
        others,
        times,
        time: begun.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares() {
        let report = Report {
            answer: Ok(Decision::Allow),
            others: 0,
            times: (1..=200).map(Duration::from_micros).collect(),
            per_second: 0.0,
        };
        let within = |share| u64::try_from(report.within(share).as_micros()).unwrap();
        assert_eq!([1, 101, 199, 200, 200], [0, 500, 990, 1000, 2000].map(within));
        assert_eq!(200, report.calls());
    }
}
