//! Batches on their way: read, executed, committed.

use std::sync::Arc;

use besom_core::ids::{CommitId, Partition, TaskName};
use besom_core::time::Time;

use crate::ports::guests::Lane;
use crate::ports::store::{Batch, Waiting};
use crate::task::TaskDefinition;

/// Names a batch between a command and its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Where a batch is.
#[derive(Debug)]
pub enum Phase {
    /// Its items are read from their streams.
    Reading,
    /// Its items are executed.
    Acting {
        /// The items, in the order of the call.
        items: Vec<Waiting>,
    },
    /// It waits for rows of its task's budget.
    Rationed {
        /// Ready to be committed.
        batch: Box<Batch>,
        /// When to ask (again); none: the question is under way.
        ask_at: Option<Time>,
    },
    /// It waits: for the time of its own items, for due items that go first, or for the store.
    Held {
        /// Ready to be committed.
        batch: Box<Batch>,
        /// Since when it is ready.
        since: Time,
        /// Not longer than until then.
        until: Time,
    },
    /// It is being committed.
    Committing {
        /// What was sent.
        batch: Box<Batch>,
        /// Since when it was ready.
        since: Time,
    },
    /// The result of its commit is looked up.
    Resolving {
        /// What was sent.
        batch: Box<Batch>,
        /// When to ask (again); none: the question is under way.
        ask_at: Option<Time>,
    },
}

/// A batch on its way.
#[derive(Debug)]
pub struct Flight {
    /// The task all its items belong to.
    pub task: TaskName,
    /// The definition they are executed by.
    pub definition: Arc<TaskDefinition>,
    /// Whether a right was taken from its task since it was begun: nothing of it is committed.
    pub revoked: bool,
    /// How often the store could not take its batch.
    pub failures: u32,
    /// The lane it occupies.
    pub lane: Lane,
    /// The mark of its commit.
    pub commit: CommitId,
    /// The streams it holds.
    pub streams: Vec<Partition>,
    /// The timers and retries it has taken, with the place they go back to.
    pub taken: Vec<Waiting>,
    /// When the last of its timers is due: its items are executed as of then, and nothing is
    /// committed before.
    pub not_before: Time,
    /// What its guest was given as the present; none of it is committed before, by the store's
    /// clock.
    pub as_of: Time,
    /// When it was begun.
    pub since: Time,
    /// Where it is.
    pub phase: Phase,
}

impl Flight {
    /// Whether its items are read or executed.
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
