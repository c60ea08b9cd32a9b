//! Slots, runs and task states: the decisions about schedules.

use std::collections::HashMap;

use besom_core::ids::{FencingToken, RunId, TaskName, Term};
use besom_core::mode::Mode;
use besom_core::plan::Placed;
use besom_core::time::Time;
use sha2::{Digest, Sha256};
use tokio_postgres::Row;

use super::clock::Clock;
use super::error::{Job, invalid};
use super::session::{Param, Session, Tx, cell, params};
use super::tally::{end_runs, fold};
use super::tasks::Tasks;
use super::text::{tenant_of, tenant_text};
use besom_ports::store::{
    EndOfScan, NewRun, Pause, Result, Run, Seen, SlotDecision, SlotRecord, TaskState, late_copy,
    started,
};
use besom_record::text::{json, parse};

/// The tasks that a decision names.
pub(super) fn named(decision: &SlotDecision) -> impl Iterator<Item = &TaskName> {
    let runs = decision.runs.iter().map(|run| &run.task);
    let slots = decision.slots.iter().map(|slot| &slot.task);
    runs.chain(slots).chain(decision.states.iter().map(|state| &state.task))
}

/// Writes decided slots, runs and states, under the fence.
pub(super) async fn decide_slots(
    session: Session,
    clock: &Clock,
    tasks: &Tasks,
    fence: &FencingToken,
    decision: &SlotDecision,
) -> Result<Vec<RunId>> {
    let numbers = tasks.numbers(&session, named(decision)).await?;
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = write_decision(&tx, &numbers, fence.term, decision).await;
    tx.finish(done).await
}

/// Like `decide_slots`, for a caller that has checked the fence.
pub(super) async fn write_decision(
    tx: &Tx,
    tasks: &HashMap<TaskName, i32>,
    term: Term,
    decision: &SlotDecision,
) -> Job<Vec<RunId>> {
    for seen in &decision.seen {
        if !stands_at(tx, seen).await? {
            return started_before(tx, tasks, term, decision, &seen.task).await;
        }
    }
    let mut ids = Vec::with_capacity(decision.runs.len());
    for run in &decision.runs {
        ids.push(start(tx, tasks, term, run).await?);
    }
    for slot in decision.rows(&ids) {
        write_slot(tx, tasks, slot).await?;
    }
    for state in &decision.states {
        write_state(tx, tasks, state).await?;
    }
    Ok(ids)
}

/// Whether the store is in the state that a decision was based on; locks that state until the end
/// of the transaction.
async fn stands_at(tx: &Tx, seen: &Seen) -> Job<bool> {
    let sql = "SELECT last_slot, queued_slots FROM @.task WHERE name = $1 FOR NO KEY UPDATE";
    let row = tx.row(sql, params![seen.task.as_str().to_owned()]).await?;
    let Some(row) = row else { return Ok(seen.is_at(None, &[])) };
    let queued: Vec<Time> = parse(&row.try_get::<_, String>(1)?)?;
    Ok(seen.is_at(row.try_get::<_, Option<i64>>(0)?.map(Time), &queued))
}

/// The runs of a late copy of a decision, if this term has started them.
async fn started_before(
    tx: &Tx,
    tasks: &HashMap<TaskName, i32>,
    term: Term,
    decision: &SlotDecision,
    task: &TaskName,
) -> Job<Vec<RunId>> {
    let mut ids = Vec::new();
    for run in &decision.runs {
        let started = run_of_slot(tx, number(tasks, &run.task)?, run).await?;
        ids.extend(started.filter(|(_, of)| *of == term).map(|(id, _)| id));
    }
    Ok(late_copy(task, decision, ids)?)
}

/// The existing run of a slot with the same trigger, and its term.
async fn run_of_slot(tx: &Tx, task: i32, run: &NewRun) -> Job<Option<(RunId, Term)>> {
    let sql = "SELECT id, term FROM @.run WHERE task = $1 AND slot = $2 AND trigger = $3";
    let known = |row: &Row| {
        let (id, term): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok((RunId(id as u64), Term(term as u64)))
    };
    tx.maybe(sql, params![task, run.slot.0, json(&run.trigger)?], known).await
}

fn number(tasks: &HashMap<TaskName, i32>, task: &TaskName) -> Job<i32> {
    tasks.get(task).copied().ok_or_else(|| invalid(format!("the task {task} has no number")))
}

async fn start(tx: &Tx, tasks: &HashMap<TaskName, i32>, term: Term, run: &NewRun) -> Job<RunId> {
    let task = number(tasks, &run.task)?;
    let trigger = json(&run.trigger)?;
    let hash = Sha256::digest(run.definition.as_bytes()).to_vec();
    tx.execute(
        "INSERT INTO @.definition (definition, hash) VALUES ($1, $2) ON CONFLICT (hash) DO NOTHING",
        params![run.definition.clone(), hash.clone()],
    )
    .await?;
    let sql = "INSERT INTO @.run
          (task, slot, trigger, term, digest, definition, started_at, mode, held)
        SELECT $1, $2, $3, $4, $5, d.id, $7, $8, $9 FROM @.definition d WHERE d.hash = $6
        ON CONFLICT DO NOTHING RETURNING id";
    let row = params![
        task,
        run.slot.0,
        trigger,
        term.0 as i64,
        run.digest.clone(),
        hash,
        tx.now.0,
        run.mode.as_str().to_owned(),
        run.mode == Mode::Approve
    ];
    if let Some(id) = tx.maybe::<i64>(sql, row, cell).await? {
        return Ok(RunId(id as u64));
    }
    // The unique index of `Trigger::is_of_slot` has kept it out.
    let found = run_of_slot(tx, task, run).await?;
    let known = found.ok_or_else(|| invalid("a run without its definition"))?;
    Ok(started(run, term, known)?)
}

/// A row of the slot history has these columns, for [`read_slot`].
const SLOT: &str = "id, from_slot, to_slot, count, outcome, reason, run, term";

/// Adds a row to the slot history, or extends the last one.
async fn write_slot(tx: &Tx, tasks: &HashMap<TaskName, i32>, slot: SlotRecord) -> Job<()> {
    let task = number(tasks, &slot.task)?;
    let known = format!(
        "SELECT {SLOT} FROM @.slot WHERE task = $1 AND to_slot >= $2 AND from_slot <= $3
         UNION (SELECT {SLOT} FROM @.slot WHERE task = $1 ORDER BY to_slot DESC, id DESC LIMIT 1)
         ORDER BY to_slot DESC, id DESC"
    );
    let rows = tx.query(&known, params![task, slot.to.0, slot.from.0]).await?;
    let read = |row: &Row| read_slot(&slot.task, row);
    let history = rows.iter().map(read).collect::<Job<Vec<_>>>()?;
    match slot.place(&history) {
        Placed::Known => {}
        Placed::Last(last) => {
            let id: i64 = rows.first().ok_or_else(|| invalid("no last slot"))?.try_get(0)?;
            tx.execute(
                "UPDATE @.slot SET to_slot = $2, count = $3 WHERE id = $1",
                params![id, last.to.0, last.count as i64],
            )
            .await?;
        }
        Placed::New(SlotRecord { from, to, count, outcome, reason, run, term, .. }) => {
            let (outcome, run) = (json(&outcome)?, run.map(|run| run.0 as i64));
            tx.execute(
                "INSERT INTO @.slot (task, from_slot, to_slot, count, outcome, reason, run, term)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
                params![task, from.0, to.0, count as i64, outcome, reason, run, term.0 as i64],
            )
            .await?;
        }
    }
    Ok(())
}

fn read_slot(task: &TaskName, row: &Row) -> Job<SlotRecord> {
    Ok(SlotRecord {
        task: task.clone(),
        from: Time(row.try_get(1)?),
        to: Time(row.try_get(2)?),
        count: row.try_get::<_, i64>(3)? as u64,
        outcome: parse(&row.try_get::<_, String>(4)?)?,
        reason: row.try_get(5)?,
        run: row.try_get::<_, Option<i64>>(6)?.map(|run| RunId(run as u64)),
        term: Term(row.try_get::<_, i64>(7)? as u64),
    })
}

/// Writes every field but the pause, which only commands change.
async fn write_state(tx: &Tx, tasks: &HashMap<TaskName, i32>, state: &TaskState) -> Job<()> {
    tx.execute(
        "UPDATE @.task SET schedule = $2, last_slot = $3, tenant_cursor = $4, queued_slots = $5
         WHERE id = $1",
        params![
            number(tasks, &state.task)?,
            state.schedule.clone(),
            state.last_slot.map(|t| t.0),
            state.tenant_cursor.as_ref().map(|t| tenant_text(Some(t))),
            json(&state.queued_slots)?
        ],
    )
    .await?;
    Ok(())
}

/// Ends the scan of a run, and the run if it has nothing in the log.
pub(super) async fn end_scan(
    session: Session,
    clock: &Clock,
    fence: &FencingToken,
    end: &EndOfScan,
) -> Result<bool> {
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = ended(&tx, end).await;
    let ((), session) = tx.finish_with(done).await?;
    // A commit that took the last item in the meantime did not see the scan's end: see RUN_FACTS.
    let id = end.run.0 as i64;
    end_runs(&session, vec![id], clock.given().map(Time)).await?;
    let sql = "SELECT ended_at IS NOT NULL FROM @.run WHERE id = $1";
    let is_ended = session.maybe(sql, params![id], cell).await?;
    Ok(is_ended.ok_or_else(|| invalid(format!("there is no run {}", end.run)))?)
}

async fn ended(tx: &Tx, end: &EndOfScan) -> Job<()> {
    let run = end.run.0 as i64;
    let of_task = "SELECT r.planned, r.task FROM @.run r JOIN @.task t ON t.id = r.task
         WHERE r.id = $1 AND t.name = $2";
    let found = tx.row(of_task, params![run, end.task.as_str().to_owned()]).await?;
    let planned = found.as_ref().map(|row| row.try_get::<_, i64>(0)).transpose()?;
    end.check(planned.map(|planned| planned as u64)).map_err(invalid)?;
    if close_scan(tx, end.run, end.error.as_deref()).await? {
        let cursor = end.cursor.as_ref().map(|t| tenant_text(Some(t)).into_owned());
        let task: Option<i32> = found.map(|row| row.try_get(1)).transpose()?;
        tx.execute("UPDATE @.task SET tenant_cursor = $2 WHERE id = $1", params![task, cursor])
            .await?;
    }
    end_runs(&tx.session, vec![run], Some(tx.now)).await?;
    fold(&tx.session).await
}

/// Marks a scan as ended; returns whether it was open.
pub(super) async fn close_scan(tx: &Tx, run: RunId, error: Option<&str>) -> Job<bool> {
    let closed = tx
        .execute(
            "UPDATE @.run SET scan_done = true, error = $2 WHERE id = $1 AND NOT scan_done",
            params![run.0 as i64, error.map(str::to_owned)],
        )
        .await?;
    Ok(closed == 1)
}

/// The states of all known tasks.
pub(super) async fn task_states(session: &Session) -> Job<Vec<TaskState>> {
    let sql = "SELECT name, schedule, last_slot, paused_by, paused_reason, paused_since,
          tenant_cursor, queued_slots
        FROM @.task WHERE schedule IS NOT NULL OR paused_since IS NOT NULL ORDER BY name";
    let state = |r: &Row| {
        Ok(TaskState {
            task: r.try_get::<_, String>(0)?.into(),
            schedule: r.try_get::<_, Option<String>>(1)?.unwrap_or_default(),
            last_slot: r.try_get::<_, Option<i64>>(2)?.map(Time),
            paused: match r.try_get::<_, Option<i64>>(5)?.map(Time) {
                None => None,
                Some(since) => Some(Pause { by: r.try_get(3)?, reason: r.try_get(4)?, since }),
            },
            tenant_cursor: r.try_get::<_, Option<String>>(6)?.and_then(tenant_of),
            queued_slots: parse(&r.try_get::<_, String>(7)?)?,
        })
    };
    session.all(sql, params![], state).await
}

const RUN: &str = "SELECT r.id, t.name, r.slot, r.trigger, r.term, r.digest,
    coalesce(d.definition, ''), r.started_at, r.ended_at, r.scan_done, r.error, r.planned,
    r.deduplicated, r.blocked,
    r.logged - coalesce((SELECT sum(s.unlogged)::int8 FROM @.run_share s WHERE s.run = r.id), 0),
    r.scanned, r.mode, r.held
  FROM @.run r JOIN @.task t ON t.id = r.task LEFT JOIN @.definition d ON d.id = r.definition";

/// Runs that have not ended, oldest first.
pub(super) async fn active_runs(session: &Session) -> Job<Vec<Run>> {
    collect(session, format!("{RUN} WHERE r.ended_at IS NULL ORDER BY r.id"), params![]).await
}

/// Runs, newest first.
pub(super) async fn runs(session: &Session, task: Option<&TaskName>, limit: u32) -> Job<Vec<Run>> {
    let limit = i64::from(limit);
    match task {
        None => {
            collect(session, format!("{RUN} ORDER BY r.id DESC LIMIT $1"), params![limit]).await
        }
        Some(task) => {
            let sql = format!(
                "{RUN} WHERE r.task = (SELECT id FROM @.task WHERE name = $2)
                 ORDER BY r.id DESC LIMIT $1"
            );
            collect(session, sql, params![limit, task.as_str().to_owned()]).await
        }
    }
}

/// The newest run of a task whose scan ended without an error.
pub(super) async fn last_scanned(session: &Session, task: &TaskName) -> Job<Option<Run>> {
    let sql = format!(
        "{RUN} WHERE r.task = (SELECT id FROM @.task WHERE name = $1) AND r.scan_done
           AND r.error IS NULL
         ORDER BY r.id DESC LIMIT 1"
    );
    Ok(collect(session, sql, params![task.as_str().to_owned()]).await?.pop())
}

/// One run.
pub(super) async fn run(session: &Session, id: RunId) -> Job<Option<Run>> {
    let id = i64::try_from(id.0).unwrap_or(i64::MAX);
    Ok(collect(session, format!("{RUN} WHERE r.id = $1"), params![id]).await?.pop())
}

async fn collect(session: &Session, sql: String, params: Vec<Param<'_>>) -> Job<Vec<Run>> {
    session.all(&sql, params, read_run).await
}

fn read_run(r: &Row) -> Job<Run> {
    let count = |at: usize| -> Job<u64> { Ok(r.try_get::<_, i64>(at)? as u64) };
    Ok(Run {
        id: RunId(count(0)?),
        task: r.try_get::<_, String>(1)?.into(),
        slot: Time(r.try_get(2)?),
        trigger: parse(&r.try_get::<_, String>(3)?)?,
        term: Term(count(4)?),
        digest: r.try_get(5)?,
        definition: r.try_get(6)?,
        started_at: Time(r.try_get(7)?),
        ended_at: r.try_get::<_, Option<i64>>(8)?.map(Time),
        scan_done: r.try_get(9)?,
        error: r.try_get(10)?,
        planned: count(11)?,
        deduplicated: count(12)?,
        blocked: count(13)?,
        open: count(14)?,
        scanned: count(15)?,
        mode: Mode::parse(&r.try_get::<_, String>(16)?).unwrap_or(Mode::Preview),
        held: r.try_get(17)?,
    })
}

/// The slot history of a task, newest first.
pub(super) async fn slots(
    session: &Session,
    task: &TaskName,
    from: Time,
    to: Time,
    limit: u32,
) -> Job<Vec<SlotRecord>> {
    let sql = format!(
        "SELECT {SLOT} FROM @.slot
         WHERE task = (SELECT id FROM @.task WHERE name = $1) AND to_slot >= $2
           AND from_slot <= $3
         ORDER BY to_slot DESC, id DESC LIMIT $4"
    );
    let named = params![task.as_str().to_owned(), from.0, to.0, i64::from(limit)];
    session.all(&sql, named, |row| read_slot(task, row)).await
}
