//! Reads the history of documents page by page.

use std::fmt::Write as _;

use besom_core::ids::TaskName;

use super::Name;
use besom_ports::store::{HistoryQuery, HistoryRow, Result, Store};

/// Number of rows per page.
const PAGE_ROWS: u32 = 2_000;

/// The history that a query selects, newest first, one page at a time.
pub(super) struct Pages {
    query: HistoryQuery,
    /// Number of rows that may still be read.
    left: u32,
    /// Whether the last page reached the beginning of the history.
    ended: bool,
}

impl Pages {
    /// The history of a task, at most `rows_max` rows.
    pub(super) fn of(task: TaskName, rows_max: u32) -> Pages {
        let query = HistoryQuery { task: Some(task), ..HistoryQuery::default() };
        Pages { query, left: rows_max, ended: false }
    }

    /// The next page; `None` after the last.
    pub(super) async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<HistoryRow>>> {
        if self.ended || self.left == 0 {
            return Ok(None);
        }
        self.query.limit = self.left.min(PAGE_ROWS);
        let page = store.history(&self.query).await?;
        self.ended = page.len() < self.query.limit as usize;
        self.query.before = page.last().map(|row| row.id);
        self.left -= self.query.limit;
        Ok(Some(page))
    }

    /// Whether rows were left out because of the limit.
    pub(super) fn cut(&self) -> bool {
        !self.ended && self.left == 0
    }
}

/// The history of a document by these tasks, newest first, with a maximum number of rows per task.
pub(super) async fn of_document(
    store: &dyn Store,
    name: &Name,
    tasks: &[TaskName],
    rows_max: u32,
) -> Result<Vec<HistoryRow>> {
    let mut history: Vec<HistoryRow> = Vec::new();
    for task in tasks {
        let mut pages = Pages::of(task.clone(), rows_max);
        pages.query.tenant = Some(name.tenant.clone());
        pages.query.key = Some(item_key(&name.key));
        while let Some(page) = pages.next(store).await? {
            history.extend(page);
        }
    }
    history.sort_by_key(|row| std::cmp::Reverse(row.id));
    Ok(history)
}

/// The key of a document's item: the document's own key, with separators escaped as plugins do
/// (`besom_sdk::key`).
pub(super) fn item_key(document: &str) -> String {
    let mut key = String::with_capacity(document.len());
    for (at, c) in document.chars().enumerate() {
        if matches!(c, '/' | '%') || (at == 0 && matches!(c, '#' | '@' | '=' | '!' | '~')) {
            let _ = write!(key, "%{:02X}", u32::from(c));
        } else {
            key.push(c);
        }
    }
    key
}
