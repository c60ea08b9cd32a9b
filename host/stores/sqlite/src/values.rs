//! Values as SQLite stores them, by the kind and encoding of their column, and the special values
//! of the engine's own tables.

use besom_core::collection::{Column, Encoding};
use besom_core::ids::Tenant;
use besom_core::time::{Time, date_of, date_text};
use besom_core::value::{Kind, Value, is_decimal};
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use besom_record::images::{Lent, unhex};
use besom_tables::encoding::{
    Round, instant_of, instant_text, scaled, unscaled, uuid_parse, uuid_text,
};

/// Encodes the value for its column, or returns why it does not fit.
pub(super) fn encode<'a>(
    column: &Column,
    value: &'a Value,
    round: Round,
) -> Result<ToSqlOutput<'a>, String> {
    use rusqlite::types::Value as Owned;
    let text = |s: &'a str| ToSqlOutput::Borrowed(ValueRef::Text(s.as_bytes()));
    let bytes = |b: &'a [u8]| ToSqlOutput::Borrowed(ValueRef::Blob(b));
    let integer = |i: i64| ToSqlOutput::Owned(Owned::Integer(i));
    Ok(match (column.kind, value) {
        (_, Value::Null) => ToSqlOutput::Owned(Owned::Null),
        (Kind::Bool, Value::Bool(b)) => integer(i64::from(*b)),
        (Kind::Integer, Value::Integer(i)) => integer(*i),
        // SQLite would store NULL instead.
        (Kind::Float, Value::Float(f)) if f.is_nan() => return Err("not a number".into()),
        (Kind::Float, Value::Float(f)) => ToSqlOutput::Owned(Owned::Real(*f)),
        (Kind::Float, Value::Integer(i)) => ToSqlOutput::Owned(Owned::Real(*i as f64)),
        (Kind::Decimal, Value::Decimal(s)) if is_decimal(s) => text(s),
        (Kind::Text, Value::Text(s)) | (Kind::Json, Value::Json(s)) => text(s),
        (Kind::Bytes, Value::Bytes(b)) => bytes(b),
        (Kind::Uuid, Value::Uuid(u)) if column.encoding == Encoding::Raw => bytes(u),
        (Kind::Uuid, Value::Uuid(u)) => ToSqlOutput::Owned(Owned::Text(uuid_text(u))),
        (Kind::Date, Value::Date(days)) => ToSqlOutput::Owned(Owned::Text(date_text(*days))),
        (Kind::Timestamp, Value::Timestamp(t)) => match column.encoding {
            encoding if encoding.is_text() => {
                ToSqlOutput::Owned(Owned::Text(instant_text(*t, encoding, round)?))
            }
            encoding => integer(scaled(t.0, encoding, round)),
        },
        (kind, value) => return Err(kind.unlike(value)),
    })
}

/// The value of a cell. A cell that does not match its column's kind (SQLite does not enforce it)
/// keeps its own kind: it is then one item's problem and not the whole page's.
pub(super) fn decode(column: &Column, cell: ValueRef<'_>) -> Value {
    match (column.kind, cell) {
        (_, ValueRef::Null) => Value::Null,
        (Kind::Bool, ValueRef::Integer(i @ (0 | 1))) => Value::Bool(i == 1),
        (Kind::Float, ValueRef::Integer(i)) => Value::Float(i as f64),
        (Kind::Decimal, ValueRef::Integer(i)) => Value::Decimal(i.to_string()),
        (Kind::Decimal, ValueRef::Real(f)) => Value::Decimal(f.to_string()),
        // Beyond every instant it stays a number: read as the nearest instant it would never be
        // equal to what is stored.
        (Kind::Timestamp, ValueRef::Integer(i)) if !column.encoding.is_text() => {
            unscaled(i, column.encoding)
                .map_or(Value::Integer(i), |micros| Value::Timestamp(Time(micros)))
        }
        (Kind::Uuid, ValueRef::Blob(b)) => {
            b.try_into().map_or_else(|_| Value::Bytes(b.to_vec()), Value::Uuid)
        }
        (_, ValueRef::Integer(i)) => Value::Integer(i),
        (_, ValueRef::Real(f)) => Value::Float(f),
        (_, ValueRef::Blob(b)) => Value::Bytes(b.to_vec()),
        (kind, ValueRef::Text(t)) => match str::from_utf8(t) {
            Err(_) => Value::Bytes(t.to_vec()),
            Ok(s) => match kind {
                Kind::Decimal => Value::Decimal(s.to_owned()),
                Kind::Json => Value::Json(s.to_owned()),
                Kind::Uuid => uuid_parse(s).map_or_else(|| Value::Text(s.to_owned()), Value::Uuid),
                Kind::Date => date_of(s).map_or_else(|| Value::Text(s.to_owned()), Value::Date),
                Kind::Timestamp if column.encoding.is_text() => instant_of(s, column.encoding)
                    .map_or_else(|| Value::Text(s.to_owned()), Value::Timestamp),
                _ => Value::Text(s.to_owned()),
            },
        },
    }
}

/// The value of a mapped column in a row that was kept.
pub(super) fn of_kept(column: Column, _: bool, stored: &Value) -> Value {
    let cell = match stored {
        Value::Integer(integer) => ValueRef::Integer(*integer),
        Value::Float(float) => ValueRef::Real(*float),
        Value::Text(text) => ValueRef::Text(text.as_bytes()),
        Value::Bytes(bytes) => ValueRef::Blob(bytes),
        Value::Json(garbled) => return unhex(garbled).map_or(Value::Null, Value::Bytes),
        other => return other.clone(),
    };
    decode(&column, cell)
}

/// Every cell of a row as it is stored, borrowed from the statement.
pub(super) fn lent_cells<'a>(row: &'a rusqlite::Row<'_>) -> rusqlite::Result<Vec<Lent<'a>>> {
    // Not collected: a fallible iterator has no known length, and there may be hundreds of
    // thousands of rows.
    let count = row.as_ref().column_count();
    let mut cells = Vec::with_capacity(count);
    for at in 0..count {
        cells.push(match row.get_ref(at)? {
            ValueRef::Null => Lent::Null,
            ValueRef::Integer(integer) => Lent::Integer(integer),
            ValueRef::Real(float) => Lent::Float(float),
            ValueRef::Blob(bytes) => Lent::Bytes(bytes.into()),
            ValueRef::Text(text) => match str::from_utf8(text) {
                Ok(text) => Lent::Text(text.into()),
                Err(_) => Lent::Garbled(text.into()),
            },
        });
    }
    Ok(cells)
}

/// The names of a row's columns.
pub(super) fn names_of<'a>(row: &'a rusqlite::Row<'_>) -> impl Iterator<Item = (&'a str, bool)> {
    let statement = row.as_ref();
    (0..statement.column_count()).filter_map(|at| Some((statement.column_name(at).ok()?, false)))
}

/// The values of neighbouring cells, from `from` on, by their columns.
pub(super) fn cells<'c>(
    row: &rusqlite::Row<'_>,
    from: usize,
    columns: impl ExactSizeIterator<Item = &'c Column>,
) -> rusqlite::Result<Vec<Value>> {
    let mut values = Vec::with_capacity(columns.len());
    for (at, column) in columns.enumerate() {
        values.push(decode(column, row.get_ref(from + at)?));
    }
    Ok(values)
}

/// A tenant in the engine's tables: its text, or 0 for none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TenantCell(pub Option<Tenant>);

impl ToSql for TenantCell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(tenant_cell(self.0.as_ref()))
    }
}

impl FromSql for TenantCell {
    fn column_result(cell: ValueRef<'_>) -> FromSqlResult<TenantCell> {
        Ok(TenantCell(match cell {
            ValueRef::Integer(_) => None,
            other => Some(other.as_str()?.into()),
        }))
    }
}

/// A cell as it is, whatever somebody else has written: a text need not be one of Unicode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RawCell {
    Null,
    Integer(i64),
    /// The bits of the number, so that cells have an order.
    Real(u64),
    Text(Vec<u8>),
    Blob(Vec<u8>),
}

/// Packed like the [`Value`] of the cell, as the rows of before-images are: a cursor has to find its position again.
impl Serialize for RawCell {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let lent = match self {
            RawCell::Null => Lent::Null,
            RawCell::Integer(number) => Lent::Integer(*number),
            RawCell::Real(bits) => Lent::Float(f64::from_bits(*bits)),
            RawCell::Text(text) => match str::from_utf8(text) {
                Ok(text) => Lent::Text(text.into()),
                Err(_) => Lent::Garbled(text.into()),
            },
            RawCell::Blob(bytes) => Lent::Bytes(bytes.into()),
        };
        lent.serialize(to)
    }
}

impl<'de> Deserialize<'de> for RawCell {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<RawCell, D::Error> {
        let unfit = || D::Error::custom("no value of a cell");
        Ok(match Value::deserialize(from)? {
            Value::Null => RawCell::Null,
            Value::Integer(number) => RawCell::Integer(number),
            Value::Float(number) => RawCell::Real(number.to_bits()),
            Value::Text(text) => RawCell::Text(text.into_bytes()),
            Value::Json(garbled) => RawCell::Text(unhex(&garbled).ok_or_else(unfit)?),
            Value::Bytes(bytes) => RawCell::Blob(bytes),
            _ => return Err(unfit()),
        })
    }
}

impl From<&str> for RawCell {
    fn from(text: &str) -> RawCell {
        RawCell::Text(text.into())
    }
}

impl RawCell {
    /// As a parameter of a statement.
    pub(super) fn param(&self) -> ToSqlOutput<'_> {
        ToSqlOutput::Borrowed(match self {
            RawCell::Null => ValueRef::Null,
            RawCell::Integer(number) => ValueRef::Integer(*number),
            RawCell::Real(bits) => ValueRef::Real(f64::from_bits(*bits)),
            RawCell::Text(text) => ValueRef::Text(text),
            RawCell::Blob(bytes) => ValueRef::Blob(bytes),
        })
    }
}

impl ToSql for RawCell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.param())
    }
}

impl FromSql for RawCell {
    fn column_result(cell: ValueRef<'_>) -> FromSqlResult<RawCell> {
        Ok(match cell {
            ValueRef::Null => RawCell::Null,
            ValueRef::Integer(number) => RawCell::Integer(number),
            ValueRef::Real(number) => RawCell::Real(number.to_bits()),
            ValueRef::Text(text) => RawCell::Text(text.to_vec()),
            ValueRef::Blob(bytes) => RawCell::Blob(bytes.to_vec()),
        })
    }
}

/// See [`TenantCell`].
pub(super) fn tenant_cell(tenant: Option<&Tenant>) -> ToSqlOutput<'_> {
    match tenant {
        Some(t) => ToSqlOutput::Borrowed(ValueRef::Text(t.as_str().as_bytes())),
        None => ToSqlOutput::Owned(rusqlite::types::Value::Integer(0)),
    }
}

/// A due time in the engine's tables: microseconds, or the empty text for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DueCell(pub Option<Time>);

impl ToSql for DueCell {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            Some(t) => ToSqlOutput::Owned(rusqlite::types::Value::Integer(t.0)),
            None => ToSqlOutput::Borrowed(ValueRef::Text(b"")),
        })
    }
}

impl FromSql for DueCell {
    fn column_result(cell: ValueRef<'_>) -> FromSqlResult<DueCell> {
        Ok(DueCell(match cell {
            ValueRef::Integer(t) => Some(Time(t)),
            _ => None,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(kind: Kind, encoding: Encoding, value: Value) -> Value {
        let column = Column { kind, encoding };
        let stored = encode(&column, &value, Round::Down).expect("fits");
        let cell = match &stored {
            ToSqlOutput::Borrowed(cell) => *cell,
            ToSqlOutput::Owned(owned) => owned.into(),
            _ => unreachable!("encode makes no other output"),
        };
        decode(&column, cell)
    }

    #[test]
    fn every_kind_comes_back_as_it_was() {
        let instant = Value::Timestamp(Time::from_secs(1_700_000_000));
        for (kind, encoding, value) in [
            (Kind::Bool, Encoding::Native, Value::Bool(true)),
            (Kind::Integer, Encoding::Native, Value::Integer(i64::MIN)),
            (Kind::Float, Encoding::Native, Value::Float(-0.5)),
            (Kind::Decimal, Encoding::Native, Value::Decimal("12.50".into())),
            (Kind::Text, Encoding::Native, Value::Text("\u{0}é".into())),
            (Kind::Bytes, Encoding::Native, Value::Bytes(vec![0, 255])),
            (Kind::Json, Encoding::Native, Value::Json("{}".into())),
            (Kind::Uuid, Encoding::Native, Value::Uuid([7; 16])),
            (Kind::Uuid, Encoding::Raw, Value::Uuid([7; 16])),
            (Kind::Date, Encoding::Native, Value::Date(-1)),
            (Kind::Timestamp, Encoding::Native, Value::Timestamp(Time(-1))),
            (Kind::Timestamp, Encoding::Seconds, instant.clone()),
            (Kind::Timestamp, Encoding::Millis, instant.clone()),
            (Kind::Timestamp, Encoding::Rfc3339, instant.clone()),
            (Kind::Timestamp, Encoding::Datetime, instant.clone()),
            (Kind::Timestamp, Encoding::Rfc3339Millis, instant.clone()),
            (Kind::Timestamp, Encoding::Datetime6, instant),
            (Kind::Text, Encoding::Native, Value::Null),
        ] {
            assert_eq!(round_trip(kind, encoding, value.clone()), value, "{kind:?} {encoding:?}");
        }
    }

    #[test]
    fn a_value_of_another_kind_is_refused_with_both_kinds_named() {
        let column = Column { kind: Kind::Integer, encoding: Encoding::Native };
        let said = encode(&column, &Value::Text("7".into()), Round::Down).unwrap_err();
        assert_eq!(said, "expected integer, found text");
    }
}
