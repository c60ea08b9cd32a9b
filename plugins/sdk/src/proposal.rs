//! Verdicts, guards and changes, built up.

use crate::bindings::besom::task::types::{
    KeyedChange, Message, Retried, RowChange, RowReference, Skipped,
};
use crate::store::Range;
use crate::{
    Change, ColumnGuard, Comparison, Condition, Error, Field, Filter, Guard, GuardFailed, Proposal,
    ReadSetId, RowKey, Value, Verdict,
};

/// How long an item waits after an error that may pass, unless the host waits longer.
const RETRY_AFTER_MS: u64 = 1_000;

impl Verdict {
    /// Nothing to do now; a later scan may plan the item again.
    pub fn skip(reason: impl Into<String>) -> Verdict {
        Verdict::Skip(Skipped { reason: reason.into(), settled: false })
    }

    /// Nothing to do until the item's version changes. Only where the version captures
    /// everything that could change this decision: time passes without changing it.
    pub fn skip_settled(reason: impl Into<String>) -> Verdict {
        Verdict::Skip(Skipped { reason: reason.into(), settled: true })
    }

    /// Act again after so many milliseconds, at least.
    pub fn retry(after_ms: u64, reason: impl Into<String>) -> Verdict {
        Verdict::Retry(Retried { after: after_ms, reason: reason.into() })
    }

    /// Set the item aside: trying again cannot help.
    pub fn dead(reason: impl Into<String>) -> Verdict {
        Verdict::Dead(reason.into())
    }
}

impl From<Error> for Verdict {
    /// Of one item's error: retried where that can help, set aside where it cannot.
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
    /// Without guards and changes yet. A guard that fails skips the item.
    pub fn new() -> Proposal {
        Proposal {
            guards: Vec::new(),
            changes: Vec::new(),
            on_guard_failed: GuardFailed::Skip("changed since it was read".into()),
            notes: Vec::new(),
        }
    }

    /// Only if this holds in the commit.
    pub fn guard(mut self, guard: impl Into<Guard>) -> Proposal {
        self.guards.push(guard.into());
        self
    }

    /// A guard that fails skips the item, for that reason.
    pub fn or_skip(mut self, reason: impl Into<String>) -> Proposal {
        self.on_guard_failed = GuardFailed::Skip(reason.into());
        self
    }

    /// A guard that fails lets `act` decide anew after so many milliseconds.
    pub fn or_retry(mut self, after_ms: u64) -> Proposal {
        self.on_guard_failed = GuardFailed::Retry(after_ms);
        self
    }

    /// Inserts a row; its key must be new.
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

    /// Sets columns of a row, which has to exist.
    pub fn update<'a>(
        self,
        collection: &str,
        key: RowKey,
        columns: impl IntoIterator<Item = (&'a str, Value)>,
    ) -> Proposal {
        let (collection, fields) = (collection.into(), fields(columns));
        self.change(Change::Update(KeyedChange { collection, key, fields }))
    }

    /// Adds to integer columns of a row, which has to exist.
    pub fn increment<'a>(
        self,
        collection: &str,
        key: RowKey,
        columns: impl IntoIterator<Item = (&'a str, i64)>,
    ) -> Proposal {
        let fields = fields(columns.into_iter().map(|(name, by)| (name, by.into())));
        self.change(Change::Increment(KeyedChange { collection: collection.into(), key, fields }))
    }

    /// Deletes a row; one that is gone already is no error.
    pub fn delete(self, collection: &str, key: RowKey) -> Proposal {
        self.change(Change::Delete(RowReference { collection: collection.into(), key }))
    }

    /// Deletes exactly the rows of a read set.
    pub fn delete_read_set(self, read_set: ReadSetId) -> Proposal {
        self.change(Change::DeleteReadSet(read_set))
    }

    /// Puts a message into the outbox.
    pub fn emit(
        self,
        topic: &str,
        key: impl Into<String>,
        payload: impl Into<Vec<u8>>,
    ) -> Proposal {
        let (topic, key, payload) = (topic.into(), key.into(), payload.into());
        self.change(Change::Emit(Message { topic, key, payload }))
    }

    /// Kept with the item's history, for whoever asks later.
    pub fn note(mut self, name: &str, value: impl Into<Value>) -> Proposal {
        self.notes.push(Field { name: name.into(), value: value.into() });
        self
    }

    fn change(mut self, change: Change) -> Proposal {
        self.changes.push(change);
        self
    }
}

impl Default for Proposal {
    fn default() -> Proposal {
        Proposal::new()
    }
}

fn fields<'a>(columns: impl IntoIterator<Item = (&'a str, Value)>) -> Vec<Field> {
    columns.into_iter().map(|(name, value)| Field { name: name.into(), value }).collect()
}

impl Guard {
    /// The row exists; add what its columns have to be.
    pub fn row(collection: &str, key: RowKey) -> ColumnGuard {
        ColumnGuard { collection: collection.into(), key, conditions: Vec::new() }
    }
}

impl From<ColumnGuard> for Guard {
    fn from(guard: ColumnGuard) -> Guard {
        Guard::Columns(guard)
    }
}

impl Filter {
    /// Rows of that collection; add conditions.
    pub fn of(collection: &str) -> Filter {
        Filter { collection: collection.into(), conditions: Vec::new() }
    }

    /// The guard that at least one row matches.
    pub fn exists(self) -> Guard {
        Guard::Exists(self)
    }

    /// The guard that no row matches. The collection needs an anchor.
    pub fn absent(self) -> Guard {
        Guard::Absent(self)
    }
}

macro_rules! conditions {
    ($($type:ty),*) => {
        $(impl $type {
            /// The column equals the value; null equals null.
            pub fn equal(self, column: &str, value: impl Into<Value>) -> Self {
                self.condition(column, Comparison::Equal, value.into())
            }

            /// The column does not equal the value.
            pub fn not_equal(self, column: &str, value: impl Into<Value>) -> Self {
                self.condition(column, Comparison::NotEqual, value.into())
            }

            /// The column is not below the value; false where either is null.
            pub fn at_least(self, column: &str, value: impl Into<Value>) -> Self {
                self.condition(column, Comparison::AtLeast, value.into())
            }

            /// The column is not above the value; false where either is null.
            pub fn at_most(self, column: &str, value: impl Into<Value>) -> Self {
                self.condition(column, Comparison::AtMost, value.into())
            }

            fn condition(mut self, column: &str, comparison: Comparison, value: Value) -> Self {
                self.conditions.push(Condition { column: column.into(), comparison, value });
                self
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
            .increment("rows", key.clone(), [("n", 1)])
            .delete("rows", key)
            .or_retry(250);
        assert_eq!(proposal.guards.len(), 2);
        assert!(matches!(proposal.changes[..], [Change::Increment(_), Change::Delete(_)]));
        assert_eq!(proposal.on_guard_failed, GuardFailed::Retry(250));
    }
}
