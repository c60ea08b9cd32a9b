//! Whether this node counts as a member, and when it must stop believing so.
//!
//! A member holds a lease, as a leader does ([`Lease`]). A node that cannot reach the lease
//! service has therefore fallen silent before others give its work away; if its clock is
//! wrong, the store's owner epochs refuse what it brings. This module knows neither the lease
//! service nor what a member owns.
//!
//! ```text
//! Outside ── join ──> Joining ── joined ──> Inside ──┐ keep
//!    ^                  │ no answer           │  ^───┘
//!    └──────────────────┴──── lost, silent ───┘
//!                                leave: Inside ──> Leaving ──> Gone
//! ```

use std::time::Duration;

use crate::lease::{Lease, Timing};
use crate::time::Mono;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The answer to a join sent at `sent`.
    Joined {
        /// When the request was sent.
        sent: Mono,
        /// Whether the node is a member now; `false`: no answer, or not yet.
        joined: bool,
    },
    /// The answer to a renewal sent at `sent`.
    Kept {
        /// When the request was sent.
        sent: Mono,
        /// `Some(true)`: kept; `Some(false)`: lost; none: no answer.
        kept: Option<bool>,
    },
    /// Give the membership up, for good.
    Leave,
    /// It was given up.
    Left,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Ask for a lease and register.
    Join,
    /// Prolong the lease.
    Keep,
    /// The node is a member from now on.
    Inside,
    /// It is no member any more: everything owned is somebody else's.
    Cease {
        /// Why.
        reason: &'static str,
    },
    /// Give the lease up.
    Leave,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Outside { join_at: Mono },
    Joining,
    Inside(Lease),
    Leaving,
    Gone,
}

/// The membership as the node itself sees it.
#[derive(Debug, Clone)]
pub struct Membership {
    timing: Timing,
    state: State,
    leaving: bool,
}

impl Membership {
    /// A node that joins at once.
    pub fn new(timing: Timing, now: Mono) -> Membership {
        Membership { timing, state: State::Outside { join_at: now }, leaving: false }
    }

    /// Whether the node is a member, even if it may begin nothing new.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Inside(_))
    }

    /// Whether new work may be begun.
    pub fn may_begin(&self, now: Mono) -> bool {
        matches!(self.state, State::Inside(lease) if lease.may_begin(now))
    }

    /// How long the lease is trusted from now on; none: no member.
    pub fn trusted_for(&self, now: Mono) -> Option<Duration> {
        match self.state {
            State::Inside(lease) => Some(lease.trusted_for(now)),
            State::Outside { .. } | State::Joining | State::Leaving | State::Gone => None,
        }
    }

    /// Whether it has left, and nothing of the lease is under way.
    pub fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// When [`Event::Tick`] is wanted next.
    pub fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Outside { join_at } => Some(join_at),
            State::Joining | State::Leaving | State::Gone => None,
            State::Inside(lease) => Some(lease.deadline()),
        }
    }

    /// Takes an event in and pushes what is to be done.
    pub fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Tick => self.tick(now, out),
            Event::Joined { sent, joined } if self.state == State::Joining => {
                self.joined(now, sent, joined, out);
            }
            Event::Kept { sent, kept } => self.kept(now, sent, kept, out),
            Event::Leave => self.leave(out),
            Event::Left if self.state == State::Leaving => self.state = State::Gone,
            // Answers to an earlier membership.
            Event::Joined { .. } | Event::Left => {}
        }
    }

    fn tick(&mut self, now: Mono, out: &mut Vec<Command>) {
        match &mut self.state {
            State::Outside { join_at } if now >= *join_at => {
                self.state = State::Joining;
                out.push(Command::Join);
            }
            State::Inside(lease) if lease.is_over(now) => {
                self.cease(now, "the membership was not renewed in time", out);
            }
            State::Inside(lease) => {
                if lease.begin_renewal(now) {
                    out.push(Command::Keep);
                }
            }
            State::Outside { .. } | State::Joining | State::Leaving | State::Gone => {}
        }
    }

    fn joined(&mut self, now: Mono, sent: Mono, joined: bool, out: &mut Vec<Command>) {
        let lease = Lease::new(self.timing, sent);
        if self.leaving {
            // What came of it is not known for certain: give it back all the same.
            self.state = State::Leaving;
            out.push(Command::Leave);
        } else if joined && !lease.is_over(now) {
            self.state = State::Inside(lease);
            out.push(Command::Inside);
            self.tick(now, out);
        } else {
            self.state = State::Outside { join_at: now + self.timing.retry() };
        }
    }

    fn kept(&mut self, now: Mono, sent: Mono, kept: Option<bool>, out: &mut Vec<Command>) {
        let State::Inside(lease) = &mut self.state else { return };
        if !lease.renewed(now, sent, kept) {
            self.cease(now, "the membership was lost", out);
        }
        self.tick(now, out);
    }

    fn leave(&mut self, out: &mut Vec<Command>) {
        self.leaving = true;
        match self.state {
            State::Inside(_) => {
                self.state = State::Leaving;
                out.push(Command::Cease { reason: "left" });
                out.push(Command::Leave);
            }
            State::Outside { .. } => self.state = State::Gone,
            // A join under way is answered later, and given back then.
            State::Joining | State::Leaving | State::Gone => {}
        }
    }

    fn cease(&mut self, now: Mono, reason: &'static str, out: &mut Vec<Command>) {
        out.push(Command::Cease { reason });
        self.state = State::Outside { join_at: now + self.timing.retry() };
    }
}

#[cfg(test)]
mod tests;
