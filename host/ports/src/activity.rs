//! Whether anyone is using a key, for example a workspace. A state that is *unknown* never counts
//! as *idle*.

use async_trait::async_trait;
pub use besom_core::activity::{State, Timeouts};

/// The activity of a key could not be read or written; its state is unknown.
#[derive(Debug, Clone, thiserror::Error)]
#[error("activity is unavailable: {0}")]
pub struct Error(pub String);

/// Records and reads activity by key.
#[async_trait]
pub trait Activity: Send + Sync {
    /// The state of each key, in the order of `keys`.
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, Error>;

    /// Records that a connection was opened. Repeating the call for the same connection has no
    /// effect.
    async fn connect(&self, key: &str, connection: &str) -> Result<(), Error>;

    /// Records that a connection was closed. Closing an unknown connection changes nothing: it
    /// neither starts a timer nor restarts a running one.
    async fn disconnect(&self, key: &str, connection: &str) -> Result<(), Error>;

    /// Records that a connection is still open, and opens it if it is unknown. A connection without
    /// heartbeats expires.
    async fn heartbeat(&self, key: &str, connection: &str) -> Result<(), Error>;
}
