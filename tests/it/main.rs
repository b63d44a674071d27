//! The integration tests: one binary, a file per feature.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "the whole binary is tests; clippy sees only functions marked as such"
)]

mod support;

mod ask_cases;
mod audit;
mod authoring;
mod cache;
mod chain;
mod child;
mod cli;
mod config;
mod config_docs;
mod contract;
mod floor_plan;
mod golden;
mod grants;
mod guests;
mod http_limits;
mod http_upstreams;
mod list_changes;
mod lists;
mod permit;
mod plugins_carried;
mod policies;
mod real_clients;
mod records;
mod reload;
mod serve;
mod server_requests;
mod snapshots;
mod tasks;
mod visibility;
mod wire_cases;
mod wrap;
