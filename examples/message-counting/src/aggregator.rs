//! Counts how often each line came: counts and offsets are one transaction of SQLite.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, Result};
use besom_feed::sqlite::{Failure, SqliteSink};
use besom_feed::{Message, Numbering, Settings, run as feed};
use rusqlite::Connection;

use crate::{Consuming, TEXTS};

const TABLE: &str = "CREATE TABLE IF NOT EXISTS message_count (
    text TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID";
const COUNT: &str = "INSERT INTO message_count VALUES (?1, 1)
    ON CONFLICT DO UPDATE SET count = count + 1";

fn count(database: &Connection, message: &Message) -> Result<(), Failure> {
    database.prepare_cached(COUNT)?.execute([&message.key.key])?;
    Ok(())
}

pub(crate) fn open(path: &Path) -> Result<Connection> {
    let database = Connection::open(path).with_context(|| path.display().to_string())?;
    database.busy_timeout(std::time::Duration::from_secs(10))?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.execute_batch(TABLE)?;
    Ok(database)
}

pub(crate) fn run(consuming: &Consuming, path: &Path) -> Result<()> {
    let mut settings = Settings::new(&consuming.brokers, TEXTS, "aggregator");
    settings.instance.clone_from(&consuming.instance);
    // The counter writes each line once, so offsets tell the records apart.
    settings.numbering = Numbering::Offsets;
    let mut sink = SqliteSink::new(open(path)?, "aggregator", count)?;
    let mut tell = crate::tell(&settings);
    Ok(feed(&settings, &mut sink, &mut tell, &AtomicBool::new(false))?)
}
