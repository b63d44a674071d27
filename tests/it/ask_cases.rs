//! Every row of `tests/cases/ask.json` that applies to stdio: who is asked, what counts as a yes, and
//! what never reaches the upstream, under paused time.

mod captured;
mod case;
mod client;
mod names;
mod run;
mod upstream;

use crate::support::cases::check_names;

#[test]
fn every_case_has_a_test() {
    let applicable = case::CASES.iter().filter(|case| case.applies_to_stdio());
    check_names(applicable.map(|case| case.name.as_str()), names::NAMES);
}
