//! What a plugin proposes, and how an item can end.

use std::collections::BTreeSet;
use std::sync::Arc;

use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::item::Item;
use crate::time::Time;
use crate::value::{Field, RowKey, Value};

/// How two values compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Comparison {
    /// The same value; NULL equals NULL.
    Equal,
    /// A different value; NULL and a value differ.
    NotEqual,
    /// Less; false if either side is NULL.
    Below,
    /// Less or equal; false if either side is NULL.
    AtMost,
    /// Greater or equal; false if either side is NULL.
    AtLeast,
    /// Greater; false if either side is NULL.
    Above,
}

impl Comparison {
    /// Whether it asks for more than equality.
    pub fn is_of_order(self) -> bool {
        !matches!(self, Comparison::Equal | Comparison::NotEqual)
    }

    /// As it is written between two values.
    pub fn sign(self) -> &'static str {
        match self {
            Comparison::Equal => "=",
            Comparison::NotEqual => "!=",
            Comparison::Below => "<",
            Comparison::AtMost => "<=",
            Comparison::AtLeast => ">=",
            Comparison::Above => ">",
        }
    }
}

/// What a column has to meet. It is true or false, never unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Test {
    /// It compares so with a value.
    Value(Comparison, Value),
    /// It compares so with another column of the row, of the same kind and encoding.
    Column(Comparison, String),
    /// It equals at least one of the values.
    OneOf(Vec<Value>),
    /// It equals none of the values.
    NoneOf(Vec<Value>),
    /// It is a text that begins with this text, byte by byte.
    StartsWith(String),
}

/// A column and what it has to meet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Condition {
    /// The column's name in the mapping.
    pub column: String,
    /// What it has to meet.
    pub test: Test,
}

impl Condition {
    /// The column compared with a value.
    pub fn of(column: impl Into<String>, comparison: Comparison, value: Value) -> Condition {
        Condition { column: column.into(), test: Test::Value(comparison, value) }
    }

    /// `column == value`.
    pub fn equal(column: impl Into<String>, value: Value) -> Condition {
        Condition::of(column, Comparison::Equal, value)
    }

    /// The value that the column has to equal; `None` if it may have several.
    pub fn fixed(&self) -> Option<&Value> {
        match &self.test {
            Test::Value(Comparison::Equal, value) => Some(value),
            _ => None,
        }
    }
}

/// The rows of a collection, within the item's tenant, that match every condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// The collection's name in the mapping.
    pub collection: String,
    /// The conditions, all of which must hold.
    pub conditions: Vec<Condition>,
}

/// Exactly the rows that reads of one act returned. The keys share a prefix, because one index
/// range was read; `rest` holds the remainder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadSet {
    /// The collection's name in the mapping.
    pub collection: String,
    /// The first values of every key.
    pub prefix: Vec<Value>,
    /// The remaining values of each key, in the order they were read.
    pub rest: Vec<Vec<Value>>,
}

impl ReadSet {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rest.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The whole key of each row.
    pub fn keys(&self) -> impl Iterator<Item = RowKey> + '_ {
        self.rest.iter().map(|rest| self.prefix.iter().chain(rest).cloned().collect())
    }
}

/// The rows of one part of an index that meet conditions. Which rows they are is decided in the commit: each is
/// judged by the bounds and the conditions after it was locked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RowRange {
    /// The collection's name in the mapping.
    pub collection: String,
    /// The index; `None`: the key.
    pub index: Option<String>,
    /// Values that the first columns of the index must equal.
    pub prefix: Vec<Value>,
    /// The inclusive lower bound of the column after the prefix.
    pub lower: Option<Value>,
    /// The inclusive upper bound of the column after the prefix.
    pub upper: Option<Value>,
    /// Further conditions that the rows must meet.
    pub conditions: Vec<Condition>,
    /// Rows after this position only: the end of another page of the same range.
    pub after: Option<Vec<u8>>,
    /// Rows up to this position only: the end of a page of the same range, inclusive.
    pub until: Option<Vec<u8>>,
    /// Maximum number of rows. Those beyond it are left as they are.
    pub rows: u32,
}

impl RowRange {
    /// Whether both have the same rows, but for their conditions.
    pub fn has_bounds_of(&self, other: &RowRange) -> bool {
        let bounds = |of: &RowRange| RowRange { conditions: Vec::new(), rows: 0, ..of.clone() };
        bounds(self) == bounds(other)
    }
}

/// A condition that is checked inside the commit, after the rows it depends on are locked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Guard {
    /// The row exists and every condition holds.
    Columns {
        /// The collection's name in the mapping.
        collection: String,
        /// The row's key, without the tenant.
        key: RowKey,
        /// The conditions, all of which must hold; if empty, the row must exist.
        conditions: Vec<Condition>,
    },
    /// At least one row matches.
    Exists(Filter),
    /// No row matches.
    Absent(Filter),
    /// Every row of the read set still exists.
    Complete(Arc<ReadSet>),
    /// The activity key is idle. *Unknown* fails as well.
    Idle(String),
    /// No row has this key.
    Missing {
        /// The collection's name in the mapping.
        collection: String,
        /// The row's key, without the tenant.
        key: RowKey,
    },
    /// At least so many rows match.
    AtLeast(Filter, u32),
    /// At most so many rows match.
    AtMost(Filter, u32),
}

/// Maximum number of rows that a guard counts.
pub const GUARD_ROWS_MAX: u32 = 1_000;

/// A change, within the item's tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Inserts a row; its key must be new.
    Insert {
        /// The collection's name in the mapping.
        collection: String,
        /// The columns to set; the others get the database's defaults.
        fields: Vec<Field>,
    },
    /// Inserts a row, or updates the named columns of the row with the same key.
    Upsert {
        /// The collection's name in the mapping.
        collection: String,
        /// The columns to set, including the key's.
        fields: Vec<Field>,
    },
    /// Sets columns of a row, which must exist.
    Update {
        /// The collection's name in the mapping.
        collection: String,
        /// The row's key, without the tenant.
        key: RowKey,
        /// The columns to set.
        fields: Vec<Field>,
    },
    /// Adds to integer columns of a row, which must exist.
    Increment {
        /// The collection's name in the mapping.
        collection: String,
        /// The row's key, without the tenant.
        key: RowKey,
        /// The columns and their increments ([`Value::Integer`]).
        fields: Vec<Field>,
    },
    /// Deletes a row; deleting a row that does not exist is not an error.
    Delete {
        /// The collection's name in the mapping.
        collection: String,
        /// The row's key, without the tenant.
        key: RowKey,
    },
    /// Deletes exactly the rows that were read.
    DeleteReadSet(Arc<ReadSet>),
    /// Deletes the rows of a range. A row that another transaction has locked stays, if the database can
    /// tell; so does one that the database refuses to change, if the [rows may stay](Proposal::rows_may_stay).
    DeleteRange(Arc<RowRange>),
    /// Sets columns of the rows of a range, as [`Change::DeleteRange`] deletes them.
    UpdateRange {
        /// The rows.
        range: Arc<RowRange>,
        /// The columns to set.
        fields: Vec<Field>,
        /// Other columns, which are added to, and their increments ([`Value::Integer`]).
        increments: Vec<Field>,
    },
    /// Moves the rows of a range into another collection: each is inserted there with all its columns, and deleted
    /// as [`Change::DeleteRange`] deletes it.
    MoveRange {
        /// The rows.
        range: Arc<RowRange>,
        /// The other collection.
        into: String,
    },
    /// Puts a message into the outbox.
    Emit {
        /// The topic, which decides the route.
        topic: String,
        /// The key by which a receiver may order or partition messages.
        key: String,
        /// The content.
        payload: Vec<u8>,
    },
    /// Takes back what the commit of another item has done to the product's rows. Only the engine proposes
    /// it; no plugin can.
    Restore(Arc<Restore>),
}

/// Whether a task may plan again what was undone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Again {
    /// Not while its version is the same.
    #[default]
    No,
    /// It may.
    Yes,
    /// It may, and nothing else is done: its rows were put back before.
    Only,
}

/// Rows that a commit has kept, to be put back as they were. A row that somebody has changed since stays as
/// it is, unless it is forced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Restore {
    /// The history row of the item whose rows are put back.
    pub history: u64,
    /// The item: it is not planned again while its version is the same. `None`: its version is not known.
    pub undone: Option<Item>,
    /// The collections of the rows.
    pub collections: Vec<String>,
    /// Maximum number of rows.
    pub rows: u64,
    /// The names of rows ([`crate::undo::row_name`]) that are put back whatever has happened to them since.
    pub forced: Arc<BTreeSet<String>>,
    /// The names of the only rows that are put back, with what went with them; `None`: all are.
    #[serde(default)]
    pub only: Option<Arc<BTreeSet<String>>>,
    /// The history rows of earlier attempts: what they have put back is not put back again.
    pub earlier: Vec<u64>,
    /// The history rows of undos of these attempts: what they have taken back is put back again.
    #[serde(default)]
    pub reverted: Vec<u64>,
    /// Whether its task may plan the undone item again.
    #[serde(default)]
    pub again: Again,
    /// Number of rows of the item that were purged: they cannot be put back.
    #[serde(default)]
    pub purged: u64,
    /// The collections of these rows: a row that has referred to one of them stays away.
    #[serde(default)]
    pub purged_of: Vec<String>,
    /// Whether every row is put back or none. Then no row is forced.
    #[serde(default)]
    pub whole: bool,
}

impl Restore {
    /// The history rows of earlier attempts, each with 1, and of the undos of these, each with -1.
    pub fn attempts(&self) -> impl Iterator<Item = (u64, i32)> {
        let earlier = self.earlier.iter().map(|history| (*history, 1));
        earlier.chain(self.reverted.iter().map(|history| (*history, -1)))
    }
}

impl Change {
    /// The collection whose rows it changes; none: it sends a message, or restores rows of several.
    pub fn collection(&self) -> Option<&str> {
        match self {
            Change::Insert { collection, .. }
            | Change::Upsert { collection, .. }
            | Change::Update { collection, .. }
            | Change::Increment { collection, .. }
            | Change::Delete { collection, .. } => Some(collection),
            Change::DeleteReadSet(set) => Some(&set.collection),
            Change::DeleteRange(_) | Change::UpdateRange { .. } | Change::MoveRange { .. } => {
                self.range().map(|range| range.collection.as_str())
            }
            Change::Emit { .. } | Change::Restore(_) => None,
        }
    }

    /// All collections whose rows it changes, except for those that go with them and into which they are moved.
    pub fn collections(&self) -> impl Iterator<Item = &str> {
        let several = self.restore().into_iter().flat_map(|restore| &restore.collections);
        self.collection().into_iter().chain(several.map(String::as_str))
    }

    /// The kept rows that it puts back.
    pub fn restore(&self) -> Option<&Restore> {
        match self {
            Change::Restore(restore) => Some(restore),
            _ => None,
        }
    }

    /// Whether it deletes rows.
    pub fn deletes(&self) -> bool {
        matches!(self, Change::Delete { .. } | Change::DeleteReadSet(_) | Change::DeleteRange(_))
    }

    /// The number of rows that it changes, at most; what goes with them is not counted.
    pub fn rows(&self) -> u64 {
        match self {
            Change::DeleteReadSet(set) => set.len() as u64,
            Change::Emit { .. } => 0,
            Change::Restore(restore) => restore.rows,
            other => other.range().map_or(1, |range| u64::from(range.rows)),
        }
    }

    /// The collection into which it moves rows.
    pub fn into(&self) -> Option<&str> {
        match self {
            Change::MoveRange { into, .. } => Some(into),
            _ => None,
        }
    }

    /// The range whose rows it changes.
    pub fn range(&self) -> Option<&RowRange> {
        self.of_range().map(|(range, _)| range)
    }

    /// The range whose rows it changes, and what happens to them.
    pub fn of_range(&self) -> Option<(&RowRange, Fate<'_>)> {
        match self {
            Change::DeleteRange(range) => Some((range, Fate::Deleted)),
            Change::UpdateRange { range, fields, increments } => {
                Some((range, Fate::Set(fields, increments)))
            }
            Change::MoveRange { range, into } => Some((range, Fate::Moved(into))),
            _ => None,
        }
    }
}

/// Hashes what is written to it.
struct Hashing(Xxh3);

impl Flavor for Hashing {
    type Output = u128;

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.update(&[data]);
        Ok(())
    }

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.update(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<u128> {
        Ok(self.0.digest128())
    }
}

/// What happens to the rows of a range.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fate<'a> {
    /// They are deleted.
    Deleted,
    /// These columns of them are set, and these are added to.
    Set(&'a [Field], &'a [Field]),
    /// They are moved into this collection.
    Moved(&'a str),
}

/// What happens when a guard does not hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OnGuardFailed {
    /// Skip the item, for this reason.
    Skip(String),
    /// Call `act` again after this many milliseconds.
    Retry(u64),
}

/// The note of a proposal whose ranges hold many rows: how many rows were found in them when the item was planned.
pub const PLANNED_ROWS: &str = "planned_rows";

/// The note that the host adds to it: how many rows have gone with them, as dependants.
pub const DEPENDANT_ROWS: &str = "dependant_rows";

/// The number of rows in the last of these notes that has this name.
pub fn rows_noted(notes: &[Field], name: &str) -> Option<u64> {
    let note = notes.iter().rfind(|note| note.name == name)?;
    let Value::Integer(rows) = note.value else { return None };
    u64::try_from(rows).ok()
}

/// Guarded changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proposal {
    /// The guards: if one fails, nothing is changed.
    pub guards: Vec<Guard>,
    /// The changes, applied in this order.
    pub changes: Vec<Change>,
    /// What to do when a guard does not hold.
    pub on_guard_failed: OnGuardFailed,
    /// Kept with the item's history.
    pub notes: Vec<Field>,
}

impl Proposal {
    /// The notes that are kept of it if it is not applied: what was planned.
    pub fn planned(&self) -> &[Field] {
        let note = self.notes.iter().rfind(|note| note.name == PLANNED_ROWS);
        note.map_or(&[], std::slice::from_ref)
    }

    /// A digest of the guards, the changes and what to do when a guard does not hold, by which the proposals of two
    /// calls are compared. It is without the notes, to which the host adds what the call has cost.
    pub fn digest(&self) -> u128 {
        let said = (&self.guards, &self.changes, &self.on_guard_failed);
        // Plain data can always be written.
        postcard::serialize_with_flavor(&said, Hashing(Xxh3::new())).unwrap_or_default()
    }

    /// The number of rows that it changes, at most; what goes with them is not counted.
    pub fn rows(&self) -> u64 {
        self.changes.iter().map(Change::rows).sum()
    }

    /// Whether a row of its ranges that the database refuses to change may stay while the others are changed.
    /// Otherwise the item fails: a guard or another change may depend on all of them. It fails as well if no row at
    /// all could be changed.
    pub fn rows_may_stay(&self) -> bool {
        let is_range =
            |change: &Change| matches!(change, Change::Emit { .. }) || change.range().is_some();
        self.guards.is_empty() && self.changes.iter().all(is_range)
    }

    /// Whether the rows of ranges are all that it changes.
    pub fn is_of_ranges(&self) -> bool {
        let is_emit = |change: &Change| matches!(change, Change::Emit { .. });
        self.rows_may_stay() && !self.changes.iter().all(is_emit)
    }

    /// Whether it puts back kept rows.
    pub fn restores(&self) -> bool {
        self.changes.iter().any(|change| change.restore().is_some())
    }

    /// Whether its only change to rows is to delete one that a guard has found to exist: then
    /// nothing else in the proposal can have removed the row. If the database then deletes nothing,
    /// something in the product's database keeps the row.
    pub fn deletes_a_seen_row(&self) -> bool {
        let mut changes = self.changes.iter().filter(|c| !matches!(c, Change::Emit { .. }));
        let (Some(Change::Delete { collection, key }), None) = (changes.next(), changes.next())
        else {
            return false;
        };
        self.guards.iter().any(|guard| match guard {
            Guard::Columns { collection: of, key: seen, .. } => of == collection && seen == key,
            Guard::Exists(_)
            | Guard::Absent(_)
            | Guard::Complete(_)
            | Guard::Idle(_)
            | Guard::Missing { .. }
            | Guard::AtLeast(..)
            | Guard::AtMost(..) => false,
        })
    }
}

/// A plugin's verdict on an item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// Apply guarded changes.
    Propose(Proposal),
    /// Nothing to do.
    Skip {
        /// The reason, recorded with the item.
        reason: String,
        /// Whether the item is not planned again while its version is the same.
        settled: bool,
    },
    /// Try again.
    Retry {
        /// The minimum wait, in milliseconds.
        after_ms: u64,
        /// The reason, recorded with the item.
        reason: String,
    },
    /// Retrying cannot help: set the item aside.
    Dead {
        /// The reason, recorded with the item.
        reason: String,
    },
}

/// How an item ends or continues without effects. It is decided before the commit, so that the
/// store has nothing to decide.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Settle {
    /// The item ends; nothing had to be done.
    Skip {
        /// The reason, recorded with the item.
        reason: String,
        /// Whether this blocks planning while the version is the same.
        settled: bool,
    },
    /// The item moves to the retries, for an attempt at `run_at`.
    Retry {
        /// The earliest time of the next attempt.
        run_at: Time,
        /// The item's new number of failed executions.
        attempts: u32,
        /// The item's new number of failed guards.
        guard_retries: u32,
        /// Why; appended to the item's errors.
        reason: String,
    },
    /// The item is set aside as a dead letter.
    Dead {
        /// The item's new number of failed executions.
        attempts: u32,
        /// Why; appended to the item's errors.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_tells_what_a_proposal_changes_and_under_which_guards_but_not_its_notes() {
        let delete =
            |key: i64| Change::Delete { collection: "c".into(), key: vec![Value::Integer(key)] };
        let proposal = Proposal {
            guards: vec![Guard::Idle("a".into())],
            changes: vec![delete(1)],
            on_guard_failed: OnGuardFailed::Retry(5),
            notes: vec![Field::new("act_ms", Value::Integer(3))],
        };
        let others = [
            Proposal { guards: vec![], ..proposal.clone() },
            Proposal { guards: vec![Guard::Idle("b".into())], ..proposal.clone() },
            Proposal { changes: vec![delete(2)], ..proposal.clone() },
            Proposal { changes: vec![delete(1), delete(2)], ..proposal.clone() },
            Proposal { changes: vec![delete(2), delete(1)], ..proposal.clone() },
            Proposal { on_guard_failed: OnGuardFailed::Retry(6), ..proposal.clone() },
        ];
        let mut digests: BTreeSet<u128> = others.iter().map(Proposal::digest).collect();
        assert!(digests.insert(proposal.digest()) && digests.len() == 7);
        assert_eq!(Proposal { notes: vec![], ..proposal.clone() }.digest(), proposal.digest());
    }
}
