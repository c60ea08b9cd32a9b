//! Messages of the outbox, and rows that the product has inserted for it.

use besom_core::delivery::Delivery;
use besom_core::ids::{TaskName, Tenant};
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

/// The error of a message that an operator has given up.
pub const DISCARDED: &str = "discarded by an operator: `besom commands ls` says by whom and why";

/// A message of the outbox and the state of its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The task that emitted it; `None`: the row names none.
    pub task: Option<TaskName>,
    /// The tenant of the item that emitted it.
    pub tenant: Option<Tenant>,
    /// The topic, which determines the receiver.
    pub topic: String,
    /// The messages of one topic, tenant and key are delivered in order.
    pub key: String,
    /// The state of the delivery.
    pub delivery: Delivery,
    /// A pending message is not attempted before this time.
    pub next_at: Time,
    /// Whether a later one of its topic, tenant and key was delivered or is being tried: once it is given up, only
    /// `--force` retries it.
    pub superseded: bool,
}

/// The messages of a topic that wait for their delivery, and those that were given up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutboxTopic {
    /// Its name.
    pub topic: String,
    /// How many messages wait.
    pub waiting: u64,
    /// When the first of them was committed.
    pub oldest: Option<Time>,
    /// The error of its last attempt.
    pub waiting_error: Option<String>,
    /// How many rows of it are in the table `feed`: they are no messages yet.
    pub inserted: u64,
    /// How many of the latest [`GIVEN_UP_READ_MAX`] messages that were given up can be retried: those that were not
    /// discarded, and that no later message has superseded.
    pub given_up: u64,
    /// Of the latest of these: when it was given up, and why.
    pub last_given_up: Option<(Time, String)>,
}

/// Maximum number of messages of a topic that are examined for [`OutboxTopic::given_up`].
pub const GIVEN_UP_READ_MAX: u32 = besom_snapshot::Topic::GIVEN_UP_MAX;

/// The topics of rows in the table `feed`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedTopics {
    /// Those among the topics that were asked for, in their order.
    pub known: Vec<String>,
    /// Others, in an order of the store's.
    pub others: Vec<String>,
}

/// The number and size of messages that wait for delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pending {
    /// Number of messages.
    pub messages: u64,
    /// Size of their keys and payloads, in bytes.
    pub bytes: u64,
}

/// Selects messages. A message must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageQuery {
    /// Messages of this topic only.
    pub topic: Option<String>,
    /// Messages in this state only.
    pub state: Option<besom_core::delivery::State>,
    /// Messages of the item with this history row only.
    pub history: Option<u64>,
    /// The message of this number only.
    pub id: Option<u64>,
    /// Messages of this key only.
    pub key: Option<String>,
    /// Maximum number of messages, newest first.
    pub limit: u32,
}
