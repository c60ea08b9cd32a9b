//! Converts between the contract's types and the host's. Pure. Values that are invalid by
//! themselves (a malformed decimal) are rejected here; values that are invalid in their context are
//! rejected by `verdict` and `imports`.

use besom_core::collection::Operations;
use besom_core::delivery::{Delivery, State};
use besom_core::proposal::{Comparison, Condition, Filter, Test};
use besom_core::time::Time;
use besom_core::value::{Field, Row, Value};

use super::bindings::besom::task::{deliveries, types as wit};
use besom_ports::guests::{CollectionRequest, Described, Lane, Manifest, Setting, SettingKind};

/// Maximum length of a decimal, including sign and point, which limits the size of a guest's
/// values. PostgreSQL's `numeric` allows more digits.
const DECIMAL_BYTES_MAX: usize = 1_000;

/// Why a value is invalid.
pub(super) type Malformed = String;

/// Converts a value of a guest.
pub(super) fn value(value: wit::Value) -> Result<Value, Malformed> {
    Ok(match value {
        wit::Value::Null => Value::Null,
        wit::Value::Bool(b) => Value::Bool(b),
        wit::Value::Integer(i) => Value::Integer(i),
        wit::Value::Float(f) => Value::Float(f),
        wit::Value::Decimal(text) if is_decimal(&text) => Value::Decimal(text),
        wit::Value::Decimal(text) => {
            let text: String = text.chars().take(40).collect();
            return Err(format!("`{text}` is not a valid decimal number: write it as `-12.50`"));
        }
        wit::Value::Text(text) => Value::Text(text),
        wit::Value::Bytes(bytes) => Value::Bytes(bytes),
        wit::Value::Timestamp(micros) => Value::Timestamp(Time(micros)),
        wit::Value::Uuid((high, low)) => {
            Value::Uuid((u128::from(high) << 64 | u128::from(low)).to_be_bytes())
        }
        wit::Value::Json(text) => Value::Json(text),
        wit::Value::Date(days) => Value::Date(days),
    })
}

/// An optional sign, digits, and optional digits after a point: the form that every database
/// accepts.
fn is_decimal(text: &str) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    text.len() <= DECIMAL_BYTES_MAX
        && match unsigned.split_once('.') {
            Some((whole, fraction)) => digits(whole) && digits(fraction),
            None => digits(unsigned),
        }
}

/// Converts values of a guest, in order.
pub(super) fn values(values: Vec<wit::Value>) -> Result<Vec<Value>, Malformed> {
    values.into_iter().map(value).collect()
}

/// Converts named values of a guest.
pub(super) fn fields(fields: Vec<wit::Field>) -> Result<Vec<Field>, Malformed> {
    let field = |f: wit::Field| match value(f.value) {
        Ok(value) => Ok(Field { name: f.name.into(), value }),
        Err(malformed) => Err(format!("{}: {malformed}", f.name)),
    };
    fields.into_iter().map(field).collect()
}

/// Converts conditions of a guest.
pub(super) fn conditions(conditions: Vec<wit::Condition>) -> Result<Vec<Condition>, Malformed> {
    let condition = |c: wit::Condition| match test(c.test) {
        Ok(test) => Ok(Condition { column: c.column, test }),
        Err(malformed) => Err(format!("{}: {malformed}", c.column)),
    };
    conditions.into_iter().map(condition).collect()
}

/// Converts a filter of a guest.
pub(super) fn filter(filter: wit::Filter) -> Result<Filter, Malformed> {
    Ok(Filter { collection: filter.collection, conditions: conditions(filter.conditions)? })
}

fn test(test: wit::Test) -> Result<Test, Malformed> {
    Ok(match test {
        wit::Test::Value(test) => Test::Value(comparison(test.comparison), value(test.value)?),
        wit::Test::Column(test) => Test::Column(comparison(test.comparison), test.column),
        wit::Test::OneOf(all) => Test::OneOf(values(all)?),
        wit::Test::NoneOf(all) => Test::NoneOf(values(all)?),
        wit::Test::StartsWith(text) => Test::StartsWith(text),
    })
}

fn comparison(comparison: wit::Comparison) -> Comparison {
    match comparison {
        wit::Comparison::Equal => Comparison::Equal,
        wit::Comparison::NotEqual => Comparison::NotEqual,
        wit::Comparison::Below => Comparison::Below,
        wit::Comparison::AtMost => Comparison::AtMost,
        wit::Comparison::AtLeast => Comparison::AtLeast,
        wit::Comparison::Above => Comparison::Above,
    }
}

/// Converts a value for a guest.
pub(super) fn to_wit(value: Value) -> wit::Value {
    match value {
        Value::Null => wit::Value::Null,
        Value::Bool(b) => wit::Value::Bool(b),
        Value::Integer(i) => wit::Value::Integer(i),
        Value::Float(f) => wit::Value::Float(f),
        Value::Decimal(text) => wit::Value::Decimal(text),
        Value::Text(text) => wit::Value::Text(text),
        Value::Bytes(bytes) => wit::Value::Bytes(bytes),
        Value::Timestamp(time) => wit::Value::Timestamp(time.micros()),
        Value::Uuid(bytes) => {
            let bits = u128::from_be_bytes(bytes);
            wit::Value::Uuid(((bits >> 64) as u64, bits as u64))
        }
        Value::Json(text) => wit::Value::Json(text),
        Value::Date(days) => wit::Value::Date(days),
    }
}

/// Converts a row for a guest.
pub(super) fn row_to_wit(row: Row) -> Vec<wit::Value> {
    row.into_iter().map(to_wit).collect()
}

/// Converts named values for a guest.
pub(super) fn fields_to_wit(fields: &[Field]) -> Vec<wit::Field> {
    let field = |f: &Field| wit::Field { name: f.name.to_string(), value: to_wit(f.value.clone()) };
    fields.iter().map(field).collect()
}

/// Converts the name of a column for a guest.
pub(super) fn column_name_to_wit((collection, column): &(String, String)) -> wit::ColumnName {
    wit::ColumnName { collection: collection.clone(), column: column.clone() }
}

/// Converts the description of a collection for a guest.
pub(super) fn described_to_wit(described: &Described) -> wit::Described {
    let column = |(name, ty): &(String, String)| wit::DescribedColumn {
        name: name.clone(),
        type_: ty.clone(),
    };
    let index = |name: &String, columns: &Vec<String>, not_null| wit::DescribedIndex {
        name: name.clone(),
        columns: columns.clone(),
        not_null,
    };
    let whole = described.indexes.iter().map(|(name, columns)| index(name, columns, Vec::new()));
    let partial = described.partial.iter();
    let partial = partial.map(|(name, columns, not_null)| index(name, columns, not_null.clone()));
    wit::Described {
        collection: described.collection.clone(),
        key: described.key.clone(),
        columns: described.columns.iter().map(column).collect(),
        indexes: whole.chain(partial).collect(),
    }
}

/// Converts a plugin's manifest.
pub(super) fn manifest(manifest: wit::Manifest) -> Result<Manifest, Malformed> {
    let setting = |s: wit::Setting| -> Result<Setting, Malformed> {
        let bound = |v: Option<wit::Value>| {
            v.map(value).transpose().map_err(|e| format!("setting {}: {e}", s.name))
        };
        Ok(Setting {
            kind: match s.kind {
                wit::SettingKind::Bool => SettingKind::Bool,
                wit::SettingKind::Integer => SettingKind::Integer,
                wit::SettingKind::Float => SettingKind::Float,
                wit::SettingKind::Text => SettingKind::Text,
                wit::SettingKind::Duration => SettingKind::Duration,
                wit::SettingKind::Texts => SettingKind::Texts,
            },
            default: bound(s.default)?,
            minimum: bound(s.minimum)?,
            maximum: bound(s.maximum)?,
            choices: s.choices,
            doc: s.doc,
            name: s.name,
        })
    };
    let request = |r: wit::CollectionRequest| CollectionRequest {
        operations: Operations {
            read: r.operations.contains(wit::Operations::READ),
            insert: r.operations.contains(wit::Operations::INSERT),
            update: r.operations.contains(wit::Operations::UPDATE),
            delete: r.operations.contains(wit::Operations::DELETE),
        },
        collection: r.collection,
        columns: r.columns,
        optional_columns: r.optional_columns,
        optional: r.optional,
        described: r.described,
    };
    Ok(Manifest {
        name: manifest.name,
        version: manifest.version,
        doc: manifest.doc,
        settings: manifest.settings.into_iter().map(setting).collect::<Result<_, _>>()?,
        collections: manifest.collections.into_iter().map(request).collect(),
        topics: manifest.topics,
        activity: manifest.activity,
        per_tenant: manifest.per_tenant,
        lane: match manifest.lane {
            wit::Lane::Due => Lane::Due,
            wit::Lane::Normal => Lane::Normal,
            wit::Lane::Heavy => Lane::Heavy,
        },
        extra: fields(manifest.extra)?,
    })
}

/// Converts the state of a message.
pub(super) fn delivery_to_wit(delivery: Delivery) -> deliveries::Delivery {
    deliveries::Delivery {
        emitted_at: delivery.emitted_at.micros(),
        payload: delivery.payload,
        state: match delivery.state {
            State::Pending => deliveries::State::Pending,
            State::Delivered => deliveries::State::Delivered,
            State::GivenUp => deliveries::State::GivenUp,
        },
        attempts: delivery.attempts,
        error: delivery.error,
        reply: delivery.reply.map(|reply| deliveries::Reply {
            status: reply.status,
            body: reply.body,
            cut: reply.cut,
        }),
        ended_at: delivery.ended_at.map(Time::micros),
        extra: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_is_digits_with_at_most_one_point() {
        let cases = [
            ("0", true),
            ("-12.50", true),
            ("+7", true),
            ("", false),
            (".5", false),
            ("5.", false),
            ("1e3", false),
            ("1.2.3", false),
            ("--1", false),
            ("NaN", false),
        ];
        for (text, expected) in cases {
            let converted = value(wit::Value::Decimal(text.to_owned()));
            assert_eq!(converted.is_ok(), expected, "{text:?}");
        }
        assert!(value(wit::Value::Decimal("1".repeat(DECIMAL_BYTES_MAX + 1))).is_err());
    }

    #[test]
    fn every_value_survives_the_way_there_and_back() {
        let all = [
            Value::Null,
            Value::Bool(true),
            Value::Integer(i64::MIN),
            Value::Float(-0.5),
            Value::Decimal("12.50".into()),
            Value::Text("é".into()),
            Value::Bytes(vec![0, 255]),
            Value::Timestamp(Time(-1)),
            Value::Uuid(*b"0123456789abcdef"),
            Value::Json("{}".into()),
            Value::Date(i32::MIN),
        ];
        for v in all {
            assert_eq!(value(to_wit(v.clone())), Ok(v));
        }
    }
}
