//! The wire: what a frame is, byte for byte.
//!
//! What comes from a client passes one strict check ([`scan`]), so that every reader of the same bytes
//! sees the same message; what comes from the upstream gets an envelope check and its values pass raw.
//! Nothing is parsed into a tree and written again: the members that the gate reads are found in the
//! text ([`object`]), and what must change is spliced.
//!
//! Deliberately does not know policies, sessions or transports, and does no I/O.

pub mod era;
pub mod event;
pub mod frame;
pub mod hints;
pub mod id;
pub mod line;
pub mod list;
pub mod long_answer;
pub mod method;
pub mod mirror;
pub mod object;
pub mod refusal;
pub mod scan;
pub mod shape;
mod syntax;
pub mod upstream_frame;

#[cfg(test)]
mod tests;
