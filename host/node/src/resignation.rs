//! The resignation of a leader on request.
//!
//! ```text
//!   None ── asked ──> Asked ── idle, or waited long enough ──> Away ── stands again ──> None
//!     ^                 │
//!     └──── lost ───────┘
//! ```
//! While a resignation is requested, nothing new is started and the work in flight is finished, so
//! that the next leader repeats nothing. After resigning, the node stays out of the election for a
//! while, so that another node can win; if there is none, it campaigns again.

use besom_core::election::Event;
use besom_core::time::Mono;

/// The state of a resignation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resignation {
    /// No resignation is requested.
    None,
    /// Requested. The node waits until this time for the work in flight.
    Asked { until: Mono },
    /// The lease was released. The node does not campaign before this time.
    Away { until: Mono },
}

impl Resignation {
    /// Requests a resignation that waits at most until `until` for the work in flight.
    pub fn ask(&mut self, until: Mono) {
        if *self == Resignation::None {
            *self = Resignation::Asked { until };
        }
    }

    /// Whether nothing new may be started.
    pub fn is_asked(self) -> bool {
        matches!(self, Resignation::Asked { .. })
    }

    /// The leadership has ended for another reason; there is nothing left to release.
    pub fn ceased(&mut self) {
        if self.is_asked() {
            *self = Resignation::None;
        }
    }

    /// When [`Resignation::step`] has to be called next.
    pub fn deadline(self) -> Option<Mono> {
        match self {
            Resignation::None => None,
            Resignation::Asked { until } | Resignation::Away { until } => Some(until),
        }
    }

    /// The event for the election, if any. `finished`: nothing is in flight. `stand_again`: when
    /// the node may campaign again if it resigns now.
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
