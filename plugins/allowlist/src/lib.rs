//! Decides by name. Deny wins, then ask, then allow; what no list names is denied.
//!
//! The configuration is one JSON object:
//!
//! ```json
//! {
//!   "allow": ["read_*", "list_directory"],
//!   "ask": ["write_file"],
//!   "deny": ["read_secrets"],
//!   "prompt": "This changes files on the build server.",
//!   "scopes": { "files:admin": { "allow": ["delete_file"] } }
//! }
//! ```
//!
//! An entry is a name or a glob, see [`glob::matches`]. On the tools seam names are those of tools,
//! on the reads seam methods. The lists of a scope count besides the general ones for a caller
//! whose verified claims hold that scope.

#[cfg(target_family = "wasm")]
mod bindings;
#[cfg(target_family = "wasm")]
mod export;
pub mod glob;
pub mod json;
pub mod rules;
