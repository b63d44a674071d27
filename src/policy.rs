//! Policies: WebAssembly components that judge requests, each judgement in a fresh sandbox.
//!
//! This module does not know MCP. It meets the rest of the host at [`seam`](crate::seam) only.
//!
//! Invariant: a judgement leaves nothing behind; its instance dies with it.
//! Invariant: whatever goes wrong in or around a guest is a denial (semantics section 4).
//! Invariant: machine code is only ever made here, from WebAssembly; a compiled artifact is loaded
//! only when this host wrote it, into a directory that nobody else can write (`cache`).

pub mod bench;
pub mod builtin;
pub mod cache;
pub mod engine;
pub mod limits;
pub mod load;

pub mod anatomy;
pub mod cases;
pub mod chain;
pub mod garbage;
pub mod lints;
pub mod lists;
pub mod live;
pub mod reload;

mod canary;
mod contract;
pub(crate) mod json_of_toml;
mod judge;
mod sandbox;
mod shape;
mod text;
mod ticker;
