//! A policy's test cases, and one call written down as JSON.
//!
//! A file of cases is a JSON array of cases; or, in JSON or TOML, a table with `cases` and optionally a
//! `configure` for all of them. `NAME.cases.json` or `NAME.cases.toml` beside `NAME.wasm` is found by itself: a
//! policy that fails one of its own is not put in force.

mod context;
mod coverage;
mod file;
mod run;

use std::io;
use std::path::{Path, PathBuf};

pub use context::ContextFile;
pub use coverage::{Coverage, Found};
pub use file::{Case, Cases, CasesError, Expected, Format, Pattern, Text};
pub(super) use run::pass;
pub use run::{Origin, Outcome, Subject};

/// The longest file of cases, in bytes.
pub const CASES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The cases beside the policy that `path` leads to: where they are, and in which format.
///
/// # Errors
///
/// When both formats are there, so that it is not clear which counts.
pub fn beside(path: &Path) -> io::Result<Option<(PathBuf, Format)>> {
    let Some((folder, stem)) = path.parent().zip(path.file_stem()) else {
        return Ok(None);
    };
    let mut found = None;
    for format in [Format::Json, Format::Toml] {
        let name = format!("{}.cases.{}", stem.to_string_lossy(), format.extension());
        let cases = folder.join(name);
        // What cannot be looked at is there, and reading it says why.
        if !cases.try_exists().unwrap_or(true) {
            continue;
        }
        if found.is_some() {
            return Err(io::Error::other(
                "there are a `.cases.json` and a `.cases.toml`; keep one of the two",
            ));
        }
        found = Some((cases, format));
    }
    Ok(found)
}
