//! A consumer in a process of its own, which the tests of `besom-feed` kill and freeze:
//!
//!     feed-member BROKERS NAME [DATABASE]
//!
//! It reads the topic NAME in the group NAME, and writes to topics or to the database: a file of SQLite, a URL
//! of PostgreSQL, or URLs of a Redis Cluster. It says what it is told on standard output, and leaves the group when its standard input
//! ends.

use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};

use besom_feed::{Notice, Settings};
use besom_tests::feed::{to_kafka, to_postgres, to_redis, to_sqlite};

#[expect(clippy::print_stdout, reason = "the test reads it")]
fn main() -> anyhow::Result<()> {
    static STOP: AtomicBool = AtomicBool::new(false);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [brokers, name, database @ ..] = arguments.as_slice() else {
        anyhow::bail!("feed-member BROKERS NAME [DATABASE]");
    };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        STOP.store(true, Ordering::Relaxed);
    });
    let mut settings = Settings::new(brokers, name, name);
    for (setting, value) in [
        ("session.timeout.ms", "3000"),
        ("heartbeat.interval.ms", "200"),
        ("transaction.timeout.ms", "3000"),
    ] {
        settings.kafka.insert(setting.into(), value.into());
    }
    let mut tell = |notice: Notice| match notice {
        Notice::Assigned { partition } => println!("assigned {partition}"),
        Notice::Revoked { partition } => println!("revoked {partition}"),
        Notice::Committed { messages } => println!("committed {messages}"),
        Notice::Anew(why) => println!("anew {why}"),
        other => println!("told {other:?}"),
    };
    match database {
        [url] if url.starts_with("postgres:") => {
            besom_feed::run(&settings, &mut to_postgres(url), &mut tell, &STOP)?;
        }
        [urls] if urls.starts_with("redis:") => {
            besom_feed::run(&settings, &mut to_redis(urls, name)?, &mut tell, &STOP)?;
        }
        [path] => {
            let mut sink = to_sqlite(rusqlite::Connection::open(path)?)?;
            besom_feed::run(&settings, &mut sink, &mut tell, &STOP)?;
        }
        _ => besom_feed::run(&settings, &mut to_kafka(&settings, name), &mut tell, &STOP)?,
    }
    Ok(())
}
