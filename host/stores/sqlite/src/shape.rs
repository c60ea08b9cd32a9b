//! Describes a table of the product for a mapping. Reads only, and needs no tables of the engine.

use std::path::Path;

use besom_core::collection::{Column, Encoding};
use besom_core::value::Kind;
use besom_ports::shape::{
    BY_NUMBERS, Described, FOR_INSTANTS, Found, ROWS_LOOKED_AT, Reference, Shape,
    is_named_as_instant, unit_of,
};
use rusqlite::{Connection, params};

use super::check::{begins_index, has_null, indexes, tables};
use super::error::Job;
use super::mapping::{DIALECT, quote};
use super::open::reading;
use super::statements::Statements;
use super::stored::{Declared, declared, fault, samples};
use besom_ports::store::{Error, Result};
use besom_tables::check::{identifying, of_some_rows, present, whole};
use besom_tables::sample::Sample;

/// Number of values looked at for the unit of instants.
const VALUES: u32 = 200;

/// Describes a table or view of a file, which is not changed.
///
/// # Errors
/// [`Error::Unavailable`] if the file cannot be read.
pub fn describe(path: &Path, table: &str) -> Result<Described> {
    let described = reading(path, |conn| shape(conn, table));
    described.map_err(|error| match Error::from(error) {
        Error::Unavailable(said) => Error::Unavailable(format!("{}: {said}", path.display())),
        other => other,
    })
}

fn shape(conn: &Connection, table: &str) -> Job<Described> {
    let known = tables(conn)?;
    let Some((name, kind)) = known.iter().find(|(name, _)| DIALECT.same(name, table)) else {
        return Ok(Described::Unknown(known.into_iter().map(|(name, _)| name).collect()));
    };
    let own = declared(conn, name)?;
    let found = if kind == "table" { indexes(conn, name, &own)? } else { Vec::new() };
    let mut columns =
        own.iter().map(|column| of_column(conn, name, column)).collect::<Job<Vec<_>>>()?;
    // A primary key may hold NULL, but seldom does.
    let mut set = Vec::new();
    for column in &own {
        let is_set =
            column.not_null || (column.key_position > 0 && !has_null(conn, name, &column.name)?);
        set.extend(is_set.then_some(column.name.as_str()));
    }
    let mut key = identifying(&found, |column| set.contains(&column));
    if key.is_empty() {
        key = identifying(&found, |_| true);
    }
    for column in columns
        .iter_mut()
        .filter(|column| key.contains(&column.name) && !set.contains(&column.name.as_str()))
    {
        column.remark = Some("may be NULL: no row is found again by that".to_owned());
    }
    Ok(Described::Table(Shape {
        table: name.clone(),
        columns,
        key,
        indexes: whole(&found),
        not_null: of_some_rows(&found),
        partial: partial(conn, name)?,
        references: references(conn, name)?,
        is_view: kind == "view",
    }))
}

fn partial(conn: &Connection, table: &str) -> Job<Vec<String>> {
    let sql = "SELECT l.name, s.sql FROM pragma_index_list(?1) l
               JOIN sqlite_schema s ON s.type = 'index' AND s.name = l.name WHERE l.partial = 1 ORDER BY l.name";
    let all: Vec<(String, String)> = conn.all(sql, [table], |r| r.try_into())?;
    Ok(all.into_iter().filter(|(_, sql)| present(sql).is_none()).map(|(name, _)| name).collect())
}

fn references(conn: &Connection, table: &str) -> Job<Vec<Reference>> {
    let mut statement = conn.prepare(
        "SELECT id, \"table\", \"from\", \"to\", upper(on_delete) IN ('SET NULL', 'SET DEFAULT')
         FROM pragma_foreign_key_list(?1) ORDER BY id, seq",
    )?;
    let mut rows = statement.query([table])?;
    let (mut all, mut last): (Vec<Reference>, Option<i64>) = (Vec::new(), None);
    while let Some(r) = rows.next()? {
        let id = r.get(0)?;
        if last != Some(id) {
            let (columns, theirs) = (Vec::new(), Vec::new());
            all.push(Reference { columns, table: r.get(1)?, theirs, clears: r.get(4)? });
            last = Some(id);
        }
        if let Some(reference) = all.last_mut() {
            reference.columns.push(r.get(2)?);
            reference.theirs.extend(r.get::<_, Option<String>>(3)?);
        }
    }
    Ok(all)
}

/// The first kind that fits what is declared and the rows looked at.
fn of_column(conn: &Connection, table: &str, declared: &Declared) -> Job<Found> {
    const GUESSED: &str = "no row has a value yet: confirm the encoding";
    let (name, ty) = (declared.name.clone(), declared.ty.clone());
    let found = |column, remark| Found {
        name: name.clone(),
        declared: ty.clone(),
        column,
        remark,
        not_null: declared.not_null,
        computed: declared.computed,
        labels: Vec::new(),
    };
    let named = is_named_as_instant(&name);
    let numbers = if named { numbers(conn, table, &name)? } else { Vec::new() };
    let unit = unit_of(&numbers);
    let text = Column { kind: Kind::Text, encoding: Encoding::Native };
    let of = |column| -> Job<Sample> {
        Ok(samples(conn, table, &[(&name, column)])?.pop().unwrap_or_default())
    };
    let is_empty = of(text)?.is_empty();
    let by_unit = unit.map(|encoding| (Kind::Timestamp, encoding));
    let mut odd = None;
    for (kind, encoding) in by_unit.into_iter().chain(candidates(declared)) {
        let column = Column { kind, encoding };
        if let Some(fault) = fault(declared, column, &of(column)?) {
            odd.get_or_insert(fault.message);
            continue;
        }
        let remark = match kind {
            Kind::Timestamp if by_unit.is_some() => Some(BY_NUMBERS),
            Kind::Timestamp if is_empty => Some(GUESSED),
            Kind::Integer if named && numbers.is_empty() => Some(FOR_INSTANTS),
            _ => None,
        };
        // A text that is named as an instant: why it is none.
        let odd = odd.filter(|_| kind == Kind::Text && !is_empty);
        return Ok(found(Some(column), remark.map(str::to_owned).or(odd)));
    }
    Ok(found(None, odd))
}

/// Whole numbers of a column, which may be NULL in most rows.
fn numbers(conn: &Connection, table: &str, column: &str) -> Job<Vec<i64>> {
    let all = format!("SELECT {} AS value FROM {}", quote(column), quote(table));
    let first = format!("{all} LIMIT {ROWS_LOOKED_AT}");
    // In the order of an index, the first ones are the least, such as 0 for never.
    let by_index = begins_index(conn, table, column)?.then_some(all);
    for rows in std::iter::once(first).chain(by_index) {
        let sql = format!(
            "SELECT value FROM ({rows}) WHERE value IS NOT NULL AND typeof(value) = 'integer' LIMIT ?1"
        );
        let found: Vec<i64> = conn.all(&sql, params![VALUES], |r| r.get(0))?;
        if !found.is_empty() {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// The kinds that a declared type suggests, the likeliest first.
fn candidates(declared: &Declared) -> Vec<(Kind, Encoding)> {
    use Encoding::{Datetime, Datetime3, Datetime6, Rfc3339, Rfc3339Micros, Rfc3339Millis};
    let ty = declared.ty.to_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| ty.contains(word));
    let native = |kinds: &[Kind]| -> Vec<(Kind, Encoding)> {
        kinds.iter().map(|kind| (*kind, Encoding::Native)).collect()
    };
    // Rows whose fractions are not 0 fit both; then, and without rows, the form that most libraries write.
    let instants = match ty.contains("(6)") {
        true => [Datetime6, Datetime, Datetime3, Rfc3339Millis, Rfc3339, Rfc3339Micros],
        false => [Datetime, Datetime6, Datetime3, Rfc3339Millis, Rfc3339, Rfc3339Micros],
    };
    let instants = instants.map(|encoding| (Kind::Timestamp, encoding));
    if has(&["BOOL"]) {
        return native(&[Kind::Bool, Kind::Integer, Kind::Text]);
    }
    if has(&["DATE", "TIME"]) {
        let date = (ty == "DATE").then_some((Kind::Date, Encoding::Native));
        return date
            .into_iter()
            .chain(instants)
            .chain(native(&[Kind::Text, Kind::Integer]))
            .collect();
    }
    if has(&["INT"]) {
        return native(&[Kind::Integer, Kind::Text]);
    }
    if has(&["UUID", "GUID"]) {
        let raw = (Kind::Uuid, Encoding::Raw);
        let native = (Kind::Uuid, Encoding::Native);
        return vec![native, raw, (Kind::Text, Encoding::Native), (Kind::Bytes, Encoding::Native)];
    }
    if has(&["JSON"]) {
        return native(&[Kind::Json, Kind::Bytes]);
    }
    if has(&["CHAR", "CLOB", "TEXT"]) {
        let named = is_named_as_instant(&declared.name);
        return instants.into_iter().filter(|_| named).chain(native(&[Kind::Text])).collect();
    }
    if has(&["BLOB"]) {
        return native(&[Kind::Bytes, Kind::Text]);
    }
    if has(&["REAL", "FLOA", "DOUB"]) {
        return native(&[Kind::Float]);
    }
    if ty.is_empty() {
        return native(&[Kind::Text, Kind::Integer, Kind::Float, Kind::Bytes]);
    }
    native(&[Kind::Decimal, Kind::Integer, Kind::Text, Kind::Bytes])
}
