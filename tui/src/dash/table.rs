//! A table's model: its columns, its order, and its selected row.
//!
//! A column is a value: its heading, its width, the content of its cells and what it sorts by. One
//! array of columns per table is all that the drawing, the sorting and the palette need.
//!
//! The selection is an id and never an index: it follows a row that moves. If the selected row
//! disappears, the row that takes its place is selected.

use std::borrow::Borrow;
use std::cell::Cell as Shared;
use std::cmp::Ordering;

use super::context::Context;
use super::key::{Code, Key};

/// The width of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A fixed number of terminal columns.
    Fixed(u16),
    /// At least this many, plus a share of the remaining columns.
    Fill(u16),
}

/// How a cell is emphasised, by meaning; the theme has a style for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Emphasis {
    /// Plain text.
    Text,
    /// Less important text.
    Dim,
    /// A good state.
    Good,
    /// A warning.
    Warn,
    /// A problem.
    Bad,
    /// A highlight that is not a problem.
    Accent,
    /// A bar.
    Bar,
    /// A small curve.
    Spark,
}

/// The content of a cell.
pub type Cell = (String, Emphasis);

/// A cell of plain text.
pub fn plain(words: impl Into<String>) -> Cell {
    (words.into(), Emphasis::Text)
}

/// The part of a column that does not depend on its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heading {
    /// Its name; empty: it has none, and the palette does not offer it.
    pub name: &'static str,
    /// Its width.
    pub width: Width,
    /// Whether its content is right-aligned.
    pub right: bool,
    /// Without enough room, the columns with the highest value are dropped first; 0: never.
    pub priority: u8,
    /// Whether the table can be sorted by it.
    pub sorts: bool,
    /// Whether the first order that the palette chooses is descending.
    pub descending: bool,
    /// Whether all rows of a group have the same content: only a list of several groups has the column.
    pub of_groups: bool,
}

/// A column of a table with rows `R`.
#[derive(Debug)]
pub struct Column<R> {
    /// Its heading.
    pub heading: Heading,
    /// The content of a row's cell; called for visible rows only.
    pub cell: fn(&R, &Context<'_>) -> Cell,
    /// What a row is sorted by.
    pub key: for<'r> fn(&'r R, &Context<'_>) -> SortKey<'r>,
}

impl<R> Column<R> {
    const fn new(
        name: &'static str,
        width: Width,
        priority: u8,
        right: bool,
        cell: fn(&R, &Context<'_>) -> Cell,
    ) -> Column<R> {
        let heading = Heading {
            name,
            width,
            right,
            priority,
            sorts: false,
            descending: false,
            of_groups: false,
        };
        Column { heading, cell, key: |_, _| SortKey::Unknown }
    }

    /// A column of text.
    pub const fn left(
        name: &'static str,
        width: Width,
        priority: u8,
        cell: fn(&R, &Context<'_>) -> Cell,
    ) -> Column<R> {
        Column::new(name, width, priority, false, cell)
    }

    /// A column of numbers.
    pub const fn right(
        name: &'static str,
        width: Width,
        priority: u8,
        cell: fn(&R, &Context<'_>) -> Cell,
    ) -> Column<R> {
        Column::new(name, width, priority, true, cell)
    }

    /// The column, with what it sorts by.
    pub const fn by(mut self, key: for<'r> fn(&'r R, &Context<'_>) -> SortKey<'r>) -> Column<R> {
        self.heading.sorts = true;
        self.key = key;
        self
    }

    /// The column, sorted in descending order at first.
    pub const fn descending(mut self) -> Column<R> {
        self.heading.descending = true;
        self
    }

    /// The column, only for rows of several groups.
    pub const fn of_groups(mut self) -> Column<R> {
        self.heading.of_groups = true;
        self
    }
}

/// The headings of columns.
pub fn headings<R>(columns: &[Column<R>]) -> Vec<Heading> {
    columns.iter().map(|column| column.heading).collect()
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

impl<'a> SortKey<'a> {
    /// A number, if it is known.
    pub fn number(number: Option<f64>) -> SortKey<'a> {
        number.map_or(SortKey::Unknown, SortKey::Number)
    }

    /// A text, if it is known.
    pub fn text(text: Option<&'a str>) -> SortKey<'a> {
        text.map_or(SortKey::Unknown, SortKey::Text)
    }

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

/// The order of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Order {
    /// The column it is sorted by; none: the original order of the rows.
    pub by: Option<usize>,
    /// Whether the order is descending.
    pub descending: bool,
}

impl Order {
    /// Sorts by a column, or reverses the order if it is already sorted by it.
    pub fn by(&mut self, column: usize, headings: &[Heading]) {
        self.descending = match self.by == Some(column) {
            true => !self.descending,
            false => headings.get(column).is_some_and(|heading| heading.descending),
        };
        self.by = Some(column);
    }

    /// Sorts by the next column; after the last, by none.
    pub fn next(&mut self, headings: &[Heading]) {
        let from = self.by.map_or(0, |at| at + 1);
        self.by = (from..headings.len()).find(|at| headings[*at].sorts);
    }

    /// Reverses the order.
    pub fn reverse(&mut self) {
        self.descending = !self.descending;
    }

    /// The rows in this order; equal ones keep theirs.
    pub fn arrange<R, T>(self, columns: &[Column<R>], rows: Vec<T>, cx: &Context<'_>) -> Vec<T>
    where
        T: Borrow<R> + Copy,
    {
        let Some(column) = self.by.and_then(|at| columns.get(at)) else { return rows };
        let mut keyed: Vec<(SortKey<'_>, T)> =
            rows.iter().map(|row| ((column.key)(row.borrow(), cx), *row)).collect();
        keyed.sort_by(|(a, _), (b, _)| a.compare(b, self.descending));
        keyed.into_iter().map(|(_, row)| row).collect()
    }
}

/// A table's selection and order. `K` identifies a row.
#[derive(Debug, Clone, Default)]
pub struct TableState<K> {
    selected: Option<K>,
    /// The last index of the selected row.
    at: usize,
    /// The order of the rows.
    pub order: Order,
    /// What was drawn last; the drawing writes it.
    pub seen: Shared<Seen>,
}

impl<K: Clone + PartialEq> TableState<K> {
    /// A table sorted by that column.
    pub fn sorted(column: usize, descending: bool) -> TableState<K> {
        let order = Order { by: Some(column), descending };
        TableState { order, ..TableState::unsorted() }
    }

    /// A table in the original order of its rows.
    pub fn unsorted() -> TableState<K> {
        TableState { selected: None, at: 0, order: Order::default(), seen: Shared::default() }
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
}
