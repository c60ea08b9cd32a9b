//! What waits for delivery, by topic.

use besom_core::time::Time;
use serde::{Deserialize, Serialize};

/// The messages of a topic that wait for their delivery, and those that were given up.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// How many messages wait, at most [`Topic::COUNT_MAX`].
    pub waiting: u64,
    /// Since when the oldest of them waits; none: none waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Time>,
    /// The error of the last attempt of the oldest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_error: Option<String>,
    /// How many rows that the product has inserted are no messages yet, at most [`Topic::COUNT_MAX`].
    #[serde(default)]
    pub inserted: u64,
    /// How many of the latest messages that were given up can be retried, at most [`Topic::GIVEN_UP_MAX`]: those that
    /// were not discarded, and that no later message of their key has superseded.
    #[serde(default)]
    pub given_up: u64,
    /// When the latest of these was given up; none: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_at: Option<Time>,
    /// Why it was given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_error: Option<String>,
    /// Whether the configuration says where they are sent.
    pub has_route: bool,
}

impl Topic {
    /// The maximum number of messages that are counted.
    pub const COUNT_MAX: u32 = 100_000;

    /// The maximum number of messages that were given up and are examined.
    pub const GIVEN_UP_MAX: u32 = 100;

    /// The number of messages that wait, in words.
    pub fn count(&self) -> String {
        counted(self.waiting, Topic::COUNT_MAX)
    }

    /// The number of rows that are no messages yet, in words.
    pub fn count_inserted(&self) -> String {
        counted(self.inserted, Topic::COUNT_MAX)
    }

    /// The number of messages that were given up, in words.
    pub fn count_given_up(&self) -> String {
        counted(self.given_up, Topic::GIVEN_UP_MAX)
    }
}

fn counted(count: u64, max: u32) -> String {
    let more = if count >= u64::from(max) { " or more" } else { "" };
    format!("{count}{more}")
}
