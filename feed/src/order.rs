//! Which messages of a key are next: the decision alone, without I/O and without a clock.
//!
//! The messages of a key are numbered from 1 without gaps. A message is accepted if its number is one
//! above the last. A lower number is a repetition, and dropped, unless it is seen to be of another message: then
//! the producer's numbers went back, and it is set aside. A higher one is early: it waits for
//! those before it, within [`Bounds`], and is set aside beyond them, with the numbers that are missing.
//!
//! The offset from which a partition has to be read again is that of its first message that waits, so a
//! message in memory is never the only copy.

use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// How many of the latest messages of a key are remembered, as digests.
const RECENT: usize = 8;

/// Whose messages are numbered together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Empty: none.
    pub tenant: String,
    /// The message's key.
    pub key: String,
}

/// How far a key was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The last number; 0: none.
    pub last: u64,
    /// The offset of the message with that number.
    pub offset: i64,
    /// Digests of the last messages, the latest at the end.
    pub recent: Vec<u64>,
    /// The latest time of a message, see [`Arrival::time`].
    #[serde(default)]
    pub time: u64,
}

impl Default for Position {
    fn default() -> Position {
        Position { last: 0, offset: -1, recent: Vec::new(), time: 0 }
    }
}

impl Position {
    fn advance(&mut self, number: u64, offset: i64, digest: u64, time: u64) {
        if number != self.last + 1 {
            self.recent.clear();
        }
        if self.recent.len() == RECENT {
            self.recent.remove(0);
        }
        self.recent.push(digest);
        (self.last, self.offset) = (number, self.offset.max(offset));
        self.time = self.time.max(time);
    }

    /// The digest of a number that was taken, while it is remembered.
    fn digest(&self, number: u64) -> Option<u64> {
        let back = usize::try_from(self.last - number).ok()?;
        self.recent.len().checked_sub(back + 1).map(|place| self.recent[place])
    }
}

/// What may wait in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Early messages of one key.
    pub early_of_key_max: usize,
    /// Early messages of all keys.
    pub early_max: usize,
    /// The bytes of all early messages.
    pub early_bytes_max: usize,
    /// How long a gap may last, in milliseconds.
    pub gap_ms_max: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            early_of_key_max: 1_000,
            early_max: 10_000,
            early_bytes_max: 64 << 20,
            gap_ms_max: 60_000,
        }
    }
}

/// A message as it comes from a partition.
#[derive(Debug, Clone)]
pub struct Arrival<M> {
    /// Whose number it is.
    pub key: Key,
    /// From 1.
    pub number: u64,
    /// Of its id and payload, which a repetition has too.
    pub digest: u64,
    /// When it was committed, as a number that grows with time; 0: unknown. Of the messages of a key, none with a
    /// lower number is later.
    pub time: u64,
    /// How much memory it takes.
    pub bytes: usize,
    /// Its place in the partition.
    pub offset: i64,
    /// What is handed back with the decision.
    pub message: M,
}

/// What happens to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision<M> {
    /// It is the next of its key.
    Accept {
        /// Whose message it is.
        key: Key,
        /// Its number among those of the key, from 1.
        number: u64,
        /// What was handed in with it.
        message: M,
    },
    /// It was taken before, and is dropped.
    Duplicate {
        /// Whose message it is.
        key: Key,
        /// Its number among those of the key, from 1.
        number: u64,
    },
    /// Its number is further back than messages are remembered, and it is not later than the last one: it is
    /// dropped as a repetition.
    Back {
        /// Whose message it is.
        key: Key,
        /// Its number among those of the key, from 1.
        number: u64,
        /// The last one that was taken.
        last: u64,
    },
    /// Another message had its number: it is set aside.
    Differs {
        /// Whose message it is.
        key: Key,
        /// Its number among those of the key, from 1.
        number: u64,
        /// What was handed in with it.
        message: M,
    },
    /// It waits in memory for the missing ones.
    Early {
        /// Whose message it is.
        key: Key,
        /// Its number among those of the key, from 1.
        number: u64,
        /// What is missing before it.
        missing: RangeInclusive<u64>,
    },
    /// It waited for too long or with too many others, and is set aside.
    Dead {
        /// Whose message it is.
        key: Key,
        /// Its number among those of the key, from 1.
        number: u64,
        /// What was handed in with it.
        message: M,
        /// What was missing before it.
        missing: RangeInclusive<u64>,
    },
    /// These numbers will not come: the broker removed them before they were read, or they were given
    /// up by [`Order::skip`]. The next decision accepts the message after them.
    Lost {
        /// Whose message it is.
        key: Key,
        /// The numbers that were not read, first to last.
        missing: RangeInclusive<u64>,
    },
}

struct Held<M> {
    offset: i64,
    digest: u64,
    time: u64,
    bytes: usize,
    message: M,
}

/// The early messages of a key.
struct Waiting<M> {
    since_ms: u64,
    messages: BTreeMap<u64, Held<M>>,
}

struct Partition<M> {
    next: i64,
    lost_below: i64,
    positions: HashMap<Key, Position>,
    waiting: BTreeMap<Key, Waiting<M>>,
}

/// The order of the messages of all partitions that a consumer has.
pub struct Order<M> {
    bounds: Bounds,
    skipped: BTreeMap<Key, u64>,
    partitions: BTreeMap<i32, Partition<M>>,
    early: usize,
    early_bytes: usize,
}

impl<M> Order<M> {
    /// Without partitions.
    pub fn new(bounds: Bounds) -> Order<M> {
        let (skipped, partitions) = (BTreeMap::new(), BTreeMap::new());
        Order { bounds, skipped, partitions, early: 0, early_bytes: 0 }
    }

    /// Gives up the numbers of a key up to this one, if they are missing.
    pub fn skip(&mut self, key: Key, number: u64) {
        self.skipped.insert(key, number);
    }

    /// Begins to read a partition at `next`. Messages below the offset `lost_below` may have been
    /// removed before they were read.
    pub fn begin(&mut self, partition: i32, next: i64, lost_below: i64) {
        self.end(partition);
        let (positions, waiting) = (HashMap::new(), BTreeMap::new());
        self.partitions.insert(partition, Partition { next, lost_below, positions, waiting });
    }

    /// Forgets a partition: what waits is read again by its next owner.
    pub fn end(&mut self, partition: i32) {
        let Some(gone) = self.partitions.remove(&partition) else { return };
        for held in gone.waiting.values().flat_map(|waiting| waiting.messages.values()) {
            self.early -= 1;
            self.early_bytes -= held.bytes;
        }
    }

    /// Whether the position of a key is known.
    pub fn knows(&self, partition: i32, key: &Key) -> bool {
        self.position(partition, key).is_some()
    }

    /// The position of a key, as it was committed; before its first message of this partition.
    pub fn learn(&mut self, partition: i32, key: Key, position: Position) {
        if let Some(found) = self.partitions.get_mut(&partition) {
            found.positions.insert(key, position);
        }
    }

    /// How far a key was taken.
    pub fn position(&self, partition: i32, key: &Key) -> Option<&Position> {
        self.partitions.get(&partition)?.positions.get(key)
    }

    /// The offset from which a partition has to be read again.
    pub fn resume(&self, partition: i32) -> Option<i64> {
        let found = self.partitions.get(&partition)?;
        let held = found.waiting.values().flat_map(|waiting| waiting.messages.values());
        Some(held.map(|held| held.offset).chain([found.next]).min().unwrap_or(found.next))
    }

    /// How many messages wait, and their bytes.
    pub fn early(&self) -> (usize, usize) {
        (self.early, self.early_bytes)
    }

    /// The reader has passed this offset: a message that is nobody's.
    pub fn pass(&mut self, partition: i32, offset: i64) {
        if let Some(found) = self.partitions.get_mut(&partition) {
            found.next = found.next.max(offset + 1);
        }
    }

    /// What follows from a message. Nothing, if its partition belongs to somebody else.
    pub fn offer(&mut self, partition: i32, arrival: Arrival<M>, now_ms: u64) -> Vec<Decision<M>> {
        let Some(found) = self.partitions.get_mut(&partition) else { return Vec::new() };
        found.next = found.next.max(arrival.offset + 1);
        let Arrival { key, number, digest, time, bytes, offset, message } = arrival;
        let position = found.positions.entry(key.clone()).or_default();
        let last = position.last;
        if number <= last {
            return vec![match position.digest(number) {
                Some(known) if known == digest => Decision::Duplicate { key, number },
                Some(_) => Decision::Differs { key, number, message },
                None if time > position.time => Decision::Differs { key, number, message },
                None => Decision::Back { key, number, last },
            }];
        }
        let missing = last + 1..=number - 1;
        let mut decisions = Vec::new();
        if !missing.is_empty() {
            let removed = position.offset + 1 < found.lost_below && offset >= found.lost_below;
            let given_up = self.skipped.get(&key).is_some_and(|skipped| *missing.end() <= *skipped);
            if !removed && !given_up {
                return self.hold(
                    partition,
                    Arrival { key, number, digest, time, bytes, offset, message },
                    missing,
                    now_ms,
                );
            }
            decisions.push(Decision::Lost { key: key.clone(), missing });
        }
        position.advance(number, offset, digest, time);
        decisions.push(Decision::Accept { key: key.clone(), number, message });
        let Some(waiting) = found.waiting.get_mut(&key) else { return decisions };
        while let Some(entry) = waiting.messages.first_entry() {
            let next = *entry.key();
            if next > position.last + 1 {
                waiting.since_ms = now_ms;
                break;
            }
            let held = entry.remove();
            self.early -= 1;
            self.early_bytes -= held.bytes;
            if next == position.last + 1 {
                position.advance(next, held.offset, held.digest, held.time);
                let (key, message) = (key.clone(), held.message);
                decisions.push(Decision::Accept { key, number: next, message });
            } else {
                decisions.push(Decision::Duplicate { key: key.clone(), number: next });
            }
        }
        if waiting.messages.is_empty() {
            found.waiting.remove(&key);
        }
        decisions
    }

    fn hold(
        &mut self,
        partition: i32,
        arrival: Arrival<M>,
        missing: RangeInclusive<u64>,
        now_ms: u64,
    ) -> Vec<Decision<M>> {
        let Arrival { key, number, digest, time, bytes, offset, message } = arrival;
        let found = self.partitions.get_mut(&partition).expect("the caller has found it");
        let waiting = found
            .waiting
            .entry(key.clone())
            .or_insert_with(|| Waiting { since_ms: now_ms, messages: BTreeMap::new() });
        if let Some(held) = waiting.messages.get(&number) {
            return vec![match held.digest == digest {
                true => Decision::Duplicate { key, number },
                false => Decision::Differs { key, number, message },
            }];
        }
        waiting.messages.insert(number, Held { offset, digest, time, bytes, message });
        self.early += 1;
        self.early_bytes += bytes;
        let too_many = waiting.messages.len() > self.bounds.early_of_key_max;
        let mut decisions = vec![Decision::Early { key: key.clone(), number, missing }];
        if too_many {
            self.bury(partition, &key, &mut decisions);
        }
        while self.early > self.bounds.early_max || self.early_bytes > self.bounds.early_bytes_max {
            let (partition, key) = self.oldest().expect("one waits");
            self.bury(partition, &key, &mut decisions);
        }
        decisions
    }

    /// Sets aside what has waited for too long.
    pub fn expire(&mut self, now_ms: u64) -> Vec<(i32, Decision<M>)> {
        let mut all = Vec::new();
        let late = |waiting: &Waiting<M>| {
            now_ms.saturating_sub(waiting.since_ms) >= self.bounds.gap_ms_max
        };
        let mut keys = Vec::new();
        for (&partition, found) in &self.partitions {
            let late = found.waiting.iter().filter(|(_, waiting)| late(waiting));
            keys.extend(late.map(|(key, _)| (partition, key.clone())));
        }
        for (partition, key) in keys {
            let mut decisions = Vec::new();
            self.bury(partition, &key, &mut decisions);
            all.extend(decisions.into_iter().map(|decision| (partition, decision)));
        }
        all
    }

    /// The key that waits for the longest time.
    fn oldest(&self) -> Option<(i32, Key)> {
        let all = self.partitions.iter().flat_map(|(&partition, found)| {
            found.waiting.iter().map(move |(key, waiting)| (waiting.since_ms, partition, key))
        });
        all.min().map(|(_, partition, key)| (partition, key.clone()))
    }

    fn bury(&mut self, partition: i32, key: &Key, decisions: &mut Vec<Decision<M>>) {
        let found = self.partitions.get_mut(&partition).expect("the caller has found it");
        let last = found.positions.get(key).map_or(0, |position| position.last);
        let Some(waiting) = found.waiting.remove(key) else { return };
        let first = waiting.messages.first_key_value().map_or(last + 1, |(&number, _)| number);
        for (number, held) in waiting.messages {
            self.early -= 1;
            self.early_bytes -= held.bytes;
            let (key, message) = (key.clone(), held.message);
            decisions.push(Decision::Dead { key, number, message, missing: last + 1..=first - 1 });
        }
    }
}
