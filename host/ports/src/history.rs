//! The history, newest first, read page by page.

use std::vec;

use besom_core::time::Time;
use besom_core::undo::Target;

use crate::store::{HistoryQuery, HistoryRow, Result, Store};

/// Number of rows read at a time, unless another one is asked for.
pub const PAGE: u32 = 1_000;

/// History rows, newest first. A page is read when the rows before it are taken.
pub struct Rows<'a> {
    store: &'a dyn Store,
    /// Selects the next page.
    query: HistoryQuery,
    /// Only rows of this time; the first page that ends before it is the last one.
    span: Option<(Time, Time)>,
    /// Only the row with this number.
    number: Option<u64>,
    page: vec::IntoIter<HistoryRow>,
    ended: bool,
}

impl<'a> Rows<'a> {
    /// All rows that match, read [`PAGE`] at a time.
    pub fn of(store: &'a dyn Store, query: HistoryQuery) -> Rows<'a> {
        let query = HistoryQuery { limit: PAGE, ..query };
        let page = Vec::new().into_iter();
        Rows { store, query, span: None, number: None, page, ended: false }
    }

    /// The rows of what can be undone.
    pub fn of_target(store: &'a dyn Store, target: &Target) -> Rows<'a> {
        let query = HistoryQuery::default();
        let query = match target {
            Target::Run(run) => HistoryQuery { run: Some(*run), ..query },
            Target::Item(run, key) => {
                let key = target.number().is_none().then(|| key.clone());
                HistoryQuery { run: Some(*run), key, ..query }
            }
            Target::Span { task, .. } => HistoryQuery { task: Some(task.clone()), ..query },
        };
        let rows = Rows::of(store, query);
        match (target, target.number()) {
            (Target::Span { from, to, .. }, _) => Rows { span: Some((*from, *to)), ..rows },
            (_, Some(number)) => {
                let rows = rows.paged(Some(number.saturating_add(1)), 1);
                Rows { number: Some(number), ..rows }
            }
            _ => rows,
        }
    }

    /// The rows with numbers below `before`, read `limit` at a time. An item that is named by its number has only one.
    #[must_use]
    pub fn paged(self, before: Option<u64>, limit: u32) -> Rows<'a> {
        match self.number {
            Some(_) => self,
            None => Rows { query: HistoryQuery { before, limit, ..self.query }, ..self },
        }
    }

    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn next(&mut self) -> Result<Option<HistoryRow>> {
        loop {
            let row = self.page.next();
            if row.is_some() || self.ended {
                return Ok(row);
            }
            self.page = self.page().await?.into_iter();
        }
    }

    /// The rows of the next page, which may be none although others follow.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn page(&mut self) -> Result<Vec<HistoryRow>> {
        let mut rows = self.store.history(&self.query).await?;
        let is_full = rows.len() >= self.query.limit as usize;
        self.ended = !is_full || self.number.is_some();
        self.query.before = rows.last().map(|row| row.id).or(self.query.before);
        if let Some((from, to)) = self.span {
            self.ended |= rows.last().is_none_or(|row| row.at < from);
            rows.retain(|row| row.at >= from && row.at <= to);
        }
        rows.retain(|row| self.number.is_none_or(|number| row.id == number));
        Ok(rows)
    }

    /// The number of the last row that was read, below which more may follow; `None`: none does.
    pub fn more(&self) -> Option<u64> {
        self.query.before.filter(|_| !self.ended)
    }
}
