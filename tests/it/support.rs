//! What several tests need: small policies without a tool chain.

pub(crate) mod policies;
