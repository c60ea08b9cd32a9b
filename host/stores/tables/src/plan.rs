//! The queries whose plan was accepted, and the words for one whose plan is refused.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// The maximum number of remembered queries; beyond it, all are forgotten.
const REMEMBERED_MAX: usize = 4096;

/// Queries whose plan was accepted, by their text.
#[derive(Default)]
pub struct Good(Mutex<HashSet<String>>);

impl Good {
    /// Whether the plan of a query was accepted before.
    pub fn knows(&self, sql: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(sql)
    }

    /// Remembers a query.
    pub fn learn(&self, sql: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(sql.to_owned());
    }
}

/// The refusal of a read with a fault in its plan.
pub fn refusal(collection: &str, fault: &str) -> String {
    format!(
        "a read of {collection:?} {fault}: create the index that the mapping declares, beginning \
         with the tenant column, or read by another one"
    )
}
