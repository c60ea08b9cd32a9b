//! Whether somebody is using a thing. *Unknown* is never *idle*.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// What is known of an activity key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// At least one open connection.
    Active,
    /// No connection; the idle timer is running.
    Waiting,
    /// No connection and no idle timer, and observed for longer than the timeout.
    Idle,
    /// Not observed for long enough.
    Unknown,
}

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

    /// A connection was closed. One that is not known changes nothing but starts no timer twice.
    async fn disconnect(&self, key: &str, connection: &str) -> Result<(), Error>;

    /// A connection is still open; a connection without a heartbeat expires. Opens it where
    /// it is not known.
    async fn heartbeat(&self, key: &str, connection: &str) -> Result<(), Error>;
}
