//! Hearing of changes in folders.
//!
//! What is heard is only that something may have changed: kinds of events differ between systems, so all
//! count but those of reading, which looking at a file makes itself. What is not heard is found by looking
//! every few seconds.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches the folders of files.
#[derive(Debug)]
pub struct Watch {
    watcher: Option<RecommendedWatcher>,
    heard: Arc<Notify>,
    folders: HashSet<PathBuf>,
}

impl Watch {
    /// Watches nothing yet. Where the system allows no watching, nothing is ever heard.
    #[must_use]
    pub fn new() -> Self {
        let heard = Arc::new(Notify::new());
        let tell = Arc::clone(&heard);
        let watcher = notify::recommended_watcher(move |event| {
            if matters(&event) {
                tell.notify_one();
            }
        });
        if let Err(error) = &watcher {
            tracing::warn!(%error, "folders cannot be watched; policy files are looked at every few seconds only");
        }
        Self {
            watcher: watcher.ok(),
            heard,
            folders: HashSet::new(),
        }
    }

    /// Watches the folders in which these files lie, and those that were made anew in their place.
    pub fn follow(&mut self, files: &[PathBuf]) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let folders: HashSet<PathBuf> = files.iter().filter_map(|file| folder(file)).collect();
        for gone in self.folders.difference(&folders) {
            let _was_not_there = watcher.unwatch(gone);
        }
        // A folder that was removed and made again is another one with the same name: watch it anew.
        self.folders = folders
            .into_iter()
            .filter(|folder| watcher.watch(folder, RecursiveMode::NonRecursive).is_ok())
            .collect();
    }

    /// Resolves when something was heard since the last time. Dropping it loses nothing.
    pub async fn heard(&self) {
        self.heard.notified().await;
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a file may be another one after this.
fn matters(event: &notify::Result<Event>) -> bool {
    match event.as_ref().map(|event| event.kind) {
        Ok(EventKind::Access(AccessKind::Close(AccessMode::Write))) => true,
        Ok(EventKind::Access(_)) => false,
        Ok(
            EventKind::Any
            | EventKind::Create(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_)
            | EventKind::Other,
        )
        | Err(_) => true,
    }
}

fn folder(file: &Path) -> Option<PathBuf> {
    let parent = file.parent()?;
    Some(if parent.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        parent.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, ModifyKind, RemoveKind};

    use super::*;

    #[test]
    fn reading_is_not_heard_of() {
        #[track_caller]
        fn check(kind: EventKind, expected: bool) {
            assert_eq!(expected, matters(&Ok(Event::new(kind))), "{kind:?}");
        }
        check(EventKind::Access(AccessKind::Open(AccessMode::Any)), false);
        check(EventKind::Access(AccessKind::Read), false);
        check(EventKind::Access(AccessKind::Close(AccessMode::Read)), false);
        check(EventKind::Access(AccessKind::Close(AccessMode::Write)), true);
        check(EventKind::Modify(ModifyKind::Any), true);
        check(EventKind::Create(CreateKind::File), true);
        check(EventKind::Remove(RemoveKind::Folder), true);
        check(EventKind::Any, true);
        check(EventKind::Other, true);
        assert!(matters(&Err(notify::Error::generic("lost events"))));
    }
}
