//! Decides which partitions this node owns.
//!
//! The ring, computed from the members at one [`RingPosition`], says which partitions the node
//! *should* own; it is a hint. The store's table says which node owns them and under which epoch;
//! it is authoritative. The node claims what it should own and another node owns, by
//! compare-and-set on the epoch. It releases what it should not own at once, so that the next owner
//! finds nothing under way. It owns only what the table lists under its name. A node with an older
//! view of the ring never takes a partition from one with a newer view, so two views do not fight
//! over a partition.
//!
//! ```text
//!  ring ──> wanted ──┬─> not ours any more: Disown
//!                    └─> ReadTable ──> ours already: Own
//!                                      another's: Claim ──> Own what was won
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{Incarnation, OwnerEpoch, Partition, Term};
use crate::time::Mono;

/// The state of the membership that a ring was computed from; orders rings. The leader's term is
/// compared first, because revisions start over when a lease service is restored from a backup.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RingPosition {
    /// The leader's term.
    pub term: Term,
    /// The revision of the membership.
    pub revision: u64,
}

/// A partition's row in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRow {
    /// The partition's number.
    pub partition: Partition,
    /// Its owner; none: it has never had one.
    pub owner: Option<Incarnation>,
    /// The epoch of that ownership.
    pub epoch: OwnerEpoch,
    /// The ring under which it was claimed.
    pub at: RingPosition,
}

/// A claim to one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The partition to claim.
    pub partition: Partition,
    /// The epoch in the table: the claim fails if the store has another.
    pub seen: OwnerEpoch,
}

/// An input of the ownership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The ring at that position gives the node exactly these partitions.
    Ring(RingPosition, BTreeSet<Partition>),
    /// The store's table; none: no answer.
    Table(Option<Vec<PartitionRow>>),
    /// The partitions that a claim won, with their new epochs; none: no answer.
    Claimed(Option<Vec<(Partition, OwnerEpoch)>>),
    /// The store has left entries out of a commit because another node owns their partition.
    Doubted,
    /// The node is no longer a member.
    Cease,
}

/// An output of the ownership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Read the store's table of partitions.
    ReadTable,
    /// Claim partitions.
    Claim {
        /// The ring under which they are claimed.
        at: RingPosition,
        /// The claims, one per partition.
        claims: Vec<Claim>,
    },
    /// The node owns these partitions from now on, under these epochs.
    Own(Vec<(Partition, OwnerEpoch)>),
    /// The node no longer owns these partitions.
    Disown(Vec<Partition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Nothing,
    Table,
    Claim,
}

/// The ownership from one node's point of view.
#[derive(Debug, Clone)]
pub struct Ownership {
    node: Incarnation,
    ring: Option<(RingPosition, BTreeSet<Partition>)>,
    owned: BTreeMap<Partition, OwnerEpoch>,
    asking: Asking,
    /// When the table has to be read next.
    read_at: Option<Mono>,
    verify_every: Duration,
}

impl Ownership {
    /// The wait after a request without an answer or a claim that was not won.
    pub const RETRY: Duration = Duration::from_millis(500);

    /// A node without partitions.
    pub fn new(node: Incarnation, verify_every: Duration) -> Ownership {
        Ownership {
            node,
            ring: None,
            owned: BTreeMap::new(),
            asking: Asking::Nothing,
            read_at: None,
            verify_every,
        }
    }

    /// The partitions it owns, with their epochs.
    pub fn owned(&self) -> &BTreeMap<Partition, OwnerEpoch> {
        &self.owned
    }

    /// The ring that it follows.
    pub fn position(&self) -> Option<RingPosition> {
        self.ring.as_ref().map(|(at, _)| *at)
    }

    /// How many partitions it should own but does not own yet.
    pub fn missing(&self) -> usize {
        let Some((_, mine)) = &self.ring else { return 0 };
        mine.iter().filter(|partition| !self.owned.contains_key(partition)).count()
    }

    /// When [`Event::Tick`] has to be sent next.
    pub fn deadline(&self) -> Option<Mono> {
        if self.asking == Asking::Nothing { self.read_at } else { None }
    }

    /// Handles an event and pushes the resulting commands.
    pub fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Tick => {}
            Event::Ring(at, mine) => self.on_ring(now, at, mine, out),
            Event::Table(rows) if self.asking == Asking::Table => {
                self.asking = Asking::Nothing;
                self.on_table(now, rows, out);
            }
            Event::Claimed(won) if self.asking == Asking::Claim => {
                self.asking = Asking::Nothing;
                self.on_claimed(now, won, out);
            }
            // These answer an earlier membership.
            Event::Table(_) | Event::Claimed(_) => {}
            Event::Doubted => self.read_at = Some(now),
            Event::Cease => {
                let owned = std::mem::take(&mut self.owned);
                if !owned.is_empty() {
                    out.push(Command::Disown(owned.into_keys().collect()));
                }
                self.ring = None;
                self.asking = Asking::Nothing;
                self.read_at = None;
            }
        }
        let due = self.read_at.is_some_and(|at| now >= at);
        if due && self.ring.is_some() && self.asking == Asking::Nothing {
            self.read_at = None;
            self.asking = Asking::Table;
            out.push(Command::ReadTable);
        }
    }

    fn on_ring(
        &mut self,
        now: Mono,
        at: RingPosition,
        mine: BTreeSet<Partition>,
        out: &mut Vec<Command>,
    ) {
        if self.ring.as_ref().is_some_and(|(known, _)| *known >= at) {
            return;
        }
        let mut lost = Vec::new();
        self.owned.retain(|partition, _| {
            let keep = mine.contains(partition);
            if !keep {
                lost.push(*partition);
            }
            keep
        });
        if !lost.is_empty() {
            out.push(Command::Disown(lost));
        }
        self.ring = Some((at, mine));
        self.read_at = Some(now);
    }

    fn on_table(&mut self, now: Mono, rows: Option<Vec<PartitionRow>>, out: &mut Vec<Command>) {
        let Some(rows) = rows else {
            self.read_again(now + Self::RETRY);
            return;
        };
        let Some((position, mine)) = &self.ring else { return };
        let (mut gained, mut lost, mut claims) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            if !mine.contains(&row.partition) {
                continue;
            }
            if row.owner.as_ref() == Some(&self.node) {
                if self.owned.insert(row.partition, row.epoch) != Some(row.epoch) {
                    gained.push((row.partition, row.epoch));
                }
                continue;
            }
            if self.owned.remove(&row.partition).is_some() {
                lost.push(row.partition);
            }
            if row.at < *position {
                claims.push(Claim { partition: row.partition, seen: row.epoch });
            }
        }
        if !lost.is_empty() {
            out.push(Command::Disown(lost));
        }
        if !gained.is_empty() {
            out.push(Command::Own(gained));
        }
        if claims.is_empty() {
            // A partition that a newer ring has given to another node can only be claimed under a
            // still newer ring.
            self.read_again(now + self.verify_every);
        } else {
            self.asking = Asking::Claim;
            out.push(Command::Claim { at: *position, claims });
        }
    }

    fn on_claimed(
        &mut self,
        now: Mono,
        won: Option<Vec<(Partition, OwnerEpoch)>>,
        out: &mut Vec<Command>,
    ) {
        let Some((_, mine)) = &self.ring else { return };
        let answered = won.is_some();
        // The ring may have changed in the meantime: a partition that it took away belongs to the
        // next owner.
        let won: Vec<(Partition, OwnerEpoch)> =
            won.into_iter().flatten().filter(|(partition, _)| mine.contains(partition)).collect();
        self.owned.extend(won.iter().copied());
        if !won.is_empty() {
            out.push(Command::Own(won));
        }
        let settled = answered && self.missing() == 0;
        self.read_again(now + if settled { self.verify_every } else { Self::RETRY });
    }

    /// Reads the table at that time, or earlier if an earlier read is already planned.
    fn read_again(&mut self, at: Mono) {
        self.read_at = Some(self.read_at.map_or(at, |planned| planned.min(at)));
    }
}

#[cfg(test)]
mod tests;
