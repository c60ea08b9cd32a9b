//! A node as the others see it.

use serde::{Deserialize, Serialize};

use super::report::Report;
use crate::time::Time;

/// What a node takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is there and has yet to own something.
    Joining,
    /// It works.
    #[default]
    Active,
    /// It finishes what it has and gets nothing new.
    Draining,
    /// It was heard of too long ago.
    Lost,
    /// Of a later version of this model.
    #[serde(other)]
    Unknown,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its lasting name, the same after a restart.
    pub name: String,
    /// This start of it.
    pub incarnation: String,
    /// What it takes part in.
    pub state: NodeState,
    /// Who had it drained, and why; none: nobody did, or that is not kept any more.
    pub drained: Option<super::task::Pause>,
    /// Whether it holds the lease of the leader.
    pub leads: bool,
    /// When it last said that it is there, by its own clock.
    pub seen_at: Time,
    /// Its share of the partitions beside the others'.
    pub weight: u32,
    /// Where the others reach it; empty: nowhere.
    pub address: String,
    /// Partitions that the store says it owns.
    pub owned: u32,
    /// Items in the log of its partitions that wait for their turn.
    pub queued: u64,
    /// The digest of the configuration it works by.
    pub config_digest: String,
    /// What it could not reach when it was last heard of.
    pub missing: Vec<Missing>,
    /// What it says of itself, as of [`Node::seen_at`]; none: nothing yet, or it is of an
    /// earlier version.
    pub report: Option<Report>,
}

/// Something that a node cannot reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Missing {
    /// What: `the store`, `the coordination`, `the activity`.
    pub what: String,
    /// Since when it has not answered.
    pub since: Time,
    /// What came instead of an answer.
    pub why: String,
}
