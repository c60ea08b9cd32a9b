//! What the other users of the database feel: how late a small read of a table is, who waits for locks of
//! Besom, and how far replicas are behind.

use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use super::error::{Failure, Job};
use super::mapping::Mapping;
use super::session::{Pipeline, Session, cell, params};
use besom_ports::store::Strain;

/// How long a probe waits, for example for a table that somebody has locked.
const PROBE_MAX: Duration = Duration::from_secs(1);

/// Reads one page of a table. The page is chosen at random, so that deleted rows at the beginning of the
/// table and in its indexes do not count as latency.
fn page_of(table: &str) -> String {
    let name = table.replace('\'', "''");
    format!(
        "SELECT 1 FROM {table} WHERE ctid = (SELECT format('(%s,1)', floor(random()
           * (pg_relation_size('{name}'::regclass) / current_setting('block_size')::int8)))::tid)"
    )
}

/// The longest wait of a session for a lock that a session of Besom holds, in microseconds: of those that
/// this role sees as Besom's, of all nodes. From PostgreSQL 14 on the lock says since when; before, the
/// start of the statement does, where this role may see it.
const LOCK_WAIT: &str = "SELECT coalesce(max(extract(epoch FROM clock_timestamp()
    - coalesce((to_jsonb(l) ->> 'waitstart')::timestamptz, w.query_start))) * 1000000, 0)::int8
  FROM pg_locks l LEFT JOIN pg_stat_activity w ON w.pid = l.pid
  WHERE NOT l.granted AND pg_blocking_pids(l.pid) && ARRAY(
    SELECT a.pid FROM pg_stat_activity a WHERE a.usename = current_user
      AND a.application_name = current_setting('application_name'))
    AND NOT EXISTS (SELECT 1 FROM pg_stat_activity own WHERE own.pid = l.pid
      AND own.usename = current_user AND own.application_name = current_setting('application_name'))";

/// How far the furthest replica is behind, in microseconds; null: there is none, or this role may not see
/// it (`pg_monitor`).
const LAG: &str =
    "SELECT (max(extract(epoch FROM replay_lag)) * 1000000)::int8 FROM pg_stat_replication";

/// Measures this moment.
pub(super) async fn measure(
    session: &mut Session,
    mapping: &Mapping,
    collections: &[String],
) -> Job<Strain> {
    let mut strain = Strain::default();
    for collection in collections {
        let Ok(table) = mapping.table(collection) else { continue };
        // A view has no pages.
        if !table.found.as_ref().is_some_and(|found| ["r", "p"].contains(&&*found.kind)) {
            continue;
        }
        let mut probe = Pipeline::default();
        probe.simple(format!("SET LOCAL statement_timeout = {}", PROBE_MAX.as_millis()));
        // Not prepared: that would wait for a locked table as well, and longer.
        probe.simple(page_of(&table.name));
        let begun = Instant::now();
        let answer = session.begin(probe).await;
        let latency = begun.elapsed();
        session.rollback().await;
        match answer {
            Ok(_) => strain.latency = strain.latency.max(Some(latency)),
            Err(Failure::Sql(e)) if is_late(&e) => {
                strain.latency = strain.latency.max(Some(latency));
            }
            // Without SELECT on the whole table its pages cannot be read.
            Err(Failure::Sql(e)) if e.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {}
            Err(failure) => return Err(failure),
        }
    }
    let micros = |n: Option<i64>| Some(Duration::from_micros(u64::try_from(n?).unwrap_or(0)));
    strain.lock_wait = micros(session.maybe(LOCK_WAIT, params![], cell).await?);
    strain.lag = micros(session.maybe(LAG, params![], cell).await?.flatten());
    Ok(strain)
}

/// Whether the probe was ended because it waited too long.
fn is_late(e: &tokio_postgres::Error) -> bool {
    [SqlState::QUERY_CANCELED, SqlState::LOCK_NOT_AVAILABLE].iter().any(|s| e.code() == Some(s))
}
