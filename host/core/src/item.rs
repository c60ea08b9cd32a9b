//! Items: units of work, from candidate to end.

use serde::{Deserialize, Serialize};

use crate::ids::{Partition, RunId, Seq, TaskName, Tenant, Term};
use crate::time::Time;

/// The largest payload of an item, in bytes. Larger data belongs in the database, where `act` reads
/// it.
pub const PAYLOAD_BYTES_MAX: usize = 4096;

/// The identity of an item. No due time is a value like any other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The task it belongs to.
    pub task: TaskName,
    /// The tenant; none where the task has no tenants.
    pub tenant: Option<Tenant>,
    /// The key within the tenant.
    pub key: String,
    /// When it is due; none: as soon as possible.
    pub due: Option<Time>,
}

/// A unit of work as `scan` proposes it; the task is known from the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// The tenant; none: the task has no tenants.
    pub tenant: Option<Tenant>,
    /// The key within the tenant.
    pub key: String,
    /// What decides the partition; usually the key.
    pub route: String,
    /// When it is due.
    pub due: Option<Time>,
    /// A value that changes whenever the item is worth another look.
    pub version: String,
    /// Data for `act`; at most [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: Vec<u8>,
}

impl Candidate {
    /// The size of its texts and its payload, in bytes.
    pub fn size(&self) -> usize {
        self.key.len() + self.route.len() + self.version.len() + self.payload.len()
    }
}

/// A planned item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// The identity, unique among the waiting items.
    pub identity: Identity,
    /// The text that decided its partition.
    pub route: String,
    /// The partition that the item belongs to.
    pub partition: Partition,
    /// The version the scan saw.
    pub version: String,
    /// Data from the scan for `act`.
    pub payload: Vec<u8>,
    /// The run that planned it.
    pub run: RunId,
    /// The slot of that run.
    pub planned_at: Time,
    /// Failed executions caused by the item itself; 0 for a fresh item.
    pub attempts: u32,
    /// How often a guard failed and the proposal asked for a retry.
    pub guard_retries: u32,
    /// How often its host died while it was in flight.
    pub deaths: u32,
    /// Its errors, oldest first; the retry policy bounds their number.
    pub errors: Vec<String>,
}

/// How an item ended, as its history row records it. The numbers are those that stores write.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Its changes were applied.
    Committed = 1,
    /// Nothing had to be done.
    Skipped = 2,
    /// It was set aside as a dead letter.
    Dead = 3,
    /// Its dead letter was discarded by an operator.
    Discarded = 4,
    /// Of a later version.
    #[default]
    #[serde(other)]
    Unknown = 0,
}

impl End {
    /// The end that a store has written as a number.
    pub fn of(number: i64) -> End {
        match number {
            1 => End::Committed,
            2 => End::Skipped,
            3 => End::Dead,
            4 => End::Discarded,
            _ => End::Unknown,
        }
    }

    /// The word for it, in JSON as well as on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            End::Unknown => "unknown",
            End::Committed => "committed",
            End::Skipped => "skipped",
            End::Dead => "dead",
            End::Discarded => "discarded",
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where an item is waiting. Together with the partition's owner epoch, a commit acknowledges this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// In its stream, at that position.
    Log(Seq),
    /// Planned with a due time; the store's id of the row.
    Timer(u64),
    /// Waiting for its next attempt; the store's id of the row.
    Retry(u64),
    /// Nowhere: the commit plans the item and ends it. No run has planned it and nobody owns it, so
    /// that any process may commit it: a host for a connection, the command line for an operator.
    /// The store refuses it once the fence is above this term, which the writer follows.
    Unqueued(Term),
}
