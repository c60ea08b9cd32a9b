//! Operators' commands to the leader, and their application under the fence.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use besom_core::books::{self, LetterContext, LetterPage, Progress, Tally};
use besom_core::command::DeadCriteria;
use besom_core::ids::{FencingToken, Incarnation, RunId, TaskName};
use besom_core::item::Source;
use besom_core::plan::last_slot_on_resume;
use besom_core::review::State;
use besom_core::time::Time;
use besom_snapshot::DeadGroup;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::brakes;
use super::error::{Failure, Job};
use super::items;
use super::leadership::check_fence;
use super::ledger::Ledger;
use super::outbox;
use super::purge;
use super::reviews;
use super::runs::{close_scan, write_decision};
use super::statements::Statements;
use super::streams;
use super::tally::{self, end_if_done};
use super::values::{DueCell, tenant_cell};
use super::waiting::{self, task_id};
use super::writer::Tx;
use besom_ports::store::{
    Applied, Command, CommandEffect, CommandRow, DeadLetter, DeadSelector, Error, Letters, Stream,
    Waiting, broken, command_of, decided_or,
};
use besom_record::text::{json, parse};

/// Number of timers read at a time.
const TIMERS_PAGE: u32 = 10_000;

/// Records a command.
pub(super) fn submit(tx: &mut Tx<'_>, command: &Command, by: &str, reason: &str) -> Job<u64> {
    tx.conn.run(
        "INSERT INTO besom_command (command, by, reason, at) VALUES (?1, ?2, ?3, ?4)",
        params![json(command)?, by, reason, tx.now.0],
    )?;
    Ok(u64::try_from(tx.conn.last_insert_rowid()).unwrap_or(0))
}

const COMMAND: &str =
    "SELECT id, command, by, reason, at, applied_at, result, refused FROM besom_command";

/// Commands that no leader has applied yet, oldest first.
pub(super) fn pending(conn: &Connection, limit: u32) -> Job<Vec<CommandRow>> {
    conn.all(&format!("{COMMAND} WHERE applied_at IS NULL ORDER BY id LIMIT ?1"), [limit], read)
}

/// Commands, newest first.
pub(super) fn newest(conn: &Connection, before: Option<u64>, limit: u32) -> Job<Vec<CommandRow>> {
    let before = before.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX));
    let sql = format!("{COMMAND} WHERE id < ?1 ORDER BY id DESC LIMIT ?2");
    conn.all(&sql, params![before, limit], read)
}

/// One command.
pub(super) fn command(conn: &Connection, id: u64) -> Job<Option<CommandRow>> {
    conn.first(&format!("{COMMAND} WHERE id = ?1"), [id], read)
}

fn read(r: &Row<'_>) -> Job<CommandRow> {
    Ok(CommandRow {
        id: r.get(0)?,
        command: command_of(&r.get::<_, String>(1)?),
        by: r.get(2)?,
        reason: r.get(3)?,
        at: Time(r.get(4)?),
        applied_at: r.get::<_, Option<i64>>(5)?.map(Time),
        result: r.get(6)?,
        refused: r.get(7)?,
    })
}

/// Applies a command's effect, once.
pub(super) fn apply(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    asked: &CommandRow,
    effect: &CommandEffect,
    result: &str,
    letters: NonZeroU32,
) -> Job<Applied> {
    check_fence(tx, fence)?;
    let id = asked.id;
    let Some(row) = command(tx.conn, id)? else {
        return Err(Error::Invalid(format!("there is no command {id}")).into());
    };
    asked.check_is(&row)?;
    let done: Option<String> =
        tx.conn.one("SELECT done FROM besom_command WHERE id = ?1", [id], |r| r.get(0))?;
    let done: Applied = done.map_or_else(|| Ok(Applied::default()), |done| parse(&done))?;
    if row.applied_at.is_some() {
        return Ok(done);
    }
    let mut applied = Applied { dead: done.dead, purged: done.purged, ..Applied::default() };
    let begun = done.progress;
    match effect {
        CommandEffect::Slots(decision) => applied.runs = write_decision(tx, fence.term, decision)?,
        CommandEffect::Pause(task) => pause(tx, task, &row)?,
        CommandEffect::Resume(task, brakes) => {
            resume(tx, task)?;
            brakes::resume(tx, task, brakes)?;
        }
        CommandEffect::DiscardPlanned(task, error) => {
            if begun.is_none() {
                if let Some(number) = task_id(tx.conn, task)? {
                    reviews::reject_all(tx, number, &row)?;
                }
                end_scans(tx, task, error)?;
            }
            match discard_planned(tx, task, None, &row, letters)? {
                Ok(discarded) => applied.planned_discarded(discarded, letters),
                Err(why) => applied.refused = Some(why),
            }
        }
        CommandEffect::Approve(run, brakes) => {
            applied.refused = reviews::decide(tx, *run, State::Approved, &row)?.err();
            if applied.refused.is_none() {
                brakes::approve(tx, *run, brakes)?;
            }
        }
        CommandEffect::Reject { task, run, state, error } => {
            if begun.is_none() {
                applied.refused = reviews::decide(tx, *run, *state, &row)?.err();
            }
            if applied.refused.is_none() {
                close_scan(tx, *run, error.as_deref())?;
                match discard_planned(tx, task, Some(*run), &row, letters)? {
                    Ok(discarded) => applied.planned_discarded(discarded, letters),
                    Err(why) => applied.refused = Some(why),
                }
                end_if_done(tx, *run)?;
            }
        }
        CommandEffect::Cancel(run, error) => {
            close_scan(tx, *run, Some(error))?;
            end_if_done(tx, *run)?;
        }
        CommandEffect::RetryDead(selector) => match page(tx, selector, begun, letters)? {
            Ok(page) => retry_dead(tx, page, &mut applied)?,
            Err(why) => applied.refused = Some(why),
        },
        CommandEffect::DiscardDead(selector) => match page(tx, selector, begun, letters)? {
            Ok(page) => discard_dead(tx, page, &row, &mut applied)?,
            Err(why) => applied.refused = Some(why),
        },
        CommandEffect::RetryMessages(selector) => applied.messages = outbox::retry(tx, selector)?,
        CommandEffect::DiscardMessages(selector) => {
            applied.messages = outbox::discard(tx, selector)?;
        }
        CommandEffect::RepairStreams(task) => {
            applied.repaired = streams::repair(tx, task)?;
            applied.refused = applied.repaired.refusal(task);
        }
        CommandEffect::Purge(which) => purge::purge(tx, which, &mut applied, letters)?,
        CommandEffect::NotWaiting(run, why) => {
            let found = reviews::standing(tx, *run)?;
            applied.refused = Some(decided_or(*run, found, why));
        }
        CommandEffect::Note | CommandEffect::Refuse(_) => {}
    }
    let (refused, result) = effect.outcome(result, &applied);
    let at = applied.progress.is_none().then_some(tx.now.0);
    tx.conn.run(
        "UPDATE besom_command SET applied_at = ?2, result = ?3, refused = ?4, done = ?5
         WHERE id = ?1",
        params![id, at, result, refused, json(&applied)?],
    )?;
    Ok(applied)
}

fn pause(tx: &mut Tx<'_>, task: &TaskName, row: &CommandRow) -> Job<()> {
    let task = tx.task(task)?;
    tx.conn.execute(
        "UPDATE besom_task SET paused_by = ?2, paused_reason = ?3, paused_since = ?4,
           schedule = coalesce(schedule, '') WHERE id = ?1",
        params![task, row.by, row.reason, row.at.0],
    )?;
    Ok(())
}

/// Ends a pause, if there is one.
fn resume(tx: &mut Tx<'_>, task: &TaskName) -> Job<()> {
    let task = tx.task(task)?;
    let paused: Option<Option<i64>> = tx
        .conn
        .query_row(
            "SELECT last_slot FROM besom_task WHERE id = ?1 AND paused_since IS NOT NULL",
            [task],
            |r| r.get(0),
        )
        .optional()?;
    let Some(last_slot) = paused else { return Ok(()) };
    tx.conn.execute(
        "UPDATE besom_task SET paused_by = NULL, paused_reason = NULL, paused_since = NULL,
           last_slot = ?2 WHERE id = ?1",
        params![task, last_slot_on_resume(last_slot.map(Time), tx.now).0],
    )?;
    Ok(())
}

/// Ends the scans of a task's active runs.
fn end_scans(tx: &mut Tx<'_>, task: &TaskName, error: &str) -> Job<()> {
    let Some(task) = task_id(tx.conn, task)? else { return Ok(()) };
    let active = "SELECT id FROM besom_run WHERE task = ?1 AND ended_at IS NULL";
    let runs: Vec<u64> = tx.conn.all(active, [task], |r| r.get(0))?;
    for run in runs.into_iter().map(RunId) {
        close_scan(tx, run, Some(error))?;
        end_if_done(tx, run)?;
    }
    Ok(())
}

/// Discards planned items of a task, or only those of one run that is held, and returns their number; the
/// inner error is why the command is refused.
fn discard_planned(
    tx: &mut Tx<'_>,
    task: &TaskName,
    run: Option<RunId>,
    row: &CommandRow,
    limit: NonZeroU32,
) -> Job<std::result::Result<u64, String>> {
    let tasks = std::slice::from_ref(task);
    let limit = limit.get();
    // Nothing of a held run has been executed.
    let mut waiting = match run {
        None => waiting::read_retries(tx.conn, Some(tasks), None, None, limit)?,
        Some(_) => Vec::new(),
    };
    let room = |found: usize| limit.saturating_sub(u32::try_from(found).unwrap_or(u32::MAX));
    match run {
        None => {
            let room = room(waiting.len());
            waiting.extend(waiting::read_timers(tx.conn, Some(tasks), None, None, room)?);
        }
        Some(run) => waiting.extend(timers_of(tx.conn, tasks, run, limit)?),
    }
    for stream in waiting::backlog(tx.conn, None)?.iter().filter(|stream| stream.task == *task) {
        let room = room(waiting.len());
        if room == 0 {
            break;
        }
        let Stream { partition, acked, .. } = *stream;
        match waiting::read_log(tx.conn, task, partition, acked, room, usize::MAX) {
            // A stream has no gaps, and those of a held run are the first in theirs.
            Ok(items) => waiting
                .extend(items.into_iter().take_while(|w| run.is_none_or(|run| w.item.run == run))),
            Err(Failure::Port(Error::Invalid(why))) => return Ok(Err(broken(task, &why))),
            Err(failure) => return Err(failure),
        }
    }
    let waiting: Vec<_> = waiting.into_iter().map(|w| (w.source, w.item)).collect();
    for (source, item) in &waiting {
        let (table, id) = match source {
            Source::Timer(id) => ("besom_timer", id),
            Source::Retry(id) => ("besom_retry", id),
            Source::Log(_) | Source::Unqueued(_) => continue,
        };
        let task = tx.task(&item.identity.task)?;
        let remove = format!("DELETE FROM {table} WHERE task = ?1 AND id = ?2");
        tx.conn.run(&remove, params![task, id])?;
    }
    if !waiting.is_empty() {
        let reason = format!("{}: {}", row.by, row.reason);
        let (writes, mut tally) = books::discard_planned(&waiting, &reason);
        let mut ledger = Ledger::open(tx)?;
        ledger.write(tx, writes, &mut tally, Vec::new(), &BTreeMap::new())?;
        tally::write(tx, &tally)?;
        let node: String = tx.conn.query_row("SELECT node FROM besom_fence", [], |r| r.get(0))?;
        ledger.close(tx, None, &Incarnation::from(node), &[])?;
    }
    Ok(Ok(waiting.len() as u64))
}

/// At most so many timers of a run.
fn timers_of(conn: &Connection, tasks: &[TaskName], run: RunId, limit: u32) -> Job<Vec<Waiting>> {
    let (mut found, mut after) = (Vec::new(), None);
    while found.len() < limit as usize {
        let page = waiting::read_timers(conn, Some(tasks), None, after, TIMERS_PAGE)?;
        let Some(Waiting { source: Source::Timer(id), run_at, .. }) = page.last() else { break };
        after = Some((*run_at, *id));
        found.extend(page.into_iter().filter(|waiting| waiting.item.run == run));
    }
    found.truncate(limit as usize);
    Ok(found)
}

fn retry_dead(tx: &mut Tx<'_>, page: LetterPage, applied: &mut Applied) -> Job<()> {
    let (mut ledger, mut moved) = (Ledger::open(tx)?, Tally::default());
    let writes = books::retry(&page.letters, page.after(), tx.now);
    ledger.write(tx, writes, &mut moved, Vec::new(), &BTreeMap::new())?;
    tally::write(tx, &moved)?;
    (applied.dead, applied.progress) = page.end(ledger.revived);
    Ok(())
}

fn discard_dead(
    tx: &mut Tx<'_>,
    page: LetterPage,
    row: &CommandRow,
    applied: &mut Applied,
) -> Job<()> {
    if !page.letters.is_empty() {
        let reason = format!("{}: {}", row.by, row.reason);
        let (writes, mut discarded) = books::discard(&page.letters, &reason);
        let mut ledger = Ledger::open(tx)?;
        ledger.write(tx, writes, &mut discarded, Vec::new(), &BTreeMap::new())?;
        tally::write(tx, &discarded)?;
        let node: String = tx.conn.query_row("SELECT node FROM besom_fence", [], |r| r.get(0))?;
        ledger.close(tx, None, &Incarnation::from(node), &[])?;
    }
    let all = page.letters.len() as u64;
    (applied.dead, applied.progress) = page.end(all);
    Ok(())
}

/// The next page of a command; the inner error is why it is refused.
fn page(
    tx: &Tx<'_>,
    selector: &DeadSelector,
    begun: Option<Progress>,
    limit: NonZeroU32,
) -> Job<std::result::Result<LetterPage, String>> {
    let (conn, limit) = (tx.conn, limit.get());
    let newest = "SELECT coalesce(max(id), 0) FROM besom_dead";
    let progress = match begun {
        Some(begun) => begun,
        None => Progress::begin(conn.query_row(newest, [], |r| r.get(0))?),
    };
    let DeadCriteria { ids, task, error } = selector.criteria();
    let number_of = |task: Option<&TaskName>| task.map(|task| task_id(conn, task)).transpose();
    let reached = progress.after.as_ref();
    let (task, after) = (number_of(task)?, number_of(reached.map(|after| &after.identity.task))?);
    // A task that was never seen has no letters.
    if task == Some(None) || after == Some(None) {
        return Ok(LetterPage::new(progress, selector, Vec::new(), 0, limit));
    }
    let after = after.flatten().zip(reached);
    // Only what is asked: a clause that may be absent would keep SQLite from using an index.
    let mut matching = "d.resolved_at IS NULL AND d.id <= ?1".to_owned();
    let mut values: Vec<rusqlite::types::Value> = vec![number(progress.newest)];
    let mut ask = |clause: &str, value: rusqlite::types::Value| {
        values.push(value);
        matching.push_str(&clause.replace('#', &format!("?{}", values.len())));
    };
    if let Some(ids) = ids {
        ask(" AND d.id IN (SELECT value FROM json_each(#))", json(&ids)?.into());
    }
    if let Some(task) = task.flatten() {
        ask(" AND d.task = #", task.into());
    }
    if let Some(error) = error {
        ask(" AND d.error = #", error.to_owned().into());
    }
    let counted = values.len();
    let rest = match after {
        Some((task, after)) => {
            let identity = &after.identity;
            values.push(task.into());
            values.push(owned(&tenant_cell(identity.tenant.as_ref()))?);
            values.push(identity.key.clone().into());
            values.push(owned(&DueCell(identity.due))?);
            values.push(number(after.letter));
            let [a, b, c, d, e] = [1, 2, 3, 4, 5].map(|more| counted + more);
            format!(
                " AND (d.task, d.tenant, d.key, d.due) >= (?{a}, ?{b}, ?{c}, ?{d})
                 AND ((d.task, d.tenant, d.key, d.due) > (?{a}, ?{b}, ?{c}, ?{d}) OR d.id < ?{e})"
            )
        }
        None => String::new(),
    };
    let sql = format!(
        "SELECT d.id, d.at, (SELECT name FROM besom_task WHERE id = d.task), d.resolved_at, d.context, {}
         FROM besom_dead d WHERE {matching}{rest}
         ORDER BY d.task, d.tenant, d.key, d.due, d.id DESC LIMIT {limit}",
        items::columns("due")
    );
    let letters = conn.all(&sql, rusqlite::params_from_iter(&values), letter)?;
    let mut found = letters.len() as u64;
    if after.is_none() && letters.len() >= limit as usize {
        let count = format!("SELECT count(*) FROM besom_dead d WHERE {matching}");
        found = conn.one(&count, rusqlite::params_from_iter(&values), |r| r.get(0))?;
    }
    Ok(LetterPage::new(progress, selector, letters, found, limit))
}

/// Reads a letter: its number, time, task, time of resolution, context and item.
fn letter(r: &Row<'_>) -> Job<DeadLetter> {
    let item = items::read(&TaskName::from(r.get::<_, String>(2)?), r, 5)?;
    let resolved_at = r.get::<_, Option<i64>>(3)?.map(Time);
    let context = LetterContext::unpack(r.get::<_, Option<String>>(4)?.as_deref());
    Ok(DeadLetter { id: r.get(0)?, item, at: Time(r.get(1)?), resolved_at, context })
}

fn number(number: u64) -> rusqlite::types::Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

fn owned(cell: &impl rusqlite::ToSql) -> Job<rusqlite::types::Value> {
    use rusqlite::types::{ToSqlOutput, Value};
    Ok(match cell.to_sql()? {
        ToSqlOutput::Owned(value) => value,
        ToSqlOutput::Borrowed(value) => value.try_into().unwrap_or(Value::Null),
        _ => Value::Null,
    })
}

/// Matching dead letters older than `before`, newest first; at most `limit`, if given.
pub(super) fn dead_letters(
    conn: &Connection,
    selector: &DeadSelector,
    letters: Letters,
    before: Option<u64>,
    limit: Option<u32>,
) -> Job<Vec<DeadLetter>> {
    let DeadCriteria { ids, task, error } = selector.criteria();
    let ids = ids.map(|ids| json(&ids)).transpose()?;
    let task = match task {
        Some(task) => match task_id(conn, task)? {
            Some(id) => Some(id),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let limit = limit.map_or(-1, i64::from);
    let all = letters == Letters::All;
    let before = before.map_or(i64::MAX, |id| i64::try_from(id).unwrap_or(i64::MAX));
    let sql = format!(
        "SELECT d.id, d.at, t.name, d.resolved_at, d.context, {} FROM besom_dead d
         JOIN besom_task t ON t.id = d.task
         WHERE (?1 IS NULL OR d.id IN (SELECT value FROM json_each(?1)))
           AND (?2 IS NULL OR d.task = ?2) AND (?3 IS NULL OR d.error = ?3)
           AND (?5 OR d.resolved_at IS NULL) AND d.id < ?6
         ORDER BY d.id DESC LIMIT ?4",
        items::columns("due")
    );
    conn.all(&sql, params![ids, task, error, limit, all, before], letter)
}

/// Open dead letters grouped by task and last error, ordered by their newest letter.
pub(super) fn dead_groups(conn: &Connection, limit: u32) -> Job<Vec<DeadGroup>> {
    conn.all(
        "SELECT t.name, g.error, g.count, g.first, g.last FROM (
           SELECT task, error, count(*) AS count, min(at) AS first, max(at) AS last, max(id) AS id
           FROM besom_dead INDEXED BY besom_dead_open WHERE resolved_at IS NULL
           GROUP BY task, error) g JOIN besom_task t ON t.id = g.task
         ORDER BY g.last DESC, g.id DESC LIMIT ?1",
        [limit],
        |r| {
            Ok(DeadGroup {
                task: r.get(0)?,
                error: r.get(1)?,
                count: r.get(2)?,
                first: Time(r.get(3)?),
                last: Time(r.get(4)?),
            })
        },
    )
}
