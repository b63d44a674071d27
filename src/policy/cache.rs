//! The compilation cache: what was compiled once is loaded in milliseconds the next time.
//!
//! Loading machine code is trusting it, so the cache lies in a directory that only this user can
//! enter, and each file in it is authenticated with a key of that directory. A file that is not
//! exactly what this host wrote here is ignored, reported, and written anew. A cache that cannot be
//! written only costs time.
//!
//! What it is trusted with: whoever can write this directory as this user, or is root, can make this
//! host run machine code, as they could by other means. Nobody else can, and neither can a file that
//! was cut off, changed, renamed, or brought from the cache of another machine.
//!
//! Invariant: every access goes through the directory that was checked, never through its path.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use chacha20poly1305::Key;
use wasmtime::component::Component;

use self::artifact::Authentic;
use self::directory::Directory;
use super::engine::Engine;
use super::text::escaped;
use crate::clock::{Clock as _, SystemClock};
use crate::vocabulary::{Digest, RandomId};

mod artifact;
mod directory;
#[cfg(test)]
mod tests;

/// All files of a cache together, in bytes. Past it those that were written first go.
const CACHE_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// One file of a cache, in bytes. What is larger is compiled each time.
const ENTRY_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// The file that holds the key of the directory.
const KEY_NAME: &str = "key";

/// Bytes of the key.
const KEY_BYTES: usize = 32;

/// How names of compiled components end.
const ENTRY_SUFFIX: &str = ".compiled";

/// Text kept of a reason in the log, in bytes.
const REASON_BYTES_MAX: usize = 1024;

/// Why there is no cache. Every policy can be loaded without one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The directory cannot be made or opened.
    #[error("cannot use `{}` as the cache of compiled policies; name a directory that this user can make or open", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else could write there.
    #[error("`{}` cannot be the cache of compiled policies: {reason}; remove it, or make it a directory of this user with mode 0700", path.display())]
    NotPrivate {
        /// The directory.
        path: PathBuf,
        /// Who could.
        reason: String,
    },
    /// The key of the directory is missing and cannot be made, or is none.
    #[error("cannot use the key of the cache `{}`: {reason}; remove the file `{KEY_NAME}` there", path.display())]
    Key {
        /// The directory.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// A directory of compiled policies.
pub struct Cache {
    path: PathBuf,
    directory: Directory,
    key: Key,
    bytes_max: u64,
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// A component that was compiled before, and what else its loader has to know.
pub(super) struct Found {
    pub(super) component: Component,
    /// What the loader noted.
    pub(super) note: Vec<u8>,
}

impl Cache {
    /// Opens a cache, and makes its directory and its key when they do not exist yet.
    ///
    /// # Errors
    ///
    /// [`CacheError`] when the directory is no directory of this user alone, or has no key.
    pub fn open(path: &Path) -> Result<Self, CacheError> {
        let directory = Directory::open(path)?;
        let key = key(&directory).map_err(|reason| CacheError::Key {
            path: path.to_owned(),
            reason: reason.to_string(),
        })?;
        Ok(Self {
            path: path.to_owned(),
            directory,
            key,
            bytes_max: CACHE_BYTES_MAX,
        })
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was compiled as `entry` by such an engine, if it is here and untouched.
    pub(super) fn find(&self, engine: &Engine, entry: Digest) -> Option<Found> {
        let name = name(entry);
        let found = self
            .directory
            .read(&name, ENTRY_BYTES_MAX)
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => None,
                _ => Some(error.to_string()),
            });
        let found = found.and_then(|file| {
            let authentic =
                Authentic::check(&self.key, entry, file).map_err(|reason| Some(reason.to_owned()))?;
            let component = authentic
                .component(engine.wasm())
                .map_err(|error| Some(format!("{error:#}")))?;
            let note = authentic.note().to_owned();
            Ok(Found { component, note })
        });
        match found {
            Ok(found) => Some(found),
            Err(None) => None,
            Err(Some(reason)) => {
                let reason = escaped(reason.as_bytes(), REASON_BYTES_MAX);
                tracing::warn!(cache = %self.path.display(), name, reason, "a compiled policy is not used; it is compiled anew");
                None
            }
        }
    }

    /// Keeps a compiled component as `entry`. That it cannot is no reason to fail.
    pub(super) fn keep(&self, entry: Digest, component: &Component, note: &[u8]) {
        if let Err(reason) = self.try_keep(entry, component, note) {
            let reason = escaped(reason.as_bytes(), REASON_BYTES_MAX);
            tracing::warn!(cache = %self.path.display(), reason, "a compiled policy is not kept");
        }
    }

    fn try_keep(&self, entry: Digest, component: &Component, note: &[u8]) -> Result<(), String> {
        let compiled = component.serialize().map_err(|error| format!("{error:#}"))?;
        let mut nonce = [0; artifact::NONCE_BYTES];
        SystemClock
            .random(&mut nonce)
            .map_err(|error| error.to_string())?;
        let file = artifact::file(&self.key, nonce, entry, note, &compiled)?;
        if ENTRY_BYTES_MAX < file.len() as u64 {
            return Err(format!(
                "it has {} bytes; the limit is {ENTRY_BYTES_MAX}",
                file.len()
            ));
        }
        let temporary = temporary().map_err(|error| error.to_string())?;
        self.directory
            .replace(&name(entry), &temporary, &file)
            .and_then(|()| self.directory.shrink(self.bytes_max, KEY_NAME))
            .map_err(|error| error.to_string())
    }
}

/// Names what is compiled from these parts by such an engine.
///
/// The engine's own hash covers its version, the machine and every flag that changes code.
pub(super) fn entry<'a>(engine: &Engine, parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    let [compiler, parts] = [compiler(engine.wasm()), Digest::of_parts(parts)];
    let version = Engine::version().as_bytes();
    Digest::of_parts([artifact::FORMAT, version, compiler.as_bytes(), parts.as_bytes()])
}

fn compiler(wasm: &wasmtime::Engine) -> Digest {
    use std::hash::{Hash as _, Hasher};

    /// Collects what is hashed, because a digest of 64 bits is too short.
    struct Collector(Vec<u8>);

    impl Hasher for Collector {
        fn write(&mut self, bytes: &[u8]) {
            self.0.extend_from_slice(bytes);
        }

        fn finish(&self) -> u64 {
            0
        }
    }

    let mut collector = Collector(Vec::new());
    wasm.precompile_compatibility_hash().hash(&mut collector);
    Digest::of(&collector.0)
}

fn name(entry: Digest) -> String {
    let mut name = String::with_capacity(64 + ENTRY_SUFFIX.len());
    for byte in entry.as_bytes() {
        name.push_str(&format!("{byte:02x}"));
    }
    name + ENTRY_SUFFIX
}

/// A name that no other process uses.
fn temporary() -> io::Result<String> {
    let mut random = [0; 16];
    SystemClock.random(&mut random).map_err(io::Error::other)?;
    Ok(format!("new-{}", RandomId::from_random(random)))
}

/// Reads the key of the directory, or makes it. Of several processes that make one at once, one
/// wins, and the others use what it made.
fn key(directory: &Directory) -> io::Result<Key> {
    let read = || {
        let key = directory.read(KEY_NAME, KEY_BYTES as u64)?;
        <[u8; KEY_BYTES]>::try_from(key)
            .map(Key::from)
            .map_err(|_wrong| io::Error::other(format!("it does not have {KEY_BYTES} bytes")))
    };
    match read() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut key = [0; KEY_BYTES];
            SystemClock.random(&mut key).map_err(io::Error::other)?;
            directory.create(KEY_NAME, &temporary()?, &key)?;
            read()
        }
        other => other,
    }
}
