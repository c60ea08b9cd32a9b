//! Typed values, as exchanged with plugins and used in guards, changes and before-images.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};

use crate::command::counted;
use crate::time::{Time, date_text};

/// A value of a column. The variants are those of the frozen contract (`wit/types.wit`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// SQL NULL.
    Null,
    /// True or false.
    Bool(bool),
    /// A signed 64-bit integer.
    Integer(i64),
    /// An IEEE 754 double.
    Float(f64),
    /// A decimal number as text, never rounded.
    Decimal(String),
    /// UTF-8 text.
    Text(String),
    /// Raw bytes, serialized as one byte string.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// An instant.
    Timestamp(Time),
    /// A UUID's 16 bytes.
    Uuid([u8; 16]),
    /// JSON text as the database holds it.
    Json(String),
    /// A day of the calendar, in days since 1970-01-01.
    Date(i32),
}

/// The type of a column, without its encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// [`Value::Bool`].
    Bool,
    /// [`Value::Integer`].
    Integer,
    /// [`Value::Float`].
    Float,
    /// [`Value::Decimal`].
    Decimal,
    /// [`Value::Text`].
    Text,
    /// [`Value::Bytes`].
    Bytes,
    /// [`Value::Timestamp`].
    Timestamp,
    /// [`Value::Uuid`].
    Uuid,
    /// [`Value::Json`].
    Json,
    /// [`Value::Date`].
    Date,
}

impl Kind {
    /// Whether a column of a key may have it: the key of an item cannot hold the others.
    pub fn identifies(self) -> bool {
        !matches!(self, Kind::Bool | Kind::Float | Kind::Decimal | Kind::Json)
    }

    /// Why a value is not of this kind, in words.
    pub fn unlike(self, value: &Value) -> String {
        let found = value.kind().map_or("null".to_owned(), |kind| format!("{kind:?}"));
        format!("expected {}, found {}", format!("{self:?}").to_lowercase(), found.to_lowercase())
    }
}

impl Value {
    /// The value as people read it; bytes only with their number.
    pub fn shown(&self) -> String {
        match self {
            Value::Null => "null".into(),
            Value::Bool(b) => b.to_string(),
            Value::Integer(i) => i.to_string(),
            Value::Float(f) => format!("{f:?}"),
            Value::Decimal(s) | Value::Json(s) => s.clone(),
            Value::Text(s) => format!("{s:?}"),
            Value::Bytes(bytes) => counted(bytes.len() as u64, "byte"),
            Value::Timestamp(t) => t.to_string(),
            Value::Date(days) => date_text(*days),
            Value::Uuid(bytes) => hex::encode(bytes),
        }
    }

    /// The kind of the value; none for NULL, which fits every kind.
    pub fn kind(&self) -> Option<Kind> {
        Some(match self {
            Value::Null => return None,
            Value::Bool(_) => Kind::Bool,
            Value::Integer(_) => Kind::Integer,
            Value::Float(_) => Kind::Float,
            Value::Decimal(_) => Kind::Decimal,
            Value::Text(_) => Kind::Text,
            Value::Bytes(_) => Kind::Bytes,
            Value::Timestamp(_) => Kind::Timestamp,
            Value::Uuid(_) => Kind::Uuid,
            Value::Json(_) => Kind::Json,
            Value::Date(_) => Kind::Date,
        })
    }

    /// The number of bytes that the value counts against a limit: its content, at least one.
    pub fn weight(&self) -> usize {
        match self {
            Value::Null | Value::Bool(_) => 1,
            Value::Date(_) => 4,
            Value::Integer(_) | Value::Float(_) | Value::Timestamp(_) => 8,
            Value::Uuid(_) => 16,
            Value::Decimal(s) | Value::Text(s) | Value::Json(s) => s.len().max(1),
            Value::Bytes(b) => b.len().max(1),
        }
    }
}

/// Whether a text is a decimal number: digits, at most one point, at most one sign.
pub fn is_decimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    !(whole.is_empty() && fraction.is_empty()) && digits(whole) && digits(fraction)
}

/// A named value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// The column's (or setting's, or note's) name. One of up to 24 bytes needs no memory of its own.
    pub name: CompactString,
    /// Its value.
    pub value: Value,
}

impl Field {
    /// A field of that name and value.
    pub fn new(name: impl Into<CompactString>, value: Value) -> Field {
        Field { name: name.into(), value }
    }
}

/// The values of a row, in the order of the columns that were asked for.
pub type Row = Vec<Value>;

/// The values of a collection's key columns, in their order, without the tenant.
pub type RowKey = Vec<Value>;
