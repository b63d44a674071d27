//! Parked calls: the asks of the 2025 revisions.
//!
//! A session has one [`Questions`]. A call enters (limits), queues for its turn, registers its
//! question, sends it, and waits. Register, then send, then wait: an answer that comes at once finds
//! its question. State is freed by `Drop`.
//!
//! INVARIANT: a question is answered at most once; whoever removes it from the map closes it.
//! INVARIANT: a [`Questions`] belongs to one session, so another session's answer finds nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::{Answer, AskOutcome, AskSettings};
use crate::vocabulary::RandomId;

/// The open questions and parked calls of one session.
#[derive(Debug)]
pub struct Questions {
    open: Mutex<HashMap<RandomId, oneshot::Sender<Answer>>>,
    turns: Semaphore,
    parked: AtomicUsize,
    parked_max: usize,
    total: Arc<Total>,
    /// Cancelled when the client goes away.
    pub disconnected: CancellationToken,
    /// Cancelled when the host stops.
    pub shutdown: CancellationToken,
}

/// Counts the parked calls of the whole host.
#[derive(Debug)]
pub struct Total {
    parked: AtomicUsize,
    parked_max: usize,
}

impl Total {
    /// No call is parked yet.
    #[must_use]
    pub fn new(settings: &AskSettings) -> Arc<Self> {
        Arc::new(Self {
            parked: AtomicUsize::new(0),
            parked_max: settings.parked_total,
        })
    }
}

/// What ends an ask from outside, beside its time.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// Cancelled when the client takes the call back.
    pub withdrawn: &'a CancellationToken,
    /// Cancelled when the stream that carries the question has ended.
    pub unreachable: &'a CancellationToken,
}

/// Why a call could not be parked: a limit and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The session has as many parked calls as it may.
    #[error("the limit of {0} parked calls of one session is reached; answer or cancel some first")]
    Session(usize),
    /// The host has as many parked calls as it may.
    #[error("the limit of {0} parked calls of this host is reached; try again later")]
    Host(usize),
}

impl Questions {
    /// The questions of a new session.
    #[must_use]
    pub fn new(settings: &AskSettings, total: Arc<Total>, shutdown: CancellationToken) -> Self {
        Self {
            open: Mutex::default(),
            turns: Semaphore::new(settings.open_questions_per_session.max(1)),
            parked: AtomicUsize::new(0),
            parked_max: settings.parked_per_session,
            total,
            disconnected: CancellationToken::new(),
            shutdown,
        }
    }

    /// Parks a call, or says which limit is reached. Dropping what is returned frees the place.
    ///
    /// # Errors
    ///
    /// [`Full`] names the limit.
    pub fn park(&self) -> Result<Parked<'_>, Full> {
        let session = Place::take(&self.parked, self.parked_max).ok_or(Full::Session(self.parked_max))?;
        let host = Place::take(&self.total.parked, self.total.parked_max)
            .ok_or(Full::Host(self.total.parked_max))?;
        Ok(Parked {
            questions: self,
            _places: [session, host],
        })
    }

    /// Hands an answer to the question `id` of this session.
    ///
    /// Returns whether there was one: a late, foreign or made-up answer finds none and changes nothing.
    pub fn answer(&self, id: RandomId, answer: Answer) -> bool {
        let waiting = self
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        waiting.is_some_and(|waiting| waiting.send(answer).is_ok())
    }
}

/// One counted place under a limit.
#[derive(Debug)]
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(count: &'a AtomicUsize, max: usize) -> Option<Self> {
        count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                (taken < max).then_some(taken + 1)
            })
            .ok()
            .map(|_| Self(count))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A parked call that has not asked yet.
#[derive(Debug)]
pub struct Parked<'a> {
    questions: &'a Questions,
    _places: [Place<'a>; 2],
}

impl<'a> Parked<'a> {
    /// Waits for this call's turn to ask, in the order of arrival. Cancel-safe.
    ///
    /// # Errors
    ///
    /// How the ask ended before its turn came.
    pub async fn turn(&self, deadline: Instant, ends: Ends<'_>) -> Result<Turn<'a>, AskOutcome> {
        let questions = self.questions;
        tokio::select! {
            // In this order, so that a call that was taken back never asks, even when its turn comes in the same poll.
            biased;
            () = ends.withdrawn.cancelled() => Err(AskOutcome::Withdrawn),
            () = ends.unreachable.cancelled() => Err(AskOutcome::Disconnected),
            () = questions.disconnected.cancelled() => Err(AskOutcome::Disconnected),
            () = questions.shutdown.cancelled() => Err(AskOutcome::Shutdown),
            turn = timeout_at(deadline, questions.turns.acquire()) => match turn {
                Ok(Ok(permit)) => Ok(Turn { questions, _permit: permit }),
                Ok(Err(_closed)) => Err(AskOutcome::Shutdown),
                Err(_elapsed) => Err(AskOutcome::Timeout),
            },
        }
    }
}

/// The right to have one question open.
#[derive(Debug)]
pub struct Turn<'a> {
    questions: &'a Questions,
    _permit: SemaphorePermit<'a>,
}

impl<'a> Turn<'a> {
    /// Registers the question; send it only after this.
    #[must_use]
    pub fn register(self, id: RandomId) -> Waiting<'a> {
        let (answer, answered) = oneshot::channel();
        let mut open = self.questions.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.insert(id, answer);
        drop(open);
        Waiting {
            turn: self,
            id,
            answered,
        }
    }
}

/// A question that can be answered. Dropping it closes it.
#[derive(Debug)]
pub struct Waiting<'a> {
    turn: Turn<'a>,
    id: RandomId,
    answered: oneshot::Receiver<Answer>,
}

impl Waiting<'_> {
    /// Waits for the end of the ask. Cancel-safe.
    pub async fn until(mut self, deadline: Instant, ends: Ends<'_>) -> AskOutcome {
        let questions = self.turn.questions;
        tokio::select! {
            // In this order, so that a call that was taken back never runs, even if its answer arrives in the same poll.
            biased;
            () = ends.withdrawn.cancelled() => AskOutcome::Withdrawn,
            () = ends.unreachable.cancelled() => AskOutcome::Disconnected,
            () = questions.disconnected.cancelled() => AskOutcome::Disconnected,
            () = questions.shutdown.cancelled() => AskOutcome::Shutdown,
            answered = timeout_at(deadline, &mut self.answered) => match answered {
                Ok(Ok(answer)) => AskOutcome::Answered(answer),
                Ok(Err(_dropped)) => AskOutcome::Shutdown,
                Err(_elapsed) => AskOutcome::Timeout,
            },
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turn
            .questions
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Nothing but a withdrawal ends the ask from outside.
    fn ends(withdrawn: &CancellationToken) -> Ends<'_> {
        static NEVER: std::sync::LazyLock<CancellationToken> =
            std::sync::LazyLock::new(CancellationToken::new);
        Ends {
            withdrawn,
            unreachable: &NEVER,
        }
    }

    fn questions(settings: AskSettings) -> Questions {
        Questions::new(&settings, Total::new(&settings), CancellationToken::new())
    }

    fn id(n: u8) -> RandomId {
        RandomId::from_random([n; 16])
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_answers() {
        let (questions, withdrawn) = (questions(AskSettings::default()), CancellationToken::new());
        let start = Instant::now();
        let deadline = start + Duration::from_secs(50);
        let parked = questions.park().unwrap();
        let waiting = parked
            .turn(deadline, ends(&withdrawn))
            .await
            .unwrap()
            .register(id(1));
        assert_eq!(
            AskOutcome::Timeout,
            waiting.until(deadline, ends(&withdrawn)).await
        );
        assert_eq!(Duration::from_secs(50), start.elapsed());
        assert!(
            !questions.answer(id(1), Answer::Approved),
            "a late answer finds nothing"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_before_the_wait_is_kept() {
        let (questions, withdrawn) = (questions(AskSettings::default()), CancellationToken::new());
        let deadline = Instant::now() + Duration::from_secs(50);
        let parked = questions.park().unwrap();
        let waiting = parked
            .turn(deadline, ends(&withdrawn))
            .await
            .unwrap()
            .register(id(1));
        assert!(
            !questions.answer(id(2), Answer::Approved),
            "another question's id"
        );
        assert!(questions.answer(id(1), Answer::Declined));
        assert!(
            !questions.answer(id(1), Answer::Approved),
            "the second answer finds nothing"
        );
        assert_eq!(
            AskOutcome::Answered(Answer::Declined),
            waiting.until(deadline, ends(&withdrawn)).await
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_withdrawn_call_never_runs_even_when_approved_in_the_same_poll() {
        let (questions, withdrawn) = (questions(AskSettings::default()), CancellationToken::new());
        let deadline = Instant::now() + Duration::from_secs(50);
        let parked = questions.park().unwrap();
        let waiting = parked
            .turn(deadline, ends(&withdrawn))
            .await
            .unwrap()
            .register(id(1));
        assert!(questions.answer(id(1), Answer::Approved));
        withdrawn.cancel();
        assert_eq!(
            AskOutcome::Withdrawn,
            waiting.until(deadline, ends(&withdrawn)).await
        );
    }

    #[tokio::test(start_paused = true)]
    async fn questions_queue_and_the_deadline_runs_from_the_arrival() {
        let (questions, withdrawn) = (questions(AskSettings::default()), CancellationToken::new());
        let start = Instant::now();
        let deadline = start + Duration::from_secs(50);
        let (first, second) = (questions.park().unwrap(), questions.park().unwrap());
        let open = first.turn(deadline, ends(&withdrawn)).await.unwrap();
        assert_eq!(
            AskOutcome::Timeout,
            second.turn(deadline, ends(&withdrawn)).await.unwrap_err()
        );
        assert_eq!(Duration::from_secs(50), start.elapsed());
        drop(open);
        assert!(
            second
                .turn(start + Duration::from_secs(99), ends(&withdrawn))
                .await
                .is_ok()
        );
    }

    #[test]
    fn limits_are_named_and_places_come_back() {
        let settings = AskSettings {
            parked_per_session: 2,
            parked_total: 3,
            ..AskSettings::default()
        };
        let total = Total::new(&settings);
        let one = Questions::new(&settings, Arc::clone(&total), CancellationToken::new());
        let other = Questions::new(&settings, total, CancellationToken::new());
        let (first, _second) = (one.park().unwrap(), one.park().unwrap());
        assert_eq!(Full::Session(2), one.park().unwrap_err());
        let _third = other.park().unwrap();
        assert_eq!(Full::Host(3), other.park().unwrap_err());
        drop(first);
        assert!(one.park().is_ok());
    }
}
