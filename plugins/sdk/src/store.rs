//! Reads of the collections that the task was granted. All reads of one `act` see one snapshot.
//!
//! A read in [`crate::Task::act`] names an item (`of`), and the host adds its tenant to the query.
//! A read in a scan names none and sees the scanned tenant.
//!
//! All functions return the host's error if the read is not granted, names an unknown index or
//! column, exceeds a limit, or if the database fails.

use std::collections::BTreeMap;
use std::mem;
use std::rc::Rc;

use crate::activity::unanswered;
pub use crate::bindings::besom::task::store::Range;
pub use crate::columns::{ColumnPage, Packed};
use crate::{Field, Filter, Item, ReadSetId, Result, Row, RowKey, RowRange, Value, host};

/// The rows per page of a range, unless the task sets another number.
pub const PAGE_ROWS: u32 = 1_000;

impl Range {
    /// All rows of a collection, in the order of its key, without columns: add them with
    /// [`Range::columns`].
    pub fn of(collection: &str) -> Range {
        Range {
            collection: collection.into(),
            index: None,
            prefix: Vec::new(),
            lower: None,
            upper: None,
            conditions: Vec::new(),
            columns: Vec::new(),
            descending: false,
            limit: PAGE_ROWS,
            after: None,
            collect: false,
            into: None,
            extra: Vec::new(),
        }
    }

    /// Reads in the order of a declared index.
    pub fn index(mut self, index: &str) -> Range {
        self.index = Some(index.into());
        self
    }

    /// Requires the next of the index's first columns to equal this value.
    pub fn prefix(mut self, value: impl Into<Value>) -> Range {
        self.prefix.push(value.into());
        self
    }

    /// The inclusive lower bound of the index column after the prefix.
    pub fn lower(mut self, value: impl Into<Value>) -> Range {
        self.lower = Some(value.into());
        self
    }

    /// The inclusive upper bound of the index column after the prefix.
    pub fn upper(mut self, value: impl Into<Value>) -> Range {
        self.upper = Some(value.into());
        self
    }

    /// Adds columns to read, in this order.
    pub fn columns<'a>(mut self, columns: impl IntoIterator<Item = &'a str>) -> Range {
        self.columns.extend(columns.into_iter().map(str::to_owned));
        self
    }

    /// Reads in descending order.
    pub fn descending(mut self) -> Range {
        self.descending = true;
        self
    }

    /// The maximum number of rows per page; the default is [`PAGE_ROWS`].
    pub fn limit(mut self, rows: u32) -> Range {
        self.limit = rows;
        self
    }

    /// The rows of this range after one page's end, up to another's, for [`crate::Proposal::delete_range`] and
    /// [`crate::Proposal::update_range`]; at most `rows` of them are changed.
    pub fn part(&self, after: Option<Vec<u8>>, until: Option<Vec<u8>>, rows: u32) -> RowRange {
        RowRange {
            collection: self.collection.clone(),
            index: self.index.clone(),
            prefix: self.prefix.clone(),
            lower: self.lower.clone(),
            upper: self.upper.clone(),
            conditions: self.conditions.clone(),
            after,
            until,
            rows,
            extra: self.extra.clone(),
        }
    }

    /// The row with this key, as a range of the collection.
    pub fn row(&self, key: RowKey) -> RowRange {
        let range = Range { prefix: key, ..Range::of(&self.collection) };
        range.part(None, None, 1)
    }

    /// Adds what a host may know by this name; another ignores it.
    pub fn extra(mut self, name: &str, value: impl Into<Value>) -> Range {
        self.extra.push(Field { name: name.into(), value: value.into() });
        self
    }

    /// Collects the rows into a read set ([`Rows::read_set`]).
    pub fn collecting(mut self) -> Range {
        self.collect = true;
        self
    }

    /// Collects the rows into an existing read set of the same collection; none: into a new one.
    pub fn collecting_into(mut self, read_set: Option<ReadSetId>) -> Range {
        (self.collect, self.into) = (true, read_set);
        self
    }
}

/// A page of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The rows, with the requested columns.
    pub rows: Vec<Row>,
    /// The cursor of the next page; none: the range is complete.
    pub next: Option<Vec<u8>>,
    /// The read set that holds the rows, if they were collected.
    pub read_set: Option<ReadSetId>,
}

/// One page of a range, of at most `range.limit` rows after `range.after`. A limit in bytes may
/// make a page shorter; only [`Page::next`] shows the end.
pub fn page(of: Option<&Item>, range: &Range) -> Result<Page> {
    let columns: Rc<[String]> = range.columns.clone().into();
    let page = host::read_range(of.map(|item| item.index), range)?;
    let rows = page.rows.into_iter().map(|values| Row::new(columns.clone(), values)).collect();
    Ok(Page { rows, next: page.next, read_set: page.read_set })
}

/// An iterator over all rows of a range, which reads pages on demand.
pub fn rows(of: Option<&Item>, range: Range) -> Rows {
    Rows { paging: Paging::new(of, range), buffer: Vec::new().into_iter() }
}

/// An iterator over the pages of a range, by column. For many rows this costs a fraction of
/// [`rows`].
pub fn columns(of: Option<&Item>, range: Range) -> ColumnPages {
    let names: Rc<[String]> = range.columns.clone().into();
    ColumnPages { paging: Paging::new(of, range), names }
}

/// The progress of reading a range.
#[derive(Debug)]
struct Paging {
    of: Option<u32>,
    range: Range,
    end: bool,
}

impl Paging {
    fn new(of: Option<&Item>, range: Range) -> Paging {
        Paging { of: of.map(|item| item.index), range, end: false }
    }

    /// Continues after a page.
    fn went_on(&mut self, next: Option<Vec<u8>>, read_set: Option<ReadSetId>) {
        self.end = next.is_none();
        self.range.after = next;
        self.range.into = read_set.or(self.range.into);
    }
}

/// The pages of a range by column, from [`columns`]. Ends after the first error.
#[derive(Debug)]
pub struct ColumnPages {
    paging: Paging,
    names: Rc<[String]>,
}

impl ColumnPages {
    /// The read set of the rows collected so far; none if the range does not collect.
    pub fn read_set(&self) -> Option<ReadSetId> {
        self.paging.range.into
    }
}

impl ColumnPages {
    /// Where the next page starts; none: the range is complete.
    pub fn after(&self) -> Option<&[u8]> {
        self.paging.range.after.as_deref()
    }
}

impl Iterator for ColumnPages {
    type Item = Result<ColumnPage>;

    fn next(&mut self) -> Option<Result<ColumnPage>> {
        if self.paging.end {
            return None;
        }
        Some(match host::read_columns(self.paging.of, &self.paging.range) {
            Ok(page) => {
                self.paging.went_on(page.next, page.read_set);
                Ok(ColumnPage::new(self.names.clone(), page.columns, page.count as usize))
            }
            Err(error) => {
                self.paging.end = true;
                Err(error)
            }
        })
    }
}

/// The rows of a range, from [`rows`]. Ends after the first error.
#[derive(Debug)]
pub struct Rows {
    paging: Paging,
    buffer: std::vec::IntoIter<Row>,
}

impl Rows {
    /// The read set of the rows collected so far; none if the range does not collect.
    pub fn read_set(&self) -> Option<ReadSetId> {
        self.paging.range.into
    }

    fn fetch(&mut self) -> Result<()> {
        let columns: Rc<[String]> = self.paging.range.columns.clone().into();
        let page = host::read_range(self.paging.of, &self.paging.range)?;
        let rows: Vec<Row> =
            page.rows.into_iter().map(|values| Row::new(columns.clone(), values)).collect();
        self.buffer = rows.into_iter();
        self.paging.went_on(page.next, page.read_set);
        Ok(())
    }
}

impl Iterator for Rows {
    type Item = Result<Row>;

    fn next(&mut self) -> Option<Result<Row>> {
        loop {
            if let Some(row) = self.buffer.next() {
                return Some(Ok(row));
            }
            if self.paging.end {
                return None;
            }
            if let Err(error) = self.fetch() {
                self.paging.end = true;
                return Some(Err(error));
            }
        }
    }
}

/// The rows with these keys, in their order; none for a missing row.
pub fn get_many(
    of: Option<&Item>,
    collection: &str,
    keys: &[RowKey],
    columns: &[&str],
) -> Result<Vec<Option<Row>>> {
    let columns: Rc<[String]> = columns.iter().map(|&column| column.to_owned()).collect();
    let rows = host::get_many(of.map(|item| item.index), collection, keys, &columns)?;
    Ok(rows.into_iter().map(|row| row.map(|values| Row::new(columns.clone(), values))).collect())
}

/// One row for each item, in the order of the items, with one call per tenant of the batch. An
/// item for which `key` fails gets that error; the other items are read.
///
/// # Errors
/// An error of the host, which concerns the whole batch.
pub fn get_each(
    items: &[Item],
    collection: &str,
    columns: &[&str],
    key: impl Fn(&Item) -> Result<RowKey>,
) -> Result<Vec<Result<Option<Row>>>> {
    let mut keys: Vec<Result<RowKey>> = items.iter().map(key).collect();
    let mut found: Vec<Option<Option<Row>>> = vec![None; items.len()];
    for group in by_tenant(items) {
        let known: Vec<usize> = group.into_iter().filter(|&at| keys[at].is_ok()).collect();
        let Some(&first) = known.first() else { continue };
        let taken = known.iter().map(|&at| keys[at].as_mut().map_or_else(|_| vec![], mem::take));
        let asked: Vec<RowKey> = taken.collect();
        let rows = get_many(Some(&items[first]), collection, &asked, columns)?;
        for (at, row) in known.into_iter().zip(rows) {
            found[at] = Some(row);
        }
    }
    Ok(keys
        .into_iter()
        .zip(found)
        .zip(items)
        .map(|((key, row), item)| key.and_then(|_| row.ok_or_else(|| unanswered("row", &item.key))))
        .collect())
}

/// Whether at least one row matches.
pub fn exists(of: Option<&Item>, filter: &Filter) -> Result<bool> {
    let counts = count(of, std::slice::from_ref(filter), 1)?;
    Ok(counts.first().is_some_and(|count| *count > 0))
}

/// The number of rows that match each filter, counted up to `limit`.
pub fn count(of: Option<&Item>, filters: &[Filter], limit: u32) -> Result<Vec<u32>> {
    host::count(of.map(|item| item.index), filters, limit)
}

/// At most `limit` values after `after`, in order, that the column of the range's index after the
/// prefix has in at least one row. It seeks from value to value; null is left out. In a scan over
/// all tenants it reads only collections without tenants.
pub fn distinct(
    of: Option<&Item>,
    range: &Range,
    after: Option<&Value>,
    limit: u32,
) -> Result<Vec<Value>> {
    host::distinct(of.map(|item| item.index), range, after, limit)
}

/// At most `limit` tenants after `after`, in order, that have rows in the range.
pub fn tenants(range: &Range, after: Option<&str>, limit: u32) -> Result<Vec<String>> {
    host::tenants(range, after, limit)
}

/// The indexes of the items in the slice, grouped by tenant.
pub fn by_tenant(items: &[Item]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        groups.entry(item.tenant.as_deref()).or_default().push(at);
    }
    groups.into_values().collect()
}
