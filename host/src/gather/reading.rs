//! What was read together.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::ids::TaskName;
use besom_core::plan::{SlotRecord, TaskState};
use besom_core::snapshot::{DeadGroup, Run};
use besom_core::time::Time;

use crate::ports::coordination::LeaderRecord;
use crate::ports::members::Membership;
use crate::ports::store::{CommandRow, Depth, FenceState, NodeRow, PartitionRow, Stream};

/// An item that was set aside, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// When.
    pub at: Time,
    /// The task.
    pub task: String,
    /// Its last error.
    pub error: String,
}

/// Everything that a picture is made of.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The store's clock.
    pub now: Time,
    /// The fence.
    pub fence: Option<FenceState>,
    /// Who holds the lease.
    pub leader: Option<LeaderRecord>,
    /// Why that is not known.
    pub leader_fault: Option<String>,
    /// Who is there; none: in no cluster, or it could not be read.
    pub members: Option<Membership>,
    /// What the nodes said last.
    pub nodes: Vec<NodeRow>,
    /// Who owns what.
    pub partitions: Vec<PartitionRow>,
    /// Streams with something in them.
    pub backlog: Vec<Stream>,
    /// What waits.
    pub depths: Vec<Depth>,
    /// What the store remembers of the tasks.
    pub states: BTreeMap<TaskName, TaskState>,
    /// Runs, newest first.
    pub runs: Vec<Arc<Run>>,
    /// The newest slots of each task, newest first.
    pub slots: BTreeMap<TaskName, Vec<SlotRecord>>,
    /// Open dead letters, by what is wrong.
    pub dead: Vec<DeadGroup>,
    /// The newest open dead letters, newest first.
    pub letters: Vec<SetAside>,
    /// Leaderships, newest first.
    pub terms: Vec<FenceState>,
    /// What people asked for, newest first.
    pub commands: Vec<CommandRow>,
}
