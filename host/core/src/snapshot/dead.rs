//! Dead letters, by what is wrong with them.

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Open dead letters of one task with one last error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadGroup {
    /// The task.
    pub task: String,
    /// The last error, exactly: a command about the group names it.
    pub error: String,
    /// How many.
    pub count: u64,
    /// When the oldest was set aside.
    pub first: Time,
    /// When the newest was.
    pub last: Time,
}
