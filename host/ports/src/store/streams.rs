//! The items that wait in streams, and reads of several streams at once.

use besom_core::ids::{Partition, Seq, TaskName};
use besom_core::item::{Item, Source};
use besom_core::time::Time;

use super::{Error, Result};

/// The position of a stream. A stream holds the items of one task in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The task whose items the stream holds.
    pub task: TaskName,
    /// The partition of the items.
    pub partition: Partition,
    /// The last acknowledged sequence number.
    pub acked: Seq,
    /// The last sequence number written.
    pub tail: Seq,
}

/// A stream and the number of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRow {
    /// The position of the stream.
    pub stream: Stream,
    /// Number of rows after the last acknowledged sequence number. It equals `tail - acked`, unless
    /// the stream is broken.
    pub items: u64,
}

/// An item and the place where it is waiting.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// Where the item is waiting.
    pub source: Source,
    /// The item.
    pub item: Item,
    /// The earliest time of execution: the due time of a timer, the retry time of a retry, or the
    /// epoch for an item of the log.
    pub run_at: Time,
}

/// A stream that cannot be read because a row is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenStream {
    /// The partition of the stream.
    pub partition: Partition,
    /// What is wrong, including the place.
    pub why: String,
}

/// The error for a stream in which a sequence number is missing.
pub fn gap(task: &TaskName, partition: Partition, missing: u64) -> Error {
    let place = format!("the stream of {task} in partition {partition}");
    Error::Invalid(format!("{place} has a gap: {missing} is missing"))
}

/// The result of reading several streams of one task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogRead {
    /// The items read, stream by stream.
    pub items: Vec<Waiting>,
    /// The streams that could not be read. They do not affect the other streams.
    pub broken: Vec<BrokenStream>,
    /// The streams that were examined, including broken ones. There was no room for the others.
    pub looked: Vec<Partition>,
    /// How many rows of ranges one commit may change now, so that others who write wait for less long; none: as many as
    /// the host allows.
    pub rows_max: Option<u64>,
}

/// The progress of [`super::Store::read_logs`]: what was read, and how much more may be read.
#[derive(Debug)]
pub struct LogRoom {
    /// What was read so far.
    pub read: LogRead,
    each: u32,
    limit: u32,
    bytes: usize,
}

impl LogRoom {
    /// Allows at most `each` items of one stream, `limit` items of all streams, and about `bytes`
    /// bytes of payload.
    pub fn new(each: u32, limit: u32, bytes: usize) -> LogRoom {
        LogRoom { read: LogRead::default(), each, limit, bytes }
    }

    /// The maximum number of items of all streams together.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The number of items and bytes that may be read from the next stream; `None`: there is no
    /// room left.
    pub fn left(&self) -> Option<(u32, usize)> {
        let read = u32::try_from(self.read.items.len()).unwrap_or(u32::MAX);
        let items = self.limit.saturating_sub(read).min(self.each);
        let full = items == 0 || (self.bytes == 0 && !self.read.items.is_empty());
        (!full).then_some((items, self.bytes))
    }

    /// Adds the result of reading one stream. Returns whether the next stream may be read. A broken
    /// stream ([`Error::Invalid`]) is recorded and does not stop the others.
    ///
    /// # Errors
    /// A failure of the infrastructure, if nothing was read before it.
    pub fn take<E: Into<Error>>(
        &mut self,
        partition: Partition,
        read: Result<Vec<Waiting>, E>,
    ) -> Result<bool> {
        let read = read.map_err(E::into);
        if matches!(read, Ok(_) | Err(Error::Invalid(_))) {
            self.read.looked.push(partition);
        }
        match read {
            Ok(items) => {
                let bytes: usize = items.iter().map(|w| w.item.payload.len()).sum();
                self.bytes = self.bytes.saturating_sub(bytes);
                self.read.items.extend(items);
                Ok(true)
            }
            Err(Error::Invalid(why)) => {
                self.read.broken.push(BrokenStream { partition, why });
                Ok(true)
            }
            // What was read before the failure is valid; the caller asks for the rest again.
            Err(error) if !self.read.items.is_empty() => {
                tracing::debug!(%error, "only some of the streams were read");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
