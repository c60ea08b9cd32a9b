//! The weight of a commit in bytes of values. It bounds the size of a batch and serves to estimate
//! the duration of its commit.

use besom_core::proposal::{Change, Guard, Proposal, ReadSet};
use besom_core::queue::Decision;
use besom_core::value::{Field, Value};

use besom_ports::store::Batch;

/// The cost of a row in addition to its values: index entries and headers.
const ROW: usize = 64;

/// The weight of a batch.
pub fn of_batch(batch: &Batch) -> usize {
    batch
        .entries
        .iter()
        .map(|entry| match &entry.decision {
            Decision::Apply { proposal, .. } => of_proposal(proposal),
            Decision::Settle(_) => ROW,
        })
        .sum()
}

/// The number of the user's rows that a batch changes.
pub fn rows_of_batch(batch: &Batch) -> u64 {
    let changes = batch.entries.iter().flat_map(|entry| match &entry.decision {
        Decision::Apply { proposal, .. } => proposal.changes.as_slice(),
        Decision::Settle(_) => &[],
    });
    changes
        .map(|change| match change {
            Change::Insert { .. }
            | Change::Upsert { .. }
            | Change::Update { .. }
            | Change::Increment { .. }
            | Change::Delete { .. } => 1,
            Change::DeleteReadSet(set) => set.len() as u64,
            Change::Emit { .. } => 0,
        })
        .sum()
}

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
