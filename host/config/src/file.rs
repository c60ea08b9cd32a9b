//! Reads the configuration file, and replaces it atomically.
//!
//! A replacement is refused if the file has changed since it was read, so that no concurrent change is
//! lost. The new text is written to a file in the same directory and renamed, so readers see the old or
//! the new text. Owner, group and mode are kept. For a symbolic link, its target is replaced. Extended
//! attributes and other hard links are not preserved.
//!
//! Concurrent replacements wait for each other through a lock on the directory, which leaves no file
//! behind. A change by an editor, which does not take the lock, is detected unless it happens between the
//! last check and the rename.

use std::fmt;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Access, FlockOperation};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::load::FILE_BYTES_MAX;

/// Maximum time to wait for another replacement.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// Interval between two attempts to take the lock.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// SHA-256 of the bytes of a file, in hexadecimal; identifies a version of the file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileDigest(String);

impl FileDigest {
    /// Computes the digest of these bytes.
    pub fn of(bytes: &[u8]) -> FileDigest {
        FileDigest(hex::encode(Sha256::digest(bytes)))
    }

    /// The digest in hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 12 digits, for display.
    pub fn short(&self) -> &str {
        self.0.get(..12).unwrap_or(&self.0)
    }
}

impl From<String> for FileDigest {
    fn from(hex: String) -> FileDigest {
        FileDigest(hex)
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A version of a file, as read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// The text, byte for byte.
    pub text: String,
    /// The digest of the text.
    pub digest: FileDigest,
    /// The path of the file after symbolic links are resolved.
    pub path: PathBuf,
    /// Why the file cannot be replaced; `None` if it can.
    pub read_only: Option<String>,
}

/// Why a file was not read or not replaced. The file is unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not exist.
    #[error("{}: the file does not exist", path.display())]
    Missing {
        /// Path of the file.
        path: PathBuf,
    },
    /// The path is a directory, a socket or a device.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file or the new text exceeds the maximum size.
    #[error("{}: larger than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file is not UTF-8.
    #[error("{}: byte {at} is not UTF-8", path.display())]
    NotText {
        /// Path of the file.
        path: PathBuf,
        /// Offset of the first invalid byte.
        at: usize,
    },
    /// The file was changed since it was read.
    #[error(
        "{}: the file has changed since it was read (from {} to {}) and was not overwritten: read it again",
        path.display(), expected.short(), found.short()
    )]
    Changed {
        /// Path of the file.
        path: PathBuf,
        /// Digest of the version that was read.
        expected: FileDigest,
        /// Digest of the current version.
        found: FileDigest,
    },
    /// This user must not write the file or its directory.
    #[error("{}: {reason}", path.display())]
    ReadOnly {
        /// Path of the file.
        path: PathBuf,
        /// The reason, with the fix.
        reason: String,
    },
    /// Another replacement did not finish within [`LOCK_WAIT_MAX`].
    #[error("{}: another process is replacing the file; try again", path.display())]
    Locked {
        /// Path of the file.
        path: PathBuf,
    },
    /// An operation of the system failed.
    #[error("{}: {step}: {error}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operation that failed.
        step: &'static str,
        /// The error of the system.
        error: io::Error,
    },
}

/// Reads a file.
///
/// # Errors
/// The file does not exist, is not a regular file, is too large, or is not UTF-8.
pub fn read(path: &Path) -> Result<Version, Error> {
    let target = resolve(path)?;
    let bytes = bytes_of(&target)?;
    let digest = FileDigest::of(&bytes);
    let text = String::from_utf8(bytes).map_err(|error| Error::NotText {
        path: target.clone(),
        at: error.utf8_error().valid_up_to(),
    })?;
    let read_only = writable(&target).err().map(|error| match error {
        Error::ReadOnly { reason, .. } => reason,
        other => other.to_string(),
    });
    Ok(Version { text, digest, path: target, read_only })
}

/// Replaces a file whose current version is `base` with a new text. Returns the digest of the new version.
///
/// # Errors
/// The file has changed, is locked, or cannot be written. It is left unchanged.
pub fn replace(path: &Path, base: &FileDigest, text: &str) -> Result<FileDigest, Error> {
    let target = resolve(path)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::TooLarge { path: target });
    }
    let directory = directory_of(&target);
    let _lock = lock(&target, directory)?;
    unchanged(&target, base)?;
    writable(&target)?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let mut new = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(".new")
        .tempfile_in(directory)
        .map_err(|error| no_room(&target, directory, error))?;
    let io = |step| move |error| Error::Io { path: path.to_owned(), step, error };
    new.write_all(text.as_bytes()).map_err(io("the new text cannot be written"))?;
    dress(&target, new.as_file())?;
    new.as_file().sync_all().map_err(io("the new text cannot be synced"))?;
    // The file may have changed while the new text was written.
    unchanged(&target, base)?;
    new.persist(&target).map_err(|failed| io("the file cannot be replaced")(failed.error))?;
    let synced = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
    if let Err(error) = synced {
        // The file has been replaced; only a crash of the machine could undo that.
        tracing::warn!(%error, directory = %directory.display(), "the directory cannot be synced");
    }
    Ok(FileDigest::of(text.as_bytes()))
}

/// Resolves symbolic links and checks that the result is a regular file.
fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let target = std::fs::canonicalize(path).map_err(|error| failed(path, error))?;
    let data = std::fs::metadata(&target).map_err(|error| failed(&target, error))?;
    if data.is_file() { Ok(target) } else { Err(Error::NotAFile { path: target }) }
}

fn failed(path: &Path, error: io::Error) -> Error {
    let path = path.to_owned();
    match error.kind() {
        io::ErrorKind::NotFound => Error::Missing { path },
        _ => Error::Io { path, step: "the file cannot be read", error },
    }
}

fn directory_of(target: &Path) -> &Path {
    target.parent().unwrap_or(Path::new("/"))
}

fn bytes_of(target: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    std::fs::File::open(target)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| failed(target, error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Error::TooLarge { path: target.to_owned() });
    }
    Ok(bytes)
}

fn unchanged(target: &Path, base: &FileDigest) -> Result<(), Error> {
    let found = FileDigest::of(&bytes_of(target)?);
    if found == *base {
        return Ok(());
    }
    Err(Error::Changed { path: target.to_owned(), expected: base.clone(), found })
}

/// Checks that this user may write the file, because a rename does not check its permissions.
fn writable(target: &Path) -> Result<(), Error> {
    let refuse = |reason: &str| Error::ReadOnly { path: target.to_owned(), reason: reason.into() };
    let data = std::fs::metadata(target).map_err(|error| failed(target, error))?;
    // The system does not check permissions for root, so a read-only mode is checked here.
    if data.permissions().mode() & 0o222 == 0 {
        return Err(refuse("the file is read-only: run `chmod u+w` to allow edits"));
    }
    rustix::fs::access(target, Access::WRITE_OK).map_err(|_| {
        refuse("this user has no permission to write the file: edit it as its owner")
    })?;
    let directory = directory_of(target);
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|_| {
        let directory = directory.display();
        refuse(&format!(
            "this user has no permission to write its directory {directory}, so the file cannot be replaced: edit it in place"
        ))
    })
}

/// Gives the new file the owner and the mode of the old one.
fn dress(target: &Path, new: &std::fs::File) -> Result<(), Error> {
    let io = |step| move |error| Error::Io { path: target.to_owned(), step, error };
    let old = std::fs::metadata(target).map_err(|error| failed(target, error))?;
    let own = new.metadata().map_err(io("the new file cannot be examined"))?;
    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(new, Some(old.uid()), Some(old.gid())).map_err(|error| {
            match error.kind() {
                io::ErrorKind::PermissionDenied => Error::ReadOnly {
                    path: target.to_owned(),
                    reason: format!(
                        "it belongs to uid {} and gid {}, which a replacement would change: edit it as its owner",
                        old.uid(),
                        old.gid()
                    ),
                },
                _ => io("its owner cannot be kept")(error),
            }
        })?;
    }
    // Set after the owner, because changing the owner clears bits of the mode.
    let mode = old.permissions().mode() & 0o7777;
    new.set_permissions(std::fs::Permissions::from_mode(mode))
        .map_err(io("its mode cannot be kept"))
}

fn no_room(target: &Path, directory: &Path, error: io::Error) -> Error {
    let path = target.to_owned();
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly {
            path,
            reason: format!("nothing can be written in {}: {error}", directory.display()),
        },
        _ => Error::Io { path, step: "no new file can be created in its directory", error },
    }
}

/// Locks the directory against other replacements until the result is dropped.
fn lock(target: &Path, directory: &Path) -> Result<std::fs::File, Error> {
    let handle = std::fs::File::open(directory).map_err(|error| failed(directory, error))?;
    let end = Instant::now() + LOCK_WAIT_MAX;
    loop {
        match rustix::fs::flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(handle),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < end => {
                std::thread::sleep(LOCK_POLL);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                return Err(Error::Locked { path: target.to_owned() });
            }
            // Some network file systems do not support locks on directories; the two checks remain.
            Err(error) => {
                tracing::debug!(%error, directory = %directory.display(), "cannot lock the directory");
                return Ok(handle);
            }
        }
    }
}

#[cfg(test)]
mod tests;
