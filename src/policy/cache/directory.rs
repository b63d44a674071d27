//! A directory of this user alone, and whole files in it.

use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, linkat, openat, renameat, unlinkat};

use super::CacheError;

/// The bits of a mode that let others than the owner in.
const OTHERS: u32 = 0o077;

/// A directory that was checked when it was opened. Its path is not looked at again.
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// Opens the directory, which is made when nothing is there.
    pub(super) fn open(path: &Path) -> Result<Self, CacheError> {
        let failed = |source: io::Error| CacheError::Open {
            path: path.to_owned(),
            source,
        };
        // Without a slash at the end, after which a symbolic link would be followed.
        let plain: PathBuf = path.components().collect();
        let open = || {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(&plain, flags, Mode::empty()).map_err(io::Error::from)
        };
        let opened = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(&plain);
                made.and_then(|()| open())
            }
            other => other,
        };
        let file = File::from(opened.map_err(failed)?);
        let metadata = file.metadata().map_err(failed)?;
        private(&metadata).map_err(|reason| CacheError::NotPrivate {
            path: path.to_owned(),
            reason,
        })?;
        Ok(Self(file.into()))
    }

    /// Reads a whole file, if it is one of this user alone with at most so many bytes.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        // Not blocking, so that a pipe in its place cannot make anybody wait.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(openat(&self.0, name, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        private(&metadata).map_err(io::Error::other)?;
        if bytes_max < metadata.len() {
            return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes a whole file in the place of what is there: whoever reads sees the old one or the new.
    pub(super) fn replace(&self, name: &str, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(temporary, bytes)?;
        renameat(&self.0, temporary, &self.0, name).map_err(|error| {
            self.remove(temporary);
            error.into()
        })
    }

    /// Writes a whole file unless there is one.
    pub(super) fn create(&self, name: &str, temporary: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(temporary, bytes)?;
        let linked = linkat(&self.0, temporary, &self.0, name, AtFlags::empty());
        self.remove(temporary);
        match linked {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes files until the rest have at most so many bytes, the oldest first, and never `kept`.
    pub(super) fn shrink(&self, bytes_max: u64, kept: &str) -> io::Result<()> {
        let mut files = Vec::new();
        let mut bytes = 0_u64;
        for entry in Dir::read_from(&self.0)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            let stat = match rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Another process was quicker.
                Err(rustix::io::Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            };
            if name == kept || !rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file() {
                continue;
            }
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            bytes = bytes.saturating_add(size);
            files.push(((stat.st_mtime, stat.st_mtime_nsec), name.to_owned(), size));
        }
        files.sort_unstable();
        for (_, name, size) in files {
            if bytes <= bytes_max {
                break;
            }
            self.remove(&name);
            bytes = bytes.saturating_sub(size);
        }
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.0, name, flags, Mode::RUSR | Mode::WUSR)?);
        // On the disk before it has its name: a crash must not leave a key that is none.
        file.write_all(bytes)
            .and_then(|()| file.sync_data())
            .inspect_err(|_| self.remove(name))
    }

    /// That it cannot be removed is found out again when it is in the way.
    fn remove(&self, name: &str) {
        if let Err(error) = unlinkat(&self.0, name, AtFlags::empty()) {
            tracing::debug!(name, %error, "a file of the cache cannot be removed");
        }
    }
}

/// Whether nobody but this user can get at it, or who could.
fn private(metadata: &Metadata) -> Result<(), String> {
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user {
        return Err(format!(
            "it belongs to user {}, and this is user {user}",
            metadata.uid()
        ));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(format!("its mode {mode:04o} lets others in"));
    }
    Ok(())
}
