//! What is kept of items so that they can be undone, and how rows are put back.

use besom_core::books::Entry;
use besom_core::ids::Tenant;
use besom_core::queue::Decision;
use besom_core::time::Time;
use besom_core::value::{Field, RowKey};
use serde::{Deserialize, Serialize};

/// A row before a commit changed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeImage {
    /// The collection of the row.
    pub collection: String,
    /// The tenant of the row; `None` if the collection has no tenant column.
    pub tenant: Option<Tenant>,
    /// The key of the row.
    pub key: RowKey,
    /// The names and values of all mapped columns; `None`: the row did not exist.
    pub row: Option<Vec<Field>>,
    /// Every column of the table, mapped or not, in the form in which the database gives it: SQLite its storage
    /// class, PostgreSQL a text in its own spelling, and bytes for `bytea`. Empty: the row did not exist.
    pub stored: Vec<Field>,
    /// How the commit left the row.
    pub left: Left,
}

/// How a commit left a row that it changed: by this it is known whether somebody has changed the row since.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    /// A version of Besom has kept the row that did not record it.
    #[default]
    Unknown,
    /// It is deleted.
    Gone,
    /// These columns were set, or inserted, as the proposal spelt them.
    Set(Vec<Field>),
    /// These columns were set, or inserted, in the form of [`BeforeImage::stored`].
    As(Vec<Field>),
    /// It is deleted, and was inserted into this collection with all its columns.
    Moved(String),
    /// It is the other place of a row that was moved.
    Copy,
}

/// What is kept of an item, so that it can be undone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeptItem {
    /// The version of the item; `None`: a version of Besom has kept it that did not record it.
    pub version: Option<String>,
    /// The collections of its rows, each once.
    pub collections: Vec<String>,
    /// Number of rows.
    pub rows: u64,
    /// What it was given when it was executed; `None`: a version of Besom has kept it that did not record it.
    pub given: Option<Given>,
    /// Number of its rows that were purged.
    pub purged: u64,
    /// The collections of these rows, each once.
    pub purged_of: Vec<String>,
}

/// What an item was given when it was executed, and what its plugin proposed, so that the call can be repeated.
/// The rest is in its history row: its identity, its run, and the commit, whose id has the seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The present.
    pub now: Time,
    /// The route of the item; `None`: its key.
    pub route: Option<String>,
    /// The payload of the item.
    pub payload: Vec<u8>,
    /// The slot of its run.
    pub planned_at: Time,
    /// Its failed executions before this one.
    pub attempts: u32,
    /// How often a guard had failed.
    pub guard_retries: u32,
    /// [`besom_core::proposal::Proposal::digest`] of what was proposed.
    pub proposal: u128,
}

impl Given {
    /// What the item of an entry was given, where `now` was the present; `None`: nothing was proposed for it.
    pub fn of(entry: &Entry, now: Time) -> Option<Given> {
        let Decision::Apply { proposal, .. } = &entry.decision else { return None };
        let item = &entry.item;
        Some(Given {
            now,
            route: (item.route != item.identity.key).then(|| item.route.clone()),
            payload: item.payload.clone(),
            planned_at: item.planned_at,
            attempts: item.attempts,
            guard_retries: item.guard_retries,
            proposal: proposal.digest(),
        })
    }
}

/// The result of putting rows back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Restored {
    /// Number of rows that were changed.
    pub rows: u64,
    /// Number of rows that were as they had been, or that an earlier attempt has put back.
    pub already: u64,
    /// Rows that stay as they are.
    pub stay: Vec<Staying>,
    /// What is different although rows were put back, and what could not be looked at.
    pub notes: Vec<String>,
    /// The triggers of the tables that were changed.
    pub triggers: Vec<String>,
}

/// A row that stays as it is, although it was to be put back.
#[derive(Debug, Clone, PartialEq)]
pub struct Staying {
    /// The collection of the row.
    pub collection: String,
    /// Its key.
    pub key: RowKey,
    /// What keeps it from being put back, in words for the user.
    pub why: String,
    /// The row as it was kept, in the form of [`BeforeImage::stored`]; empty: it did not exist.
    pub kept: Vec<Field>,
    /// The row as it is now; `None`: there is none with this key.
    pub now: Option<Vec<Field>>,
}
