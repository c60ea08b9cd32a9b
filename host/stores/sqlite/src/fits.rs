//! Whether a stored value is one of its column's kind. SQLite enforces no types, and compares values of any kind: an
//! empty text is before every instant. A row that a statement takes by its columns is judged by this as well.

use besom_core::collection::{Column, Encoding};
use besom_core::value::{Kind, Value};
use besom_tables::encoding::{Round, instant_text};
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::ValueRef;

use super::values::decode;

/// The function of a connection that tells it: of a value, and the place of the column's form in [`FORMS`].
const NAME: &str = "besom_fits";

/// The forms that a storage class alone does not tell.
const FORMS: [(Kind, Encoding); 16] = [
    (Kind::Text, Encoding::Native),
    (Kind::Json, Encoding::Native),
    (Kind::Decimal, Encoding::Native),
    (Kind::Bytes, Encoding::Native),
    (Kind::Date, Encoding::Native),
    (Kind::Uuid, Encoding::Native),
    (Kind::Uuid, Encoding::Raw),
    (Kind::Timestamp, Encoding::Native),
    (Kind::Timestamp, Encoding::Seconds),
    (Kind::Timestamp, Encoding::Millis),
    (Kind::Timestamp, Encoding::Rfc3339),
    (Kind::Timestamp, Encoding::Datetime),
    (Kind::Timestamp, Encoding::Datetime6),
    (Kind::Timestamp, Encoding::Datetime3),
    (Kind::Timestamp, Encoding::Rfc3339Millis),
    (Kind::Timestamp, Encoding::Rfc3339Micros),
];

/// Adds the function to a connection.
pub(super) fn register(conn: &Connection) -> rusqlite::Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_DIRECTONLY;
    conn.create_scalar_function(NAME, 2, flags, |given| {
        let form = FORMS.get(given.get::<usize>(1)?);
        Ok(form.is_some_and(|(kind, encoding)| {
            let column = Column { kind: *kind, encoding: *encoding };
            is_of(column, given.get_raw(0))
        }))
    })
}

/// Whether a value that was read is one of the column's, in the form in which texts are in the order of their instants.
fn is_of(column: Column, stored: ValueRef<'_>) -> bool {
    match decode(&column, stored) {
        Value::Null => true,
        Value::Timestamp(at) if column.encoding.is_text() => {
            let text = instant_text(at, column.encoding, Round::Down);
            text.is_ok_and(|text| stored.as_str() == Ok(&text))
        }
        value => value.kind() == Some(column.kind),
    }
}

/// The condition that a column's value is one of its kind, or NULL.
pub(super) fn condition(column: Column, quoted: &str) -> String {
    let is_null = format!("{quoted} IS NULL");
    match column.kind {
        Kind::Integer => format!("({is_null} OR typeof({quoted}) = 'integer')"),
        Kind::Bool => format!("({is_null} OR typeof({quoted}) = 'integer' AND {quoted} IN (0, 1))"),
        Kind::Float => format!("({is_null} OR typeof({quoted}) IN ('real', 'integer'))"),
        kind => {
            // Of these kinds the encoding has no meaning.
            let is_encoded = matches!(kind, Kind::Timestamp | Kind::Uuid);
            let encoding = if is_encoded { column.encoding } else { Encoding::Native };
            let form = FORMS.iter().position(|form| *form == (kind, encoding));
            // A form that is missing here takes no row.
            let form = form.unwrap_or(FORMS.len());
            format!("{NAME}({quoted}, {form})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(kind: Kind, encoding: Encoding, literal: &str) -> bool {
        let conn = Connection::open_in_memory().expect("a database");
        register(&conn).expect("registered");
        let condition = condition(Column { kind, encoding }, "v");
        let sql = format!("SELECT {condition} FROM (SELECT {literal} AS v)");
        conn.query_row(&sql, [], |row| row.get(0)).expect("an answer")
    }

    #[test]
    fn every_kind_takes_its_own_values_and_no_others() {
        use Encoding::{
            Datetime, Datetime3, Datetime6, Millis, Native, Raw, Rfc3339, Rfc3339Micros,
            Rfc3339Millis, Seconds,
        };
        let second = "'2026-01-31 08:00:00'";
        let micro = "'2026-01-31 08:00:00.000001'";
        let zoned = "'2026-01-31T08:00:00Z'";
        let milli = "'2026-01-31 08:00:00.120'";
        let (zoned_milli, zoned_micro) =
            ("'2026-01-31T08:00:00.120Z'", "'2026-01-31T08:00:00.120000Z'");
        let uuid = "'02371645-3b82-4f6e-8f00-000000000001'";
        let sixteen = "x'02371645023716450237164502371645'";
        let all = [
            "5",
            "1",
            "1.5",
            "''",
            "'abc'",
            "x'00'",
            second,
            micro,
            zoned,
            milli,
            zoned_milli,
            zoned_micro,
            uuid,
            sixteen,
            "'2026-01-31'",
            "'2026-13-41 00:00:00'",
            "' 2026-01-31 08:00:00'",
            "'0000-00-00 00:00:00'",
            "'2026-01-31T08:00:00+02:00'",
            "'2026-02-30'",
            "9223372036854775807",
            "CAST(x'ff' AS TEXT)",
        ];
        let cases: [(Kind, Encoding, &[&str]); 15] = [
            (Kind::Integer, Native, &["5", "1", "9223372036854775807"]),
            (Kind::Bool, Native, &["1"]),
            (Kind::Float, Native, &["5", "1", "1.5", "9223372036854775807"]),
            (Kind::Date, Native, &["'2026-01-31'"]),
            (Kind::Uuid, Native, &[uuid, sixteen]),
            (Kind::Uuid, Raw, &[uuid, sixteen]),
            (Kind::Timestamp, Native, &["5", "1", "9223372036854775807"]),
            (Kind::Timestamp, Seconds, &["5", "1"]),
            (Kind::Timestamp, Millis, &["5", "1"]),
            (Kind::Timestamp, Rfc3339, &[zoned]),
            (Kind::Timestamp, Datetime, &[second, micro]),
            (Kind::Timestamp, Datetime6, &[micro]),
            (Kind::Timestamp, Datetime3, &[milli]),
            (Kind::Timestamp, Rfc3339Millis, &[zoned_milli]),
            (Kind::Timestamp, Rfc3339Micros, &[zoned_micro]),
        ];
        for (kind, encoding, expected) in cases {
            let found: Vec<&str> =
                all.into_iter().filter(|literal| fits(kind, encoding, literal)).collect();
            assert_eq!(found, expected, "{kind:?} {encoding:?}");
            assert!(fits(kind, encoding, "NULL"), "{kind:?}");
            assert_eq!(fits(kind, encoding, "9e18"), kind == Kind::Float, "{kind:?}");
        }
        let texts = |kind| all.iter().filter(|literal| fits(kind, Native, literal)).count();
        assert_eq!((texts(Kind::Text), texts(Kind::Json)), (15, 15));
        assert!(fits(Kind::Bytes, Native, "x'00'") && !fits(Kind::Bytes, Native, "'abc'"));
    }
}
