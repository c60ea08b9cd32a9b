//! The location of the database file and its write-ahead log, and whether they are still there.
//!
//! A process that has opened a file keeps using it without an error when it is moved, removed or
//! replaced: its writes are then lost with that file, and it never sees writes to the new one. The
//! open file is identified by its device and inode.

use std::fmt::{Display, Formatter};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use besom_ports::store::{Error, Result};

/// The file that was opened at a path, with its write-ahead log.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    file: Inode,
    /// The log's identity; none: there is no log.
    log: Option<Inode>,
}

/// A file's identity, independent of its name: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode(u64, u64);

impl Inode {
    fn of(path: &Path) -> std::io::Result<Inode> {
        std::fs::metadata(path).map(|meta| Inode(meta.dev(), meta.ino()))
    }

    /// What has happened to the file at a path; none: it is there, as far as can be determined.
    fn gone_from(self, path: &Path) -> Option<Gone> {
        match Inode::of(path) {
            Ok(now) if now == self => None,
            Ok(_) => Some(Gone::Replaced),
            Err(error) if error.kind() == ErrorKind::NotFound => Some(Gone::Removed),
            // A directory that cannot be read any more shows nothing about the file.
            Err(_) => None,
        }
    }
}

/// What has happened to the file at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// The path does not exist.
    Removed,
    Replaced,
}

impl Display for Gone {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gone::Removed => "was moved or removed",
            Gone::Replaced => "was replaced by another file",
        })
    }
}

/// The file that differs from the one opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    File(Gone),
    Log(Gone),
}

impl Place {
    /// Identifies the file at a path while a connection to it is open: as long as there is one,
    /// SQLite itself does not remove the log.
    pub(super) fn of(path: &Path) -> Result<Place> {
        // The process's directory may change, and links may be redirected later.
        let path = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
        let file = Inode::of(&path).map_err(|error| unreadable(&path, &error))?;
        Ok(Place { file, log: Inode::of(&beside(&path, "-wal")).ok(), path })
    }

    /// The size of the database file, in bytes, and when it was written last; none: unknown.
    pub(super) fn mark(&self) -> Option<(u64, SystemTime)> {
        let data = std::fs::metadata(&self.path).ok()?;
        Some((data.len(), data.modified().ok()?))
    }

    /// Which of the opened files is no longer at its path; none: both are there, as far as can be
    /// determined.
    pub(super) fn lost(&self) -> Option<Loss> {
        let log = || self.log?.gone_from(&beside(&self.path, "-wal")).map(Loss::Log);
        self.file.gone_from(&self.path).map(Loss::File).or_else(log)
    }

    /// The message: what happened, and the fix. `saved`: the removed log's content is in the
    /// database.
    pub(super) fn told(&self, loss: Loss, saved: bool) -> String {
        let path = self.path.display();
        match loss {
            Loss::File(gone) => format!(
                "the database {path} {gone} while this host had it open. The host has stopped \
                 writing to the original file. Either put the original file back (with its -wal), or \
                 keep what is at that path now and remove {path}-wal and {path}-shm, which belong to \
                 the original file and would damage any other. Then restart the host. Always stop \
                 the host before you move, remove or replace its database"
            ),
            Loss::Log(gone) if saved => format!(
                "the write-ahead log {path}-wal {gone} while this host had it open. The host has \
                 copied the log's content into {path}: nothing is lost. Stop every other process \
                 that has the database open, because it still writes to the original log; then \
                 restart the host. A database and its -wal belong together: stop the host before you \
                 touch either"
            ),
            Loss::Log(gone) => format!(
                "the write-ahead log {path}-wal {gone} while this host had it open. It contains \
                 commits that are not in {path} yet. The host has stopped writing. Stop every other \
                 process that has the database open, and put the log back if you have it; otherwise \
                 check the database (`PRAGMA integrity_check`, `besom audit`), and restore a backup \
                 if they report a fault. Then restart the host. A database and its -wal belong \
                 together"
            ),
        }
    }

    /// Records, in the file that the lease locks, which write-ahead log belongs to the database, so
    /// that the next start can check that they belong together.
    pub(super) fn note_log(&self) {
        let noted = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(beside(&self.path, "-lease"))
            .and_then(|mut file| file.write_all(files_of(&self.path).as_bytes()));
        if let Err(error) = noted {
            tracing::debug!(%error, "the identity of the write-ahead log could not be recorded");
        }
    }

    /// Refuses to continue with another file.
    pub(super) fn check(&self) -> Result<()> {
        self.lost().map_or(Ok(()), |loss| Err(Error::Unavailable(self.told(loss, false))))
    }
}

/// The inodes of a database and its write-ahead log.
fn files_of(database: &Path) -> String {
    let inode = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.ino());
    format!("{} {}\n", inode(database), inode(&beside(database, "-wal")))
}

/// The path of a file that accompanies a database, with this suffix.
pub fn beside(database: &Path, end: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Refuses a database that has replaced another one whose write-ahead log still exists: opening it
/// would write that database's pages into it.
pub(super) fn refuse_another_log(database: &Path) -> Result<()> {
    let noted = std::fs::read_to_string(beside(database, "-lease")).unwrap_or_default();
    let (wal, path) = (beside(database, "-wal"), database.display());
    if !database.exists() && std::fs::metadata(&wal).is_ok_and(|log| log.len() > 0) {
        return Err(Error::Unavailable(format!(
            "{path} is missing, but its write-ahead log {path}-wal exists and may hold what was \
             committed last: put the database back beside it, or move {path}-wal and {path}-shm away"
        )));
    }
    let is_empty = std::fs::metadata(&wal).map_or(true, |meta| meta.len() == 0);
    let now = files_of(database);
    let ((Some((then, log)), Some((file, log_now))), false) =
        ((noted.trim().split_once(' '), now.trim().split_once(' ')), is_empty)
    else {
        return Ok(());
    };
    if log == "0" || log != log_now || then == file {
        return Ok(());
    }
    Err(Error::Unavailable(format!(
        "{path} has replaced another file, whose write-ahead log {path}-wal still exists and would \
         damage this one: remove {path}-wal and {path}-shm, or put the other file back"
    )))
}

fn unreadable(path: &Path, error: &dyn Display) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_file_that_was_replaced_is_refused_and_one_that_moved_along_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.db");
        let write = |name: &str| std::fs::write(dir.path().join(name), name).expect("written");
        write("a.db");
        write("a.db-wal");
        assert!(refuse_another_log(&path).is_ok(), "nothing was noted");
        std::fs::write(dir.path().join("a.db-lease"), files_of(&path)).expect("noted");
        assert!(refuse_another_log(&path).is_ok());
        write("b.db");
        std::fs::rename(dir.path().join("b.db"), &path).expect("replaced");
        let refused = refuse_another_log(&path).expect_err("another log");
        assert!(refused.to_string().contains("a.db-wal"), "{refused}");
        write("b.db-wal");
        std::fs::rename(dir.path().join("b.db-wal"), beside(&path, "-wal")).expect("replaced");
        assert!(refuse_another_log(&path).is_ok(), "a copy with a log of its own");
        std::fs::remove_file(&path).expect("removed");
        let refused = refuse_another_log(&path).expect_err("a log alone").to_string();
        assert!(refused.contains("a.db is missing"), "{refused}");
    }

    #[test]
    fn a_file_that_was_moved_removed_or_replaced_is_lost_and_one_that_is_back_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, elsewhere) = (dir.path().join("a.db"), dir.path().join("b.db"));
        std::fs::write(&path, "one").expect("written");
        let place = Place::of(&path).expect("it is there");
        assert_eq!(place.lost(), None);
        std::fs::write(&path, "written in place").expect("written");
        assert_eq!(place.lost(), None);
        std::fs::rename(&path, &elsewhere).expect("moved");
        assert_eq!(place.lost(), Some(Loss::File(Gone::Removed)));
        std::fs::write(&path, "another").expect("written");
        assert_eq!(place.lost(), Some(Loss::File(Gone::Replaced)));
        assert!(matches!(place.check(), Err(Error::Unavailable(_))));
        std::fs::rename(&elsewhere, &path).expect("moved back");
        assert_eq!(place.lost(), None);
    }

    #[test]
    fn a_write_ahead_log_that_was_removed_or_replaced_is_lost_and_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.db");
        let (log, elsewhere) = (beside(&path, "-wal"), dir.path().join("elsewhere"));
        std::fs::write(&path, "one").expect("written");
        std::fs::write(&log, "what was committed").expect("written");
        let place = Place::of(&path).expect("it is there");
        assert_eq!(place.lost(), None);
        std::fs::rename(&log, &elsewhere).expect("moved");
        assert_eq!(place.lost(), Some(Loss::Log(Gone::Removed)));
        std::fs::write(&log, "another").expect("written");
        assert_eq!(place.lost(), Some(Loss::Log(Gone::Replaced)));
        let refused = place.check().expect_err("another log").to_string();
        assert!(refused.contains("a.db-wal was replaced"), "{refused}");
        std::fs::rename(&elsewhere, &log).expect("moved back");
        assert_eq!(place.lost(), None);
    }
}
