//! Chosen rows are removed from what is kept for undo.

use std::num::NonZeroU32;

use besom_core::books::Delta;

use super::error::Job;
use super::session::{Pipeline, Tx, params};
use super::tally::Counters;
use besom_ports::store::{Applied, Purge};
use besom_record::images;

/// Takes the next places of a command.
pub(super) async fn purge(
    tx: &Tx,
    purge: &Purge,
    applied: &mut Applied,
    limit: NonZeroU32,
) -> Job<()> {
    let mut counters = Counters::default();
    let mut step = (0, 0);
    while let Some(place) = applied.next_place(purge, step, limit) {
        let id = i64::try_from(place.history).unwrap_or(i64::MAX);
        let kept = "SELECT task, tenant, undo_bytes, undo FROM @.history WHERE id = $1 FOR UPDATE";
        step.0 += 1;
        let Some(row) = tx.row(kept, params![id]).await? else {
            applied.count_place(false, None);
            continue;
        };
        let (task, tenant): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
        let (before, packed): (i64, Option<Vec<u8>>) = (row.try_get(2)?, row.try_get(3)?);
        step.1 += before as u64;
        let Some(packed) = packed else {
            applied.count_place(false, None);
            continue;
        };
        let Some(less) = images::purge(&packed, place)? else {
            applied.count_place(true, None);
            continue;
        };
        let bytes = less.packed.as_ref().map_or(0, Vec::len) as i64;
        let sql = "UPDATE @.history SET undo = $2, undo_bytes = $3 WHERE id = $1";
        tx.execute(sql, params![id, less.packed, bytes]).await?;
        let delta = Delta { undo_bytes: bytes - before, ..Delta::default() };
        counters.push(task, tenant.into(), &delta);
        applied.count_place(true, Some(less.rows));
    }
    applied.end_step(purge);
    let mut pipeline = Pipeline::default();
    counters.write(&mut pipeline);
    tx.session.run(pipeline).await?;
    Ok(())
}
