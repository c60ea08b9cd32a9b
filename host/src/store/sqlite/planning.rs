//! Turns a page of a scan into items: due ones become timers, the others entries of their streams.

use std::collections::BTreeMap;

use besom_core::books::{Blocks, Tally};
use besom_core::ids::{FencingToken, Partition, RunId, TaskName, Tenant, partition_of};
use besom_core::item::Candidate;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::error::Job;
use super::leadership::check_fence;
use super::ledger::blocks;
use super::tally;
use super::values::{DueCell, tenant_cell};
use super::writer::Tx;
use crate::ports::store::{Error, PlanPage, Planned};

/// The cursor of (task, tenant).
pub(super) fn cursor(
    conn: &Connection,
    task: &TaskName,
    tenant: Option<&Tenant>,
) -> Job<Option<Vec<u8>>> {
    Ok(conn
        .prepare_cached(
            "SELECT cursor FROM besom_cursor
             WHERE task = (SELECT id FROM besom_task WHERE name = ?1) AND tenant = ?2",
        )?
        .query_row(params![task.as_str(), tenant_cell(tenant)], |r| r.get(0))
        .optional()?)
}

/// Plans a page under the fence.
pub(super) fn plan_page(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    page: &PlanPage,
    partitions: u32,
) -> Job<Planned> {
    check_fence(tx, fence)?;
    let task = tx.task(&page.task)?;
    let slot = open_scan(tx, page.run, task)?;
    let mut planning = Planning::open(tx, page, task, slot)?;
    let mut planned = Planned::default();
    let mut logged = 0_i64;
    for (i, candidate) in page.candidates.iter().enumerate() {
        match planning.admit(tx, candidate, planned.planned < page.quota)? {
            Admission::Waits => planned.deduplicated += 1,
            Admission::Blocked => planned.blocked += 1,
            Admission::OverQuota => {
                planned.left = (page.candidates.len() - i) as u64;
                break;
            }
            Admission::New => {
                let partition = partition_of(
                    candidate.tenant.as_ref().map(Tenant::as_str),
                    &candidate.route,
                    partitions,
                );
                planning.write(tx, candidate, partition)?;
                planned.planned += 1;
                match candidate.due {
                    None => logged += 1,
                    Some(due) => {
                        planned.earliest_due =
                            Some(planned.earliest_due.map_or(due, |earliest| earliest.min(due)));
                    }
                }
            }
        }
    }
    planned.partitions = planning.tails.keys().map(|p| Partition(*p)).collect();
    planning.finish(tx)?;
    tx.conn
        .prepare_cached(
            "UPDATE besom_run SET planned = planned + ?2, deduplicated = deduplicated + ?3,
               blocked = blocked + ?4, open = open + ?5, scanned = scanned + ?6,
               items = items + ?2 WHERE id = ?1",
        )?
        .execute(params![
            page.run.0,
            planned.planned,
            planned.deduplicated,
            planned.blocked,
            logged,
            page.scanned
        ])?;
    if planned.left == 0 {
        move_cursor(tx, task, page)?;
    }
    Ok(planned)
}

/// The slot of a run whose scan is open.
fn open_scan(tx: &Tx<'_>, run: RunId, task: i64) -> Job<i64> {
    let found: Option<(i64, i64, bool)> = tx
        .conn
        .prepare_cached("SELECT slot, task, scan_done FROM besom_run WHERE id = ?1")?
        .query_row([run.0], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .optional()?;
    match found {
        Some((slot, of, false)) if of == task => Ok(slot),
        Some((_, of, _)) if of != task => {
            Err(Error::Invalid(format!("the run {run} belongs to another task")).into())
        }
        Some(_) => Err(Error::Invalid(format!("the scan of run {run} has ended")).into()),
        None => Err(Error::Invalid(format!("there is no run {run}")).into()),
    }
}

fn move_cursor(tx: &Tx<'_>, task: i64, page: &PlanPage) -> Job<()> {
    let tenant = tenant_cell(page.tenant.as_ref());
    match &page.cursor {
        Some(cursor) => tx
            .conn
            .prepare_cached(
                "INSERT INTO besom_cursor (task, tenant, cursor, moved_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (task, tenant)
                 DO UPDATE SET cursor = excluded.cursor, moved_at = excluded.moved_at",
            )?
            .execute(params![task, tenant, cursor, tx.now.0])?,
        None => tx
            .conn
            .prepare_cached("DELETE FROM besom_cursor WHERE task = ?1 AND tenant = ?2")?
            .execute(params![task, tenant])?,
    };
    Ok(())
}

enum Admission {
    New,
    Waits,
    Blocked,
    OverQuota,
}

struct Planning<'c, 'p> {
    page: &'p PlanPage,
    task: i64,
    slot: i64,
    /// The tails of the streams that are appended to, by partition.
    tails: BTreeMap<u32, i64>,
    tally: Tally<'p>,
    /// Whether anything of the task may block a candidate. A page adds neither kind of block, so
    /// this is read once; most tasks have none, and then no candidate is looked up.
    blocks: Blocks,
    /// The statement that every candidate needs, prepared once.
    into_waiting: CachedStatement<'c>,
    into_log: CachedStatement<'c>,
    into_timers: CachedStatement<'c>,
}

impl<'c, 'p> Planning<'c, 'p> {
    fn open(tx: &Tx<'c>, page: &'p PlanPage, task: i64, slot: i64) -> Job<Planning<'c, 'p>> {
        Ok(Planning {
            page,
            task,
            slot,
            tails: BTreeMap::new(),
            tally: Tally::default(),
            blocks: blocks(tx, task)?,
            into_waiting: tx.conn.prepare_cached(
                "INSERT INTO besom_waiting VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
            )?,
            into_log: tx.conn.prepare_cached(
                "INSERT INTO besom_log (task, part, seq, tenant, key, route, version,
                   payload, run, planned_at, at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?,
            into_timers: tx.conn.prepare_cached(
                "INSERT INTO besom_timer (task, due, id, part, tenant, key, route, version,
                   payload, run, planned_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?,
        })
    }

    /// Whether a candidate is a new item. A new one is registered as waiting.
    fn admit(&mut self, tx: &Tx<'_>, candidate: &Candidate, room: bool) -> Job<Admission> {
        let tenant = tenant_cell(candidate.tenant.as_ref());
        let due = DueCell(candidate.due);
        let identity = params![self.task, tenant, candidate.key, due];
        if !room {
            let waits = tx
                .conn
                .prepare_cached(
                    "SELECT 1 FROM besom_waiting
                     WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4",
                )?
                .exists(identity)?;
            if waits {
                return Ok(Admission::Waits);
            }
        }
        if self.blocked(tx, candidate)? {
            // A waiting candidate counts as waiting, even if an older version of it is blocked.
            let waits = tx
                .conn
                .prepare_cached(
                    "SELECT 1 FROM besom_waiting
                     WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4",
                )?
                .exists(identity)?;
            return Ok(if waits { Admission::Waits } else { Admission::Blocked });
        }
        if !room {
            return Ok(Admission::OverQuota);
        }
        let new = self.into_waiting.execute(identity)?;
        Ok(if new == 1 { Admission::New } else { Admission::Waits })
    }

    /// Whether a settled skip, a discard or an open dead letter of the same version blocks it.
    fn blocked(&self, tx: &Tx<'_>, candidate: &Candidate) -> Job<bool> {
        let tenant = tenant_cell(candidate.tenant.as_ref());
        let due = DueCell(candidate.due);
        let versioned = params![self.task, tenant, candidate.key, due, candidate.version];
        let settled = self.blocks.settled
            && tx
                .conn
                .prepare_cached(
                    "SELECT 1 FROM besom_settled
                 WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4 AND version = ?5",
                )?
                .exists(versioned)?;
        if settled {
            return Ok(true);
        }
        Ok(self.blocks.dead
            && tx
                .conn
                .prepare_cached(
                    "SELECT 1 FROM besom_dead
                 WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4 AND version = ?5
                   AND resolved_at IS NULL",
                )?
                .exists(versioned)?)
    }

    fn write(
        &mut self,
        tx: &mut Tx<'_>,
        candidate: &'p Candidate,
        partition: Partition,
    ) -> Job<()> {
        let delta = self.tally.at(&self.page.task, candidate.tenant.as_ref());
        delta.planned += 1;
        let tenant = tenant_cell(candidate.tenant.as_ref());
        let route = (candidate.route != candidate.key).then_some(&candidate.route);
        match candidate.due {
            Some(due) => {
                delta.timers += 1;
                let id = tx.number()?;
                self.into_timers.execute(params![
                    self.task,
                    due.0,
                    id,
                    partition.0,
                    tenant,
                    candidate.key,
                    route,
                    candidate.version,
                    candidate.payload,
                    self.page.run.0,
                    self.slot
                ])?;
            }
            None => {
                delta.log += 1;
                let seq = self.next_seq(tx, partition)?;
                self.into_log.execute(params![
                    self.task,
                    partition.0,
                    seq,
                    tenant,
                    candidate.key,
                    route,
                    candidate.version,
                    candidate.payload,
                    self.page.run.0,
                    self.slot,
                    tx.now.0
                ])?;
            }
        }
        Ok(())
    }

    fn next_seq(&mut self, tx: &Tx<'_>, partition: Partition) -> Job<i64> {
        let tail = match self.tails.entry(partition.0) {
            std::collections::btree_map::Entry::Occupied(tail) => tail.into_mut(),
            std::collections::btree_map::Entry::Vacant(unknown) => {
                let tail: Option<i64> = tx
                    .conn
                    .prepare_cached("SELECT tail FROM besom_stream WHERE task = ?1 AND part = ?2")?
                    .query_row(params![self.task, partition.0], |r| r.get(0))
                    .optional()?;
                unknown.insert(tail.unwrap_or(0))
            }
        };
        *tail += 1;
        Ok(*tail)
    }

    fn finish(self, tx: &mut Tx<'_>) -> Job<()> {
        for (partition, tail) in &self.tails {
            tx.conn
                .prepare_cached(
                    "INSERT INTO besom_stream (task, part, tail, acked) VALUES (?1, ?2, ?3, 0)
                     ON CONFLICT (task, part) DO UPDATE SET tail = excluded.tail",
                )?
                .execute(params![self.task, partition, tail])?;
        }
        tally::write(tx, &self.tally).map(|_| ())
    }
}
