//! Counts how often each line came, in a Redis Cluster or in SQLite, each line once.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context as _, Result};
use besom_feed::redis::{Command, RedisSink};
use besom_feed::sqlite::{Failure, SqliteSink};
use besom_feed::{Message, Numbering, Settings, run as feed};
use redis::cluster::{ClusterClient, ClusterConnection};
use rusqlite::Connection;

use crate::{Consuming, TEXTS};

/// The counts in Redis: `message_count:{TEXT}`.
pub(crate) const COUNT: &str = "message_count";
const TABLE: &str = "CREATE TABLE IF NOT EXISTS message_count (
    text TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID";
const COUNT_ROW: &str = "INSERT INTO message_count VALUES (?1, 1)
    ON CONFLICT DO UPDATE SET count = count + 1";

#[derive(clap::Args)]
pub(crate) struct Place {
    /// Nodes of the Redis Cluster of the counts, each with a replica: redis://host:port, separated by commas.
    #[arg(long, value_delimiter = ',', conflicts_with = "database")]
    pub(crate) redis: Vec<String>,
    /// The SQLite database of the counts, if they are not in Redis.
    #[arg(long, default_value = "counts.db")]
    pub(crate) database: PathBuf,
}

pub(crate) fn connect(urls: &[String]) -> redis::RedisResult<ClusterConnection> {
    // The feed itself tries again, so that it ends when it is stopped.
    let nodes = ClusterClient::builder(urls.iter().map(String::as_str)).retries(1);
    nodes.response_timeout(Duration::from_secs(5)).build()?.get_connection()
}

pub(crate) fn open(path: &Path) -> Result<Connection> {
    let database = Connection::open(path).with_context(|| path.display().to_string())?;
    database.busy_timeout(Duration::from_secs(10))?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.execute_batch(TABLE)?;
    Ok(database)
}

fn count_row(database: &Connection, message: &Message) -> Result<(), Failure> {
    database.prepare_cached(COUNT_ROW)?.execute([&message.key.key])?;
    Ok(())
}

pub(crate) fn run(consuming: &Consuming, place: &Place) -> Result<()> {
    let mut settings = Settings::new(&consuming.brokers, TEXTS, "aggregator");
    settings.instance.clone_from(&consuming.instance);
    // The counter writes each line once, so offsets tell the records apart.
    settings.numbering = Numbering::Offsets;
    let (mut tell, stop) = (crate::tell(&settings), AtomicBool::new(false));
    if place.redis.is_empty() {
        let mut sink = SqliteSink::new(open(&place.database)?, "aggregator", count_row)?;
        return Ok(feed(&settings, &mut sink, &mut tell, &stop)?);
    }
    let count = |_: &Message| Ok(vec![Command::new("INCR", COUNT)]);
    let sink = RedisSink::new(|| connect(&place.redis), "aggregator", count)?;
    // A replica has a count before the feed goes past its line, so a failover takes no line back.
    let mut sink = sink.with_replicas(1, Duration::from_secs(2));
    Ok(feed(&settings, &mut sink, &mut tell, &stop)?)
}
