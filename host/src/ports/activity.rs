//! Whether somebody is using a thing. *Unknown* is never *idle*.

use async_trait::async_trait;
pub use besom_core::activity::{State, Timeouts};

/// The activity of a key could not be read or written.
#[derive(Debug, Clone, thiserror::Error)]
#[error("activity is unavailable: {0}")]
pub struct Error(pub String);

/// The activity of things, by key.
#[async_trait]
pub trait Activity: Send + Sync {
    /// The state of each key, in their order.
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, Error>;

    /// A connection was opened. The same connection twice counts once.
    async fn connect(&self, key: &str, connection: &str) -> Result<(), Error>;

    /// A connection was closed. One that is not known changes nothing: it
    /// starts no timer, nor the same timer again.
    async fn disconnect(&self, key: &str, connection: &str) -> Result<(), Error>;

    /// A connection is still open; a connection without a heartbeat expires. Opens it where
    /// it is not known.
    async fn heartbeat(&self, key: &str, connection: &str) -> Result<(), Error>;
}
