//! Where the file and its write-ahead log lie, and whether they still do.
//!
//! A process that has opened a file goes on in it when it is moved, removed or replaced, without
//! an error: what it writes then is in no file that anybody will open again, and what is put into
//! the new one is never seen. The open file is known by its device and inode.

use std::fmt::{Display, Formatter};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::ports::store::{Error, Result};

/// The file that was opened at a path, with its write-ahead log.
#[derive(Debug, Clone)]
pub(super) struct Place {
    path: PathBuf,
    file: Inode,
    /// None: it has no log.
    log: Option<Inode>,
}

/// A file, whatever its name: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode(u64, u64);

impl Inode {
    fn of(path: &Path) -> std::io::Result<Inode> {
        std::fs::metadata(path).map(|meta| Inode(meta.dev(), meta.ino()))
    }

    /// What has become of the file at a path; none: it is there, as far as anybody can tell.
    fn gone_from(self, path: &Path) -> Option<Gone> {
        match Inode::of(path) {
            Ok(now) if now == self => None,
            Ok(_) => Some(Gone::Replaced),
            Err(error) if error.kind() == ErrorKind::NotFound => Some(Gone::Removed),
            // A directory that may not be looked into any more says nothing about the file.
            Err(_) => None,
        }
    }
}

/// What has become of a file at its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Nothing lies there.
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

/// Which file is not what was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    File(Gone),
    Log(Gone),
}

impl Place {
    /// The file that lies there, with a connection open in it: while there is one, SQLite itself
    /// does not remove the log.
    pub(super) fn of(path: &Path) -> Result<Place> {
        // The directory of the process may change, and links may lead elsewhere later.
        let path = std::path::absolute(path).map_err(|error| unreadable(path, &error))?;
        let file = Inode::of(&path).map_err(|error| unreadable(&path, &error))?;
        Ok(Place { file, log: Inode::of(&beside(&path, "-wal")).ok(), path })
    }

    /// Which of the files that were opened is not the one that lies there; none: both are, as far
    /// as anybody can tell.
    pub(super) fn lost(&self) -> Option<Loss> {
        let log = || self.log?.gone_from(&beside(&self.path, "-wal")).map(Loss::Log);
        self.file.gone_from(&self.path).map(Loss::File).or_else(log)
    }

    /// What happened, and what to do. `saved`: the log that was removed is in the database.
    pub(super) fn told(&self, loss: Loss, saved: bool) -> String {
        let path = self.path.display();
        match loss {
            Loss::File(gone) => format!(
                "the database {path} {gone} while this host had it open. Nothing more is written to \
                 the file that it has. Either put that one back (with its -wal), or go on with what \
                 lies there now: then remove {path}-wal and {path}-shm first, which belong to the \
                 file that is gone and would damage another. Then start the host again; stop it \
                 before you move, remove or replace its database"
            ),
            Loss::Log(gone) if saved => format!(
                "the write-ahead log {path}-wal {gone} while this host had it open. This host has \
                 written what it held into {path}: nothing is lost. Stop whatever else has the \
                 database open, for it goes on in the log that is gone; then start the host again. \
                 A database and its -wal belong together: stop the host before you touch either"
            ),
            Loss::Log(gone) => format!(
                "the write-ahead log {path}-wal {gone} while this host had it open: it holds what \
                 was committed and is not in {path} yet. Nothing more is written. Stop whatever else \
                 has the database open, and put that log back if you have it; else check the \
                 database (`PRAGMA integrity_check`, `besom audit`), and restore a copy where they \
                 find anything. Then start the host again; a database and its -wal belong together"
            ),
        }
    }

    /// Notes, in the file that the lease locks, which write-ahead log belongs to the database:
    /// the next start can tell whether they still belong together.
    pub(super) fn note_log(&self) {
        let noted = std::fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(beside(&self.path, "-lease"))
            .and_then(|mut file| file.write_all(files_of(&self.path).as_bytes()));
        if let Err(error) = noted {
            tracing::debug!(%error, "the write-ahead log is not noted");
        }
    }

    /// Refuses to go on with another file.
    pub(super) fn check(&self) -> Result<()> {
        self.lost().map_or(Ok(()), |loss| Err(Error::Unavailable(self.told(loss, false))))
    }
}

/// A database and its write-ahead log, by their inodes.
fn files_of(database: &Path) -> String {
    let inode = |path: &Path| std::fs::metadata(path).map_or(0, |meta| meta.ino());
    format!("{} {}\n", inode(database), inode(&beside(database, "-wal")))
}

/// The path of a file that belongs to a database, by the end of its name.
pub(crate) fn beside(database: &Path, end: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Refuses a database that was put in the place of another whose write-ahead log is still there:
/// opening it would write the pages of that one into it.
pub(super) fn refuse_another_log(database: &Path) -> Result<()> {
    let noted = std::fs::read_to_string(beside(database, "-lease")).unwrap_or_default();
    let (wal, path) = (beside(database, "-wal"), database.display());
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
        "{path} was put in the place of another file, whose write-ahead log {path}-wal is still there \
         and would damage this one: remove {path}-wal and {path}-shm, or put the other file back"
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
