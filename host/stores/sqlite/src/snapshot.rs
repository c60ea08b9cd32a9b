//! A snapshot: one read transaction, open for a bounded time.
//!
//! An open snapshot keeps the WAL from being reset, so it is closed when its time is over, whether
//! its holder still exists or not; a read in progress is interrupted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::Condition;
use besom_core::value::{Row, RowKey};
use rusqlite::{Connection, InterruptHandle};
use tokio::task::AbortHandle;

use super::error::{Failure, Job};
use super::mapping::Mapping;
use super::readers::{Reader, Readers};
use super::{lookup, outbox, range, stored, tenants};
use besom_ports::store::{Delivery, Error, Range, RangePage, ReadView, Result};
use besom_tables::late;
use besom_tables::room::Room;

/// See [`besom_ports::store::Store::snapshot`].
pub(super) struct SqliteSnapshot {
    inner: Arc<Inner>,
    closer: AbortHandle,
}

struct Inner {
    pool: Arc<Readers>,
    /// None once the snapshot is closed.
    reader: Mutex<Option<Reader>>,
    interrupt: InterruptHandle,
    mapping: Arc<Mapping>,
    open_max: Duration,
    watch: Arc<Watch>,
    /// The maximum size of one read's result, in bytes.
    bytes_max: AtomicU64,
    /// The approximate number of rows that questions have read.
    looked: AtomicU64,
}

/// Interrupts a read at its deadline.
struct Watch {
    opened: Instant,
    /// The deadline of reads, in microseconds since `opened`.
    until: AtomicU64,
    /// Instructions of SQLite's virtual machine, in thousands.
    steps: AtomicU64,
}

/// Instructions of SQLite's virtual machine between two checks: some tens of microseconds.
const STEPS: u32 = 1_000;
/// The approximate number of instructions for a row that is examined and rejected.
const STEPS_PER_ROW: u64 = 10;

impl Watch {
    /// Called during a read; true interrupts it.
    fn is_over(&self) -> bool {
        self.steps.fetch_add(1, Ordering::Relaxed);
        self.is_late()
    }

    fn is_late(&self) -> bool {
        self.opened.elapsed().as_micros() >= u128::from(self.until.load(Ordering::Relaxed))
    }
}

/// Opens a snapshot; the first read fixes its view.
pub(super) async fn open(
    pool: &Arc<Readers>,
    mapping: Arc<Mapping>,
    open_max: Duration,
) -> Result<SqliteSnapshot> {
    let mut reader = pool.take().await?;
    reader.conn.execute_batch("BEGIN").map_err(Failure::from)?;
    let interrupt = reader.conn.get_interrupt_handle();
    let watch = Arc::new(Watch {
        opened: Instant::now(),
        until: AtomicU64::new(u64::MAX),
        steps: AtomicU64::new(0),
    });
    let seen = Arc::clone(&watch);
    let steps = i32::try_from(STEPS).unwrap_or(i32::MAX);
    reader.conn.progress_handler(steps, Some(move || seen.is_over())).map_err(Failure::from)?;
    let inner = Arc::new(Inner {
        pool: Arc::clone(pool),
        reader: Mutex::new(Some(reader)),
        interrupt,
        mapping,
        open_max,
        watch,
        bytes_max: AtomicU64::new(u64::MAX),
        looked: AtomicU64::new(0),
    });
    let bounded = Arc::downgrade(&inner);
    let closer = tokio::spawn(async move {
        tokio::time::sleep(open_max).await;
        if let Some(inner) = bounded.upgrade() {
            inner.interrupt.interrupt();
            let _ = tokio::task::spawn_blocking(move || inner.close()).await;
        }
    });
    Ok(SqliteSnapshot { inner, closer: closer.abort_handle() })
}

impl Inner {
    fn close(&self) {
        let reader = self.reader.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(mut reader) = reader {
            // It fails if no handler can be set at all, and then none was set.
            let _ = reader.conn.progress_handler(0, None::<fn() -> bool>);
            self.pool.put(reader);
        }
    }

    fn overdue(&self) -> Error {
        late::snapshot_closed(self.open_max)
    }
}

impl Drop for SqliteSnapshot {
    fn drop(&mut self) {
        self.closer.abort();
        self.inner.close();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.close();
    }
}

impl SqliteSnapshot {
    /// Runs `job` on the thread of the reading guest. That thread has nothing else to do, and most
    /// reads take a few microseconds: handing one to another thread and waiting to be woken would
    /// take many times longer.
    fn read<T>(&self, job: impl FnOnce(&Connection, &Mapping) -> Job<T>) -> Result<T> {
        let inner = &self.inner;
        let guard = inner.reader.lock().unwrap_or_else(|e| e.into_inner());
        let Some(reader) = guard.as_ref() else { return Err(inner.overdue()) };
        let done = match job(&reader.conn, &inner.mapping) {
            Err(Failure::Unlike(unlike)) => match inner.mapping.table(&unlike.collection) {
                Ok(table) => Err(stored::judged(&reader.conn, table, unlike)
                    .map_or_else(|failure| failure, Failure::Port)),
                Err(_) => Err(Failure::Unlike(unlike)),
            },
            done => done,
        };
        match done {
            Err(Failure::Sql(e))
                if e.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) =>
            {
                Err(match inner.watch.is_late() {
                    true => late::read_cancelled(),
                    false => inner.overdue(),
                })
            }
            other => other.map_err(|failure| inner.pool.failed(failure)),
        }
    }
}

impl SqliteSnapshot {
    fn room(&self) -> Room {
        Room::new(self.inner.bytes_max.load(Ordering::Relaxed))
    }

    /// Runs a read that returns no rows, and counts the rows that it has examined.
    fn question<T>(&self, job: impl FnOnce(&Connection, &Mapping) -> Job<T>) -> Result<T> {
        let steps = || self.inner.watch.steps.load(Ordering::Relaxed);
        let before = steps();
        let answer = self.read(job);
        // A cached statement continues its counter: the first check may belong to earlier
        // questions.
        let looks = (steps() - before).saturating_sub(1);
        self.inner.looked.fetch_add(looks * u64::from(STEPS) / STEPS_PER_ROW, Ordering::Relaxed);
        answer
    }
}

#[async_trait]
impl ReadView for SqliteSnapshot {
    fn read_by(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(self.inner.watch.opened).as_micros();
        self.inner.watch.until.store(u64::try_from(left).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn read_at_most(&self, bytes: u64) {
        self.inner.bytes_max.store(bytes, Ordering::Relaxed);
    }

    fn looked_at(&self) -> u64 {
        self.inner.looked.load(Ordering::Relaxed)
    }

    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>> {
        let room = self.room();
        self.read(|conn, mapping| {
            lookup::get_many(conn, mapping, tenant, collection, keys, columns, room)
        })
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        let room = self.room();
        self.read(|conn, mapping| range::read(conn, mapping, tenant, range, room))
    }

    async fn count(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32> {
        self.question(|conn, mapping| {
            lookup::count(conn, mapping, tenant, collection, conditions, limit)
        })
    }

    fn bounded(&self, range: &Range) -> Result<(String, bool)> {
        let table = self.inner.mapping.table(&range.collection);
        let collection = &table.map_err(|e| Error::Invalid(e.to_string()))?.collection;
        let bounded = collection.bounded(range.index.as_deref(), range.prefix.len());
        bounded.map_err(Error::Invalid)
    }

    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>> {
        self.question(|conn, mapping| tenants::tenants(conn, mapping, range, after, limit))
    }

    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        let room = self.room();
        self.read(|conn, _| outbox::deliveries(conn, task, tenant, topic, keys, room))
    }
}
