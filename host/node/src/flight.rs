//! Batches in flight: being read, executed or committed.

use std::sync::Arc;

use besom_core::ids::{CommitId, Partition, TaskName};
use besom_core::time::Time;

use besom_ports::guests::Lane;
use besom_ports::store::{Batch, Waiting};
use besom_ports::task::TaskDefinition;

/// Identifies a batch between a command and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// The phase of a batch.
#[derive(Debug)]
pub enum Phase {
    /// Its items are being read from their streams.
    Reading,
    /// Its items are being executed.
    Acting {
        /// The items, in the order of the call.
        items: Vec<Waiting>,
        /// Whether the call was asked to stop, for tasks that wait.
        gives_way: bool,
    },
    /// It is waiting for rows of its task's budget.
    Rationed {
        /// The batch, ready to be committed.
        batch: Arc<Batch>,
        /// When to ask (again); `None`: a request is under way.
        ask_at: Option<Time>,
    },
    /// It is waiting for the due time of its items, for due items that take precedence, for the
    /// store, or for large batches in their commit.
    Held {
        /// The batch, ready to be committed.
        batch: Arc<Batch>,
        /// Since when it has been ready.
        since: Time,
        /// The end of the wait, except that for large batches.
        until: Time,
    },
    /// It is being committed.
    Committing {
        /// The batch that was sent.
        batch: Arc<Batch>,
        /// Since when it was ready.
        since: Time,
    },
    /// The result of its commit is being looked up.
    Resolving {
        /// The batch that was sent.
        batch: Arc<Batch>,
        /// When to ask (again); `None`: a request is under way.
        ask_at: Option<Time>,
    },
}

/// A batch in flight.
#[derive(Debug)]
pub struct Flight {
    /// The task of all its items.
    pub task: TaskName,
    /// The definition by which they are executed.
    pub definition: Arc<TaskDefinition>,
    /// Whether the task has lost a right since the batch was begun. Nothing of it is committed
    /// then.
    pub revoked: bool,
    /// The weight of its batch in bytes, as soon as it is ready.
    pub bytes: usize,
    /// How many rows of ranges its commit may change.
    pub rows_max: u64,
    /// How often the store could not commit the batch.
    pub failures: u32,
    /// The lane that it occupies.
    pub lane: Lane,
    /// The id of its commit.
    pub commit: CommitId,
    /// The streams that it occupies.
    pub streams: Vec<Partition>,
    /// The timers and retries that it has taken, with the places to which they return.
    pub taken: Vec<Waiting>,
    /// The due time of its latest timer: its items are executed as of then and not committed
    /// before.
    pub not_before: Time,
    /// The present that its guest was given. By the store's clock, nothing of the batch is
    /// committed before.
    pub as_of: Time,
    /// When the batch was begun.
    pub since: Time,
    /// The current phase.
    pub phase: Phase,
}

impl Flight {
    /// Whether its items are being read or executed.
    pub fn is_executing(&self) -> bool {
        match self.phase {
            Phase::Reading | Phase::Acting { .. } => true,
            Phase::Rationed { .. }
            | Phase::Held { .. }
            | Phase::Committing { .. }
            | Phase::Resolving { .. } => false,
        }
    }
}
