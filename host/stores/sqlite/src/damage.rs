//! Detects that the database file is malformed, and remembers it.
//!
//! SQLite reads pages when it needs them, so a file that was overwritten while it was open is found
//! to be malformed by whichever statement reads a changed page first. From then on this process
//! writes nothing more to it: every further page could damage what a recovery still needs.
//!
//! Old and new pages may also fit together where they are read, so that no statement fails. A process
//! that opens the file therefore checks its structure for a bounded time, Besom's own tables first.
//! A whole `PRAGMA integrity_check` reads every page and every index entry, which takes minutes for
//! a large file and would delay each start by that.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

use super::error::{Failure, Job};
use super::place::Place;
use super::statements::Statements;
use besom_ports::store::{Error, Result};

/// The page cache of the check, in KiB.
const CACHE_KIB: u32 = 2_000;
/// Instructions of SQLite's virtual machine between two checks of the clock.
const STEPS: i32 = 1_000;

/// How SQLite begins a message about the structure of the file. Its other messages are about values
/// that violate a constraint, which is no damage.
const OF_STRUCTURE: &str = "*** in database";

/// How many faults of the structure a message names.
const FAULTS_TOLD_MAX: usize = 3;

/// Whether a database was found to be malformed; shared by everything that uses it.
#[derive(Debug, Clone)]
pub(super) struct Damage {
    path: PathBuf,
    found: Arc<OnceLock<String>>,
}

impl Damage {
    pub(super) fn of(path: &Path) -> Damage {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Damage { path, found: Arc::default() }
    }

    /// The first damage found, with the fix.
    pub(super) fn found(&self) -> Option<&str> {
        self.found.get().map(String::as_str)
    }

    /// Refuses to continue with a malformed file.
    pub(super) fn check(&self) -> Result<()> {
        self.found().map_or(Ok(()), |told| Err(Error::Damaged(told.to_owned())))
    }

    /// Remembers the error if it says that the file is malformed, and returns it with the path and
    /// the fix.
    pub(super) fn note(&self, error: Error) -> Error {
        let Error::Damaged(said) = error else { return error };
        Error::Damaged(self.found.get_or_init(|| told(&self.path, &said)).clone())
    }

    /// Keeps a connection from writing the log into a malformed file when it is closed.
    pub(super) fn spare(&self, conn: &Connection) {
        if self.found().is_some() {
            // If it fails, the log is written back as usual.
            let _ = conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

/// How often, and for how long, a file that was written is checked while it is open.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const CHECK_MAX: Duration = Duration::from_millis(100);
/// How long a file that has become smaller is checked. SQLite makes a file smaller only for `VACUUM`;
/// a backup that is copied over it usually is smaller.
const SHRUNK_CHECK_MAX: Duration = Duration::from_secs(2);

/// Watches the size and the time of an open file, to notice that another one was copied over it. The
/// file itself is not opened for that: closing it would release SQLite's locks of this process.
pub(super) struct Watched(Mutex<Seen>);

struct Seen {
    mark: Option<(u64, SystemTime)>,
    checked: Instant,
}

impl Watched {
    pub(super) fn of(place: &Place) -> Watched {
        Watched(Mutex::new(Seen { mark: place.mark(), checked: Instant::now() }))
    }

    /// For how long the file has to be checked now; none: it need not be. Checkpoints write the file as
    /// well, so most checks find nothing.
    pub(super) fn check_due(&self, place: &Place) -> Option<Duration> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).check_due(place.mark()?, Instant::now())
    }
}

impl Seen {
    fn check_due(&mut self, mark: (u64, SystemTime), now: Instant) -> Option<Duration> {
        let shrunk = self.mark.is_some_and(|(len, _)| mark.0 < len);
        let is_due = now.duration_since(self.checked) >= CHECK_EVERY && self.mark != Some(mark);
        if !shrunk && !is_due {
            // What was written meanwhile is still to be checked, but its size is known.
            if let Some((len, _)) = &mut self.mark {
                *len = mark.0;
            }
            return None;
        }
        *self = Seen { mark: Some(mark), checked: now };
        Some(if shrunk { SHRUNK_CHECK_MAX } else { CHECK_MAX })
    }
}

/// The message: what SQLite has found, and the fix.
fn told(path: &Path, said: &str) -> String {
    let path = path.display();
    let other = match said.contains("not a database") {
        true => "It is a file of another kind (check store.path), it",
        false => "It",
    };
    format!(
        "the database {path} is malformed: {said}. {other} was overwritten while it was open, or the disk \
         has damaged it; this process writes nothing more to it. Stop every process that has it open, \
         keep a copy of {path} and {path}-wal, remove {path}-wal and {path}-shm, and restore a backup \
         to {path}. Check the result with `PRAGMA integrity_check` before you start the host. Never \
         copy a file over a database that is open"
    )
}

/// Checks the structure of the file for at most `max`. What cannot be checked within that time counts
/// as intact.
pub(super) fn examine(conn: &mut Connection, max: Duration) -> Job<()> {
    // The pages are not needed again. In a large cache they would leave memory behind that the allocator keeps.
    let cache: i64 = conn.query_row("PRAGMA cache_size", [], |r| r.get(0))?;
    conn.execute_batch(&format!("PRAGMA cache_size = -{CACHE_KIB}"))?;
    let until = Instant::now() + max;
    let expired = move || Instant::now() >= until;
    conn.progress_handler(STEPS, Some(expired))?;
    let examined = examine_all(conn);
    conn.progress_handler(0, None::<fn() -> bool>)?;
    conn.execute_batch(&format!("PRAGMA shrink_memory; PRAGMA cache_size = {cache}"))?;
    match examined {
        Err(Failure::Sql(e)) if e.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            tracing::debug!(?max, "the database was not checked as a whole");
            Ok(())
        }
        other => other,
    }
}

fn examine_all(conn: &Connection) -> Job<()> {
    let own =
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'besom\\_%' ESCAPE '\\'";
    let own: Vec<String> = conn.all(own, [], |r| r.get(0))?;
    for table in own {
        quick_check(conn, &format!("'{}'", table.replace('\'', "''")))?;
    }
    quick_check(conn, "1")
}

/// The first faults, and how many more there are: the fix follows them.
fn first_of<'a>(faults: impl Iterator<Item = &'a str>) -> String {
    let faults: Vec<&str> = faults.collect();
    let told = faults[..faults.len().min(FAULTS_TOLD_MAX)].join("; ");
    match faults.len().saturating_sub(FAULTS_TOLD_MAX) {
        0 => told,
        more => format!("{told}; and {more} more"),
    }
}

/// Runs SQLite's check of the structure, of one table or of the whole file.
fn quick_check(conn: &Connection, what: &str) -> Job<()> {
    let said = conn.query_row(&format!("PRAGMA quick_check({what})"), [], |r| r.get(0));
    match said {
        Ok::<String, _>(said) => match said.strip_prefix(OF_STRUCTURE) {
            Some(_) => Err(Error::Damaged(first_of(said.lines().skip(1))).into()),
            None => Ok(()),
        },
        // A function of the product in a constraint, for example, is not known here.
        Err(e) if matches!(e.sqlite_error_code(), Some(ErrorCode::Unknown)) => {
            tracing::debug!(error = %e, what, "the database could not be checked");
            Ok(())
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::{Options, SqliteStore};

    /// A store beside a table of the product with many pages, all of it in the file.
    fn store() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        drop(SqliteStore::open(&path, Options::default()).unwrap());
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(
            "CREATE TABLE t (x TEXT CHECK (x <> 'y'));
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000)
             INSERT INTO t SELECT hex(randomblob(500)) FROM n;
             PRAGMA wal_checkpoint(TRUNCATE)",
        )
        .unwrap();
        (directory, path)
    }

    fn page_of(path: &Path, table: &str) -> u64 {
        let conn = Connection::open(path).unwrap();
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
        conn.query_row(sql, [table], |r| r.get::<_, u32>(0)).unwrap().into()
    }

    fn overwrite(path: &Path, page: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&[0x5a; 4096], (page - 1) * 4096).unwrap();
    }

    #[track_caller]
    fn refused(path: &Path, options: Options) -> String {
        match SqliteStore::open(path, options) {
            Err(Error::Damaged(said)) => said,
            Err(other) => panic!("{other:?}"),
            Ok(_) => panic!("it was opened"),
        }
    }

    #[test]
    fn a_malformed_file_is_refused_with_its_path_and_the_fix() {
        for table in ["besom_run", "t"] {
            let (_directory, path) = store();
            overwrite(&path, page_of(&path, table));
            let said = refused(&path, Options::default());
            assert!(said.contains("x.db is malformed"), "{said}");
            assert!(
                said.contains("integrity_check") && said.contains("restore a backup"),
                "{said}"
            );
        }
        let (_directory, path) = store();
        std::fs::write(&path, "no database".repeat(1000)).unwrap();
        let said = refused(&path, Options::default());
        assert!(said.contains("x.db is malformed: file is not a database"), "{said}");
        assert!(said.contains("check store.path"), "{said}");
    }

    /// The time is for Besom's own tables first; a violated constraint is no damage.
    #[test]
    fn the_check_is_bounded_and_only_about_the_structure() {
        let (_directory, path) = store();
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA ignore_check_constraints = 1; INSERT INTO t VALUES ('y')")
            .unwrap();
        drop(conn);
        assert!(SqliteStore::open(&path, Options::default()).is_ok());
        overwrite(&path, page_of(&path, "t"));
        let none = Options { check_max: Duration::ZERO, ..Options::default() };
        assert!(SqliteStore::open(&path, none).is_ok());
    }

    #[test]
    fn a_message_names_the_first_faults_and_how_many_more_there_are() {
        assert_eq!(first_of(["a", "b", "c"].into_iter()), "a; b; c");
        assert_eq!(first_of(["a", "b", "c", "d", "e"].into_iter()), "a; b; c; and 2 more");
    }

    #[test]
    fn a_file_that_was_written_is_checked_now_and_then_and_one_that_shrank_at_once() {
        let (start, at) = (Instant::now(), |s| SystemTime::UNIX_EPOCH + Duration::from_secs(s));
        let mut seen = Seen { mark: Some((10, at(1))), checked: start };
        for (seconds, mark, expected) in [
            (20, (10, at(1)), None),
            (20, (12, at(2)), Some(CHECK_MAX)),
            (25, (14, at(3)), None),
            (29, (14, at(3)), None),
            (30, (14, at(3)), Some(CHECK_MAX)),
            (31, (13, at(4)), Some(SHRUNK_CHECK_MAX)),
            (32, (15, at(5)), None),
            (33, (14, at(5)), Some(SHRUNK_CHECK_MAX)),
        ] {
            let due = seen.check_due(mark, start + Duration::from_secs(seconds));
            assert_eq!(due, expected, "after {seconds} s: {mark:?}");
        }
    }

    #[tokio::test]
    async fn a_store_that_finds_its_file_malformed_is_lost_and_writes_nothing_more() {
        use besom_core::ids::Incarnation;
        use besom_ports::store::Store as _;

        let (_directory, path) = store();
        let (table, none) = (
            page_of(&path, "besom_run"),
            Options { check_max: Duration::ZERO, ..Options::default() },
        );
        let store = SqliteStore::open(&path, none).unwrap();
        assert_eq!(store.lost().await, None);
        overwrite(&path, table);
        let Err(Error::Damaged(said)) = store.runs(None, 1).await else { panic!("it was read") };
        assert!(said.contains("x.db is malformed"), "{said}");
        assert_eq!(store.lost().await.as_deref(), Some(said.as_str()));
        let node = Incarnation::from("a");
        let written = store.forget_node(&node).await;
        assert!(matches!(written, Err(Error::Damaged(_))), "{written:?}");
    }
}
