//! The delivery of messages that the task has emitted (since contract 1.1).
//!
//! A task sees only its own messages, of the same tenant and to the topics of its manifest. A
//! message and the changes of its proposal are one commit, so the latest message of a key
//! corresponds to the row as the same call reads it.

pub use crate::bindings::besom::task::deliveries::{Delivery, Reply, State};
use crate::{Item, Result, host};

/// The latest message of each key to a topic, in the order of the keys; none if there was no
/// message or it was pruned with the history. `of` as in [`crate::store`].
///
/// # Errors
/// An error of the host, for instance if the topic is not granted.
pub fn latest(of: Option<&Item>, topic: &str, keys: &[String]) -> Result<Vec<Option<Delivery>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    host::deliveries(of.map(|item| item.index), topic, keys)
}

impl Delivery {
    /// A message that is not delivered yet. For tests.
    pub fn pending(emitted_at: crate::Time, payload: impl Into<Vec<u8>>) -> Delivery {
        Delivery {
            emitted_at: emitted_at.micros(),
            payload: payload.into(),
            state: State::Pending,
            attempts: 0,
            error: None,
            reply: None,
            ended_at: None,
            extra: Vec::new(),
        }
    }

    /// The message after the receiver has accepted it with this answer. For tests.
    pub fn answered(self, at: crate::Time, status: u16, body: impl Into<Vec<u8>>) -> Delivery {
        Delivery {
            state: State::Delivered,
            attempts: self.attempts + 1,
            reply: Some(Reply { status, body: body.into(), cut: false }),
            ended_at: Some(at.micros()),
            ..self
        }
    }

    /// The message after its delivery was given up with this error. For tests.
    pub fn given_up(self, at: crate::Time, error: &str) -> Delivery {
        Delivery {
            state: State::GivenUp,
            attempts: self.attempts + 1,
            error: Some(error.into()),
            ended_at: Some(at.micros()),
            ..self
        }
    }
}
