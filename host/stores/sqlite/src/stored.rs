//! Compares the kind of a mapped column with what its table declares and holds. SQLite enforces no
//! types: a column may hold anything, so rows are looked at as well, a bounded number of them.

use std::collections::BTreeMap;

use besom_core::collection::{Column, Encoding};
use besom_core::time::date_of;
use besom_core::value::Kind;
use besom_ports::store::{Error, UNTIL_MATCHED};
use besom_snapshot::Cause;
use besom_tables::encoding::{instant_of, instant_text, uuid_parse};
use besom_tables::units::{Units, in_words};
use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::error::Job;
use super::mapping::{Table, Unlike, quote};

/// Number of rows looked at, at each end of the table.
const ROWS: u32 = 200;
/// Maximum length of a value that is looked at, in bytes. Instants and UUIDs are shorter.
const LENGTH_MAX: u32 = 64;

/// The encodings of an instant as text, by their names in the configuration.
const TEXTS: [(&str, Encoding); 3] = [
    ("datetime", Encoding::Datetime),
    ("datetime6", Encoding::Datetime6),
    ("rfc3339", Encoding::Rfc3339),
];
/// Number of values from which on a sample is an error by itself if none of them fits.
const CERTAIN: u64 = 10;

/// A column as the table declares it.
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) ty: String,
    pub(super) key_position: u32,
}

/// The columns of a table or view.
pub(super) fn declared(conn: &Connection, table: &str) -> Job<Vec<Declared>> {
    // `hidden` is 1 for columns of virtual tables; 2 and 3 are generated columns, which can be
    // read.
    let mut statement =
        conn.prepare("SELECT name, type, pk FROM pragma_table_xinfo(?1) WHERE hidden <> 1")?;
    let rows = statement.query_map([table], |r| {
        Ok(Declared { name: r.get(0)?, ty: r.get(1)?, key_position: r.get(2)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
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

/// The values of one column in the rows looked at, without NULL.
#[derive(Default)]
pub(super) struct Sample {
    values: u64,
    /// Those that are not stored as the column's encoding says: a guard never equals them.
    odd: u64,
    /// Those that are read as another kind.
    unread: u64,
    /// The storage classes of the odd ones.
    classes: BTreeMap<String, u64>,
    units: Units,
    /// How many texts are instants in each encoding.
    texts: BTreeMap<&'static str, u64>,
}

/// What is wrong with the mapping of a column.
pub(super) struct Fault {
    pub(super) message: String,
    /// Whether it is only a warning: the rows do not confirm it, or not all of them do.
    pub(super) warning: bool,
}

/// The fault of a column's mapping, judged by the declared type and the rows looked at.
pub(super) fn fault(declared: &Declared, column: Column, sample: &Sample) -> Option<Fault> {
    let (unlike, mapped) = (declared.is_unlike(column), in_words(column));
    let Sample { values, odd, .. } = *sample;
    if odd == 0 {
        if let Some(message) = sample.units.fault(column, values) {
            return Some(Fault { message, warning: false });
        }
        return unlike.then(|| Fault {
            message: format!(
                "the column is declared {} but mapped as {mapped}: correct the kind or the encoding",
                declared.ty
            ),
            warning: true,
        });
    }
    let (stored, fix) = (sample.classes(), sample.fix(column));
    let ty = match (odd == values, declared.ty.as_str()) {
        (true, ty) if !ty.is_empty() => format!("declared {ty} and "),
        _ => String::new(),
    };
    let found = match (odd, values) {
        (1, 1) => "the only value looked at is".to_owned(),
        (odd, values) if odd == values => format!("all {values} values looked at are"),
        (1, values) => format!("1 of {values} values looked at is"),
        (odd, values) => format!("{odd} of {values} values looked at are"),
    };
    let message = match sample.is_spelt_in(column.encoding) {
        // Texts are what the mapping expects, and most of them are right.
        true => format!(
            "the column is mapped as {mapped}, but {found} not spelt as one: correct the rows, or map the \
             column as text. No task takes such a row by this column"
        ),
        false => {
            format!("the column is {ty}mapped as {mapped}, but {found} stored as {stored}: {fix}")
        }
    };
    // Comparisons never find such values: the task would do nothing, and say nothing.
    let certain = odd == values && (unlike || values >= CERTAIN);
    Some(Fault { message, warning: !certain })
}

impl Sample {
    /// Whether no row that was looked at has a value.
    pub(super) fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// Looks at some rows of a table for each of the columns. Rows of views may take long to
    /// compute, so none are looked at.
    pub(super) fn of(
        conn: &Connection,
        table: &str,
        columns: &[(&String, Column)],
    ) -> Job<Vec<Sample>> {
        let mut samples: Vec<Sample> = columns.iter().map(|_| Sample::default()).collect();
        let kind: Option<(String, bool)> = conn
            .prepare_cached("SELECT type, wr FROM pragma_table_list(?1) WHERE schema = 'main'")?
            .query_map([table], |r| Ok((r.get(0)?, r.get(1)?)))?
            .next()
            .transpose()?;
        let Some((kind, without_rowid)) = kind.filter(|_| !columns.is_empty()) else {
            return Ok(samples);
        };
        if kind != "table" {
            return Ok(samples);
        }
        let cells: Vec<String> =
            columns.iter().map(|(name, column)| cells(name, *column)).collect();
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
                sample.add(*column, class, row.get_ref(2 * at + 1)?);
            }
        }
        Ok(samples)
    }

    fn add(&mut self, column: Column, class: String, value: ValueRef<'_>) {
        if class == "null" {
            return;
        }
        self.values += 1;
        let (reads, stores) = fits(column, &class, value);
        self.unread += u64::from(!reads);
        if !stores {
            self.odd += 1;
            *self.classes.entry(class).or_default() += 1;
        }
        match (column.kind, value) {
            (Kind::Timestamp, ValueRef::Integer(number)) => self.units.add(number, column.encoding),
            (Kind::Timestamp, ValueRef::Text(text)) => {
                let text = str::from_utf8(text).unwrap_or_default();
                for (name, encoding) in TEXTS {
                    if is_canonical(text, encoding) {
                        *self.texts.entry(name).or_default() += 1;
                    }
                }
            }
            _ => {}
        }
    }

    /// Whether the odd values are texts, and most others are instants in this encoding.
    fn is_spelt_in(&self, encoding: Encoding) -> bool {
        let most = self.texts.iter().max_by_key(|(_, count)| **count);
        self.classes.keys().all(|class| class == "text")
            && most.is_some_and(|(name, _)| TEXTS.contains(&(*name, encoding)))
    }

    fn classes(&self) -> String {
        self.classes.keys().cloned().collect::<Vec<_>>().join(" and ")
    }

    fn fix(&self, column: Column) -> String {
        let most = self.classes.iter().max_by_key(|(_, count)| **count);
        let class = most.map_or("", |(class, _)| class.as_str());
        match (column.kind, class) {
            (Kind::Timestamp, "integer") => {
                "write the encoding of the numbers (\"seconds\", \"millis\" or \"native\", which is \
                 microseconds)"
                    .to_owned()
            }
            (Kind::Timestamp, "text") => match self.texts.iter().max_by_key(|(_, count)| **count) {
                Some((name, _)) => format!("write encoding = \"{name}\" if these are instants in UTC"),
                None => "the encodings of texts are rfc3339 (2026-01-31T00:00:00Z, a fraction without \
                         zeros at its end), datetime \
                         (2026-01-31 00:00:00) and datetime6 (2026-01-31 00:00:00.000000), all in UTC: \
                         correct the rows, or map the column as text"
                    .to_owned(),
            },
            (Kind::Uuid, "blob") => "write encoding = \"raw\", or map it as bytes".to_owned(),
            (Kind::Uuid, "text") if column.encoding == Encoding::Raw => {
                "remove encoding = \"raw\", or map it as text".to_owned()
            }
            (_, class) => {
                let kind = match class {
                    "integer" => "integer",
                    "real" => "float",
                    "blob" => "bytes",
                    _ => "text",
                };
                format!("map it as {kind}, or correct the rows")
            }
        }
    }
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

/// Whether a text is spelt as Besom spells its instant: a guard compares the texts.
fn is_canonical(text: &str, encoding: Encoding) -> bool {
    instant_of(text, encoding)
        .is_some_and(|instant| instant_text(instant, encoding).is_ok_and(|own| own == text))
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
    let sample = Sample::of(conn, &collection.table, &[(name, *column)])?.pop().unwrap_or_default();
    let found = declared(conn, &collection.table)?;
    let found = found.iter().find(|found| found.name.eq_ignore_ascii_case(name));
    let is_wrong = match sample.values {
        0 => found.is_some_and(|found| found.is_unlike(*column)),
        values => sample.unread == values || sample.units.fault(*column, values).is_some(),
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
