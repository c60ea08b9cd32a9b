//! Which sessions of others hold the lock on a table that a statement has waited for in vain.

use std::time::Duration;

use besom_core::collection::{Collections, all_dependants};
use besom_core::proposal::Change;
use besom_core::queue::Decision;
use besom_ports::store::{Batch, Error};
use besom_snapshot::Cause;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::error::{Failure, Job};
use super::mapping::Mapping;
use super::session::{Session, params};
use super::work;

/// Maximum number of holders that are named.
const HOLDERS: usize = 3;

/// What a statement does with the rows of a table. Each waits for other modes of locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Change,
}

impl Use {
    fn conflicts(self) -> Vec<String> {
        let modes: &[&str] = match self {
            Use::Read => &["AccessExclusiveLock"],
            Use::Change => {
                &["AccessExclusiveLock", "ExclusiveLock", "ShareRowExclusiveLock", "ShareLock"]
            }
        };
        modes.iter().map(|mode| (*mode).to_owned()).collect()
    }
}

/// A session that has locked a table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    pid: i32,
    /// The role; none: the server does not tell.
    role: Option<String>,
    /// The name that the client has set; none: the server does not tell.
    application: Option<String>,
    /// How long its transaction has been open; none: the server does not tell.
    open: Option<Duration>,
}

/// The sessions that have locked a table, or a partition of it, against this use.
async fn holders(session: &Session, table: u32, of: Use) -> Job<Vec<Holder>> {
    // What a role may not see of another's session is NULL or empty.
    let sql = "WITH RECURSIVE tables(oid) AS (
                 SELECT $1::oid
                 UNION SELECT i.inhrelid FROM tables JOIN pg_inherits i ON i.inhparent = tables.oid)
               SELECT DISTINCT l.pid, a.usename::text, nullif(a.application_name, ''),
                 (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000)::int8
               FROM pg_locks l JOIN tables ON l.relation = tables.oid
               LEFT JOIN pg_stat_activity a ON a.pid = l.pid
               WHERE l.locktype = 'relation' AND l.mode = ANY($2::text[]) AND l.granted
                 AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                 AND l.pid IS NOT NULL AND l.pid <> pg_backend_pid()
               ORDER BY l.pid";
    let holder = |row: &Row| {
        let open: Option<i64> = row.try_get(3)?;
        Ok(Holder {
            pid: row.try_get(0)?,
            role: row.try_get(1)?,
            application: row.try_get(2)?,
            open: open.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        })
    };
    session.all(sql, params![table, of.conflicts()], holder).await
}

/// That a table is locked against this use, by whom, and what ends it; none: no session of others holds such a lock.
pub(super) async fn told(
    session: &Session,
    (table, oid): (&str, u32),
    of: Use,
) -> Job<Option<String>> {
    let holders = holders(session, oid, of).await?;
    Ok((!holders.is_empty()).then(|| words(table, &holders)))
}

/// Whether a statement has ended because it waited for a lock for too long.
pub(super) fn has_waited(failure: &Failure) -> bool {
    matches!(failure, Failure::Sql(e) if e.code() == Some(&SqlState::LOCK_NOT_AVAILABLE))
}

/// The refusal of a read that has waited in vain for a collection's table; none: it has failed otherwise, or the
/// table is free again.
pub(super) async fn refused_read(
    session: &Session,
    mapping: &Mapping,
    collection: &str,
    failure: &Failure,
) -> Option<Error> {
    if !has_waited(failure) {
        return None;
    }
    refusal(session, mapping, [collection], Use::Read).await
}

/// The refusal of a commit that has waited in vain, if a table that it uses is locked.
pub(super) async fn refused_commit(
    session: &Session,
    mapping: &Mapping,
    collections: &Collections,
    batch: &Batch,
) -> Option<Error> {
    let mut used: Vec<&str> = Vec::new();
    for entry in &batch.entries {
        let Decision::Apply { proposal, .. } = &entry.decision else { continue };
        used.extend(work::collections(proposal));
        used.extend(proposal.changes.iter().flat_map(Change::collections));
    }
    let with = |name: &&str| all_dependants(collections, name);
    let with: Vec<&str> = used.iter().flat_map(with).map(|of| of.name.as_str()).collect();
    used.extend(with);
    used.sort_unstable();
    used.dedup();
    refusal(session, mapping, used, Use::Change).await
}

async fn refusal<'a>(
    session: &Session,
    mapping: &Mapping,
    collections: impl IntoIterator<Item = &'a str>,
    of: Use,
) -> Option<Error> {
    for name in collections {
        let Ok(table) = mapping.table(name) else { continue };
        let Some(found) = &table.found else { continue };
        let told = told(session, (&table.collection.table, found.oid), of).await;
        if let Some(why) = told.ok().flatten() {
            return Some(Error::Refused(Cause::Locked, why));
        }
    }
    None
}

fn words(table: &str, holders: &[Holder]) -> String {
    let named = |holder: &Holder| {
        let Holder { pid, role, application, open } = holder;
        let mut words = format!("process {pid} of the server");
        for (what, value) in [("role", role), ("application", application)] {
            if let Some(value) = value {
                words.push_str(&format!(", {what} {value:?}"));
            }
        }
        if let Some(open) = open {
            words.push_str(&format!(", in a transaction for {} s", open.as_secs()));
        }
        words
    };
    let by = holders.iter().take(HOLDERS).map(named).collect::<Vec<_>>().join("; ");
    let end = holders.first().map(|holder| format!(" (pg_terminate_backend({}))", holder.pid));
    format!(
        "{table:?} is locked by {by}: wait for the end of that transaction, or end it{}",
        end.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_named_as_far_as_the_server_tells() {
        let known = Holder {
            pid: 7,
            role: Some("app".into()),
            application: Some("psql".into()),
            open: Some(Duration::from_secs(12)),
        };
        let unknown = Holder { pid: 8, role: None, application: None, open: None };
        assert_eq!(
            words("things", &[known, unknown]),
            "\"things\" is locked by process 7 of the server, role \"app\", application \"psql\", in a transaction \
             for 12 s; process 8 of the server: wait for the end of that transaction, or end it \
             (pg_terminate_backend(7))"
        );
    }
}
