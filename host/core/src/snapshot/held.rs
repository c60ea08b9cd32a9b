//! What keeps a task, or a whole node, from going on though nothing of it has failed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::Time;

/// Which kind of trouble holds something. Words for people are in [`Held::why`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The database does not grant what the task needs.
    Privilege,
    /// A table, a column or a type is not what the configuration maps.
    Schema,
    /// Rows of a stream are missing, or cannot be read.
    Stream,
    /// The host's clock and the store's differ.
    Clock,
    /// The store is older than what the node remembers: a copy was restored.
    Restored,
    /// The database's file is not the one that was opened.
    Replaced,
    /// The reads of a task take longer than its calls may.
    Slow,
    /// What it leaves behind has no room: messages that wait to be delivered, or the disk.
    Full,
    /// Of a later version of this model.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::Privilege => "privilege",
            Cause::Schema => "schema",
            Cause::Stream => "stream",
            Cause::Clock => "clock",
            Cause::Restored => "restored",
            Cause::Replaced => "replaced",
            Cause::Slow => "slow reads",
            Cause::Full => "full",
            Cause::Unknown => "unknown",
        })
    }
}

/// Something that is held: it is tried again and again, costs no item an attempt, and goes on by
/// itself once its cause is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// The task; none: the whole node.
    pub task: Option<String>,
    /// What of it: `scan`, `execution`, `commit`, `stream 17`.
    pub what: String,
    /// What kind of trouble it is.
    pub cause: Cause,
    /// Since when.
    pub since: Time,
    /// What was said last, and how to mend it.
    pub why: String,
}
