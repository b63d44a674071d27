//! The integration tests: one binary, a file per feature.

mod support;

mod guests;
mod policies;
