//! A snapshot: one read transaction, open for a bounded time.
//!
//! An open snapshot keeps the server from removing dead rows, so it is closed when its time is
//! over, whether its holder still exists or not; a read in progress is cancelled.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::Condition;
use besom_core::value::{Row, RowKey};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

use super::connect::Canceller;
use super::error::{Failure, Job};
use super::mapping::Mapping;
use super::session::{Pipeline, Session};
use super::{locks, lookup, outbox, range, tenants};
use besom_ports::store::{Delivery, Error, Range, RangePage, ReadView, Result};
use besom_tables::late;
use besom_tables::plan::Good;
use besom_tables::room::Room;

/// The savepoint to which a failed read rolls back. Reads change nothing, so one savepoint is
/// sufficient, and the transaction keeps the view that its first read has fixed.
const UNTOUCHED: &str = "untouched";

/// The environment of the reads of one snapshot.
pub(super) struct View<'a> {
    pub(super) session: &'a Session,
    pub(super) mapping: &'a Mapping,
    pub(super) good: &'a Good,
    /// The maximum size of one read's result, in bytes.
    pub(super) bytes_max: u64,
    /// The approximate number of rows that questions have read.
    pub(super) looked: &'a AtomicU64,
}

impl View<'_> {
    /// The size limit of one read.
    pub(super) fn room(&self) -> Room {
        Room::new(self.bytes_max)
    }

    /// Counts rows that a question has read.
    pub(super) fn look(&self, rows: i64) {
        self.looked.fetch_add(u64::try_from(rows).unwrap_or(0), Ordering::Relaxed);
    }
}

/// See [`besom_ports::store::Store::snapshot`].
pub(super) struct PostgresSnapshot {
    inner: Arc<Inner>,
    closer: AbortHandle,
}

struct Inner {
    /// None once the snapshot is closed.
    session: Mutex<Option<Session>>,
    mapping: Arc<Mapping>,
    good: Arc<Good>,
    open_max: Duration,
    until: Instant,
    /// The deadline of reads.
    read_by: std::sync::Mutex<Option<Instant>>,
    /// See [`View`].
    bytes_max: AtomicU64,
    /// See [`View`].
    looked: AtomicU64,
    /// Whether a read is under way, whose holder may have gone.
    reading: AtomicBool,
    canceller: Canceller,
}

/// Opens a snapshot; the first read fixes its view.
pub(super) async fn open(
    mut session: Session,
    canceller: Canceller,
    mapping: Arc<Mapping>,
    good: Arc<Good>,
    open_max: Duration,
) -> Job<PostgresSnapshot> {
    // The server enforces the time as well: a hanging host would hold back vacuum in the whole
    // database.
    let millis = i32::try_from(open_max.as_millis()).unwrap_or(i32::MAX).max(1);
    let mut first = Pipeline::default();
    first.simple("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY");
    first.simple(format!(
        "SET LOCAL statement_timeout = {millis}; \
         SET LOCAL idle_in_transaction_session_timeout = {}; SAVEPOINT {UNTOUCHED}",
        millis.saturating_add(1_000)
    ));
    session.begin(first).await?;
    let inner = Arc::new(Inner {
        session: Mutex::new(Some(session)),
        mapping,
        good,
        open_max,
        until: Instant::now() + open_max,
        read_by: std::sync::Mutex::default(),
        bytes_max: AtomicU64::new(u64::MAX),
        looked: AtomicU64::new(0),
        reading: AtomicBool::new(false),
        canceller,
    });
    let bounded = Arc::downgrade(&inner);
    let closer = tokio::spawn(async move {
        tokio::time::sleep(open_max).await;
        if let Some(inner) = bounded.upgrade() {
            close(inner.session.lock().await.take()).await;
        }
    });
    Ok(PostgresSnapshot { inner, closer: closer.abort_handle() })
}

/// Ends a read that no caller waits for, together with its connection: the server may process the
/// cancellation late, and would then cancel a statement of the connection's next user. Until the
/// server has answered, the connection counts as one of those for acts.
async fn give_up(canceller: Canceller, session: Option<Session>) {
    let Some(mut session) = session else { return };
    canceller.cancel().await;
    session.rollback().await;
    session.sever();
}

async fn close(session: Option<Session>) {
    if let Some(mut session) = session {
        session.rollback().await;
    }
}

/// A failed statement must not fail the reads after it. If the connection is lost, so is the
/// snapshot, and the next read reports it.
async fn untouched(session: &Session, failure: &Failure) {
    session.doubted(failure);
    if matches!(failure, Failure::Sql(_)) {
        let _ = session.batch(&format!("ROLLBACK TO {UNTOUCHED}")).await;
    }
}

impl Inner {
    fn overdue(&self) -> Error {
        late::snapshot_closed(self.open_max)
    }

    /// The result of a read within the deadline.
    async fn in_time<T>(&self, read: impl Future<Output = T>) -> Option<T> {
        let by = *self.read_by.lock().unwrap_or_else(PoisonError::into_inner);
        match by {
            Some(by) => tokio::time::timeout_at(by.into(), read).await.ok(),
            None => Some(read.await),
        }
    }

    /// The error as the holder of the snapshot has to see it. The server does not say whose value it
    /// cannot convert.
    fn error(&self, read: &str, failure: Failure) -> Error {
        if Instant::now() >= self.until {
            return self.overdue();
        }
        match Error::from(failure) {
            Error::Invalid(said) => Error::Invalid(format!("a read of {read}: {said}")),
            other => other,
        }
    }
}

impl Drop for PostgresSnapshot {
    fn drop(&mut self) {
        self.closer.abort();
        let session = self.inner.session.try_lock().ok().and_then(|mut open| open.take());
        // Without a runtime the connection is closed instead, with the same effect.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            match self.inner.reading.load(Ordering::Relaxed) {
                true => runtime.spawn(give_up(self.inner.canceller.clone(), session)),
                false => runtime.spawn(close(session)),
            };
        }
    }
}

/// Runs a read on the session of an open snapshot.
macro_rules! read {
    ($snapshot:expr, $of:expr, $view:ident => $read:expr) => {{
        let inner = &$snapshot.inner;
        let mut open = inner.session.lock().await;
        let Some(session) = open.as_ref() else { return Err(inner.overdue()) };
        let $view = View {
            session,
            mapping: &inner.mapping,
            good: &inner.good,
            bytes_max: inner.bytes_max.load(Ordering::Relaxed),
            looked: &inner.looked,
        };
        inner.reading.store(true, Ordering::Relaxed);
        let done: Option<Job<_>> = inner.in_time($read).await;
        inner.reading.store(done.is_none(), Ordering::Relaxed);
        match done {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(failure)) => {
                untouched(session, &failure).await;
                let locked = locks::refused_read(session, &inner.mapping, $of, &failure).await;
                Err(locked.unwrap_or_else(|| inner.error($of, failure)))
            }
            None => {
                // Further reads would wait for this one: the snapshot ends with it.
                tokio::spawn(give_up(inner.canceller.clone(), open.take()));
                Err(late::read_cancelled())
            }
        }
    }};
}

#[async_trait]
impl ReadView for PostgresSnapshot {
    fn read_by(&self, deadline: Instant) {
        let mut by = self.inner.read_by.lock().unwrap_or_else(PoisonError::into_inner);
        *by = Some(deadline);
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
        read!(self, collection, view => lookup::get_many(&view, tenant, collection, keys, columns))
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        read!(self, &range.collection, view => range::read(&view, tenant, range))
    }

    async fn count(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32> {
        read!(self, collection, view => lookup::count(&view, tenant, collection, conditions, limit))
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
        read!(self, &range.collection, view => tenants::tenants(&view, range, after, limit))
    }

    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        read!(self, "deliveries", view => outbox::deliveries(&view, task, tenant, topic, keys))
    }
}
