//! Compares the kind of a mapped column with what its table declares and holds. SQLite enforces no
//! types: a column may hold anything, so rows are looked at as well, a bounded number of them.

use besom_core::collection::{Column, Encoding};
use besom_core::time::date_of;
use besom_core::value::Kind;
use besom_ports::store::{Error, UNTIL_MATCHED};
use besom_snapshot::Cause;
use besom_tables::encoding::{instant_of, uuid_parse};
use besom_tables::sample::{Fault, Sample, is_canonical};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::error::Job;
use super::mapping::{Table, Unlike, quote};
use super::statements::Statements;

/// Number of rows looked at, at each end of the table.
const ROWS: u32 = 200;
/// Maximum length of a value that is looked at, in bytes. Instants and UUIDs are shorter.
const LENGTH_MAX: u32 = 64;

/// The index of the primary key of a table. Only one that is another name of the row id has none: `INTEGER PRIMARY
/// KEY`, but not `INTEGER PRIMARY KEY DESC`.
pub(super) const INDEX_OF_KEY: &str = "(SELECT 1 FROM pragma_index_list(?1) WHERE origin = 'pk')";

/// A column as the table declares it.
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) ty: String,
    pub(super) key_position: u32,
    /// Whether it holds no NULL: a primary key may, unless it is the row id.
    pub(super) not_null: bool,
    /// Whether it is a generated column.
    pub(super) computed: bool,
}

/// The columns of a table or view.
pub(super) fn declared(conn: &Connection, table: &str) -> Job<Vec<Declared>> {
    // `hidden` is 1 for columns of virtual tables; 2 and 3 are generated columns, which can be
    // read.
    let sql = format!(
        "SELECT name, type, pk, \"notnull\" OR (pk > 0 AND NOT EXISTS {INDEX_OF_KEY}), hidden <> 0
         FROM pragma_table_xinfo(?1) WHERE hidden <> 1"
    );
    conn.all(&sql, [table], |r| {
        let (name, ty, key_position) = (r.get(0)?, r.get(1)?, r.get(2)?);
        Ok(Declared { name, ty, key_position, not_null: r.get(3)?, computed: r.get(4)? })
    })
}

impl Declared {
    /// Whether the declared type is unusual for that column.
    fn is_unlike(&self, column: Column) -> bool {
        let declared = self.ty.to_uppercase();
        let integer = declared.contains("INT");
        let text = ["CHAR", "CLOB", "TEXT"].iter().any(|t| declared.contains(t));
        match column.kind {
            Kind::Integer | Kind::Bool => text,
            Kind::Timestamp if column.encoding.is_text() => integer,
            Kind::Timestamp => text,
            Kind::Text | Kind::Json | Kind::Decimal | Kind::Date => integer,
            Kind::Bytes => integer || text,
            Kind::Uuid => integer || (text && column.encoding == Encoding::Raw),
            Kind::Float => text,
        }
    }
}

/// The fault of a column's mapping, judged by the declared type and the rows looked at.
pub(super) fn fault(declared: &Declared, column: Column, sample: &Sample) -> Option<Fault> {
    sample.fault(column, &declared.ty, declared.is_unlike(column))
}

/// Looks at some rows of a table for each of the columns. Rows of views may take long to
/// compute, so none are looked at.
pub(super) fn samples(
    conn: &Connection,
    table: &str,
    columns: &[(&String, Column)],
) -> Job<Vec<Sample>> {
    let mut samples: Vec<Sample> = columns.iter().map(|_| Sample::default()).collect();
    let kind: Option<(String, bool)> = conn.first(
        "SELECT type, wr FROM pragma_table_list(?1) WHERE schema = 'main'",
        [table],
        |r| r.try_into(),
    )?;
    let Some((kind, without_rowid)) = kind.filter(|_| !columns.is_empty()) else {
        return Ok(samples);
    };
    if kind != "table" {
        return Ok(samples);
    }
    let cells: Vec<String> = columns.iter().map(|(name, column)| cells(name, *column)).collect();
    let name = quote(table);
    let mut sql = format!("SELECT {} FROM {name}", cells.join(", "));
    // Otherwise the name may be that of a column without an index.
    let own = declared(conn, table)?.iter().any(|c| c.name.eq_ignore_ascii_case("_rowid_"));
    if without_rowid || own {
        sql.push_str(&format!(" LIMIT {ROWS}"));
    } else {
        let end = |order: &str| {
            format!(
                "SELECT * FROM (SELECT _rowid_ FROM {name} ORDER BY _rowid_ {order} LIMIT {ROWS})"
            )
        };
        sql.push_str(&format!(" WHERE _rowid_ IN ({} UNION {})", end("ASC"), end("DESC")));
    }
    let mut statement = conn.prepare(&sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        for (at, (sample, (_, column))) in samples.iter_mut().zip(columns).enumerate() {
            let class: String = row.get(2 * at)?;
            add(sample, *column, class, row.get_ref(2 * at + 1)?);
        }
    }
    Ok(samples)
}

fn add(sample: &mut Sample, column: Column, class: String, value: ValueRef<'_>) {
    if class == "null" {
        return;
    }
    let (reads, stores) = fits(column, &class, value);
    match (column.kind, value) {
        (Kind::Timestamp, ValueRef::Integer(number)) => sample.add_number(column, number),
        (Kind::Timestamp, ValueRef::Text(text)) => {
            sample.add_instant(str::from_utf8(text).unwrap_or_default());
        }
        _ => {}
    }
    sample.add(&class, reads, stores);
}

/// The storage class of a column, and its value where that decides.
fn cells(name: &str, column: Column) -> String {
    let name = quote(name);
    match column.kind {
        Kind::Bool | Kind::Timestamp | Kind::Uuid | Kind::Date => format!(
            "typeof({name}), CASE WHEN typeof({name}) <> 'real' AND length({name}) <= {LENGTH_MAX} \
             THEN {name} END"
        ),
        _ => format!("typeof({name}), NULL"),
    }
}

/// Whether a value is read as the column's kind, and whether it is stored as the column stores it.
fn fits(column: Column, class: &str, value: ValueRef<'_>) -> (bool, bool) {
    let text = || value.as_str().unwrap_or_default();
    let both = |fits: bool| (fits, fits);
    match column.kind {
        Kind::Bool => both(matches!(value, ValueRef::Integer(0 | 1))),
        Kind::Integer => both(class == "integer"),
        Kind::Float => both(matches!(class, "integer" | "real")),
        Kind::Decimal => both(matches!(class, "integer" | "real" | "text")),
        Kind::Text | Kind::Json => both(class == "text"),
        Kind::Bytes => both(class == "blob"),
        Kind::Date => both(class == "text" && date_of(text()).is_some()),
        Kind::Uuid => {
            let raw = matches!(value, ValueRef::Blob(b) if b.len() == 16);
            let is_text = class == "text" && uuid_parse(text()).is_some();
            (raw || is_text, if column.encoding == Encoding::Raw { raw } else { is_text })
        }
        Kind::Timestamp => {
            let number = class == "integer";
            let is_text = class == "text" && instant_of(text(), column.encoding).is_some();
            let stores = match column.encoding.is_text() {
                true => class == "text" && is_canonical(text(), column.encoding),
                false => number,
            };
            (number || is_text, stores)
        }
    }
}

/// The error for a value that does not fit its column. If the rows are of another kind than the
/// mapping says, the mapping is to blame and not the item: nothing of the task could be committed.
pub(super) fn judged(conn: &Connection, table: &Table, unlike: Unlike) -> Job<Error> {
    let Unlike { column: name, said, .. } = unlike;
    if table.knows_as_sound(&name) {
        return Ok(Error::Invalid(said));
    }
    let collection = &table.collection;
    let Some((name, column)) = collection.columns.get_key_value(&name) else {
        return Ok(Error::Invalid(said));
    };
    let sample = samples(conn, &collection.table, &[(name, *column)])?.pop().unwrap_or_default();
    let found = declared(conn, &collection.table)?;
    let found = found.iter().find(|found| found.name.eq_ignore_ascii_case(name));
    let is_wrong = match sample.is_empty() {
        true => found.is_some_and(|found| found.is_unlike(*column)),
        false => sample.is_of_another_kind(*column),
    };
    let fault = found.filter(|_| is_wrong).and_then(|found| fault(found, *column, &sample));
    Ok(match fault {
        Some(Fault { message, .. }) => Error::Refused(
            Cause::Schema,
            format!(
                "{said}; collection `{}`, columns.{name}: {message}{UNTIL_MATCHED}",
                collection.name
            ),
        ),
        None => {
            table.note_as_sound(name);
            Error::Invalid(said)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_fits_as_its_kind_is_read_and_as_its_encoding_is_stored() {
        use Encoding::{Millis, Native, Raw, Rfc3339, Seconds};
        let text = |s: &'static str| ("text", ValueRef::Text(s.as_bytes()));
        let integer = |i| ("integer", ValueRef::Integer(i));
        let instant = "2026-01-31T00:00:00Z";
        let uuid = "00000000-0000-0000-0000-000000000007";
        for (kind, encoding, (class, value), reads, stores) in [
            (Kind::Bool, Native, integer(1), true, true),
            (Kind::Bool, Native, integer(2), false, false),
            (Kind::Bool, Native, text("true"), false, false),
            (Kind::Integer, Native, integer(7), true, true),
            (Kind::Integer, Native, text("7"), false, false),
            (Kind::Integer, Native, ("real", ValueRef::Null), false, false),
            (Kind::Float, Native, integer(7), true, true),
            (Kind::Decimal, Native, text("7.0"), true, true),
            (Kind::Text, Native, integer(7), false, false),
            (Kind::Text, Native, ("blob", ValueRef::Null), false, false),
            (Kind::Bytes, Native, text("7"), false, false),
            (Kind::Timestamp, Native, integer(7), true, true),
            (Kind::Timestamp, Seconds, text(instant), true, false),
            (Kind::Timestamp, Millis, text("2026-01-31 00:00:00"), false, false),
            (Kind::Timestamp, Rfc3339, text(instant), true, true),
            (Kind::Timestamp, Rfc3339, integer(7), true, false),
            (Kind::Timestamp, Rfc3339, text("2026-01-31T00:00:00.120Z"), true, false),
            (Kind::Timestamp, Rfc3339, text("2026-01-31T00:00:00+00:00"), true, false),
            (Kind::Uuid, Native, text(uuid), true, true),
            (Kind::Uuid, Native, ("blob", ValueRef::Blob(&[7; 16])), true, false),
            (Kind::Uuid, Raw, ("blob", ValueRef::Blob(&[7; 16])), true, true),
            (Kind::Uuid, Raw, text(uuid), true, false),
            (Kind::Uuid, Native, text("seven"), false, false),
        ] {
            let found = fits(Column { kind, encoding }, class, value);
            assert_eq!(found, (reads, stores), "{class} {value:?} as {kind:?} ({encoding:?})");
        }
    }
}
