//! The engine's own tables and their migrations.
//!
//! The name of every table begins with `besom_`. A tenant column contains the tenant's text, or the
//! integer 0 if there is none; a due column contains microseconds, or the empty text. Both are thus
//! ordinary values in a unique key. Tasks are interned (`besom_task.id`).
//!
//! An item is one row in exactly one of log, timer, retry or dead. While it is in one of the first
//! three, it also has one row in `besom_waiting`, whose key is the identity.

use rusqlite::{Connection, OptionalExtension};

use super::error::Job;
use besom_ports::store::Error;

/// The version that this program writes and reads.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// Migration `n` leads from version `n` to version `n + 1`. A published migration never changes.
const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
];

/// The parameters that the store was created with.
pub(super) struct Foundation {
    /// Its number of partitions.
    pub(super) partitions: u32,
    /// Its unique identity.
    pub(super) identity: String,
}

/// Whether the engine's tables were created.
pub(super) fn has_tables(conn: &Connection) -> rusqlite::Result<bool> {
    let found = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'besom_meta'";
    Ok(conn.query_row(found, [], |row| row.get::<_, i64>(0))? > 0)
}

/// The parameters of a store of this version; none: it has yet to be created or migrated.
fn founded(conn: &mut Connection) -> Job<Option<Foundation>> {
    let tx = conn.transaction()?;
    if !has_tables(&tx)? {
        return Ok(None);
    }
    let noted = "SELECT value FROM besom_meta WHERE key = ?1";
    let version: Option<i64> = tx.query_row(noted, ["schema_version"], |r| r.get(0)).optional()?;
    let partitions = tx.query_row(noted, ["partitions"], |r| r.get(0)).optional()?;
    let identity = tx.query_row(noted, ["identity"], |r| r.get(0)).optional()?;
    let (Some(VERSION), Some(partitions), Some(identity)) = (version, partitions, identity) else {
        return Ok(None);
    };
    Ok(Some(Foundation { partitions, identity }))
}

/// Migrates the engine's tables to [`VERSION`] and returns the store's parameters. A new store is
/// created with `partitions`.
pub(super) fn migrate(conn: &mut Connection, partitions: u32, now: i64) -> Job<Foundation> {
    // If there is nothing to migrate, this waits for no other writer: a reader needs none.
    if let Some(founded) = founded(conn)? {
        return Ok(founded);
    }
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    tx.execute_batch(
        "CREATE TABLE IF NOT EXISTS besom_meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    )?;
    let found: i64 = tx
        .query_row("SELECT value FROM besom_meta WHERE key = 'schema_version'", [], |r| r.get(0))
        .optional()?
        .unwrap_or(0);
    if found > VERSION {
        return Err(Error::Invalid(format!(
            "the store has schema version {found}, but this program supports versions up to \
             {VERSION}: use the version of besom that wrote it, or a newer one"
        ))
        .into());
    }
    for sql in &MIGRATIONS[usize::try_from(found).unwrap_or(0)..] {
        tx.execute_batch(sql)?;
    }
    if found < VERSION {
        tx.execute(
            "INSERT INTO besom_meta VALUES ('schema_version', ?1)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [VERSION],
        )?;
    }
    if found == 0 {
        if partitions == 0 {
            return Err(Error::Invalid("a store needs at least one partition".into()).into());
        }
        tx.execute("INSERT INTO besom_meta VALUES ('partitions', ?1)", [partitions])?;
        tx.execute("INSERT INTO besom_meta VALUES ('created_at', ?1)", [now])?;
        let mut insert = tx.prepare("INSERT INTO besom_partition VALUES (?1, NULL, 0, 0, 0)")?;
        for id in 0..partitions {
            insert.execute([id])?;
        }
    }
    tx.execute(
        "INSERT OR IGNORE INTO besom_meta VALUES ('identity', lower(hex(randomblob(16))))",
        [],
    )?;
    let noted = "SELECT value FROM besom_meta WHERE key = ?1";
    let partitions = tx.query_row(noted, ["partitions"], |r| r.get(0))?;
    let identity = tx.query_row(noted, ["identity"], |r| r.get(0))?;
    tx.commit()?;
    Ok(Foundation { partitions, identity })
}
