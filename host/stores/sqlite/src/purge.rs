//! Chosen rows are removed from what is kept for undo.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use rusqlite::{Connection, params};

use super::error::Job;
use super::statements::Statements;
use super::tally::add_undo;
use super::writer::Tx;
use besom_ports::store::{Applied, Purge};
use besom_record::images;

/// Takes the next places of a command.
pub(super) fn purge(
    tx: &mut Tx<'_>,
    purge: &Purge,
    applied: &mut Applied,
    limit: NonZeroU32,
) -> Job<()> {
    // Otherwise the former bytes would stay in the file, in what is free of its pages.
    let secure = secure_delete(tx.conn, true)?;
    let done = places(tx, purge, applied, limit);
    secure_delete(tx.conn, secure)?;
    done
}

/// Sets whether deleted content is overwritten, and returns whether it was.
fn secure_delete(conn: &Connection, on: bool) -> Job<bool> {
    let before: i64 = conn.query_row("PRAGMA secure_delete", [], |r| r.get(0))?;
    let sql = format!("PRAGMA secure_delete = {}", if on { "ON" } else { "OFF" });
    let _: i64 = conn.query_row(&sql, [], |r| r.get(0))?;
    Ok(before == 1)
}

fn places(tx: &mut Tx<'_>, purge: &Purge, applied: &mut Applied, limit: NonZeroU32) -> Job<()> {
    let mut held: BTreeMap<i64, i64> = BTreeMap::new();
    let mut step = (0, 0);
    while let Some(place) = applied.next_place(purge, step, limit) {
        let found: Option<(i64, i64, Option<Vec<u8>>)> = tx.conn.first(
            "SELECT task, undo_bytes, undo FROM besom_history WHERE id = ?1",
            [place.history],
            |r| r.try_into(),
        )?;
        step = (step.0 + 1, step.1 + found.as_ref().map_or(0, |(_, bytes, _)| *bytes as u64));
        let Some((task, before, Some(packed))) = found else {
            applied.count_place(false, None);
            continue;
        };
        let Some(less) = images::purge(&packed, place)? else {
            applied.count_place(true, None);
            continue;
        };
        let bytes = less.packed.as_ref().map_or(0, Vec::len) as i64;
        tx.conn.run(
            "UPDATE besom_history SET undo = ?2, undo_bytes = ?3 WHERE id = ?1",
            params![place.history, less.packed, bytes],
        )?;
        *held.entry(task).or_default() += bytes - before;
        applied.count_place(true, Some(less.rows));
    }
    applied.end_step(purge);
    add_undo(tx, &held)
}
