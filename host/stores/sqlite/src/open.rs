//! Opens the file: version, settings, migrations, threads.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock, RwLock};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use super::clock::{Clock, TimeSource, wall_clock};
use super::damage::{self, Damage, Watched};
use super::error::{Failure, Job};
use super::fault::Faults;
use super::fits;
use super::mapping::Mapping;
use super::place::{Place, beside, refuse_other_files};
use super::readers::{OpenReads, Readers, Tables};
use super::schema::Foundation;
use super::statements::Statements as _;
use super::writer::{Writer, while_busy};
use super::{SqliteStore, schema};
use besom_ports::activity::Timeouts;
use besom_ports::store::{Error, NO_TABLES, Result};
use besom_record::courtesy::WRITE_SHARE_DEFAULT;
use besom_tables::check::present;
use besom_tables::room::UNDO_BYTES_DEFAULT;

/// Older versions can corrupt a WAL file when two connections write or checkpoint.
const SQLITE_MIN: (i32, &str) = (3_051_003, "3.51.3");

/// Prepared statements kept on the write connection.
const STATEMENTS: usize = 512;

/// The options of the store. Every limit has a default.
#[derive(Clone)]
pub struct Options {
    /// Whether the file and missing tables of the engine are created; otherwise a file without them
    /// is refused and not changed.
    pub creates: bool,
    /// Only to compare the file with the mapping: nothing in it is created or changed, and it needs no tables of the
    /// engine.
    pub looks: bool,
    /// The number of partitions of a new store; an existing one keeps its own.
    pub partitions: u32,
    /// How long a write waits for another process's write.
    pub busy_max: Duration,
    /// The time limit of all guards in one commit that search rows by conditions.
    pub guard_timeout: Duration,
    /// The maximum size of the before-images of a commit, in bytes before they are packed.
    pub undo_bytes: u64,
    /// Jobs that wait for the writer; further callers wait for room.
    pub queued_max: usize,
    /// Concurrent snapshots.
    pub snapshots_max: usize,
    /// Other concurrent reads.
    pub readers_max: usize,
    /// How long a read waits for a connection.
    pub reader_wait_max: Duration,
    /// How long the structure of the file is checked at the opening; zero: not at all.
    pub check_max: Duration,
    /// In percent of the time: for how long changes of ranges of rows hold the write lock at most while other processes write.
    pub write_share: u32,
    /// Memory for the writer's page cache, in KiB.
    pub cache_kib: u32,
    /// The timeouts of the embedded activity.
    pub activity: Timeouts,
    /// The clock.
    pub time: TimeSource,
    /// Faults injected by tests.
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            creates: true,
            looks: false,
            partitions: 64,
            busy_max: Duration::from_secs(2),
            guard_timeout: Duration::from_secs(1),
            undo_bytes: UNDO_BYTES_DEFAULT,
            queued_max: 256,
            snapshots_max: 16,
            readers_max: 4,
            reader_wait_max: Duration::from_secs(10),
            check_max: Duration::from_millis(200),
            write_share: WRITE_SHARE_DEFAULT,
            cache_kib: 64 * 1024,
            activity: Timeouts::default(),
            time: wall_clock(),
            faults: Faults::default(),
        }
    }
}

impl SqliteStore {
    /// Opens the file; creates it and missing tables of the engine.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the file cannot be opened, read or written, or its files do not
    /// belong together (it has replaced another database whose write-ahead log still exists, it was
    /// truncated, or its log was removed); [`Error::Invalid`] if SQLite is too old or the
    /// schema is newer than this program; [`Error::Damaged`] if it is malformed, as far as that is
    /// found within [`Options::check_max`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Arc<SqliteStore>> {
        supported(rusqlite::version_number(), rusqlite::version())?;
        // SQLite keeps its other files beside the file itself, not beside a link to it.
        let path = &real(path.as_ref());
        let clock = Clock::new(options.time.clone());
        let since = clock.now();
        let damage = Damage::of(path);
        let named = |e: Failure| match Error::from(e) {
            Error::Unavailable(said) => {
                let denied = denied(path, &openable).unwrap_or_default();
                Error::Unavailable(format!("{}: {said}{denied}", path.display()))
            }
            Error::Invalid(said) => Error::Invalid(format!("{}: {said}", path.display())),
            other => damage.note(other),
        };
        refuse_other_files(path)?;
        if !options.creates && !has_tables(path).map_err(|e| named(e.into()))? {
            return Err(named(Error::Denied(NO_TABLES.into()).into()));
        }
        let mut conn = connect(path, &options).map_err(named)?;
        if !options.check_max.is_zero() {
            damage::examine(&mut conn, options.check_max).map_err(named)?;
        }
        let founded = match options.looks {
            true => Foundation { partitions: options.partitions, identity: String::new() },
            false => schema::migrate(&mut conn, options.partitions, since.0).map_err(named)?,
        };
        let beside = connect(path, &options).map_err(named)?;
        for conn in [&conn, &beside] {
            keeps_log(conn, false).map_err(|e| named(e.into()))?;
        }
        let place = Place::of(path)?;
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let wait_max = options.reader_wait_max;
        let reads = OpenReads::default();
        let schema = SchemaSeen::default();
        let seen = || (place.clone(), damage.clone(), reads.clone(), Arc::clone(&schema));
        let pool = |tables, size| Readers::new(tables, path.clone(), seen(), size, wait_max);
        Ok(Arc::new(SqliteStore {
            acts: pool(Tables::Products, options.snapshots_max),
            inspection: pool(Tables::Own, options.readers_max),
            founded,
            writer: Writer::start(
                (conn, beside),
                clock.clone(),
                (damage.clone(), reads.clone(), Arc::clone(&schema)),
                &options,
            )?,
            clock,
            mapping: RwLock::new(Arc::new(Mapping::new(&Arc::default(), 0))),
            schema,
            undo_bytes: options.undo_bytes,
            timeouts: options.activity,
            opened_at: since,
            listening_since: OnceLock::new(),
            path,
            place: place.clone(),
            damage: damage.clone(),
            watched: Watched::of(&place),
            long: Arc::default(),
        }))
    }
}

/// Whether this process may read and write a file.
fn openable(path: &Path) -> io::Result<()> {
    std::fs::OpenOptions::new().read(true).write(true).open(path).map(drop)
}

/// Which of a database's files this user may not access, and the fix: SQLite reports only that it
/// cannot open the database, or that it is read-only.
fn denied(path: &Path, open: &dyn Fn(&Path) -> io::Result<()>) -> Option<String> {
    let files = [path.to_owned(), beside(path, "-wal"), beside(path, "-shm")];
    let denied = |file: &&PathBuf| {
        open(file).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    let file = files.iter().find(denied)?;
    let user = rustix::process::geteuid().as_raw();
    Some(format!(
        "; permission denied for the user {user} on {}: let this user read and write the database, \
         its -wal and -shm, and write into their directory",
        file.display()
    ))
}

fn supported(number: i32, version: &str) -> Result<()> {
    if number >= SQLITE_MIN.0 {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "SQLite {version} can corrupt a WAL file when two connections write: Besom requires {} or \
         later",
        SQLITE_MIN.1
    )))
}

/// Whether a database has tables of the engine.
fn has_tables(path: &Path) -> rusqlite::Result<bool> {
    reading_with(path, schema::has_tables)
}

/// Reads a database of the product, which is not changed: [`connect`] would switch it to the write-ahead
/// log for good.
pub(super) fn reading<T>(path: &Path, read: impl Fn(&Connection) -> Job<T>) -> Job<T> {
    let path = &real(path);
    refuse_other_files(path)?;
    reading_with(path, |conn| {
        names_are_names(conn)?;
        read(conn)
    })
}

/// Reads a database without changing it. If a process has died within a transaction of the rollback
/// journal, SQLite rolls that back first, as for any reader, and needs to write for it.
fn reading_with<T, E: From<rusqlite::Error>>(
    path: &Path,
    read: impl Fn(&Connection) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    let found = |access: OpenFlags| {
        let conn = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        keeps_log(&conn, true)?;
        read(&conn)
    };
    found(OpenFlags::SQLITE_OPEN_READ_ONLY).or_else(|_| found(OpenFlags::SQLITE_OPEN_READ_WRITE))
}

/// Whether the log is left as it is when the last connection is closed. A file that is found to be
/// malformed keeps it: a recovery may need it.
fn keeps_log(conn: &Connection, keeps: bool) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, keeps)?;
    Ok(())
}

/// The path of the file itself, behind links; of one that does not exist yet, that of its directory.
pub fn real(path: &Path) -> PathBuf {
    let behind = path.canonicalize().ok();
    behind
        .or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
        .unwrap_or_else(|| path.to_owned())
}

fn connect(path: &Path, options: &Options) -> Job<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    keeps_log(&conn, true)?;
    // During the open, another process may be recovering or migrating the file.
    conn.busy_timeout(options.busy_max)?;
    // The mode stays in the file.
    if !options.looks {
        let mode = journal_mode(&conn, options.busy_max)?;
        if mode != "wal" {
            return Err(Error::Unavailable(format!(
                "the database cannot use a write-ahead log here (journal_mode is {mode}): \
                 it needs a local file system"
            ))
            .into());
        }
    }
    conn.execute_batch(&format!(
        "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY;
         PRAGMA cache_size = -{}; PRAGMA journal_size_limit = 67108864",
        options.cache_kib
    ))?;
    fits::register(&conn)?;
    conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    names_are_names(&conn)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(conn)
}

/// Switches to the write-ahead log and returns the mode that the database is in. SQLite does not
/// wait where two connections want to switch a new file at once: it reads before it writes, and a
/// reader that waited to write would wait for the other reader.
fn journal_mode(conn: &Connection, busy_max: Duration) -> rusqlite::Result<String> {
    while_busy(busy_max, || conn.query_row("PRAGMA journal_mode = WAL", [], |r| r.get(0)))
}

/// Makes a quoted name of a missing column an error instead of a text: otherwise a migration that
/// drops or renames a column would read the name as the value of every row.
pub(super) fn names_are_names(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
    Ok(())
}

/// The version of the schema that a connection has seen last.
pub(super) type SchemaSeen = Arc<AtomicI64>;

/// Decides how statements are planned, if that is not known for this version of the schema; returns the version.
/// Unless a table of the product has a partial index whose predicate is more than `IS NOT NULL`, so that values decide
/// whether it can be used, a statement has one plan: otherwise SQLite prepares a cached one anew for each use, which takes longer than most reads.
pub(super) fn decide_plans(conn: &Connection, known: Option<i64>) -> rusqlite::Result<i64> {
    let schema = conn.prepare_cached("PRAGMA schema_version")?.query_row([], |row| row.get(0))?;
    if known != Some(schema) {
        let partial: Vec<String> = conn.all(
            r"SELECT x.sql FROM sqlite_schema t, pragma_index_list(t.name) i
              JOIN sqlite_schema x ON x.type = 'index' AND x.name = i.name
              WHERE t.type = 'table' AND i.partial AND t.name NOT LIKE 'besom\_%' ESCAPE '\'",
            [],
            |row| row.get(0),
        )?;
        let values_decide = partial.iter().any(|sql| present(sql).is_none());
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, !values_decide)?;
    }
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_this_user_may_not_use_is_named_with_the_fix() {
        let refuse = |end: &'static str| {
            move |path: &Path| match path.to_string_lossy().ends_with(end) {
                true => Err(io::ErrorKind::PermissionDenied.into()),
                false => Err(io::ErrorKind::NotFound.into()),
            }
        };
        let path = Path::new("/data/besom.db");
        for (end, file) in [(".db", "/data/besom.db:"), ("-wal", "/data/besom.db-wal:")] {
            let said = denied(path, &refuse(end)).expect("denied");
            assert!(said.contains("permission denied") && said.contains(file), "{said}");
        }
        assert_eq!(denied(path, &refuse("nothing")), None);
    }

    #[test]
    fn the_files_beside_a_link_are_those_of_the_file_itself() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().canonicalize().expect("it exists").join(name);
        std::os::unix::fs::symlink(at("real.db"), at("link.db")).expect("linked");
        std::fs::write(at("real.db"), "").expect("written");
        assert_eq!(real(&at("link.db")), at("real.db"));
        assert_eq!(real(&at("none.db")), at("none.db"));
    }

    /// A process has died within a transaction of the rollback journal.
    #[test]
    fn a_file_without_tables_is_not_changed_beside_a_hot_journal() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let product = Connection::open(at("live.db")).expect("opened");
        product
            .execute_batch(
                "CREATE TABLE t (x BLOB); INSERT INTO t VALUES (1); PRAGMA cache_size = 5; BEGIN;
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
                 INSERT INTO t SELECT randomblob(3000) FROM n",
            )
            .expect("written");
        for end in ["", "-journal"] {
            let copied = std::fs::copy(at(&format!("live.db{end}")), at(&format!("x.db{end}")));
            assert!(copied.expect("copied") > 0, "{end}");
        }
        let reading = Options { creates: false, ..Options::default() };
        let refused = SqliteStore::open(at("x.db"), reading).map(drop).expect_err("no tables");
        assert!(refused.to_string().contains(NO_TABLES), "{refused}");
        let left = Connection::open(at("x.db")).expect("opened");
        let text = |sql: &str| left.query_row(sql, [], |row| row.get::<_, String>(0));
        assert_eq!(text("PRAGMA journal_mode").as_deref(), Ok("delete"));
        assert_eq!(text("SELECT group_concat(name) FROM sqlite_schema").as_deref(), Ok("t"));
        assert_eq!(text("SELECT CAST(count(*) AS TEXT) FROM t").as_deref(), Ok("1"));
    }

    #[test]
    fn an_sqlite_with_the_wal_reset_bug_is_refused_by_name() {
        let said = supported(3_051_002, "3.51.2").unwrap_err().to_string();
        assert!(said.contains("3.51.2") && said.contains("3.51.3"), "{said}");
        assert!(supported(rusqlite::version_number(), rusqlite::version()).is_ok());
    }
}
