//! Range reads: keyset paging over a declared index.
//!
//! Rows are ordered by (index columns, key), which is a total order; NULL comes before every value.
//! A page ends with the values of these columns in its last row. The next page continues after them
//! in a staircase of plain index ranges: first equal values but a later last column, then equal
//! values but a later second-to-last column, and so on. Unlike a comparison of whole rows this is
//! correct for NULL, and every step is one seek.
//!
//! PostgreSQL's indexes have NULL at their upper end, so a column that may hold NULL is read in two
//! ranges, NULL and the values, instead of being sorted.

use besom_core::ids::Tenant;
use besom_core::value::Value;
use serde::{Deserialize, Serialize};

use super::conditions::Conditions;
use super::error::{Job, invalid};
use super::lookup::{Fetch, selected};
use super::mapping::{Table, quote};
use super::plan::{fault_of, refuse_full_scan};
use super::session::Param;
use super::snapshot::View;
use super::tenants::{bounds, form_of, index_columns, next_tenant};
use super::values::{Cell, Form};
use besom_ports::store::{Range, RangePage};
use besom_record::room::Room;

/// The position at which a page ended.
#[derive(Serialize, Deserialize)]
struct Cursor {
    /// The tenant, in a read over all tenants.
    tenant: Option<Tenant>,
    /// The encoded values of the ordering columns; none: before the tenant's first row.
    at: Option<Vec<Cell>>,
}

/// Reads a page.
pub(super) async fn read(
    view: &View<'_>,
    tenant: Option<&Tenant>,
    range: &Range,
) -> Job<RangePage> {
    let table = view.mapping.table(&range.collection).map_err(invalid)?;
    let cursor: Option<Cursor> = match &range.after {
        None => None,
        Some(bytes) => Some(postcard::from_bytes(bytes).map_err(|_| {
            invalid(format!("the cursor of a read of {:?} is invalid", range.collection))
        })?),
    };
    let mut reading = Reading::new(view, table, range)?;
    if tenant.is_some() || table.tenant.is_none() {
        let at = cursor.and_then(|c| c.at);
        let next = reading.read(tenant, at).await?;
        return reading.page(next.map(|at| Cursor { tenant: None, at: Some(at) }));
    }
    // Over all tenants: one after the other, one seek each.
    let (mut current, mut at) = match cursor {
        Some(Cursor { tenant: Some(t), at }) => (Some(t), at),
        _ => (next_tenant(view, table, None, range.descending).await?, None),
    };
    while let Some(tenant) = current {
        if let Some(at) = reading.read(Some(&tenant), at.take()).await? {
            return reading.page(Some(Cursor { tenant: Some(tenant), at: Some(at) }));
        }
        current = next_tenant(view, table, Some(&tenant), range.descending).await?;
        if reading.full() && current.is_some() {
            return reading.page(Some(Cursor { tenant: current, at: None }));
        }
    }
    reading.page(None)
}

/// The fault in the plan of a page that continues after a row, over an index of the mapping. The
/// first page may come in order while the second has to be sorted. To be called in a transaction.
pub(super) async fn fault_of_next_page(
    view: &View<'_>,
    table: &Table,
    index: &str,
) -> Job<Option<&'static str>> {
    let range = Range {
        collection: table.collection.name.clone(),
        index: Some(index.to_owned()),
        limit: 1,
        ..Range::default()
    };
    let reading = Reading::new(view, table, &range)?;
    let tenant = table.tenant.as_ref().map(|_| Tenant::from(""));
    // The plan is the same for all values that are not NULL.
    let behind = vec![Cell::Bool(true); reading.order.len()];
    for step in reading.steps(Some(behind))? {
        let (sql, params) = reading.query(tenant.as_ref(), &step, 1)?;
        if let Some(fault) = fault_of(view.session, &sql, params.len()).await? {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

/// The condition on an ordering column within one step.
#[derive(Clone, Debug)]
enum Part {
    /// The value of the row before.
    Equal(Cell),
    /// After the previous row's value.
    Behind(Cell),
    Null,
    NotNull,
}

/// The state of reading a page.
struct Reading<'a> {
    view: &'a View<'a>,
    table: &'a Table,
    range: &'a Range,
    /// The columns after the prefix that order the rows, with their forms.
    order: Vec<(String, Form)>,
    /// Which of them may be NULL; a bounded one cannot.
    nullable: Vec<bool>,
    /// The select list: the caller's columns, the key, the order.
    select: Vec<String>,
    columns: Vec<Form>,
    key: Vec<Form>,
    page: RangePage,
    bytes: usize,
    /// The approximate size of a page.
    bytes_max: usize,
    /// The size limit of a single row.
    room: Room,
    fetch: Fetch,
    /// The ordering columns of the last row examined, within the tenant.
    last: Option<Vec<Cell>>,
}

impl<'a> Reading<'a> {
    fn new(view: &'a View<'a>, table: &'a Table, range: &'a Range) -> Job<Reading<'a>> {
        let index = index_columns(table, range)?;
        if range.prefix.len() > index.len() {
            return Err(invalid(format!("the prefix is longer than the index {index:?}")));
        }
        let bounded = range.lower.is_some() || range.upper.is_some();
        if range.prefix.len() == index.len() && bounded {
            return Err(invalid(format!("{index:?} has no column left for bounds")));
        }
        let (mut order, mut nullable): (Vec<(String, Form)>, Vec<bool>) = (Vec::new(), Vec::new());
        for name in index[range.prefix.len()..].iter().chain(&table.collection.key) {
            let fixed = index[..range.prefix.len()].contains(name);
            if !fixed && !order.iter().any(|(known, _)| known == name) {
                let has_value = bounded && order.is_empty() && index.contains(name);
                nullable.push(!has_value && table.nullable(name));
                order.push((name.clone(), form_of(table, name)?.clone()));
            }
        }
        let (mut select, columns) = selected(table, &range.columns).map_err(invalid)?;
        let mut key = Vec::new();
        if range.keys {
            let (read, forms) = selected(table, &table.collection.key).map_err(invalid)?;
            select.extend(read);
            key = forms;
        }
        select.extend(order.iter().map(|(name, form)| form.read(&format!("t.{}", quote(name)))));
        let (page, room, fetch) = (RangePage::default(), view.room(), Fetch::of(&columns));
        let bytes_max = range.bytes_max.min(usize::try_from(room.max()).unwrap_or(usize::MAX));
        Ok(Reading {
            view,
            table,
            range,
            order,
            nullable,
            select,
            columns,
            key,
            page,
            bytes: 0,
            bytes_max,
            room,
            fetch,
            last: None,
        })
    }

    fn full(&self) -> bool {
        self.page.rows.len() >= self.range.limit.max(1) as usize
            || (self.bytes >= self.bytes_max && !self.page.rows.is_empty())
            || (self.range.scan_max > 0 && self.page.scanned >= self.range.scan_max)
    }

    fn page(mut self, next: Option<Cursor>) -> Job<RangePage> {
        self.page.next = next.map(|cursor| postcard::to_stdvec(&cursor)).transpose()?;
        Ok(self.page)
    }

    /// Continues within one tenant; returns where it stopped if rows are left.
    async fn read(
        &mut self,
        tenant: Option<&Tenant>,
        after: Option<Vec<Cell>>,
    ) -> Job<Option<Vec<Cell>>> {
        self.last = None;
        for step in self.steps(after)? {
            let stopped = self.step(tenant, &step).await?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// The index ranges that follow a row (or all of them), in order: each fixes its first ordering
    /// columns.
    fn steps(&self, after: Option<Vec<Cell>>) -> Job<Vec<Vec<Part>>> {
        let Some(after) = after else { return Ok(self.whole(&[])) };
        if after.len() != self.order.len() {
            return Err(invalid("the cursor belongs to another read"));
        }
        let equal: Vec<Part> = after.iter().map(|cell| Part::Equal(cell.clone())).collect();
        let mut steps = Vec::new();
        for at in (0..after.len()).rev() {
            let (before, cell) = (&equal[..at], &after[at]);
            // After a value: later values, and NULL where it comes last. After NULL: all values, or
            // nothing.
            let nulls_last = self.range.descending;
            let parts = match cell {
                Cell::Null if nulls_last => vec![],
                Cell::Null => vec![Part::NotNull],
                value if nulls_last && self.nullable[at] => {
                    vec![Part::Behind(value.clone()), Part::Null]
                }
                value => vec![Part::Behind(value.clone())],
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
    fn whole(&self, begin: &[Part]) -> Vec<Vec<Part>> {
        // Within a range of values of one column, only the last split keeps the order.
        let ordered = begin.iter().all(|part| matches!(part, Part::Equal(_) | Part::Null));
        let at = begin.len();
        if !ordered || !self.nullable.get(at).copied().unwrap_or(false) {
            return vec![begin.to_vec()];
        }
        let with = |part: Part| {
            let mut all = begin.to_vec();
            all.push(part);
            all
        };
        let mut split: Vec<Vec<Part>> = self.whole(&with(Part::Null));
        let values = vec![with(Part::NotNull)];
        if self.range.descending {
            values.into_iter().chain(split).collect()
        } else {
            split.extend(values);
            split
        }
    }

    /// The number of rows to request next: one more than fits, and about as many as there are bytes
    /// for, judging by the previous rows.
    fn fetch(&mut self) -> u32 {
        let taken = self.page.rows.len();
        let room = (self.range.limit.max(1) as usize).saturating_sub(taken) + 1;
        let by_bytes = self.fetch.rows(self.bytes_max.saturating_sub(self.bytes) as u64);
        u32::try_from(room.min(by_bytes)).unwrap_or(u32::MAX).max(1)
    }

    /// Reads rows of one range until the page is full; returns the position if it is.
    async fn step(&mut self, tenant: Option<&Tenant>, parts: &[Part]) -> Job<Option<Vec<Cell>>> {
        let mut parts = vec![parts.to_vec()];
        while let Some(begin) = parts.pop() {
            let fetch = self.fetch();
            let (sql, params) = self.query(tenant, &begin, fetch)?;
            if !self.whole_table(&begin) {
                let View { session, good, .. } = self.view;
                refuse_full_scan(session, good, self.table, &sql, &params).await?;
            }
            let (session, mut came, mut over) = (self.view.session, 0, false);
            let take = |row: &tokio_postgres::Row| {
                over = self.full();
                if !over {
                    self.take(row)?;
                    came += 1;
                }
                Ok(!over)
            };
            session.each(&sql, params, take).await?;
            if over {
                // There is at least one more row: the page ends after the last one taken.
                return Ok(self.last.take());
            }
            if came == fetch {
                // Conditions excluded rows, or the fetch reached its limit: continue from here,
                // within the same range.
                parts.extend(self.rest(&begin));
            }
        }
        Ok(None)
    }

    /// The rest of a range after the last row, in the order in which it is popped.
    fn rest(&self, begin: &[Part]) -> Vec<Vec<Part>> {
        let Some(last) = &self.last else { return Vec::new() };
        let fixed =
            begin.iter().take_while(|part| matches!(part, Part::Equal(_) | Part::Null)).count();
        let all = self.steps(Some(last.clone())).unwrap_or_default();
        // The steps of the staircase that stay within the range's fixed columns; a range of values
        // contains no NULL.
        let values = begin.len() > fixed;
        let mut within: Vec<Vec<Part>> = all
            .into_iter()
            .filter(|step| step.len() > fixed)
            .filter(|step| !(values && matches!(step[fixed], Part::Null)))
            .collect();
        within.reverse();
        within
    }

    fn take(&mut self, row: &tokio_postgres::Row) -> Job<()> {
        self.page.scanned += 1;
        self.fetch.came(row.raw_size_bytes());
        let at = |from: usize, forms: &[Form]| -> Job<Vec<Value>> {
            let value = |(i, form): (usize, &Form)| Ok(form.value_in(row, from + i)?);
            forms.iter().enumerate().map(value).collect()
        };
        let (keys_at, order_at) = (self.columns.len(), self.columns.len() + self.key.len());
        let end = order_at + self.order.len();
        let last: Result<Vec<Cell>, _> = (order_at..end).map(|i| row.try_get(i)).collect();
        self.last = Some(last?);
        if !row.try_get::<_, Option<bool>>(end)?.unwrap_or(false) {
            return Ok(());
        }
        self.room.holds(row.raw_size_bytes())?;
        let values = at(0, &self.columns)?;
        self.bytes += values.iter().map(Value::weight).sum::<usize>();
        let keys = self.range.keys.then(|| at(keys_at, &self.key)).transpose()?;
        self.page.rows.push(values);
        self.page.keys.extend(keys);
        Ok(())
    }

    /// Whether the range is the whole of a table without tenants, in order: then the first page
    /// starts at the first row, and the plan may show a full read.
    fn whole_table(&self, begin: &[Part]) -> bool {
        self.table.tenant.is_none()
            && self.range.prefix.is_empty()
            && self.range.lower.is_none()
            && self.range.upper.is_none()
            && self.range.conditions.is_empty()
            && begin.is_empty()
    }

    fn query(
        &self,
        tenant: Option<&Tenant>,
        begin: &[Part],
        fetch: u32,
    ) -> Job<(String, Vec<Param<'static>>)> {
        let (table, range) = (self.table, self.range);
        let mut params: Vec<Param<'static>> = Vec::new();
        let mut wheres: Vec<String> = Vec::new();
        if let (Some(cell), Some((name, form))) =
            (table.tenant_cell(tenant).map_err(invalid)?, &table.tenant)
        {
            params.push(Box::new(cell));
            wheres.push(form.equals(&format!("t.{name}"), "$1::text"));
        }
        wheres.extend(bounds(table, range, index_columns(table, range)?, &mut params)?);
        for ((name, form), part) in self.order.iter().zip(begin) {
            let column = format!("t.{}", quote(name));
            let mut given = |cell: &Cell| {
                params.push(Box::new(cell.clone()));
                format!("${}::{}", params.len(), form.wire.sql())
            };
            wheres.push(match part {
                Part::Null | Part::Equal(Cell::Null) => format!("{column} IS NULL"),
                Part::NotNull => format!("{column} IS NOT NULL"),
                Part::Equal(cell) => form.equals(&column, &given(cell)),
                Part::Behind(cell) => {
                    let operator = if range.descending { '<' } else { '>' };
                    format!("{column} {operator} {}", form.meets(&given(cell)))
                }
            });
        }
        let of = Conditions::of(table, &range.conditions).map_err(invalid)?;
        let behind = params.len() + 1;
        let conditions = of.sql(|place| format!("${}::{}", behind + place, of.wires[place].sql()));
        params.extend(of.cells.into_iter().map(|cell| Box::new(cell) as Param<'static>));
        let fixed =
            begin.iter().take_while(|part| matches!(part, Part::Equal(_) | Part::Null)).count();
        // The first column that is not fixed contains no NULL, or its range is not split because it
        // cannot be; an index provides its order. The order of the others is specified.
        let direction = if range.descending { " DESC" } else { "" };
        let nulls = if range.descending { " NULLS LAST" } else { " NULLS FIRST" };
        // IS NULL fixes a column like a value, but PostgreSQL does not recognize that: the column
        // stays in the order, and the index provides it in any case.
        let in_prefix = index_columns(table, range)?.iter().zip(&range.prefix);
        let in_prefix = in_prefix.filter(|(_, v)| **v == Value::Null).map(|(name, _)| name);
        let in_begin = self.order.iter().zip(begin);
        let in_begin = in_begin
            .filter(|(_, part)| matches!(part, Part::Null | Part::Equal(Cell::Null)))
            .map(|((name, _), _)| name);
        let absent = in_prefix.chain(in_begin).map(|name| format!("t.{}{direction}", quote(name)));
        let present = (fixed..self.order.len()).map(|at| {
            let nulls = if at > fixed && self.nullable[at] { nulls } else { "" };
            format!("t.{}{direction}{nulls}", quote(&self.order[at].0))
        });
        let order: Vec<String> = absent.chain(present).collect();
        let mut sql = format!("SELECT {}", self.select.join(", "));
        if !self.select.is_empty() {
            sql.push_str(", ");
        }
        sql.push_str(&format!("(true{conditions}) FROM {} t", table.name));
        if !wheres.is_empty() {
            sql.push_str(&format!(" WHERE {}", wheres.join(" AND ")));
        }
        if !order.is_empty() {
            sql.push_str(&format!(" ORDER BY {}", order.join(", ")));
        }
        params.push(Box::new(i64::from(fetch)));
        sql.push_str(&format!(" LIMIT ${}", params.len()));
        Ok((sql, params))
    }
}
