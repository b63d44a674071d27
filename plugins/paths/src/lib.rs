//! Keeps the paths in a tool's arguments under chosen folders. Any doubt denies.
//!
//! The configuration is one JSON object:
//!
//! ```json
//! {
//!   "roots": ["/srv/share"],
//!   "deny": [".env", ".ssh", "/srv/share/private"],
//!   "tools": {
//!     "read_file": { "arguments": ["path"] },
//!     "read_multiple_files": { "lists": ["paths"] },
//!     "move_file": { "arguments": ["source", "destination"] },
//!     "list_allowed_directories": {}
//!   },
//!   "other-tools": "deny"
//! }
//! ```
//!
//! `roots`: the folders, absolute; `"/"` is everywhere. `deny`: a name denies that segment anywhere,
//! an absolute path denies itself and everything below; both in any case of letters. `tools`: the
//! arguments of each tool that hold one path, and those that hold a list of paths; `{}` judges
//! none. `other-tools`: `deny` (when left out) or `allow`, for tools without an entry.
//!
//! The rule is lexical: it cannot see what a symbolic link points to. It therefore refuses every
//! `..`, and folders under the roots must not hold links that lead out.

#[cfg(target_family = "wasm")]
mod bindings;
#[cfg(target_family = "wasm")]
mod export;
pub mod json;
pub mod path;
pub mod rules;
