//! Decides when to campaign, when to renew, and when to stop leading.
//!
//! A leader that receives no answer goes silent before another node can lead (see [`Lease`]); a
//! leader with a wrong clock is stopped by the store's fence. This module knows neither the store
//! nor the lease service.
//!
//! ```text
//!             campaign            won                raised
//! Following ───────────> Campaigning ───> Raising ──────────> Leading ──┐ renew
//!     ^                      │ held         │ fenced, late      │  ^────┘
//!     └──────────────────────┴──────────────┴── lost, silent ───┘
//!                                               resign: Leading ──> Resigning ──> Following
//! ```

use std::time::Duration;

use crate::ids::{FencingToken, Term};
use crate::lease::Lease;
pub use crate::lease::Timing;
use crate::time::Mono;

/// An input of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time has passed, or the leadership may have changed.
    Tick,
    /// A watcher saw that no node holds the lease: campaign at once.
    Vacant,
    /// The answer to a campaign sent at `sent`.
    Campaigned {
        /// When the request was sent.
        sent: Mono,
        /// The result of the campaign.
        result: CampaignResult,
    },
    /// The store's answer to raising the fence.
    Raised(RaiseResult),
    /// The answer to a renewal sent at `sent`.
    Renewed {
        /// When the request was sent.
        sent: Mono,
        /// `Some(true)`: kept; `Some(false)`: lost; none: no answer.
        kept: Option<bool>,
    },
    /// The store has refused a write of this leader: another node leads under a higher term.
    Fenced,
    /// The store was restored to an older state: it knows only an earlier term than this leader's,
    /// or other owners of its partitions.
    StoreWentBack,
    /// Partitions of the store were claimed under this term. If it is higher than that of this leader, the
    /// lease service has lost it, or another node leads under it.
    ClaimedUnder(Term),
    /// Resign the leadership and do not campaign until [`Event::Rejoin`].
    Resign,
    /// Campaign again.
    Rejoin,
    /// The lease was returned.
    Resigned,
    /// The lease could not be returned; the election retries.
    NotResigned(FencingToken),
}

/// The result of a campaign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CampaignResult {
    /// This node holds the lease.
    Won(FencingToken),
    /// Another node holds it, for at most this long without a renewal.
    Held(Duration),
    /// No answer.
    Failed,
}

/// The result of raising the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RaiseResult {
    /// The store has recorded this term.
    Done,
    /// The store knows this term or a higher one (a lease service restored from a backup).
    Fenced(Term),
    /// No answer.
    Failed,
}

/// An output of the election.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Ask for the lease, under a term above `at_least`.
    Campaign {
        /// The highest term known to be in use.
        at_least: Option<Term>,
    },
    /// Raise the store's fence.
    Raise(FencingToken),
    /// The node leads from now on.
    Lead(FencingToken),
    /// Renew the lease.
    Renew(FencingToken),
    /// The node no longer leads: stop the guests and discard the plans.
    Cease {
        /// Why it no longer leads.
        reason: &'static str,
    },
    /// Return the lease.
    Resign(FencingToken),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Following { campaign_at: Mono },
    Campaigning,
    Raising { fence: FencingToken, lease: Lease, raise_at: Option<Mono> },
    Leading { fence: FencingToken, lease: Lease },
    Resigning,
    Retired,
}

/// The election from one node's point of view.
#[derive(Debug, Clone)]
pub struct Election {
    timing: Timing,
    state: State,
    at_least: Option<Term>,
    retired: bool,
    /// The last lease won, which may still be held in this node's name: a service that keeps a
    /// lease while the node is connected does not end it because the node has stopped leading.
    won: Option<FencingToken>,
    /// A lease to be returned, and when the next attempt is made.
    resign_again: Option<(Mono, FencingToken)>,
}

impl Election {
    /// A node that campaigns immediately.
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

    /// The fence under which new work may be begun; none: no new work now.
    pub fn may_begin(&self, now: Mono) -> Option<&FencingToken> {
        match &self.state {
            State::Leading { fence, lease } if lease.may_begin(now) => Some(fence),
            _ => None,
        }
    }

    /// The fence while this node leads, even if it may not begin new work.
    pub fn leading(&self) -> Option<&FencingToken> {
        match &self.state {
            State::Leading { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// The fence that the store is being asked to raise; none: no raise is under way.
    pub fn raising(&self) -> Option<&FencingToken> {
        match &self.state {
            State::Raising { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// How long the lease can still be trusted; none: the node does not lead.
    pub fn trusted_for(&self, now: Mono) -> Option<Duration> {
        match &self.state {
            State::Leading { lease, .. } => Some(lease.trusted_for(now)),
            _ => None,
        }
    }

    /// When [`Event::Tick`] has to be sent next.
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

    /// Handles an event and pushes the resulting commands.
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
                    // The lease is still valid: repeat what the store has lost.
                    let (fence, lease) = (fence.clone(), *lease);
                    out.push(Command::Cease { reason: "the store is older than this leadership" });
                    out.push(Command::Raise(fence.clone()));
                    self.state = State::Raising { fence, lease, raise_at: None };
                }
            }
            Event::ClaimedUnder(term) => self.claimed_under(now, term, out),
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
                    // The pending campaign is answered later; if it wins, the lease is returned
                    // then.
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

    /// Whether a resignation is complete: no request about the lease is pending.
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
        // A late request must not return a lease that this node holds again.
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
                // This lease belongs to a past that the store has moved beyond: return it and
                // campaign under a term above the one the store knows.
                let fence = fence.clone();
                self.at_least = self.at_least.max(Some(term));
                out.push(Command::Resign(fence));
                self.state = State::Resigning;
            }
            RaiseResult::Failed => *raise_at = Some(now + self.timing.retry()),
        }
    }

    /// A ring under the term of this leader never takes a partition that was claimed under a higher one: the
    /// node campaigns for a term above it.
    fn claimed_under(&mut self, now: Mono, term: Term, out: &mut Vec<Command>) {
        let (State::Leading { fence, .. } | State::Raising { fence, .. }) = &self.state else {
            return;
        };
        if fence.term >= term {
            return;
        }
        let fence = fence.clone();
        self.at_least = self.at_least.max(Some(term));
        self.cease(now, "partitions were claimed under a later term", out);
        out.push(Command::Resign(fence));
        self.state = State::Resigning;
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
