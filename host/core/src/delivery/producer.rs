//! Decides what an idempotent producer of Kafka sends: which messages are in which record batch, under
//! which sequence numbers, and what an answer means for them.
//!
//! Kafka appends a record batch as a whole or not at all, and ignores one that it has already: it
//! remembers the identity of the producer and the last sequence numbers of each partition. This module
//! therefore keeps a batch whose result is unknown, and repeats it unchanged before it sends anything
//! else to its partition. So a broker that fails and comes back gets no message twice from this
//! producer; a new one (after the end of the process, or after the broker has lost its memory of this one)
//! may repeat messages.
//!
//! ```text
//!  messages of a partition ─batches─> in doubt ──appended──> accepted
//!         ^                            │  ^
//!         └── not appended, too large ─┘  └── unknown: the same batch again
//! ```
//!
//! At most one batch of a partition is under way. A message that is too large alone is held, and in this
//! call nothing more of its key is sent. After any other batch that is not appended nothing more is sent
//! to its partition. So the messages of a key, which are all in one partition, are appended in their order
//! and without a gap.
//!
//! If a batch is too large that an earlier attempt may have appended, nobody knows which sequence number
//! the partition expects next: the producer begins again with a new identity.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Fate;

/// The size of a record batch, in bytes. Brokers accept 1 MiB unless they are configured otherwise.
pub const RECORD_BATCH_BYTES: usize = 1_000_000;

/// The identity that a broker has assigned to a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The number of the producer.
    pub id: i64,
    /// The epoch of this number.
    pub epoch: i16,
}

/// A message that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The number of the message in the outbox.
    pub id: u64,
    /// The partition of its key.
    pub partition: i32,
    /// A number that the messages of one tenant and key have in this call, and no others.
    pub sequence: u32,
    /// The size of its record, in bytes.
    pub bytes: usize,
}

/// Messages that a partition appends together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordBatch {
    /// The partition.
    pub partition: i32,
    /// The producer that sends it.
    pub identity: Identity,
    /// The sequence number of its first message in the partition.
    pub sequence: i32,
    /// Its messages, in their order.
    pub ids: Vec<u64>,
    /// Whether it has been sent before, and must be repeated as it was.
    pub is_repeated: bool,
}

/// What became of a record batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It is in the log, now or since an earlier attempt.
    Appended,
    /// It is not in the log, because the partition accepts only smaller batches.
    TooLarge(String),
    /// It is not in the log.
    Refused(String),
    /// It may be in the log.
    Unknown(String),
    /// It is not in the log, because the broker does not accept this producer's numbers any more.
    Forgotten(String),
}

/// A batch whose result is unknown.
#[derive(Debug)]
struct Doubt {
    sequence: i32,
    ids: Vec<u64>,
    bytes: usize,
    is_under_way: bool,
    /// Whether an attempt may have appended it: its sequence numbers are not used for other messages.
    is_unknown: bool,
}

/// The producer of one topic.
#[derive(Debug)]
pub struct Producer {
    identity: Option<Identity>,
    /// The next sequence number of each partition.
    next: BTreeMap<i32, i32>,
    doubts: BTreeMap<i32, Doubt>,
    /// Messages that are in the log, though one before them is not. They are not sent again.
    accepted: BTreeSet<u64>,
    bytes_max: usize,
    /// The current call: its messages, in their order.
    entries: Vec<Entry>,
    /// Those that are not sent yet, by partition.
    waiting: BTreeMap<i32, VecDeque<Entry>>,
    /// The partitions that get nothing more, with the reason.
    failed: BTreeMap<i32, String>,
    /// The sequences that get nothing more: the message that is too large, and the reason.
    held: BTreeMap<u32, (u64, String)>,
    /// Whether this call has replaced the identity: it does so once.
    is_renewed: bool,
}

impl Default for Producer {
    fn default() -> Producer {
        Producer {
            identity: None,
            next: BTreeMap::new(),
            doubts: BTreeMap::new(),
            accepted: BTreeSet::new(),
            bytes_max: RECORD_BATCH_BYTES,
            entries: Vec::new(),
            waiting: BTreeMap::new(),
            failed: BTreeMap::new(),
            held: BTreeMap::new(),
            is_renewed: false,
        }
    }
}

impl Producer {
    /// Begins to send messages, in this order. The rest of an earlier call is forgotten, except what its
    /// batches under way may have appended.
    pub fn begin(&mut self, entries: &[Entry]) {
        self.entries = entries.to_vec();
        self.failed.clear();
        self.held.clear();
        self.waiting.clear();
        self.is_renewed = false;
        // What is before the first message was recorded, or is another leader's.
        let ids = || entries.iter().map(|entry| entry.id);
        let first = ids().min().unwrap_or_default();
        self.accepted.retain(|id| *id >= first);
        for doubt in self.doubts.values_mut() {
            doubt.is_unknown |= std::mem::take(&mut doubt.is_under_way);
        }
        for entry in entries.iter().filter(|entry| !self.accepted.contains(&entry.id)) {
            self.waiting.entry(entry.partition).or_default().push_back(*entry);
        }
        // A call without the messages of a doubt says nothing of them if it has only earlier ones, of
        // a sequence that was held.
        let last = ids().max().unwrap_or_default();
        let is_foreign = |(partition, waiting): (&i32, &VecDeque<Entry>)| {
            let doubt = self.doubts.get(partition).and_then(|doubt| doubt.ids.first());
            doubt.is_some_and(|id| *id <= last && waiting.iter().all(|entry| entry.id != *id))
        };
        // Another leader has sent the messages of the doubt: its sequence numbers are lost.
        if self.waiting.iter().any(is_foreign) {
            self.forget();
        }
    }

    /// Whether the producer needs an identity before it can send.
    pub fn needs_identity(&self) -> bool {
        self.identity.is_none()
    }

    /// Sets a new identity, under which every partition begins with the sequence number 0.
    pub fn set_identity(&mut self, identity: Identity) {
        self.forget();
        self.identity = Some(identity);
    }

    fn forget(&mut self) {
        self.identity = None;
        self.next.clear();
        self.doubts.clear();
    }

    /// The batches to send now, one for each partition at most. They are under way until they are
    /// answered. Empty: the call is complete, or needs an identity.
    pub fn batches(&mut self) -> Vec<RecordBatch> {
        let Some(identity) = self.identity else { return Vec::new() };
        let mut batches = Vec::new();
        for (partition, waiting) in &mut self.waiting {
            if waiting.is_empty() || self.failed.contains_key(partition) {
                continue;
            }
            let known = self.doubts.get_mut(partition);
            let is_repeated = known.is_some();
            let doubt = match known {
                Some(doubt) if doubt.is_under_way => continue,
                Some(doubt) => doubt,
                None => {
                    let (mut ids, mut bytes) = (Vec::new(), 0);
                    for entry in &*waiting {
                        if !ids.is_empty() && bytes + entry.bytes > self.bytes_max {
                            break;
                        }
                        ids.push(entry.id);
                        bytes += entry.bytes;
                    }
                    let sequence = self.next.get(partition).copied().unwrap_or_default();
                    let doubt =
                        Doubt { sequence, ids, bytes, is_under_way: false, is_unknown: false };
                    self.doubts.entry(*partition).or_insert(doubt)
                }
            };
            doubt.is_under_way = true;
            batches.push(RecordBatch {
                partition: *partition,
                identity,
                sequence: doubt.sequence,
                ids: doubt.ids.clone(),
                is_repeated,
            });
        }
        batches
    }

    /// Handles the answer to the batch of a partition.
    pub fn answered(&mut self, partition: i32, answer: Answer) {
        let Some(doubt) = self.doubts.get_mut(&partition) else { return };
        doubt.is_under_way = false;
        match answer {
            Answer::Unknown(error) => {
                doubt.is_unknown = true;
                self.failed.insert(partition, error);
            }
            Answer::Appended => {
                let next = after(doubt.sequence, doubt.ids.len());
                self.next.insert(partition, next);
                // A batch of an earlier call may have messages that this one has not.
                let ids = std::mem::take(&mut doubt.ids);
                if let Some(waiting) = self.waiting.get_mut(&partition) {
                    waiting.retain(|entry| !ids.contains(&entry.id));
                }
                self.accepted.extend(ids);
                self.doubts.remove(&partition);
            }
            Answer::TooLarge(_) if doubt.ids.len() > 1 => {
                self.bytes_max = (doubt.bytes / 2).max(1);
                match doubt.is_unknown {
                    true => self.forget(),
                    false => drop(self.doubts.remove(&partition)),
                }
            }
            Answer::TooLarge(error) => {
                let id = doubt.ids.first().copied();
                match doubt.is_unknown {
                    true => self.forget(),
                    false => drop(self.doubts.remove(&partition)),
                }
                // The message of an earlier call may be none of this one.
                let Some(waiting) = self.waiting.get_mut(&partition) else { return };
                let of = waiting.iter().find(|entry| Some(entry.id) == id).copied();
                if let Some(Entry { id, sequence, .. }) = of {
                    waiting.retain(|entry| entry.sequence != sequence);
                    self.held.insert(sequence, (id, error));
                }
            }
            Answer::Refused(error) => {
                self.failed.insert(partition, error);
                if !doubt.is_unknown {
                    self.doubts.remove(&partition);
                }
            }
            Answer::Forgotten(error) => {
                if std::mem::replace(&mut self.is_renewed, true) {
                    self.failed.insert(partition, error);
                }
                self.forget();
            }
        }
    }

    /// Tries the partitions again that get nothing more: a batch whose result is unknown is repeated.
    pub fn try_again(&mut self) {
        self.failed.clear();
    }

    /// Whether the result of a batch is unknown.
    pub fn is_in_doubt(&self) -> bool {
        !self.doubts.is_empty()
    }

    /// Ends the call: what became of its messages, up to the first whose result is unknown or that was
    /// not sent for another reason than its key. `otherwise` is the reason for those that were not sent.
    pub fn end(&mut self, otherwise: &str) -> Vec<Fate> {
        let mut fates = Vec::new();
        for Entry { id, partition, sequence, .. } in std::mem::take(&mut self.entries) {
            fates.push(match self.held.get(&sequence) {
                _ if self.accepted.remove(&id) => Fate::Accepted,
                Some((held, error)) if *held == id => Fate::Held(error.clone()),
                Some(_) => Fate::Behind,
                None => {
                    let error = self.failed.get(&partition).map_or(otherwise, String::as_str);
                    fates.push(Fate::Unknown(error.to_owned()));
                    break;
                }
            });
        }
        fates
    }
}

/// The sequence number after `count` messages; 0 follows the largest.
fn after(sequence: i32, count: usize) -> i32 {
    let sum = i64::from(sequence) + i64::try_from(count).unwrap_or(i64::MAX / 2);
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or_default()
}

/// The partition of a key, as all of Kafka's own clients compute it: the hash Murmur2, modulo the number
/// of partitions.
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & i32::MAX) % partitions.max(1)
}

fn murmur2(data: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mix = |word: u32| {
        let word = word.wrapping_mul(M);
        (word ^ (word >> 24)).wrapping_mul(M)
    };
    let length = u32::try_from(data.len()).unwrap_or_default();
    let mut hash = 0x9747_b28c ^ length;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        hash = hash.wrapping_mul(M) ^ mix(u32::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    (hash ^ (hash >> 15)).cast_signed()
}

#[cfg(test)]
mod tests;
