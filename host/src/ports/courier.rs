//! Who carries messages of the outbox to their receivers.

use async_trait::async_trait;
use besom_core::delivery::{Answer, Claimed};

/// A courier makes one attempt and says what came of it; what follows from that is decided by
/// [`besom_core::delivery`].
#[async_trait]
pub trait Courier: Send + Sync {
    /// Sends a message to where its topic leads. `idempotency_key` is the same for every
    /// attempt of a message, by whichever node, and no other message has it. Returns within
    /// the time-out of the topic. An attempt that is dropped may have arrived.
    async fn send(&self, message: &Claimed, idempotency_key: &str) -> Answer;
}
