//! Slots, runs and task states: the decisions about schedules.

use besom_core::ids::{RunId, TaskName, Term};
use besom_core::mode::Mode;
use besom_core::plan::Placed;
use besom_core::time::Time;
use rusqlite::{Connection, Row, params};
use sha2::{Digest, Sha256};

use super::error::Job;
use super::leadership::check_fence;
use super::statements::Statements;
use super::tally::end_if_done;
use super::writer::Tx;
use besom_core::ids::{FencingToken, Tenant};
use besom_ports::store::{
    EndOfScan, Error, NewRun, Pause, Run, Seen, SlotDecision, SlotRecord, TaskState, late_copy,
    started,
};
use besom_record::text::{json, parse};

/// Writes decided slots, runs and states, under the fence.
pub(super) fn decide_slots(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    decision: &SlotDecision,
) -> Job<Vec<RunId>> {
    check_fence(tx, fence)?;
    write_decision(tx, fence.term, decision)
}

/// Like `decide_slots`, for a caller that has checked the fence.
pub(super) fn write_decision(
    tx: &mut Tx<'_>,
    term: Term,
    decision: &SlotDecision,
) -> Job<Vec<RunId>> {
    for seen in &decision.seen {
        if !stands_at(tx, seen)? {
            return started_before(tx, term, decision, &seen.task);
        }
    }
    let mut ids = Vec::with_capacity(decision.runs.len());
    for run in &decision.runs {
        ids.push(start(tx, term, run)?);
    }
    for slot in decision.rows(&ids) {
        write_slot(tx, slot)?;
    }
    for state in &decision.states {
        write_state(tx, state)?;
    }
    Ok(ids)
}

/// Whether the store is in the state that a decision was based on.
fn stands_at(tx: &mut Tx<'_>, seen: &Seen) -> Job<bool> {
    let row: Option<(Option<i64>, String)> = tx.conn.first(
        "SELECT last_slot, queued_slots FROM besom_task WHERE name = ?1",
        [seen.task.as_str()],
        |r| r.try_into(),
    )?;
    let Some((last_slot, queued)) = row else { return Ok(seen.is_at(None, &[])) };
    Ok(seen.is_at(last_slot.map(Time), &parse::<Vec<Time>>(&queued)?))
}

/// The runs of a late copy of a decision, if this term has started them.
fn started_before(
    tx: &mut Tx<'_>,
    term: Term,
    decision: &SlotDecision,
    task: &TaskName,
) -> Job<Vec<RunId>> {
    let mut ids = Vec::new();
    for run in &decision.runs {
        let started = run_of_slot(tx, run)?.filter(|(_, of)| *of == term);
        ids.extend(started.map(|(id, _)| id));
    }
    Ok(late_copy(task, decision, ids)?)
}

/// The existing run of a slot with the same trigger, and its term.
fn run_of_slot(tx: &mut Tx<'_>, run: &NewRun) -> Job<Option<(RunId, Term)>> {
    let task = tx.task(&run.task)?;
    let trigger = json(&run.trigger)?;
    tx.conn.first(
        "SELECT id, term FROM besom_run WHERE task = ?1 AND slot = ?2 AND trigger = ?3",
        params![task, run.slot.0, trigger],
        |r| Ok((RunId(r.get(0)?), Term(r.get(1)?))),
    )
}

fn start(tx: &mut Tx<'_>, term: Term, run: &NewRun) -> Job<RunId> {
    let task = tx.task(&run.task)?;
    let trigger = json(&run.trigger)?;
    if run.trigger.is_of_slot()
        && let Some(known) = run_of_slot(tx, run)?
    {
        return Ok(started(run, term, known)?);
    }
    let hash = Sha256::digest(run.definition.as_bytes());
    tx.conn.run(
        "INSERT INTO besom_definition (definition, hash) VALUES (?1, ?2)
         ON CONFLICT DO NOTHING",
        params![run.definition, hash.as_slice()],
    )?;
    tx.conn.run(
        "INSERT INTO besom_run
           (task, slot, trigger, term, digest, definition, started_at, mode, held)
         VALUES (?1, ?2, ?3, ?4, ?5, (SELECT id FROM besom_definition WHERE hash = ?6), ?7,
           ?8, ?9)",
        params![
            task,
            run.slot.0,
            trigger,
            term.0,
            run.digest,
            hash.as_slice(),
            tx.now.0,
            run.mode.as_str(),
            run.mode == Mode::Approve
        ],
    )?;
    Ok(RunId(u64::try_from(tx.conn.last_insert_rowid()).unwrap_or(0)))
}

/// A row of the slot history has these columns, for [`read_slot`].
const SLOT: &str = "id, from_slot, to_slot, count, outcome, reason, run, term";

/// Adds a row to the slot history, or extends the last one.
fn write_slot(tx: &mut Tx<'_>, slot: SlotRecord) -> Job<()> {
    let task = tx.task(&slot.task)?;
    let known = format!(
        "SELECT {SLOT} FROM besom_slot WHERE task = ?1 AND to_slot >= ?2 AND from_slot <= ?3
         UNION SELECT * FROM (SELECT {SLOT} FROM besom_slot WHERE task = ?1
           ORDER BY to_slot DESC, id DESC LIMIT 1)
         ORDER BY to_slot DESC, id DESC"
    );
    let known: Vec<(i64, SlotRecord)> =
        tx.conn.all(&known, params![task, slot.to.0, slot.from.0], |r| {
            read_slot(&slot.task, r).and_then(|read| Ok((r.get(0)?, read)))
        })?;
    let (ids, history): (Vec<i64>, Vec<SlotRecord>) = known.into_iter().unzip();
    match slot.place(&history) {
        Placed::Known => {}
        Placed::Last(last) => {
            tx.conn.run(
                "UPDATE besom_slot SET to_slot = ?2, count = ?3 WHERE id = ?1",
                params![ids.first(), last.to.0, last.count],
            )?;
        }
        Placed::New(SlotRecord { from, to, count, outcome, reason, run, term, .. }) => {
            let (outcome, run) = (json(&outcome)?, run.map(|run| run.0));
            tx.conn.run(
                "INSERT INTO besom_slot
                   (task, from_slot, to_slot, count, outcome, reason, run, term)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                params![task, from.0, to.0, count, outcome, reason, run, term.0],
            )?;
        }
    }
    Ok(())
}

fn read_slot(task: &TaskName, r: &Row<'_>) -> Job<SlotRecord> {
    Ok(SlotRecord {
        task: task.clone(),
        from: Time(r.get(1)?),
        to: Time(r.get(2)?),
        count: r.get(3)?,
        outcome: parse(&r.get::<_, String>(4)?)?,
        reason: r.get(5)?,
        run: r.get::<_, Option<u64>>(6)?.map(RunId),
        term: Term(r.get(7)?),
    })
}

/// Writes every field but the pause, which only commands change.
fn write_state(tx: &mut Tx<'_>, state: &TaskState) -> Job<()> {
    let task = tx.task(&state.task)?;
    tx.conn.run(
        "UPDATE besom_task SET schedule = ?2, last_slot = ?3, tenant_cursor = ?4,
               queued_slots = ?5 WHERE id = ?1",
        params![
            task,
            state.schedule,
            state.last_slot.map(|t| t.0),
            state.tenant_cursor.as_ref().map(Tenant::as_str),
            json(&state.queued_slots)?
        ],
    )?;
    Ok(())
}

/// Ends the scan of a run, and the run if it has nothing in the log.
pub(super) fn end_scan(tx: &mut Tx<'_>, fence: &FencingToken, end: &EndOfScan) -> Job<bool> {
    check_fence(tx, fence)?;
    let (task, run) = (tx.task(&end.task)?, end.run);
    let planned: Option<u64> = tx.conn.first(
        "SELECT planned FROM besom_run WHERE id = ?1 AND task = ?2",
        params![run.0, task],
        |r| r.get(0),
    )?;
    end.check(planned).map_err(Error::Invalid)?;
    if close_scan(tx, run, end.error.as_deref())? {
        tx.conn.run(
            "UPDATE besom_task SET tenant_cursor = ?2 WHERE id = ?1",
            params![task, end.cursor.as_ref().map(Tenant::as_str)],
        )?;
    }
    end_if_done(tx, run)?;
    let ended = "SELECT ended_at IS NOT NULL FROM besom_run WHERE id = ?1";
    Ok(tx.conn.one(ended, [run.0], |r| r.get(0))?)
}

/// Marks a scan as ended; returns whether it was open.
pub(super) fn close_scan(tx: &Tx<'_>, run: RunId, error: Option<&str>) -> Job<bool> {
    let closed = tx.conn.run(
        "UPDATE besom_run SET scan_done = 1, error = ?2 WHERE id = ?1 AND scan_done = 0",
        params![run.0, error],
    )?;
    Ok(closed == 1)
}

/// The states of all known tasks.
pub(super) fn task_states(conn: &Connection) -> Job<Vec<TaskState>> {
    conn.all(
        "SELECT name, schedule, last_slot, paused_by, paused_reason, paused_since, tenant_cursor,
                queued_slots
         FROM besom_task WHERE schedule IS NOT NULL OR paused_since IS NOT NULL ORDER BY name",
        [],
        read_state,
    )
}

fn read_state(r: &Row<'_>) -> Job<TaskState> {
    Ok(TaskState {
        task: r.get::<_, String>(0)?.into(),
        schedule: r.get::<_, Option<String>>(1)?.unwrap_or_default(),
        last_slot: r.get::<_, Option<i64>>(2)?.map(Time),
        paused: match r.get::<_, Option<i64>>(5)? {
            None => None,
            Some(since) => Some(Pause { by: r.get(3)?, reason: r.get(4)?, since: Time(since) }),
        },
        tenant_cursor: r.get::<_, Option<String>>(6)?.map(Into::into),
        queued_slots: parse(&r.get::<_, String>(7)?)?,
    })
}

const RUN: &str = "SELECT r.id, t.name, r.slot, r.trigger, r.term, r.digest, d.definition,
    r.started_at, r.ended_at, r.scan_done, r.error, r.planned, r.deduplicated, r.blocked, r.open,
    r.scanned, r.mode, r.held
  FROM besom_run r JOIN besom_task t ON t.id = r.task
  LEFT JOIN besom_definition d ON d.id = r.definition";

/// Runs that have not ended, oldest first.
pub(super) fn active_runs(conn: &Connection) -> Job<Vec<Run>> {
    collect(conn, &format!("{RUN} WHERE r.ended_at IS NULL ORDER BY r.id"), &[])
}

/// Runs, newest first.
pub(super) fn runs(conn: &Connection, task: Option<&TaskName>, limit: u32) -> Job<Vec<Run>> {
    match task {
        None => collect(conn, &format!("{RUN} ORDER BY r.id DESC LIMIT ?1"), &[&limit]),
        Some(task) => collect(
            conn,
            &format!(
                "{RUN} WHERE r.task = (SELECT id FROM besom_task WHERE name = ?2)
                 ORDER BY r.id DESC LIMIT ?1"
            ),
            &[&limit, &task.as_str()],
        ),
    }
}

/// The newest run of a task whose scan ended without an error.
pub(super) fn last_scanned(conn: &Connection, task: &TaskName) -> Job<Option<Run>> {
    let sql = format!(
        "{RUN} WHERE r.task = (SELECT id FROM besom_task WHERE name = ?1) AND r.scan_done
           AND r.error IS NULL
         ORDER BY r.id DESC LIMIT 1"
    );
    Ok(collect(conn, &sql, &[&task.as_str()])?.pop())
}

/// One run.
pub(super) fn run(conn: &Connection, id: RunId) -> Job<Option<Run>> {
    Ok(collect(conn, &format!("{RUN} WHERE r.id = ?1"), &[&id.0])?.pop())
}

fn collect(conn: &Connection, sql: &str, params: &[&dyn rusqlite::ToSql]) -> Job<Vec<Run>> {
    conn.all(sql, params, read_run)
}

fn read_run(r: &Row<'_>) -> Job<Run> {
    Ok(Run {
        id: RunId(r.get(0)?),
        task: r.get::<_, String>(1)?.into(),
        slot: Time(r.get(2)?),
        trigger: parse(&r.get::<_, String>(3)?)?,
        term: Term(r.get(4)?),
        digest: r.get(5)?,
        definition: r.get::<_, Option<String>>(6)?.unwrap_or_default(),
        started_at: Time(r.get(7)?),
        ended_at: r.get::<_, Option<i64>>(8)?.map(Time),
        scan_done: r.get(9)?,
        error: r.get(10)?,
        planned: r.get(11)?,
        deduplicated: r.get(12)?,
        blocked: r.get(13)?,
        open: r.get(14)?,
        scanned: r.get(15)?,
        mode: Mode::parse(&r.get::<_, String>(16)?).unwrap_or(Mode::Preview),
        held: r.get(17)?,
    })
}

/// The slot history of a task, newest first.
pub(super) fn slots(
    conn: &Connection,
    task: &TaskName,
    from: Time,
    to: Time,
    limit: u32,
) -> Job<Vec<SlotRecord>> {
    let sql = format!(
        "SELECT {SLOT} FROM besom_slot
         WHERE task = (SELECT id FROM besom_task WHERE name = ?1) AND to_slot >= ?2
           AND from_slot <= ?3
         ORDER BY to_slot DESC, id DESC LIMIT ?4"
    );
    conn.all(&sql, params![task.as_str(), from.0, to.0, limit], |r| read_slot(task, r))
}
