//! Reviews of runs, and their decisions.

use besom_core::ids::{FencingToken, RunId};
use besom_core::review::{Standing, State};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::clock::Clock;
use super::error::{Job, invalid};
use super::session::{Session, Tx, cell, params};
use super::text::{escaped, plain};
use besom_ports::store::{CommandRow, NewReview, Result, Review, ReviewQuery, not_waiting};
use besom_record::text::{json, parse};

/// Opens the review of a run, once.
pub(super) async fn open(
    session: Session,
    clock: &Clock,
    fence: &FencingToken,
    review: &NewReview,
) -> Result<()> {
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = insert(&tx, review).await;
    tx.finish(done).await
}

async fn insert(tx: &Tx, review: &NewReview) -> Job<()> {
    let run = review.run;
    let sql = "SELECT held FROM @.run WHERE id = $1";
    let held: Option<bool> = tx.maybe(sql, params![run.0 as i64], cell).await?;
    let held = held.ok_or_else(|| invalid(format!("there is no run {run}")))?;
    let state = if held { State::Waiting } else { State::Shown };
    let expires_at = review.within.map(|within| (tx.now + within).0);
    tx.execute(
        "INSERT INTO @.review (run, opened_at, expires_at, state, plan)
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
        params![
            run.0 as i64,
            tx.now.0,
            expires_at,
            state.as_str().to_owned(),
            escaped(&json(&review.plan)?).into_owned()
        ],
    )
    .await?;
    Ok(())
}

/// Reviews, newest first.
pub(super) async fn list(session: &Session, query: &ReviewQuery) -> Job<Vec<Review>> {
    let number = |run: Option<RunId>| run.map(|run| i64::try_from(run.0).unwrap_or(i64::MAX));
    let sql = "SELECT v.run, t.name, v.opened_at, v.expires_at, v.state, v.by, v.reason,
          v.decided_at, v.plan
        FROM @.review v JOIN @.run r ON r.id = v.run JOIN @.task t ON t.id = r.task
        WHERE ($1::int8 IS NULL OR v.run = $1) AND ($2::text IS NULL OR t.name = $2)
          AND (NOT $3 OR v.state = 'waiting') AND ($4::int8 IS NULL OR v.run < $4)
        ORDER BY v.run DESC LIMIT $5";
    let asked = params![
        number(query.run),
        query.task.as_ref().map(|task| task.as_str().to_owned()),
        query.waiting,
        number(query.before),
        i64::from(query.limit)
    ];
    let review = |r: &Row| {
        Ok(Review {
            run: RunId(r.try_get::<_, i64>(0)? as u64),
            task: r.try_get::<_, String>(1)?.into(),
            opened_at: Time(r.try_get(2)?),
            expires_at: r.try_get::<_, Option<i64>>(3)?.map(Time),
            state: State::parse(&r.try_get::<_, String>(4)?).unwrap_or(State::Lapsed),
            by: plain(r.try_get(5)?),
            reason: plain(r.try_get(6)?),
            decided_at: r.try_get::<_, Option<i64>>(7)?.map(Time),
            plan: parse(&plain(r.try_get(8)?))?,
        })
    };
    session.all(sql, asked, review).await
}

/// How the review of a run stands, which stays as it is until the transaction ends; none: it has none.
pub(super) async fn standing(tx: &Tx, run: RunId) -> Job<Option<Standing>> {
    let sql = "SELECT state, by, reason, decided_at FROM @.review WHERE run = $1 FOR UPDATE";
    let standing = |row: &Row| {
        Ok(Standing {
            state: State::parse(&row.try_get::<_, String>(0)?).unwrap_or(State::Lapsed),
            by: plain(row.try_get(1)?),
            reason: plain(row.try_get(2)?),
            decided_at: row.try_get::<_, Option<i64>>(3)?.map(Time),
        })
    };
    tx.maybe(sql, params![run.0 as i64], standing).await
}

/// Decides a review that waits; the inner error is why it cannot be decided.
pub(super) async fn decide(
    tx: &Tx,
    run: RunId,
    state: State,
    row: &CommandRow,
) -> Job<std::result::Result<(), String>> {
    let id = run.0 as i64;
    let found = standing(tx, run).await?;
    // A run that is stopped while it plans has no review yet.
    if found.is_none() && state != State::Approved {
        return Ok(Ok(()));
    }
    if found.as_ref().is_none_or(|found| found.state != State::Waiting) {
        return Ok(Err(not_waiting(run, found.as_ref())));
    }
    tx.execute(
        "UPDATE @.review SET state = $2, by = $3, reason = $4, decided_at = $5 WHERE run = $1",
        params![
            id,
            state.as_str().to_owned(),
            escaped(&row.by).into_owned(),
            escaped(row.why()).into_owned(),
            tx.now.0
        ],
    )
    .await?;
    if state == State::Approved {
        tx.execute("UPDATE @.run SET held = false WHERE id = $1", params![id]).await?;
    }
    Ok(Ok(()))
}

/// Rejects the reviews of a task that wait, and ends those that were approved and whose runs are active, because
/// what it has planned is discarded.
pub(super) async fn reject_all(tx: &Tx, task: i32, row: &CommandRow) -> Job<()> {
    let (by, reason) = (escaped(&row.by).into_owned(), escaped(&row.reason).into_owned());
    tx.execute(
        "UPDATE @.review SET state = 'rejected', by = $2, reason = $3, decided_at = $4
         WHERE state = 'waiting' AND run IN (SELECT id FROM @.run WHERE task = $1)",
        params![task, by.clone(), reason.clone(), tx.now.0],
    )
    .await?;
    tx.execute(
        "UPDATE @.review SET state = 'done', by = $2, decided_at = $4,
           reason = 'what was left of it was discarded: ' || $3::text || ' (approved by ' || by || ')'
         WHERE state = 'approved'
           AND run IN (SELECT id FROM @.run WHERE task = $1 AND ended_at IS NULL)",
        params![task, by, reason, tx.now.0],
    )
    .await?;
    Ok(())
}
