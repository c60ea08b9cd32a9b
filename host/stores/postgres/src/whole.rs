//! Rows as they are kept before they change: every column of the table in the database's own spelling,
//! as the output functions of the types give it, and `bytea` as bytes.
//!
//! The statements name the columns that the catalog had when the mapping was completed. A commit that
//! keeps rows asks, while it locks their tables, whether these are still all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use besom_core::collection::{Collection, Column, Encoding};
use besom_core::time::{Time, date_of};
use besom_core::value::{Field, Kind, RowKey, Value};
use tokio_postgres::Row;
use xxhash_rust::xxh3::Xxh3Default;

use super::catalog::{ColumnFound, TableFound};
use super::error::{Failure, Job};
use super::mapping::{Table, quote};
use super::session::{Pipeline, params};
use besom_ports::store::Error;
use besom_record::images::unhex;
use besom_tables::encoding::{instant_of, unscaled, uuid_parse};

/// The columns of a table as they are kept.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// Each with its declared type, in the table's order; also those that this role may not read.
    declared: Vec<(String, String)>,
    /// Each that is read, in the table's order; whether it is bytes, and whether its texts are padded.
    read: Vec<(String, bool, bool)>,
    /// The places in `read` of those that may be spelt otherwise once they were written ([`ColumnFound::exact`]).
    doubted: Vec<usize>,
}

impl Whole {
    /// All columns that this role may read.
    pub(super) fn of(found: &TableFound) -> Whole {
        let readable = || found.columns.iter().filter(|column| column.readable);
        let read = |column: &ColumnFound| {
            (column.name.clone(), column.declared == "bytea", column.ty == "bpchar")
        };
        let declared = found.columns.iter().map(|c| (c.name.clone(), c.declared.clone()));
        let doubted = readable().enumerate().filter(|(_, column)| !column.exact);
        Whole {
            declared: declared.collect(),
            read: readable().map(read).collect(),
            doubted: doubted.map(|(at, _)| at).collect(),
        }
    }

    /// A digest of the columns as they are declared, and of which are read.
    pub(super) fn digest(&self) -> u64 {
        let mut digest = Xxh3Default::new();
        let read: BTreeSet<&str> = self.names().map(|(name, _)| name).collect();
        for (name, ty) in &self.declared {
            let mark = if read.contains(name.as_str()) { "\0" } else { "\x01" };
            for part in [name, "\0", ty, mark] {
                digest.update(part.as_bytes());
            }
        }
        digest.digest()
    }

    /// The columns' names, and whether their texts are padded.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, bool)> {
        self.read.iter().map(|(name, _, padded)| (name.as_str(), *padded))
    }

    /// The expressions that read a row of the alias `t`: its record, then each `bytea`.
    pub(super) fn sql(&self) -> Vec<String> {
        let of = |bytes: bool| {
            let some = self.read.iter().filter(move |(_, is_bytes, _)| *is_bytes == bytes);
            some.map(|(name, ..)| format!("t.{}", quote(name)))
        };
        let record = format!("ROW({})::text", of(false).collect::<Vec<_>>().join(", "));
        std::iter::once(record).chain(of(true)).collect()
    }

    /// The expressions that read what may be spelt otherwise of a row of the alias `t` that was written by its
    /// spelling.
    pub(super) fn doubted_sql(&self) -> String {
        let of = |at: &usize| format!("t.{}", quote(&self.read[*at].0));
        format!("ROW({})::text", self.doubted.iter().map(of).collect::<Vec<_>>().join(", "))
    }

    /// Whether what [`Whole::doubted_sql`] has read is what was kept of the row.
    pub(super) fn has_doubted(&self, record: &str, stored: &[Field]) -> bool {
        let Some(mut texts) = Parts::of(record) else { return false };
        self.read.len() == stored.len()
            && self.doubted.iter().all(|at| {
                let field = &stored[*at];
                field.name == self.read[*at].0
                    && match (texts.next().flatten(), &field.value) {
                        (Some(Some(text)), Value::Bytes(kept)) => {
                            text.strip_prefix("\\x").and_then(unhex).is_some_and(|b| b == *kept)
                        }
                        (text, kept) => is_spelt(text, kept),
                    }
            })
    }

    /// The values of a row, read by [`Whole::sql`] from a column on, in the order of the columns.
    pub(super) fn values(&self, row: &Row, from: usize) -> Job<Vec<Value>> {
        let record: &str = row.try_get(from)?;
        // No item's fault, whatever it is.
        let broken = || {
            let words = format!("the database gave a row that cannot be read: {record:?}");
            Failure::Port(Error::Busy(words))
        };
        let mut texts = fields(record).ok_or_else(broken)?.into_iter();
        let mut bytes = from + 1..;
        let mut values = Vec::with_capacity(self.read.len());
        for (_, is_bytes, _) in &self.read {
            values.push(match is_bytes {
                true => {
                    let value: Option<Vec<u8>> = row.try_get(bytes.next().unwrap_or_default())?;
                    value.map_or(Value::Null, Value::Bytes)
                }
                false => texts.next().ok_or_else(broken)?.map_or(Value::Null, Value::Text),
            });
        }
        match texts.next() {
            None => Ok(values),
            Some(_) => Err(broken()),
        }
    }
}

impl Whole {
    /// Whether a row, read by [`Whole::sql`] from a column on, has exactly these columns with these values. Nothing of
    /// it is copied.
    pub(super) fn is(&self, row: &Row, from: usize, stored: &[Field]) -> Job<bool> {
        if self.read.len() != stored.len() {
            return Ok(false);
        }
        let Some(mut texts) = Parts::of(row.try_get(from)?) else { return Ok(false) };
        let mut bytes = from + 1..;
        for ((name, is_bytes, _), field) in self.read.iter().zip(stored) {
            let is_same = match is_bytes {
                true => {
                    let value: Option<&[u8]> = row.try_get(bytes.next().unwrap_or_default())?;
                    match (value, &field.value) {
                        (None, Value::Null) => true,
                        (Some(value), Value::Bytes(kept)) => value == kept,
                        _ => false,
                    }
                }
                false => is_spelt(texts.next().flatten(), &field.value),
            };
            if !is_same || *name != field.name {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The key that a row has in another table with the same columns.
    pub(super) fn key(&self, other: &Collection, values: &[Value]) -> RowKey {
        let value = |name: &String| {
            let at = self.read.iter().position(|(known, ..)| known == name);
            let (Some(at), Some(column)) = (at, other.columns.get(name)) else {
                return Value::Null;
            };
            let (_, _, padded) = self.read[at];
            values.get(at).map_or(Value::Null, |value| of_kept(*column, padded, value))
        };
        other.key.iter().map(value).collect()
    }
}

/// Whether a field of a record is the text that was kept, or both are null; the outer none: there is no such field.
fn is_spelt(field: Option<Option<Cow<'_, str>>>, kept: &Value) -> bool {
    match (field, kept) {
        (Some(None), Value::Null) => true,
        (Some(Some(text)), Value::Text(kept)) => text == kept.as_str(),
        _ => false,
    }
}

/// The fields of a record as text; none: it is malformed.
fn fields(record: &str) -> Option<Vec<Option<String>>> {
    let mut parts = Parts::of(record)?;
    let mut fields = Vec::new();
    while let Some(field) = parts.next() {
        fields.push(field?.map(Cow::into_owned));
    }
    Some(fields)
}

/// The fields of a record, one after the other; the inner none: the record is malformed.
struct Parts<'r> {
    /// None: all fields were passed.
    rest: Option<&'r str>,
}

impl<'r> Parts<'r> {
    /// Nothing between the parentheses is one column that is null, or no column at all: the caller knows how many
    /// there are.
    fn of(record: &'r str) -> Option<Parts<'r>> {
        Some(Parts { rest: Some(record.strip_prefix('(')?.strip_suffix(')')?) })
    }

    fn next(&mut self) -> Option<Option<Option<Cow<'r, str>>>> {
        let rest = self.rest?;
        let Some(quoted) = rest.strip_prefix('"') else {
            let (field, next) = match rest.split_once(',') {
                Some((field, next)) => (field, Some(next)),
                None => (rest, None),
            };
            self.rest = next;
            return Some(Some((!field.is_empty()).then_some(Cow::Borrowed(field))));
        };
        self.rest = None;
        let Some((field, behind)) = unquoted(quoted) else { return Some(None) };
        match behind.strip_prefix(',') {
            Some(next) => self.rest = Some(next),
            None if behind.is_empty() => {}
            None => return Some(None),
        }
        Some(Some(Some(field)))
    }
}

/// A field up to its closing quotation mark, and what is behind that. A quotation mark and a backslash come twice.
fn unquoted(quoted: &str) -> Option<(Cow<'_, str>, &str)> {
    let (mut field, mut at) = (Cow::Borrowed(""), quoted);
    loop {
        let mark = at.find(['"', '\\'])?;
        let (text, marked) = at.split_at(mark);
        match field.is_empty() {
            true => field = Cow::Borrowed(text),
            false => field.to_mut().push_str(text),
        }
        let (mark, behind) = marked.split_at(1);
        match behind.strip_prefix(mark) {
            Some(next) => {
                field.to_mut().push_str(mark);
                at = next;
            }
            None if mark == "\"" => return Some((field, behind)),
            None => return None,
        }
    }
}

/// The tables whose columns are asked for, by name.
pub(super) struct Asked<'a> {
    tables: BTreeMap<&'a str, &'a Table>,
    place: Option<usize>,
}

impl<'a> Asked<'a> {
    /// Asks for the columns that these tables have now. Rows of theirs have been changed by this
    /// transaction, so nobody can change the columns until it ends.
    pub(super) fn send(
        pipeline: &mut Pipeline<'_>,
        tables: impl Iterator<Item = &'a Table>,
    ) -> Asked<'a> {
        let tables: BTreeMap<&str, &Table> =
            tables.map(|table| (table.name.as_str(), table)).collect();
        let names: Vec<String> = tables.keys().map(|name| (*name).to_owned()).collect();
        let place = (!names.is_empty()).then(|| pipeline.push(DECLARED, params![names]));
        Asked { tables, place }
    }

    /// Whether all of them are those of the catalog that the mapping was completed with.
    pub(super) fn are_known(self, answers: &[Vec<Row>]) -> Job<bool> {
        let Some(place) = self.place else { return Ok(true) };
        let mut now: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
        for row in &answers[place] {
            let column = (row.try_get(1)?, row.try_get(2)?);
            now.entry(row.try_get(0)?).or_default().push(column);
        }
        let is_known = |(name, table): (&&str, &&Table)| {
            now.get(*name).is_none_or(|now| *now == table.whole.declared)
        };
        Ok(self.tables.iter().all(is_known))
    }
}

const DECLARED: &str = "SELECT n, a.attname::text, format_type(a.atttypid, a.atttypmod)
  FROM unnest($1::text[]) n JOIN pg_attribute a ON a.attrelid = to_regclass(n)
  WHERE a.attnum > 0 AND NOT a.attisdropped ORDER BY n, a.attnum";

/// The value of a mapped column in a row that was kept.
pub(super) fn of_kept(column: Column, padded: bool, stored: &Value) -> Value {
    let text = match stored {
        Value::Text(text) if padded => text.trim_end_matches(' '),
        Value::Text(text) => text.as_str(),
        Value::Bytes(bytes) if column.kind == Kind::Uuid => {
            let uuid = bytes.as_slice().try_into().map(Value::Uuid);
            return uuid.unwrap_or_else(|_| stored.clone());
        }
        other => return other.clone(),
    };
    let read = match column.kind {
        Kind::Bool => match text {
            "t" | "1" => Some(Value::Bool(true)),
            "f" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        Kind::Integer => text.parse().ok().map(Value::Integer),
        Kind::Float => text.parse().ok().map(Value::Float),
        Kind::Decimal => Some(Value::Decimal(text.to_owned())),
        Kind::Json => Some(Value::Json(text.to_owned())),
        Kind::Uuid => uuid_parse(text).map(Value::Uuid),
        Kind::Timestamp => instant(text, column.encoding).map(Value::Timestamp),
        Kind::Date => match text {
            "infinity" => Some(Value::Date(i32::MAX)),
            "-infinity" => Some(Value::Date(i32::MIN)),
            text => date_of(text).map(Value::Date),
        },
        Kind::Text | Kind::Bytes => None,
    };
    read.unwrap_or_else(|| Value::Text(text.to_owned()))
}

/// The instant of a timestamp, with or without a time zone, of a date, a number or an encoded text.
fn instant(text: &str, encoding: Encoding) -> Option<Time> {
    if encoding.is_text() {
        return instant_of(text, encoding);
    }
    if let Ok(number) = text.parse() {
        return unscaled(number, encoding).map(Time);
    }
    match text {
        "infinity" => return Some(Time(i64::MAX)),
        "-infinity" => return Some(Time(i64::MIN)),
        _ => {}
    }
    let is_date = text.len() == 10;
    let zoned = text.rfind(['+', '-']).is_some_and(|at| at > 10);
    let whole = match (is_date, zoned) {
        (true, _) => format!("{text}T00:00:00Z"),
        (false, true) => text.replacen(' ', "T", 1),
        (false, false) => text.replacen(' ', "T", 1) + "Z",
    };
    instant_of(&whole, Encoding::Rfc3339)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_taken_apart() {
        let some = |texts: &[&str]| texts.iter().map(|t| Some((*t).to_owned())).collect::<Vec<_>>();
        assert_eq!(fields("(a,b)"), Some(some(&["a", "b"])));
        assert_eq!(fields("()"), Some(vec![None]));
        assert_eq!(fields("(,)"), Some(vec![None, None]));
        assert_eq!(fields("(\"\",a)"), Some(some(&["", "a"])));
        assert_eq!(fields("(a,\"\")"), Some(some(&["a", ""])));
        assert_eq!(
            fields(r#"("say ""hi"", a\\b","(1,2)"," x ",é)"#),
            Some(some(&[r#"say "hi", a\b"#, "(1,2)", " x ", "é"]))
        );
        assert_eq!(fields(r#"("""",b)"#), Some(some(&["\"", "b"])));
        assert_eq!(fields(r#"("a""","""b")"#), Some(some(&["a\"", "\"b"])));
        for wrong in ["", "(", "a", r#"("a)"#, r#"("a"b)"#, r#"("\a")"#] {
            assert_eq!(fields(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_mapped_column_is_read_from_its_text() {
        let at = |text: &str| Time::from_jiff(text.parse().unwrap());
        let time = |text| Value::Timestamp(at(text));
        for (kind, encoding, text, expected) in [
            (Kind::Bool, Encoding::Native, "t", Value::Bool(true)),
            (Kind::Integer, Encoding::Native, "-5", Value::Integer(-5)),
            (Kind::Float, Encoding::Native, "-0.5", Value::Float(-0.5)),
            (Kind::Float, Encoding::Native, "Infinity", Value::Float(f64::INFINITY)),
            (Kind::Decimal, Encoding::Native, "12.50", Value::Decimal("12.50".into())),
            (Kind::Timestamp, Encoding::Seconds, "1700000000", time("2023-11-14T22:13:20Z")),
            (Kind::Timestamp, Encoding::Native, "infinity", Value::Timestamp(Time(i64::MAX))),
            (Kind::Timestamp, Encoding::Native, "2026-11-28", time("2026-11-28T00:00:00Z")),
            (
                Kind::Timestamp,
                Encoding::Native,
                "2026-11-28 08:12:26.5+00",
                time("2026-11-28T08:12:26.5Z"),
            ),
            (
                Kind::Timestamp,
                Encoding::Native,
                "2026-11-28 08:12:26",
                time("2026-11-28T08:12:26Z"),
            ),
            (
                Kind::Timestamp,
                Encoding::Native,
                "0044-03-15 00:00:00+00 BC",
                Value::Text("0044-03-15 00:00:00+00 BC".into()),
            ),
            (Kind::Text, Encoding::Native, " x ", Value::Text(" x ".into())),
        ] {
            let column = Column { kind, encoding };
            let read = of_kept(column, false, &Value::Text(text.into()));
            assert_eq!(read, expected, "{text}");
        }
        let column = Column { kind: Kind::Text, encoding: Encoding::Native };
        let read = of_kept(column, true, &Value::Text("x  ".into()));
        assert_eq!(read, Value::Text("x".into()));
    }
}
