//! The fence, and the owners of partitions.

use std::time::Duration;

use besom_core::ids::{FencingToken, Incarnation, OwnerEpoch, Partition, Term};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::clock::{Clock, NOW};
use super::error::{Failure, Fault, Job, fault, words};
use super::session::{Param, Pipeline, Session, Tx, cell, params};
use besom_ports::store::{Claim, Error, Fence, PartitionRow, Raised, Result, RingPosition};

/// Finds the fence of a term and token and locks it, so that a raise waits until the transaction
/// ends. (A plain SELECT, or FOR KEY SHARE, would let it pass.)
const HOLD: &str = "SELECT 1 FROM @.fence WHERE term = $1 AND token_hash = $2 FOR SHARE";

fn held_by(fence: &FencingToken) -> Vec<Param<'static>> {
    params![fence.term.0 as i64, fence.token_hash.to_vec()]
}

/// Adds the fence to a leader's first round trip.
pub(super) fn hold_fence(pipeline: &mut Pipeline<'_>, fence: &FencingToken) -> usize {
    pipeline.push(HOLD, held_by(fence))
}

/// Refuses a writer whose term and token are not the fence's, according to the answer.
pub(super) fn check_fence(answer: &[Row]) -> Job<()> {
    if answer.is_empty() { Err(Error::Fenced.into()) } else { Ok(()) }
}

impl Tx {
    /// Begins a transaction of the leader, unless its term and token are not the fence's.
    pub(super) async fn fenced(
        session: Session,
        clock: &Clock,
        fence: &FencingToken,
    ) -> Result<Tx> {
        let mut first = Pipeline::default();
        hold_fence(&mut first, fence);
        let (mut tx, answers) = Tx::begin_with(session, clock, first).await?;
        if let Err(fenced) = check_fence(&answers[0]) {
            tx.session.rollback().await;
            return Err(fenced.into());
        }
        Ok(tx)
    }
}

/// Reads whether the fence is above a term, without a lock: every host commits under the term that
/// it follows, and their shared locks would delay a raise. A commit that overlaps a raise counts as
/// earlier: it depends on nothing that a leader writes, and its guards hold the rows that it changes.
const ABOVE: &str = "SELECT 1 FROM @.fence WHERE term > $1";

/// Asks whether the fence is above the term.
pub(super) fn ask_above(pipeline: &mut Pipeline<'_>, term: Term) -> usize {
    pipeline.push(ABOVE, params![term.0 as i64])
}

/// Refuses a writer that follows a term below the fence, according to the answer.
pub(super) fn not_above(answer: &[Row]) -> Job<()> {
    if answer.is_empty() { Ok(()) } else { Err(Error::Fenced.into()) }
}

/// How long a raise waits for the previous leader's write, and a claim for commits.
///
/// A shared lock on a row is granted past waiters for an exclusive one, so a steady stream of
/// writes could delay them. None can delay them for long: a replaced leader has stopped by its own
/// clock, a replaced owner begins no further commit, and both requests are repeated until then.
const RAISE_WAIT: &str = "SET LOCAL lock_timeout = '1s'";

const RAISE: &str = "WITH raised AS (INSERT INTO @.fence AS f (term, token_hash, node, raised_at)
    VALUES ($2, $3, $4, {now})
    ON CONFLICT (singleton) DO UPDATE SET term = excluded.term, token_hash = excluded.token_hash,
      node = excluded.node, raised_at = excluded.raised_at
    WHERE f.term < excluded.term
    RETURNING f.term, f.node, f.raised_at)
  INSERT INTO @.term (term, node, raised_at) SELECT term, node, raised_at FROM raised RETURNING 1";

/// In the order of their numbers, as commits lock them; nothing if the fence was not raised.
const TAKE_OVER: &str = "WITH taken AS (SELECT id FROM @.partition
    WHERE ($4::int4[] IS NULL OR id = ANY($4))
      AND EXISTS (SELECT 1 FROM @.fence WHERE term = $2 AND token_hash = $3)
    ORDER BY id FOR UPDATE)
  UPDATE @.partition p SET owner = $1, owner_epoch = owner_epoch + 1
  FROM taken WHERE p.id = taken.id RETURNING p.id, p.owner_epoch";

/// Raises the fence and takes partitions over in one round trip: whatever happens to this process,
/// the transaction is never open without the server working on it.
pub(super) async fn raise_fence(
    mut session: Session,
    clock: &Clock,
    fence: &FencingToken,
    node: &Incarnation,
    partitions: Option<&[Partition]>,
    count: u32,
    unheard_max: Duration,
) -> Result<Raised> {
    if let Some(partition) = partitions.into_iter().flatten().find(|p| p.0 >= count) {
        return Err(Error::Invalid(format!("the store has no partition {partition}")));
    }
    let wanted: Option<Vec<i32>> = partitions.map(|all| all.iter().map(|p| p.0 as i32).collect());
    let (term, token, name) =
        (fence.term.0 as i64, fence.token_hash.to_vec(), node.as_str().to_owned());
    let mut whole = Pipeline::default();
    whole.simple(RAISE_WAIT);
    let raised = whole.push(
        RAISE.replace("{now}", NOW),
        params![clock.given(), term, token.clone(), name.clone()],
    );
    let taken = whole.push(TAKE_OVER, params![name, term, token, wanted]);
    whole.simple("COMMIT");
    match session.begin(whole).await {
        Err(failure) if waited_in_vain(&failure) => {
            session.rollback().await;
            end_unheard(&session, unheard_max).await?;
            Err(failure.into())
        }
        Ok(answers) => {
            session.ended();
            if answers[raised].is_empty() {
                return Err(Error::Fenced);
            }
            Ok(Raised { owned: owned(&answers[taken])? })
        }
        // The connection may have broken before or after the server read COMMIT.
        Err(Failure::Sql(e)) if fault(&e) == Fault::Away => Err(Error::Unknown(words(&e))),
        Err(failure) => {
            session.rollback().await;
            Err(failure.into())
        }
    }
}

/// Whether a lock was not available in time.
fn waited_in_vain(failure: &Failure) -> bool {
    let code = |e: &tokio_postgres::Error| e.code().is_some_and(|c| c.code() == "55P03");
    matches!(failure, Failure::Sql(e) if code(e))
}

/// Ends this store's writers that hold the fence or partitions and whose client has not read the
/// answer or completed the request for this long. TCP limits have no effect on Unix-domain sockets,
/// and a frozen node's kernel keeps its connections alive.
async fn end_unheard(session: &Session, unheard_max: Duration) -> Job<()> {
    let ended: Vec<i32> = session
        .all(
            "SELECT a.pid, pg_terminate_backend(a.pid) FROM pg_stat_activity a
             WHERE a.datname = current_database() AND a.usename = current_user
               AND a.state = 'active' AND a.wait_event_type = 'Client'
               AND a.state_change < clock_timestamp() - make_interval(secs => $1)
               AND EXISTS (SELECT 1 FROM pg_locks l WHERE l.pid = a.pid
                 AND l.locktype = 'relation' AND l.mode = 'RowShareLock'
                 AND l.relation IN ('@.fence'::regclass, '@.partition'::regclass))",
            params![unheard_max.as_secs_f64()],
            cell,
        )
        .await?;
    for pid in ended {
        tracing::warn!(
            pid,
            "ended a write transaction of a frozen node: its client reads no answer"
        );
    }
    Ok(())
}

/// Partitions and their epochs, in order.
fn owned(rows: &[Row]) -> Job<Vec<(Partition, OwnerEpoch)>> {
    let mut owned = Vec::with_capacity(rows.len());
    for row in rows {
        let (id, epoch): (i32, i64) = (row.try_get(0)?, row.try_get(1)?);
        owned.push((Partition(id as u32), OwnerEpoch(epoch as u64)));
    }
    owned.sort_unstable();
    Ok(owned)
}

/// The owners of the partitions, in order.
pub(super) async fn partition_table(session: &Session) -> Job<Vec<PartitionRow>> {
    let sql = "SELECT id, owner, owner_epoch, coalesce(ring_term, 0), coalesce(ring_rev, 0)
        FROM @.partition ORDER BY id";
    let partition = |row: &Row| {
        let (id, owner): (i32, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
        let (epoch, term, revision): (i64, i64, i64) =
            (row.try_get(2)?, row.try_get(3)?, row.try_get(4)?);
        Ok(PartitionRow {
            partition: Partition(id as u32),
            owner: owner.map(Incarnation::from),
            epoch: OwnerEpoch(epoch as u64),
            at: RingPosition { term: Term(term as u64), revision: revision as u64 },
        })
    };
    session.all(sql, params![], partition).await
}

/// Takes over partitions that still have the epoch seen and were claimed under an older ring: first
/// those that are free, so that one hanging commit delays one partition and not a whole share;
/// then, for a bounded time, those held by a commit.
pub(super) async fn claim_partitions(
    session: Session,
    clock: &Clock,
    node: &Incarnation,
    at: RingPosition,
    claims: &[Claim],
    unheard_max: Duration,
) -> Result<Vec<(Partition, OwnerEpoch)>> {
    let tx = Tx::begin(session, clock).await?;
    let done = claim(&tx, node, at, claims, "SKIP LOCKED").await;
    let (mut taken, session) = tx.finish_with(done).await?;
    let missing = |claim: &&Claim| taken.iter().all(|(taken, _)| *taken != claim.partition);
    let held: Vec<Claim> = claims.iter().filter(missing).copied().collect();
    if held.is_empty() {
        return Ok(taken);
    }
    let mut first = Pipeline::default();
    first.simple(RAISE_WAIT);
    let (mut tx, _) = Tx::begin_with(session, clock, first).await?;
    match claim(&tx, node, at, &held, "").await {
        Ok(more) => {
            tx.session.commit().await?;
            taken.extend(more);
        }
        Err(failure) => {
            tx.session.rollback().await;
            if !waited_in_vain(&failure) {
                return Err(failure.into());
            }
            // The caller finds them missing, and repeats the claim.
            end_unheard(&tx.session, unheard_max).await?;
        }
    }
    taken.sort_unstable();
    Ok(taken)
}

async fn claim(
    tx: &Tx,
    node: &Incarnation,
    at: RingPosition,
    claims: &[Claim],
    locked: &str,
) -> Job<Vec<(Partition, OwnerEpoch)>> {
    let ids: Vec<i32> = claims.iter().map(|claim| claim.partition.0 as i32).collect();
    let seen: Vec<i64> = claims.iter().map(|claim| claim.seen.0 as i64).collect();
    // In the order of their numbers, as commits lock them; compared again under the lock.
    let rows = tx
        .query(
            &format!(
                "WITH asked AS (SELECT * FROM unnest($2::int4[], $3::int8[]) AS a (id, seen)),
               locked AS (SELECT p.id FROM @.partition p JOIN asked USING (id)
                 ORDER BY p.id FOR UPDATE OF p {locked})
             UPDATE @.partition p SET owner = $1, owner_epoch = p.owner_epoch + 1,
               ring_term = $4, ring_rev = $5
             FROM locked JOIN asked USING (id)
             WHERE p.id = locked.id AND p.owner_epoch = asked.seen
               AND (coalesce(p.ring_term, 0), coalesce(p.ring_rev, 0)) < ($4::int8, $5::int8)
             RETURNING p.id, p.owner_epoch"
            ),
            params![node.as_str().to_owned(), ids, seen, at.term.0 as i64, at.revision as i64],
        )
        .await?;
    owned(&rows)
}

/// The current fence.
pub(super) async fn fence(session: &Session) -> Job<Option<Fence>> {
    session.maybe("SELECT term, node, raised_at FROM @.fence", params![], raised).await
}

/// All raises of the fence, newest first.
pub(super) async fn terms(session: &Session, limit: u32) -> Job<Vec<Fence>> {
    let newest = "SELECT term, node, raised_at FROM @.term ORDER BY term DESC LIMIT $1";
    session.all(newest, params![i64::from(limit)], raised).await
}

fn raised(row: &Row) -> Job<Fence> {
    Ok(Fence {
        term: Term(row.try_get::<_, i64>(0)? as u64),
        node: row.try_get::<_, String>(1)?.into(),
        raised_at: Time(row.try_get(2)?),
    })
}
