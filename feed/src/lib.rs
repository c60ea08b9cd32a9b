//! The consuming half of Besom's delivery to Kafka: messages of a key in the order of their numbers,
//! each once, with output and offsets in one commit: to Kafka, PostgreSQL, SQLite or a Redis Cluster.
//! `docs/feed.md` is its manual.

pub mod consumer;
pub mod kafka;
pub mod message;
pub mod order;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
pub mod sink;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use consumer::{Notice, Settings, run};
pub use message::{Message, Numbering};
pub use rdkafka;

/// Why a feed does not go on as it is.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It begins anew after a pause: from what is committed, whether or not the last commit was.
    #[error("{0}")]
    Again(String),
    /// It ends: trying again cannot help.
    #[error("{0}")]
    Stop(String),
}

impl From<rdkafka::error::KafkaError> for Error {
    fn from(error: rdkafka::error::KafkaError) -> Error {
        Error::Again(error.to_string())
    }
}
