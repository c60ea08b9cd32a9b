//! Sends messages of the outbox to their receivers.

use async_trait::async_trait;
use besom_core::delivery::{Answer, Claimed, Fate};

/// A courier makes a single delivery attempt and returns the answer. Retries and abandonment are
/// decided by [`besom_core::delivery`].
#[async_trait]
pub trait Courier: Send + Sync {
    /// Sends a message to the route of its topic and returns within the topic's timeout.
    /// `idempotency_key` is unique to the message and the same for all its attempts, on every node.
    /// If the future is dropped, the message may still have arrived.
    async fn send(&self, message: &Claimed, idempotency_key: &str) -> Answer;
}

/// A broker keeps the messages of one topic in the order in which they were sent to it. Batches and
/// their repetition are decided by [`besom_core::delivery::broker`].
#[async_trait]
pub trait Broker: Send + Sync {
    /// Sends messages in this order and returns what became of them, within the topic's timeout.
    /// `ids` are their idempotency keys. If the answer is shorter than the batch, the remaining
    /// messages are unconfirmed. After a message that is held, nothing of its tenant and key is sent.
    /// If the future is dropped, any of them may have arrived.
    async fn send(&self, batch: &[Claimed], ids: &[String]) -> Vec<Fate>;
}
