//! The last word on every document that the history still knows of, and how often each reason
//! for leaving one alone was given.

use std::collections::{BTreeMap, HashSet};

use besom_core::ids::{TaskName, Tenant};

use super::Error;
use super::history::Pages;
use super::show::{LEFT_ALONE, State, state_after};
use crate::ports::store::Store;

/// History rows looked through, of each task.
const LOOKED_THROUGH_MAX: u32 = 200_000;
/// Documents that are named; all of them are counted.
pub const NAMED_MAX: usize = 1_000;

/// A document that stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LeftAlone {
    /// Its tenant.
    pub tenant: Option<Tenant>,
    /// Its key, as the history has it.
    pub document: String,
    /// Left alone, or dead.
    pub state: State,
    /// Since when that is the last word.
    pub at: String,
    /// Why.
    pub reason: String,
}

/// Documents that stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Words {
    /// How many there are for each reason, by its stable word.
    pub reasons: BTreeMap<String, u64>,
    /// They, newest word first; not more than [`NAMED_MAX`].
    pub documents: Vec<LeftAlone>,
    /// Whether the history went further back than was looked at.
    pub cut: bool,
}

/// Looks through the history of the tasks that compact.
///
/// # Errors
/// The store fails.
pub async fn left_alone(store: &dyn Store, tasks: &[TaskName]) -> Result<Words, Error> {
    let mut words = Words::default();
    for task in tasks {
        let mut pages = Pages::of(task.clone(), LOOKED_THROUGH_MAX);
        let mut known = HashSet::new();
        while let Some(page) = pages.next(store).await? {
            for row in page {
                // Whether it was compacted before matters for rows that say "nothing to do",
                // and those are no reason to be listed either way.
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
        }
        words.cut |= pages.cut();
    }
    Ok(words)
}
