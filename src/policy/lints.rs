//! What is suspicious about a policy that can be loaded.
//!
//! Nothing here is wrong by itself: a policy that allows everything may be meant so. Each finding is one line that
//! says what was seen and what to do.

use std::time::Duration;

use super::cases::{Cases, ContextFile, Origin, Outcome, Subject};
use super::garbage;
use super::limits::{Grants, PolicySettings, Source};
use super::load::{LoadError, Policy};
use crate::decision::Decision;
use crate::seam::Call;

/// A policy that takes longer to load where nothing is cached starts slowly.
const LOAD_MAX: Duration = Duration::from_secs(3);

/// A policy whose judgements take more than this part of their deadline starts slowly.
const DEADLINE_PART: u32 = 5;

/// Something suspicious.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// A stable name.
    pub code: &'static str,
    /// What was seen, and what to do.
    pub message: String,
}

/// Looks at a policy that was just loaded, without a cache if slowness is to be seen. Blocks for as long as some
/// dozens of judgements take; not to be used where a runtime was entered.
///
/// `cases` are those beside it, if there are any.
///
/// # Errors
///
/// When the policy cannot be loaded a second time with other grants, or the system gives no runtime.
pub fn lints(policy: &Policy, origin: Origin<'_>, cases: Option<&Cases>) -> Result<Vec<Lint>, LoadError> {
    let host = |error: std::io::Error| LoadError::Host {
        policy: policy.name().to_owned(),
        reason: error.to_string(),
    };
    let mut found = Vec::new();
    let mut add = |code, message: Option<String>| found.extend(message.map(|message| Lint { code, message }));
    let mut subject = Subject::new(policy, origin).map_err(host)?;
    let (garbage, times) = judged(&mut subject);
    add("no-cases", no_cases(policy, origin.settings, cases));
    add("allows-garbage", allows(&garbage));
    add("fails-on-garbage", fails(&garbage));
    add("slow-start", slow(policy, origin.settings, times));
    let mut again = differs(&mut subject, &garbage, cases);
    if again.is_none() && !policy.facts().imports.is_empty() {
        // With what it could be granted one day, or is elsewhere.
        let settings = granted(origin.settings);
        let granted = Policy::load_with(origin.engine, settings.clone(), origin.cache)?;
        let origin = Origin {
            settings: &settings,
            ..origin
        };
        let mut subject = Subject::new(&granted, origin).map_err(host)?;
        let (first, _) = judged(&mut subject);
        again = differs(&mut subject, &first, cases)
            .map(|call| format!("{call}, when it is granted `clock` and `random`"));
    }
    add(
        "nondeterministic",
        again.map(|call| {
            format!(
                "two runs decide differently: {call}; decide by the arguments and by `now-unix-ms` of the context, \
                 so that a decision can be explained later"
            )
        }),
    );
    add("unused-imports", unused(policy));
    Ok(found)
}

/// What the policy makes of every garbage call, and how long each took in microseconds.
fn judged(subject: &mut Subject<'_>) -> (Vec<Outcome>, Vec<u64>) {
    let context = ContextFile::default();
    garbage::CALLS
        .iter()
        .map(|(name, args_json)| subject.decide(None, &context.call(name, args_json)))
        .unzip()
}

fn no_cases(policy: &Policy, settings: &PolicySettings, cases: Option<&Cases>) -> Option<String> {
    let Source::File(path) = &settings.source else {
        return None;
    };
    let stem = path.file_stem()?.to_string_lossy();
    match cases {
        Some(cases) if !cases.list.is_empty() => None,
        Some(_) | None => Some(format!(
            "no cases lie beside `{}`; write some into `{stem}.cases.json`, which a hot swap must pass, too",
            policy.name()
        )),
    }
}

fn allows(garbage: &[Outcome]) -> Option<String> {
    let allowed: Vec<&str> = garbage
        .iter()
        .zip(garbage::CALLS)
        .filter(|(outcome, _)| matches!(outcome, Outcome::Decided(Decision::Allow)))
        .map(|(_, (name, _))| name)
        .collect();
    let first = allowed.first()?;
    Some(format!(
        "it allows {} of {} calls of tools that no server has, such as {first:?}; deny what the policy does not know",
        allowed.len(),
        garbage.len()
    ))
}

fn fails(garbage: &[Outcome]) -> Option<String> {
    let failed = |outcome: &&Outcome| !matches!(outcome, Outcome::Decided(_));
    let (outcome, (name, args_json)) = garbage
        .iter()
        .zip(garbage::CALLS)
        .find(|(outcome, _)| failed(outcome))?;
    Some(format!(
        "it fails on {} of {} garbage calls, such as {name:?} {args_json}: {}, {}; a failure denies, and says nothing \
         to anybody",
        garbage.iter().filter(failed).count(),
        garbage.len(),
        outcome.word(),
        outcome.text()
    ))
}

fn slow(policy: &Policy, settings: &PolicySettings, mut micros: Vec<u64>) -> Option<String> {
    micros.sort_unstable();
    let median = Duration::from_micros(micros.get(micros.len() / 2).copied().unwrap_or_default());
    let deadline = settings.limits.deadline;
    if deadline / DEADLINE_PART < median {
        return Some(format!(
            "a judgement takes {:.1} ms in its fresh sandbox, and has {} ms; do less at the start, or in `configure`, of \
             which an image is taken where that can be",
            median.as_secs_f64() * 1e3,
            deadline.as_millis()
        ));
    }
    let load = policy.facts().load_time;
    (LOAD_MAX < load).then(|| {
        format!(
            "it takes {:.1} s to load where it is not cached; keep the cache on, and on a new machine load it once \
             before it is needed",
            load.as_secs_f64()
        )
    })
}

/// The first call that is decided otherwise than before.
fn differs(subject: &mut Subject<'_>, garbage: &[Outcome], cases: Option<&Cases>) -> Option<String> {
    let context = ContextFile::default();
    let told = |call: &Call<'_>| format!("{:?} {}", call.name, call.args_json);
    for ((name, args_json), first) in garbage::CALLS.iter().zip(garbage) {
        let call = context.call(name, args_json);
        if subject.decide(None, &call).0 != *first {
            return Some(told(&call));
        }
    }
    for case in cases.iter().flat_map(|cases| &cases.list) {
        if subject.judge(case).0 != subject.judge(case).0 {
            return Some(format!("case {:?}", case.name));
        }
    }
    None
}

fn granted(settings: &PolicySettings) -> PolicySettings {
    PolicySettings {
        grants: Grants {
            clock: true,
            random: true,
            ..settings.grants.clone()
        },
        ..settings.clone()
    }
}

fn unused(policy: &Policy) -> Option<String> {
    let imports = &policy.facts().imports;
    let first = imports.first().filter(|_| !policy.used_imports())?;
    Some(format!(
        "it imports {} interfaces, such as `{first}`, and no judgement used any; build it without them, and a judgement \
         costs less (docs/languages.md says how for each language)",
        imports.len()
    ))
}
