//! The tables of the store lease and of the activity kept in the store.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::activity::state_of;
use besom_core::ids::{FencingToken, Term};
use besom_core::time::{Time, micros};
use tokio_postgres::Row;

use super::PostgresStore;
use super::clock::{Clock, NOW};
use super::connect::Use;
use super::error::Job;
use super::schema;
use super::session::{Param, Pipeline, Session, Tx, params};
use super::text::escaped;
use besom_ports::activity::State;
use besom_ports::coordination::LeaderRecord;
use besom_ports::embedded::{ActivityLedger, LeaseLedger, LeaseRow};
use besom_ports::store::{Result, Store};
pub(super) use besom_record::activity::Observation;

const LEASE: &str = "SELECT node, hostname, term, token_hash, elected_at, renewed_at, boot_id,
    expires_at, file_locked FROM @.lease";

fn read_lease(row: &Row) -> Job<LeaseRow> {
    let token: Vec<u8> = row.try_get(3)?;
    Ok(LeaseRow {
        leader: LeaderRecord {
            node: row.try_get::<_, String>(0)?.into(),
            hostname: row.try_get(1)?,
            term: Term(row.try_get::<_, i64>(2)? as u64),
            token_hash: token.try_into().unwrap_or([0; 32]),
            elected_at: Time(row.try_get(4)?),
            renewed_at: Time(row.try_get(5)?),
        },
        boot_id: row.try_get(6)?,
        expires_at: Duration::from_micros(row.try_get::<_, i64>(7)? as u64),
        file_locked: row.try_get(8)?,
    })
}

/// The row of the lease, locked until the transaction ends.
async fn locked(tx: &Tx) -> Job<Option<LeaseRow>> {
    // Only one candidate at a time, even while there is no row to lock.
    tx.session.batch("LOCK TABLE @.lease IN SHARE ROW EXCLUSIVE MODE").await?;
    tx.maybe(LEASE, params![], read_lease).await
}

async fn take(
    tx: &Tx,
    seen: Option<&LeaseRow>,
    next: &LeaseRow,
    at_least: Option<Term>,
) -> Job<Option<Term>> {
    let held = locked(tx).await?;
    if held.as_ref() != seen {
        return Ok(None);
    }
    let fence: i64 = tx.one("SELECT coalesce(max(term), 0)::int8 FROM @.fence", params![]).await?;
    let term = LeaseRow::next_term(seen, Term(fence as u64), at_least);
    tx.execute(
        "INSERT INTO @.lease (node, hostname, term, token_hash, elected_at, renewed_at, boot_id,
           expires_at, file_locked) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (singleton) DO UPDATE SET node = excluded.node, hostname = excluded.hostname,
           term = excluded.term, token_hash = excluded.token_hash,
           elected_at = excluded.elected_at, renewed_at = excluded.renewed_at,
           boot_id = excluded.boot_id, expires_at = excluded.expires_at,
           file_locked = excluded.file_locked",
        params![
            next.leader.node.as_str().to_owned(),
            next.leader.hostname.clone(),
            term.0 as i64,
            next.leader.token_hash.to_vec(),
            next.leader.elected_at.0,
            next.leader.renewed_at.0,
            next.boot_id.clone(),
            micros(next.expires_at),
            next.file_locked
        ],
    )
    .await?;
    Ok(Some(term))
}

#[async_trait]
impl LeaseLedger for PostgresStore {
    fn path(&self) -> Option<&Path> {
        None
    }

    async fn server_time(&self) -> Result<Option<Time>> {
        Store::now(self).await.map(Some)
    }

    async fn lease(&self) -> Result<Option<LeaseRow>> {
        let session = self.pools.take(Use::Lead).await?;
        Ok(session.maybe(LEASE, params![], read_lease).await?)
    }

    async fn take_lease(
        &self,
        seen: Option<&LeaseRow>,
        next: &LeaseRow,
        at_least: Option<Term>,
    ) -> Result<Option<Term>> {
        let tx = Tx::begin(self.pools.take(Use::Lead).await?, &self.clock).await?;
        let done = take(&tx, seen, next, at_least).await;
        tx.finish(done).await
    }

    async fn renew_lease(
        &self,
        fence: &FencingToken,
        renewed_at: Time,
        now: Duration,
        expires_at: Duration,
        file_locked: bool,
    ) -> Result<bool> {
        let session = self.pools.take(Use::Lead).await?;
        let renewed = session
            .execute(
                "UPDATE @.lease SET renewed_at = $3, expires_at = $4, file_locked = $5
                 WHERE term = $1 AND token_hash = $2 AND expires_at > $6",
                params![
                    fence.term.0 as i64,
                    fence.token_hash.to_vec(),
                    renewed_at.0,
                    micros(expires_at),
                    file_locked,
                    micros(now)
                ],
            )
            .await?;
        Ok(renewed == 1)
    }

    async fn release_lease(&self, fence: &FencingToken) -> Result<()> {
        let session = self.pools.take(Use::Lead).await?;
        session
            .execute(
                "UPDATE @.lease SET expires_at = 0 WHERE term = $1 AND token_hash = $2",
                params![fence.term.0 as i64, fence.token_hash.to_vec()],
            )
            .await?;
        Ok(())
    }

    async fn assign_to(&self, cluster: &str) -> Result<()> {
        let tx = Tx::begin(self.pools.take(Use::Lead).await?, &self.clock).await?;
        let done = assign(&tx, cluster).await;
        tx.finish(done).await
    }
}

async fn assign(tx: &Tx, cluster: &str) -> Job<()> {
    if let Some(held) = locked(tx).await? {
        held.check_free(tx.now)?;
    }
    schema::assign(&tx.session, cluster).await
}

// ----------------------------------------------------------------------------- activity

const STATES: &str = "SELECT k.at, ARRAY(SELECT a.seen_at FROM @.activity a WHERE a.key = k.key),
    (SELECT i.closed_at FROM @.idle i WHERE i.key = k.key), ";

/// The states of keys in the table, in their order.
async fn states(
    session: &Session,
    clock: &Clock,
    keys: &[String],
    observation: &Observation,
) -> Job<Vec<State>> {
    read_states(&session.query(&states_sql(), states_of(clock, keys)).await?, observation)
}

fn states_sql() -> String {
    format!("{STATES} {NOW} FROM unnest($2::text[]) WITH ORDINALITY k(key, at) ORDER BY k.at")
}

fn states_of(clock: &Clock, keys: &[String]) -> Vec<Param<'static>> {
    let asked: Vec<String> = keys.iter().map(|key| escaped(key).into_owned()).collect();
    params![clock.given(), asked]
}

fn read_states(rows: &[Row], observation: &Observation) -> Job<Vec<State>> {
    let state = |row: &Row| -> Job<State> {
        let connections: Vec<i64> = row.try_get(1)?;
        let connections: Vec<Time> = connections.into_iter().map(Time).collect();
        let closed_at = row.try_get::<_, Option<i64>>(2)?.map(Time);
        let now = Time(row.try_get(3)?);
        let Observation { timeouts, listening } = *observation;
        Ok(state_of(&connections, closed_at, listening, now, timeouts))
    };
    rows.iter().map(state).collect()
}

/// The idle ones among these keys.
pub(super) async fn idle_keys(
    session: &Session,
    clock: &Clock,
    keys: Vec<String>,
    observation: &Observation,
) -> Job<Vec<String>> {
    let states = states(session, clock, &keys, observation).await?;
    let idle = keys.into_iter().zip(states).filter(|(_, state)| *state == State::Idle);
    Ok(idle.map(|(key, _)| key).collect())
}

/// The position of the states of locked keys among the answers.
pub(super) struct Asked(usize);

/// Makes every heartbeat of these keys wait until the transaction ends (see [`ALONE`]), and then
/// reads their states.
pub(super) fn hold(pipeline: &mut Pipeline<'_>, clock: &Clock, keys: &[String]) -> Asked {
    let locked: Vec<String> = keys.iter().map(|key| escaped(key).into_owned()).collect();
    pipeline.push(
        "SELECT pg_advisory_xact_lock_shared(k.lock) FROM (SELECT DISTINCT hashtextextended(key, 0)
           AS lock FROM unnest($1::text[]) k(key) ORDER BY 1) k",
        params![locked],
    );
    Asked(pipeline.push(states_sql(), states_of(clock, keys)))
}

impl Asked {
    /// The states, in the order of the keys.
    pub(super) fn read(&self, answers: &[Vec<Row>], observation: &Observation) -> Job<Vec<State>> {
        read_states(&answers[self.0], observation)
    }
}

/// Serializes the heartbeats of a key, so that two closes of its last connections see each other. A
/// power failure may lose the last moments, but then all connections have ended as well.
const ALONE: &str = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0)),
    set_config('synchronous_commit', 'off', true)";

#[async_trait]
impl ActivityLedger for PostgresStore {
    fn listen(&self) {
        let _ = self.listening_since.set(self.present());
    }

    async fn activity_states(&self, keys: &[String]) -> Result<Vec<State>> {
        let session = self.pools.take(Use::Look).await?;
        Ok(states(&session, &self.clock, keys, &self.observation()).await?)
    }

    async fn activity_seen(&self, key: &str, connection: &str) -> Result<()> {
        let (key, connection) = (escaped(key).into_owned(), escaped(connection).into_owned());
        let mut first = Pipeline::default();
        first.push(ALONE, params![key.clone()]);
        first.push(
            format!(
                "WITH seen AS (
                   INSERT INTO @.activity (key, connection, seen_at) VALUES ($2, $3, {NOW})
                   ON CONFLICT (key, connection) DO UPDATE SET seen_at = excluded.seen_at)
                 DELETE FROM @.idle WHERE key = $2"
            ),
            params![self.clock.given(), key, connection],
        );
        let session = self.pools.take(Use::Write).await?;
        let (tx, _) = Tx::begin_with(session, &self.clock, first).await?;
        tx.finish(Ok(())).await
    }

    async fn activity_closed(&self, key: &str, connection: &str) -> Result<()> {
        let observation = self.observation();
        let (key, connection) = (escaped(key).into_owned(), escaped(connection).into_owned());
        let mut first = Pipeline::default();
        first.push(ALONE, params![key.clone()]);
        first.push(
            "DELETE FROM @.activity WHERE key = $1 AND connection = $2 RETURNING 1",
            params![key.clone(), connection],
        );
        let session = self.pools.take(Use::Write).await?;
        let (tx, answers) = Tx::begin_with(session, &self.clock, first).await?;
        let done = match answers[1].is_empty() {
            true => Ok(()),
            false => closed(&tx, key, &observation).await,
        };
        tx.finish(done).await
    }
}

async fn closed(tx: &Tx, key: String, observation: &Observation) -> Job<()> {
    // Long-silent connections are removed as well: this may be the last close.
    let silent = tx.now - observation.timeouts.heartbeat;
    if observation.listening.opened_at < silent {
        tx.execute(
            "DELETE FROM @.activity WHERE key = $1 AND seen_at < $2",
            params![key.clone(), silent.0],
        )
        .await?;
    }
    tx.execute(
        "INSERT INTO @.idle (key, closed_at) SELECT $1, $2
         WHERE NOT EXISTS (SELECT 1 FROM @.activity WHERE key = $1)
         ON CONFLICT (key) DO UPDATE SET closed_at = excluded.closed_at",
        params![key, tx.now.0],
    )
    .await?;
    Ok(())
}
