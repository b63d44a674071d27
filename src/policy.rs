//! (in work)

pub mod builtin;
