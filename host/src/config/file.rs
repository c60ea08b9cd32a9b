//! The configuration as a file on the disk: read as it is, replaced as a whole.
//!
//! A replacement is refused where the file is not the one that was read, so that nobody's
//! change is lost without notice. It is written beside the file and renamed over it: whoever
//! reads sees the old text or the new one. Owner, group and mode stay; where the name is a
//! symbolic link, what it points to is replaced. Extended attributes and further hard links
//! are not carried over.
//!
//! Two of these at once wait for one another (a lock on the directory, which leaves nothing
//! behind). An editor that knows nothing of the lock is noticed unless it writes in the
//! instant between the last look and the rename.

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

/// How long another replacement is waited for.
pub const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often the lock is tried meanwhile.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// SHA-256 of a file's bytes, in hexadecimal: which version of a file is meant.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileDigest(String);

impl FileDigest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> FileDigest {
        FileDigest(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// As hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its beginning, enough for a person to tell two apart.
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

/// A file as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// What it says, byte for byte.
    pub text: String,
    /// Which version that is.
    pub digest: FileDigest,
    /// The file itself: links are followed.
    pub path: PathBuf,
    /// Why it could not be replaced; none: it can.
    pub read_only: Option<String>,
}

/// Why a file was not read, or not replaced. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not there (any more).
    #[error("{}: there is no such file", path.display())]
    Missing {
        /// The name.
        path: PathBuf,
    },
    /// It is a directory, a socket or a device.
    #[error("{}: this is not a regular file", path.display())]
    NotAFile {
        /// The name.
        path: PathBuf,
    },
    /// It is larger than any configuration.
    #[error("{}: more than {FILE_BYTES_MAX} bytes", path.display())]
    TooLarge {
        /// The name.
        path: PathBuf,
    },
    /// Its bytes are no text.
    #[error("{}: byte {at} is not UTF-8", path.display())]
    NotText {
        /// The name.
        path: PathBuf,
        /// The first byte that is wrong.
        at: usize,
    },
    /// It is not the version that was read.
    #[error(
        "{}: somebody has changed the file meanwhile: it was {}, it is {}; nothing is overwritten, look at it again",
        path.display(), expected.short(), found.short()
    )]
    Changed {
        /// The name.
        path: PathBuf,
        /// The version that was read.
        expected: FileDigest,
        /// The one that is there.
        found: FileDigest,
    },
    /// It must not be written, or its directory must not.
    #[error("{}: {reason}", path.display())]
    ReadOnly {
        /// The name.
        path: PathBuf,
        /// Why, and the fix.
        reason: String,
    },
    /// Another replacement did not end in time.
    #[error("{}: somebody else is replacing the file; try again", path.display())]
    Locked {
        /// The name.
        path: PathBuf,
    },
    /// The system failed.
    #[error("{}: {step}: {error}", path.display())]
    Io {
        /// The name.
        path: PathBuf,
        /// At what.
        step: &'static str,
        /// What it said.
        error: io::Error,
    },
}

/// Reads a file.
///
/// # Errors
/// It is not there, no file or no text.
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

/// Replaces the version of a file that was read by a new text.
///
/// # Errors
/// The file is another version by now, must not be written, or cannot be. It is as it was.
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
    // Writing has taken its time: whoever changed the file meanwhile is not overwritten.
    unchanged(&target, base)?;
    new.persist(&target).map_err(|failed| io("the file cannot be replaced")(failed.error))?;
    let synced = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
    if let Err(error) = synced {
        // The new text stands; only a crash of the machine could undo it.
        tracing::warn!(%error, directory = %directory.display(), "the directory cannot be synced");
    }
    Ok(FileDigest::of(text.as_bytes()))
}

/// The file that a name stands for in the end.
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

/// Whether the file is meant to be written by this user. A rename would not ask.
fn writable(target: &Path) -> Result<(), Error> {
    let refuse = |reason: &str| Error::ReadOnly { path: target.to_owned(), reason: reason.into() };
    let data = std::fs::metadata(target).map_err(|error| failed(target, error))?;
    // Of root the system would not even ask.
    if data.permissions().mode() & 0o222 == 0 {
        return Err(refuse("the file is read-only: `chmod u+w` it to edit it here"));
    }
    rustix::fs::access(target, Access::WRITE_OK)
        .map_err(|_| refuse("this user must not write the file: edit it as its owner"))?;
    let directory = directory_of(target);
    rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK).map_err(|_| {
        let directory = directory.display();
        refuse(&format!(
            "its directory {directory} must not be written, so it cannot be replaced: edit it in place"
        ))
    })
}

/// Gives the new file the owner and the mode of the old one.
fn dress(target: &Path, new: &std::fs::File) -> Result<(), Error> {
    let io = |step| move |error| Error::Io { path: target.to_owned(), step, error };
    let old = std::fs::metadata(target).map_err(|error| failed(target, error))?;
    let own = new.metadata().map_err(io("the new file cannot be looked at"))?;
    if (own.uid(), own.gid()) != (old.uid(), old.gid()) {
        std::os::unix::fs::fchown(new, Some(old.uid()), Some(old.gid())).map_err(|error| {
            match error.kind() {
                io::ErrorKind::PermissionDenied => Error::ReadOnly {
                    path: target.to_owned(),
                    reason: format!(
                        "it belongs to uid {} and gid {}, and would not any more: edit it as its owner",
                        old.uid(),
                        old.gid()
                    ),
                },
                _ => io("its owner cannot be kept")(error),
            }
        })?;
    }
    // After the owner: changing that takes bits of the mode away.
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
        _ => Error::Io { path, step: "no new file can be created beside it", error },
    }
}

/// Keeps others of our kind out of the directory, until it is dropped.
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
            // Some network file systems lock no directories: the two looks have to do.
            Err(error) => {
                tracing::debug!(%error, directory = %directory.display(), "not locked");
                return Ok(handle);
            }
        }
    }
}

#[cfg(test)]
mod tests;
