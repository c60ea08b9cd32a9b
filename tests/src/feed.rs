//! The sinks of the tests of `besom-feed`: they write each message again, except "poison".

use besom_feed::kafka::{KafkaSink, Record};
use besom_feed::postgres::{Failure as PostgresFailure, PostgresSink};
use besom_feed::redis::{Command, RedisSink};
use besom_feed::sink::Sink;
use besom_feed::sqlite::{Failure, SqliteSink};
use besom_feed::{Message, Settings};
use rusqlite::Connection;

const REFUSED: &str = "it cannot be applied";

/// Writes to NAME-out, counts the messages of each key in NAME-state by dots, and sets aside in NAME-dead.
pub fn to_kafka(settings: &Settings, name: &str) -> impl Sink + use<> {
    let topic = format!("{name}-out");
    let handle = move |message: &Message, seen: &mut String| {
        if message.payload == b"poison" {
            return Err(REFUSED.to_owned());
        }
        seen.push('.');
        let (key, payload) = (message.key.key.clone(), message.payload.clone());
        Ok(vec![Record { topic: topic.clone(), key, payload, headers: Vec::new() }])
    };
    KafkaSink::new(settings, &format!("{name}-state"), &format!("{name}-dead"), handle)
}

/// Writes to the table `output`, which it creates.
///
/// # Errors
/// The database's.
pub fn to_sqlite(database: Connection) -> Result<impl Sink, besom_feed::Error> {
    database.busy_timeout(std::time::Duration::from_secs(60))?;
    database.execute_batch(
        "PRAGMA journal_mode = wal;
         CREATE TABLE IF NOT EXISTS output (id INTEGER PRIMARY KEY, key, payload)",
    )?;
    let insert = "INSERT INTO output (key, payload) VALUES (?1, ?2)";
    let handle = move |database: &Connection, message: &Message| {
        let payload = String::from_utf8_lossy(&message.payload).into_owned();
        database.prepare_cached(insert)?.execute([&message.key.key, &payload])?;
        match payload.as_str() {
            "poison" => Err(Failure::Refused(REFUSED.into())),
            _ => Ok(()),
        }
    };
    SqliteSink::new(database, "test", handle)
}

/// Writes to the table `output`, which exists.
pub fn to_postgres(url: &str) -> impl Sink + use<> {
    let url = url.to_owned();
    let connect = move || postgres::Client::connect(&url, postgres::NoTls);
    let insert = "INSERT INTO output (key, payload) VALUES ($1, $2)";
    let handle = move |database: &mut postgres::Transaction<'_>, message: &Message| {
        let payload = String::from_utf8_lossy(&message.payload).into_owned();
        database.execute(insert, &[&message.key.key, &payload])?;
        match payload.as_str() {
            "poison" => Err(PostgresFailure::Refused(REFUSED.into())),
            _ => Ok(()),
        }
    };
    PostgresSink::new(connect, "test", handle)
}

/// Appends to the list `NAME-out` of each key. "wrong" is a command that Redis refuses, "half" a second one.
///
/// # Errors
/// The name has a brace.
pub fn to_redis(urls: &str, name: &str) -> Result<impl Sink + use<>, besom_feed::Error> {
    let urls: Vec<String> = urls.split(',').map(str::to_owned).collect();
    let connect = move || redis::cluster::ClusterClient::new(urls.clone())?.get_connection();
    let list = format!("{name}-out");
    let handle = move |message: &Message| {
        let append = Command::new("RPUSH", &list).arg(&message.payload);
        match message.payload.as_slice() {
            b"poison" => Err(REFUSED.to_owned()),
            b"wrong" => Ok(vec![Command::new("INCR", &list), append]),
            b"half" => Ok(vec![append, Command::new("INCR", &list)]),
            _ => Ok(vec![append]),
        }
    };
    RedisSink::new(connect, name, handle)
}
