//! When to campaign, when to renew, and when to stop believing.
//!
//! A leader that hears nothing goes silent before anybody else can lead (see [`Lease`]); a
//! leader whose clock was wrong is stopped by the store's fence. This module knows neither
//! the store nor the lease service.
//!
//! ```text
//!             campaign            won                raised
//! Following ───────────> Campaigning ───> Raising ──────────> Leading ──┐ renew
//!     ^                      │ held         │ fenced, late      │  ^────┘
//!     └──────────────────────┴──────────────┴── lost, silent ───┘
//!                                               resign: Leading ──> Resigning ──> Following
//! ```

use std::time::Duration;

use crate::ids::{Fence, Term};
use crate::lease::Lease;
pub use crate::lease::Timing;
use crate::time::Mono;

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed, or the leadership may have changed.
    Tick,
    /// The lease is held by nobody, as far as a watcher saw: campaign at once.
    Vacant,
    /// The answer to a campaign sent at `sent`.
    Campaigned {
        /// When the request was sent.
        sent: Mono,
        /// What came of it.
        result: CampaignResult,
    },
    /// The answer of the store to the raise of the fence.
    Raised(RaiseResult),
    /// The answer to a renewal sent at `sent`.
    Renewed {
        /// When the request was sent.
        sent: Mono,
        /// `Some(true)`: kept; `Some(false)`: lost; none: no answer.
        kept: Option<bool>,
    },
    /// The store has refused a write of this leader: somebody leads under a higher term.
    Fenced,
    /// The store knows an earlier term than this leader's: it was put back to an older state.
    StoreWentBack,
    /// Give the leadership up and do not campaign until [`Event::Rejoin`].
    Resign,
    /// Campaign again.
    Rejoin,
    /// The lease was given up.
    Resigned,
    /// It could not be given up; that is tried again.
    NotResigned(Fence),
}

/// What came of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CampaignResult {
    /// The lease is ours.
    Won(Fence),
    /// It is another's for at most so long, if nobody renews it.
    Held(Duration),
    /// No answer.
    Failed,
}

/// What came of the raise of the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RaiseResult {
    /// The store knows our term.
    Done,
    /// The store knows this term or a higher one (a lease service restored from a backup).
    Fenced(Term),
    /// No answer.
    Failed,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Ask for the lease, under a term above `at_least`.
    Campaign {
        /// The highest term known to be used.
        at_least: Option<Term>,
    },
    /// Raise the store's fence.
    Raise(Fence),
    /// The node leads: begin.
    Lead(Fence),
    /// Prolong the lease.
    Renew(Fence),
    /// The node leads no longer: stop guests, forget what was planned.
    Cease {
        /// Why.
        reason: &'static str,
    },
    /// Give the lease up.
    Resign(Fence),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Following { campaign_at: Mono },
    Campaigning,
    Raising { fence: Fence, lease: Lease, raise_at: Option<Mono> },
    Leading { fence: Fence, lease: Lease },
    Resigning,
    Retired,
}

/// The election as one node sees it.
#[derive(Debug, Clone)]
pub struct Election {
    timing: Timing,
    state: State,
    at_least: Option<Term>,
    retired: bool,
    /// The lease that was won last and may still be held in this node's name: a service that
    /// keeps it for as long as the node is there does not end it because the node has ceased.
    won: Option<Fence>,
    /// A lease that is to be given up, and when that is tried again.
    resign_again: Option<(Mono, Fence)>,
}

impl Election {
    /// A node that campaigns at once.
    pub fn new(timing: Timing, now: Mono) -> Election {
        Election {
            timing,
            state: State::Following { campaign_at: now },
            at_least: None,
            retired: false,
            won: None,
            resign_again: None,
        }
    }

    /// The fence under which new work may be begun; none: not now.
    pub fn may_begin(&self, now: Mono) -> Option<&Fence> {
        match &self.state {
            State::Leading { fence, lease } if lease.may_begin(now) => Some(fence),
            _ => None,
        }
    }

    /// The fence while this node leads, even if it may begin nothing new.
    pub fn leading(&self) -> Option<&Fence> {
        match &self.state {
            State::Leading { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// The fence that the store is being asked to raise to; none: it is not.
    pub fn raising(&self) -> Option<&Fence> {
        match &self.state {
            State::Raising { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// How long the lease is trusted from now on; none: not leading.
    pub fn trusted_for(&self, now: Mono) -> Option<Duration> {
        match &self.state {
            State::Leading { lease, .. } => Some(lease.trusted_for(now)),
            _ => None,
        }
    }

    /// When [`Event::Tick`] is wanted next.
    pub fn deadline(&self) -> Option<Mono> {
        let again = self.resign_again.as_ref().map(|(at, _)| *at);
        let next = match &self.state {
            State::Following { campaign_at } => Some(*campaign_at),
            State::Campaigning | State::Resigning | State::Retired => None,
            State::Raising { lease, raise_at, .. } => {
                let end = lease.silent_at();
                Some(raise_at.map_or(end, |at| at.min(end)))
            }
            State::Leading { lease, .. } => Some(lease.deadline()),
        };
        again.into_iter().chain(next).min()
    }

    /// Takes an event in and pushes what is to be done.
    pub fn step(&mut self, now: Mono, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Tick => self.tick(now, out),
            Event::Vacant => {
                if let State::Following { campaign_at } = &mut self.state {
                    *campaign_at = now;
                    self.tick(now, out);
                }
            }
            Event::Campaigned { sent, result } => self.campaigned(now, sent, result, out),
            Event::Raised(result) => self.raised(now, result, out),
            Event::Renewed { sent, kept } => self.renewed(now, sent, kept, out),
            Event::Fenced => {
                if matches!(self.state, State::Leading { .. } | State::Raising { .. }) {
                    self.cease(now, "the store knows a later term", out);
                }
            }
            Event::StoreWentBack => {
                if let State::Leading { fence, lease } = &self.state {
                    // The lease is as good as before: what the store has forgotten is told again.
                    let (fence, lease) = (fence.clone(), *lease);
                    out.push(Command::Cease { reason: "the store is older than this leadership" });
                    out.push(Command::Raise(fence.clone()));
                    self.state = State::Raising { fence, lease, raise_at: None };
                }
            }
            Event::Resign => {
                self.retired = true;
                match std::mem::replace(&mut self.state, State::Retired) {
                    State::Leading { fence, .. } => {
                        out.push(Command::Cease { reason: "resigned" });
                        out.push(Command::Resign(fence));
                        self.state = State::Resigning;
                    }
                    State::Raising { fence, .. } => {
                        out.push(Command::Resign(fence));
                        self.state = State::Resigning;
                    }
                    // A campaign under way is answered later; a win is given back then.
                    State::Campaigning => self.state = State::Campaigning,
                    State::Resigning => self.state = State::Resigning,
                    State::Following { .. } | State::Retired => {
                        if let Some(fence) = self.won.take() {
                            out.push(Command::Resign(fence));
                            self.state = State::Resigning;
                        }
                    }
                }
            }
            Event::Rejoin => {
                self.retired = false;
                if self.state == State::Retired {
                    self.state = State::Following { campaign_at: now };
                    self.tick(now, out);
                }
            }
            Event::Resigned => {
                self.resign_again = None;
                self.resigned(now);
            }
            Event::NotResigned(fence) => {
                self.resign_again = Some((now + self.timing.renew, fence));
                self.resigned(now);
            }
        }
    }

    /// Whether a resignation is complete: nothing of the lease is under way.
    pub fn is_retired(&self) -> bool {
        self.state == State::Retired
    }

    fn resigned(&mut self, now: Mono) {
        if self.state == State::Resigning {
            self.won = None;
            self.follow(now);
        }
    }

    fn follow(&mut self, at: Mono) {
        self.state =
            if self.retired { State::Retired } else { State::Following { campaign_at: at } };
    }

    fn cease(&mut self, now: Mono, reason: &'static str, out: &mut Vec<Command>) {
        if matches!(self.state, State::Leading { .. }) {
            out.push(Command::Cease { reason });
        }
        self.follow(now + self.timing.retry());
    }

    fn tick(&mut self, now: Mono, out: &mut Vec<Command>) {
        if let Some((_, fence)) = self.resign_again.take_if(|(at, _)| now >= *at) {
            out.push(Command::Resign(fence));
        }
        match &mut self.state {
            State::Following { campaign_at } if now >= *campaign_at => {
                self.state = State::Campaigning;
                out.push(Command::Campaign { at_least: self.at_least });
            }
            State::Raising { lease, .. } if lease.is_over(now) => {
                self.cease(now, "the fence was not raised in time", out);
            }
            State::Raising { fence, raise_at, .. } if raise_at.is_some_and(|at| now >= at) => {
                *raise_at = None;
                out.push(Command::Raise(fence.clone()));
            }
            State::Leading { lease, .. } if lease.is_over(now) => {
                self.cease(now, "the lease was not renewed in time", out);
            }
            State::Leading { fence, lease } => {
                if lease.begin_renewal(now) {
                    out.push(Command::Renew(fence.clone()));
                }
            }
            State::Following { .. }
            | State::Campaigning
            | State::Raising { .. }
            | State::Resigning
            | State::Retired => {}
        }
    }

    fn campaigned(
        &mut self,
        now: Mono,
        sent: Mono,
        result: CampaignResult,
        out: &mut Vec<Command>,
    ) {
        // What is ours again is not given up by a late request.
        self.resign_again.take_if(|_| matches!(result, CampaignResult::Won(_)));
        if self.state != State::Campaigning {
            return;
        }
        match result {
            CampaignResult::Won(fence) if self.retired => {
                out.push(Command::Resign(fence));
                self.state = State::Resigning;
            }
            CampaignResult::Won(fence) => {
                out.push(Command::Raise(fence.clone()));
                self.won = Some(fence.clone());
                let lease = Lease::new(self.timing, sent);
                self.state = State::Raising { fence, lease, raise_at: None };
            }
            CampaignResult::Held(retry_in) => {
                self.won = None;
                self.follow(now + retry_in.max(self.timing.retry()).min(self.timing.renew));
            }
            CampaignResult::Failed => self.follow(now + self.timing.retry()),
        }
    }

    fn raised(&mut self, now: Mono, result: RaiseResult, out: &mut Vec<Command>) {
        let State::Raising { fence, lease, raise_at } = &mut self.state else { return };
        match result {
            RaiseResult::Done if !lease.is_over(now) => {
                out.push(Command::Lead(fence.clone()));
                self.state = State::Leading { fence: fence.clone(), lease: *lease };
                self.tick(now, out);
            }
            RaiseResult::Done => self.cease(now, "the fence was raised too late", out),
            RaiseResult::Fenced(term) => {
                // Our lease is of a past that the store has left behind: give it up and
                // take one under a term above what the store knows.
                let fence = fence.clone();
                self.at_least = Some(term);
                out.push(Command::Resign(fence));
                self.state = State::Resigning;
            }
            RaiseResult::Failed => *raise_at = Some(now + self.timing.retry()),
        }
    }

    fn renewed(&mut self, now: Mono, sent: Mono, kept: Option<bool>, out: &mut Vec<Command>) {
        let State::Leading { lease, .. } = &mut self.state else { return };
        if !lease.renewed(now, sent, kept) {
            self.won = None;
            self.cease(now, "the lease was lost", out);
        }
        self.tick(now, out);
    }
}

#[cfg(test)]
mod tests;
