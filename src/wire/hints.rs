//! Caching hints of a result: what becomes of its `ttlMs` and `cacheScope` (2026-07-28).

use super::object;
use super::upstream_frame::Answer;

/// The rule for one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hints {
    /// They stay as they are.
    Kept,
    /// `ttlMs` is how long a task is kept and stays; what has a scope is private.
    OfATask,
    /// The result is never cached, whatever it says.
    Never,
    /// If it has a hint, it is private and kept for so many milliseconds at most.
    Capped(u64),
}

impl Hints {
    /// The scope of a result that is nobody else's, raw.
    pub const SCOPE: &str = r#""private""#;

    /// The time in the place of what the upstream says, raw.
    #[must_use]
    pub fn ttl_ms(self, hinted: Option<&str>) -> String {
        let hinted = hinted.and_then(|raw| raw.parse::<u64>().ok()).unwrap_or(0);
        match self {
            Self::Kept | Self::OfATask => hinted.to_string(),
            Self::Never => "0".to_owned(),
            Self::Capped(max) => hinted.min(max).to_string(),
        }
    }

    pub(super) fn replaces_ttl(self) -> bool {
        matches!(self, Self::Never | Self::Capped(_))
    }

    pub(super) fn replaces_scope(self) -> bool {
        matches!(self, Self::OfATask | Self::Never | Self::Capped(_))
    }

    /// Whether a time must be added to a result without one.
    pub(super) fn adds_ttl(self, has_scope: bool) -> bool {
        self == Self::Never || (has_scope && matches!(self, Self::Capped(_)))
    }

    /// Whether a scope must be added to a result without one.
    pub(super) fn adds_scope(self, has_ttl: bool) -> bool {
        self == Self::Never || (has_ttl && matches!(self, Self::Capped(_)))
    }

    /// The answer with its hints by this rule.
    #[must_use]
    pub fn applied(self, answer: Answer) -> Answer {
        let result = answer.result().unwrap_or("{}");
        let ttl_ms = object::member(result, "ttlMs");
        let scope = object::member(result, "cacheScope");
        let new_ttl_ms = self.ttl_ms(ttl_ms);
        let mut set = Vec::new();
        if self.adds_ttl(scope.is_some()) || (self.replaces_ttl() && ttl_ms.is_some()) {
            set.push(("ttlMs", new_ttl_ms.as_str()));
        }
        if self.adds_scope(ttl_ms.is_some()) || (self.replaces_scope() && scope.is_some()) {
            set.push(("cacheScope", Self::SCOPE));
        }
        if set.is_empty() {
            return answer;
        }
        answer.with_result_members(&set)
    }
}
