//! A table's model: its columns, what it is sorted by, and which row is chosen.
//!
//! The choice is an id and never a row's number: rows that move keep it. When the chosen row is
//! gone, the one that took its place is chosen.

use std::cell::Cell;
use std::cmp::Ordering;

use super::key::{Code, Key};

/// How wide a column is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// So many columns of the terminal.
    Fixed(u16),
    /// At least so many, and a share of what is left over.
    Fill(u16),
}

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub name: &'static str,
    /// How wide it is.
    pub width: Width,
    /// Whether what is in it stands at the right.
    pub right: bool,
    /// Where there is no room, columns with the highest go first; 0: it stays.
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

/// What a row is sorted by.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub enum SortKey<'a> {
    /// A number.
    Number(f64),
    /// A text.
    Text(&'a str),
    /// Unknown: behind everything that is known, in both directions.
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

/// What was drawn last: how far a page goes, and which row a click hits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// The first row shown.
    pub offset: usize,
    /// How many were shown.
    pub rows: u16,
    /// The terminal's row of the first one.
    pub top: u16,
    /// The terminal's first column of the table.
    pub left: u16,
    /// Its width.
    pub width: u16,
}

/// A table's choice and order. `K` is what a row is known by.
#[derive(Debug, Clone, Default)]
pub struct TableState<K> {
    selected: Option<K>,
    /// Where the chosen row was last.
    at: usize,
    /// The column it is sorted by; none: the order of the rows themselves.
    pub sort: Option<usize>,
    /// Whether the largest comes first.
    pub descending: bool,
    /// What was drawn last; written by the drawing.
    pub seen: Cell<Seen>,
}

impl<K: Clone + PartialEq> TableState<K> {
    /// A table sorted by that column.
    pub fn sorted(column: usize, descending: bool) -> TableState<K> {
        TableState { selected: None, at: 0, sort: Some(column), descending, seen: Cell::default() }
    }

    /// A table in the order of its rows.
    pub fn unsorted() -> TableState<K> {
        TableState { selected: None, at: 0, sort: None, descending: false, seen: Cell::default() }
    }

    /// Sorts by a column; by the one it is sorted by already, the other way round. `descending`:
    /// whether the column begins with its greatest.
    pub fn sort_by(&mut self, column: usize, descending: bool) {
        self.descending = match self.sort == Some(column) {
            true => !self.descending,
            false => descending,
        };
        self.sort = Some(column);
    }

    /// The place of the chosen row among the rows as they are shown now.
    pub fn place(&self, ids: &[K]) -> Option<usize> {
        if ids.is_empty() {
            return None;
        }
        // Most often it has not moved.
        let chosen = self.selected.as_ref();
        if ids.get(self.at).is_some_and(|id| Some(id) == chosen) {
            return Some(self.at);
        }
        let found = chosen.and_then(|chosen| ids.iter().position(|id| id == chosen));
        Some(found.unwrap_or_else(|| self.at.min(ids.len() - 1)))
    }

    /// The place of the row that was chosen by its id; none: it is not there now. Where nothing
    /// was chosen yet, it is the first.
    pub fn exact(&self, ids: &[K]) -> Option<usize> {
        match &self.selected {
            None => (!ids.is_empty()).then_some(0),
            Some(chosen) => ids.iter().position(|id| id == chosen),
        }
    }

    /// Keeps the choice, also of a row that is not there now: it is chosen again when it comes
    /// back.
    pub fn hold(&mut self, ids: &[K]) {
        if let Some(place) = self.exact(ids) {
            self.select_at(place, ids);
        }
    }

    /// The chosen row's id.
    pub fn id<'a>(&self, ids: &'a [K]) -> Option<&'a K> {
        ids.get(self.place(ids)?)
    }

    /// Chooses a row, shown or not.
    pub fn select(&mut self, id: K) {
        self.selected = Some(id);
    }

    /// Chooses the row at that place.
    pub fn select_at(&mut self, place: usize, ids: &[K]) {
        let place = place.min(ids.len().saturating_sub(1));
        self.at = place;
        self.selected = ids.get(place).cloned();
    }

    /// Keeps the choice where it is now: called when rows may have moved.
    pub fn settle(&mut self, ids: &[K]) {
        if let Some(place) = self.place(ids) {
            self.select_at(place, ids);
        }
    }

    /// Moves the choice; false: the key moves nothing.
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

    /// Chooses the row that was drawn at that place of the terminal; false: none was.
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

    /// Sorts by the next column, and by none after the last.
    pub fn sort_next(&mut self, columns: usize) {
        self.sort = match self.sort {
            None if columns > 0 => Some(0),
            Some(at) if at + 1 < columns => Some(at + 1),
            _ => None,
        };
    }

    /// The order in which rows are shown, as their numbers.
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
