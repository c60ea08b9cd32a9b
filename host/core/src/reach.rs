//! Whether this node reaches the store, and whether it stands aside because it does not.
//!
//! The lease service and the store are two servers: a node that reaches the first and not the
//! second would keep its leadership and its partitions for as long as that lasts, and nobody
//! could do its work. So a node probes the store, tells the others when it misses it, and stands
//! aside once it has missed it for a lease while another member reached it: it gives the
//! leadership up, stands for no election and has no part of the ring. Where nobody reaches the
//! store there is nobody to hand anything to, so everybody keeps what they have.
//!
//! ```text
//!            missed                  for a lease, and another reaches it
//! Reaching ─────────> Missing ──────────────────────────────────────────> Aside
//!    ^                   │ answered [`STEADY`] times in a row                │
//!    └───────────────────┴──────────────────────────────────────────────────┘
//! ```
//!
//! This module does not know what a probe asks, nor how the others are told.

use std::time::Duration;

use crate::lease::Timing;
use crate::time::{Mono, Time};

/// Answers in a row after which a store that was missed is believed to be there: a way that
/// lets half of everything through is not taken for mended.
pub const STEADY: u32 = 2;

/// A store that is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// Since when, by this node's clock.
    pub since: Time,
    /// Whether the node stands aside.
    pub aside: bool,
}

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// What came of the probe that was begun at that time.
    Probed(Mono, bool),
    /// Whether any other member reaches the store, as far as it says.
    Others(bool),
    /// Whether the others were told so.
    Told(Option<Away>, bool),
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Ask the store something that costs little; the time names the probe. Without an answer
    /// after that span it is taken for missed.
    Probe(Mono, Duration),
    /// Tell the others; none: this node reaches the store.
    Tell(Option<Away>),
    /// Give the leadership up and stand for no election.
    StandAside,
    /// Stand for it again.
    ComeBack,
}

#[derive(Debug, Clone, Copy)]
struct Missed {
    away: Away,
    since: Mono,
    /// Since when another has reached it meanwhile.
    alone: Option<Mono>,
    /// Answers in a row.
    answers: u32,
}

/// The way to the store as one node sees it.
#[derive(Debug, Clone)]
pub struct Reach {
    timing: Timing,
    probing: Option<Mono>,
    probe_at: Mono,
    others: bool,
    missed: Option<Missed>,
    told: Option<Away>,
    telling: bool,
    tell_at: Mono,
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
            told: None,
            telling: false,
            tell_at: now,
        }
    }

    /// What is missed; none: the store answers.
    pub fn away(&self) -> Option<Away> {
        self.missed.map(|missed| missed.away)
    }

    /// Whether the node stands aside.
    pub fn is_aside(&self) -> bool {
        self.missed.is_some_and(|missed| missed.away.aside)
    }

    /// Whether that probe is under way, and its answer news.
    pub fn is_probing(&self, begun: Mono) -> bool {
        self.probing == Some(begun)
    }

    /// When [`Event::Tick`] is wanted next.
    pub fn deadline(&self) -> Mono {
        let probe = self.probing.map_or(self.probe_at, |sent| sent + self.timing.renew);
        let aside = self.missed.and_then(|missed| self.aside_at(&missed));
        let tell = (!self.telling && self.told != self.away()).then_some(self.tell_at);
        [Some(probe), aside, tell].into_iter().flatten().min().unwrap_or(probe)
    }

    fn aside_at(&self, missed: &Missed) -> Option<Mono> {
        missed.alone.filter(|_| !missed.away.aside).map(|since| since + self.timing.ttl)
    }

    /// Takes an event in and pushes what is to be done.
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
            // It has been taken for missed already.
            Event::Probed(..) => {}
            Event::Others(reach) => self.others = reach,
            Event::Told(away, true) => {
                self.telling = false;
                self.told = away;
            }
            Event::Told(_, false) => {
                self.telling = false;
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
            // Who has seen nobody reach it until now waits a whole lease from now on: where it
            // has been away for all, all come back within that.
            missed.alone = self.others.then(|| missed.alone.unwrap_or(now));
        }
        if let Some(missed) = self.missed
            && self.aside_at(&missed).is_some_and(|at| now >= at)
        {
            let away = Away { aside: true, ..missed.away };
            self.missed = Some(Missed { away, ..missed });
            out.push(Command::StandAside);
        }
        if !self.telling && self.told != self.away() && now >= self.tell_at {
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
                self.missed = Some(Missed { away, since: sent, alone, answers: 0 });
            }
        }
    }

    /// For how long the store has been missed.
    pub fn missed_for(&self, now: Mono) -> Duration {
        self.missed.map_or(Duration::ZERO, |missed| now.since(missed.since))
    }
}

#[cfg(test)]
mod tests;
