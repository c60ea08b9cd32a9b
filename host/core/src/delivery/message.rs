//! Messages on their way out of the outbox, as the store and the courier speak of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{TaskName, Tenant};
use crate::time::Time;

/// A message whose turn it is, taken for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its number in the outbox.
    pub id: u64,
    /// When it was committed.
    pub at: Time,
    /// The task that emitted it; none: an operator's write, or older than this column.
    pub task: Option<TaskName>,
    /// The tenant of the item that emitted it.
    pub tenant: Option<Tenant>,
    /// Where it goes.
    pub topic: String,
    /// Messages of one task, tenant, topic and key are delivered in their order.
    pub key: String,
    /// The content.
    pub payload: Vec<u8>,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
}

/// What a receiver has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// The status of the answer, as in HTTP.
    pub status: u16,
    /// Its content, as far as it was taken.
    pub body: Vec<u8>,
    /// Whether there was more than was taken.
    pub cut: bool,
}

/// What came of an attempt, to be written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The message.
    pub id: u64,
    /// The attempt; one that is not the message's latest changes nothing.
    pub attempt: u32,
    /// How it ended.
    pub end: End,
}

/// How an attempt has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The receiver has taken it.
    Delivered(Reply),
    /// It is tried again after that span, by the store's clock.
    Again {
        /// The wait.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// It is not tried again. Messages behind it go on.
    GivenUp {
        /// What went wrong.
        error: String,
        /// What the receiver said, if it did.
        reply: Option<Reply>,
    },
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It waits for its delivery, or for another attempt.
    Pending,
    /// The receiver has taken it.
    Delivered,
    /// It was given up.
    GivenUp,
}

impl State {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Delivered => "delivered",
            State::GivenUp => "given up",
        }
    }
}

/// What has become of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its number in the outbox.
    pub id: u64,
    /// When it was committed.
    pub emitted_at: Time,
    /// Its content.
    pub payload: Vec<u8>,
    /// Where it is.
    pub state: State,
    /// Attempts begun.
    pub attempts: u32,
    /// What went wrong with the last attempt, where something did.
    pub error: Option<String>,
    /// What the receiver said at the end.
    pub reply: Option<Reply>,
    /// When it was delivered or given up.
    pub ended_at: Option<Time>,
}
