//! Reads of the user's tables, and how a table differs from its mapping.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use besom_core::delivery::Delivery;
use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::{Condition, ReadSet, RowRange};
use besom_core::value::{Row, RowKey, Value};

use super::Result;

/// A range read: the rows of one tenant in the order of an index; rows with equal values are in the
/// order of the key. NULL sorts before every value, and a bound excludes NULL. In a read over all
/// tenants, the tenant sorts before the index.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Range {
    /// The collection to read.
    pub collection: String,
    /// The index to read by; `None`: the key.
    pub index: Option<String>,
    /// Values that the first columns of the index must equal.
    pub prefix: Vec<Value>,
    /// The inclusive lower bound of the column after the prefix.
    pub lower: Option<Value>,
    /// The inclusive upper bound of the column after the prefix.
    pub upper: Option<Value>,
    /// An exclusive lower bound of the column after the prefix; every value is beyond NULL.
    pub beyond: Option<Value>,
    /// Further conditions that the rows within the range must meet.
    pub conditions: Vec<Condition>,
    /// The columns to return.
    pub columns: Vec<String>,
    /// Whether to read from the upper end.
    pub descending: bool,
    /// Maximum number of rows.
    pub limit: u32,
    /// Approximate maximum size, in bytes. At least one row is returned.
    pub bytes_max: usize,
    /// Maximum number of rows examined before the page ends, regardless of how many meet the
    /// conditions; 0: no limit.
    pub scan_max: u64,
    /// Where the previous page ended ([`RangePage::next`]).
    pub after: Option<Vec<u8>>,
    /// Whether to return the keys of the rows as well.
    pub keys: bool,
}

impl From<&RowRange> for Range {
    /// A read of all rows of a range that a commit changes.
    fn from(range: &RowRange) -> Range {
        Range {
            collection: range.collection.clone(),
            index: range.index.clone(),
            prefix: range.prefix.clone(),
            lower: range.lower.clone(),
            upper: range.upper.clone(),
            conditions: range.conditions.clone(),
            limit: range.rows,
            after: range.after.clone(),
            ..Range::default()
        }
    }
}

/// A page of a range read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RangePage {
    /// The rows that meet the conditions.
    pub rows: Vec<Row>,
    /// The key of each row, if requested.
    pub keys: Vec<RowKey>,
    /// Where the next page starts; `None`: the end of the range was reached.
    pub next: Option<Vec<u8>>,
    /// Rows that the database examined, as far as it reports them: the returned rows and those that
    /// the conditions excluded.
    pub scanned: u64,
}

/// A consistent view of the user's tables, for the reads of one act or one scan. `tenant` is added
/// to every query of a collection with a tenant column; `None` means all tenants. An embedded store
/// reads on the calling thread, which may block: reads are made from the guests' threads.
#[async_trait]
pub trait ReadView: Send + Sync {
    /// Sets the deadline of all following reads. A read that has not ended by then fails with
    /// [`besom_snapshot::Cause::Slow`] and is cancelled in the database.
    fn read_by(&self, deadline: Instant);

    /// Sets the maximum size of the values that each following read may return, in bytes. A read by
    /// keys that exceeds it fails with [`super::Error::TooLarge`] while its rows arrive. A page of a range
    /// ends with the row that reaches the limit; only a single larger row makes it fail.
    fn read_at_most(&self, bytes: u64);

    /// Approximate number of rows examined by [`ReadView::count`] and [`ReadView::tenants`]; 0 if
    /// the database does not report it.
    fn looked_at(&self) -> u64 {
        0
    }

    /// Reads rows by key, in the order of the keys; `None` for a row that does not exist.
    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>>;

    /// Reads one page of rows in the order of an index.
    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage>;

    /// The number of rows that match all conditions, counted up to `limit`.
    async fn count(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32>;

    /// The column that the bounds of a range are for, and whether its table has tenants.
    ///
    /// # Errors
    /// [`super::Error::Invalid`] if the index has no column after the prefix.
    fn bounded(&self, range: &Range) -> Result<(String, bool)>;

    /// The tenants after `after`, in order, that have at least one row in the range. It skips from
    /// tenant to tenant in the index.
    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>>;

    /// The delivery states of a task's own messages: for each key, the latest message that an item
    /// of this tenant emitted to the topic; `None` if there is no such message (any more: messages
    /// are removed with the history).
    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>>;
}

/// A difference between a user's table and its mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingFault {
    /// The collection whose mapping is concerned.
    pub collection: String,
    /// The key within the collection's table in `besom.toml` that is wrong: `table`,
    /// `columns.NAME`, `indexes.NAME`, `key`, `tenant`, `anchor`; or a constant of [`MappingFault`].
    pub place: String,
    /// What is wrong and how to correct it.
    pub message: String,
    /// Whether it is only a warning.
    pub warning: bool,
}

impl MappingFault {
    /// The place of a fault about rows that a foreign key deletes with those of the collection.
    pub const CASCADES: &str = "accept_cascades";
    /// The place of a table that another session has locked: whether it differs from its mapping is not known.
    pub const LOCKED: &str = "lock";
    /// The place of a fault about rows of a table that the role does not see.
    pub const HIDDEN: &str = "table.rows";
    /// The place of a fault about changes that the role could not undo.
    pub const UNDO: &str = "table.undo";
}

/// The sets of rows that one act has read, as collected by the runtime.
pub type ReadSets = Vec<Arc<ReadSet>>;
