//! Every row of `tests/cases/ask.json` on stdio and over HTTP: who is asked, what counts as a yes, and
//! what never reaches the upstream, under paused time.

mod captured;
mod case;
mod client;
mod http_names;
mod names;
mod run;
mod setup;
mod upstream;

use crate::support::cases::check_names;

#[test]
fn every_case_has_a_test() {
    let applicable = case::CASES.iter().filter(|case| case.applies_to_stdio());
    check_names(applicable.map(|case| case.name.as_str()), names::NAMES);
}

#[test]
fn every_case_has_a_test_over_http() {
    let applicable = case::CASES
        .iter()
        .filter(|case| case.applies_to_http() && !http_names::LATER.contains(&case.name.as_str()));
    check_names(applicable.map(|case| case.name.as_str()), http_names::NAMES);
}
