//! What the library logs, line by line, on the thread of one test.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects what is logged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Collects on this thread for as long as the answer lives.
    pub(crate) fn watch(&self) -> tracing::subscriber::DefaultGuard {
        let lines = self.clone();
        watch(move |line| lines.0.lock().unwrap().push(line))
    }

    /// The one line that contains `text`.
    #[track_caller]
    pub(crate) fn with(&self, text: &str) -> String {
        let lines = self.0.lock().unwrap();
        let mut found = lines.iter().filter(|line| line.contains(text));
        let line = found
            .next()
            .unwrap_or_else(|| panic!("no line with `{text}`: {lines:?}"));
        assert_eq!(None, found.next(), "two lines with `{text}`");
        line.clone()
    }
}

/// Calls `see` with each line that is logged on this thread, for as long as the answer lives.
pub(crate) fn watch(see: impl Fn(String) + Send + Sync + 'static) -> tracing::subscriber::DefaultGuard {
    tracing::subscriber::set_default(Watcher(see))
}

struct Watcher<F>(F);

impl<F: Fn(String) + Send + Sync + 'static> Subscriber for Watcher<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gatewright")
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        (self.0)(line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a text does not fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}
