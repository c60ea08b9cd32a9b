//! A leadership that somebody has asked to be given up.
//!
//! ```text
//!   None ── asked ──> Asked ── idle, or waited long enough ──> Away ── stands again ──> None
//!     ^                 │
//!     └──── lost ───────┘
//! ```
//! While it is asked for, nothing new is begun and what is in flight is finished, so that
//! the next leader has nothing to do twice. Whoever has resigned stays out of the election
//! for a while: somebody else is meant to lead, unless there is nobody else.

use besom_core::election::Event;
use besom_core::time::Mono;

/// Where a resignation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resignation {
    /// Nobody asks for one.
    None,
    /// Asked for: what is in flight is waited for until then.
    Asked { until: Mono },
    /// The lease is given up: not taken again before.
    Away { until: Mono },
}

impl Resignation {
    /// Somebody asks for it; what is in flight may take until then.
    pub fn ask(&mut self, until: Mono) {
        if *self == Resignation::None {
            *self = Resignation::Asked { until };
        }
    }

    /// Whether nothing new may be begun.
    pub fn is_asked(self) -> bool {
        matches!(self, Resignation::Asked { .. })
    }

    /// The leadership has ended by itself: there is nothing left to give up.
    pub fn ceased(&mut self) {
        if self.is_asked() {
            *self = Resignation::None;
        }
    }

    /// When [`Resignation::step`] is wanted next.
    pub fn deadline(self) -> Option<Mono> {
        match self {
            Resignation::None => None,
            Resignation::Asked { until } | Resignation::Away { until } => Some(until),
        }
    }

    /// What the election is to be told now. `finished`: nothing is in flight;
    /// `stand_again`: when a leadership given up now may be taken again.
    pub fn step(&mut self, now: Mono, finished: bool, stand_again: Mono) -> Option<Event> {
        match *self {
            Resignation::Asked { until } if finished || now >= until => {
                *self = Resignation::Away { until: stand_again };
                Some(Event::Resign)
            }
            Resignation::Away { until } if now >= until => {
                *self = Resignation::None;
                Some(Event::Rejoin)
            }
            Resignation::None | Resignation::Asked { .. } | Resignation::Away { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
