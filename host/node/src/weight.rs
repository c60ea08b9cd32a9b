//! The weight of a batch: it serves to estimate the duration of its commit.

use besom_core::proposal::{Change, Proposal};
use besom_core::queue::Decision;
use besom_core::weight::{ROW, of_proposal};

use besom_ports::store::Batch;

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

/// The number of rows in the ranges that a proposal changes, at most.
pub fn rows_of_ranges(proposal: &Proposal) -> u64 {
    let ranges = proposal.changes.iter().filter_map(Change::range);
    ranges.map(|range| u64::from(range.rows)).sum()
}

/// The number of the user's rows that a batch changes.
pub fn rows_of_batch(batch: &Batch) -> u64 {
    let rows = batch.entries.iter().map(|entry| match &entry.decision {
        Decision::Apply { proposal, .. } => proposal.rows(),
        Decision::Settle(_) => 0,
    });
    rows.sum()
}
