//! What is known: the connection, the newest picture, the one that is shown, and the pictures
//! before it.
//!
//! ```text
//!          f                  <                       <
//!  live ──────> frozen ──────────────> rewound ──────────────> rewound, earlier
//!    ^            │ f                    │ f, or > past the newest
//!    └────────────┴──────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use besom_core::snapshot::{Attention, Snapshot, Subject, Thresholds, Urgency, attention, span};
use besom_core::time::Time;

use super::context::{Context, Details};
use super::history::History;
use super::trends::Trends;

/// The connection to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// There was none yet.
    Connecting,
    /// It stands.
    Live,
    /// It is lost.
    Lost {
        /// Since when, by the clock of the machine that shows.
        since: Time,
        /// Why.
        why: String,
        /// When it is tried again.
        retry_at: Option<Time>,
    },
}

/// Which picture is shown.
#[derive(Debug, Clone)]
pub enum Shown {
    /// The newest, always.
    Live,
    /// The newest of a moment, kept.
    Frozen(Arc<Snapshot>),
    /// One of the history.
    Rewound(Arc<Snapshot>),
}

/// What is known.
#[derive(Debug)]
pub struct Data {
    /// The connection.
    pub connection: Connection,
    /// Which picture is shown.
    pub shown: Shown,
    /// Answers.
    pub(super) details: Details,
    /// The newest picture; none: there was none yet.
    newest: Option<Arc<Snapshot>>,
    /// When it came, by the clock here.
    received: Time,
    /// How far the deployment's clock is ahead of the one here, in microseconds.
    ahead_us: i64,
    /// The clock here.
    local: Time,
    history: History,
    trends: Trends,
    attention: Vec<Attention>,
    /// Shown before there is a picture.
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
    /// The picture that is shown.
    pub fn snap(&self) -> &Arc<Snapshot> {
        match &self.shown {
            Shown::Live => self.newest.as_ref().unwrap_or(&self.nothing),
            Shown::Frozen(snap) | Shown::Rewound(snap) => snap,
        }
    }

    /// Whether there was a picture yet.
    pub fn has_picture(&self) -> bool {
        self.newest.is_some()
    }

    /// The clock here, as of the last tick.
    pub fn local(&self) -> Time {
        self.local
    }

    /// The deployment's clock, as far as it is known here.
    pub fn clock(&self) -> Time {
        Time(self.local.0.saturating_add(self.ahead_us))
    }

    /// How old the picture is that is shown; none: there is none.
    pub fn age(&self) -> Option<Duration> {
        let newest = self.newest.as_ref()?;
        Some(match &self.shown {
            Shown::Live => self.local.since(self.received),
            Shown::Frozen(snap) | Shown::Rewound(snap) => {
                newest.at.since(snap.at) + self.local.since(self.received)
            }
        })
    }

    /// Whether what is shown is the present.
    pub fn is_live(&self) -> bool {
        matches!((&self.connection, &self.shown), (Connection::Live, Shown::Live))
    }

    /// The time of the picture: it goes on only while the picture is live.
    pub fn now(&self) -> Time {
        match &self.shown {
            Shown::Live if self.connection == Connection::Live || self.newest.is_none() => {
                self.clock()
            }
            Shown::Live => Time(self.received.0.saturating_add(self.ahead_us)),
            Shown::Frozen(snap) | Shown::Rewound(snap) => snap.at,
        }
    }

    /// What a screen sees.
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

    /// How far one can go back.
    pub fn reach(&self) -> Option<Time> {
        self.history.first().map(|snap| snap.at)
    }

    /// Takes the time in; true: another second is shown.
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

    /// Takes a picture in.
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
                || "trying again".to_owned(),
                |at| format!("next try in {}", span(at.since(self.local))),
            );
            let lost = Attention {
                urgency: Urgency::Alarm,
                subject: Subject::Leader,
                text: format!(
                    "no host answers for {}; {again}: what is shown is of before",
                    span(self.local.since(*since))
                ),
                cause: Some(why.clone()),
            };
            self.attention.insert(0, lost);
        }
    }

    /// The connection is another one than before.
    pub(super) fn connect(&mut self, connection: Connection) {
        self.connection = connection;
        self.look();
    }

    /// Takes in what the host has counted before somebody looked.
    pub(super) fn seed(&mut self, samples: &[besom_core::snapshot::DepthSample]) {
        self.trends.seed(samples);
    }

    /// Keeps the picture that is shown, or returns to the newest.
    pub(super) fn freeze(&mut self) {
        self.shown = match (&self.shown, &self.newest) {
            (Shown::Live, Some(snap)) => Shown::Frozen(Arc::clone(snap)),
            _ => Shown::Live,
        };
        self.look();
    }

    /// Goes back; false: there is nothing earlier.
    pub(super) fn back(&mut self) -> bool {
        let Some(earlier) = self.history.before(self.snap().at).cloned() else { return false };
        self.shown = Shown::Rewound(earlier);
        self.look();
        true
    }

    /// Goes to the last picture at or before a time; false: there is none.
    pub(super) fn back_to(&mut self, at: Time) -> bool {
        let Some(earlier) = self.history.before(Time(at.0.saturating_add(1))).cloned() else {
            return false;
        };
        self.shown = Shown::Rewound(earlier);
        self.look();
        true
    }

    /// Goes to the first picture at or after a time, or to the present.
    pub(super) fn forward_to(&mut self, at: Time) {
        let later = self.history.after(Time(at.0.saturating_sub(1))).cloned();
        let newest = self.newest.as_ref().map(|snap| snap.at);
        self.shown = match later.filter(|later| Some(later.at) < newest) {
            Some(later) => Shown::Rewound(later),
            None => Shown::Live,
        };
        self.look();
    }

    /// The time of the first picture at or after a time, as far back as pictures are kept.
    pub(super) fn shown_after(&self, at: Time) -> Option<Time> {
        let first = self.history.first()?;
        if at < first.at {
            return None;
        }
        self.history.after(Time(at.0.saturating_sub(1))).map(|snap| snap.at)
    }

    /// When the events happened that are known now, newest first.
    pub(super) fn event_times(&self) -> Vec<Time> {
        self.newest.iter().flat_map(|snap| &snap.events).map(|event| event.at).collect()
    }

    /// Goes forward, to the present at last; false: it is there already.
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
