//! The input of a screen: the snapshot, the clock, and the details that were fetched.

use std::collections::BTreeMap;

use besom_core::time::Time;
use besom_snapshot::{Answer, Attention, Query, Snapshot};

use super::trends::Trends;

/// The maximum number of answers kept; the oldest are dropped.
pub const DETAILS_MAX: usize = 64;

/// What a screen decides and draws from.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The snapshot that is shown: the newest, a frozen one, or an earlier one.
    pub snap: &'a Snapshot,
    /// The time of the snapshot, by the deployment's clock; it stops while the display is frozen or
    /// rewound.
    pub now: Time,
    /// Whether the snapshot is the newest and the connection is up.
    pub live: bool,
    /// Whether the connection is lost, so that the data shown is old.
    pub lost: bool,
    /// Whether this dashboard must not change anything.
    pub readonly: bool,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// The answers to the screens' questions.
    pub details: &'a Details,
    /// The recent depths of the queues.
    pub trends: &'a Trends,
    /// The attention items of the snapshot.
    pub attention: &'a [Attention],
}

/// An answer with the time of its arrival.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// The answer.
    pub answer: Answer,
    /// When it arrived, by the deployment's clock.
    pub at: Time,
}

/// The latest answer to each question, at most [`DETAILS_MAX`] of them.
#[derive(Debug, Clone, Default)]
pub struct Details {
    kept: BTreeMap<Query, Detail>,
}

impl Details {
    /// The latest answer to a question.
    pub fn get(&self, query: &Query) -> Option<&Detail> {
        self.kept.get(query)
    }

    /// Keeps an answer.
    pub(super) fn keep(&mut self, query: Query, detail: Detail) {
        self.kept.insert(query, detail);
        while self.kept.len() > DETAILS_MAX {
            let oldest = self.kept.iter().min_by_key(|(_, detail)| detail.at);
            let Some(oldest) = oldest.map(|(query, _)| query.clone()) else { return };
            self.kept.remove(&oldest);
        }
    }
}
