//! Range reads: keyset paging over a declared index.
//!
//! Rows are ordered by (index columns, key), which is a total order. A page ends with the values of
//! these columns in its last row. The next page continues after them in a staircase of plain index
//! ranges: first equal values but a later last column, then equal values but a later second-to-last
//! column, and so on. Unlike a comparison of whole rows this is correct for NULL, and every step is
//! one seek.

use besom_core::collection::Column;
use besom_core::ids::Tenant;
use besom_core::value::Value;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, params_from_iter};
use serde::{Deserialize, Serialize};

use super::error::Job;
use super::hint;
use super::lookup::{invalid, selected, weight};
use super::mapping::{Mapping, Params, Table, quote};
use super::plan::{self, refuse_full_scan};
use super::tenants::next_tenant;
use super::values::{Round, cells};
use besom_ports::store::{Range, RangePage};
use besom_record::room::Room;

/// The position at which a page ended.
#[derive(Serialize, Deserialize)]
struct Cursor {
    /// The tenant, in a read over all tenants.
    tenant: Option<Tenant>,
    /// The values of the ordering columns as the database stores them; none: before the tenant's
    /// first row.
    at: Option<Vec<Value>>,
}

/// Reads a page.
pub(super) fn read(
    conn: &Connection,
    mapping: &Mapping,
    tenant: Option<&Tenant>,
    range: &Range,
    room: Room,
) -> Job<RangePage> {
    let table = mapping.table(&range.collection).map_err(invalid)?;
    let cursor: Option<Cursor> = match &range.after {
        None => None,
        Some(bytes) => Some(postcard::from_bytes(bytes).map_err(|_| {
            invalid(format!("the cursor of a read of {:?} is invalid", range.collection))
        })?),
    };
    let mut reading = Reading::new(conn, table, range, room)?;
    if tenant.is_some() || table.tenant().is_none() {
        let at = cursor.and_then(|c| c.at);
        let next = reading.read(conn, tenant, at)?;
        return reading.page(next.map(|at| Cursor { tenant: None, at: Some(at) }));
    }
    // Over all tenants: one after the other, one seek each.
    let (mut current, mut at) = match cursor {
        Some(Cursor { tenant: Some(t), at }) => (Some(t), at),
        _ => (next_tenant(conn, table, None, range.descending)?, None),
    };
    while let Some(tenant) = current {
        if let Some(at) = reading.read(conn, Some(&tenant), at.take())? {
            return reading.page(Some(Cursor { tenant: Some(tenant), at: Some(at) }));
        }
        current = next_tenant(conn, table, Some(&tenant), range.descending)?;
        if reading.full() && current.is_some() {
            return reading.page(Some(Cursor { tenant: current, at: None }));
        }
    }
    reading.page(None)
}

/// The fault in the plan of a page that continues after a row, over an index of the mapping. The
/// first page may come in order while the second has to be sorted.
pub(super) fn fault_of_next_page(
    conn: &Connection,
    table: &Table,
    index: &str,
) -> Job<Option<&'static str>> {
    let range = Range {
        collection: table.collection.name.clone(),
        index: Some(index.to_owned()),
        limit: 1,
        ..Range::default()
    };
    let reading = Reading::new(conn, table, &range, Room::new(u64::MAX))?;
    let tenant = table.tenant().map(|_| Tenant::from(""));
    // The plan does not depend on the values.
    let behind = vec![Value::Integer(0); reading.order.len()];
    for equal in (0..behind.len()).rev() {
        let (mut sql, mut params) = (String::new(), Vec::new());
        let value = Some(&behind[equal]);
        let (equal, step) = (&behind[..equal], Behind::Value);
        reading.query(tenant.as_ref(), equal, value, step, &mut sql, &mut params)?;
        if let Some((fault, _)) = plan::fault(conn, &sql, &params)? {
            return Ok(Some(fault));
        }
    }
    Ok(None)
}

/// The state of reading a page.
struct Reading<'a> {
    /// The index, as named in the statement.
    hint: String,
    table: &'a Table,
    range: &'a Range,
    /// The columns after the prefix that order the rows.
    order: Vec<String>,
    /// The select list: the caller's columns, the key, the order, and whether the conditions hold.
    select: String,
    columns: Vec<Column>,
    key: Vec<Column>,
    page: RangePage,
    bytes: usize,
    /// The approximate size of a page.
    bytes_max: usize,
    /// The size limit of a single row.
    room: Room,
    /// The ordering columns of the last row examined, within the tenant.
    last: Option<Vec<Value>>,
}

impl<'a> Reading<'a> {
    fn new(conn: &Connection, table: &'a Table, range: &'a Range, room: Room) -> Job<Reading<'a>> {
        let index = table.collection.index_columns(range.index.as_deref()).ok_or_else(|| {
            let known: Vec<_> = table.collection.indexes.keys().cloned().collect();
            invalid(format!(
                "the collection {:?} has no index {:?}; it has: {}",
                range.collection,
                range.index.as_deref().unwrap_or_default(),
                known.join(", ")
            ))
        })?;
        if range.prefix.len() > index.len() {
            return Err(invalid(format!("the prefix is longer than the index {index:?}")));
        }
        if range.prefix.len() == index.len() && (range.lower.is_some() || range.upper.is_some()) {
            return Err(invalid(format!("{index:?} has no column left for bounds")));
        }
        let mut order: Vec<String> = Vec::new();
        for name in index[range.prefix.len()..].iter().chain(&table.collection.key) {
            let fixed = index[..range.prefix.len()].contains(name);
            if !fixed && !order.contains(name) {
                table.column(name).map_err(invalid)?;
                order.push(name.clone());
            }
        }
        let (mut select, columns) = selected(table, &range.columns)?;
        let (key_names, key) = selected(table, &table.collection.key)?;
        for names in [
            Some(key_names).filter(|_| range.keys),
            Some(order.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", ")),
        ] {
            let Some(names) = names.filter(|n| !n.is_empty()) else { continue };
            if !select.is_empty() {
                select.push_str(", ");
            }
            select.push_str(&names);
        }
        let key = if range.keys { key } else { Vec::new() };
        // Without an index the read uses the key, which is the table itself.
        let hint = match &range.index {
            Some(_) => hint::of_range(conn, table, index)?,
            None => String::new(),
        };
        Ok(Reading {
            hint,
            table,
            range,
            order,
            select,
            columns,
            key,
            page: RangePage::default(),
            bytes: 0,
            bytes_max: range.bytes_max.min(usize::try_from(room.max()).unwrap_or(usize::MAX)),
            room,
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
    fn read(
        &mut self,
        conn: &Connection,
        tenant: Option<&Tenant>,
        after: Option<Vec<Value>>,
    ) -> Job<Option<Vec<Value>>> {
        self.last = None;
        let Some(after) = after else {
            return self.step(conn, tenant, &[], None);
        };
        if after.len() != self.order.len() {
            return Err(invalid("the cursor belongs to another read".to_owned()));
        }
        for equal in (0..after.len()).rev() {
            let stopped = self.step(conn, tenant, &after[..equal], Some(&after[equal]))?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// Reads one range of the index: equal values for the first ordering columns, and the next one
    /// strictly after a value.
    fn step(
        &mut self,
        conn: &Connection,
        tenant: Option<&Tenant>,
        equal: &[Value],
        behind: Option<&Value>,
    ) -> Job<Option<Vec<Value>>> {
        let range = self.range;
        // In descending order NULL comes last: a value is followed by lower values, then NULL.
        let nulls_last = range.descending && behind.is_some_and(|v| *v != Value::Null);
        let steps: &[Behind] = match behind {
            None => &[Behind::Anything],
            Some(Value::Null) if range.descending => &[],
            Some(Value::Null) => &[Behind::NotNull],
            Some(_) if nulls_last => &[Behind::Value, Behind::Null],
            Some(_) => &[Behind::Value],
        };
        for step in steps {
            let (mut sql, mut params) = (String::new(), Vec::new());
            self.query(tenant, equal, behind, *step, &mut sql, &mut params)?;
            if !self.whole_table(equal, behind) {
                refuse_full_scan(conn, self.table, &sql, &params)?;
            }
            let stopped = self.rows(conn, &sql, &params)?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
        Ok(None)
    }

    /// Whether the range is the whole of a table without tenants, in order: then the first page
    /// starts at the first row, and the plan may show a full read.
    fn whole_table(&self, equal: &[Value], behind: Option<&Value>) -> bool {
        self.table.tenant().is_none()
            && self.range.prefix.is_empty()
            && self.range.lower.is_none()
            && self.range.upper.is_none()
            && self.range.conditions.is_empty()
            && equal.is_empty()
            && behind.is_none()
    }

    fn query<'v>(
        &self,
        tenant: Option<&'v Tenant>,
        equal: &'v [Value],
        behind: Option<&'v Value>,
        step: Behind,
        sql: &mut String,
        params: &mut Params<'v>,
    ) -> Job<()>
    where
        'a: 'v,
    {
        let (table, range) = (self.table, self.range);
        sql.push_str("SELECT ");
        sql.push_str(&self.select);
        sql.push_str(", (1");
        table.push_conditions(&range.conditions, sql, params).map_err(invalid)?;
        sql.push_str(") FROM ");
        sql.push_str(&table.name);
        sql.push_str(&self.hint);
        sql.push_str(" WHERE ");
        table.push_tenant(tenant, sql, params).map_err(invalid)?;
        let index = table.collection.index_columns(range.index.as_deref()).unwrap_or_default();
        let mut and = |name: &str, operator: &str, value: &'v Value, round| -> Job<()> {
            sql.push_str(" AND ");
            sql.push_str(&quote(name));
            sql.push_str(operator);
            params.push(table.cell(name, value, round).map_err(invalid)?);
            Ok(())
        };
        for (name, value) in index.iter().zip(&range.prefix) {
            and(name, " IS ?", value, Round::Down)?;
        }
        if let Some(bounded) = index.get(range.prefix.len()) {
            if let Some(lower) = &range.lower {
                and(bounded, " >= ?", lower, Round::Up)?;
            }
            if let Some(upper) = &range.upper {
                and(bounded, " <= ?", upper, Round::Down)?;
            }
        }
        for (name, value) in self.order.iter().zip(equal) {
            sql.push_str(&format!(" AND {} IS ?", quote(name)));
            params.push(raw_cell(value));
        }
        if let Some(name) = self.order.get(equal.len()) {
            match (step, behind) {
                (Behind::Anything, _) | (_, None) => {}
                (Behind::Value, Some(value)) => {
                    let operator = if range.descending { '<' } else { '>' };
                    sql.push_str(&format!(" AND {} {operator} ?", quote(name)));
                    params.push(raw_cell(value));
                }
                (Behind::Null, _) => sql.push_str(&format!(" AND {} IS NULL", quote(name))),
                (Behind::NotNull, _) => sql.push_str(&format!(" AND {} IS NOT NULL", quote(name))),
            }
        }
        let direction = if range.descending { " DESC" } else { "" };
        let order: Vec<String> = self.order[equal.len()..]
            .iter()
            .map(|name| format!("{}{direction}", quote(name)))
            .collect();
        if !order.is_empty() {
            sql.push_str(" ORDER BY ");
            sql.push_str(&order.join(", "));
        }
        Ok(())
    }

    /// Reads rows until the page is full; returns the position if it is.
    fn rows(
        &mut self,
        conn: &Connection,
        sql: &str,
        params: &[ToSqlOutput<'_>],
    ) -> Job<Option<Vec<Value>>> {
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(params))?;
        while let Some(row) = rows.next()? {
            if self.full() {
                // There is at least one more row: the page ends after the last one taken.
                return Ok(self.last.take());
            }
            self.page.scanned += 1;
            let (keys_at, order_at) = (self.columns.len(), self.columns.len() + self.key.len());
            let end = order_at + self.order.len();
            if row.get::<_, Option<bool>>(end)?.unwrap_or(false) {
                let weight = weight(row, self.columns.len())?;
                self.room.holds(weight)?;
                self.bytes += weight;
                let values = cells(row, 0, self.columns.iter())?;
                self.table.refuse_unlike(conn, &self.range.columns, &self.columns, &values)?;
                self.page.rows.push(values);
                if self.range.keys {
                    let key = cells(row, keys_at, self.key.iter())?;
                    self.table.refuse_unlike(conn, &self.table.collection.key, &self.key, &key)?;
                    self.page.keys.push(key);
                }
            }
            // Only if the page may end here: the next page continues after this row.
            if self.full() {
                let last: rusqlite::Result<_> =
                    (order_at..end).map(|i| Ok(raw_value(row.get_ref(i)?))).collect();
                self.last = Some(last?);
            }
        }
        Ok(None)
    }
}

/// A cell as stored, whatever its column's kind: a cursor has to find its position again.
fn raw_value(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(i) => Value::Integer(i),
        ValueRef::Real(f) => Value::Float(f),
        ValueRef::Blob(b) => Value::Bytes(b.to_vec()),
        ValueRef::Text(t) => Value::Text(String::from_utf8_lossy(t).into_owned()),
    }
}

/// Reverses [`raw_value`].
fn raw_cell(value: &Value) -> ToSqlOutput<'_> {
    match value {
        Value::Integer(i) => ToSqlOutput::from(*i),
        Value::Float(f) => ToSqlOutput::from(*f),
        Value::Bytes(b) => ToSqlOutput::Borrowed(ValueRef::Blob(b)),
        Value::Text(t) => ToSqlOutput::Borrowed(ValueRef::Text(t.as_bytes())),
        _ => ToSqlOutput::Borrowed(ValueRef::Null),
    }
}

/// The condition on the column after the equal ones.
#[derive(Clone, Copy)]
enum Behind {
    Anything,
    Value,
    Null,
    NotNull,
}
