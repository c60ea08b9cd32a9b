//! A message of the outbox and its delivery.

use serde::{Deserialize, Serialize};

use besom_core::delivery::State;
use besom_core::time::Time;

/// A message that a task has emitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Its number in the outbox.
    pub id: u64,
    /// The topic, which decides the route.
    pub topic: String,
    /// The messages of one topic, tenant and key are delivered in order.
    pub key: String,
    /// Its number among them, from 1 and without gaps.
    pub sequence: u64,
    /// The task that emitted it; none: the product entered it.
    pub task: Option<String>,
    /// The tenant of the item that emitted it.
    pub tenant: Option<String>,
    /// The state of its delivery.
    pub state: State,
    /// Whether a later one of its topic, tenant and key was delivered or is being tried: once it is given up, only
    /// `--force` retries it.
    #[serde(default)]
    pub superseded: bool,
    /// When it was committed.
    pub emitted_at: Time,
    /// Attempts begun, including the current one.
    pub attempts: u32,
    /// The time of the next attempt; only of a pending message that was attempted before.
    pub next_at: Option<Time>,
    /// When it was delivered or given up.
    pub ended_at: Option<Time>,
    /// The error of the last attempt, if it failed.
    pub error: Option<String>,
    /// The HTTP status of the receiver's final answer.
    pub reply_status: Option<u16>,
    /// The content of that answer, as text.
    pub reply: Option<String>,
}
