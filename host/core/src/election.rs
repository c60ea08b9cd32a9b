//! When to campaign, when to renew, and when to stop believing.
//!
//! A lease is trusted from the moment its request was *sent* (not answered) for its time
//! to live, on a clock that runs while the machine sleeps. Inside that window three
//! deadlines follow one another: no new work, running guests stopped, lease over. A leader
//! that hears nothing goes silent before anybody else can lead; a leader whose clock was
//! wrong is stopped by the store's fence. This module knows neither the store nor the
//! lease service.
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
use crate::time::Mono;

/// The spans of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long the lease lasts without renewal.
    pub ttl: Duration,
    /// How often it is renewed; at most a third of `ttl`.
    pub renew: Duration,
}

impl Timing {
    /// After this span since the last successful renewal was sent, no new work is begun.
    pub fn no_new_work(self) -> Duration {
        self.ttl * 2 / 3
    }

    /// After this span, running guests are interrupted and the leader is silent.
    pub fn silent(self) -> Duration {
        self.ttl * 13 / 15
    }

    /// How long to wait after a renewal that got no answer.
    pub fn retry(self) -> Duration {
        self.renew / 4
    }
}

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
    /// Give the leadership up and do not campaign until [`Event::Rejoin`].
    Resign,
    /// Campaign again.
    Rejoin,
    /// The lease was given up.
    Resigned,
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
    Raising { fence: Fence, trusted_from: Mono, raise_at: Option<Mono> },
    Leading { fence: Fence, trusted_from: Mono, renew_at: Mono, renewing: bool },
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
}

impl Election {
    /// A node that campaigns at once.
    pub fn new(timing: Timing, now: Mono) -> Election {
        Election {
            timing,
            state: State::Following { campaign_at: now },
            at_least: None,
            retired: false,
        }
    }

    /// The fence under which new work may be begun; none: not now.
    pub fn may_begin(&self, now: Mono) -> Option<&Fence> {
        match &self.state {
            State::Leading { fence, trusted_from, .. }
                if now < *trusted_from + self.timing.no_new_work() =>
            {
                Some(fence)
            }
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

    /// How long the lease is trusted from now on; none: not leading.
    pub fn trusted_for(&self, now: Mono) -> Option<Duration> {
        match &self.state {
            State::Leading { trusted_from, .. } => {
                Some((*trusted_from + self.timing.ttl).since(now))
            }
            _ => None,
        }
    }

    /// When [`Event::Tick`] is wanted next.
    pub fn deadline(&self) -> Option<Mono> {
        match &self.state {
            State::Following { campaign_at } => Some(*campaign_at),
            State::Campaigning | State::Resigning | State::Retired => None,
            State::Raising { trusted_from, raise_at, .. } => {
                let end = *trusted_from + self.timing.silent();
                Some(raise_at.map_or(end, |at| at.min(end)))
            }
            State::Leading { trusted_from, renew_at, renewing, .. } => {
                let end = *trusted_from + self.timing.silent();
                Some(if *renewing { end } else { end.min(*renew_at) })
            }
        }
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
                    State::Following { .. } | State::Retired => {}
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
                if self.state == State::Resigning {
                    self.follow(now);
                }
            }
        }
    }

    /// Whether a resignation is complete: nothing of the lease is under way.
    pub fn is_retired(&self) -> bool {
        self.state == State::Retired
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
        let silent = self.timing.silent();
        match &mut self.state {
            State::Following { campaign_at } if now >= *campaign_at => {
                self.state = State::Campaigning;
                out.push(Command::Campaign { at_least: self.at_least });
            }
            State::Raising { trusted_from, .. } if now >= *trusted_from + silent => {
                self.cease(now, "the fence was not raised in time", out);
            }
            State::Raising { fence, raise_at, .. } if raise_at.is_some_and(|at| now >= at) => {
                *raise_at = None;
                out.push(Command::Raise(fence.clone()));
            }
            State::Leading { trusted_from, .. } if now >= *trusted_from + silent => {
                self.cease(now, "the lease was not renewed in time", out);
            }
            State::Leading { fence, renew_at, renewing, .. } if !*renewing && now >= *renew_at => {
                *renewing = true;
                out.push(Command::Renew(fence.clone()));
            }
            State::Following { .. }
            | State::Campaigning
            | State::Raising { .. }
            | State::Leading { .. }
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
                self.state = State::Raising { fence, trusted_from: sent, raise_at: None };
            }
            CampaignResult::Held(retry_in) => {
                self.follow(now + retry_in.max(self.timing.retry()).min(self.timing.renew));
            }
            CampaignResult::Failed => self.follow(now + self.timing.retry()),
        }
    }

    fn raised(&mut self, now: Mono, result: RaiseResult, out: &mut Vec<Command>) {
        let State::Raising { fence, trusted_from, raise_at } = &mut self.state else { return };
        match result {
            RaiseResult::Done if now < *trusted_from + self.timing.silent() => {
                out.push(Command::Lead(fence.clone()));
                self.state = State::Leading {
                    fence: fence.clone(),
                    trusted_from: *trusted_from,
                    renew_at: *trusted_from + self.timing.renew,
                    renewing: false,
                };
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
        let timing = self.timing;
        let State::Leading { trusted_from, renew_at, renewing, .. } = &mut self.state else {
            return;
        };
        *renewing = false;
        match kept {
            Some(true) => {
                *trusted_from = (*trusted_from).max(sent);
                *renew_at = sent + timing.renew;
            }
            Some(false) => self.cease(now, "the lease was lost", out),
            None => *renew_at = now + timing.retry(),
        }
        self.tick(now, out);
    }
}

#[cfg(test)]
mod tests;
