//! The weight of a proposal in bytes of values. It bounds the verdicts that are held in memory and the
//! size of a commit.

use crate::proposal::{Change, Condition, Filter, Guard, Proposal, ReadSet, RowRange, Test};
use crate::value::{Field, Value};

/// The cost of a row in addition to its values: index entries and headers.
pub const ROW: usize = 64;

/// The cost of a row of a range, whose values are not known before the commit.
const ROW_OF_RANGE: usize = 256;

/// The cost of a condition in addition to its texts and its value: its place in memory.
const CONDITION: usize = 64;

/// The weight of a proposal: its values, the rows that it reads or writes, and the conditions of its
/// guards, of which one row may have thousands.
pub fn of_proposal(proposal: &Proposal) -> usize {
    let guards: usize = proposal
        .guards
        .iter()
        .map(|guard| match guard {
            Guard::Complete(set) => of_set(set),
            Guard::Columns { collection, key, conditions } => {
                ROW + collection.len() + of_values(key) + of_conditions(conditions)
            }
            Guard::Exists(filter) | Guard::Absent(filter) => of_filter(filter),
            // The rows that it counts are locked, or looked at.
            Guard::AtLeast(filter, rows) | Guard::AtMost(filter, rows) => {
                of_filter(filter) + *rows as usize * ROW
            }
            Guard::Missing { collection, key } => ROW + collection.len() + of_values(key),
            Guard::Idle(key) => ROW + key.len(),
        })
        .sum();
    let changes: usize = proposal
        .changes
        .iter()
        .map(|change| match change {
            Change::Insert { fields, .. } | Change::Upsert { fields, .. } => {
                ROW + of_fields(fields)
            }
            Change::Update { key, fields, .. } | Change::Increment { key, fields, .. } => {
                ROW + of_values(key) + of_fields(fields)
            }
            Change::Delete { key, .. } => ROW + of_values(key),
            Change::DeleteReadSet(set) => of_set(set),
            Change::DeleteRange(range) => of_range(range),
            Change::UpdateRange { range, fields, increments } => {
                of_range(range) + of_fields(fields) + of_fields(increments)
            }
            Change::MoveRange { range, .. } => of_range(range) * 2,
            Change::Restore(restore) => restore.rows as usize * ROW_OF_RANGE,
            Change::Emit { topic, key, payload } => ROW + topic.len() + key.len() + payload.len(),
        })
        .sum();
    guards + changes
}

fn of_filter(filter: &Filter) -> usize {
    ROW + filter.collection.len() + of_conditions(&filter.conditions)
}

fn of_set(set: &ReadSet) -> usize {
    set.len() * ROW
}

fn of_range(range: &RowRange) -> usize {
    let bounds = range.prefix.iter().chain(&range.lower).chain(&range.upper);
    let positions = range.after.iter().chain(&range.until).map(Vec::len).sum::<usize>();
    let rows = range.rows as usize * ROW_OF_RANGE;
    rows + of_conditions(&range.conditions) + bounds.map(Value::weight).sum::<usize>() + positions
}

fn of_conditions(conditions: &[Condition]) -> usize {
    let weight = |of: &Condition| {
        let tested = match &of.test {
            Test::Value(_, value) => value.weight(),
            Test::OneOf(values) | Test::NoneOf(values) => {
                of_values(values) + values.len() * CONDITION
            }
            Test::Column(_, text) | Test::StartsWith(text) => text.len(),
        };
        CONDITION + of.column.len() + tested
    };
    conditions.iter().map(weight).sum()
}

fn of_fields(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.value.weight()).sum()
}

fn of_values(values: &[Value]) -> usize {
    values.iter().map(Value::weight).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proposal::OnGuardFailed;

    #[test]
    fn each_condition_of_a_guard_has_its_weight() {
        let condition = Condition::equal("name", Value::Text("x".repeat(100)));
        let filter =
            |count| Filter { collection: "t".into(), conditions: vec![condition.clone(); count] };
        let proposal = |guards| Proposal {
            guards,
            changes: Vec::new(),
            on_guard_failed: OnGuardFailed::Retry(0),
            notes: Vec::new(),
        };
        let columns = |count| Guard::Columns {
            collection: "t".into(),
            key: vec![Value::Integer(1)],
            conditions: vec![condition.clone(); count],
        };
        let one = CONDITION + 4 + 100;
        for (guard, fixed) in [
            (Guard::Exists(filter(1_000)), ROW + 1),
            (Guard::Absent(filter(1_000)), ROW + 1),
            (Guard::AtLeast(filter(1_000), 3), ROW + 1 + 3 * ROW),
            (columns(1_000), ROW + 1 + 8),
        ] {
            assert_eq!(of_proposal(&proposal(vec![guard])), fixed + 1_000 * one);
        }
        let idle = Guard::Idle("doc:1".into());
        assert_eq!(of_proposal(&proposal(vec![idle])), ROW + 5);
    }
}
