//! A node from the others' point of view.

use serde::{Deserialize, Serialize};

use super::report::Report;
use besom_core::plan::Pause;
use besom_core::time::Time;

/// The state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is a member but owns no partition yet.
    Joining,
    /// It takes part in all work.
    #[default]
    Active,
    /// It finishes its work and receives nothing new.
    Draining,
    /// It has been silent for too long.
    Lost,
    /// Of a later version of this model.
    #[serde(other)]
    Unknown,
}

impl NodeState {
    /// The word for it on screens and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeState::Joining => "joining",
            NodeState::Active => "active",
            NodeState::Draining => "draining",
            NodeState::Lost => "lost",
            NodeState::Unknown => "unknown",
        }
    }
}

/// What a node says about itself in its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Another node leads, or there is no leader yet.
    Following,
    /// This node leads.
    Leading,
    /// The node finishes the work in flight.
    Draining,
    /// The node has stopped.
    Stopped,
    /// Of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Role {
    /// The word for it, in stored rows and JSON as well as on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Following => "following",
            Role::Leading => "leading",
            Role::Draining => "draining",
            Role::Stopped => "stopped",
            Role::Unknown => "unknown",
        }
    }

    /// The role in a stored row.
    pub fn of(word: &str) -> Role {
        let known = [Role::Following, Role::Leading, Role::Draining, Role::Stopped];
        known.into_iter().find(|role| role.as_str() == word).unwrap_or(Role::Unknown)
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its name, the same after a restart.
    pub name: String,
    /// Its current incarnation.
    pub incarnation: String,
    /// What it takes part in.
    pub state: NodeState,
    /// Who drained it, and why; none: it was not drained, or that is no longer recorded.
    pub drained: Option<Pause>,
    /// Whether it holds the leader's lease.
    pub leads: bool,
    /// When it last reported, by its own clock.
    pub seen_at: Time,
    /// Its weight in the ring relative to the others'.
    pub weight: u32,
    /// The address at which other nodes reach it; empty: none.
    pub address: String,
    /// Partitions that it owns according to the store.
    pub owned: u32,
    /// Items waiting in the log of its partitions.
    pub queued: u64,
    /// The digest of its configuration.
    pub config_digest: String,
    /// What it could not reach at its last report.
    pub missing: Vec<Missing>,
    /// Its report as of [`Node::seen_at`]; none: it has not reported yet, or its version is older.
    pub report: Option<Report>,
}

/// Something that a node cannot reach.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Missing {
    /// Its name: `the store`, `the coordination`, `the activity`.
    pub what: String,
    /// Since when it has not answered.
    pub since: Time,
    /// The error.
    pub why: String,
}
