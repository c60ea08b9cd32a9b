//! How large the write-ahead log is: a reader that holds a snapshot keeps everything that is
//! written meanwhile from going back into the database, and the log grows without a bound.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// From this size on something is said, and again whenever it has doubled.
pub(super) const LARGE: u64 = 64 << 20;

/// How often it is looked at, at most.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Watches the size of one database's log.
pub(super) struct Watch {
    /// The log's file; none: the database is in no file.
    file: Option<PathBuf>,
    looked: Option<Instant>,
    said: Said,
}

impl Watch {
    pub(super) fn new(conn: &Connection) -> Watch {
        let file = conn.path().filter(|path| !path.is_empty());
        let file = file.map(|path| PathBuf::from(format!("{path}-wal")));
        Watch { file, looked: None, said: Said::default() }
    }

    /// Looks at it after a commit, now and then.
    pub(super) fn look(&mut self) {
        let Some(file) = &self.file else { return };
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let bytes = std::fs::metadata(file).map_or(0, |found| found.len());
        if self.said.is_news(bytes) {
            tracing::warn!(
                file = %file.display(), mib = bytes >> 20,
                "SQLite's write-ahead log grows: somebody reads the database in one transaction \
                 for long, and until it ends nothing is written back; end that reader (a shell, a \
                 backup, a connection of your product's)"
            );
        }
    }
}

/// What was said about the size.
#[derive(Default)]
struct Said(u64);

impl Said {
    /// Whether that size is worth a word. A log that was written back starts anew.
    fn is_news(&mut self, bytes: u64) -> bool {
        if bytes < LARGE {
            self.0 = 0;
            return false;
        }
        let news = bytes >= self.0.saturating_mul(2);
        if news {
            self.0 = bytes;
        }
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_spoken_of_when_it_is_large_and_whenever_it_has_doubled() {
        let mut said = Said::default();
        for (bytes, news) in [
            (0, false),
            (LARGE - 1, false),
            (LARGE, true),
            (LARGE + 1, false),
            (2 * LARGE, true),
            (3 * LARGE, false),
            (4 * LARGE, true),
            (0, false),
            (LARGE, true),
        ] {
            assert_eq!(said.is_news(bytes), news, "{bytes}");
        }
    }

    /// A reader that stays keeps the log growing, and its size is seen.
    #[test]
    fn the_log_beside_a_reader_that_stays_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE t (x BLOB); INSERT INTO t VALUES (1)",
            )
            .unwrap();
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
        let mut watch = Watch::new(&writer);
        let rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4096)
                    INSERT INTO t SELECT randomblob(4000) FROM n";
        // 16 MiB and a little more each time.
        for _ in 0..5 {
            writer.execute_batch(rows).unwrap();
            watch.looked = None;
            watch.look();
        }
        assert!(watch.said.0 >= LARGE, "{}", watch.said.0);
    }
}
