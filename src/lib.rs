//! Gatewright is a WebAssembly policy host for the Model Context Protocol (MCP).
//!
//! It stands in front of an MCP server. Every `tools/call` and every read is judged by policies,
//! which are sandboxed WebAssembly components behind one function,
//! `authorize(name, args-json, ctx) -> allow | ask(prompt) | deny(reason)`.
//! The host asks the person when a policy says ask, and refuses when nobody can be asked.
//!
//! # The life of a call
//!
//! [`door`] reads a frame, [`wire`] checks its bytes, [`session`] keeps the conversation,
//! [`gate`] asks the chain of the seam ([`seam`], [`policy`]) and makes a
//! [`Permit`](gate::permit::Permit), and only with one can [`upstream`] be called;
//! [`audit`] stands beside and writes before anything leaves.

pub mod clock;
pub mod vocabulary;

pub mod decision;
pub mod wire;

pub mod audit;
pub mod seam;

pub mod gate;
pub mod policy;

pub mod config;
pub mod door;
pub mod host;
pub mod session;
pub mod upstream;
