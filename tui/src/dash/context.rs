//! What a screen is given to decide and to draw: the picture, the clock, and what is known
//! beside the picture.

use std::collections::BTreeMap;

use besom_core::snapshot::{Answer, Attention, Query, Snapshot};
use besom_core::time::Time;

use super::trends::Trends;

/// Answers kept beside the picture; the oldest gives way.
pub const DETAILS_MAX: usize = 64;

/// What a screen sees.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The picture: the newest, the frozen, or the one gone back to.
    pub snap: &'a Snapshot,
    /// The time of the picture by the deployment's clock: it stands still when the picture does.
    pub now: Time,
    /// Whether the picture is the newest and the connection stands.
    pub live: bool,
    /// Whether the connection is lost: what is shown is of before.
    pub lost: bool,
    /// Whether nothing may be changed from here.
    pub readonly: bool,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// What was asked for.
    pub details: &'a Details,
    /// How depths have developed.
    pub trends: &'a Trends,
    /// What deserves attention in the picture.
    pub attention: &'a [Attention],
}

/// An answer and when it came.
#[derive(Debug, Clone, PartialEq)]
pub struct Detail {
    /// The answer.
    pub answer: Answer,
    /// When it came, by the deployment's clock.
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
