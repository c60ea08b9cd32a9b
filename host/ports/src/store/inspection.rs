//! What has become of items: dead letters, the history, the counters and their recount.

use besom_core::books::Counts;
use besom_core::ids::{CommitId, Incarnation, RunId, TaskName, Tenant};
use besom_core::item::{End, Identity};
use besom_core::proposal::{DEPENDANT_ROWS, PLANNED_ROWS, rows_noted};
use besom_core::time::Time;
use besom_core::value::Field;
use serde::{Deserialize, Serialize};

/// Which dead letters of a selection to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Open letters only: those that need attention.
    Open,
    /// Open and resolved letters.
    All,
}

/// A row of the history: the outcome of one item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// The number of the row. Newer rows have higher numbers.
    pub id: u64,
    /// The identity of the item.
    pub identity: Identity,
    /// The run that planned the item; [`RunId::NONE`] for an item that was never queued.
    pub run: RunId,
    /// When the outcome was committed, by the store's clock.
    pub at: Time,
    /// How the item ended.
    pub outcome: End,
    /// Whether a skip was settled. A settled skip blocks planning the same version again.
    pub settled: bool,
    /// Number of the product's rows that the item changed.
    pub rows: u64,
    /// The reason, for outcomes without effects; for others, why rows were left as they were.
    pub reason: Option<String>,
    /// The plugin's notes, for a committed item; of one whose guard did not hold, how many rows were planned.
    pub notes: Vec<Field>,
    /// The node that committed the outcome; for a discarded item, the leader.
    pub node: Incarnation,
    /// The id of the commit; 0 for a discarded item.
    pub commit: CommitId,
    /// Size of the before-images held for undo, in bytes.
    pub undo_bytes: u64,
}

impl HistoryRow {
    /// The number of rows that were found in the item's ranges when it was planned; none: the task does not say it, or
    /// the item may still be done.
    pub fn planned_rows(&self) -> Option<u64> {
        match self.outcome {
            End::Committed | End::Skipped => rows_noted(&self.notes, PLANNED_ROWS),
            End::Dead | End::Discarded | End::Unknown => None,
        }
    }

    /// The number of these rows that stayed as they were. A row that came into the ranges since, and was changed with
    /// them, stands for one that stayed.
    pub fn stayed(&self) -> Option<u64> {
        let planned = self.planned_rows()?;
        let others = rows_noted(&self.notes, DEPENDANT_ROWS).unwrap_or(0);
        Some(planned.saturating_sub(self.rows.saturating_sub(others)))
    }
}

/// Selects history rows. A row must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryQuery {
    /// Rows of this task only.
    pub task: Option<TaskName>,
    /// Rows of this tenant only.
    pub tenant: Option<Tenant>,
    /// Rows of this key only.
    pub key: Option<String>,
    /// Rows of items that this run planned.
    pub run: Option<RunId>,
    /// Rows with lower numbers than this one, for paging.
    pub before: Option<u64>,
    /// Maximum number of rows, newest first.
    pub limit: u32,
}

/// The counters of one task and tenant, and their recount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// The task of the counters.
    pub task: TaskName,
    /// The tenant of the counters; `None` for items without a tenant.
    pub tenant: Option<Tenant>,
    /// The stored counters.
    pub counted: Counts,
    /// The recount of the history (with the baseline of pruned rows), dead letters, log, timers and
    /// retries.
    pub recounted: Counts,
}

/// The recount of the engine's books, made in one snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Audit {
    /// One row per task and tenant.
    pub rows: Vec<AuditRow>,
    /// Inconsistencies other than numbers: gaps in a stream, an item that waits twice, an index
    /// entry without its item, a run with wrong counts.
    pub violations: Vec<String>,
}

impl Audit {
    /// Whether all counters equal their recount and balance, and there are no violations.
    pub fn balanced(&self) -> bool {
        self.violations.is_empty()
            && self.rows.iter().all(|row| row.counted == row.recounted && row.counted.conserved())
    }
}

/// How many items of one task are waiting.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Depth {
    /// The task; always set in results of [`super::Store::depths`].
    pub task: Option<TaskName>,
    /// Items ever planned. The difference to the waiting items have ended.
    pub planned: u64,
    /// Items in the log.
    pub log: u64,
    /// Items that are waiting as timers for their due time.
    pub timers: u64,
    /// Items that are waiting to be retried.
    pub retries: u64,
    /// Open dead letters.
    pub dead: u64,
    /// The due time of the earliest timer.
    pub next_due: Option<Time>,
    /// Since when the oldest item of the log has been waiting, or the due time of the earliest
    /// overdue timer.
    pub oldest: Option<Time>,
    /// Size of the before-images held, in bytes.
    pub undo_bytes: u64,
    /// Rows of the product that the task has ever changed.
    pub rows: u64,
}
