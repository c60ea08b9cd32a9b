//! The builders of verdicts, guards and changes.

use crate::bindings::besom::task::types::{
    ColumnTest, Counted, KeyedChange, Message, RangeChange, RangeMove, Retried, RowChange,
    RowReference, Skipped, ValueTest,
};
use crate::store::Range;
use crate::{
    Change, ColumnGuard, Comparison, Condition, Error, Field, Filter, Guard, GuardFailed, Proposal,
    ReadSetId, RowKey, RowRange, Test, Value, Verdict,
};

/// The minimum wait after a retryable error; the host's backoff may be longer.
const RETRY_AFTER_MS: u64 = 1_000;

impl Verdict {
    /// No change is needed now; a later scan may plan the item again.
    pub fn skip(reason: impl Into<String>) -> Verdict {
        Verdict::Skip(Skipped { reason: reason.into(), settled: false, extra: Vec::new() })
    }

    /// No change is needed until the item's version changes. Use it only if the version captures
    /// everything that could change this decision; time and activity do not change a version.
    pub fn skip_settled(reason: impl Into<String>) -> Verdict {
        Verdict::Skip(Skipped { reason: reason.into(), settled: true, extra: Vec::new() })
    }

    /// Calls `act` again after at least `after_ms` milliseconds; counts as an attempt.
    pub fn retry(after_ms: u64, reason: impl Into<String>) -> Verdict {
        Verdict::Retry(Retried { after: after_ms, reason: reason.into(), extra: Vec::new() })
    }

    /// Sets the item aside as a dead letter, because a retry cannot help.
    pub fn dead(reason: impl Into<String>) -> Verdict {
        Verdict::Dead(reason.into())
    }
}

impl From<Error> for Verdict {
    /// Retries the item after a retryable error and sets it aside after any other.
    fn from(error: Error) -> Verdict {
        let reason = format!("{}: {}", error.code, error.message);
        if error.retryable { Verdict::retry(RETRY_AFTER_MS, reason) } else { Verdict::dead(reason) }
    }
}

impl From<Proposal> for Verdict {
    fn from(proposal: Proposal) -> Verdict {
        Verdict::Propose(proposal)
    }
}

impl Proposal {
    /// A proposal without guards and changes. By default a failed guard skips the item.
    pub fn new() -> Proposal {
        Proposal {
            guards: Vec::new(),
            changes: Vec::new(),
            on_guard_failed: GuardFailed::Skip("changed since it was read".into()),
            notes: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// Adds a condition that must hold in the commit.
    pub fn guard(mut self, guard: impl Into<Guard>) -> Proposal {
        one_more(&mut self.guards).push(guard.into());
        self
    }

    /// A failed guard skips the item with this reason.
    pub fn or_skip(mut self, reason: impl Into<String>) -> Proposal {
        self.on_guard_failed = GuardFailed::Skip(reason.into());
        self
    }

    /// After a failed guard, `act` is called again in at least `after_ms` milliseconds. This
    /// consumes no attempt.
    pub fn or_retry(mut self, after_ms: u64) -> Proposal {
        self.on_guard_failed = GuardFailed::Retry(after_ms);
        self
    }

    /// Inserts a row; an existing row with the same key fails the item.
    pub fn insert<'a>(
        self,
        collection: &str,
        row: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Proposal {
        self.change(Change::Insert(RowChange {
            collection: collection.into(),
            fields: fields(row),
        }))
    }

    /// Inserts a row, or updates the named columns of the row with the same key.
    pub fn upsert<'a>(
        self,
        collection: &str,
        row: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Proposal {
        self.change(Change::Upsert(RowChange {
            collection: collection.into(),
            fields: fields(row),
        }))
    }

    /// Sets columns of a row, which must exist.
    pub fn update<'a>(
        self,
        collection: &str,
        key: RowKey,
        columns: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Proposal {
        let (collection, fields) = (collection.into(), fields(columns));
        self.change(Change::Update(KeyedChange { collection, key, fields }))
    }

    /// Adds to integer columns of a row, which must exist.
    pub fn increment<'a>(
        self,
        collection: &str,
        key: RowKey,
        columns: impl IntoIterator<Item = (&'a str, i64)>,
    ) -> Proposal {
        let fields = fields(columns.into_iter().map(|(name, by)| (name, by.into())));
        self.change(Change::Increment(KeyedChange { collection: collection.into(), key, fields }))
    }

    /// Deletes a row; a missing row is not an error.
    pub fn delete(self, collection: &str, key: RowKey) -> Proposal {
        self.change(Change::Delete(RowReference { collection: collection.into(), key }))
    }

    /// Deletes the rows with the keys of a read set ([`Range::collecting`]), whether or not they were
    /// changed since.
    pub fn delete_read_set(self, read_set: ReadSetId) -> Proposal {
        self.change(Change::DeleteReadSet(read_set))
    }

    /// Deletes the rows of a range ([`Range::part`]). The commit judges each of them by the bounds and the
    /// conditions of the range; a row that another transaction holds stays.
    pub fn delete_range(self, range: RowRange) -> Proposal {
        self.change(Change::DeleteRange(range))
    }

    /// Sets columns of the rows of a range, as [`Proposal::delete_range`] deletes them. Columns of the key
    /// cannot be set.
    pub fn update_range<'a>(
        self,
        range: RowRange,
        columns: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Proposal {
        self.update_range_adding(range, columns, [])
    }

    /// Sets columns of the rows of a range and adds to other integer columns, as [`Proposal::update_range`] sets
    /// them. Nothing can be added to null, or beyond 64 bits: such a row stays, as one that the database refuses to
    /// change.
    pub fn update_range_adding<'a>(
        self,
        range: RowRange,
        columns: impl IntoIterator<Item = (&'a str, Value)>,
        increments: impl IntoIterator<Item = (&'a str, i64)>,
    ) -> Proposal {
        let increments = fields(increments.into_iter().map(|(name, by)| (name, by.into())));
        let fields = fields(columns);
        self.change(Change::UpdateRange(RangeChange { range, fields, increments }))
    }

    /// Moves the rows of a range into another collection, with all columns of their table. A row stays as
    /// with [`Proposal::delete_range`].
    pub fn move_range(self, range: RowRange, into: &str) -> Proposal {
        self.change(Change::MoveRange(RangeMove { range, into: into.into() }))
    }

    /// Puts a message into the outbox, delivered at least once after the commit, in the order of
    /// its key.
    pub fn emit(
        self,
        topic: &str,
        key: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Proposal {
        let (topic, key, payload) = (topic.into(), key.into(), payload.into());
        self.change(Change::Emit(Message { topic, key, payload, extra: Vec::new() }))
    }

    /// Adds a value to the item's history, for operators.
    pub fn note(mut self, name: &str, value: impl Into<Value>) -> Proposal {
        self.notes.push(Field { name: name.into(), value: value.into() });
        self
    }

    /// Adds what a host may know by this name; another ignores it.
    pub fn extra(mut self, name: &str, value: impl Into<Value>) -> Proposal {
        self.extra.push(Field { name: name.into(), value: value.into() });
        self
    }

    fn change(mut self, change: Change) -> Proposal {
        one_more(&mut self.changes).push(change);
        self
    }
}

/// Makes room in a list that mostly has one element: a list that grows by itself begins with four, and a batch
/// keeps the proposals of all its items.
fn one_more<T>(list: &mut Vec<T>) -> &mut Vec<T> {
    if list.is_empty() {
        list.reserve_exact(1);
    }
    list
}

impl Default for Proposal {
    fn default() -> Proposal {
        Proposal::new()
    }
}

fn fields<'a>(columns: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<Field> {
    columns.into_iter().map(|(name, value)| Field { name: name.into(), value }).collect()
}

impl Condition {
    /// The column compared with a value.
    pub fn of(column: &str, comparison: Comparison, value: impl Into<Value>) -> Condition {
        let test = Test::Value(ValueTest { comparison, value: value.into() });
        Condition { column: column.into(), test }
    }

    /// The column compared with another column of the row, of the same type and encoding.
    pub fn between(column: &str, comparison: Comparison, other: &str) -> Condition {
        let test = Test::Column(ColumnTest { comparison, column: other.into() });
        Condition { column: column.into(), test }
    }
}

impl Guard {
    /// The row exists; add conditions on its columns.
    pub fn row(collection: &str, key: RowKey) -> ColumnGuard {
        ColumnGuard { collection: collection.into(), key, conditions: Vec::new() }
    }

    /// No row has this key. On PostgreSQL it does not prevent an insert that another transaction has not
    /// committed yet.
    pub fn missing(collection: &str, key: RowKey) -> Guard {
        Guard::Missing(RowReference { collection: collection.into(), key })
    }
}

impl From<ColumnGuard> for Guard {
    fn from(guard: ColumnGuard) -> Guard {
        Guard::Columns(guard)
    }
}

impl Filter {
    /// All rows of a collection; add conditions.
    pub fn of(collection: &str) -> Filter {
        Filter { collection: collection.into(), conditions: Vec::new() }
    }

    /// A guard that at least one row matches.
    pub fn exists(self) -> Guard {
        Guard::Exists(self)
    }

    /// A guard that no row matches. The mapping of the collection must declare an anchor, and the
    /// conditions must fix its columns.
    pub fn absent(self) -> Guard {
        Guard::Absent(self)
    }

    /// A guard that at least so many rows match, at most 1,000.
    pub fn at_least_rows(self, rows: u32) -> Guard {
        Guard::AtLeast(Counted { filter: self, rows })
    }

    /// A guard that at most so many rows match, at most 1,000. It needs an anchor, as [`Filter::absent`] does.
    pub fn at_most_rows(self, rows: u32) -> Guard {
        Guard::AtMost(Counted { filter: self, rows })
    }
}

macro_rules! conditions {
    ($($type:ty),*) => {
        $(impl $type {
            /// The column equals the value; null equals null.
            pub fn equal(self, column: &str, value: impl Into<Value>) -> Self {
                self.compared(column, Comparison::Equal, value)
            }

            /// The column does not equal the value.
            pub fn not_equal(self, column: &str, value: impl Into<Value>) -> Self {
                self.compared(column, Comparison::NotEqual, value)
            }

            /// The column is null.
            pub fn is_null(self, column: &str) -> Self {
                self.equal(column, Value::Null)
            }

            /// The column has a value.
            pub fn not_null(self, column: &str) -> Self {
                self.not_equal(column, Value::Null)
            }

            /// The column is less than the value; false if either is null.
            pub fn below(self, column: &str, value: impl Into<Value>) -> Self {
                self.compared(column, Comparison::Below, value)
            }

            /// The column is less than or equal to the value; false if either is null.
            pub fn at_most(self, column: &str, value: impl Into<Value>) -> Self {
                self.compared(column, Comparison::AtMost, value)
            }

            /// The column is greater than or equal to the value; false if either is null.
            pub fn at_least(self, column: &str, value: impl Into<Value>) -> Self {
                self.compared(column, Comparison::AtLeast, value)
            }

            /// The column is greater than the value; false if either is null.
            pub fn above(self, column: &str, value: impl Into<Value>) -> Self {
                self.compared(column, Comparison::Above, value)
            }

            /// The column equals one of the values.
            pub fn one_of<V: Into<Value>>(
                self,
                column: &str,
                values: impl IntoIterator<Item = V>,
            ) -> Self {
                self.meeting(column, Test::OneOf(values.into_iter().map(Into::into).collect()))
            }

            /// The column equals none of the values.
            pub fn none_of<V: Into<Value>>(
                self,
                column: &str,
                values: impl IntoIterator<Item = V>,
            ) -> Self {
                self.meeting(column, Test::NoneOf(values.into_iter().map(Into::into).collect()))
            }

            /// The column is a text that begins with this one, byte by byte.
            pub fn starts_with(self, column: &str, text: impl Into<String>) -> Self {
                self.meeting(column, Test::StartsWith(text.into()))
            }

            /// The column compares so with another column of the row, which has the same type and
            /// encoding.
            pub fn compares(self, column: &str, comparison: Comparison, other: &str) -> Self {
                self.condition(Condition::between(column, comparison, other))
            }

            /// Adds a condition.
            pub fn condition(mut self, condition: Condition) -> Self {
                self.conditions.push(condition);
                self
            }

            fn compared(self, column: &str, comparison: Comparison, value: impl Into<Value>) -> Self {
                self.condition(Condition::of(column, comparison, value))
            }

            fn meeting(self, column: &str, test: Test) -> Self {
                self.condition(Condition { column: column.into(), test })
            }
        })*
    };
}

conditions!(ColumnGuard, Filter, Range);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_may_pass_is_retried_and_another_sets_the_item_aside() {
        let verdict = Verdict::from(Error::transient("busy", "later"));
        assert_eq!(verdict, Verdict::retry(RETRY_AFTER_MS, "busy: later"));
        let verdict = Verdict::from(Error::permanent("unfit-key", "a float"));
        assert_eq!(verdict, Verdict::dead("unfit-key: a float"));
    }

    #[test]
    fn a_proposal_keeps_the_order_of_its_changes() {
        let key = vec![Value::from("a")];
        let proposal = Proposal::new()
            .guard(Guard::row("rows", key.clone()).equal("n", 1i64))
            .guard(Filter::of("parts").equal("row", "a").absent())
            .guard(Guard::missing("parents", key.clone()))
            .guard(Filter::of("parts").equal("row", "a").at_most_rows(3))
            .increment("rows", key.clone(), [("n", 1)])
            .delete("rows", key)
            .extra("hint", 1i64)
            .or_retry(250);
        assert_eq!(proposal.guards.len(), 4);
        assert_eq!(proposal.extra[0].name, "hint");
        assert!(matches!(proposal.changes[..], [Change::Increment(_), Change::Delete(_)]));
        assert_eq!(proposal.on_guard_failed, GuardFailed::Retry(250));
    }
}
