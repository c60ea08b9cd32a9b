//! Whether the texts of a column are spelt as its mapping says (see [`besom_tables::sample`]).

use besom_core::collection::Column;
use besom_tables::sample::{Fault, Sample};

use super::error::Job;
use super::mapping::{Table, quote};
use super::session::{Session, params};
use super::values::{Form, Wire};

/// Number of rows looked at, and at each end of an index.
const ROWS: u32 = 200;
/// Maximum length of a text that is looked at, in characters. Instants and UUIDs are shorter.
const LENGTH_MAX: u32 = 64;

/// The fault of a column of texts that are instants, dates or UUIDs, judged by some rows. If an index begins with the
/// column, those at its ends are looked at as well: a text that means nothing is mostly before or after all others.
pub(super) async fn fault(
    session: &Session,
    table: &Table,
    (name, declared): (&str, &str),
    is_indexed: bool,
) -> Job<Option<Fault>> {
    let is_text = |form: &Form| form.wire == Wire::Text && form.fits("").is_some();
    let column = table.collection.columns.get(name);
    let Some(column) = column.filter(|_| table.form(name).is_ok_and(is_text)) else {
        return Ok(None);
    };
    let (mut sample, column, cell) = (Sample::default(), *column, format!("t.{}", quote(name)));
    let is_whole = look(session, table, &cell, "", (column, &mut sample)).await? < i64::from(ROWS);
    if is_indexed && !is_whole {
        for order in ["ASC", "DESC"] {
            let end = format!("WHERE {cell} IS NOT NULL ORDER BY {cell} {order}");
            look(session, table, &cell, &end, (column, &mut sample)).await?;
        }
    }
    Ok(sample.fault(column, declared, false))
}

/// Adds the texts of some rows. Returns the number of rows.
async fn look(
    session: &Session,
    table: &Table,
    cell: &str,
    which: &str,
    (column, sample): (Column, &mut Sample),
) -> Job<i64> {
    let sql = format!(
        "SELECT count(*), array_agg(left(s.v::text, {LENGTH_MAX} + 1)) FILTER (WHERE s.v IS NOT NULL)
         FROM (SELECT {cell} AS v FROM {} t {which} LIMIT {ROWS}) s",
        table.name
    );
    let Some(row) = session.row(&sql, params![]).await? else { return Ok(0) };
    let texts: Option<Vec<String>> = row.try_get(1)?;
    for text in texts.iter().flatten() {
        sample.add_text(column, text);
    }
    Ok(row.try_get(0)?)
}
