//! Conditions that hold back a task or a whole node although no item has failed.

use std::fmt;

use serde::{Deserialize, Serialize};

use besom_core::time::Time;

/// The kind of condition. [`Held::why`] describes it for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The database does not grant what the task needs.
    Privilege,
    /// A table, a column or a type differs from its mapping in the configuration.
    Schema,
    /// Rows of a stream are missing or cannot be read.
    Stream,
    /// The host's clock and the store's differ.
    Clock,
    /// The store is older than the node remembers: a backup was restored.
    Restored,
    /// The database's file is not the one that was opened.
    Replaced,
    /// The task's reads take longer than its calls may.
    Slow,
    /// Another session keeps a table locked that the task needs.
    Locked,
    /// There is no room for its results: for messages waiting to be delivered, or on the disk.
    Full,
    /// The receiver of a topic does not accept its messages.
    Broker,
    /// The product has inserted messages of topics that take none.
    NotTaken,
    /// The file of the task's plugin is not the pinned one, or no trusted key vouches for it.
    Plugin,
    /// A table differed from its mapping when the host started.
    Mapping,
    /// Of a later version of this model.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Cause {
    /// Whether the node has left the task out, so that a leader does not know it.
    pub fn leaves_out(self) -> bool {
        matches!(self, Cause::Plugin | Cause::Mapping)
    }

    /// Whether it keeps something from going on; the others only tell of messages.
    pub fn holds(self) -> bool {
        self != Cause::NotTaken
    }
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
            Cause::Locked => "locked",
            Cause::Full => "full",
            Cause::Broker => "broker",
            Cause::NotTaken => "not taken",
            Cause::Plugin => "refused plugin",
            Cause::Mapping => "mapping",
            Cause::Unknown => "unknown",
        })
    }
}

/// Something that is held: it is retried periodically without using an item's attempts, and
/// continues by itself once the cause is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// The task; none: the whole node.
    pub task: Option<String>,
    /// The part of it that is held: `scan`, `execution`, `commit`, `stream 17`.
    pub what: String,
    /// What kind of trouble it is.
    pub cause: Cause,
    /// Since when it has been held.
    pub since: Time,
    /// The latest message, with the fix.
    pub why: String,
}
