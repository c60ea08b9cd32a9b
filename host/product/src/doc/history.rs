//! Reads the history of documents.

use std::fmt::Write as _;

use besom_core::ids::TaskName;

use super::Name;
use besom_ports::history::{PAGE, Rows};
use besom_ports::store::{HistoryQuery, HistoryRow, Result, Store};

/// The history of a document by these tasks, newest first, with a maximum number of rows per task.
pub(super) async fn of_document(
    store: &dyn Store,
    name: &Name,
    tasks: &[TaskName],
    rows_max: u32,
) -> Result<Vec<HistoryRow>> {
    let mut history: Vec<HistoryRow> = Vec::new();
    for task in tasks {
        let query = HistoryQuery {
            task: Some(task.clone()),
            tenant: Some(name.tenant.clone()),
            key: Some(item_key(&name.key)),
            ..HistoryQuery::default()
        };
        let mut rows = Rows::of(store, query).paged(None, rows_max.min(PAGE));
        for _ in 0..rows_max {
            let Some(row) = rows.next().await? else { break };
            history.push(row);
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
