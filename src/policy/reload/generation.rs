//! What lies at a policy's path at one moment: the component, and its cases beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::limits::PolicySettings;
use crate::policy::load::{LoadError, read_file};
use crate::vocabulary::Digest;

/// The longest file of cases, in bytes.
const CASES_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A component and its cases, whole and of the same moment.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) component: Vec<u8>,
    pub(super) cases: Option<Vec<u8>>,
    /// Over both.
    pub(super) digest: Digest,
}

impl Generation {
    /// Reads both from the folder that the path leads to now (ruling L2): where a link is turned over while
    /// this reads, what it reads is of one side.
    pub(super) fn read(path: &Path, settings: &PolicySettings) -> Result<Self, LoadError> {
        let resolved = fs::canonicalize(path).map_err(|source| LoadError::Read {
            path: path.to_owned(),
            source,
        })?;
        let policy = settings.name.as_str();
        let component = read_file(policy, &resolved, settings.limits.file_bytes_max)
            .map_err(|error| named(error, path))?;
        let cases = match cases_path(path, &resolved) {
            Some(cases) => read_if_there(policy, &cases)?,
            None => None,
        };
        let parts = [Some(component.as_slice()), cases.as_deref()];
        let digest = Digest::of_parts(parts.into_iter().flatten());
        Ok(Self {
            component,
            cases,
            digest,
        })
    }
}

/// `NAME.cases.json` beside what the path leads to.
fn cases_path(path: &Path, resolved: &Path) -> Option<PathBuf> {
    let name = format!("{}.cases.json", path.file_stem()?.to_string_lossy());
    Some(resolved.parent()?.join(name))
}

fn read_if_there(policy: &str, path: &Path) -> Result<Option<Vec<u8>>, LoadError> {
    match read_file(policy, path, CASES_BYTES_MAX) {
        Ok(cases) => Ok(Some(cases)),
        Err(LoadError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The error with the path that the user gave.
fn named(error: LoadError, given: &Path) -> LoadError {
    let path = given.to_owned();
    match error {
        LoadError::Read { source, .. } => LoadError::Read { path, source },
        LoadError::NotAFile { .. } => LoadError::NotAFile { path },
        other => other,
    }
}
