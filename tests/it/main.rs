//! The integration tests: one binary, a file per feature.

mod floor_plan;
