//! The rows that an item has found: those that its commit has changed as they were kept before, all others
//! as they are now.
//!
//! A page of a range is read as it is now. The rows that were kept take their places in it, and whatever has
//! their keys now is left out. A page that becomes longer than its limit by this ends earlier; its end is
//! then a position of this view and not of the store.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering as Atomically};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use besom_core::collection::{Collection, Collections};
use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::{Condition, Test};
use besom_core::undo::row_name;
use besom_core::value::{Row, RowKey, Value};
use besom_ports::compare::{holds, order};
use besom_ports::store::{BeforeImage, Delivery, Error, Range, RangePage, ReadView, Result};

/// A row as it was kept; none: there was none.
type Columns = Option<BTreeMap<String, Value>>;

struct Kept {
    tenant: Option<Tenant>,
    key: RowKey,
    columns: Columns,
}

impl Kept {
    fn is_visible(&self, tenant: Option<&Tenant>) -> bool {
        tenant.is_none() || self.tenant.is_none() || self.tenant.as_ref() == tenant
    }

    /// The value of a column; `None`: it was not mapped when the row was kept.
    fn value(&self, collection: &Collection, column: &str) -> Option<Value> {
        let known = self.columns.as_ref()?.get(column).cloned();
        let of_tenant = || {
            let tenant = self.tenant.as_ref()?;
            let is_tenant = collection.tenant.as_deref() == Some(column);
            is_tenant.then(|| Value::Text(tenant.to_string()))
        };
        known.or_else(of_tenant)
    }
}

/// The place of a row in a range: the columns of the index, then the key.
#[derive(Debug, Clone, PartialEq)]
struct Place(Vec<Value>);

impl Place {
    fn compare(&self, other: &Place, descending: bool) -> Ordering {
        let pairs = self.0.iter().zip(&other.0);
        let order = pairs.map(|(a, b)| order(a, b)).find(|order| order.is_ne());
        let order = order.unwrap_or(Ordering::Equal);
        if descending { order.reverse() } else { order }
    }
}

/// Where a page goes on.
#[derive(Clone, Default)]
struct GoesOn {
    /// The position of the store's page.
    after: Option<Vec<u8>>,
    /// Rows of that page up to here were returned already.
    behind: Option<Place>,
}

/// See the module.
pub(super) struct AsItWas {
    live: Arc<dyn ReadView>,
    collections: Arc<Collections>,
    /// By collection, and by the name of the row.
    kept: HashMap<String, HashMap<String, Vec<Kept>>>,
    /// By the position that a page has returned.
    ends: Mutex<HashMap<Vec<u8>, GoesOn>>,
    /// Numbers of rows that were returned as kept, and as they are now.
    told: [AtomicU64; 2],
}

impl AsItWas {
    /// A view with the rows of these images, oldest first.
    pub(super) fn new(
        live: Arc<dyn ReadView>,
        collections: Arc<Collections>,
        images: Vec<BeforeImage>,
    ) -> AsItWas {
        let mut kept: HashMap<String, HashMap<String, Vec<Kept>>> = HashMap::new();
        for BeforeImage { collection, tenant, key, row, .. } in images {
            let of_key =
                kept.entry(collection.clone()).or_default().entry(row_name(&collection, &key));
            let of_key = of_key.or_default();
            // The oldest image of a row is how the item has found it.
            if of_key.iter().all(|known| known.tenant != tenant) {
                let columns = row
                    .map(|fields| fields.into_iter().map(|f| (f.name.into(), f.value)).collect());
                of_key.push(Kept { tenant, key, columns });
            }
        }
        AsItWas { live, collections, kept, ends: Mutex::default(), told: Default::default() }
    }

    /// How many rows were returned as they were kept, and how many as they are now.
    pub(super) fn told(&self) -> (u64, u64) {
        let [kept, live] = self.told.each_ref().map(|rows| rows.load(Atomically::Relaxed));
        (kept, live)
    }

    fn tell(&self, is_kept: bool, rows: u64) {
        self.told[usize::from(!is_kept)].fetch_add(rows, Atomically::Relaxed);
    }

    fn row(&self, collection: &str, tenant: Option<&Tenant>, key: &[Value]) -> Option<&Kept> {
        let of_key = self.kept.get(collection)?.get(&row_name(collection, key))?;
        of_key.iter().find(|kept| kept.is_visible(tenant))
    }

    /// The kept rows of a collection, and the collection; `None`: none of it is kept.
    fn of(&self, name: &str, tenant: Option<&Tenant>) -> Option<(&Collection, Vec<&Kept>)> {
        let collection = self.collections.get(name)?;
        let kept = self.kept.get(name)?.values().flatten().filter(|kept| kept.is_visible(tenant));
        let kept: Vec<&Kept> = kept.collect();
        // In a read over all tenants, a row of a page does not tell whose it is.
        let is_placed = tenant.is_some() || collection.tenant.is_none();
        (is_placed && !kept.is_empty()).then_some((collection, kept))
    }

    fn goes_on(&self, range: &Range) -> Result<GoesOn> {
        let Some(after) = &range.after else { return Ok(GoesOn::default()) };
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.get(after).cloned().ok_or_else(|| {
            Error::Invalid(format!(
                "a read of {} goes on where another call has stopped, and rows of it were kept: what it \
                 returned then is not known",
                range.collection
            ))
        })
    }

    /// The position of a page that goes on here.
    fn end(&self, goes_on: GoesOn, is_of_store: bool) -> Vec<u8> {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let position = match &goes_on.after {
            Some(after) if is_of_store => after.clone(),
            _ => format!("replay {}", ends.len()).into_bytes(),
        };
        ends.insert(position.clone(), goes_on);
        position
    }

    async fn page(
        &self,
        tenant: Option<&Tenant>,
        range: &Range,
        collection: &Collection,
        kept: Vec<&Kept>,
    ) -> Result<RangePage> {
        let Some(index) = collection.index_columns(range.index.as_deref()) else {
            return self.live.read_range(tenant, range).await;
        };
        let order: Vec<&String> = index.iter().chain(&collection.key).collect();
        let mut asked = Range { keys: true, ..range.clone() };
        let known: BTreeSet<&String> = range.columns.iter().collect();
        let more: BTreeSet<&String> =
            order.iter().copied().filter(|c| !known.contains(c)).collect();
        asked.columns.extend(more.into_iter().cloned());
        let at = |column: &String| asked.columns.iter().position(|known| known == column);
        let places: Vec<usize> = order.iter().filter_map(|column| at(column)).collect();
        let place = |row: &Row| Place(places.iter().map(|at| row[*at].clone()).collect());
        let whole = |kept: &Kept| -> Option<Row> {
            asked.columns.iter().map(|column| kept.value(collection, column)).collect()
        };
        let then: Vec<(Place, Row, &Kept)> = kept
            .iter()
            .filter(|kept| within(range, collection, index, kept))
            .filter_map(|kept| whole(kept).map(|row| (place(&row), row, *kept)))
            .collect();
        let mut goes_on = self.goes_on(range)?;
        let (limit, descending) = (range.limit.max(1) as usize, range.descending);
        let behind = |place: &Place, goes_on: &GoesOn| {
            goes_on.behind.as_ref().is_none_or(|end| place.compare(end, descending).is_gt())
        };
        let mut page = RangePage::default();
        loop {
            let read = Range { after: goes_on.after.clone(), ..asked.clone() };
            let live = self.live.read_range(tenant, &read).await?;
            page.scanned += live.scanned;
            let end = live.rows.last().map(place).filter(|_| live.next.is_some());
            let is_full = live.rows.len() >= limit;
            let now = live.rows.into_iter().zip(live.keys);
            let now = now.filter(|(_, key)| self.row(&range.collection, tenant, key).is_none());
            let now = now.map(|(row, key)| (place(&row), row, key, false));
            let up_to_end =
                |at: &Place| end.as_ref().is_none_or(|end| at.compare(end, descending).is_le());
            let then = then.iter().filter(|(at, ..)| up_to_end(at));
            let then =
                then.map(|(at, row, kept)| (at.clone(), row.clone(), kept.key.clone(), true));
            let mut all: Vec<_> = now.chain(then).filter(|(at, ..)| behind(at, &goes_on)).collect();
            all.sort_by(|a, b| a.0.compare(&b.0, descending));
            let room = limit - page.rows.len();
            let is_cut = all.len() > room;
            all.truncate(room);
            let last = all.last().map(|(at, ..)| at.clone());
            for (_, mut row, key, is_kept) in all {
                self.tell(is_kept, 1);
                row.truncate(range.columns.len());
                page.rows.push(row);
                if range.keys {
                    page.keys.push(key);
                }
            }
            if is_cut {
                goes_on.behind = last.or(goes_on.behind);
                page.next = Some(self.end(goes_on, false));
                return Ok(page);
            }
            let Some(next) = live.next else { return Ok(page) };
            goes_on = GoesOn { after: Some(next), behind: end.or(goes_on.behind) };
            if page.rows.len() >= limit || (!is_full && !page.rows.is_empty()) {
                page.next = Some(self.end(goes_on, true));
                return Ok(page);
            }
        }
    }
}

/// Whether a kept row is one of a range.
fn within(range: &Range, collection: &Collection, index: &[String], kept: &Kept) -> bool {
    if kept.columns.is_none() {
        return false;
    }
    let value = |column: &str| kept.value(collection, column).unwrap_or(Value::Null);
    let prefix = index.iter().zip(&range.prefix);
    if !prefix.into_iter().all(|(column, expected)| order(&value(column), expected).is_eq()) {
        return false;
    }
    let bounded = index.get(range.prefix.len()).map(|column| value(column));
    let meets =
        |bound: &Option<Value>, fits: fn(Ordering) -> bool, null: bool| match (&bounded, bound) {
            (Some(bounded), Some(bound)) => {
                (null || *bounded != Value::Null) && fits(order(bounded, bound))
            }
            (_, None) => true,
            (None, Some(_)) => false,
        };
    meets(&range.lower, Ordering::is_ge, false)
        && meets(&range.upper, Ordering::is_le, false)
        && meets(&range.beyond, Ordering::is_gt, true)
        && range.conditions.iter().all(|condition| holds(&value, condition))
}

#[async_trait]
impl ReadView for AsItWas {
    fn read_by(&self, deadline: Instant) {
        self.live.read_by(deadline);
    }

    fn read_at_most(&self, bytes: u64) {
        self.live.read_at_most(bytes);
    }

    fn looked_at(&self) -> u64 {
        self.live.looked_at()
    }

    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>> {
        let mut rows = self.live.get_many(tenant, collection, keys, columns).await?;
        for (key, row) in keys.iter().zip(&mut rows) {
            let Some(kept) = self.row(collection, tenant, key) else {
                self.tell(false, u64::from(row.is_some()));
                continue;
            };
            self.tell(true, 1);
            *row = match (&kept.columns, self.collections.get(collection)) {
                (Some(_), Some(of)) => {
                    // A column that has been mapped since has its present value.
                    let now = row.as_ref();
                    let value = |(at, column): (usize, &String)| {
                        let present = || now.map_or(Value::Null, |now| now[at].clone());
                        kept.value(of, column).unwrap_or_else(present)
                    };
                    Some(columns.iter().enumerate().map(value).collect())
                }
                _ => None,
            };
        }
        Ok(rows)
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        if let Some((collection, kept)) = self.of(&range.collection, tenant) {
            return self.page(tenant, range, collection, kept).await;
        }
        let page = self.live.read_range(tenant, range).await?;
        self.tell(false, page.rows.len() as u64);
        Ok(page)
    }

    async fn count(
        &self,
        tenant: Option<&Tenant>,
        name: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32> {
        let Some((collection, kept)) = self.of(name, tenant) else {
            return self.live.count(tenant, name, conditions, limit).await;
        };
        let more = u32::try_from(kept.len()).unwrap_or(u32::MAX);
        let all = self.live.count(tenant, name, conditions, limit.saturating_add(more)).await?;
        let named = |condition: &Condition| {
            let other = match &condition.test {
                Test::Column(_, other) => Some(other.clone()),
                _ => None,
            };
            std::iter::once(condition.column.clone()).chain(other)
        };
        let columns: Vec<String> = conditions.iter().flat_map(named).collect();
        let keys: Vec<RowKey> = kept.iter().map(|kept| kept.key.clone()).collect();
        let present = self.live.get_many(tenant, name, &keys, &columns).await?;
        let meets = |value: &dyn Fn(&str) -> Value| {
            conditions.iter().all(|condition| holds(value, condition))
        };
        let now = present.iter().flatten().filter(|row| {
            meets(&|column| {
                let at = columns.iter().position(|known| known == column);
                at.map_or(Value::Null, |at| row[at].clone())
            })
        });
        let then = kept
            .iter()
            .filter(|kept| kept.columns.is_some())
            .filter(|kept| meets(&|column| kept.value(collection, column).unwrap_or(Value::Null)));
        let (now, then) = (now.count() as u32, then.count() as u32);
        Ok(all.saturating_sub(now).saturating_add(then).min(limit))
    }

    fn bounded(&self, range: &Range) -> Result<(String, bool)> {
        self.live.bounded(range)
    }

    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>> {
        self.live.tenants(range, after, limit).await
    }

    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        self.live.deliveries(task, tenant, topic, keys).await
    }
}

#[cfg(test)]
mod tests;
