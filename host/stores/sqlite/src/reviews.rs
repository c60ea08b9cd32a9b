//! Reviews of runs, and their decisions.

use besom_core::ids::{FencingToken, RunId, TaskName};
use besom_core::review::{Standing, State};
use besom_core::time::Time;
use rusqlite::{Connection, Row, params};

use super::error::Job;
use super::leadership::check_fence;
use super::statements::Statements;
use super::waiting::task_id;
use super::writer::Tx;
use besom_ports::store::{CommandRow, Error, NewReview, Review, ReviewQuery, not_waiting};
use besom_record::text::{json, parse};

/// Opens the review of a run, once.
pub(super) fn open(tx: &mut Tx<'_>, fence: &FencingToken, review: &NewReview) -> Job<()> {
    check_fence(tx, fence)?;
    let run = review.run;
    let held: Option<bool> =
        tx.conn.first("SELECT held FROM besom_run WHERE id = ?1", [run.0], |r| r.get(0))?;
    let Some(held) = held else {
        return Err(Error::Invalid(format!("there is no run {run}")).into());
    };
    let state = if held { State::Waiting } else { State::Shown };
    let expires_at = review.within.map(|within| (tx.now + within).0);
    tx.conn.run(
        "INSERT INTO besom_review (run, opened_at, expires_at, state, plan)
         VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
        params![run.0, tx.now.0, expires_at, state.as_str(), json(&review.plan)?],
    )?;
    Ok(())
}

/// Reviews, newest first.
pub(super) fn list(conn: &Connection, query: &ReviewQuery) -> Job<Vec<Review>> {
    let task = match &query.task {
        Some(task) => match task_id(conn, task)? {
            Some(id) => Some(id),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let number = |run: Option<RunId>| run.map(|run| run.0);
    let (run, before) = (number(query.run), number(query.before));
    conn.all(
        "SELECT v.run, t.name, v.opened_at, v.expires_at, v.state, v.by, v.reason, v.decided_at,
           v.plan
         FROM besom_review v JOIN besom_run r ON r.id = v.run JOIN besom_task t ON t.id = r.task
         WHERE (?1 IS NULL OR v.run = ?1) AND (?2 IS NULL OR r.task = ?2)
           AND (NOT ?3 OR v.state = 'waiting') AND (?4 IS NULL OR v.run < ?4)
         ORDER BY v.run DESC LIMIT ?5",
        params![run, task, query.waiting, before, query.limit],
        read,
    )
}

fn read(r: &Row<'_>) -> Job<Review> {
    Ok(Review {
        run: RunId(r.get(0)?),
        task: TaskName::from(r.get::<_, String>(1)?),
        opened_at: Time(r.get(2)?),
        expires_at: r.get::<_, Option<i64>>(3)?.map(Time),
        state: State::parse(&r.get::<_, String>(4)?).unwrap_or(State::Lapsed),
        by: r.get(5)?,
        reason: r.get(6)?,
        decided_at: r.get::<_, Option<i64>>(7)?.map(Time),
        plan: parse(&r.get::<_, String>(8)?)?,
    })
}

/// How the review of a run stands; none: it has none.
pub(super) fn standing(tx: &Tx<'_>, run: RunId) -> Job<Option<Standing>> {
    tx.conn.first(
        "SELECT state, by, reason, decided_at FROM besom_review WHERE run = ?1",
        [run.0],
        |r| {
            Ok(Standing {
                state: State::parse(&r.get::<_, String>(0)?).unwrap_or(State::Lapsed),
                by: r.get(1)?,
                reason: r.get(2)?,
                decided_at: r.get::<_, Option<i64>>(3)?.map(Time),
            })
        },
    )
}

/// Decides a review that waits; the inner error is why it cannot be decided.
pub(super) fn decide(
    tx: &Tx<'_>,
    run: RunId,
    state: State,
    row: &CommandRow,
) -> Job<std::result::Result<(), String>> {
    let found = standing(tx, run)?;
    // A run that is stopped while it plans has no review yet.
    if found.is_none() && state != State::Approved {
        return Ok(Ok(()));
    }
    if found.as_ref().is_none_or(|found| found.state != State::Waiting) {
        return Ok(Err(not_waiting(run, found.as_ref())));
    }
    tx.conn.run(
        "UPDATE besom_review SET state = ?2, by = ?3, reason = ?4, decided_at = ?5
         WHERE run = ?1",
        params![run.0, state.as_str(), row.by, row.why(), tx.now.0],
    )?;
    if state == State::Approved {
        tx.conn.run("UPDATE besom_run SET held = 0 WHERE id = ?1", [run.0])?;
    }
    Ok(Ok(()))
}

/// Rejects the reviews of a task that wait, and ends those that were approved and whose runs are active, because
/// what it has planned is discarded.
pub(super) fn reject_all(tx: &Tx<'_>, task: i64, row: &CommandRow) -> Job<()> {
    tx.conn.run(
        "UPDATE besom_review SET state = 'rejected', by = ?2, reason = ?3, decided_at = ?4
         WHERE state = 'waiting' AND run IN (SELECT id FROM besom_run WHERE task = ?1)",
        params![task, row.by, row.reason, tx.now.0],
    )?;
    tx.conn.run(
        "UPDATE besom_review SET state = 'done', by = ?2, decided_at = ?4,
           reason = 'what was left of it was discarded: ' || ?3 || ' (approved by ' || by || ')'
         WHERE state = 'approved'
           AND run IN (SELECT id FROM besom_run WHERE task = ?1 AND ended_at IS NULL)",
        params![task, row.by, row.reason, tx.now.0],
    )?;
    Ok(())
}

/// Whether any of these runs is held.
pub(super) fn any_held(tx: &Tx<'_>, runs: impl Iterator<Item = RunId>) -> Job<bool> {
    let mut statement = tx.conn.prepare_cached("SELECT 1 FROM besom_run WHERE id = ?1 AND held")?;
    for run in runs {
        if statement.exists([run.0])? {
            return Ok(true);
        }
    }
    Ok(false)
}
