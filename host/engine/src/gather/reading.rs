//! The data of one reading.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::ids::TaskName;
use besom_core::plan::{SlotRecord, TaskState};
use besom_core::time::Time;
use besom_snapshot::{DeadGroup, HeldBack, RefusedPlan, Run};

use besom_ports::coordination::LeaderRecord;
use besom_ports::members::Membership;
use besom_ports::store::{
    CommandRow, Depth, Fence, NodeRow, OutboxTopic, PartitionRow, Review, Stream,
};

/// The summary of a dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    /// When it was set aside.
    pub at: Time,
    /// The task of the item.
    pub task: String,
    /// The last error of the item.
    pub error: String,
}

/// Everything that a snapshot is made of.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// The store's clock.
    pub now: Time,
    /// The fence; `None` before the first leadership.
    pub fence: Option<Fence>,
    /// The holder of the lease.
    pub leader: Option<LeaderRecord>,
    /// Why the holder is unknown.
    pub leader_fault: Option<String>,
    /// The members; `None`: not in a cluster, or they could not be read.
    pub members: Option<Membership>,
    /// The latest row of each node.
    pub nodes: Vec<NodeRow>,
    /// The owners of the partitions.
    pub partitions: Vec<PartitionRow>,
    /// Streams with items to execute.
    pub backlog: Vec<Stream>,
    /// The numbers of waiting items, by task.
    pub depths: Vec<Depth>,
    /// The stored states of the tasks.
    pub states: BTreeMap<TaskName, TaskState>,
    /// What waits for an approval, newest first.
    pub reviews: Vec<Review>,
    /// What the database refuses of the last plans of tasks.
    pub refused: BTreeMap<TaskName, RefusedPlan>,
    /// What undos hold back of tasks.
    pub held_back: BTreeMap<TaskName, HeldBack>,
    /// Runs, newest first.
    pub runs: Vec<Arc<Run>>,
    /// The newest slots of each task, newest first.
    pub slots: BTreeMap<TaskName, Vec<SlotRecord>>,
    /// Open dead letters, grouped by error.
    pub dead: Vec<DeadGroup>,
    /// The newest open dead letters, newest first.
    pub letters: Vec<SetAside>,
    /// The topics of which messages wait or were given up.
    pub topics: Vec<OutboxTopic>,
    /// Leaderships, newest first.
    pub terms: Vec<Fence>,
    /// Commands, newest first.
    pub commands: Vec<CommandRow>,
}
