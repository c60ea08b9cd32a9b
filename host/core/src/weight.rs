//! The weight of a proposal in bytes of values. It bounds the verdicts that are held in memory and the
//! size of a commit.

use crate::proposal::{Change, Guard, Proposal, ReadSet};
use crate::value::{Field, Value};

/// The cost of a row in addition to its values: index entries and headers.
pub const ROW: usize = 64;

/// The weight of a proposal: its values and the rows that it reads or writes.
pub fn of_proposal(proposal: &Proposal) -> usize {
    let guards: usize = proposal
        .guards
        .iter()
        .map(|guard| match guard {
            Guard::Complete(set) => of_set(set),
            Guard::Columns { .. } | Guard::Exists(_) | Guard::Absent(_) | Guard::Idle(_) => ROW,
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
            Change::Emit { topic, key, payload } => ROW + topic.len() + key.len() + payload.len(),
        })
        .sum();
    guards + changes
}

fn of_set(set: &ReadSet) -> usize {
    set.len() * ROW
}

fn of_fields(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.value.weight()).sum()
}

fn of_values(values: &[Value]) -> usize {
    values.iter().map(Value::weight).sum()
}
