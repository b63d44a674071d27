//! What several tests need: a client and an upstream in memory, and small policies without a tool chain.

pub(crate) mod cases;
pub(crate) mod chains;
pub(crate) mod harness;
pub(crate) mod http;
pub(crate) mod http_upstream;
pub(crate) mod log;
pub(crate) mod over_http;
pub(crate) mod policies;
pub(crate) mod refusals;
pub(crate) mod serving;
pub(crate) mod upstream;
pub(crate) mod wasi;
