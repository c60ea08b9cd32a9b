//! Dead letters, grouped by task and error.

use serde::{Deserialize, Serialize};

use besom_core::time::Time;

/// Open dead letters of one task with one last error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadGroup {
    /// The task's name in the configuration.
    pub task: String,
    /// The last error, exactly: a command about the group selects by it.
    pub error: String,
    /// The number of open dead letters.
    pub count: u64,
    /// When the oldest was set aside.
    pub first: Time,
    /// When the newest was set aside.
    pub last: Time,
}
