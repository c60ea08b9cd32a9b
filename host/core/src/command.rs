//! What people ask for, with who and why beside it in the store's books.

use serde::{Deserialize, Serialize};

use crate::ids::{RunId, TaskName};

/// What somebody asks of the leader from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Start a run now.
    Trigger {
        /// The task.
        task: TaskName,
    },
    /// Plan no more runs.
    Pause {
        /// The task.
        task: TaskName,
    },
    /// Plan again.
    Resume {
        /// The task.
        task: TaskName,
    },
    /// End a run: its scan stops; what it planned stays.
    Cancel {
        /// The run.
        run: RunId,
    },
    /// Put dead letters into the retries, to be tried at once with fresh attempts.
    RetryDead(DeadSelector),
    /// Discard dead letters.
    DiscardDead(DeadSelector),
    /// Give the leadership up; another node leads then, or the same one again.
    Resign,
    /// A task was edited in a configuration file: kept for who, when and why. The hosts
    /// take the file up by themselves.
    Edited {
        /// The task.
        task: TaskName,
        /// Which keys, and their values before and after.
        change: String,
    },
}

/// Which dead letters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeadSelector {
    /// By number, and then by nothing else; empty: by the other fields.
    pub ids: Vec<u64>,
    /// Of this task.
    pub task: Option<TaskName>,
    /// With exactly this last error.
    pub error: Option<String>,
}

/// What an operator asks for, in the dashboard or on the command line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Something for the leader.
    Ask {
        /// What.
        command: Command,
    },
    /// Let a node finish what it has and give it nothing new.
    Drain {
        /// Its lasting name.
        node: String,
    },
    /// Give a drained node its share again.
    Rejoin {
        /// Its lasting name.
        node: String,
    },
}
