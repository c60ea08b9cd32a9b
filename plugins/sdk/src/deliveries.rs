//! What became of the messages that the task has emitted (since contract 1.1).
//!
//! A task sees its own alone: those of its items of the same tenant, to the topics of its
//! manifest. A message and the change that goes with it are one commit, so the latest message
//! of a key is the one that belongs to what is read of its row in the same call.

pub use crate::bindings::besom::task::deliveries::{Delivery, Reply, State};
use crate::{Item, Result, host};

/// The latest message of each key to a topic, in their order; `of` as in [`crate::store`].
pub fn latest(of: Option<&Item>, topic: &str, keys: &[String]) -> Result<Vec<Option<Delivery>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    host::deliveries(of.map(|item| item.index), topic, keys)
}

impl Delivery {
    /// A message that is on its way: what a test begins with.
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

    /// The same, taken by its receiver with this answer.
    pub fn answered(self, at: crate::Time, status: u16, body: impl Into<Vec<u8>>) -> Delivery {
        Delivery {
            state: State::Delivered,
            attempts: self.attempts + 1,
            reply: Some(Reply { status, body: body.into(), cut: false }),
            ended_at: Some(at.micros()),
            ..self
        }
    }

    /// The same, given up for this reason.
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
