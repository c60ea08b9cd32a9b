//! What waits for delivery, by topic.

use besom_core::time::Time;
use serde::{Deserialize, Serialize};

/// The messages of a topic that wait for their delivery.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// How many messages wait, at most [`Topic::COUNT_MAX`].
    pub waiting: u64,
    /// Since when the oldest of them waits; none: none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Time>,
    /// Whether the configuration says where they are sent.
    pub has_route: bool,
}

impl Topic {
    /// The maximum number of messages that are counted.
    pub const COUNT_MAX: u32 = 100_000;

    /// The number of messages in words.
    pub fn count(&self) -> String {
        let more = if self.waiting >= u64::from(Topic::COUNT_MAX) { " or more" } else { "" };
        format!("{}{more}", self.waiting)
    }
}
