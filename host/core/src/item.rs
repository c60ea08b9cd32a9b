//! Items: units of work, from candidate to the end of their way.

use serde::{Deserialize, Serialize};

use crate::ids::{Partition, RunId, Seq, TaskName, Tenant};
use crate::time::Time;

/// The largest payload of an item, in bytes. What is larger belongs into the database,
/// where `act` reads it.
pub const PAYLOAD_BYTES_MAX: usize = 4096;

/// What makes an item itself. No due time is a value like any other.
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
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// The key within the tenant.
    pub key: String,
    /// What decides the partition; usually the key.
    pub route: String,
    /// When it is due.
    pub due: Option<Time>,
    /// Whatever changes when the item would be worth another look.
    pub version: String,
    /// At most [`PAYLOAD_BYTES_MAX`].
    pub payload: Vec<u8>,
}

/// A planned item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// What makes it itself.
    pub identity: Identity,
    /// What decided its partition.
    pub route: String,
    /// The partition.
    pub partition: Partition,
    /// The version the scan saw.
    pub version: String,
    /// What the scan wants `act` to know.
    pub payload: Vec<u8>,
    /// The run that planned it.
    pub run: RunId,
    /// The slot of that run.
    pub planned_at: Time,
    /// Executions that failed by the item's own fault. 0 for a fresh item.
    pub attempts: u32,
    /// How often a guard failed and asked for a retry.
    pub guard_retries: u32,
    /// How often its host died while it was in flight.
    pub deaths: u32,
    /// What went wrong so far, oldest first, bounded by the retry policy.
    pub errors: Vec<String>,
}

/// Where a waiting item waits. Together with the partition's owner epoch this is what a
/// commit acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Source {
    /// In its stream, at that position.
    Log(Seq),
    /// Planned with a due time; the store's id of the row.
    Timer(u64),
    /// Waiting to be tried again; the store's id of the row.
    Retry(u64),
}
