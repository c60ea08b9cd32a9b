//! Converts values to and from the user's columns. The form in which a value travels depends on the
//! kind and encoding of its mapping and on the column's actual type.

use besom_core::collection::{Column, Encoding};
use besom_core::time::{Time, date_of, date_text};
use besom_core::value::{Kind, Value, is_decimal};
use bytes::{BufMut, BytesMut};
use serde::{Deserialize, Serialize};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type};

use besom_tables::encoding::{
    Round, instant_of, instant_text, scaled, unscaled, uuid_parse, uuid_text,
};
use besom_tables::range::Stored;

type Fallible<T> = std::result::Result<T, Box<dyn std::error::Error + Sync + Send>>;

/// The difference between PostgreSQL's epoch (2000) and the Unix epoch, in microseconds.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// The difference between PostgreSQL's epoch and the Unix epoch, in days.
const EPOCH_DAYS: i32 = 10_957;
/// The first and the last day of a `date`, in PostgreSQL's days.
const DAYS: std::ops::RangeInclusive<i32> = -2_451_545..=2_145_031_948;
/// The first and the last instant of a `timestamptz`, in PostgreSQL's microseconds.
const INSTANTS: std::ops::RangeInclusive<i64> =
    -211_813_488_000_000_000..=9_223_371_331_199_999_999;

/// The form in which a value is transmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    Bool,
    Integer,
    Float,
    Text,
    Bytes,
    Instant,
    Uuid,
    Date,
}

impl Wire {
    /// Its type in SQL.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Wire::Bool => "bool",
            Wire::Integer => "int8",
            Wire::Float => "float8",
            Wire::Text => "text",
            Wire::Bytes => "bytea",
            Wire::Instant => "timestamptz",
            Wire::Uuid => "uuid",
            Wire::Date => "date",
        }
    }
}

/// A value in its form; a range's cursor stores it as well.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// Microseconds since 2000.
    Instant(i64),
    Uuid([u8; 16]),
    /// Days since 2000.
    Date(i32),
}

impl ToSql for Cell {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Fallible<IsNull> {
        match self {
            Cell::Null => return Ok(IsNull::Yes),
            Cell::Bool(b) => out.put_u8(u8::from(*b)),
            Cell::Integer(i) | Cell::Instant(i) => out.put_i64(*i),
            Cell::Float(f) => out.put_f64(*f),
            Cell::Date(days) => out.put_i32(*days),
            Cell::Text(s) => out.put_slice(s.as_bytes()),
            Cell::Bytes(b) => out.put_slice(b),
            Cell::Uuid(u) => out.put_slice(u),
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(
            *ty,
            Type::BOOL
                | Type::INT8
                | Type::FLOAT8
                | Type::TEXT
                | Type::BYTEA
                | Type::TIMESTAMPTZ
                | Type::DATE
                | Type::UUID
        )
    }

    tokio_postgres::types::to_sql_checked!();
}

impl<'a> FromSql<'a> for Cell {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Fallible<Cell> {
        let eight = || -> Fallible<[u8; 8]> { Ok(raw.try_into()?) };
        Ok(match *ty {
            Type::BOOL => Cell::Bool(raw.first().is_some_and(|b| *b != 0)),
            Type::INT8 => Cell::Integer(i64::from_be_bytes(eight()?)),
            Type::FLOAT8 => Cell::Float(f64::from_be_bytes(eight()?)),
            Type::BYTEA => Cell::Bytes(raw.to_vec()),
            Type::TIMESTAMPTZ => Cell::Instant(i64::from_be_bytes(eight()?)),
            Type::UUID => Cell::Uuid(raw.try_into()?),
            Type::DATE => Cell::Date(i32::from_be_bytes(raw.try_into()?)),
            _ => Cell::Text(String::from_utf8(raw.to_vec())?),
        })
    }

    fn from_sql_null(_: &Type) -> Fallible<Cell> {
        Ok(Cell::Null)
    }

    fn accepts(ty: &Type) -> bool {
        <Cell as ToSql>::accepts(ty)
    }
}

impl Stored for Cell {
    fn is_null(&self) -> bool {
        *self == Cell::Null
    }
}

/// A day that exists.
const DAY: &str = "([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|\
                   02-(0[1-9]|1[0-9]|2[0-8]))|\
                   ([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)";
/// A time of a day.
const TIME: &str = "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]";
/// As many decimals as are needed, at most six.
const DECIMALS: &str = "[.][0-9]{0,5}[1-9]";
/// A UUID in groups.
const UUID: &str = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";

/// How a column is written and read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) kind: Kind,
    pub(super) encoding: Encoding,
    pub(super) wire: Wire,
    /// The type that a transmitted value is cast to before it is compared with or assigned to the
    /// column; none: no cast is needed, and indexes can be used.
    pub(super) cast: Option<String>,
    /// Whether the column's type has an equality operator (`json` has none).
    pub(super) comparable: bool,
    /// Whether the column is read without a cast.
    pub(super) plain: bool,
    /// Whether texts that the column's collation calls equal may differ: equality is judged by their
    /// bytes as well.
    pub(super) by_bytes: bool,
}

impl Form {
    /// The form of a column of a type (from `format_type` and its name in `pg_type`).
    pub(super) fn of(kind: Kind, encoding: Encoding, name: &str, full: &str) -> Form {
        let integers = ["int2", "int4", "int8"].contains(&name);
        let wire = match kind {
            Kind::Bool if integers => Wire::Integer,
            Kind::Bool => Wire::Bool,
            Kind::Integer => Wire::Integer,
            Kind::Float => Wire::Float,
            Kind::Decimal | Kind::Text | Kind::Json => Wire::Text,
            Kind::Bytes => Wire::Bytes,
            Kind::Uuid if name == "bytea" => Wire::Bytes,
            Kind::Uuid if name == "uuid" => Wire::Uuid,
            Kind::Uuid => Wire::Text,
            Kind::Date if name == "date" => Wire::Date,
            Kind::Date => Wire::Text,
            Kind::Timestamp => match (encoding, name) {
                (encoding, name) if encoding.is_text() || matches!(name, "text" | "varchar") => {
                    Wire::Text
                }
                (_, "timestamptz" | "timestamp" | "date") => Wire::Instant,
                _ => Wire::Integer,
            },
        };
        let native = match wire {
            Wire::Bool => name == "bool",
            Wire::Integer => integers,
            Wire::Float => ["float4", "float8"].contains(&name),
            Wire::Text => ["text", "varchar"].contains(&name),
            Wire::Bytes => name == "bytea",
            Wire::Instant => name == "timestamptz",
            Wire::Uuid => name == "uuid",
            Wire::Date => name == "date",
        };
        // An instant becomes a wall-clock time in UTC, whatever the session's time zone is.
        let cast = match (wire, name) {
            (Wire::Instant, "timestamp" | "date") => Some("timestamp".to_owned()),
            _ => (!native).then(|| full.to_owned()),
        };
        Form {
            kind,
            encoding,
            wire,
            cast,
            comparable: !["json", "xml", "point"].contains(&name),
            by_bytes: kind == Kind::Text && ["text", "varchar", "citext"].contains(&name),
            plain: native && wire.sql() == name,
        }
    }

    /// The column as it is mapped.
    pub(super) fn column(&self) -> Column {
        Column { kind: self.kind, encoding: self.encoding }
    }

    /// The form of a column whose type is unknown.
    pub(super) fn unknown(kind: Kind, encoding: Encoding) -> Form {
        let name = match kind {
            Kind::Bool => "bool",
            Kind::Integer => "int8",
            Kind::Float => "float8",
            Kind::Decimal => "numeric",
            Kind::Text => "text",
            Kind::Json => "jsonb",
            Kind::Bytes => "bytea",
            Kind::Uuid if encoding == Encoding::Raw => "bytea",
            Kind::Uuid => "uuid",
            Kind::Date => "date",
            Kind::Timestamp if encoding == Encoding::Native => "timestamptz",
            Kind::Timestamp if encoding.is_text() => "text",
            Kind::Timestamp => "int8",
        };
        Form::of(kind, encoding, name, name)
    }

    /// A transmitted value (`u.v1`, `$3::int8`) as it is compared with the column.
    pub(super) fn meets(&self, value: &str) -> String {
        match &self.cast {
            None => value.to_owned(),
            Some(cast) if cast == "timestamp" => format!("({value} AT TIME ZONE 'UTC')"),
            Some(cast) => format!("{value}::{cast}"),
        }
    }

    /// The column as it is transmitted.
    pub(super) fn read(&self, column: &str) -> String {
        match self.wire {
            _ if self.plain => column.to_owned(),
            // A date is transmitted as the instant at which it begins.
            Wire::Instant if self.cast.is_some() => {
                format!("({column}::timestamp AT TIME ZONE 'UTC')")
            }
            wire => format!("{column}::{}", wire.sql()),
        }
    }

    /// `column = value`, with both in comparable form.
    pub(super) fn equals(&self, column: &str, value: &str) -> String {
        if self.comparable {
            format!("{column} = {}", self.meets(value))
        } else {
            format!("{column}::text = {value}")
        }
    }

    /// The condition that a column's value is one of its kind in the form in which texts are in the order of what they
    /// mean, or NULL; none: its type has no others. A text column holds anything, and an empty text is before every
    /// instant.
    pub(super) fn fits(&self, column: &str) -> Option<String> {
        let text = match (self.kind, self.wire, self.encoding) {
            (Kind::Timestamp, Wire::Text, Encoding::Rfc3339) => {
                format!("{DAY}T{TIME}({DECIMALS})?Z")
            }
            (Kind::Timestamp, Wire::Text, Encoding::Rfc3339Millis) => {
                format!("{DAY}T{TIME}[.][0-9]{{3}}Z")
            }
            (Kind::Timestamp, Wire::Text, Encoding::Rfc3339Micros) => {
                format!("{DAY}T{TIME}[.][0-9]{{6}}Z")
            }
            (Kind::Timestamp, Wire::Text, Encoding::Datetime3) => {
                format!("{DAY} {TIME}[.][0-9]{{3}}")
            }
            (Kind::Timestamp, Wire::Text, Encoding::Datetime6) => {
                format!("{DAY} {TIME}[.][0-9]{{6}}")
            }
            (Kind::Timestamp, Wire::Text, Encoding::Datetime) => {
                format!("{DAY} {TIME}([.](?!000000)[0-9]{{6}})?")
            }
            // Another encoding writes no text.
            (Kind::Timestamp, Wire::Text, _) => return Some(format!("{column} IS NULL")),
            (Kind::Date, Wire::Text, _) => DAY.to_owned(),
            (Kind::Uuid, Wire::Text, _) => UUID.to_owned(),
            (Kind::Bool, Wire::Integer, _) => {
                return Some(format!("({column} IS NULL OR {column} IN (0, 1))"));
            }
            _ => return None,
        };
        Some(format!("({column} IS NULL OR {column}::text ~ '^({text})$')"))
    }

    /// Encodes the value, or returns why it does not fit.
    pub(super) fn encode(&self, value: &Value, round: Round) -> Result<Cell, String> {
        Ok(match (self.kind, value) {
            (_, Value::Null) => Cell::Null,
            (Kind::Bool, Value::Bool(b)) if self.wire == Wire::Integer => {
                Cell::Integer(i64::from(*b))
            }
            (Kind::Bool, Value::Bool(b)) => Cell::Bool(*b),
            (Kind::Integer, Value::Integer(i)) => Cell::Integer(*i),
            (Kind::Float, Value::Float(f)) if f.is_nan() => return Err("not a number".into()),
            (Kind::Float, Value::Float(f)) => Cell::Float(*f),
            (Kind::Float, Value::Integer(i)) => Cell::Float(*i as f64),
            (Kind::Decimal, Value::Decimal(s)) if is_decimal(s) => Cell::Text(s.clone()),
            (Kind::Text, Value::Text(s)) | (Kind::Json, Value::Json(s)) => Cell::Text(s.clone()),
            (Kind::Bytes, Value::Bytes(b)) => Cell::Bytes(b.clone()),
            (Kind::Uuid, Value::Uuid(u)) => match self.wire {
                Wire::Bytes => Cell::Bytes(u.to_vec()),
                Wire::Uuid => Cell::Uuid(*u),
                _ => Cell::Text(uuid_text(u)),
            },
            (Kind::Date, Value::Date(days)) => {
                match self.wire {
                    Wire::Text => Cell::Text(date_text(*days)),
                    _ if [i32::MIN, i32::MAX].contains(days) => Cell::Date(*days),
                    _ => {
                        let days = days.checked_sub(EPOCH_DAYS).filter(|days| DAYS.contains(days));
                        Cell::Date(days.ok_or_else(|| {
                            format!("{} is out of range for its type", value.shown())
                        })?)
                    }
                }
            }
            (Kind::Timestamp, Value::Timestamp(t)) => match self.wire {
                // The smallest and largest time are `-infinity` and `infinity`, as in the protocol.
                Wire::Instant if t.0 == i64::MIN || t.0 == i64::MAX => Cell::Instant(t.0),
                Wire::Instant => {
                    let micros = t.0.checked_sub(EPOCH_MICROS).filter(|m| INSTANTS.contains(m));
                    Cell::Instant(
                        micros.ok_or_else(|| format!("{t} is out of range for its type"))?,
                    )
                }
                Wire::Text => Cell::Text(instant_text(*t, self.encoding, round)?),
                _ => Cell::Integer(scaled(t.0, self.encoding, round)),
            },
            (kind, value) => return Err(kind.unlike(value)),
        })
    }

    /// The value of a cell.
    pub(super) fn decode(&self, cell: Cell) -> Value {
        match (self.kind, cell) {
            (_, Cell::Null) => Value::Null,
            (Kind::Bool, Cell::Integer(i @ (0 | 1))) => Value::Bool(i == 1),
            (_, Cell::Bool(b)) => Value::Bool(b),
            (Kind::Timestamp, Cell::Integer(i)) => unscaled(i, self.encoding)
                .map_or(Value::Integer(i), |micros| Value::Timestamp(Time(micros))),
            (_, Cell::Integer(i)) => Value::Integer(i),
            (_, Cell::Float(f)) => Value::Float(f),
            (_, Cell::Instant(end @ (i64::MIN | i64::MAX))) => Value::Timestamp(Time(end)),
            (_, Cell::Instant(micros)) => {
                Value::Timestamp(Time(micros.saturating_add(EPOCH_MICROS)))
            }
            (_, Cell::Uuid(u)) => Value::Uuid(u),
            (_, Cell::Date(end @ (i32::MIN | i32::MAX))) => Value::Date(end),
            (_, Cell::Date(days)) => Value::Date(days.saturating_add(EPOCH_DAYS)),
            (Kind::Uuid, Cell::Bytes(b)) => match <[u8; 16]>::try_from(b.as_slice()) {
                Ok(uuid) => Value::Uuid(uuid),
                Err(_) => Value::Bytes(b),
            },
            (_, Cell::Bytes(b)) => Value::Bytes(b),
            (Kind::Decimal, Cell::Text(s)) => Value::Decimal(s),
            (Kind::Json, Cell::Text(s)) => Value::Json(s),
            (Kind::Uuid, Cell::Text(s)) => uuid_parse(&s).map_or(Value::Text(s), Value::Uuid),
            (Kind::Date, Cell::Text(s)) => date_of(&s).map_or(Value::Text(s), Value::Date),
            (Kind::Timestamp, Cell::Text(s)) => {
                instant_of(&s, self.encoding).map_or(Value::Text(s), Value::Timestamp)
            }
            (_, Cell::Text(s)) => Value::Text(s),
        }
    }

    /// The value in a column of a row.
    pub(super) fn value_in(&self, row: &Row, at: usize) -> Result<Value, tokio_postgres::Error> {
        Ok(self.decode(row.try_get(at)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_comes_back_as_it_was_from_every_type_that_holds_it() {
        let instant = Value::Timestamp(Time::from_secs(1_700_000_000));
        let uuid = Value::Uuid([7; 16]);
        for (kind, encoding, ty, value) in [
            (Kind::Bool, Encoding::Native, "bool", Value::Bool(true)),
            (Kind::Bool, Encoding::Native, "int4", Value::Bool(false)),
            (Kind::Integer, Encoding::Native, "int8", Value::Integer(i64::MIN)),
            (Kind::Integer, Encoding::Native, "numeric", Value::Integer(7)),
            (Kind::Float, Encoding::Native, "float8", Value::Float(-0.5)),
            (Kind::Decimal, Encoding::Native, "numeric", Value::Decimal("12.50".into())),
            (Kind::Text, Encoding::Native, "varchar", Value::Text("é".into())),
            (Kind::Text, Encoding::Native, "mood", Value::Text("glad".into())),
            (Kind::Bytes, Encoding::Native, "bytea", Value::Bytes(vec![0, 255])),
            (Kind::Json, Encoding::Native, "jsonb", Value::Json("{}".into())),
            (Kind::Uuid, Encoding::Native, "uuid", uuid.clone()),
            (Kind::Uuid, Encoding::Native, "text", uuid.clone()),
            (Kind::Uuid, Encoding::Raw, "bytea", uuid),
            (Kind::Date, Encoding::Native, "date", Value::Date(-1)),
            (Kind::Date, Encoding::Native, "date", Value::Date(i32::MAX)),
            (Kind::Date, Encoding::Native, "text", Value::Date(20_484)),
            (Kind::Timestamp, Encoding::Native, "timestamptz", Value::Timestamp(Time(-1))),
            (Kind::Timestamp, Encoding::Native, "timestamp", Value::Timestamp(Time(-1))),
            (Kind::Timestamp, Encoding::Native, "int8", Value::Timestamp(Time(-1))),
            (Kind::Timestamp, Encoding::Seconds, "int8", instant.clone()),
            (Kind::Timestamp, Encoding::Millis, "int8", instant.clone()),
            (Kind::Timestamp, Encoding::Rfc3339, "text", instant.clone()),
            (Kind::Timestamp, Encoding::Datetime, "text", instant.clone()),
            (Kind::Timestamp, Encoding::Rfc3339Millis, "text", instant.clone()),
            (Kind::Timestamp, Encoding::Datetime6, "varchar", instant),
        ] {
            let form = Form::of(kind, encoding, ty, ty);
            let cell = form.encode(&value, Round::Down).expect("fits");
            assert_eq!(form.decode(cell), value, "{kind:?} {encoding:?} {ty}");
        }
    }

    #[test]
    fn a_value_meets_its_column_without_a_cast_where_an_index_would_suffer() {
        for (kind, ty, expected) in [
            (Kind::Integer, "int4", "u.v"),
            (Kind::Text, "varchar", "u.v"),
            (Kind::Text, "bpchar", "u.v::bpchar"),
            (Kind::Decimal, "numeric", "u.v::numeric"),
            (Kind::Timestamp, "timestamp", "(u.v AT TIME ZONE 'UTC')"),
        ] {
            assert_eq!(Form::of(kind, Encoding::Native, ty, ty).meets("u.v"), expected, "{ty}");
        }
    }

    #[test]
    fn an_instant_beyond_the_type_is_refused() {
        let form = Form::unknown(Kind::Timestamp, Encoding::Native);
        // The server's range is ours of later epoch: it lacks the far past.
        let encoded = |time| form.encode(&Value::Timestamp(time), Round::Down);
        assert!(encoded(Time(i64::MIN + 1)).is_err());
        assert!(encoded(Time(i64::MAX - 1)).is_ok());
    }

    #[test]
    fn infinity_comes_back_as_it_was() {
        let form = Form::unknown(Kind::Timestamp, Encoding::Native);
        for end in [i64::MIN, i64::MAX] {
            let value = form.decode(Cell::Instant(end));
            assert_eq!(form.encode(&value, Round::Down), Ok(Cell::Instant(end)));
        }
    }

    #[test]
    fn a_date_is_read_as_an_instant() {
        let form = Form::of(Kind::Timestamp, Encoding::Native, "date", "date");
        assert_eq!(form.read("t.d"), "(t.d::timestamp AT TIME ZONE 'UTC')");
    }
}
