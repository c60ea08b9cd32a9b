//! Output to SQLite, in one transaction with positions and offsets.
//!
//! The tables `feed_offset`, `feed_position` and `feed_dead` are created in the database of the output. Who
//! begins with a partition raises its `owner` in `feed_offset`. A consumer that has lost the partition without
//! knowing it finds another number than its own, and commits nothing.

use std::collections::BTreeMap;

use rusqlite::ffi::{ErrorCode, SQLITE_CONSTRAINT_FOREIGNKEY};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::Error;
use crate::message::Message;
use crate::order::{Key, Position};
use crate::sink::{self, Batch, Kept, SetAside, Sink, Start, lost};

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS feed_offset (
    consumer TEXT NOT NULL, topic TEXT NOT NULL, \"partition\" INTEGER NOT NULL,
    next INTEGER NOT NULL, lost_below INTEGER NOT NULL, owner INTEGER NOT NULL,
    PRIMARY KEY (consumer, topic, \"partition\")) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS feed_position (
    consumer TEXT NOT NULL, topic TEXT NOT NULL, tenant TEXT NOT NULL, key TEXT NOT NULL,
    position TEXT NOT NULL,
    PRIMARY KEY (consumer, topic, tenant, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS feed_dead (
    id INTEGER PRIMARY KEY, consumer TEXT NOT NULL, topic TEXT NOT NULL,
    \"partition\" INTEGER NOT NULL, offset INTEGER NOT NULL, tenant TEXT NOT NULL,
    key TEXT NOT NULL, number INTEGER NOT NULL, payload BLOB NOT NULL, reason TEXT NOT NULL);";

/// Why a message was not applied.
pub type Failure = sink::Failure<rusqlite::Error>;

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        Error::Again(error.to_string())
    }
}

/// The words of the database, if it has refused a message for what this contains: trying again cannot help. A
/// row that a foreign key misses can still come.
fn refusal(error: &rusqlite::Error) -> Option<String> {
    let is_final = match error {
        rusqlite::Error::SqliteFailure(code, _) => {
            matches!(
                code.code,
                ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch
            ) && code.extended_code != SQLITE_CONSTRAINT_FOREIGNKEY
        }
        rusqlite::Error::ToSqlConversionFailure(_) => true,
        _ => false,
    };
    is_final.then(|| format!("SQLite refuses it: {error}"))
}

/// Applies messages with `handle`, whose statements are part of the transaction.
pub struct SqliteSink<F> {
    connection: Connection,
    consumer: String,
    handle: F,
    /// The owner's number of each partition that this consumer has.
    owners: BTreeMap<i32, i64>,
}

impl<F> SqliteSink<F>
where
    F: FnMut(&Connection, &Message) -> Result<(), Failure>,
{
    /// Creates the tables that are missing. `consumer` names who reads, so that several can keep their
    /// offsets in one database.
    ///
    /// # Errors
    /// The database's.
    pub fn new(connection: Connection, consumer: &str, handle: F) -> Result<Self, Error> {
        connection.busy_timeout(std::time::Duration::from_secs(10))?;
        connection.execute_batch(TABLES)?;
        let (consumer, owners) = (consumer.to_owned(), BTreeMap::new());
        Ok(SqliteSink { connection, consumer, handle, owners })
    }
}

impl<F> Sink for SqliteSink<F>
where
    F: FnMut(&Connection, &Message) -> Result<(), Failure>,
{
    fn begin(&mut self) -> Result<(), Error> {
        self.owners.clear();
        Ok(())
    }

    fn start(&mut self, topic: &str, partition: i32) -> Result<Start, Error> {
        let (kept, owner) = self.connection.query_row(
            "INSERT INTO feed_offset VALUES (?1, ?2, ?3, 0, 0, 1)
             ON CONFLICT DO UPDATE SET owner = owner + 1 RETURNING next, lost_below, owner",
            params![self.consumer, topic, partition],
            |row| Ok((Kept { next: row.get(0)?, lost_below: row.get(1)? }, row.get(2)?)),
        )?;
        self.owners.insert(partition, owner);
        Ok(Start::Kept(kept))
    }

    fn end(&mut self, partition: i32) {
        self.owners.remove(&partition);
    }

    fn positions(&mut self, topic: &str, keys: &[Key]) -> Result<Vec<(Key, Position)>, Error> {
        let mut statement = self.connection.prepare_cached(
            "SELECT position FROM feed_position
             WHERE consumer = ?1 AND topic = ?2 AND tenant = ?3 AND key = ?4",
        )?;
        let mut all = Vec::new();
        for key in keys {
            let found = statement
                .query_row(params![self.consumer, topic, key.tenant, key.key], |row| {
                    row.get::<_, String>(0)
                })
                .optional()?;
            if let Some(text) = found {
                all.push((key.clone(), sink::position(key, &text)?));
            }
        }
        Ok(all)
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        for progress in batch.progress {
            let mine = transaction.execute(
                "UPDATE feed_offset SET next = ?1, lost_below = ?2
                 WHERE consumer = ?3 AND topic = ?4 AND \"partition\" = ?5 AND owner = ?6",
                params![
                    progress.to.next,
                    progress.to.lost_below,
                    self.consumer,
                    batch.topic,
                    progress.partition,
                    self.owners.get(&progress.partition)
                ],
            )?;
            if mine == 0 {
                return Err(lost(batch.topic, progress.partition));
            }
        }
        for message in batch.accepted {
            let part = transaction.savepoint()?;
            let reason = match (self.handle)(&part, message) {
                Ok(()) => {
                    part.commit()?;
                    continue;
                }
                Err(Failure::Refused(reason)) => reason,
                // `ON CONFLICT ROLLBACK` has ended the transaction.
                Err(Failure::Database(error)) if part.is_autocommit() => return Err(error.into()),
                Err(Failure::Database(error)) => refusal(&error).ok_or(error)?,
            };
            // Dropped: what it did is undone.
            drop(part);
            let aside = SetAside { message: message.clone(), reason };
            set_aside(&transaction, &self.consumer, batch.topic, &aside)?;
        }
        for aside in batch.set_aside {
            set_aside(&transaction, &self.consumer, batch.topic, aside)?;
        }
        for (_, key, position) in batch.positions {
            let position = serde_json::to_string(position).expect("numbers");
            transaction.execute(
                "INSERT INTO feed_position VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT DO UPDATE SET position = excluded.position",
                params![self.consumer, batch.topic, key.tenant, key.key, position],
            )?;
        }
        Ok(transaction.commit()?)
    }
}

fn set_aside(
    transaction: &Transaction<'_>,
    consumer: &str,
    topic: &str,
    aside: &SetAside,
) -> Result<(), rusqlite::Error> {
    let SetAside { message, reason } = aside;
    let number = i64::try_from(message.number).unwrap_or(i64::MAX);
    transaction.execute(
        "INSERT INTO feed_dead (consumer, topic, \"partition\", offset, tenant, key, number, payload,
             reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            consumer,
            topic,
            message.partition,
            message.offset,
            message.key.tenant,
            message.key.key,
            number,
            message.payload,
            reason
        ],
    )?;
    Ok(())
}
