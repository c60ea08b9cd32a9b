//! Read-only connections: a bounded pool, each used by one reader at a time.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::damage::{Damage, examine};
use super::error::{Failure, Job, classify};
use super::open::{SchemaSeen, decide_plans, names_are_names};
use super::place::Place;
use besom_ports::store::{Error, Result};

/// Prepared statements kept per read connection.
const STATEMENTS: usize = 128;

/// The tables that a pool reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    /// Besom's own. A statement has one plan, whatever values are bound.
    Own,
    /// Those of the product. If an index of them is partial, a value decides whether it can be used.
    Products,
}

/// A pool of read-only connections, opened on demand.
pub(super) struct Readers {
    tables: Tables,
    path: PathBuf,
    place: Place,
    damage: Damage,
    reads: OpenReads,
    schema: SchemaSeen,
    idle: Mutex<Vec<Idle>>,
    room: Arc<Semaphore>,
    wait_max: Duration,
}

/// A connection, and the version of the schema for which it was decided how it plans.
type Idle = (Connection, Option<i64>);

/// A connection from the pool, with its permit.
pub(super) struct Reader {
    pub(super) conn: Connection,
    schema: Option<i64>,
    permit: OwnedSemaphorePermit,
    read: OpenRead,
}

/// The reads that this process has open, each of which keeps the write-ahead log from being reset.
#[derive(Clone, Default)]
pub(super) struct OpenReads(Arc<Mutex<Vec<Instant>>>);

/// One of them, until it is dropped.
pub(super) struct OpenRead {
    all: OpenReads,
    since: Instant,
}

impl OpenReads {
    pub(super) fn begin(&self) -> OpenRead {
        let since = Instant::now();
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(since);
        OpenRead { all: self.clone(), since }
    }

    /// For how long the oldest of them has been open.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).iter().min().map(Instant::elapsed)
    }
}

impl Drop for OpenRead {
    fn drop(&mut self) {
        let mut all = self.all.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(at) = all.iter().position(|since| *since == self.since) {
            all.swap_remove(at);
        }
    }
}

impl Readers {
    pub(super) fn new(
        tables: Tables,
        path: PathBuf,
        (place, damage, reads, schema): (Place, Damage, OpenReads, SchemaSeen),
        readers_max: usize,
        wait_max: Duration,
    ) -> Arc<Readers> {
        let room = Arc::new(Semaphore::new(readers_max));
        let idle = Mutex::default();
        Arc::new(Readers { tables, path, place, damage, reads, schema, idle, room, wait_max })
    }

    /// Takes a connection; waits if all are in use.
    pub(super) async fn take(&self) -> Result<Reader> {
        let room = Arc::clone(&self.room);
        let permit = tokio::time::timeout(self.wait_max, room.acquire_owned())
            .await
            .map_err(|_| Error::Busy("all read connections are in use".into()))?
            .map_err(|_| Error::Unavailable("the store is closed".into()))?;
        let idle = self.idle.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let (conn, known) = match idle {
            Some(idle) => idle,
            None => {
                // The file that is read must be the one that is written.
                self.place.check()?;
                (self.open().map_err(|e| self.failed(classify(&e)))?, None)
            }
        };
        let schema = match self.tables {
            Tables::Own => None,
            Tables::Products => {
                let schema = decide_plans(&conn, known).map_err(|e| self.failed(classify(&e)))?;
                self.schema.store(schema, Ordering::Release);
                Some(schema)
            }
        };
        Ok(Reader { conn, schema, permit, read: self.reads.begin() })
    }

    /// Returns a connection without an open transaction.
    pub(super) fn put(&self, reader: Reader) {
        let Reader { conn, schema, permit, read } = reader;
        if conn.is_autocommit() || conn.execute_batch("ROLLBACK").is_ok() {
            self.idle.lock().unwrap_or_else(|e| e.into_inner()).push((conn, schema));
        }
        drop((permit, read));
    }

    /// Runs `job` in one read transaction, outside the caller's thread.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        job: impl FnOnce(&Connection) -> Job<T> + Send + 'static,
    ) -> Result<T> {
        let reader = self.take().await?;
        let pool = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let done = in_transaction(&reader.conn, job);
            pool.put(reader);
            done.map_err(|failure| pool.failed(failure))
        })
        .await
        .unwrap_or_else(|e| Err(Error::Unavailable(format!("a reader failed: {e}"))))
    }

    /// Checks the structure of the file for at most `max`, and remembers whether it is malformed.
    pub(super) fn examine(&self, max: Duration) {
        let examined = self.open().map_err(Failure::from);
        if let Err(failure) = examined.and_then(|mut conn| examine(&mut conn, max)) {
            let error = self.failed(failure);
            tracing::debug!(%error, "the database could not be checked");
        }
    }

    /// The error of a failed read; remembers that the file is malformed.
    pub(super) fn failed(&self, failure: impl Into<Error>) -> Error {
        self.damage.note(failure.into())
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(self.wait_max)?;
        conn.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        names_are_names(&conn)?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        conn.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY")?;
        Ok(conn)
    }
}

fn in_transaction<T>(conn: &Connection, job: impl FnOnce(&Connection) -> Job<T>) -> Job<T> {
    conn.execute_batch("BEGIN")?;
    let done = job(conn);
    if !conn.is_autocommit() {
        conn.execute_batch("ROLLBACK")?;
    }
    done
}
