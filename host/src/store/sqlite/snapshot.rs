//! A snapshot: one read transaction, open for a bounded time.
//!
//! An open snapshot keeps the WAL from being reset, so it is closed when its time is over,
//! whether its holder is still there or not; a read that runs then is interrupted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::Condition;
use besom_core::value::{Row, RowKey};
use rusqlite::{Connection, InterruptHandle};
use tokio::task::AbortHandle;

use super::error::{Failure, Job};
use super::mapping::Mapping;
use super::readers::{Reader, Readers};
use super::{lookup, outbox, range, tenants};
use crate::ports::store::{Delivery, Error, Range, RangePage, Result, Snapshot};

/// See [`crate::ports::store::Store::snapshot`].
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
}

/// Opens a snapshot; the first read pins what it sees.
pub(super) async fn open(
    pool: &Arc<Readers>,
    mapping: Arc<Mapping>,
    open_max: Duration,
) -> Result<SqliteSnapshot> {
    let reader = pool.take().await?;
    reader.conn.execute_batch("BEGIN").map_err(Failure::from)?;
    let interrupt = reader.conn.get_interrupt_handle();
    let inner = Arc::new(Inner {
        pool: Arc::clone(pool),
        reader: Mutex::new(Some(reader)),
        interrupt,
        mapping,
        open_max,
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
        if let Some(reader) = reader {
            self.pool.put(reader);
        }
    }

    fn overdue(&self) -> Error {
        Error::Unavailable(format!(
            "the snapshot was open for longer than {} ms and was closed",
            self.open_max.as_millis()
        ))
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
    /// Does `job` on the thread of the guest that reads. It has nothing else to do meanwhile,
    /// and most reads take a few microseconds: handing one to another thread, and waiting to
    /// be woken, takes many times that.
    fn read<T>(&self, job: impl FnOnce(&Connection, &Mapping) -> Job<T>) -> Result<T> {
        let inner = &self.inner;
        let guard = inner.reader.lock().unwrap_or_else(|e| e.into_inner());
        let Some(reader) = guard.as_ref() else { return Err(inner.overdue()) };
        match job(&reader.conn, &inner.mapping) {
            Err(Failure::Sql(e))
                if e.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) =>
            {
                Err(inner.overdue())
            }
            other => other.map_err(Error::from),
        }
    }
}

#[async_trait]
impl Snapshot for SqliteSnapshot {
    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>> {
        self.read(|conn, mapping| {
            lookup::get_many(conn, mapping, tenant, collection, keys, columns)
        })
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        self.read(|conn, mapping| range::read(conn, mapping, tenant, range))
    }

    async fn exists(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
    ) -> Result<bool> {
        self.read(|conn, mapping| lookup::exists(conn, mapping, tenant, collection, conditions))
    }

    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>> {
        self.read(|conn, mapping| tenants::tenants(conn, mapping, range, after, limit))
    }

    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        self.read(|conn, _| outbox::deliveries(conn, task, tenant, topic, keys))
    }
}
