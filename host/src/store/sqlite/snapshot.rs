//! A snapshot: one read transaction, open for a bounded time.
//!
//! An open snapshot keeps the WAL from being reset, so it is closed when its time is over,
//! whether its holder is still there or not; a read that runs then is interrupted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::Tenant;
use besom_core::proposal::Condition;
use besom_core::value::{Row, RowKey};
use rusqlite::{Connection, InterruptHandle};
use tokio::task::AbortHandle;

use super::error::{Failure, Job};
use super::mapping::Mapping;
use super::readers::{Reader, Readers};
use super::{lookup, range, tenants};
use crate::ports::store::{Error, Range, RangePage, Result, Snapshot};

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
    async fn read<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection, &Mapping) -> Job<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || {
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
        })
        .await
        .unwrap_or_else(|e| Err(Error::Unavailable(format!("a fault in a reader: {e}"))))
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
        let tenant = tenant.cloned();
        let (collection, keys, columns) = (collection.to_owned(), keys.to_vec(), columns.to_vec());
        self.read(move |conn, mapping| {
            lookup::get_many(conn, mapping, tenant.as_ref(), &collection, &keys, &columns)
        })
        .await
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        let (tenant, range) = (tenant.cloned(), range.clone());
        self.read(move |conn, mapping| range::read(conn, mapping, tenant.as_ref(), &range)).await
    }

    async fn exists(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
    ) -> Result<bool> {
        let tenant = tenant.cloned();
        let (collection, conditions) = (collection.to_owned(), conditions.to_vec());
        self.read(move |conn, mapping| {
            lookup::exists(conn, mapping, tenant.as_ref(), &collection, &conditions)
        })
        .await
    }

    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>> {
        let (range, after) = (range.clone(), after.cloned());
        self.read(move |conn, mapping| {
            tenants::tenants(conn, mapping, &range, after.as_ref(), limit)
        })
        .await
    }
}
