//! Decides whether this node reaches the store, and whether it steps aside because it does not.
//!
//! The lease service and the store are two servers: a node that reaches the first but not the
//! second would keep its leadership and its partitions, and no node could do its work. A node
//! therefore probes the store, tells the other members when it cannot reach it, and steps aside
//! once it has not reached it for a whole lease while another member did: it resigns the
//! leadership, does not campaign, and has no share in the ring. If no member reaches the store,
//! there is no node to hand work to, so all members keep what they have.
//!
//! ```text
//!            missed                  for a lease, and another reaches it
//! Reaching ─────────> Missing ──────────────────────────────────────────> Aside
//!    ^                   │ answered [`STEADY`] times in a row                │
//!    └───────────────────┴──────────────────────────────────────────────────┘
//! ```
//!
//! This module does not know what a probe asks, nor how the other members are told.

use std::time::Duration;

use crate::lease::Timing;
use crate::time::{Mono, Time};

/// Consecutive answers after which the store counts as reachable again: a connection that loses
/// half of the requests does not count as repaired.
pub const STEADY: u32 = 2;
/// The leases after which an outage is told again while it lasts: its reason may be another by then.
const TELL_AGAIN: u32 = 2;

/// The store is unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// Since when, by this node's clock.
    pub since: Time,
    /// Whether the node has stepped aside.
    pub aside: bool,
}

/// An input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The result of the probe that was begun at that time.
    Probed(Mono, bool),
    /// Whether any other member reports that it reaches the store.
    Others(bool),
    /// What this node's own registration says of its store.
    Registered(Option<Away>),
    /// Whether the other members were told of this state.
    Told(Option<Away>, bool),
}

/// An output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Send the store a cheap query; the time identifies the probe. Without an answer within the
    /// duration, the store counts as unreachable.
    Probe(Mono, Duration),
    /// Tell the other members; none: this node reaches the store.
    Tell(Option<Away>),
    /// Resign the leadership and do not campaign.
    StandAside,
    /// Campaign again.
    ComeBack,
}

#[derive(Debug, Clone, Copy)]
struct Missed {
    away: Away,
    /// Since when another member has reached the store while this node has not.
    alone: Option<Mono>,
    /// Consecutive answers.
    answers: u32,
}

/// The store's reachability from one node's point of view.
#[derive(Debug, Clone)]
pub struct Reach {
    timing: Timing,
    probing: Option<Mono>,
    probe_at: Mono,
    others: bool,
    missed: Option<Missed>,
    /// What the other members were told last; none: it is not known whether they were.
    told: Option<Option<Away>>,
    telling: bool,
    tell_at: Mono,
    /// While the others know of an outage: when it is told again.
    tell_again_at: Option<Mono>,
}

impl Reach {
    /// A node that has just reached the store.
    pub fn new(timing: Timing, now: Mono) -> Reach {
        Reach {
            timing,
            probing: None,
            probe_at: now,
            others: false,
            missed: None,
            told: Some(None),
            telling: false,
            tell_at: now,
            tell_again_at: None,
        }
    }

    /// The outage; none: the store answers.
    pub fn away(&self) -> Option<Away> {
        self.missed.map(|missed| missed.away)
    }

    /// Whether that probe is pending and its answer is news.
    pub fn is_probing(&self, begun: Mono) -> bool {
        self.probing == Some(begun)
    }

    /// When [`Event::Tick`] has to be sent next.
    pub fn deadline(&self) -> Mono {
        let probe = self.probing.map_or(self.probe_at, |sent| sent + self.timing.renew);
        let aside = self.missed.and_then(|missed| self.aside_at(&missed));
        [Some(probe), aside, self.tell_next()].into_iter().flatten().min().unwrap_or(probe)
    }

    /// When the other members have to be told next.
    fn tell_next(&self) -> Option<Mono> {
        if self.telling {
            return None;
        }
        match self.told == Some(self.away()) {
            true => self.missed.and(self.tell_again_at),
            false => Some(self.tell_at),
        }
    }

    fn aside_at(&self, missed: &Missed) -> Option<Mono> {
        missed.alone.filter(|_| !missed.away.aside).map(|since| since + self.timing.ttl)
    }

    /// Handles an event and pushes the resulting commands.
    pub fn step(&mut self, now: Mono, wall: Time, event: Event, out: &mut Vec<Command>) {
        match event {
            Event::Tick => {}
            Event::Probed(sent, answered) if self.probing == Some(sent) => {
                self.probing = None;
                if answered {
                    self.answered(now, sent, out);
                } else {
                    self.missed(now, wall, sent);
                }
            }
            // The store already counts as unreachable.
            Event::Probed(..) => {}
            Event::Others(reach) => self.others = reach,
            // It differs if the lease service was restored to an earlier state.
            Event::Registered(away) if !self.telling => self.told = Some(away),
            Event::Registered(_) => {}
            Event::Told(away, true) => {
                self.telling = false;
                self.told = Some(away);
                self.tell_again_at = away.map(|_| now + self.timing.ttl * TELL_AGAIN);
            }
            // They may be told later, with the node's next registration.
            Event::Told(_, false) => {
                (self.telling, self.told) = (false, None);
                self.tell_at = now + self.timing.retry();
            }
        }
        if let Some(sent) = self.probing.filter(|sent| now >= *sent + self.timing.renew) {
            self.probing = None;
            self.missed(now, wall, sent);
        }
        if self.probing.is_none() && now >= self.probe_at {
            self.probing = Some(now);
            out.push(Command::Probe(now, self.timing.renew));
        }
        if let Some(missed) = &mut self.missed {
            // If no member reached the store until now, a whole lease is counted from now: when the
            // store was unreachable for all, all members come back within that time.
            missed.alone = self.others.then(|| missed.alone.unwrap_or(now));
        }
        if let Some(missed) = self.missed
            && self.aside_at(&missed).is_some_and(|at| now >= at)
        {
            let away = Away { aside: true, ..missed.away };
            self.missed = Some(Missed { away, ..missed });
            out.push(Command::StandAside);
        }
        if self.tell_next().is_some_and(|at| now >= at) {
            self.telling = true;
            out.push(Command::Tell(self.away()));
        }
    }

    fn answered(&mut self, now: Mono, sent: Mono, out: &mut Vec<Command>) {
        let Some(missed) = &mut self.missed else {
            self.probe_at = sent + self.timing.renew;
            return;
        };
        missed.answers += 1;
        self.probe_at = now + self.timing.retry();
        if missed.answers >= STEADY {
            let was_aside = missed.away.aside;
            self.missed = None;
            self.probe_at = sent + self.timing.renew;
            if was_aside {
                out.push(Command::ComeBack);
            }
        }
    }

    fn missed(&mut self, now: Mono, wall: Time, sent: Mono) {
        self.probe_at = now + self.timing.retry();
        match &mut self.missed {
            Some(missed) => missed.answers = 0,
            None => {
                let since = Time(wall.0.saturating_sub(now.since(sent).as_micros() as i64));
                let away = Away { since, aside: false };
                let alone = self.others.then_some(sent);
                self.missed = Some(Missed { away, alone, answers: 0 });
            }
        }
    }
}

#[cfg(test)]
mod tests;
