//! The nodes as they report themselves, and how long data is kept.

use std::time::Duration;

use besom_core::ids::{Incarnation, TaskName};
use besom_core::time::Time;
use besom_snapshot::{Missing, Report, Role};
use serde::{Deserialize, Serialize};

/// A node as it last reported itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// The incarnation of the node.
    pub node: Incarnation,
    /// What it does.
    pub state: Role,
    /// When the node wrote this row.
    pub seen_at: Time,
    /// The digest of its configuration.
    pub config_digest: String,
    /// The services that it could not reach at that time.
    pub missing: Vec<Missing>,
    /// The name of its machine; empty: the row was written by an earlier version.
    pub hostname: String,
    /// The address at which other nodes reach it; empty: none.
    pub address: String,
    /// Its weight: its share of the partitions relative to the other nodes.
    pub weight: u32,
    /// The node's own report; `None`: it has not reported yet, or used the format of another
    /// version.
    pub report: Option<Report>,
}

/// How long data is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention<'a> {
    /// History, slots, runs with their log lines, commands, ended messages, settled versions,
    /// tenants' cursors since their last visit, and terms except for the newest [`super::TERMS_KEPT`].
    pub history: Duration,
    /// Before-images, by task. Those of a task that is not listed are removed with their history
    /// row.
    pub undo: &'a [(TaskName, Duration)],
    /// Nodes, counted from when they were last seen.
    pub nodes: Duration,
    /// The topics that have a route. Messages waiting for any other topic cannot be delivered and
    /// are kept as long as the history; of each topic, one call examines as many as it may remove,
    /// in the order of their next attempts. `None`: the routes are unknown, and all waiting messages
    /// are kept.
    pub routed: Option<&'a [String]>,
}

/// What [`super::Store::prune`] has removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// History rows, which were added to the baseline.
    pub history: u64,
    /// Before-images of items.
    pub undo: u64,
    /// Other rows: commits, slots, runs and their lines, commands, ended messages, resolved dead
    /// letters, terms.
    pub other: u64,
}
