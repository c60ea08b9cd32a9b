//! Conversions between the values of the contract and Rust types.

use crate::{Day, Time, Value};

macro_rules! into_value {
    ($($from:ty => |$v:ident| $value:expr;)*) => {
        $(impl From<$from> for Value {
            fn from($v: $from) -> Value {
                $value
            }
        })*
    };
}

into_value! {
    bool => |v| Value::Bool(v);
    i64 => |v| Value::Integer(v);
    u32 => |v| Value::Integer(v.into());
    f64 => |v| Value::Float(v);
    &str => |v| Value::Text(v.to_owned());
    String => |v| Value::Text(v);
    &String => |v| Value::Text(v.clone());
    Vec<u8> => |v| Value::Bytes(v);
    Time => |v| Value::Timestamp(v.0);
    Day => |v| Value::Date(v.0);
    &Value => |v| v.clone();
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Value {
        v.map_or(Value::Null, Into::into)
    }
}

/// A type that a [`Value`] can be read as. No conversion loses information. A `String` also reads
/// decimals and JSON, and a `Vec<String>` JSON that is an array of strings.
pub trait FromValue: Sized {
    /// The expected kind, with an article, for error messages.
    const WANTED: &'static str;

    /// The value as this type; none if it is of another kind.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($to:ty, $wanted:literal, $pattern:pat => $value:expr;)*) => {
        $(impl FromValue for $to {
            const WANTED: &'static str = $wanted;
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        })*
    };
}

from_value! {
    bool, "a bool", Value::Bool(v) => *v;
    i64, "an integer", Value::Integer(v) => *v;
    f64, "a float", Value::Float(v) => *v;
    String, "text", Value::Text(v) | Value::Decimal(v) | Value::Json(v) => v.clone();
    Vec<u8>, "bytes", Value::Bytes(v) => v.clone();
    Time, "a timestamp", Value::Timestamp(v) => Time(*v);
    Day, "a date", Value::Date(v) => Day(*v);
}

impl FromValue for Value {
    const WANTED: &'static str = "a value";

    fn from_value(value: &Value) -> Option<Self> {
        Some(value.clone())
    }
}

impl FromValue for Vec<String> {
    const WANTED: &'static str = "a list of texts";

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Json(json) => serde_json::from_str(json).ok(),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const WANTED: &'static str = T::WANTED;

    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            other => T::from_value(other).map(Some),
        }
    }
}

/// The kind of a value, with an article, for error messages.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Integer(_) => "an integer",
        Value::Float(_) => "a float",
        Value::Decimal(_) => "a decimal",
        Value::Text(_) => "text",
        Value::Bytes(_) => "bytes",
        Value::Timestamp(_) => "a timestamp",
        Value::Uuid(_) => "a UUID",
        Value::Json(_) => "JSON",
        Value::Date(_) => "a date",
    }
}
