//! Where output, positions and offsets are committed together.

use rdkafka::consumer::ConsumerGroupMetadata;

use crate::Error;
use crate::message::Message;
use crate::order::{Key, Position};

/// From where a partition is read.
#[derive(Debug)]
pub enum Start {
    /// From the offset that the group has committed to the broker.
    Broker {
        /// The positions of all keys of the partition.
        positions: Vec<(Key, Position)>,
    },
    /// From the offset that the sink keeps.
    Kept(Kept),
}

/// How far a partition was read; the default: not at all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Kept {
    /// The next offset.
    pub next: i64,
    /// Messages below this offset may have been removed before they were read.
    pub lost_below: i64,
}

/// How far a batch brings a partition.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Its number within the topic.
    pub partition: i32,
    /// What is committed with the batch.
    pub to: Kept,
}

/// A message that is set aside, and why.
#[derive(Debug)]
pub struct SetAside {
    /// As much of the message as could be read.
    pub message: Message,
    /// The reason, with the numbers that are missing.
    pub reason: String,
}

/// What is committed together.
pub struct Batch<'a> {
    /// The topic that is read.
    pub topic: &'a str,
    /// The messages, in the order of their keys.
    pub accepted: &'a [Message],
    /// Those that go to the dead letters.
    pub set_aside: &'a [SetAside],
    /// The positions that changed, with their partitions.
    pub positions: &'a [(i32, Key, Position)],
    /// How far the partitions were read.
    pub progress: &'a [Progress],
    /// The consumer, as the broker knows it: asked for as the last thing before a commit to Kafka. An error:
    /// the group has removed it.
    pub group: &'a dyn Fn() -> Result<ConsumerGroupMetadata, Error>,
}

/// Why a message was not applied to a database with that error.
#[derive(Debug)]
pub enum Failure<E> {
    /// The message cannot be applied: it is set aside with this reason.
    Refused(String),
    /// The database failed: the batch is tried again, unless it has refused the message for what this
    /// contains; then the message is set aside with the words of the database.
    Database(E),
}

impl<E> From<E> for Failure<E> {
    fn from(error: E) -> Failure<E> {
        Failure::Database(error)
    }
}

/// The error of a commit whose partition has another owner in the database.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "redis"))]
pub(crate) fn lost(topic: &str, partition: i32) -> Error {
    Error::Again(format!("{topic}, partition {partition}: another consumer has it"))
}

/// The position that a database keeps of a key.
///
/// # Errors
/// The text is none.
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) fn position(key: &Key, text: &str) -> Result<Position, Error> {
    let unreadable = |error| Error::Stop(format!("feed_position of the key {}: {error}", key.key));
    serde_json::from_str(text).map_err(unreadable)
}

/// Commits output, positions and offsets together, or nothing of them.
pub trait Sink {
    /// Begins anew: a former life of this consumer can no longer commit, and nothing of it is remembered.
    ///
    /// # Errors
    /// As [`Sink::commit`] has them.
    fn begin(&mut self) -> Result<(), Error>;

    /// From where to read a partition that this consumer was given. Its former owner, which may not know
    /// yet that it has lost the partition, can no longer commit.
    ///
    /// # Errors
    /// As [`Sink::commit`] has them.
    fn start(&mut self, topic: &str, partition: i32) -> Result<Start, Error>;

    /// The partition belongs to another consumer now.
    fn end(&mut self, partition: i32);

    /// Why no position of a key can be kept: all of its messages are set aside with this reason.
    fn refuses(&self, _: &Key) -> Option<String> {
        None
    }

    /// Reads a partition again from this offset when the feed next begins anew, because messages from there on
    /// may have been committed and lost again. False: this sink loses nothing, so there are none.
    ///
    /// # Errors
    /// As [`Sink::commit`] has them.
    fn again_from(&mut self, _topic: &str, _partition: i32, _offset: i64) -> Result<bool, Error> {
        Ok(false)
    }

    /// The positions of keys that were not in [`Start::Broker`].
    ///
    /// # Errors
    /// As [`Sink::commit`] has them.
    fn positions(&mut self, topic: &str, keys: &[Key]) -> Result<Vec<(Key, Position)>, Error>;

    /// Commits a batch.
    ///
    /// # Errors
    /// [`Error::Again`]: the feed begins anew from what is committed. [`Error::Stop`]: it ends.
    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Error>;
}
