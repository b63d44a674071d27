//! Whose tasks are whose: a task answers only to the principal and session that made it (semantics section 2).
//!
//! Each conversation has its own [`Tasks`], so a task of another session is one that nobody knows. Where many
//! clients share a conversation, the principal tells them apart.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Caller;
use crate::vocabulary::Principal;
use crate::wire::era::Era;
use crate::wire::frame::{Notification, Request};
use crate::wire::object;

/// Tasks remembered for one conversation; then the oldest is forgotten, and answers to nobody.
pub const TASKS_MAX: usize = 65_536;

/// Every message about a task that this conversation does not have, in the words of the 2025-11-25 specification.
pub(super) const NOT_FOUND: &str = "Failed to retrieve task: Task not found";

/// What is said of a task to a client that did not declare the tasks extension.
pub(super) const NO_TASKS: &str = "the tasks extension must be declared on this request";

/// The `data` of that error, raw.
pub(super) const TASKS_REQUIRED: &str =
    r#"{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}"#;

/// Nobody, where nobody is authenticated.
type Subject = Option<Box<str>>;

/// The tasks that were made in one conversation.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    makers: HashMap<String, Vec<Subject>>,
    oldest_first: VecDeque<String>,
}

impl Tasks {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the task that a result hands out, if it is one.
    pub(super) fn learn(&self, era: Era, principal: Option<&Principal>, result: &str) {
        let Some(task_id) = created(era, result) else {
            return;
        };
        let mut known = self.known();
        let makers = known.makers.entry(task_id.clone()).or_default();
        if !makers.contains(&subject(principal)) {
            makers.push(subject(principal));
        }
        if makers.len() == 1 {
            known.oldest_first.push_back(task_id);
        }
        if TASKS_MAX < known.oldest_first.len()
            && let Some(oldest) = known.oldest_first.pop_front()
        {
            known.makers.remove(&oldest);
        }
    }

    /// Whether this principal made the task in this conversation.
    fn has(&self, principal: Option<&Principal>, task_id: &str) -> bool {
        let known = self.known();
        let makers = known.makers.get(task_id);
        makers.is_some_and(|makers| makers.contains(&subject(principal)))
    }

    /// Whether a request is about a task that the caller does not have, one that it cannot know of included.
    pub(super) fn keeps_from(&self, caller: &Caller, request: &Request) -> bool {
        if !matches!(
            request.method(),
            "tasks/get" | "tasks/result" | "tasks/cancel" | "tasks/update"
        ) {
            return false;
        }
        let task_id = request.params().and_then(task_id_of);
        task_id.is_none_or(|task_id| !self.has(caller.principal.as_ref(), &task_id))
    }

    /// A list of tasks with the caller's own and no other; none when it cannot be read.
    pub(super) fn own_of(&self, principal: Option<&Principal>, result: &str) -> Option<String> {
        let tasks = object::member(result, "tasks")?;
        let kept = object::retained(tasks, |task| {
            task_id_of(task).is_some_and(|task_id| self.has(principal, &task_id))
        })?;
        Some(object::with_member(result, "tasks", Some(&kept)))
    }

    /// The filter of a subscription with the caller's own tasks and no other.
    pub(super) fn subscribable(&self, principal: Option<&Principal>, filter: &str) -> Option<String> {
        let asked = object::member(filter, "taskIds")?;
        let kept = object::retained(asked, |task_id| {
            object::text(task_id).is_some_and(|task_id| self.has(principal, &task_id))
        });
        Some(object::with_member(
            filter,
            "taskIds",
            Some(kept.as_deref().unwrap_or("[]")),
        ))
    }

    /// Whether a notification of the upstream is about a task that nobody made here.
    #[must_use]
    pub fn disowns(&self, notification: &Notification) -> bool {
        if notification.method() != "notifications/tasks/status" {
            return false;
        }
        let task_id = notification.params().and_then(task_id_of);
        task_id.is_none_or(|task_id| !self.known().makers.contains_key(&task_id))
    }
}

fn subject(principal: Option<&Principal>) -> Subject {
    principal.map(|principal| principal.subject.clone())
}

fn task_id_of(object: &str) -> Option<String> {
    object::member(object, "taskId").and_then(object::text)
}

/// The task that a result hands out: within `task` in 2025-11-25, the result itself in the extension of 2026-07-28.
fn created(era: Era, result: &str) -> Option<String> {
    match era {
        Era::Handshake => object::member(result, "task").and_then(task_id_of),
        Era::Stateless => {
            let kind = object::member(result, "resultType").and_then(object::text);
            (kind.as_deref() == Some("task"))
                .then(|| task_id_of(result))
                .flatten()
        }
    }
}
