//! What lies at a policy's path at one moment: the component, and its cases beside it.

use std::fs;
use std::io;
use std::path::Path;

use crate::policy::cases::{CASES_BYTES_MAX, Format, beside};
use crate::policy::limits::PolicySettings;
use crate::policy::load::{LoadError, read_file};
use crate::vocabulary::Digest;

/// A component and its cases, whole and of the same moment.
#[derive(Debug)]
pub(super) struct Generation {
    pub(super) component: Vec<u8>,
    pub(super) cases: Option<(Vec<u8>, Format)>,
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
        // Named as the path is that was given, and beside what it leads to.
        let named_as_given = path.file_name().zip(resolved.parent());
        let cases = match named_as_given {
            Some((name, folder)) => read_beside(policy, &folder.join(name))?,
            None => None,
        };
        let parts = [
            Some(component.as_slice()),
            cases.as_ref().map(|(cases, _)| cases.as_slice()),
        ];
        let digest = Digest::of_parts(parts.into_iter().flatten());
        Ok(Self {
            component,
            cases,
            digest,
        })
    }
}

fn read_beside(policy: &str, path: &Path) -> Result<Option<(Vec<u8>, Format)>, LoadError> {
    let cases = beside(path).map_err(|error| LoadError::Cases {
        policy: policy.to_owned(),
        reason: error.to_string(),
    })?;
    let Some((path, format)) = cases else {
        return Ok(None);
    };
    match read_file(policy, &path, CASES_BYTES_MAX) {
        Ok(cases) => Ok(Some((cases, format))),
        // It went away just now.
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
