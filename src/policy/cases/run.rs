//! Letting a policy judge cases.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tokio::runtime::Runtime;

use super::file::{Case, Cases, Expected, Format, Text};
use crate::decision::{Decision, Fault};
use crate::policy::cache::Cache;
use crate::policy::engine::Engine;
use crate::policy::limits::PolicySettings;
use crate::policy::load::{Blank, LoadError, Policy};
use crate::policy::text::escaped;
use crate::seam::Call;

/// Text kept of what a case failed with, in bytes.
const REASON_BYTES_MAX: usize = 2048;

/// What a policy was made from, so that it can be made again with another configuration.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Compiles and runs.
    pub engine: &'a Arc<Engine>,
    /// What the policy is made of.
    pub settings: &'a PolicySettings,
    /// Keeps what was compiled.
    pub cache: Option<&'a Cache>,
}

/// A policy that judges cases. Blocks; not to be used where a runtime was entered.
pub struct Subject<'a> {
    policy: &'a Policy,
    origin: Origin<'a>,
    runtime: Runtime,
    /// Made when the first case names a configuration.
    blank: Option<Result<Blank, String>>,
    configured: HashMap<String, Result<Policy, Outcome>>,
}

impl fmt::Debug for Subject<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subject").field(self.policy).finish()
    }
}

/// What a policy did in one case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It decided.
    Decided(Decision),
    /// It gave no decision.
    Failed(Fault, String),
    /// It refused its configuration, with this text, cut and escaped.
    Invalid(String),
    /// It cannot be loaded with this configuration.
    NotLoaded(String),
}

impl Outcome {
    /// The word for it in a file of cases.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Decided(Decision::Allow) => Expected::Allow.as_str(),
            Self::Decided(Decision::Ask(_)) => Expected::Ask.as_str(),
            Self::Decided(Decision::Deny(_)) => Expected::Deny.as_str(),
            Self::Invalid(_) => Expected::Invalid.as_str(),
            Self::Failed(fault, _) => fault.code().as_str(),
            Self::NotLoaded(_) => "policy_load",
        }
    }

    /// The reason, the prompt, or what exactly happened. Empty for allow.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::Decided(Decision::Allow) => "",
            Self::Decided(Decision::Ask(text) | Decision::Deny(text))
            | Self::Failed(_, text)
            | Self::Invalid(text)
            | Self::NotLoaded(text) => text,
        }
    }

    /// Whether this is among what the case expects.
    #[must_use]
    pub fn expected_by(&self, case: &Case) -> bool {
        case.expect
            .iter()
            .any(|expected| expected.as_str() == self.word())
    }

    /// Whether the text is the one that the case expects, if it expects one.
    #[must_use]
    pub fn says_as(&self, case: &Case) -> bool {
        match &case.text {
            None => true,
            Some(Text::Says(says)) => says == self.text(),
            Some(Text::Matches(pattern)) => pattern.found_in(self.text()),
        }
    }
}

impl<'a> Subject<'a> {
    /// The policy with its own configuration, and where it came from.
    ///
    /// # Errors
    ///
    /// When the system gives no runtime.
    pub fn new(policy: &'a Policy, origin: Origin<'a>) -> std::io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()?;
        Ok(Self {
            policy,
            origin,
            runtime,
            blank: None,
            configured: HashMap::new(),
        })
    }

    /// Lets the policy judge one case. The number is how long that took, in microseconds.
    pub fn judge(&mut self, case: &Case) -> (Outcome, u64) {
        let call = case.ctx.call(&case.call, &case.args_json);
        self.decide(case.configure.as_deref(), &call)
    }

    /// Lets the policy decide one call with this configuration, or with its own.
    pub fn decide(&mut self, configure: Option<&str>, call: &Call<'_>) -> (Outcome, u64) {
        let policy = match configure {
            None => self.policy,
            Some(config_json) => {
                self.configure(config_json);
                match self.configured.get(config_json) {
                    Some(Ok(policy)) => policy,
                    Some(Err(outcome)) => return (outcome.clone(), 0),
                    None => return (Outcome::NotLoaded("it was not configured".to_owned()), 0),
                }
            }
        };
        let (decided, micros) = self.runtime.block_on(policy.decide(call));
        let outcome = match decided {
            Ok(decision) => Outcome::Decided(decision),
            // A trap names functions of the guest, which are called whatever its author likes.
            Err((fault, what)) => Outcome::Failed(fault, escaped(what.as_bytes(), REASON_BYTES_MAX)),
        };
        (outcome, micros)
    }

    /// Makes the policy with this configuration, unless that was done.
    fn configure(&mut self, config_json: &str) {
        if self.configured.contains_key(config_json) {
            return;
        }
        let Origin {
            engine,
            settings,
            cache,
        } = self.origin;
        let blank = self
            .blank
            .get_or_insert_with(|| Blank::load(engine, settings, cache).map_err(|error| error.to_string()));
        let made = match blank {
            Ok(blank) => blank.configured(config_json).map_err(outcome),
            Err(reason) => Err(Outcome::NotLoaded(reason.clone())),
        };
        self.configured.insert(config_json.to_owned(), made);
    }
}

/// What it means in a case that the policy cannot be made with its configuration.
fn outcome(error: LoadError) -> Outcome {
    match error {
        LoadError::Configuration { reason, .. } => Outcome::Invalid(reason),
        LoadError::Start { fault, reason, .. } => Outcome::Failed(fault, reason),
        other => Outcome::NotLoaded(other.to_string()),
    }
}

/// Lets the policy judge every case of the file, and says what is wrong with the first that fails.
///
/// # Errors
///
/// The reason, in words and without anything that a terminal obeys, also when the file cannot be read as cases.
pub(in crate::policy) fn pass(
    policy: &Policy,
    origin: Origin<'_>,
    cases: &[u8],
    format: Format,
) -> Result<(), String> {
    let cases = Cases::parse(cases, format).map_err(|error| error.to_string())?;
    // A thread of its own, because a runtime cannot be entered where the caller is in one.
    std::thread::scope(|scope| {
        let judged = scope.spawn(|| all_pass(policy, origin, &cases)).join();
        judged.unwrap_or_else(|_panic| Err("the host panicked while its cases ran".to_owned()))
    })
}

fn all_pass(policy: &Policy, origin: Origin<'_>, cases: &Cases) -> Result<(), String> {
    let mut subject =
        Subject::new(policy, origin).map_err(|error| format!("its cases cannot be run: {error}"))?;
    for case in &cases.list {
        let (outcome, _) = subject.judge(case);
        let failed = |what: String| Err(format!("its own case {:?} fails: {what}", case.name));
        let (word, text) = (outcome.word(), outcome.text());
        if !outcome.expected_by(case) {
            return failed(match outcome {
                Outcome::Failed(..) | Outcome::NotLoaded(_) => format!("it failed with {word}: {text}"),
                Outcome::Decided(_) | Outcome::Invalid(_) => {
                    format!("{} was expected, and it said {word} {text:?}", expected(case))
                }
            });
        }
        if !outcome.says_as(case) {
            return failed(format!("it said {text:?}, not what was expected"));
        }
    }
    Ok(())
}

/// What the case expects, in words.
fn expected(case: &Case) -> String {
    let words: Vec<&str> = case.expect.iter().map(|expected| expected.as_str()).collect();
    words.join(" or ")
}
