//! Range reads: keyset paging over a declared index.
//!
//! Rows are ordered by (index columns, key), which is a total order; NULL comes before every value.
//! A page ends with the values of these columns in its last row. The next page continues after them
//! in a staircase of plain index ranges: first equal values but a later last column, then equal
//! values but a later second-to-last column, and so on. Unlike a comparison of whole rows this is
//! correct for NULL, and every step is one seek.
//!
//! Where indexes have NULL at their upper end, a column that may hold NULL is read in two ranges,
//! NULL and the values, instead of being sorted.

use besom_core::ids::Tenant;
use besom_core::proposal::RowRange;
use besom_core::value::{Row, RowKey, Value};
use besom_ports::store::{Error, Range, RangePage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Dialect;
use crate::mapping::{Mapped, Order};
use crate::room::Room;

/// A value as a column stores it, whatever its kind: a cursor has to find its position again.
pub trait Stored: Clone + Serialize + DeserializeOwned {
    /// Whether it is NULL.
    fn is_null(&self) -> bool;
}

impl Stored for Value {
    fn is_null(&self) -> bool {
        *self == Value::Null
    }
}

/// The position at which a page ended.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Cursor<C: Stored> {
    /// The tenant, in a read over all tenants.
    pub tenant: Option<Tenant>,
    /// The values of the ordering columns; none: before the tenant's first row.
    pub at: Option<Vec<C>>,
}

impl<C: Stored> Cursor<C> {
    /// The position after which a range is read.
    ///
    /// # Errors
    /// A refusal if it is not a page's `next`.
    pub fn of(range: &Range) -> Result<Option<Cursor<C>>, String> {
        let invalid = |_| format!("the cursor of a read of {:?} is invalid", range.collection);
        range.after.as_ref().map(|bytes| postcard::from_bytes(bytes).map_err(invalid)).transpose()
    }
}

/// The condition on an ordering column within one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<C> {
    /// The value of the row before.
    Equal(C),
    /// After the previous row's value.
    Behind(C),
    /// NULL.
    Null,
    /// Any value.
    NotNull,
}

/// The first range over an index of the mapping that a check of the database's plans reads.
pub fn tried(collection: &str, index: &str) -> Range {
    let (collection, index) = (collection.to_owned(), Some(index.to_owned()));
    Range { collection, index, limit: 1, ..Range::default() }
}

/// A page that is being read.
pub struct Page<'a, C> {
    range: &'a Range,
    /// Its index.
    pub index: Order<'a>,
    /// The columns after the prefix that order the rows.
    pub order: Vec<String>,
    /// Which of them may be NULL; a bounded one cannot.
    pub nullable: Vec<bool>,
    nulls_first: bool,
    has_tenants: bool,
    page: RangePage,
    bytes: usize,
    /// The approximate size of a page, in bytes.
    bytes_max: usize,
    /// The size limit of a single row.
    room: Room,
    /// The ordering columns of the last row examined, within the tenant.
    pub last: Option<Vec<C>>,
}

impl<'a, C: Stored> Page<'a, C> {
    /// An empty page. `nullable` says which columns may hold NULL.
    ///
    /// # Errors
    /// A refusal if the range names what the table does not have.
    pub fn new<F>(
        table: &'a Mapped<F>,
        range: &'a Range,
        room: Room,
        dialect: &Dialect,
        nullable: impl Fn(&str) -> bool,
    ) -> Result<Page<'a, C>, String> {
        let index = table.index(range)?;
        let columns = index.columns;
        if range.prefix.len() > columns.len() {
            return Err(format!("the prefix is longer than the index {columns:?}"));
        }
        let bounded = range.lower.is_some() || range.upper.is_some() || range.beyond.is_some();
        if range.prefix.len() == columns.len() && bounded {
            return Err(format!("{columns:?} has no column left for bounds"));
        }
        let (mut order, mut may_be_null): (Vec<String>, Vec<bool>) = (Vec::new(), Vec::new());
        let (fixed, rest) = columns.split_at(range.prefix.len());
        for name in rest.iter().chain(&table.collection.key) {
            if !fixed.contains(name) && !order.contains(name) {
                table.form(name)?;
                let has_value = (bounded && order.is_empty() && columns.contains(name))
                    || index.not_null.contains(name);
                may_be_null.push(!has_value && nullable(name));
                order.push(name.clone());
            }
        }
        Ok(Page {
            range,
            index,
            order,
            nullable: may_be_null,
            nulls_first: dialect.nulls_first,
            has_tenants: table.tenant.is_some(),
            page: RangePage::default(),
            bytes: 0,
            bytes_max: range.bytes_max.min(usize::try_from(room.max()).unwrap_or(usize::MAX)),
            room,
            last: None,
        })
    }

    /// Whether it ends before the next row.
    pub fn is_full(&self) -> bool {
        self.rows_left() == 0
            || (self.bytes >= self.bytes_max && !self.page.rows.is_empty())
            || (self.range.scan_max > 0 && self.page.scanned >= self.range.scan_max)
    }

    /// The number of rows that it can still take.
    pub fn rows_left(&self) -> usize {
        (self.range.limit.max(1) as usize).saturating_sub(self.page.rows.len())
    }

    /// The number of bytes that it can still take, approximately.
    pub fn bytes_left(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Counts a row that the database has examined.
    pub fn examined(&mut self) {
        self.page.scanned += 1;
    }

    /// Refuses a row that is larger than the limit of a whole read.
    ///
    /// # Errors
    /// [`Error::TooLarge`].
    pub fn holds(&self, bytes: usize) -> Result<(), Error> {
        self.room.holds(bytes)
    }

    /// Adds a row of this size, in bytes.
    pub fn take(&mut self, bytes: usize, row: Row, key: Option<RowKey>) {
        self.bytes += bytes;
        self.page.rows.push(row);
        self.page.keys.extend(key);
    }

    /// The page, and where the next one starts.
    ///
    /// # Errors
    /// A position that cannot be encoded.
    pub fn end(mut self, next: Option<Cursor<C>>) -> postcard::Result<RangePage> {
        self.page.next = next.map(|cursor| postcard::to_stdvec(&cursor)).transpose()?;
        Ok(self.page)
    }

    /// Whether a step reads the whole of a table without tenants, in order: then the first page
    /// starts at the first row, and the plan may show a full read.
    pub fn is_whole_table(&self, begin: &[Part<C>]) -> bool {
        !self.has_tenants
            && self.range.prefix.is_empty()
            && self.range.lower.is_none()
            && self.range.upper.is_none()
            && self.range.beyond.is_none()
            && self.range.conditions.is_empty()
            && begin.is_empty()
    }

    /// Whether a step reads only rows with the same values of the index as the last row of a page: an index
    /// that does not continue with the key leaves their order to a sort.
    pub fn is_of_equals(&self, begin: &[Part<C>]) -> bool {
        let rest = self.index.columns.len() - self.range.prefix.len();
        rest > 0 && fixed(begin) >= rest
    }

    /// The index ranges that follow a row (or all of them), in order: each fixes its first ordering
    /// columns.
    ///
    /// # Errors
    /// A refusal if the row has other ordering columns.
    pub fn steps(&self, after: Option<Vec<C>>) -> Result<Vec<Vec<Part<C>>>, String> {
        let Some(after) = after else { return Ok(self.whole(&[])) };
        if after.len() != self.order.len() {
            return Err("the cursor belongs to another read".to_owned());
        }
        let equal: Vec<Part<C>> = after.iter().map(|cell| Part::Equal(cell.clone())).collect();
        let mut steps = Vec::new();
        for at in (0..after.len()).rev() {
            let (before, cell) = (&equal[..at], &after[at]);
            // After a value: later values, and NULL where it comes last. After NULL: all values, or
            // nothing.
            let nulls_last = self.range.descending;
            let parts = match cell.is_null() {
                true if nulls_last => vec![],
                true => vec![Part::NotNull],
                false if nulls_last && self.nullable[at] => {
                    vec![Part::Behind(cell.clone()), Part::Null]
                }
                false => vec![Part::Behind(cell.clone())],
            };
            for part in parts {
                let mut begin = before.to_vec();
                begin.push(part);
                steps.extend(self.whole(&begin));
            }
        }
        Ok(steps)
    }

    /// All rows with this prefix: in one range if no further column may be NULL and change the
    /// order, otherwise split by it.
    fn whole(&self, begin: &[Part<C>]) -> Vec<Vec<Part<C>>> {
        // Within a range of values of one column, only the last split keeps the order.
        let at = begin.len();
        let may_be_null = !self.nulls_first && self.nullable.get(at).copied().unwrap_or(false);
        if fixed(begin) < at || !may_be_null {
            return vec![begin.to_vec()];
        }
        let with = |part: Part<C>| {
            let mut all = begin.to_vec();
            all.push(part);
            all
        };
        let mut split: Vec<Vec<Part<C>>> = self.whole(&with(Part::Null));
        let values = vec![with(Part::NotNull)];
        if self.range.descending {
            values.into_iter().chain(split).collect()
        } else {
            split.extend(values);
            split
        }
    }
}

/// A condition on the ordering columns, by their places in [`Page::order`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test<C> {
    /// The column has this value, which may be NULL.
    Equal(usize, C),
    /// After this value.
    Above(usize, C),
    /// This value or after it; for an index, beside a condition that implies it.
    AtLeast(usize, C),
    /// Before this value, or NULL.
    Below(usize, C),
    /// This value or before it, or NULL.
    AtMost(usize, C),
    /// NULL.
    Null(usize),
    /// Not NULL.
    NotNull(usize),
    /// All of these.
    All(Vec<Test<C>>),
    /// At least one of these.
    Any(Vec<Test<C>>),
}

impl<C: Stored> Page<'_, C> {
    /// The conditions for rows after one position, up to another, inclusive.
    ///
    /// # Errors
    /// A refusal if a position has other ordering columns.
    pub fn between(&self, after: Option<&[C]>, until: Option<&[C]>) -> Result<Vec<Test<C>>, String>
    where
        C: PartialEq,
    {
        let columns = self.order.len();
        if [after, until].into_iter().flatten().any(|at| at.len() != columns) {
            return Err("the cursor belongs to another read".to_owned());
        }
        let same = match (after, until) {
            (Some(a), Some(b)) => a.iter().zip(b).take_while(|(a, b)| a == b).count(),
            _ => 0,
        };
        let fixed = after.unwrap_or_default()[..same].iter().cloned().enumerate();
        let mut all: Vec<Test<C>> = fixed.map(|(at, cell)| Test::Equal(at, cell)).collect();
        if let Some(after) = after {
            // An index finds its place by the first column alone.
            if let Some(cell) = after.get(same).filter(|cell| !cell.is_null()) {
                all.push(Test::AtLeast(same, cell.clone()));
            }
            all.push(behind(after, same));
        }
        if let Some(until) = until {
            if let Some(cell) =
                until.get(same).filter(|cell| !cell.is_null() && !self.nullable[same])
            {
                all.push(Test::AtMost(same, cell.clone()));
            }
            all.push(up_to(until, same));
        }
        Ok(all)
    }
}

/// Rows after a position, which has the same values before the column `at`.
fn behind<C: Stored>(position: &[C], at: usize) -> Test<C> {
    let Some(cell) = position.get(at) else { return Test::Any(Vec::new()) };
    let later = match cell.is_null() {
        true => Test::NotNull(at),
        false => Test::Above(at, cell.clone()),
    };
    match position.len() - at {
        1 => later,
        _ => {
            let equal = Test::Equal(at, cell.clone());
            Test::Any(vec![later, Test::All(vec![equal, behind(position, at + 1)])])
        }
    }
}

/// Rows up to a position, inclusive, which has the same values before the column `at`.
fn up_to<C: Stored>(position: &[C], at: usize) -> Test<C> {
    let Some(cell) = position.get(at) else { return Test::All(Vec::new()) };
    let is_last = position.len() - at == 1;
    match (cell.is_null(), is_last) {
        (true, true) => Test::Null(at),
        (true, false) => Test::All(vec![Test::Null(at), up_to(position, at + 1)]),
        (false, true) => Test::AtMost(at, cell.clone()),
        (false, false) => {
            let equal = Test::Equal(at, cell.clone());
            let earlier = Test::Below(at, cell.clone());
            Test::Any(vec![earlier, Test::All(vec![equal, up_to(position, at + 1)])])
        }
    }
}

impl<C> Test<C> {
    /// The condition as SQL; `one` writes a comparison of a single column.
    pub fn sql<'t>(&'t self, one: &mut impl FnMut(&'t Test<C>) -> String) -> String {
        let (parts, word, none) = match self {
            Test::All(parts) => (parts, " AND ", "1 = 1"),
            Test::Any(parts) => (parts, " OR ", "1 = 0"),
            leaf => return one(leaf),
        };
        let parts: Vec<String> = parts.iter().map(|part| part.sql(one)).collect();
        match parts.is_empty() {
            true => none.to_owned(),
            false => format!("({})", parts.join(word)),
        }
    }
}

/// The positions between which a range lies, of one tenant.
pub type Ends<C> = (Option<Vec<C>>, Option<Vec<C>>);

/// The positions of a range that a commit changes, within its tenant.
///
/// # Errors
/// A refusal if one of them is not a page's `next`, or belongs to another tenant.
pub fn ends<C: Stored>(range: &RowRange) -> Result<Ends<C>, String> {
    let at = |bytes: &Option<Vec<u8>>| -> Result<Option<Vec<C>>, String> {
        let Some(bytes) = bytes else { return Ok(None) };
        let invalid = || format!("a cursor of a range of {:?} is invalid", range.collection);
        let cursor: Cursor<C> = postcard::from_bytes(bytes).map_err(|_| invalid())?;
        // A read over all tenants goes on in another one.
        match cursor {
            Cursor { tenant: None, at: Some(at) } => Ok(Some(at)),
            Cursor { .. } => Err(invalid()),
        }
    };
    Ok((at(&range.after)?, at(&range.until)?))
}

/// How many ordering columns have one value within a step.
pub fn fixed<C>(begin: &[Part<C>]) -> usize {
    begin.iter().take_while(|part| matches!(part, Part::Equal(_) | Part::Null)).count()
}
