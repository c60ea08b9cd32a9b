//! Delivers messages of the outbox to their receivers.

use async_trait::async_trait;
use besom_core::delivery::{Answer, Claimed};

/// A courier makes a single delivery attempt and returns the answer. Retries and abandonment are
/// decided by [`besom_core::delivery`].
#[async_trait]
pub trait Courier: Send + Sync {
    /// Sends a message to the route of its topic and returns within the topic's timeout.
    /// `idempotency_key` is unique to the message and the same for all its attempts, on every node.
    /// If the future is dropped, the message may still have arrived.
    async fn send(&self, message: &Claimed, idempotency_key: &str) -> Answer;
}
