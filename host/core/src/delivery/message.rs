//! Messages of the outbox, as the store and the courier exchange them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{RunId, TaskName, Tenant};
use crate::time::Time;

/// Maximum size of the payload of a message, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// What is delivered in order within a topic: the messages of one tenant and key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence {
    /// The tenant of the messages.
    pub tenant: Option<Tenant>,
    /// The key of the messages.
    pub key: String,
}

/// A message claimed for one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimed {
    /// Its number in the outbox.
    pub id: u64,
    /// When it was committed.
    pub at: Time,
    /// The task that emitted it; none: the product entered it.
    pub task: Option<TaskName>,
    /// The run of the item that emitted it; none: its history row is gone.
    pub run: Option<RunId>,
    /// The tenant of the item that emitted it.
    pub tenant: Option<Tenant>,
    /// Its topic, which decides the route.
    pub topic: String,
    /// Its key: the messages of one topic, tenant and key are delivered in order.
    pub key: String,
    /// Its number among the messages of its topic, tenant and key, from 1 and without gaps, in the
    /// order in which the commits took effect.
    pub sequence: u64,
    /// Its content.
    pub payload: Vec<u8>,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
}

impl Claimed {
    /// Whose order it keeps.
    pub fn of(&self) -> Sequence {
        Sequence { tenant: self.tenant.clone(), key: self.key.clone() }
    }

    /// Whether it is one of these messages.
    pub fn is_of(&self, sequence: &Sequence) -> bool {
        self.key == sequence.key && self.tenant == sequence.tenant
    }
}

/// A receiver's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Its HTTP status.
    pub status: u16,
    /// Its content, truncated to what is kept.
    pub body: Vec<u8>,
    /// Whether the content was truncated.
    pub cut: bool,
}

/// The result of an attempt, to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The message's number in the outbox.
    pub id: u64,
    /// The attempt; a result of an attempt that is not the latest changes nothing.
    pub attempt: u32,
    /// How the attempt ended.
    pub end: End,
}

/// What became of a message of a batch that was sent to a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The broker has it, as durably as it promises.
    Accepted,
    /// The broker refuses this message, and would refuse it again, for this reason.
    Refused(String),
    /// The broker does not have it and cannot take it as it is, for this reason: its key waits until
    /// somebody has changed the broker or discarded the message.
    Held(String),
    /// The broker does not have it: it was not sent, because one of its tenant and key before it in the
    /// batch is held.
    Behind,
    /// The broker may or may not have it, for this reason.
    Unknown(String),
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The receiver accepted the message; a broker does not reply.
    Delivered(Option<Reply>),
    /// The message is retried after a wait, by the store's clock.
    Again {
        /// The wait.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// No request could be made. As [`End::Again`], but the attempt does not count.
    Unsent {
        /// The wait.
        after: Duration,
        /// What went wrong.
        error: String,
    },
    /// The message is given up. Messages behind it are delivered.
    GivenUp {
        /// What went wrong.
        error: String,
        /// The receiver's answer, if there was one.
        reply: Option<Reply>,
    },
}

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is waiting for its delivery or for another attempt.
    Pending,
    /// The receiver accepted it.
    Delivered,
    /// It was given up after its last attempt or a permanent refusal.
    GivenUp,
}

impl State {
    /// The word for it on screens, and the value of `besom outbox ls --state`.
    pub fn word(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Delivered => "delivered",
            State::GivenUp => "given-up",
        }
    }
}

/// The delivery status of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its number in the outbox.
    pub id: u64,
    /// Its number among the messages of its topic, tenant and key; see [`Claimed::sequence`].
    pub sequence: u64,
    /// When it was committed.
    pub emitted_at: Time,
    /// Its content.
    pub payload: Vec<u8>,
    /// Its state.
    pub state: State,
    /// Attempts begun, including the current one.
    pub attempts: u32,
    /// The error of the last attempt, if it failed.
    pub error: Option<String>,
    /// The receiver's final answer.
    pub reply: Option<Reply>,
    /// When it was delivered or given up.
    pub ended_at: Option<Time>,
}

impl Delivery {
    /// The size of its texts.
    pub fn bytes(&self) -> usize {
        let reply = self.reply.as_ref().map_or(0, |reply| reply.body.len());
        self.payload.len() + self.error.as_ref().map_or(0, String::len) + reply
    }
}
