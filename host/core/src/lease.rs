//! How long a lease may be believed, and when to prolong it.
//!
//! A lease is trusted from the moment its request was *sent* (not answered) for its time to
//! live, on a clock that runs while the machine sleeps. Inside that window three deadlines
//! follow one another: no new work, silence, end. This module does not know what the lease is
//! on: a leadership and a membership hang on it alike.

use std::time::Duration;

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

    /// After this span, running guests are interrupted and the holder is silent.
    pub fn silent(self) -> Duration {
        self.ttl * 13 / 15
    }

    /// How long to wait after a renewal that got no answer.
    pub fn retry(self) -> Duration {
        self.renew / 4
    }
}

/// A lease as its holder sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    timing: Timing,
    trusted_from: Mono,
    renew_at: Mono,
    renewing: bool,
}

impl Lease {
    /// A lease that was asked for at `sent`, and given.
    pub fn new(timing: Timing, sent: Mono) -> Lease {
        Lease { timing, trusted_from: sent, renew_at: sent + timing.renew, renewing: false }
    }

    /// Whether new work may be begun under it.
    pub fn may_begin(&self, now: Mono) -> bool {
        now < self.trusted_from + self.timing.no_new_work()
    }

    /// How long it is trusted from now on.
    pub fn trusted_for(&self, now: Mono) -> Duration {
        (self.trusted_from + self.timing.ttl).since(now)
    }

    /// When its holder has to be silent, if it is not renewed before.
    pub fn silent_at(&self) -> Mono {
        self.trusted_from + self.timing.silent()
    }

    /// Whether its holder has to be silent.
    pub fn is_over(&self, now: Mono) -> bool {
        now >= self.silent_at()
    }

    /// When something is to be done about it next.
    pub fn deadline(&self) -> Mono {
        if self.renewing { self.silent_at() } else { self.silent_at().min(self.renew_at) }
    }

    /// Whether a renewal is to be sent now; it counts as under way.
    pub fn begin_renewal(&mut self, now: Mono) -> bool {
        let due = !self.renewing && now >= self.renew_at;
        self.renewing |= due;
        due
    }

    /// The answer to a renewal sent at `sent`: `Some(true)`: kept; `Some(false)`: lost; none:
    /// no answer. Returns whether it is still held.
    pub fn renewed(&mut self, now: Mono, sent: Mono, kept: Option<bool>) -> bool {
        self.renewing = false;
        match kept {
            Some(true) => {
                self.trusted_from = self.trusted_from.max(sent);
                self.renew_at = sent + self.timing.renew;
            }
            Some(false) => return false,
            None => self.renew_at = now + self.timing.retry(),
        }
        true
    }
}
