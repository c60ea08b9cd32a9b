//! Range reads as SQL (see [`besom_tables::range`]).
//!
//! PostgreSQL's indexes have NULL at their upper end, so a column that may hold NULL is read in two
//! ranges, NULL and the values, instead of being sorted.

use besom_core::ids::Tenant;
use besom_core::value::Value;

use super::conditions::Conditions;
use super::error::{Job, invalid};
use super::lookup::{Fetch, selected};
use super::mapping::{DIALECT, Table, quote};
use super::plan::{fault_of, refuse_full_scan};
use super::session::Param;
use super::snapshot::View;
use super::tenants::next_tenant;
use super::units;
use super::values::{Cell, Form};
use besom_ports::store::{Range, RangePage};
use besom_tables::conditions::within;
use besom_tables::range::{self, Cursor, Page, fixed, tried};

type Part = range::Part<Cell>;

/// Reads a page.
pub(super) async fn read(
    view: &View<'_>,
    tenant: Option<&Tenant>,
    range: &Range,
) -> Job<RangePage> {
    let table = view.mapping.table(&range.collection).map_err(invalid)?;
    let cursor: Option<Cursor<Cell>> = Cursor::of(range).map_err(invalid)?;
    let mut reading = Reading::new(view, table, range)?;
    if tenant.is_some() || table.tenant.is_none() {
        let next = reading.read(tenant, cursor.and_then(|c| c.at)).await?;
        return Ok(reading.page.end(next.map(|at| Cursor { tenant: None, at: Some(at) }))?);
    }
    // Over all tenants: one after the other, one seek each.
    let (mut current, mut at) = match cursor {
        Some(Cursor { tenant: Some(t), at }) => (Some(t), at),
        _ => (next_tenant(view, table, None, range.descending).await?, None),
    };
    while let Some(tenant) = current {
        if let Some(at) = reading.read(Some(&tenant), at.take()).await? {
            return Ok(reading.page.end(Some(Cursor { tenant: Some(tenant), at: Some(at) }))?);
        }
        current = next_tenant(view, table, Some(&tenant), range.descending).await?;
        if reading.page.is_full() && current.is_some() {
            return Ok(reading.page.end(Some(Cursor { tenant: current, at: None }))?);
        }
    }
    Ok(reading.page.end(None)?)
}

/// The fault in the plan of a page that continues after a row, over an index of the mapping. The
/// first page may come in order while the second has to be sorted. To be called in a transaction.
pub(super) async fn fault_of_next_page(
    view: &View<'_>,
    table: &Table,
    index: &str,
) -> Job<Option<&'static str>> {
    let range = tried(&table.collection.name, index);
    let reading = Reading::new(view, table, &range)?;
    let tenant = table.tenant.as_ref().map(|_| Tenant::from(""));
    // The plan is the same for all values that are not NULL.
    let behind = vec![Cell::Bool(true); reading.page.order.len()];
    for step in reading.page.steps(Some(behind)).map_err(invalid)? {
        let (sql, params) = reading.query(tenant.as_ref(), &step, 1)?;
        if let Some(fault) = fault_of(view.session, &sql, params.len()).await? {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

/// The state of reading a page.
struct Reading<'a> {
    view: &'a View<'a>,
    table: &'a Table,
    range: &'a Range,
    /// The forms of the columns that order the rows.
    order: Vec<Form>,
    /// The select list: the caller's columns, the key, the order.
    select: Vec<String>,
    columns: Vec<Form>,
    key: Vec<Form>,
    page: Page<'a, Cell>,
    fetch: Fetch,
    /// The column in which an instant of another unit was read.
    suspect: Option<usize>,
}

impl<'a> Reading<'a> {
    fn new(view: &'a View<'a>, table: &'a Table, range: &'a Range) -> Job<Reading<'a>> {
        let nullable = |name: &str| table.nullable(name);
        let page = Page::new(table, range, view.room(), &DIALECT, nullable).map_err(invalid)?;
        let (mut select, columns) = selected(table, &range.columns).map_err(invalid)?;
        let keys: &[String] = if range.keys { &table.collection.key } else { &[] };
        let (read, key) = selected(table, keys).map_err(invalid)?;
        select.extend(read);
        let (read, order) = selected(table, &page.order).map_err(invalid)?;
        select.extend(read);
        let fetch = Fetch::of(&columns);
        Ok(Reading { view, table, range, order, select, columns, key, page, fetch, suspect: None })
    }

    /// Continues within one tenant; returns where it stopped if rows are left.
    async fn read(
        &mut self,
        tenant: Option<&Tenant>,
        after: Option<Vec<Cell>>,
    ) -> Job<Option<Vec<Cell>>> {
        self.page.last = None;
        for step in self.page.steps(after).map_err(invalid)? {
            let stopped = self.step(tenant, &step).await?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// The number of rows to request next: one more than fits, and about as many as there are bytes
    /// for, judging by the previous rows.
    fn fetch(&mut self) -> u32 {
        let by_bytes = self.fetch.rows(self.page.bytes_left() as u64);
        u32::try_from(by_bytes.min(self.page.rows_left() + 1)).unwrap_or(u32::MAX).max(1)
    }

    /// Reads rows of one range until the page is full; returns the position if it is.
    async fn step(&mut self, tenant: Option<&Tenant>, parts: &[Part]) -> Job<Option<Vec<Cell>>> {
        let mut parts = vec![parts.to_vec()];
        while let Some(begin) = parts.pop() {
            let fetch = self.fetch();
            let (sql, params) = self.query(tenant, &begin, fetch)?;
            if !self.page.is_whole_table(&begin) {
                let View { session, good, .. } = self.view;
                refuse_full_scan(session, good, self.table, &sql, &params).await?;
            }
            let (session, mut came, mut over) = (self.view.session, 0, false);
            let take = |row: &tokio_postgres::Row| {
                over = self.page.is_full();
                if !over {
                    self.take(row)?;
                    came += 1;
                }
                Ok(!over)
            };
            session.each(&sql, params, take).await?;
            if let Some(at) = self.suspect.take() {
                units::refuse(session, self.table, &self.range.columns[at]).await?;
            }
            if over {
                // There is at least one more row: the page ends after the last one taken.
                return Ok(self.page.last.take());
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
        let Some(last) = &self.page.last else { return Vec::new() };
        let fixed = fixed(begin);
        let all = self.page.steps(Some(last.clone())).unwrap_or_default();
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
        self.page.examined();
        self.fetch.came(row.raw_size_bytes());
        let at = |from: usize, forms: &[Form]| -> Job<Vec<Value>> {
            let value = |(i, form): (usize, &Form)| Ok(form.value_in(row, from + i)?);
            forms.iter().enumerate().map(value).collect()
        };
        let (keys_at, order_at) = (self.columns.len(), self.columns.len() + self.key.len());
        let end = order_at + self.order.len();
        let last: Result<Vec<Cell>, _> = (order_at..end).map(|i| row.try_get(i)).collect();
        self.page.last = Some(last?);
        if !row.try_get::<_, Option<bool>>(end)?.unwrap_or(false) {
            return Ok(());
        }
        self.page.holds(row.raw_size_bytes())?;
        let values = at(0, &self.columns)?;
        self.suspect = self.suspect.or_else(|| units::suspect(&self.columns, &values));
        let key = self.range.keys.then(|| at(keys_at, &self.key)).transpose()?;
        self.page.take(values.iter().map(Value::weight).sum(), values, key);
        Ok(())
    }

    fn query(
        &self,
        tenant: Option<&Tenant>,
        begin: &[Part],
        fetch: u32,
    ) -> Job<(String, Vec<Param<'static>>)> {
        let (table, range) = (self.table, self.range);
        let mut params: Vec<Param<'static>> = Vec::new();
        let mut wheres = "true".to_owned();
        if let (Some(cell), Some((name, form))) =
            (table.tenant_cell(tenant).map_err(invalid)?, &table.tenant)
        {
            params.push(Box::new(cell));
            wheres.push_str(&format!(" AND {}", form.equals(&format!("t.{name}"), "$1::text")));
        }
        let index = self.page.index;
        let within = Conditions::of(table, within(range, index)).map_err(invalid)?;
        wheres.push_str(&within.numbered(&mut params));
        for ((name, form), part) in self.page.order.iter().zip(&self.order).zip(begin) {
            let column = format!("t.{}", quote(name));
            let mut given = |cell: &Cell| {
                params.push(Box::new(cell.clone()));
                format!("${}::{}", params.len(), form.wire.sql())
            };
            wheres.push_str(" AND ");
            wheres.push_str(&match part {
                Part::Null | Part::Equal(Cell::Null) => format!("{column} IS NULL"),
                Part::NotNull => format!("{column} IS NOT NULL"),
                Part::Equal(cell) => form.equals(&column, &given(cell)),
                Part::Behind(cell) => {
                    let operator = if range.descending { '<' } else { '>' };
                    format!("{column} {operator} {}", form.meets(&given(cell)))
                }
            });
        }
        let conditions = Conditions::of(table, &range.conditions).map_err(invalid)?;
        let conditions = conditions.numbered(&mut params);
        let fixed = fixed(begin);
        // The first column that is not fixed contains no NULL, or its range is not split because it
        // cannot be; an index provides its order. The order of the others is specified.
        let direction = if range.descending { " DESC" } else { "" };
        let nulls = if range.descending { " NULLS LAST" } else { " NULLS FIRST" };
        // IS NULL fixes a column like a value, but PostgreSQL does not recognize that: the column
        // stays in the order, and the index provides it in any case.
        let in_prefix = index.columns.iter().zip(&range.prefix);
        let in_prefix = in_prefix.filter(|(_, v)| **v == Value::Null).map(|(name, _)| name);
        let in_begin = self.page.order.iter().zip(begin);
        let in_begin = in_begin
            .filter(|(_, part)| matches!(part, Part::Null | Part::Equal(Cell::Null)))
            .map(|(name, _)| name);
        let absent = in_prefix.chain(in_begin).map(|name| format!("t.{}{direction}", quote(name)));
        let present = (fixed..self.order.len()).map(|at| {
            let nulls = if at > fixed && self.page.nullable[at] { nulls } else { "" };
            format!("t.{}{direction}{nulls}", quote(&self.page.order[at]))
        });
        let order: Vec<String> = absent.chain(present).collect();
        let mut sql = format!("SELECT {}", self.select.join(", "));
        if !self.select.is_empty() {
            sql.push_str(", ");
        }
        sql.push_str(&format!("(true{conditions}) FROM {} t WHERE {wheres}", table.name));
        if !order.is_empty() {
            sql.push_str(&format!(" ORDER BY {}", order.join(", ")));
        }
        params.push(Box::new(i64::from(fetch)));
        sql.push_str(&format!(" LIMIT ${}", params.len()));
        Ok((sql, params))
    }
}
