//! What can be wrong with a configuration.

use std::path::PathBuf;

use crate::decision::Seam;

/// What is wrong with the configuration, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read `{}`; check that the path is right and the file readable and UTF-8", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A path names something else than a file.
    #[error("cannot read `{}`: it is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// A file is too long.
    #[error("cannot read `{}`: it is longer than {bytes_max} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The limit.
        bytes_max: u64,
    },
    /// The file is no TOML, or has a field or a type that is not known.
    #[error("cannot use `{}`: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What and where, with the line quoted.
        message: String,
    },
    /// A field has a value that cannot be used.
    #[error("cannot use `{}`: line {line}: `{field}`: {reason}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The field, with its table.
        field: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A flag has a value that cannot be used.
    #[error("cannot use `{flag} {value}`: {reason}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// Its value.
        value: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A policy may take as long as a person.
    #[error(
        "the `deadline-ms` of policy `{policy}` is {deadline_ms}, and must be less than `ask.deadline-ms`, which is \
         {ask_deadline_ms}; lower the one or raise the other"
    )]
    Deadlines {
        /// The policy.
        policy: String,
        /// Its deadline in milliseconds.
        deadline_ms: u128,
        /// How long a call waits for a person, in milliseconds.
        ask_deadline_ms: u128,
    },
    /// A seam of a listener has no chain (semantics section 2, ruling L7).
    #[error(
        "`{}`: the {} seam has no policy, and a network listener needs both seams; give it one with `[[{}]]`, or choose \
         openly to allow everything with `policy = \"builtin:allow-all\"`", path.display(), seam.as_str(), seam.as_str()
    )]
    Unguarded {
        /// The file.
        path: PathBuf,
        /// The seam.
        seam: Seam,
    },
    /// A listener without anything behind it.
    #[error("`{}` has no `[[endpoint]]`; give one for each server that is to be guarded", path.display())]
    NoEndpoint {
        /// The file.
        path: PathBuf,
    },
    /// Two endpoints cannot be told apart.
    #[error(
        "cannot use `{}`: the endpoint `{endpoint}` has the path or the name of another one; give each its own", path.display()
    )]
    SameEndpoint {
        /// The file.
        path: PathBuf,
        /// The path of the endpoint.
        endpoint: String,
    },
    /// Nothing says where records go.
    #[error(
        "there is no place for audit records: neither XDG_STATE_HOME nor HOME is set to an absolute path; \
         give `--audit FILE`, `--audit stderr` or `--audit off`"
    )]
    NoStateDirectory,
}
