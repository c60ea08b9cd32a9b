//! What a plugin proposes and what may become of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::Time;
use crate::value::{Field, RowKey, Value};

/// How a column is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// The same value; NULL equals NULL.
    Equal,
    /// Not the same value.
    NotEqual,
    /// Not below; false where either side is NULL.
    AtLeast,
    /// Not above; false where either side is NULL.
    AtMost,
}

/// A column compared with a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The column.
    pub column: String,
    /// How.
    pub comparison: Comparison,
    /// With what.
    pub value: Value,
}

impl Condition {
    /// `column == value`.
    pub fn equal(column: impl Into<String>, value: Value) -> Condition {
        Condition { column: column.into(), comparison: Comparison::Equal, value }
    }
}

/// The rows of a collection, within the item's tenant, for which every condition holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// The collection.
    pub collection: String,
    /// All of them hold.
    pub conditions: Vec<Condition>,
}

/// Exactly the rows that reads of one act returned. The keys share a prefix, because one
/// range of an index was read; `rest` holds what differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadSet {
    /// The collection.
    pub collection: String,
    /// The first values of every key.
    pub prefix: Vec<Value>,
    /// The remaining values of each key, in the order they were read.
    pub rest: Vec<Vec<Value>>,
}

impl ReadSet {
    /// How many rows it has.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The whole key of each row.
    pub fn keys(&self) -> impl Iterator<Item = RowKey> + '_ {
        self.rest.iter().map(|rest| self.prefix.iter().chain(rest).cloned().collect())
    }
}

/// A condition checked inside the commit, after the rows it depends on are locked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Guard {
    /// The row exists and every condition holds.
    Columns {
        /// The collection.
        collection: String,
        /// Its key.
        key: RowKey,
        /// All of them hold; none: the row exists.
        conditions: Vec<Condition>,
    },
    /// At least one row matches.
    Exists(Filter),
    /// No row matches.
    Absent(Filter),
    /// Every row of the read set is still there.
    Complete(Arc<ReadSet>),
    /// Nobody uses the thing of that activity key. *Unknown* fails as well.
    Idle(String),
}

/// A change, within the item's tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Insert a row; its key must be new.
    Insert {
        /// The collection.
        collection: String,
        /// The columns given; the others get the database's defaults.
        fields: Vec<Field>,
    },
    /// Insert a row, or update the named columns of the row with the same key.
    Upsert {
        /// The collection.
        collection: String,
        /// The columns given, the key's among them.
        fields: Vec<Field>,
    },
    /// Set columns of a row, which has to exist.
    Update {
        /// The collection.
        collection: String,
        /// Its key.
        key: RowKey,
        /// The columns to set.
        fields: Vec<Field>,
    },
    /// Add to integer columns of a row, which has to exist.
    Increment {
        /// The collection.
        collection: String,
        /// Its key.
        key: RowKey,
        /// The columns and what to add ([`Value::Integer`]).
        fields: Vec<Field>,
    },
    /// Delete a row; one that is gone already is no error.
    Delete {
        /// The collection.
        collection: String,
        /// Its key.
        key: RowKey,
    },
    /// Delete exactly the rows that were read.
    DeleteReadSet(Arc<ReadSet>),
    /// Put a message into the outbox.
    Emit {
        /// The topic.
        topic: String,
        /// The key, by which a receiver may order or partition.
        key: String,
        /// The content.
        payload: Vec<u8>,
    },
}

/// What the plugin wants to happen when a guard does not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OnGuardFailed {
    /// Leave it, for that reason.
    Skip(String),
    /// Call `act` again after so many milliseconds.
    Retry(u64),
}

/// Guarded changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// All of them hold, or nothing is changed.
    pub guards: Vec<Guard>,
    /// Applied in this order.
    pub changes: Vec<Change>,
    /// What to do when a guard does not hold.
    pub on_guard_failed: OnGuardFailed,
    /// Kept with the item's history.
    pub notes: Vec<Field>,
}

impl Proposal {
    /// Whether all it does to rows is to delete one that a guard has held to be there: nothing else
    /// in it could have removed the row before. Where the database then deletes nothing, something
    /// of the product keeps the row.
    pub fn deletes_a_seen_row(&self) -> bool {
        let mut changes = self.changes.iter().filter(|c| !matches!(c, Change::Emit { .. }));
        let (Some(Change::Delete { collection, key }), None) = (changes.next(), changes.next())
        else {
            return false;
        };
        self.guards.iter().any(|guard| match guard {
            Guard::Columns { collection: of, key: seen, .. } => of == collection && seen == key,
            Guard::Exists(_) | Guard::Absent(_) | Guard::Complete(_) | Guard::Idle(_) => false,
        })
    }
}

/// What a plugin says of an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// Guarded changes.
    Propose(Proposal),
    /// Nothing to do.
    Skip {
        /// Why.
        reason: String,
        /// Do not plan it again while its version is the same.
        settled: bool,
    },
    /// Try again.
    Retry {
        /// After so many milliseconds, at least.
        after_ms: u64,
        /// Why.
        reason: String,
    },
    /// Trying again cannot help.
    Dead {
        /// Why.
        reason: String,
    },
}

/// How an item goes on without effects. Decided before the commit, so that the store has
/// nothing to decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Settle {
    /// At its end: nothing was to be done.
    Skip {
        /// Why.
        reason: String,
        /// Blocks re-planning while the version is the same.
        settled: bool,
    },
    /// Into the retries, to be tried at `run_at`.
    Retry {
        /// Not before.
        run_at: Time,
        /// The item's counters from now on.
        attempts: u32,
        /// The item's counters from now on.
        guard_retries: u32,
        /// Why; appended to the item's errors.
        reason: String,
    },
    /// Into the dead letters.
    Dead {
        /// The item's counter from now on.
        attempts: u32,
        /// Why; appended to the item's errors.
        reason: String,
    },
}
