//! What several tests need: small policies without a tool chain.

pub(crate) mod log;
pub(crate) mod policies;
pub(crate) mod wasi;
