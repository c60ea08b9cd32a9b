//! Decides how long a lease may be trusted, and when to renew it.
//!
//! A lease is trusted for its time to live, counted from when its request was *sent* (not
//! answered), on a clock that runs while the machine sleeps. Within that window three deadlines
//! follow one another: no new work, silence, end. This module does not know what the lease is for;
//! leadership and membership use it alike.

use std::time::Duration;

use crate::time::Mono;

/// The timing of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long the lease lasts without a renewal.
    pub ttl: Duration,
    /// How often it is renewed; at most a third of `ttl`.
    pub renew: Duration,
}

impl Timing {
    /// How long after sending the last successful renewal new work may be begun.
    pub fn no_new_work(self) -> Duration {
        self.ttl * 2 / 3
    }

    /// How long after sending the last successful renewal guests may run; then they are interrupted
    /// and the holder is silent.
    pub fn silent(self) -> Duration {
        self.ttl * 13 / 15
    }

    /// The wait after a renewal without an answer.
    pub fn retry(self) -> Duration {
        self.renew / 4
    }
}

/// A lease from its holder's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    timing: Timing,
    trusted_from: Mono,
    renew_at: Mono,
    renewing: bool,
}

impl Lease {
    /// A lease that was requested at `sent` and granted.
    pub fn new(timing: Timing, sent: Mono) -> Lease {
        Lease { timing, trusted_from: sent, renew_at: sent + timing.renew, renewing: false }
    }

    /// Whether new work may be begun at `now`.
    pub fn may_begin(&self, now: Mono) -> bool {
        now < self.trusted_from + self.timing.no_new_work()
    }

    /// How long the lease can still be trusted at `now`.
    pub fn trusted_for(&self, now: Mono) -> Duration {
        (self.trusted_from + self.timing.ttl).since(now)
    }

    /// When its holder must be silent, unless it renews before.
    pub fn silent_at(&self) -> Mono {
        self.trusted_from + self.timing.silent()
    }

    /// Whether its holder must be silent.
    pub fn is_over(&self, now: Mono) -> bool {
        now >= self.silent_at()
    }

    /// When the holder has to act next.
    pub fn deadline(&self) -> Mono {
        if self.renewing { self.silent_at() } else { self.silent_at().min(self.renew_at) }
    }

    /// Whether a renewal has to be sent now; if so, it counts as under way.
    pub fn begin_renewal(&mut self, now: Mono) -> bool {
        let due = !self.renewing && now >= self.renew_at;
        self.renewing |= due;
        due
    }

    /// Handles the answer to a renewal sent at `sent`: `Some(true)`: kept; `Some(false)`: lost;
    /// none: no answer. Returns whether the lease is still held.
    pub fn renewed(&mut self, now: Mono, sent: Mono, kept: Option<bool>) -> bool {
        if sent < self.trusted_from {
            // It was sent for an earlier lease, and says nothing of this one.
            return true;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_renewal_of_an_earlier_lease_says_nothing_of_this_one() {
        let timing = Timing { ttl: Duration::from_secs(15), renew: Duration::from_secs(5) };
        let at = |seconds: u64| Mono(seconds * 1_000_000);
        let mut lease = Lease::new(timing, at(20));
        assert!(lease.renewed(at(21), at(7), Some(false)));
        assert!(lease.begin_renewal(at(25)));
        assert!(lease.renewed(at(26), at(7), Some(true)));
        assert!(!lease.begin_renewal(at(26)), "the one of this lease is under way");
        assert!(!lease.renewed(at(26), at(25), Some(false)));
    }
}
