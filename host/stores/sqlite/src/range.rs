//! Range reads as SQL (see [`besom_tables::range`]). SQLite's indexes have NULL before every value,
//! which is the order of a range.

use besom_core::collection::Column;
use besom_core::ids::Tenant;
use besom_core::value::Value;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, params_from_iter};

use super::error::Job;
use super::hint;
use super::lookup::{invalid, selected, weight};
use super::mapping::{DIALECT, Mapping, Params, Table, push_quoted};
use super::plan::{self, Fault, refuse};
use super::tenants::next_tenant;
use super::values::{RawCell, cells};
use besom_ports::store::{Range, RangePage};
use besom_tables::conditions::within;
use besom_tables::range::{Cursor, Page, Part, Stored, tried};
use besom_tables::room::Room;

/// Reads a page.
pub(super) fn read(
    conn: &Connection,
    mapping: &Mapping,
    tenant: Option<&Tenant>,
    range: &Range,
    room: Room,
) -> Job<RangePage> {
    let table = mapping.table(&range.collection).map_err(invalid)?;
    let cursor: Option<Cursor<RawCell>> = Cursor::of(range).map_err(invalid)?;
    let mut reading = Reading::new(conn, table, range, room)?;
    if tenant.is_some() || table.tenant().is_none() {
        let next = reading.read(tenant, cursor.and_then(|c| c.at))?;
        return Ok(reading.page.end(next.map(|at| Cursor { tenant: None, at: Some(at) }))?);
    }
    // Over all tenants: one after the other, one seek each.
    let (mut current, mut at) = match cursor {
        Some(Cursor { tenant: Some(t), at }) => (Some(t), at),
        _ => (next_tenant(conn, table, None, range.descending)?, None),
    };
    while let Some(tenant) = current {
        if let Some(at) = reading.read(Some(&tenant), at.take())? {
            return Ok(reading.page.end(Some(Cursor { tenant: Some(tenant), at: Some(at) }))?);
        }
        current = next_tenant(conn, table, Some(&tenant), range.descending)?;
        if reading.page.is_full() && current.is_some() {
            return Ok(reading.page.end(Some(Cursor { tenant: current, at: None }))?);
        }
    }
    Ok(reading.page.end(None)?)
}

/// What is wrong with the plan of a page that continues after a row.
pub(super) enum NextPage {
    /// The read is refused for this fault.
    Refused(&'static str),
    /// The rows with the same values of the index are sorted for each page.
    SortsEquals,
}

/// The fault in the plan of a page that continues after a row, over an index of the mapping. The
/// first page may come in order while the second has to be sorted.
pub(super) fn fault_of_next_page(
    conn: &Connection,
    table: &Table,
    index: &str,
) -> Job<Option<NextPage>> {
    let range = tried(&table.collection.name, index);
    let reading = Reading::new(conn, table, &range, Room::new(u64::MAX))?;
    let tenant = table.tenant().map(|_| Tenant::from(""));
    // The plan does not depend on the values.
    let behind = vec![RawCell::Integer(0); reading.page.order.len()];
    let mut sorts = None;
    for step in reading.page.steps(Some(behind)).map_err(invalid)? {
        let (mut sql, mut params) = (String::new(), Vec::new());
        reading.query(tenant.as_ref(), &step, &mut sql, &mut params)?;
        match plan::fault(conn, &sql, &params)? {
            None => {}
            Some((Fault::Sorts, _)) if reading.page.is_of_equals(&step) => {
                sorts = Some(NextPage::SortsEquals);
            }
            Some((fault, _)) => return Ok(Some(NextPage::Refused(fault.words()))),
        }
    }
    Ok(sorts)
}

/// The state of reading a page.
struct Reading<'a> {
    conn: &'a Connection,
    /// The index, as named in the statement.
    hint: String,
    table: &'a Table,
    range: &'a Range,
    /// The select list: the caller's columns, the key, the order.
    select: String,
    columns: Vec<Column>,
    key: Vec<Column>,
    page: Page<'a, RawCell>,
}

impl<'a> Reading<'a> {
    fn new(
        conn: &'a Connection,
        table: &'a Table,
        range: &'a Range,
        room: Room,
    ) -> Job<Reading<'a>> {
        let page = Page::new(table, range, room, &DIALECT, |_| true).map_err(invalid)?;
        let keys: &[String] = if range.keys { &table.collection.key } else { &[] };
        let (names, columns) = selected(table, &range.columns)?;
        let (keys, key) = selected(table, keys)?;
        let (order, _) = selected(table, &page.order)?;
        let mut select = String::new();
        for list in [names, keys, order].into_iter().filter(|list| !list.is_empty()) {
            select.push_str(&list);
            select.push_str(", ");
        }
        // Without an index the read uses the key, which is the table itself.
        let hint = match &range.index {
            Some(_) => hint::of_range(conn, table, page.index)?,
            None => String::new(),
        };
        Ok(Reading { conn, hint, table, range, select, columns, key, page })
    }

    /// Continues within one tenant; returns where it stopped if rows are left.
    fn read(
        &mut self,
        tenant: Option<&Tenant>,
        after: Option<Vec<RawCell>>,
    ) -> Job<Option<Vec<RawCell>>> {
        self.page.last = None;
        for step in self.page.steps(after).map_err(invalid)? {
            let (mut sql, mut params) = (String::new(), Vec::new());
            self.query(tenant, &step, &mut sql, &mut params)?;
            if !self.page.is_whole_table(&step) {
                let may_sort = self.page.is_of_equals(&step);
                refuse(self.conn, self.table, &sql, &params, may_sort)?;
            }
            let stopped = self.rows(&sql, &params)?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    fn query<'v>(
        &self,
        tenant: Option<&'v Tenant>,
        begin: &'v [Part<RawCell>],
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Job<()>
    where
        'a: 'v,
    {
        let (table, range) = (self.table, self.range);
        sql.push_str("SELECT ");
        sql.push_str(&self.select);
        sql.push_str("(1");
        table.push_terms(&range.conditions, sql, params).map_err(invalid)?;
        sql.push_str(") FROM ");
        sql.push_str(&table.name);
        sql.push_str(&self.hint);
        sql.push_str(" WHERE ");
        table.push_tenant(tenant, sql, params).map_err(invalid)?;
        table.push_terms(within(range, self.page.index), sql, params).map_err(invalid)?;
        for (name, part) in self.page.order.iter().zip(begin) {
            sql.push_str(" AND ");
            push_quoted(name, sql);
            sql.push_str(match part {
                Part::Equal(_) => " IS ?",
                Part::Behind(_) if range.descending => " < ?",
                Part::Behind(_) => " > ?",
                Part::Null => " IS NULL",
                Part::NotNull => " IS NOT NULL",
            });
            if let Part::Equal(value) | Part::Behind(value) = part {
                params.push(value.param());
            }
        }
        let fixed = begin.iter().take_while(|part| matches!(part, Part::Equal(_))).count();
        let direction = if range.descending { " DESC" } else { "" };
        for (at, name) in self.page.order[fixed..].iter().enumerate() {
            sql.push_str(if at == 0 { " ORDER BY " } else { ", " });
            push_quoted(name, sql);
            sql.push_str(direction);
        }
        Ok(())
    }

    /// Reads rows until the page is full; returns the position if it is.
    fn rows(&mut self, sql: &str, params: &[ToSqlOutput<'_>]) -> Job<Option<Vec<RawCell>>> {
        let mut statement = self.conn.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            if self.page.is_full() {
                // There is at least one more row: the page ends after the last one taken.
                return Ok(self.page.last.take());
            }
            self.page.examined();
            let (keys_at, order_at) = (self.columns.len(), self.columns.len() + self.key.len());
            let end = order_at + self.page.order.len();
            if row.get::<_, Option<bool>>(end)?.unwrap_or(false) {
                let weight = weight(row, self.columns.len())?;
                self.page.holds(weight)?;
                let read = |from, names: &[String], columns: &[Column]| -> Job<Vec<Value>> {
                    let values = cells(row, from, columns.iter())?;
                    self.table.refuse_unlike(self.conn, names, columns, &values)?;
                    Ok(values)
                };
                let values = read(0, &self.range.columns, &self.columns)?;
                let key = &self.table.collection.key;
                let key = self.range.keys.then(|| read(keys_at, key, &self.key)).transpose()?;
                self.page.take(weight, values, key);
            }
            // Only if the page may end here: the next page continues after this row.
            if self.page.is_full() {
                let last: rusqlite::Result<_> = (order_at..end).map(|i| row.get(i)).collect();
                self.page.last = Some(last?);
            }
        }
        Ok(None)
    }
}

impl Stored for RawCell {
    fn is_null(&self) -> bool {
        *self == RawCell::Null
    }
}

/// A cell as stored, whatever its column's kind, to be shown: of a text that is not UTF-8 only an approximation.
pub(super) fn raw_value(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(i) => Value::Integer(i),
        ValueRef::Real(f) => Value::Float(f),
        ValueRef::Blob(b) => Value::Bytes(b.to_vec()),
        ValueRef::Text(t) => Value::Text(String::from_utf8_lossy(t).into_owned()),
    }
}

/// A value as it is stored, of a kind that [`raw_value`] returns.
pub(super) fn raw_cell(value: &Value) -> ToSqlOutput<'_> {
    match value {
        Value::Integer(i) => ToSqlOutput::from(*i),
        Value::Float(f) => ToSqlOutput::from(*f),
        Value::Bytes(b) => ToSqlOutput::Borrowed(ValueRef::Blob(b)),
        Value::Text(t) => ToSqlOutput::Borrowed(ValueRef::Text(t.as_bytes())),
        _ => ToSqlOutput::Borrowed(ValueRef::Null),
    }
}
