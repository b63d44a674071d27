//! Every row of `tests/cases/wire.json`, on stdio and over HTTP, in front of real policies and of an
//! upstream that records all it receives.
//!
//! A session of revision 2026-07-28 is opened by `server/discover`: nothing else on stdio says before
//! the first request which revision is spoken.

mod case;
mod http;
mod http_names;
mod names;
mod run;

use crate::support::cases::check_names;

#[test]
fn every_case_has_a_test() {
    let applicable = case::CASES.iter().filter(|case| case.applies_to_stdio());
    check_names(applicable.map(|case| case.name.as_str()), names::NAMES);
}

#[test]
fn every_case_has_a_test_over_http() {
    let applicable = case::CASES.iter().filter(|case| case.applies_to_http());
    check_names(applicable.map(|case| case.name.as_str()), http_names::NAMES);
}
