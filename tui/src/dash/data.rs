//! The dashboard's data: the connection, the newest snapshot, the snapshot that is shown, and the
//! earlier snapshots.
//!
//! ```text
//!          f                  <                       <
//!  live ──────> frozen ──────────────> rewound ──────────────> rewound, earlier
//!    ^            │ f                    │ f, or > past the newest
//!    └────────────┴──────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{Attention, Snapshot, Subject, Thresholds, Urgency, attention, span};

use super::context::{Context, Details};
use super::history::History;
use super::trends::Trends;

/// The connection to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// There has been no connection yet.
    Connecting,
    /// The connection is up.
    Live,
    /// The connection is lost.
    Lost {
        /// Since when, by the local machine's clock.
        since: Time,
        /// The error.
        why: String,
        /// When the next attempt is made; none: it is under way.
        retry_at: Option<Time>,
    },
}

/// Which snapshot is shown.
#[derive(Debug, Clone)]
pub enum Shown {
    /// Always the newest.
    Live,
    /// The newest at the time of freezing.
    Frozen(Arc<Snapshot>),
    /// An earlier one.
    Rewound(Arc<Snapshot>),
}

/// The dashboard's data.
#[derive(Debug)]
pub struct Data {
    /// The connection.
    pub connection: Connection,
    /// Which snapshot is shown.
    pub shown: Shown,
    /// Answers to the screens' questions.
    pub(super) details: Details,
    /// The newest snapshot; none: none has arrived yet.
    newest: Option<Arc<Snapshot>>,
    /// When it arrived, by the local clock.
    received: Time,
    /// How far the deployment's clock is ahead of the local clock, in microseconds.
    ahead_us: i64,
    /// The local clock, as of the last tick.
    local: Time,
    history: History,
    trends: Trends,
    attention: Vec<Attention>,
    /// An empty snapshot, shown until the first one arrives.
    nothing: Arc<Snapshot>,
}

impl Default for Data {
    fn default() -> Data {
        Data {
            connection: Connection::Connecting,
            shown: Shown::Live,
            details: Details::default(),
            newest: None,
            received: Time::EPOCH,
            ahead_us: 0,
            local: Time::EPOCH,
            history: History::default(),
            trends: Trends::default(),
            attention: Vec::new(),
            nothing: Arc::default(),
        }
    }
}

impl Data {
    /// The snapshot that is shown.
    pub fn snap(&self) -> &Arc<Snapshot> {
        match &self.shown {
            Shown::Live => self.newest.as_ref().unwrap_or(&self.nothing),
            Shown::Frozen(snap) | Shown::Rewound(snap) => snap,
        }
    }

    /// Whether a snapshot has arrived.
    pub fn has_picture(&self) -> bool {
        self.newest.is_some()
    }

    /// The local clock, as of the last tick.
    pub fn local(&self) -> Time {
        self.local
    }

    /// The deployment's clock, estimated locally.
    pub fn clock(&self) -> Time {
        Time(self.local.0.saturating_add(self.ahead_us))
    }

    /// The age of the snapshot that is shown; none: there is no snapshot.
    pub fn age(&self) -> Option<Duration> {
        let newest = self.newest.as_ref()?;
        Some(match &self.shown {
            Shown::Live => self.local.since(self.received),
            Shown::Frozen(snap) | Shown::Rewound(snap) => {
                newest.at.since(snap.at) + self.local.since(self.received)
            }
        })
    }

    /// Whether the newest snapshot is shown and the connection is up.
    pub fn is_live(&self) -> bool {
        matches!((&self.connection, &self.shown), (Connection::Live, Shown::Live))
    }

    /// The time to display: it advances only while the newest snapshot is shown.
    pub fn now(&self) -> Time {
        match &self.shown {
            Shown::Live if self.connection == Connection::Live || self.newest.is_none() => {
                self.clock()
            }
            Shown::Live => Time(self.received.0.saturating_add(self.ahead_us)),
            Shown::Frozen(snap) | Shown::Rewound(snap) => snap.at,
        }
    }

    /// The context for a screen.
    pub fn context(&self, size: (u16, u16), readonly: bool) -> Context<'_> {
        let snap = self.snap();
        Context {
            snap,
            now: self.now(),
            live: self.is_live(),
            lost: matches!(self.connection, Connection::Lost { .. }),
            readonly: readonly || snap.readonly,
            size,
            details: &self.details,
            trends: &self.trends,
            attention: &self.attention,
        }
    }

    /// The time of the earliest snapshot kept.
    pub fn reach(&self) -> Option<Time> {
        self.history.first().map(|snap| snap.at)
    }

    /// Handles a tick; returns whether another second is displayed.
    pub(super) fn tick(&mut self, local: Time) -> bool {
        let second = |time: Time| time.0.div_euclid(1_000_000);
        let (before, age) = (second(self.clock()), self.age());
        self.local = local;
        let older = self.age().map(|age| age.as_secs()) != age.map(|age| age.as_secs());
        if older && matches!(self.connection, Connection::Lost { .. }) {
            self.look();
        }
        second(self.clock()) != before || older
    }

    /// Adds a snapshot.
    pub(super) fn take(&mut self, snap: Arc<Snapshot>) {
        self.connection = Connection::Live;
        self.received = self.local;
        self.ahead_us = snap.at.0.saturating_sub(self.local.0);
        self.history.push(&snap);
        self.trends.add(&snap);
        self.newest = Some(snap);
        if matches!(self.shown, Shown::Live) {
            self.look();
        }
    }

    fn look(&mut self) {
        self.attention = attention(self.snap(), &Thresholds::default());
        if let (Connection::Lost { since, why, retry_at }, Shown::Live) =
            (&self.connection, &self.shown)
        {
            let again = retry_at.map_or_else(
                || "retrying".to_owned(),
                |at| format!("next attempt in {}", span(at.since(self.local))),
            );
            let lost = Attention {
                urgency: Urgency::Alarm,
                subject: Subject::Leader,
                text: format!(
                    "no host has answered for {}; {again}; the data shown is old",
                    span(self.local.since(*since))
                ),
                cause: Some(why.clone()),
            };
            self.attention.insert(0, lost);
        }
    }

    /// Sets the state of the connection.
    pub(super) fn connect(&mut self, connection: Connection) {
        self.connection = connection;
        self.look();
    }

    /// Adds the depths that the host recorded before this dashboard connected.
    pub(super) fn seed(&mut self, samples: &[besom_snapshot::DepthSample]) {
        self.trends.seed(samples);
    }

    /// Freezes the snapshot that is shown, or returns to the newest.
    pub(super) fn freeze(&mut self) {
        self.shown = match (&self.shown, &self.newest) {
            (Shown::Live, Some(snap)) => Shown::Frozen(Arc::clone(snap)),
            _ => Shown::Live,
        };
        self.look();
    }

    /// Shows the previous snapshot; false: there is none.
    pub(super) fn back(&mut self) -> bool {
        let Some(earlier) = self.history.before(self.snap().at).cloned() else { return false };
        self.shown = Shown::Rewound(earlier);
        self.look();
        true
    }

    /// Shows the last snapshot at or before a time; false: there is none.
    pub(super) fn back_to(&mut self, at: Time) -> bool {
        let Some(earlier) = self.history.before(Time(at.0.saturating_add(1))).cloned() else {
            return false;
        };
        self.shown = Shown::Rewound(earlier);
        self.look();
        true
    }

    /// Shows the first snapshot at or after a time, or the newest.
    pub(super) fn forward_to(&mut self, at: Time) {
        let later = self.history.after(Time(at.0.saturating_sub(1))).cloned();
        let newest = self.newest.as_ref().map(|snap| snap.at);
        self.shown = match later.filter(|later| Some(later.at) < newest) {
            Some(later) => Shown::Rewound(later),
            None => Shown::Live,
        };
        self.look();
    }

    /// The time of the first snapshot at or after a time, among those kept.
    pub(super) fn shown_after(&self, at: Time) -> Option<Time> {
        let first = self.history.first()?;
        if at < first.at {
            return None;
        }
        self.history.after(Time(at.0.saturating_sub(1))).map(|snap| snap.at)
    }

    /// The times of the known events, newest first.
    pub(super) fn event_times(&self) -> Vec<Time> {
        self.newest.iter().flat_map(|snap| &snap.events).map(|event| event.at).collect()
    }

    /// Shows the next snapshot, finally the newest; false: the newest is already shown.
    pub(super) fn forward(&mut self) -> bool {
        if matches!(self.shown, Shown::Live) {
            return false;
        }
        let later = self.history.after(self.snap().at).cloned();
        let newest = self.newest.as_ref().map(|snap| snap.at);
        self.shown = match later.filter(|later| Some(later.at) < newest) {
            Some(later) => Shown::Rewound(later),
            None => Shown::Live,
        };
        self.look();
        true
    }
}
