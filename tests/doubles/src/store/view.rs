//! Reads of the user's tables as of one instant.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicU64};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use besom_core::collection::{Collection, Collections};
use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::{Comparison, Condition, Filter, RowRange};
use besom_core::time::Time;
use besom_core::value::{Row, RowKey, Value};
use besom_ports::compare::order;
use besom_snapshot::Cause;
use serde::{Deserialize, Serialize};

use super::Clock;
use super::ordered::Ordered;
use super::outbox::{self, Message};
use super::tables::{
    Columns, RowId, Tables, Violation, check_conditions, check_kind, collection, meets, visible,
};
use besom_ports::store::{Delivery, Error, Range, RangePage, ReadView, Result};
use besom_tables::room::Room;

/// A read names something that is not mapped: the caller's fault, on any attempt.
impl From<Violation> for Error {
    fn from(violation: Violation) -> Error {
        Error::Invalid(violation.0)
    }
}

/// A consistent view. It shares the rows with the tables it was taken from.
pub(super) struct View {
    pub(super) tables: Tables,
    pub(super) outbox: Arc<Vec<Message>>,
    pub(super) collections: Arc<Collections>,
    pub(super) clock: Clock,
    pub(super) opened_at: Time,
    pub(super) open_max: Duration,
    pub(super) bytes_max: AtomicU64,
}

/// A row of a table.
type Found<'t> = (&'t RowId, &'t Columns);

/// The position of a row in a range: the tenant, the index, the key.
type Position = (Option<Tenant>, Vec<Ordered>, Vec<Ordered>);

/// A [`Position`] as encoded in [`RangePage::next`].
#[derive(Serialize, Deserialize)]
struct Cursor(Option<Tenant>, Vec<Value>, Vec<Value>);

/// A range whose names and values have been checked.
struct Scan<'a> {
    range: &'a Range,
    collection: &'a Collection,
    index: &'a [String],
}

impl Scan<'_> {
    fn position(&self, (id, row): Found<'_>) -> Position {
        let value = |column: &String| Ordered(row.get(column).cloned().unwrap_or(Value::Null));
        (id.tenant.clone(), self.index.iter().map(value).collect(), id.key.clone())
    }

    /// The order of positions, without copies.
    fn order(&self, (a, x): Found<'_>, (b, y): Found<'_>) -> Ordering {
        let of = |column: &String| {
            order(x.get(column).unwrap_or(&Value::Null), y.get(column).unwrap_or(&Value::Null))
        };
        let index = || self.index.iter().map(of).find(|order| order.is_ne());
        (a.tenant.cmp(&b.tenant))
            .then_with(|| index().unwrap_or(Ordering::Equal))
            .then_with(|| a.key.cmp(&b.key))
    }

    /// Whether the row is within prefix and bounds.
    fn includes(&self, row: &Columns) -> bool {
        let (range, prefix) = (self.range, self.range.prefix.len());
        let value = |at: usize| self.index.get(at).and_then(|column| row.get(column));
        let equal = |(at, expected): (usize, &Value)| {
            value(at).is_some_and(|actual| order(actual, expected).is_eq())
        };
        let not_null = self.collection.not_null(range.index.as_deref());
        if not_null.iter().any(|column| row.get(column).is_none_or(|value| *value == Value::Null)) {
            return false;
        }
        let Some(bounded) = value(prefix) else {
            return range.prefix.iter().enumerate().all(equal);
        };
        let known = |bound: &Value| *bounded != Value::Null && *bound != Value::Null;
        range.prefix.iter().enumerate().all(equal)
            && range.lower.as_ref().is_none_or(|l| known(l) && order(bounded, l).is_ge())
            && range.upper.as_ref().is_none_or(|u| known(u) && order(bounded, u).is_le())
            && range.beyond.as_ref().is_none_or(|b| order(bounded, b).is_gt())
    }
}

impl View {
    fn open(&self) -> Result<()> {
        if (self.clock)() > self.opened_at + self.open_max {
            let longest = self.open_max;
            let words = format!("the snapshot was open for longer than {longest:?}");
            return Err(Error::Refused(Cause::Slow, words));
        }
        Ok(())
    }

    fn room(&self) -> Room {
        Room::new(self.bytes_max.load(atomic::Ordering::Relaxed))
    }

    fn check<'a>(&'a self, range: &'a Range) -> Result<Scan<'a>> {
        checked(&self.collections, range)
    }

    fn rows(&self, tenant: Option<&Tenant>, scan: &Scan<'_>) -> Result<Vec<Found<'_>>> {
        Ok(rows(&self.tables, tenant, scan)?)
    }
}

/// A range whose names and values fit the mapping.
fn checked<'a>(collections: &'a Collections, range: &'a Range) -> Result<Scan<'a>> {
    let collection = collection(collections, &range.collection)?;
    let name = &collection.name;
    let Some(index) = collection.index_columns(range.index.as_deref()) else {
        let index = range.index.as_deref().unwrap_or_default();
        return Err(Error::Invalid(format!("{name} has no index {index}")));
    };
    let bounds = range.lower.iter().chain(&range.upper).chain(&range.beyond);
    let bounded = index.get(range.prefix.len());
    if range.prefix.len() > index.len() || (bounded.is_none() && bounds.clone().count() > 0) {
        return Err(Error::Invalid(format!(
            "prefix and bounds have more columns than the index of {name}"
        )));
    }
    for (column, value) in index.iter().zip(&range.prefix) {
        check_kind(collection, column, value)?;
    }
    for (column, value) in bounded.into_iter().flat_map(|c| bounds.clone().map(move |v| (c, v))) {
        check_kind(collection, column, value)?;
        let of = collection.column(column).map_err(Error::Invalid)?;
        of.has_order(column, Comparison::AtLeast).map_err(Error::Invalid)?;
    }
    check_conditions(collection, &range.conditions)?;
    for column in &range.columns {
        check_kind(collection, column, &Value::Null)?;
    }
    Ok(Scan { range, collection, index })
}

/// The rows within prefix and bounds, in ascending order.
fn rows<'t>(
    tables: &'t Tables,
    tenant: Option<&Tenant>,
    scan: &Scan<'_>,
) -> Result<Vec<Found<'t>>, Violation> {
    let all = visible(tables.of(scan.collection)?, scan.collection, tenant);
    let mut found: Vec<_> = all.filter(|(_, row)| scan.includes(row)).collect();
    // They are in the order of the table already, and often in that of the index.
    found.sort_by(|a, b| scan.order(*a, *b));
    Ok(found)
}

/// The keys of the rows of a range that a commit changes.
pub(super) fn keys_of(
    tables: &Tables,
    collections: &Collections,
    tenant: Option<&Tenant>,
    range: &RowRange,
) -> Result<Vec<RowKey>, Violation> {
    let read = Range::from(range);
    let scan = checked(collections, &read).map_err(|e| Violation(e.to_string()))?;
    let position = |cursor: &Option<Vec<u8>>| {
        let at = cursor.as_deref().map(decode).transpose();
        let at = at.map_err(|e| Violation(e.to_string()))?;
        match &at {
            Some((of, index, key))
                if of.as_ref() != tenant.filter(|_| scan.collection.tenant.is_some())
                    || index.len() != scan.index.len()
                    || key.len() != scan.collection.key.len() =>
            {
                Err(Violation("the cursor belongs to another read".to_owned()))
            }
            _ => Ok(at),
        }
    };
    let (after, until) = (position(&range.after)?, position(&range.until)?);
    let among = rows(tables, tenant, &scan)?.into_iter().filter(|found| {
        after.as_ref().is_none_or(|after| scan.position(*found) > *after)
            && until.as_ref().is_none_or(|until| scan.position(*found) <= *until)
            && meets(found.1, &range.conditions)
    });
    Ok(among.take(range.rows as usize).map(|(id, _)| id.key()).collect())
}

/// The requested columns of a row, in the requested order.
fn project(row: &Columns, columns: &[String]) -> Row {
    columns.iter().map(|name| row.get(name).cloned().unwrap_or(Value::Null)).collect()
}

fn weight(row: &Row) -> usize {
    row.iter().map(Value::weight).sum()
}

fn encode((tenant, index, key): &Position) -> Result<Vec<u8>> {
    let plain = |values: &[Ordered]| values.iter().map(|v| v.0.clone()).collect();
    postcard::to_stdvec(&Cursor(tenant.clone(), plain(index), plain(key)))
        .map_err(|e| Error::Invalid(format!("the end of the page cannot be encoded: {e}")))
}

fn decode(cursor: &[u8]) -> Result<Position> {
    let Cursor(tenant, index, key) = postcard::from_bytes(cursor)
        .map_err(|e| Error::Invalid(format!("`after` is not a page's `next`: {e}")))?;
    let ordered = |values: Vec<Value>| values.into_iter().map(Ordered).collect();
    Ok((tenant, ordered(index), ordered(key)))
}

#[async_trait]
impl ReadView for View {
    fn read_by(&self, _deadline: Instant) {}

    fn read_at_most(&self, bytes: u64) {
        self.bytes_max.store(bytes, atomic::Ordering::Relaxed);
    }

    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        name: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>> {
        self.open()?;
        let collection = collection(&self.collections, name)?;
        for column in columns {
            check_kind(collection, column, &Value::Null)?;
        }
        let mut room = self.room();
        let read = |key: &RowKey| {
            let row = self.tables.row(collection, tenant, key)?;
            let row = row.map(|row| project(row, columns));
            row.iter().try_for_each(|row| room.take(weight(row)))?;
            Ok(row)
        };
        keys.iter().map(read).collect()
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        self.open()?;
        let scan = self.check(range)?;
        if range.limit == 0 {
            return Err(Error::Invalid("the limit of a range read must be at least 1".into()));
        }
        let after = range.after.as_deref().map(decode).transpose()?;
        let mut rows = self.rows(tenant, &scan)?;
        if range.descending {
            rows.reverse();
        }
        let passed = |found: &Found<'_>| match &after {
            None => false,
            Some(after) if range.descending => scan.position(*found) >= *after,
            Some(after) => scan.position(*found) <= *after,
        };
        let mut rows = rows.into_iter().skip_while(passed).peekable();
        let (mut page, mut bytes, room) = (RangePage::default(), 0, self.room());
        let bytes_max = range.bytes_max.min(usize::try_from(room.max()).unwrap_or(usize::MAX));
        while let Some((id, row)) = rows.next() {
            page.scanned += 1;
            if meets(row, &range.conditions) {
                let projected = project(row, &range.columns);
                room.holds(weight(&projected))?;
                bytes += weight(&projected);
                page.rows.push(projected);
                if range.keys {
                    page.keys.push(id.key());
                }
            }
            let full = page.rows.len() >= range.limit as usize || bytes >= bytes_max;
            let looked = range.scan_max > 0 && page.scanned >= range.scan_max;
            if (looked || (full && !page.rows.is_empty())) && rows.peek().is_some() {
                page.next = Some(encode(&scan.position((id, row)))?);
                break;
            }
        }
        Ok(page)
    }

    async fn count(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32> {
        self.open()?;
        let filter = Filter { collection: collection.to_owned(), conditions: conditions.to_vec() };
        Ok(self.tables.count(&self.collections, tenant, &filter, limit as usize)? as u32)
    }

    fn bounded(&self, range: &Range) -> Result<(String, bool)> {
        let collection = collection(&self.collections, &range.collection)?;
        let bounded = collection.bounded(range.index.as_deref(), range.prefix.len());
        bounded.map_err(Error::Invalid)
    }

    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>> {
        self.open()?;
        let scan = self.check(range)?;
        if scan.collection.tenant.is_none() {
            return Err(Error::Invalid(format!("{} has no tenants", range.collection)));
        }
        let mut tenants: Vec<Tenant> = self
            .rows(None, &scan)?
            .into_iter()
            .filter(|(_, row)| meets(row, &range.conditions))
            .filter_map(|(id, _)| id.tenant.clone())
            .filter(|tenant| after.is_none_or(|after| tenant > after))
            .collect();
        tenants.dedup();
        tenants.truncate(limit as usize);
        Ok(tenants)
    }

    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        self.open()?;
        let found = outbox::deliveries(&self.outbox, task, tenant, topic, keys);
        let mut room = self.room();
        found.iter().flatten().try_for_each(|found| room.take(found.bytes()))?;
        Ok(found)
    }
}
