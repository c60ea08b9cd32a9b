//! A table's model: its columns, its order, and its selected row.
//!
//! The selection is an id and never an index: it follows a row that moves. If the selected row
//! disappears, the row that takes its place is selected.

use std::cell::Cell;
use std::cmp::Ordering;

use super::key::{Code, Key};

/// The width of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A fixed number of terminal columns.
    Fixed(u16),
    /// At least this many, plus a share of the remaining columns.
    Fill(u16),
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// Its width.
    pub width: Width,
    /// Whether its content is right-aligned.
    pub right: bool,
    /// Without enough room, the columns with the highest value are dropped first; 0: never.
    pub priority: u8,
}

impl Column {
    /// A column of text.
    pub const fn left(name: &'static str, width: Width, priority: u8) -> Column {
        Column { name, width, right: false, priority }
    }

    /// A column of numbers.
    pub const fn right(name: &'static str, width: Width, priority: u8) -> Column {
        Column { name, width, right: true, priority }
    }
}

/// The sort key of a row.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum SortKey<'a> {
    /// A number.
    Number(f64),
    /// A text.
    Text(&'a str),
    /// Unknown: after everything that is known, in both directions.
    Unknown,
}

impl SortKey<'_> {
    fn compare(&self, other: &SortKey<'_>, descending: bool) -> Ordering {
        let known = match (self, other) {
            (SortKey::Unknown, SortKey::Unknown) => return Ordering::Equal,
            (SortKey::Unknown, _) => return Ordering::Greater,
            (_, SortKey::Unknown) => return Ordering::Less,
            (SortKey::Number(a), SortKey::Number(b)) => a.total_cmp(b),
            (SortKey::Text(a), SortKey::Text(b)) => a.cmp(b),
            (SortKey::Number(_), SortKey::Text(_)) => Ordering::Less,
            (SortKey::Text(_), SortKey::Number(_)) => Ordering::Greater,
        };
        if descending { known.reverse() } else { known }
    }
}

/// What was drawn last: for the size of a page, and for clicks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The first row shown.
    pub offset: usize,
    /// The number of rows shown.
    pub rows: u16,
    /// The terminal row of the first one.
    pub top: u16,
    /// The terminal column at which the table begins.
    pub left: u16,
    /// Its width.
    pub width: u16,
}

/// A table's selection and order. `K` identifies a row.
#[derive(Debug, Clone, Default)]
pub struct TableState<K> {
    selected: Option<K>,
    /// The last index of the selected row.
    at: usize,
    /// The column it is sorted by; none: the original order of the rows.
    pub sort: Option<usize>,
    /// Whether the order is descending.
    pub descending: bool,
    /// What was drawn last; the drawing writes it.
    pub seen: Cell<Seen>,
}

impl<K: Clone + PartialEq> TableState<K> {
    /// A table sorted by that column.
    pub fn sorted(column: usize, descending: bool) -> TableState<K> {
        TableState { selected: None, at: 0, sort: Some(column), descending, seen: Cell::default() }
    }

    /// A table in the original order of its rows.
    pub fn unsorted() -> TableState<K> {
        TableState { selected: None, at: 0, sort: None, descending: false, seen: Cell::default() }
    }

    /// Sorts by a column, or reverses the order if it is already sorted by it. `descending` is the
    /// initial direction.
    pub fn sort_by(&mut self, column: usize, descending: bool) {
        self.descending = match self.sort == Some(column) {
            true => !self.descending,
            false => descending,
        };
        self.sort = Some(column);
    }

    /// The index of the selected row among the current rows.
    pub fn place(&self, ids: &[K]) -> Option<usize> {
        if ids.is_empty() {
            return None;
        }
        // Usually it has not moved.
        let chosen = self.selected.as_ref();
        if ids.get(self.at).is_some_and(|id| Some(id) == chosen) {
            return Some(self.at);
        }
        let found = chosen.and_then(|chosen| ids.iter().position(|id| id == chosen));
        Some(found.unwrap_or_else(|| self.at.min(ids.len() - 1)))
    }

    /// The index of the row that was selected by its id; none: it is not there now. If nothing was
    /// selected yet, it is the first.
    pub fn exact(&self, ids: &[K]) -> Option<usize> {
        match &self.selected {
            None => (!ids.is_empty()).then_some(0),
            Some(chosen) => ids.iter().position(|id| id == chosen),
        }
    }

    /// Keeps the selection even if its row is not there now: it is selected again when it returns.
    pub fn hold(&mut self, ids: &[K]) {
        if let Some(place) = self.exact(ids) {
            self.select_at(place, ids);
        }
    }

    /// The id of the selected row.
    pub fn id<'a>(&self, ids: &'a [K]) -> Option<&'a K> {
        ids.get(self.place(ids)?)
    }

    /// Selects a row, shown or not.
    pub fn select(&mut self, id: K) {
        self.selected = Some(id);
    }

    /// Selects the row at that index.
    pub fn select_at(&mut self, place: usize, ids: &[K]) {
        let place = place.min(ids.len().saturating_sub(1));
        self.at = place;
        self.selected = ids.get(place).cloned();
    }

    /// Updates the index of the selection; to be called when rows may have moved.
    pub fn settle(&mut self, ids: &[K]) {
        if let Some(place) = self.place(ids) {
            self.select_at(place, ids);
        }
    }

    /// Moves the selection; false: the key does not move it.
    pub fn key(&mut self, key: Key, ids: &[K]) -> bool {
        if key.ctrl || key.alt {
            return false;
        }
        let page = usize::from(self.seen.get().rows.max(2)) - 1;
        let place = self.place(ids).unwrap_or(0);
        let to = match key.code {
            Code::Char('j') | Code::Down => place.saturating_add(1),
            Code::Char('k') | Code::Up => place.saturating_sub(1),
            Code::Char('g') | Code::Home => 0,
            Code::Char('G') | Code::End => usize::MAX,
            Code::PageDown => place.saturating_add(page),
            Code::PageUp => place.saturating_sub(page),
            _ => return false,
        };
        self.select_at(to, ids);
        true
    }

    /// Selects the row drawn at a position of the terminal; false: there is none.
    pub fn click(&mut self, x: u16, y: u16, ids: &[K]) -> bool {
        let seen = self.seen.get();
        let inside = x >= seen.left && x - seen.left < seen.width;
        if !inside || y < seen.top || y - seen.top >= seen.rows {
            return false;
        }
        let place = seen.offset + usize::from(y - seen.top);
        if place < ids.len() {
            self.select_at(place, ids);
        }
        place < ids.len()
    }

    /// Sorts by the next column; after the last, by none.
    pub fn sort_next(&mut self, columns: usize) {
        self.sort = match self.sort {
            None if columns > 0 => Some(0),
            Some(at) if at + 1 < columns => Some(at + 1),
            _ => None,
        };
    }

    /// The order in which rows are shown, as indexes.
    pub fn order<'a>(
        &self,
        mut rows: Vec<usize>,
        key: impl Fn(usize, usize) -> SortKey<'a>,
    ) -> Vec<usize> {
        let Some(column) = self.sort else { return rows };
        let mut keyed: Vec<(SortKey<'a>, usize)> =
            rows.drain(..).map(|row| (key(row, column), row)).collect();
        keyed.sort_by(|(a, i), (b, j)| a.compare(b, self.descending).then(i.cmp(j)));
        keyed.into_iter().map(|(_, row)| row).collect()
    }
}
