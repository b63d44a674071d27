//! From a file, or from bytes, to WebAssembly.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{LoadError, REASON_BYTES_MAX};
use crate::policy::limits::{PolicySettings, Source};
use crate::policy::shape;
use crate::policy::text::escaped;

/// The bytes of a component, still in whatever format they came.
pub(super) fn read(policy: &str, settings: &PolicySettings) -> Result<Vec<u8>, LoadError> {
    let max = settings.limits.file_bytes_max;
    match &settings.source {
        Source::File(path) => read_file(policy, path, max),
        Source::Bytes { bytes, .. } => whole(policy, bytes.to_vec(), max),
    }
}

/// Reads a regular file of at most so many bytes (ruling L3).
pub(in crate::policy) fn read_file(
    policy: &str,
    path: &Path,
    bytes_max: usize,
) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    // Asked before it is opened: opening a pipe would wait for a writer.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(LoadError::NotAFile {
            path: path.to_owned(),
        });
    }
    let mut bytes = Vec::new();
    let bytes_read_max = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let file = File::open(path).map_err(failed)?;
    file.take(bytes_read_max)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    whole(policy, bytes, bytes_max)
}

fn whole(policy: &str, bytes: Vec<u8>, bytes_max: usize) -> Result<Vec<u8>, LoadError> {
    if bytes_max < bytes.len() {
        return Err(LoadError::Limit {
            policy: policy.to_owned(),
            reason: format!("the file has more than {bytes_max} bytes"),
        });
    }
    Ok(bytes)
}

/// `bytes` themselves when they are WebAssembly, or what they say in its text format.
pub(super) fn wasm(policy: &str, bytes: Vec<u8>) -> Result<Vec<u8>, LoadError> {
    if bytes.starts_with(shape::MAGIC) {
        return Ok(bytes);
    }
    if shape::is_machine_code(&bytes) {
        return Err(LoadError::MachineCode {
            policy: policy.to_owned(),
        });
    }
    let not_wasm = |reason| LoadError::NotWasm {
        policy: policy.to_owned(),
        reason,
    };
    let text = String::from_utf8(bytes).map_err(|error| not_wasm(error.to_string()))?;
    wat::parse_str(text).map_err(|error| {
        // The first line says what; the others quote the file.
        let error = error.to_string();
        not_wasm(escaped(
            error.lines().next().unwrap_or_default().as_bytes(),
            REASON_BYTES_MAX,
        ))
    })
}
