//! What a cluster node holds: its membership and its partitions.
//!
//! A node executes the items of its partitions whether it leads or not. This machine keeps the
//! membership, computes the ring from the members, claims partitions in the store, and checks for
//! arrivals that a leader on another node has planned. On a single machine it does not exist: the
//! leader owns all partitions.
//!
//! ```text
//! membership ──> members at a revision ──> ring ──> ownership ──> Own, Disown
//!      └────────────── lost, silent ─────────────────────────────> Cease
//! ```

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::election::Timing;
use besom_core::ids::{Incarnation, OwnerEpoch, Partition, TaskName, Term};
use besom_core::membership;
use besom_core::ownership::{self, Claim, Ownership, PartitionRow, RingPosition};
use besom_core::plan::Run;
use besom_core::ring::{Assignment, RingMember};
use besom_core::time::Mono;

use besom_ports::members::Membership;
use besom_ports::store::{self, Arrivals};

/// The settings of a cluster node.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The number of partitions of the store.
    pub partitions: NonZeroU32,
    /// How often the node compares its partitions with the store's table.
    pub verify_every: Duration,
    /// How often it checks for arrivals without a notification.
    pub poll_every: Duration,
}

/// Arrivals in the queues, and the runs that have not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrived {
    /// What has arrived.
    pub arrivals: Arrivals,
    /// The active runs, read after the arrivals: every run of an arrived item is included or has
    /// ended.
    pub runs: Vec<Run>,
    /// The paused tasks; [`TaskName::ALL`] stands for all of them.
    pub paused: Vec<TaskName>,
}

/// An input of this machine.
#[derive(Debug)]
pub enum Event {
    /// The answer to a join sent at that time: whether the node is now a member.
    Joined(Mono, bool),
    /// The answer to a renewal sent at that time.
    Kept(Mono, Option<bool>),
    /// The node has left.
    Left,
    /// The members, and the leader's term as far as it is known.
    Members(Term, Membership),
    /// The store's table of partitions.
    Table(store::Result<Vec<PartitionRow>>),
    /// The partitions won by a claim.
    Claimed(store::Result<Vec<(Partition, OwnerEpoch)>>),
    /// What has arrived in the queues.
    Arrived(store::Result<Arrived>),
}

/// An output of this machine.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Join the cluster.
    Join,
    /// Renew the membership.
    Keep,
    /// Leave the cluster.
    Leave,
    /// Read the store's table of partitions.
    ReadTable,
    /// Take partitions over, for the ring at that position.
    Claim(RingPosition, Vec<Claim>),
    /// Check for arrivals since that mark.
    LookForArrivals(u64),
}

/// A consequence for the rest of the node.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// The node now owns these partitions.
    Own(Vec<(Partition, OwnerEpoch)>),
    /// The node no longer owns these partitions.
    Disown(Vec<Partition>),
    /// The node owns nothing any more; running work has to stop.
    Cease(&'static str),
    /// Something may have arrived in the queues.
    Arrived(Arrived),
    /// The store is older than an earlier read: it was restored from a copy, or a failover to a
    /// lagging standby took place.
    StoreWentBack,
    /// The highest term under which a partition of the store was claimed.
    ClaimedUnder(Term),
    /// Members have disappeared; the deaths of the items that they had begun have to be counted.
    Gone,
}

/// The membership and partitions of a cluster node.
#[derive(Debug)]
pub struct Holdings {
    settings: Settings,
    node: Incarnation,
    lease: membership::Membership,
    ownership: Ownership,
    /// The members and the position of their ring; `None`: not known yet.
    members: Option<(RingPosition, Membership)>,
    /// The members of the last ring, and the partitions that it gives this node: it changes less often than the
    /// revision.
    ring: Option<(Vec<RingMember>, BTreeSet<Partition>)>,
    mark: u64,
    look_at: Mono,
    looking: bool,
    /// Set if a check was requested while another one was under way, because that one may have been
    /// too early.
    look_again: bool,
}

impl Holdings {
    /// Creates a node that joins immediately.
    pub fn new(node: Incarnation, timing: Timing, settings: Settings, now: Mono) -> Holdings {
        Holdings {
            lease: membership::Membership::new(timing, now),
            ownership: Ownership::new(node.clone(), settings.verify_every),
            members: None,
            ring: None,
            mark: 0,
            look_at: now,
            looking: false,
            look_again: false,
            node,
            settings,
        }
    }

    /// Whether new work may be started.
    pub fn may_begin(&self, now: Mono) -> bool {
        self.lease.may_begin(now)
    }

    /// The members as far as this node knows them.
    pub fn members(&self) -> Option<&Membership> {
        self.members.as_ref().map(|(_, members)| members)
    }

    /// The partitions that the node owns and those that it should own.
    pub fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    /// Whether the node has left the cluster.
    pub fn has_left(&self) -> bool {
        self.lease.is_gone()
    }

    /// When [`Holdings::tick`] has to be called next.
    pub fn deadlines(&self) -> impl Iterator<Item = Mono> {
        let look = (self.lease.is_inside() && !self.looking).then_some(self.look_at);
        [self.lease.deadline(), self.ownership.deadline(), look].into_iter().flatten()
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Mono, notices: &mut Vec<Notice>, out: &mut Vec<Command>) {
        self.of_lease(now, membership::Event::Tick, notices, out);
        self.of_ownership(now, ownership::Event::Tick, notices, out);
        self.look(now, out);
    }

    /// Something may have arrived in the queues.
    pub fn nudge(&mut self, now: Mono) {
        self.look_at = now;
        self.look_again |= self.looking;
    }

    /// The store left an entry out of a commit because another node owns its partition.
    pub fn doubt(&mut self, now: Mono, notices: &mut Vec<Notice>, out: &mut Vec<Command>) {
        self.of_ownership(now, ownership::Event::Doubted, notices, out);
    }

    /// Leaves the cluster permanently.
    pub fn leave(&mut self, now: Mono, notices: &mut Vec<Notice>, out: &mut Vec<Command>) {
        self.of_lease(now, membership::Event::Leave, notices, out);
    }

    /// Processes an answer.
    pub fn step(
        &mut self,
        now: Mono,
        event: Event,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        match event {
            Event::Joined(sent, joined) => {
                let event = membership::Event::Joined { sent, joined };
                self.of_lease(now, event, notices, out);
            }
            Event::Kept(sent, kept) => {
                let event = membership::Event::Kept { sent, kept };
                self.of_lease(now, event, notices, out);
            }
            Event::Left => self.of_lease(now, membership::Event::Left, notices, out),
            Event::Members(term, members) => self.on_members(now, term, members, notices, out),
            Event::Table(rows) => {
                let claimed = rows.iter().flatten().map(|row| row.at.term).max();
                notices.extend(claimed.map(Notice::ClaimedUnder));
                self.of_ownership(now, ownership::Event::Table(rows.ok()), notices, out);
            }
            Event::Claimed(won) => {
                self.of_ownership(now, ownership::Event::Claimed(won.ok()), notices, out);
            }
            Event::Arrived(result) => self.on_arrived(now, result, notices),
        }
    }

    fn on_members(
        &mut self,
        now: Mono,
        term: Term,
        members: Membership,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let at = RingPosition { term, revision: members.revision };
        let known = self.members.as_ref();
        if known.is_some_and(|(position, _)| *position > at) {
            return;
        }
        let is_there = |node: &Incarnation| members.members.iter().any(|m| m.incarnation == *node);
        let gone =
            known.is_some_and(|(_, old)| old.members.iter().any(|m| !is_there(&m.incarnation)));
        self.members = Some((at, members));
        if gone {
            notices.push(Notice::Gone);
        }
        self.turn(now, notices, out);
    }

    /// Recomputes the ring.
    fn turn(&mut self, now: Mono, notices: &mut Vec<Notice>, out: &mut Vec<Command>) {
        let Some((at, members)) = self.members.as_ref().filter(|_| self.lease.is_inside()) else {
            return;
        };
        // This node is not among the members yet; the partitions of the others do not concern it.
        let Some(own) = members.members.iter().find(|m| m.incarnation == self.node) else {
            return;
        };
        let of = members.ring();
        if self.ring.as_ref().is_none_or(|(known, _)| *known != of) {
            let ring = Assignment::of(&of, self.settings.partitions);
            self.ring = Some((of, ring.owned_by(own.name.as_str()).collect()));
        }
        let mine = self.ring.as_ref().map(|(_, mine)| mine.clone()).unwrap_or_default();
        let event = ownership::Event::Ring(*at, mine);
        self.of_ownership(now, event, notices, out);
    }

    fn of_lease(
        &mut self,
        now: Mono,
        event: membership::Event,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let mut commands = Vec::new();
        self.lease.step(now, event, &mut commands);
        for command in commands {
            match command {
                membership::Command::Join => out.push(Command::Join),
                membership::Command::Keep => out.push(Command::Keep),
                membership::Command::Leave => out.push(Command::Leave),
                membership::Command::Inside => {
                    self.look_at = now;
                    self.turn(now, notices, out);
                }
                membership::Command::Cease { reason } => {
                    self.of_ownership(now, ownership::Event::Cease, &mut Vec::new(), out);
                    notices.push(Notice::Cease(reason));
                }
            }
        }
    }

    fn of_ownership(
        &mut self,
        now: Mono,
        event: ownership::Event,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let mut commands = Vec::new();
        self.ownership.step(now, event, &mut commands);
        for command in commands {
            match command {
                ownership::Command::ReadTable => out.push(Command::ReadTable),
                ownership::Command::Claim { at, claims } => out.push(Command::Claim(at, claims)),
                ownership::Command::Own(owned) => notices.push(Notice::Own(owned)),
                ownership::Command::Disown(lost) => notices.push(Notice::Disown(lost)),
            }
        }
    }

    fn look(&mut self, now: Mono, out: &mut Vec<Command>) {
        if self.lease.is_inside() && !self.looking && now >= self.look_at {
            self.looking = true;
            self.look_again = false;
            out.push(Command::LookForArrivals(self.mark));
        }
    }

    fn on_arrived(&mut self, now: Mono, result: store::Result<Arrived>, notices: &mut Vec<Notice>) {
        self.looking = false;
        self.look_at = if self.look_again { now } else { now + self.settings.poll_every };
        if let Ok(arrived) = result {
            if arrived.arrivals.mark < self.mark {
                notices.push(Notice::StoreWentBack);
            }
            // The mark may be lower than before: a restored store continues from its own.
            self.mark = arrived.arrivals.mark;
            notices.push(Notice::Arrived(arrived));
        }
    }
}

#[cfg(test)]
mod tests;
