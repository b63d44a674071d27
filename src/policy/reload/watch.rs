//! Hearing of changes in folders.
//!
//! What is heard is only that something happened: kinds of events differ between systems and are not
//! looked at. What is not heard is found by looking every few seconds.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
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
        let watcher = notify::recommended_watcher(move |_event| tell.notify_one());
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
    pub(super) fn follow(&mut self, files: &[PathBuf]) {
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
    pub(super) async fn heard(&self) {
        self.heard.notified().await;
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
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
