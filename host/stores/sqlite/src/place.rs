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
    /// Where the log is: beside the file itself, also if the path is a link.
    log_path: PathBuf,
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
        match std::fs::metadata(path) {
            Ok(now) if Inode(now.dev(), now.ino()) == self => None,
            Ok(now) if now.len() == 0 => Some(Gone::ReplacedByEmpty),
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
    /// The file at the path is another one, without content: SQLite creates one for a process that opens
    /// the database without its log.
    ReplacedByEmpty,
}

impl Display for Gone {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Gone::Removed => "was moved or removed",
            Gone::Replaced => "was replaced by another file",
            Gone::ReplacedByEmpty => "was replaced by an empty file",
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
        let log_path = beside(&super::open::real(&path), "-wal");
        Ok(Place { file, log: Inode::of(&log_path).ok(), log_path, path })
    }

    /// The size of the database file, in bytes, and when it was written last; none: unknown.
    pub(super) fn mark(&self) -> Option<(u64, SystemTime)> {
        let data = std::fs::metadata(&self.path).ok()?;
        Some((data.len(), data.modified().ok()?))
    }

    /// When the log was written last; none: unknown.
    pub(super) fn log_written_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.log_path).ok()?.modified().ok()
    }

    /// Which of the opened files is no longer at its path; none: both are there, as far as can be
    /// determined.
    pub(super) fn lost(&self) -> Option<Loss> {
        let log = || self.log?.gone_from(&self.log_path).map(Loss::Log);
        self.file.gone_from(&self.path).map(Loss::File).or_else(log)
    }

    /// Whether the log at the path belongs to another file.
    fn has_another_log(&self) -> bool {
        Inode::of(&self.log_path).is_ok_and(|log| Some(log) != self.log)
    }

    /// The message: what happened, and the fix. `saved`: the removed log's content is in the
    /// database.
    pub(super) fn told(&self, loss: Loss, saved: bool) -> String {
        let path = self.path.display();
        match loss {
            Loss::File(gone) if self.has_another_log() => format!(
                "the database {path} {gone} while this host had it open. The host has stopped \
                 writing to the original file. Either keep what is at that path now, with the {path}-wal \
                 beside it, or move all three away and put the original file back (with its -wal). Then \
                 restart the host. Always stop the host before you move, remove or replace its database"
            ),
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
        self.note(false);
    }

    /// Records that all of a log that was removed is in the database.
    pub(super) fn note_saved(&self) {
        self.note(true);
    }

    fn note(&self, saved: bool) {
        let noted = note_file(&beside(&self.path, "-lease")).and_then(|mut file| {
            file.set_len(0)?;
            file.write_all(files_of(&self.path, saved).as_bytes())
        });
        if let Err(error) = noted {
            tracing::debug!(%error, "the identity of the write-ahead log could not be recorded");
        }
    }

    /// Refuses to continue with another file.
    pub(super) fn check(&self) -> Result<()> {
        self.lost().map_or(Ok(()), |loss| Err(Error::Unavailable(self.told(loss, false))))
    }
}

/// Opens the file of the notes. Who can write the directory of the database must not have another file
/// overwritten through a link.
fn note_file(path: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = std::fs::OpenOptions::new();
    let file = options.create(true).write(true).truncate(false).custom_flags(no_link).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.nlink() != 1 {
        return Err(std::io::Error::other("it is not a regular file with a single name"));
    }
    Ok(file)
}

/// What a host notes of a database. `saved`: all of the log is in the database.
fn files_of(database: &Path, saved: bool) -> String {
    let log = if saved { None } else { inode(&beside(database, "-wal")) };
    let born = born(database).map(|born| format!(" {born}")).unwrap_or_default();
    format!("{} {}{born}\n", inode(database).unwrap_or(0), log.unwrap_or(0))
}

/// The path of a file that accompanies a database, with this suffix.
pub fn beside(database: &Path, end: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// Refuses a database whose files do not belong together. SQLite would open them: it would write the
/// pages of another database's log into this one, or remove the log, or begin a new one beside that
/// which another process still has open.
pub(super) fn refuse_other_files(database: &Path) -> Result<()> {
    let length = |end: &str| std::fs::metadata(beside(database, end)).map(|meta| meta.len()).ok();
    let (file, log, shared) = (length(""), length("-wal"), length("-shm"));
    let path = database.display();
    let log_has_content = log.is_some_and(|bytes| bytes > 0);
    let noted = noted(database);
    let refused = match file {
        None if log_has_content => format!(
            "{path} is missing, but its write-ahead log {path}-wal exists and may hold what was \
             committed last: put the database back beside it, or move {path}-wal and {path}-shm away"
        ),
        Some(0)
            if log_has_content
                || noted.is_some_and(|noted| Some(noted.file) == inode(database)) =>
        {
            format!(
                "{path} is empty, although a host has used it: it was truncated. Stop every process \
                 that has it open, keep a copy of {path}-wal, which may hold what was committed last, \
                 remove {path}-wal, {path}-shm and {path}-lease, and restore a backup to {path}"
            )
        }
        Some(_) if log.is_none() && is_log_missing(database, shared.is_some(), noted) => format!(
            "the write-ahead log {path}-wal was removed, but {path}-shm still belongs to it. A process \
             that has the database open may hold the only copy of the log: a host writes it into {path} \
             within seconds, ends, and removes {path}-shm. If no process has the database open, put \
             the log back; if you do not have it, remove {path}-shm, and check the database (`PRAGMA \
             integrity_check`, `besom audit`), because commits may be missing"
        ),
        Some(_) if log_has_content && replaced(database, noted) => format!(
            "{path} has replaced another file, whose write-ahead log {path}-wal still exists and would \
             damage this one: remove {path}-wal and {path}-shm, or put the other file back"
        ),
        _ => return Ok(()),
    };
    Err(Error::Unavailable(refused))
}

/// Whether a log is missing that was there: another process has the database open, or a host that has
/// not saved it has died. SQLite removes the log only with the last connection, and -shm before it.
fn is_log_missing(database: &Path, shared: bool, noted: Option<Noted>) -> bool {
    let is_open = || is_locked(database) || is_locked(&beside(database, "-shm"));
    match noted {
        // It is in the database.
        Some(noted) if noted.log == 0 => shared && is_open(),
        Some(noted) if !shared => Some(noted.file) == inode(database) && is_open(),
        _ => shared,
    }
}

/// Whether another process has a lock on a file, as far as the system tells.
fn is_locked(path: &Path) -> bool {
    let (Some(inode), own) = (inode(path), std::process::id().to_string()) else { return false };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    locks.lines().any(|line| is_lock_of(line, inode, &own))
}

/// Whether a line of /proc/locks is about that inode and a process other than `own`, such as
/// `1: POSIX  ADVISORY  READ 4711 fe:00:1234 128 128`.
fn is_lock_of(line: &str, inode: u64, own: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| !matches!(*word, "READ" | "WRITE"));
    let (Some(_), Some(process), Some(file)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    process != own && file.rsplit(':').next() == Some(inode.to_string().as_str())
}

/// Whether the database is another file than the one that a host has noted, beside the same log.
fn replaced(database: &Path, noted: Option<Noted>) -> bool {
    noted.is_some_and(|noted| {
        let is_other = Some(noted.file) != inode(database)
            || noted.born.zip(born(database)).is_some_and(|(then, now)| then != now);
        Some(noted.log) == inode(&beside(database, "-wal")) && is_other
    })
}

/// What a host has noted last of its files.
#[derive(Debug, Clone, Copy)]
struct Noted {
    /// The inode of the database.
    file: u64,
    /// The inode of its log; 0: all of it is in the database.
    log: u64,
    /// When the database's file was created, in nanoseconds since the epoch: a new file may have the
    /// inode of a removed one.
    born: Option<u128>,
}

/// What a host has noted beside this database; none: no host has.
fn noted(database: &Path) -> Option<Noted> {
    let noted = std::fs::read_to_string(beside(database, "-lease")).ok()?;
    let mut numbers = noted.split_whitespace();
    let (file, log) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    Some(Noted { file, log, born: numbers.next().and_then(|born| born.parse().ok()) })
}

/// When a file was created, in nanoseconds since the epoch; none: the file system does not know.
fn born(path: &Path) -> Option<u128> {
    let created = std::fs::metadata(path).ok()?.created().ok()?;
    created.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_nanos())
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).map(|meta| meta.ino()).ok()
}

fn unreadable(path: &Path, error: &dyn Display) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_the_notes_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, other) = (dir.path().join("a.db-lease"), dir.path().join("other"));
        std::fs::write(&other, "precious").expect("written");
        std::os::unix::fs::symlink(&other, &path).expect("a link");
        assert!(note_file(&path).is_err());
        std::fs::remove_file(&path).expect("removed");
        std::fs::hard_link(&other, &path).expect("a second name");
        assert!(note_file(&path).is_err());
        std::fs::remove_file(&path).expect("removed");
        std::os::unix::fs::symlink(dir.path().join("new"), &path).expect("a dangling link");
        assert!(note_file(&path).is_err());
        assert!(!dir.path().join("new").exists());
        assert_eq!(std::fs::read_to_string(&other).expect("read"), "precious");
        std::fs::remove_file(&path).expect("removed");
        assert!(note_file(&path).is_ok());
    }

    #[test]
    fn the_log_of_a_file_that_was_replaced_is_refused_and_one_that_moved_along_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.db");
        let write = |name: &str| std::fs::write(dir.path().join(name), name).expect("written");
        write("a.db");
        write("a.db-wal");
        assert!(refuse_other_files(&path).is_ok(), "nothing was noted");
        std::fs::write(dir.path().join("a.db-lease"), files_of(&path, false)).expect("noted");
        assert!(refuse_other_files(&path).is_ok());
        write("b.db");
        std::fs::rename(dir.path().join("b.db"), &path).expect("replaced");
        let refused = refuse_other_files(&path).expect_err("another log");
        assert!(refused.to_string().contains("a.db-wal"), "{refused}");
        write("b.db-wal");
        std::fs::rename(dir.path().join("b.db-wal"), beside(&path, "-wal")).expect("replaced");
        assert!(refuse_other_files(&path).is_ok(), "a copy with a log of its own");
        std::fs::remove_file(&path).expect("removed");
        let refused = refuse_other_files(&path).expect_err("a log alone").to_string();
        assert!(refused.contains("a.db is missing"), "{refused}");
    }

    #[test]
    fn a_truncated_file_and_one_whose_log_was_removed_are_refused_and_a_new_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.db");
        let write = |end: &str, text: &str| {
            std::fs::write(beside(&path, end), text).expect("written");
        };
        let refused = |why: &str| refuse_other_files(&path).expect_err(why).to_string();
        assert!(refuse_other_files(&path).is_ok(), "there is nothing");
        write("", "");
        assert!(refuse_other_files(&path).is_ok(), "an empty file is a new one");
        write("-wal", "what was committed");
        assert!(refused("a log").contains("a.db is empty"));
        let noted = files_of(&path, false);
        std::fs::remove_file(beside(&path, "-wal")).expect("removed");
        write("-lease", &noted);
        assert!(refused("used by a host").contains("a.db-lease"));
        write("", "pages");
        assert!(refuse_other_files(&path).is_ok());
        write("-shm", "");
        assert!(refused("no log").contains("a.db-wal was removed"));
        write("-wal", "");
        assert!(refuse_other_files(&path).is_ok(), "an empty log");
        // A host has saved the log that was removed, and has ended.
        std::fs::remove_file(beside(&path, "-wal")).expect("removed");
        write("-lease", &files_of(&path, true));
        assert!(refuse_other_files(&path).is_ok());
    }

    #[test]
    fn a_new_file_with_the_inode_of_a_removed_one_is_another_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("a.db");
        std::fs::write(&path, "pages").expect("written");
        std::fs::write(beside(&path, "-wal"), "what was committed").expect("written");
        let noted = files_of(&path, false);
        let born = born(&path).expect("the file system knows");
        let lease = beside(&path, "-lease");
        std::fs::write(&lease, &noted).expect("noted");
        assert!(refuse_other_files(&path).is_ok());
        std::fs::write(&lease, noted.replace(&born.to_string(), "1")).expect("noted");
        let refused = refuse_other_files(&path).expect_err("another file").to_string();
        assert!(refused.contains("has replaced another file"), "{refused}");
        // Written by an earlier version.
        std::fs::write(&lease, noted.replace(&born.to_string(), "")).expect("noted");
        assert!(refuse_other_files(&path).is_ok());
    }

    #[test]
    fn a_lock_of_another_process_is_found_in_what_the_system_tells() {
        let line = "12: POSIX  ADVISORY  READ 4711 fe:00:1234 128 128";
        assert!(is_lock_of(line, 1234, "1"));
        assert!(!is_lock_of(line, 1234, "4711") && !is_lock_of(line, 234, "1"));
        assert!(is_lock_of("1: -> POSIX  ADVISORY  WRITE 9 08:01:7 0 EOF", 7, "1"));
        assert!(!is_lock_of("", 7, "1"));
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
        std::fs::write(&log, "").expect("written");
        assert_eq!(place.lost(), Some(Loss::Log(Gone::ReplacedByEmpty)));
        std::fs::write(&log, "another").expect("written");
        assert_eq!(place.lost(), Some(Loss::Log(Gone::Replaced)));
        let refused = place.check().expect_err("another log").to_string();
        assert!(refused.contains("a.db-wal was replaced"), "{refused}");
        std::fs::rename(&elsewhere, &log).expect("moved back");
        assert_eq!(place.lost(), None);
    }
}
