//! Decides whether this node counts as a member, and when it must stop assuming so.
//!
//! A member holds a lease, as a leader does ([`Lease`]). A node that cannot reach the lease service
//! therefore falls silent before its work is given to others; if its clock is wrong, the store's
//! owner epochs refuse its commits. This module knows neither the lease service nor what a member
//! owns.
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

/// An input of the membership.
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
    /// Leave the membership permanently.
    Leave,
    /// The lease was returned.
    Left,
}

/// An output of the membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Request a lease and register.
    Join,
    /// Renew the lease.
    Keep,
    /// The node is a member from now on.
    Inside,
    /// The node is no longer a member: other nodes own its partitions.
    Cease {
        /// Why it is no longer a member.
        reason: &'static str,
    },
    /// Return the lease.
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

/// The membership from the node's point of view.
#[derive(Debug, Clone)]
pub struct Membership {
    timing: Timing,
    state: State,
    leaving: bool,
}

impl Membership {
    /// A node that joins immediately.
    pub fn new(timing: Timing, now: Mono) -> Membership {
        Membership { timing, state: State::Outside { join_at: now }, leaving: false }
    }

    /// Whether the node is a member, even if it may not begin new work.
    pub fn is_inside(&self) -> bool {
        matches!(self.state, State::Inside(_))
    }

    /// Whether new work may be begun.
    pub fn may_begin(&self, now: Mono) -> bool {
        matches!(self.state, State::Inside(lease) if lease.may_begin(now))
    }

    /// How long the lease can still be trusted; none: the node is not a member.
    pub fn trusted_for(&self, now: Mono) -> Option<Duration> {
        match self.state {
            State::Inside(lease) => Some(lease.trusted_for(now)),
            State::Outside { .. } | State::Joining | State::Leaving | State::Gone => None,
        }
    }

    /// Whether it has left and no request about the lease is pending.
    pub fn is_gone(&self) -> bool {
        self.state == State::Gone
    }

    /// When [`Event::Tick`] has to be sent next.
    pub fn deadline(&self) -> Option<Mono> {
        match self.state {
            State::Outside { join_at } => Some(join_at),
            State::Joining | State::Leaving | State::Gone => None,
            State::Inside(lease) => Some(lease.deadline()),
        }
    }

    /// Handles an event and pushes the resulting commands.
    pub fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Tick => self.tick(now, out),
            Event::Joined { sent, joined } if self.state == State::Joining => {
                self.joined(now, sent, joined, out);
            }
            Event::Kept { sent, kept } => self.kept(now, sent, kept, out),
            Event::Leave => self.leave(out),
            Event::Left if self.state == State::Leaving => self.state = State::Gone,
            // These answer an earlier membership.
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
            // The result is not known for certain: return the lease in any case.
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
            // The pending join is answered later; its lease is returned then.
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
