//! The tables of the store lease and of the embedded activity, in the same file.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{FencingToken, Term};
use besom_core::time::{Time, micros};
use rusqlite::{Connection, params};

use super::SqliteStore;
use super::error::Job;
use super::guards::activity_of;
use super::queue::Priority;
use super::statements::Statements;
use super::writer::Tx;
use besom_ports::activity::State;
use besom_ports::coordination::LeaderRecord;
use besom_ports::embedded::{ActivityLedger, LeaseLedger, LeaseRow};
use besom_ports::store::Result;

fn read_lease(conn: &Connection) -> Job<Option<LeaseRow>> {
    conn.first(
        "SELECT node, hostname, term, token_hash, elected_at, renewed_at, boot_id, expires_at,
           file_locked FROM besom_lease",
        [],
        |r| {
            Ok(LeaseRow {
                leader: LeaderRecord {
                    node: r.get::<_, String>(0)?.into(),
                    hostname: r.get(1)?,
                    term: Term(r.get(2)?),
                    token_hash: r.get(3)?,
                    elected_at: Time(r.get(4)?),
                    renewed_at: Time(r.get(5)?),
                },
                boot_id: r.get(6)?,
                expires_at: Duration::from_micros(r.get(7)?),
                file_locked: r.get(8)?,
            })
        },
    )
}

fn take_lease(
    tx: &mut Tx<'_>,
    seen: Option<&LeaseRow>,
    next: &LeaseRow,
    at_least: Option<Term>,
) -> Job<Option<Term>> {
    if read_lease(tx.conn)?.as_ref() != seen {
        return Ok(None);
    }
    let fence: u64 =
        tx.conn.query_row("SELECT coalesce(max(term), 0) FROM besom_fence", [], |r| r.get(0))?;
    let term = LeaseRow::next_term(seen, Term(fence), at_least);
    tx.conn.execute(
        "INSERT OR REPLACE INTO besom_lease VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            next.leader.node.as_str(),
            next.leader.hostname,
            term.0,
            next.leader.token_hash,
            next.leader.elected_at.0,
            next.leader.renewed_at.0,
            next.boot_id,
            micros(next.expires_at),
            next.file_locked
        ],
    )?;
    Ok(Some(term))
}

#[async_trait]
impl LeaseLedger for SqliteStore {
    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    async fn lease(&self) -> Result<Option<LeaseRow>> {
        self.inspection.read(read_lease).await
    }

    async fn take_lease(
        &self,
        seen: Option<&LeaseRow>,
        next: &LeaseRow,
        at_least: Option<Term>,
    ) -> Result<Option<Term>> {
        let (seen, next) = (seen.cloned(), next.clone());
        self.writer
            .run(Priority::Lease, move |tx| take_lease(tx, seen.as_ref(), &next, at_least))
            .await
    }

    async fn renew_lease(
        &self,
        fence: &FencingToken,
        renewed_at: Time,
        now: Duration,
        expires_at: Duration,
        file_locked: bool,
    ) -> Result<bool> {
        // No other process would ever see that it is held.
        self.place.check()?;
        let fence = fence.clone();
        // Losing a renewal in a power failure only shortens the lease.
        self.writer
            .run_light(Priority::Lease, move |tx| {
                let renewed = tx.conn.run(
                    "UPDATE besom_lease SET renewed_at = ?3, expires_at = ?4, file_locked = ?5
                     WHERE term = ?1 AND token_hash = ?2 AND expires_at > ?6",
                    params![
                        fence.term.0,
                        fence.token_hash,
                        renewed_at.0,
                        micros(expires_at),
                        file_locked,
                        micros(now)
                    ],
                )?;
                Ok(renewed == 1)
            })
            .await
    }

    async fn release_lease(&self, fence: &FencingToken) -> Result<()> {
        let fence = fence.clone();
        self.writer
            .run(Priority::Lease, move |tx| {
                tx.conn.execute(
                    "UPDATE besom_lease SET expires_at = 0 WHERE term = ?1 AND token_hash = ?2",
                    params![fence.term.0, fence.token_hash],
                )?;
                Ok(())
            })
            .await
    }
}

#[async_trait]
impl ActivityLedger for SqliteStore {
    fn listen(&self) {
        let _ = self.listening_since.set(self.clock.now());
    }

    async fn activity_states(&self, keys: &[String]) -> Result<Vec<State>> {
        let (keys, observation, now) = (keys.to_vec(), self.observation(), self.clock.now());
        self.inspection
            .read(move |conn| {
                keys.iter().map(|key| activity_of(conn, key, &observation, now)).collect()
            })
            .await
    }

    async fn activity_seen(&self, key: &str, connection: &str) -> Result<()> {
        let (key, connection) = (key.to_owned(), connection.to_owned());
        self.writer
            .run_light(Priority::Due, move |tx| {
                tx.conn.run(
                    "INSERT INTO besom_activity VALUES (?1, ?2, ?3)
                     ON CONFLICT (key, connection) DO UPDATE SET seen_at = excluded.seen_at",
                    params![key, connection, tx.now.0],
                )?;
                tx.conn.run("DELETE FROM besom_idle WHERE key = ?1", [key])?;
                Ok(())
            })
            .await
    }

    async fn activity_closed(&self, key: &str, connection: &str) -> Result<()> {
        let (key, connection, observation) =
            (key.to_owned(), connection.to_owned(), self.observation());
        self.writer
            .run_light(Priority::Due, move |tx| {
                let known = tx.conn.run(
                    "DELETE FROM besom_activity WHERE key = ?1 AND connection = ?2",
                    [&key, &connection],
                )?;
                if known == 0 {
                    return Ok(());
                }
                // Long-silent connections are removed as well: this may be the last close.
                let silent = tx.now - observation.timeouts.heartbeat;
                if observation.listening.opened_at < silent {
                    tx.conn.run(
                        "DELETE FROM besom_activity WHERE key = ?1 AND seen_at < ?2",
                        params![key, silent.0],
                    )?;
                }
                tx.conn.run(
                    "INSERT INTO besom_idle SELECT ?1, ?2
                     WHERE NOT EXISTS (SELECT 1 FROM besom_activity WHERE key = ?1)
                     ON CONFLICT (key) DO UPDATE SET closed_at = excluded.closed_at",
                    params![key, tx.now.0],
                )?;
                Ok(())
            })
            .await
    }
}
