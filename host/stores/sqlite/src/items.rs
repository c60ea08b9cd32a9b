//! Items as rows: shared by log, timers, retries and dead letters.

use besom_core::ids::{Partition, RunId, TaskName};
use besom_core::item::{Identity, Item};
use besom_core::time::Time;
use rusqlite::Row;
use serde::{Deserialize, Serialize};

use super::error::Job;
use super::values::{DueCell, TenantCell};

/// The columns that [`read`] expects, in this order. `due` is the table's expression for the due
/// time: a column, or `''` for the log.
pub(super) fn columns(due: &str) -> String {
    format!("tenant, key, {due}, part, route, version, payload, run, planned_at, progress")
}

/// What has happened to an item so far. A fresh item has no progress, and stores NULL.
#[derive(Serialize, Deserialize, Default, PartialEq)]
pub(super) struct Progress {
    pub(super) attempts: u32,
    pub(super) guard_retries: u32,
    pub(super) deaths: u32,
    pub(super) errors: Vec<String>,
}

impl Progress {
    pub(super) fn of(item: &Item) -> Progress {
        Progress {
            attempts: item.attempts,
            guard_retries: item.guard_retries,
            deaths: item.deaths,
            errors: item.errors.clone(),
        }
    }

    /// An unreadable record counts as none: the item is tried as often as a fresh one.
    pub(super) fn unpack(packed: Option<&[u8]>) -> Progress {
        packed.and_then(|packed| postcard::from_bytes(packed).ok()).unwrap_or_default()
    }

    pub(super) fn pack(&self) -> Job<Option<Vec<u8>>> {
        if *self == Progress::default() {
            return Ok(None);
        }
        Ok(Some(postcard::to_stdvec(self)?))
    }
}

/// Reads the item in a row, from column `at` on.
pub(super) fn read(task: &TaskName, row: &Row<'_>, at: usize) -> Job<Item> {
    let key: String = row.get(at + 1)?;
    let route: Option<String> = row.get(at + 4)?;
    let progress = Progress::unpack(row.get_ref(at + 9)?.as_blob_or_null().unwrap_or(None));
    Ok(Item {
        route: route.unwrap_or_else(|| key.clone()),
        identity: Identity {
            task: task.clone(),
            tenant: row.get::<_, TenantCell>(at)?.0,
            key,
            due: row.get::<_, DueCell>(at + 2)?.0,
        },
        partition: Partition(row.get(at + 3)?),
        version: row.get(at + 5)?,
        payload: row.get(at + 6)?,
        run: RunId(row.get(at + 7)?),
        planned_at: Time(row.get(at + 8)?),
        attempts: progress.attempts,
        guard_retries: progress.guard_retries,
        deaths: progress.deaths,
        errors: progress.errors,
    })
}

/// The route as stored: NULL if it equals the key.
pub(super) fn route(item: &Item) -> Option<&str> {
    (item.route != item.identity.key).then_some(item.route.as_str())
}

/// Number of history ids that lie together in the index by key. A commit writes a few pages of the index;
/// with one block for all, it would write a page for each row. A lookup searches every block.
pub(super) const BLOCK_IDS: i64 = 4_096;

/// The number that indexes a history row by its key: its block, and 32 bits of the key.
pub(super) fn key_place(id: i64, key: &str) -> i64 {
    ((id / BLOCK_IDS) << 32) | key_hash(key)
}

/// 32 bits of a key: not unique, but small.
pub(super) fn key_hash(key: &str) -> i64 {
    i64::from(xxhash_rust::xxh3::xxh3_64(key.as_bytes()) as u32)
}
