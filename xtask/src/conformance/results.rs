//! What the suite wrote down: a folder for each scenario, with how each of its checks ended.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

/// The end of a folder's name: a dash and the time.
const TIME_BYTES: usize = "-2026-12-04T04-31-44-287Z".len();

/// How each check of each scenario ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Results(BTreeMap<String, Vec<Check>>);

/// A check and how it ended: `SUCCESS`, `FAILURE`, `WARNING`, `SKIPPED` or `INFO`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Check {
    id: String,
    status: String,
    why: String,
}

impl Results {
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let mut results = BTreeMap::new();
        for entry in fs::read_dir(folder).with_context(|| format!("no results in {}", folder.display()))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let file = entry.path().join("checks.json");
            if !file.is_file() {
                continue;
            }
            let end = name.len().saturating_sub(TIME_BYTES);
            let scenario = name.get(..end).and_then(|name| name.strip_prefix("server-"));
            let scenario = scenario
                .with_context(|| format!("`{name}` is no folder of a scenario"))?
                .to_owned();
            let read: Vec<Value> = serde_json::from_slice(&fs::read(&file)?)
                .with_context(|| format!("{} is no list of checks", file.display()))?;
            let mut checks: Vec<Check> = read.iter().map(Check::of).collect();
            checks.sort();
            ensure!(
                results.insert(scenario, checks).is_none(),
                "`{name}` is there twice"
            );
        }
        ensure!(!results.is_empty(), "no scenario was run");
        Ok(Self(results))
    }

    fn checks(&self) -> impl Iterator<Item = (&str, &Check)> {
        self.0
            .iter()
            .flat_map(|(scenario, checks)| checks.iter().map(move |check| (scenario.as_str(), check)))
    }

    /// The checks that failed.
    pub(super) fn failures(&self) -> Vec<String> {
        self.checks()
            .filter(|(_, check)| check.status == "FAILURE")
            .map(|(scenario, check)| format!("{scenario}/{}", check.id))
            .collect()
    }

    /// How many passed, of how many that passed, failed or were warned about.
    pub(super) fn total(&self) -> String {
        let count = |status: &str| self.checks().filter(|(_, check)| check.status == status).count();
        let (passed, failed, warned) = (count("SUCCESS"), count("FAILURE"), count("WARNING"));
        format!(
            "{passed} passed, {failed} failed, {warned} warnings, {} scenarios",
            self.0.len()
        )
    }

    /// What ends otherwise in `through`, but for the checks that are left out. A scenario of which some are left
    /// out for nothing is named, too.
    pub(super) fn differences(&self, through: &Self, left_out: &[(&str, &[&str])]) -> Vec<String> {
        let mut differences = Vec::new();
        let only_there = through.0.keys().filter(|name| !self.0.contains_key(*name));
        for scenario in self.0.keys().chain(only_there) {
            let (direct, gated) = (self.0.get(scenario), through.0.get(scenario));
            let without = left_out.iter().find(|(name, _)| name == scenario);
            let without = without.map_or(&[][..], |(_, checks)| *checks);
            if ends(direct, without) == ends(gated, without) {
                if !without.is_empty() && ends(direct, &[]) == ends(gated, &[]) {
                    differences.push(format!("{scenario}: checks are left out that end the same"));
                }
                continue;
            }
            let unlike = gated.into_iter().flatten();
            let unlike = unlike.filter(|check| check.status != "SUCCESS" && !check.why.is_empty());
            let why: Vec<&str> = unlike.map(|check| check.why.as_str()).collect();
            differences.push(format!(
                "{scenario}: {:?} instead of {:?} ({})",
                ends(gated, without),
                ends(direct, without),
                why.join("; ")
            ));
        }
        differences
    }
}

/// How the checks of a scenario ended, without those that are left out.
fn ends<'a>(checks: Option<&'a Vec<Check>>, without: &[&str]) -> Vec<(&'a str, &'a str)> {
    let checks = checks.map(Vec::as_slice).unwrap_or_default();
    let compared = checks
        .iter()
        .filter(|check| !without.contains(&check.id.as_str()));
    compared
        .map(|check| (check.id.as_str(), check.status.as_str()))
        .collect()
}

impl Check {
    fn of(read: &Value) -> Self {
        let text = |name: &str| {
            read.get(name)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        Self {
            id: text("id"),
            status: text("status"),
            why: text("errorMessage"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(scenario: &str, status: &str) -> Results {
        let folder = std::env::temp_dir().join(format!("xtask-conformance-{}-{status}", std::process::id()));
        let place = folder.join(format!("server-{scenario}-2026-12-04T04-31-44-287Z"));
        fs::create_dir_all(&place).unwrap();
        let checks = format!(
            r#"[{{"id":"a","status":"SUCCESS"}},{{"id":"b","status":"{status}","errorMessage":"late"}}]"#
        );
        fs::write(place.join("checks.json"), checks).unwrap();
        let results = Results::read(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        results
    }

    #[test]
    fn a_check_that_ends_otherwise_is_a_difference() {
        let (good, bad) = (
            results("json-schema-2020-12", "SUCCESS"),
            results("json-schema-2020-12", "FAILURE"),
        );
        assert_eq!(Vec::<String>::new(), good.differences(&good, &[]));
        let differences = good.differences(&bad, &[]);
        assert!(
            differences.len() == 1
                && differences[0].starts_with("json-schema-2020-12: ")
                && differences[0].contains("late"),
            "{differences:?}"
        );
        let without = |check| good.differences(&bad, &[("json-schema-2020-12", check)]);
        assert_eq!(Vec::<String>::new(), without(&["b"]));
        assert_eq!(1, without(&["a"]).len(), "the other checks are compared");
        assert_eq!(
            vec!["json-schema-2020-12: checks are left out that end the same"],
            good.differences(&good, &[("json-schema-2020-12", &["b"])])
        );
        assert_eq!(
            1,
            good.differences(&Results::default(), &[]).len(),
            "one that was not run"
        );
        assert_eq!(vec!["json-schema-2020-12/b"], bad.failures());
        assert_eq!("1 passed, 1 failed, 0 warnings, 1 scenarios", bad.total());
    }
}
