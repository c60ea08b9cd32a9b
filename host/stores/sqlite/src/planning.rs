//! Turns a page of a scan into items: due ones become timers, the others entries of their streams.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use besom_core::books::{Admitted, Blocks, CursorMove, Found, Known, New, admit};
use besom_core::ids::{FencingToken, Partition, RunId, TaskName, Tenant};
use besom_core::item::Candidate;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::error::Job;
use super::leadership::check_fence;
use super::ledger::blocks;
use super::tally;
use super::values::{DueCell, tenant_cell};
use super::writer::Tx;
use besom_ports::store::{Error, PlanPage, Planned};

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

/// Whether each candidate is blocked.
pub(super) fn blocked(
    conn: &Connection,
    task: &TaskName,
    candidates: &[Candidate],
) -> Job<Vec<bool>> {
    let mut statement = conn.prepare_cached(
        "SELECT
           EXISTS (SELECT 1 FROM besom_waiting w WHERE w.task = t.id AND w.tenant = ?2 AND w.key = ?3
             AND w.due = ?4),
           EXISTS (SELECT 1 FROM besom_settled s WHERE s.task = t.id AND s.tenant = ?2 AND s.key = ?3
             AND s.due = ?4 AND s.version = ?5),
           EXISTS (SELECT 1 FROM besom_dead d WHERE d.task = t.id AND d.tenant = ?2 AND d.key = ?3
             AND d.due = ?4 AND d.version = ?5 AND d.resolved_at IS NULL)
         FROM besom_task t WHERE t.name = ?1",
    )?;
    let mut blocked = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        let tenant = tenant_cell(candidate.tenant.as_ref());
        let due = DueCell(candidate.due);
        let identity = params![task.as_str(), tenant, candidate.key, due, candidate.version];
        let found = |r: &rusqlite::Row<'_>| {
            Ok(Found { waits: r.get(0)?, settled: r.get(1)?, dead: r.get(2)? })
        };
        let found = statement.query_row(identity, found).optional()?;
        blocked.push(found.is_some_and(|found| found.known() == Known::Blocked));
    }
    Ok(blocked)
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
    let mut questions = Questions::open(tx, task)?;
    let known = |at: usize, room| questions.known(tx, &page.candidates[at], room);
    let Admitted { items, logged, cursor, tally, planned } = admit(page, partitions, known)?;
    write(tx, page, task, slot, &items)?;
    tally::write(tx, &tally)?;
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
    move_cursor(tx, task, page.tenant.as_ref(), cursor)?;
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

fn move_cursor(tx: &Tx<'_>, task: i64, tenant: Option<&Tenant>, cursor: CursorMove<'_>) -> Job<()> {
    let tenant = tenant_cell(tenant);
    match cursor {
        CursorMove::Stay => 0,
        CursorMove::To(cursor) => tx
            .conn
            .prepare_cached(
                "INSERT INTO besom_cursor (task, tenant, cursor, moved_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (task, tenant)
                 DO UPDATE SET cursor = excluded.cursor, moved_at = excluded.moved_at",
            )?
            .execute(params![task, tenant, cursor, tx.now.0])?,
        CursorMove::Begin => tx
            .conn
            .prepare_cached("DELETE FROM besom_cursor WHERE task = ?1 AND tenant = ?2")?
            .execute(params![task, tenant])?,
    };
    Ok(())
}

/// The questions about the candidates of a page.
struct Questions<'c> {
    task: i64,
    /// Whether anything of the task may block a candidate. A page adds neither kind of block, so
    /// this is read once; most tasks have none, and then no candidate is looked up.
    blocks: Blocks,
    /// The statement that every candidate needs, prepared once.
    into_waiting: CachedStatement<'c>,
}

impl<'c> Questions<'c> {
    fn open(tx: &Tx<'c>, task: i64) -> Job<Questions<'c>> {
        let into_waiting = tx.conn.prepare_cached(
            "INSERT INTO besom_waiting VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )?;
        Ok(Questions { task, blocks: blocks(tx, task)?, into_waiting })
    }

    /// What is known about a candidate. If there is room, a new one is registered as waiting.
    fn known(&mut self, tx: &Tx<'_>, candidate: &Candidate, room: bool) -> Job<Known> {
        let tenant = tenant_cell(candidate.tenant.as_ref());
        let identity = params![self.task, tenant, candidate.key, DueCell(candidate.due)];
        let mut found = self.versions(tx, candidate)?;
        found.waits = if room && found.known() == Known::New {
            self.into_waiting.execute(identity)? == 0
        } else {
            tx.conn
                .prepare_cached(
                    "SELECT 1 FROM besom_waiting
                     WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4",
                )?
                .exists(identity)?
        };
        Ok(found.known())
    }

    /// The rows of the candidate's version; whether it waits is not looked up.
    fn versions(&self, tx: &Tx<'_>, candidate: &Candidate) -> Job<Found> {
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
        let dead = self.blocks.dead
            && tx
                .conn
                .prepare_cached(
                    "SELECT 1 FROM besom_dead
                 WHERE task = ?1 AND tenant = ?2 AND key = ?3 AND due = ?4 AND version = ?5
                   AND resolved_at IS NULL",
                )?
                .exists(versioned)?;
        Ok(Found { waits: false, settled, dead })
    }
}

/// Writes new items, each as a timer or at the tail of its stream.
fn write(tx: &mut Tx<'_>, page: &PlanPage, task: i64, slot: i64, items: &[New<'_>]) -> Job<()> {
    let mut into_log = tx.conn.prepare_cached(
        "INSERT INTO besom_log (task, part, seq, tenant, key, route, version,
           payload, run, planned_at, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    let mut into_timers = tx.conn.prepare_cached(
        "INSERT INTO besom_timer (task, due, id, part, tenant, key, route, version,
           payload, run, planned_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?;
    let mut tails: BTreeMap<Partition, i64> = BTreeMap::new();
    for New { candidate, partition } in items {
        let tenant = tenant_cell(candidate.tenant.as_ref());
        let route = (candidate.route != candidate.key).then_some(&candidate.route);
        match candidate.due {
            Some(due) => {
                into_timers.execute(params![
                    task,
                    due.0,
                    tx.number()?,
                    partition.0,
                    tenant,
                    candidate.key,
                    route,
                    candidate.version,
                    candidate.payload,
                    page.run.0,
                    slot
                ])?;
            }
            None => {
                let tail = match tails.entry(*partition) {
                    Entry::Occupied(tail) => tail.into_mut(),
                    Entry::Vacant(unknown) => unknown.insert(tail_of(tx, task, *partition)?),
                };
                *tail += 1;
                into_log.execute(params![
                    task,
                    partition.0,
                    *tail,
                    tenant,
                    candidate.key,
                    route,
                    candidate.version,
                    candidate.payload,
                    page.run.0,
                    slot,
                    tx.now.0
                ])?;
            }
        }
    }
    for (partition, tail) in &tails {
        tx.conn
            .prepare_cached(
                "INSERT INTO besom_stream (task, part, tail, acked) VALUES (?1, ?2, ?3, 0)
                 ON CONFLICT (task, part) DO UPDATE SET tail = excluded.tail",
            )?
            .execute(params![task, partition.0, tail])?;
    }
    Ok(())
}

/// The last number of a stream.
fn tail_of(tx: &Tx<'_>, task: i64, partition: Partition) -> Job<i64> {
    let tail: Option<i64> = tx
        .conn
        .prepare_cached("SELECT tail FROM besom_stream WHERE task = ?1 AND part = ?2")?
        .query_row(params![task, partition.0], |r| r.get(0))
        .optional()?;
    Ok(tail.unwrap_or(0))
}
