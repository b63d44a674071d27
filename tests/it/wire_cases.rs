//! Every row of `tests/cases/wire.json` that applies to stdio, in front of real policies and of an
//! upstream that records all it receives.
//!
//! A session of revision 2026-07-28 is opened by `server/discover`: nothing else on stdio says before
//! the first request which revision is spoken.

mod case;
mod names;
mod run;

use crate::support::cases::check_names;

#[test]
fn every_case_has_a_test() {
    let applicable = case::CASES.iter().filter(|case| case.applies_to_stdio());
    check_names(applicable.map(|case| case.name.as_str()), names::NAMES);
}
