//! The last result of compaction for every document in the history, and how often each reason for
//! leaving a document alone was given.

use std::collections::{BTreeMap, HashSet};

use besom_core::ids::{TaskName, Tenant};

use super::Error;
use super::show::{LEFT_ALONE, State, state_after};
use besom_ports::history::Rows;
use besom_ports::store::{HistoryQuery, Store};

/// Maximum number of history rows searched per task.
const LOOKED_THROUGH_MAX: u32 = 200_000;
/// Maximum number of documents that are listed; all of them are counted.
pub const NAMED_MAX: usize = 1_000;

/// A document that is left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeftAlone {
    /// The tenant of the document.
    pub tenant: Option<Tenant>,
    /// The key of the document, as in the history.
    pub document: String,
    /// Left alone, or dead.
    pub state: State,
    /// When this result was recorded.
    pub at: String,
    /// The reason.
    pub reason: String,
}

/// The documents that are left unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Words {
    /// Number of documents for each reason, by its stable identifier.
    pub reasons: BTreeMap<String, u64>,
    /// The documents, newest result first, at most [`NAMED_MAX`].
    pub documents: Vec<LeftAlone>,
    /// Whether the history contains older rows that were not searched.
    pub cut: bool,
}

/// Searches the history of the tasks that compact.
///
/// # Errors
/// The store fails.
pub async fn left_alone(store: &dyn Store, tasks: &[TaskName]) -> Result<Words, Error> {
    let mut words = Words::default();
    for task in tasks {
        let query = HistoryQuery { task: Some(task.clone()), ..HistoryQuery::default() };
        let mut rows = Rows::of(store, query);
        let (mut known, mut read) = (HashSet::new(), 0);
        while read < LOOKED_THROUGH_MAX
            && let Some(row) = rows.next().await?
        {
            read += 1;
            // Whether it was compacted before matters only for rows that say "nothing to do",
            // and those are not listed in either case.
            let Some(state) = state_after(&row, true) else { continue };
            let identity = row.identity;
            let place = (identity.tenant.clone(), identity.key.clone());
            if !known.insert(place) || state == State::Compacted {
                continue;
            }
            let reason = row.reason.unwrap_or_default();
            let reason = reason.strip_prefix(LEFT_ALONE).unwrap_or(&reason).to_owned();
            let code = reason.split(':').next().unwrap_or_default().to_owned();
            *words.reasons.entry(code).or_default() += 1;
            if words.documents.len() < NAMED_MAX {
                let (tenant, document) = (identity.tenant, identity.key);
                let at = row.at.to_string();
                words.documents.push(LeftAlone { tenant, document, state, at, reason });
            }
        }
        words.cut |= rows.more().is_some();
    }
    Ok(words)
}
