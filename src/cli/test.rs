//! `gatewright test`: does a policy decide its cases as its author expects?

mod junit;
mod report;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use gatewright::config;
use gatewright::host::guards::GuardError;
use gatewright::policy::cases::{CASES_BYTES_MAX, Cases, Coverage, Format, Origin, Outcome, Subject, beside};
use gatewright::policy::engine::{Engine, EngineSettings};
use gatewright::policy::limits::{PolicySettings, Source};
use gatewright::policy::load::Policy;

use super::{EXIT_FAILED, Usage, cache};

#[derive(Args, Debug)]
#[command(after_help = "\
A file of cases is a JSON array, or in JSON or TOML a table with `cases` and, if wanted, a `configure` for all of them.
Each case has
  name        what it is called
  call        the tool's name, or on the reads seam the method
  args        the arguments; or their exact text as `args-json`, or as `args-parts` a list of [text, count]
  ctx         what else the policy is told, as `gatewright decide --ctx` takes it
  configure   the policy's configuration in this case, instead of the one that it was loaded with
  expect      allow, ask, deny, invalid (it refuses its configuration), policy_trap, policy_timeout, policy_memory or
              policy_output; or a list, of which one must hold
  says        the whole reason or prompt; or a regular expression that is found in it, as `matches`
NAME.cases.json or NAME.cases.toml beside NAME.wasm is found by itself. A hot swap runs the same cases.

After the cases, variations of them are tried, to name answers that no case reaches.

Exit codes: 0 every case passes, 1 one does not, 2 bad usage, no policy or no cases.")]
pub(super) struct Test {
    /// A .wasm or .wat file or builtin:NAME, optionally with =CONFIG.json
    #[arg(value_name = "POLICY")]
    policy: String,
    /// The cases, .json or .toml; by default those beside the policy
    #[arg(long, value_name = "FILE")]
    cases: Option<PathBuf>,
    /// Write the results in the JUnit format
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Run again whenever the policy or its cases change, until interrupted
    #[arg(long)]
    watch: bool,
    /// Compile the policy anew, and keep nothing of it
    #[arg(long)]
    no_cache: bool,
}

/// What is tested, and where it lies.
#[derive(Debug)]
struct Tested {
    settings: PolicySettings,
    cases: PathBuf,
    format: Format,
}

/// What came of one run.
#[derive(Debug)]
struct Run {
    policy: String,
    cases: Cases,
    /// The outcome of each case, and how long it took in microseconds.
    outcomes: Vec<(Outcome, u64)>,
    coverage: Coverage,
}

impl Run {
    fn failed(&self) -> usize {
        let cases = self.cases.list.iter().zip(&self.outcomes);
        cases
            .filter(|(case, (outcome, _))| !(outcome.expected_by(case) && outcome.says_as(case)))
            .count()
    }
}

impl Test {
    pub(super) fn run(self) -> Result<ExitCode> {
        let settings = config::policy("test", &self.policy)?;
        if self.watch {
            return watch::run(&self, settings);
        }
        let tested = self.tested(settings)?;
        Ok(if self.once(&tested)? == 0 {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(EXIT_FAILED)
        })
    }

    /// Finds the cases.
    fn tested(&self, settings: PolicySettings) -> Result<Tested> {
        let (cases, format) = match (&self.cases, &settings.source) {
            (Some(path), _) => (path.clone(), format(path)?),
            (None, Source::File(policy)) => match beside(policy) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    return Err(Usage(format!(
                        "there are no cases beside `{0}`; write some into `{1}.cases.json` there, or name a file with \
                         `--cases`",
                        settings.name,
                        policy.file_stem().unwrap_or_default().to_string_lossy()
                    ))
                    .into());
                }
                Err(error) => return Err(Usage(format!("beside `{}`: {error}", settings.name)).into()),
            },
            (None, Source::Bytes { .. }) => {
                return Err(Usage(format!(
                    "`{}` has no cases of its own; name a file with `--cases`",
                    settings.name
                ))
                .into());
            }
        };
        Ok(Tested {
            settings,
            cases,
            format,
        })
    }

    /// Runs every case, reports, and says how many failed.
    #[expect(clippy::print_stdout, reason = "the command's answer")]
    fn once(&self, tested: &Tested) -> Result<usize> {
        let run = judged(tested, self.no_cache)?;
        print!("{}", report::report(&run, &tested.cases));
        if let Some(path) = &self.junit {
            std::fs::write(path, junit::xml(&run))
                .with_context(|| format!("cannot write `{}`", path.display()))?;
        }
        Ok(run.failed())
    }
}

fn format(path: &Path) -> Result<Format> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("json") => Ok(Format::Json),
        Some("toml") => Ok(Format::Toml),
        Some(_) | None => Err(Usage(format!(
            "`{}` is neither a .json nor a .toml file",
            path.display()
        ))
        .into()),
    }
}

fn judged(tested: &Tested, no_cache: bool) -> Result<Run> {
    let cases = read(&tested.cases, tested.format)?;
    let engine = Engine::new(&EngineSettings::default()).map_err(GuardError::from)?;
    let cache = if no_cache { None } else { cache() };
    let policy = Policy::load_with(&engine, tested.settings.clone(), cache.as_ref())?;
    let origin = Origin {
        engine: &engine,
        settings: &tested.settings,
        cache: cache.as_ref(),
    };
    let mut subject = Subject::new(&policy, origin).context("cannot start the runtime")?;
    let outcomes: Vec<(Outcome, u64)> = cases.list.iter().map(|case| subject.judge(case)).collect();
    let reached: Vec<Outcome> = outcomes.iter().map(|(outcome, _)| outcome.clone()).collect();
    let coverage = Coverage::of(&mut subject, &cases, &reached);
    Ok(Run {
        policy: policy.name().to_owned(),
        cases,
        outcomes,
        coverage,
    })
}

/// The cases of a file.
pub(super) fn read(path: &Path, format: Format) -> Result<Cases> {
    let unusable = |reason: String| Usage(format!("`{}`: {reason}", path.display()));
    let size = std::fs::metadata(path)
        .map_err(|error| unusable(error.to_string()))?
        .len();
    if (CASES_BYTES_MAX as u64) < size {
        return Err(unusable(format!("cases have at most {CASES_BYTES_MAX} bytes")).into());
    }
    let bytes = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    Cases::parse(&bytes, format).map_err(|error| unusable(error.to_string()).into())
}
