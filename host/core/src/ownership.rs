//! Which partitions this node owns.
//!
//! Two facts meet here. The ring, computed from the members at one [`RingPosition`], says
//! which partitions the node *should* own: a hint. The store's table says who owns them and
//! under which epoch: the truth. The node claims what it should own and another does, by
//! compare-and-set on the epoch; it gives up what it should not own at once, so that the
//! next owner finds nothing under way; and it owns only what the table has under its name.
//! A node with an older view of the ring never takes anything from one with a newer view,
//! so two views do not fight over a partition.
//!
//! ```text
//!  ring ──> wanted ──┬─> not ours any more: Disown
//!                    └─> ReadTable ──> ours already: Own
//!                                      another's: Claim ──> Own what was won
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeName, OwnerEpoch, Partition, Term};
use crate::time::Mono;

/// Which state of the membership a ring was computed from. Orders rings: the leader's term
/// goes first, because the revisions of a lease service that was restored from a backup
/// start over.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RingPosition {
    /// The leader's term.
    pub term: Term,
    /// The revision of the membership.
    pub revision: u64,
}

/// A partition as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRow {
    /// Which.
    pub partition: Partition,
    /// Who owns it; none: nobody has yet.
    pub owner: Option<NodeName>,
    /// Under which epoch.
    pub epoch: OwnerEpoch,
    /// The ring by which it was claimed.
    pub at: RingPosition,
}

/// One partition to be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Which.
    pub partition: Partition,
    /// The epoch that has been seen: the claim fails if it is another.
    pub seen: OwnerEpoch,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// By the ring at that position the node should own these, and no others.
    Ring(RingPosition, BTreeSet<Partition>),
    /// The store's table; none: no answer.
    Table(Option<Vec<PartitionRow>>),
    /// What of a claim was won, with the new epochs; none: no answer.
    Claimed(Option<Vec<(Partition, OwnerEpoch)>>),
    /// The store has left something out of a commit, because its partition is another's.
    Doubted,
    /// The node is no member any more.
    Cease,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Read the store's table.
    ReadTable,
    /// Take these over.
    Claim {
        /// By the ring at that position.
        at: RingPosition,
        /// Those.
        claims: Vec<Claim>,
    },
    /// Owned from now on, under these epochs.
    Own(Vec<(Partition, OwnerEpoch)>),
    /// Not owned any more.
    Disown(Vec<Partition>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asking {
    Nothing,
    Table,
    Claim,
}

/// The ownership as one node sees it.
#[derive(Debug, Clone)]
pub struct Ownership {
    node: NodeName,
    ring: Option<(RingPosition, BTreeSet<Partition>)>,
    owned: BTreeMap<Partition, OwnerEpoch>,
    asking: Asking,
    /// When the table is to be read (again).
    read_at: Option<Mono>,
    verify_every: Duration,
}

impl Ownership {
    /// How long to wait after a question without an answer, or a claim that was not won.
    pub const RETRY: Duration = Duration::from_millis(500);
    /// How often a node compares what it owns with the table, if nothing else makes it.
    pub const VERIFY_EVERY: Duration = Duration::from_secs(10);

    /// A node that owns nothing yet.
    pub fn new(node: NodeName, verify_every: Duration) -> Ownership {
        Ownership {
            node,
            ring: None,
            owned: BTreeMap::new(),
            asking: Asking::Nothing,
            read_at: None,
            verify_every,
        }
    }

    /// What it owns.
    pub fn owned(&self) -> &BTreeMap<Partition, OwnerEpoch> {
        &self.owned
    }

    /// The ring that it goes by.
    pub fn position(&self) -> Option<RingPosition> {
        self.ring.as_ref().map(|(at, _)| *at)
    }

    /// Partitions that it should own and does not (yet).
    pub fn missing(&self) -> usize {
        let Some((_, mine)) = &self.ring else { return 0 };
        mine.iter().filter(|partition| !self.owned.contains_key(partition)).count()
    }

    /// When [`Event::Tick`] is wanted next.
    pub fn deadline(&self) -> Option<Mono> {
        if self.asking == Asking::Nothing { self.read_at } else { None }
    }

    /// Takes an event in and pushes what is to be done.
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
            // Answers to questions of an earlier membership.
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
            // What a newer ring has given to somebody else is ours only by a newer ring still.
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
        // The ring may have turned meanwhile: what it took away belongs to the next owner.
        let won: Vec<(Partition, OwnerEpoch)> =
            won.into_iter().flatten().filter(|(partition, _)| mine.contains(partition)).collect();
        self.owned.extend(won.iter().copied());
        if !won.is_empty() {
            out.push(Command::Own(won));
        }
        let settled = answered && self.missing() == 0;
        self.read_again(now + if settled { self.verify_every } else { Self::RETRY });
    }

    /// Reads the table at that time, or before if that is planned already.
    fn read_again(&mut self, at: Mono) {
        self.read_at = Some(self.read_at.map_or(at, |planned| planned.min(at)));
    }
}

#[cfg(test)]
mod tests;
