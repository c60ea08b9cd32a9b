//! Watches the size of the write-ahead log: while a reader holds a snapshot, later writes cannot be
//! moved from the log into the database, and the log grows without bound.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::readers::OpenReads;

/// A log of this size is reported, and again whenever it has doubled.
pub(super) const LARGE: u64 = 64 << 20;

/// From this age on, a read of this host itself is the cause of a large log.
const OWN_MIN: Duration = Duration::from_secs(5);

/// The minimum interval between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Watches the size of one database's log.
pub(super) struct Watch {
    /// The log's file; none: the database is not in a file.
    file: Option<PathBuf>,
    reads: OpenReads,
    looked: Option<Instant>,
    /// The frames of the log at the last check, if a read kept some from being written back.
    kept: Option<i64>,
    said: Said,
}

impl Watch {
    pub(super) fn new(conn: &Connection, reads: OpenReads) -> Watch {
        let file = conn.path().filter(|path| !path.is_empty());
        let file = file.map(|path| PathBuf::from(format!("{path}-wal")));
        Watch { file, reads, looked: None, kept: None, said: Said::default() }
    }

    /// Checks the size after a commit on `conn`, if the interval has passed.
    pub(super) fn look(&mut self, conn: &Connection) {
        let Some(file) = &self.file else { return };
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let bytes = std::fs::metadata(file).map_or(0, |found| found.len());
        let kept = if bytes < LARGE { None } else { kept(conn) };
        // A large commit makes the log large as well; only a read that stays makes it grow.
        let before = std::mem::replace(&mut self.kept, kept.map(|(frames, _)| frames));
        let stays = before.zip(kept).is_some_and(|(before, (_, written))| written < before);
        if (stays || bytes < LARGE) && self.said.is_news(bytes) {
            let cause = cause(self.reads.oldest());
            tracing::warn!(
                file = %file.display(), mib = bytes >> 20,
                "SQLite's write-ahead log is growing: {cause}"
            );
        }
    }
}

/// Writes the log back; if a read keeps a part of it from that, its frames, and those that are written.
fn kept(conn: &Connection) -> Option<(i64, i64)> {
    let done = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        Ok((row.get::<_, bool>(0)?, row.get(1)?, row.get(2)?))
    });
    // Busy: another thread is at it.
    let (busy, frames, written) = done.ok()?;
    (!busy && written < frames).then_some((frames, written))
}

/// Why the log grows, and the fix. `own` is the age of the oldest read that this host has open.
fn cause(own: Option<Duration>) -> String {
    match own.filter(|age| *age >= OWN_MIN) {
        Some(age) => format!(
            "this host has had a read open for {} s, such as the snapshot of a task's call, and the \
             log cannot be written back to the database until it ends; shorten calls with the task's \
             limits.wall, or lower host.act_snapshot_max",
            age.as_secs()
        ),
        None => "no read of this host has been open for long, so another process holds a read \
                 transaction open, and the log cannot be written back to the database until it ends; \
                 end that reader (a shell, a backup, a connection of your product)"
            .to_owned(),
    }
}

/// The size that was reported last.
#[derive(Default)]
struct Said(u64);

impl Said {
    /// Whether that size has to be reported. After the log was written back, reports start over.
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

    #[test]
    fn the_cause_is_the_read_that_is_open_of_this_host_or_of_another_process() {
        let reads = OpenReads::default();
        let (first, second) = (reads.begin(), reads.begin());
        assert!(reads.oldest().is_some_and(|age| cause(Some(age)).contains("another process")));
        let long = cause(Some(OWN_MIN));
        assert!(long.contains("this host has had a read open for 5 s"), "{long}");
        assert!(!long.contains("another process"), "{long}");
        let still = reads.oldest();
        drop((first, second));
        assert!(still.is_some() && reads.oldest().is_none());
        assert!(cause(None).contains("another process"));
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
        let mut watch = Watch::new(&writer, OpenReads::default());
        let rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4096)
                    INSERT INTO t SELECT randomblob(4000) FROM n";
        // 16 MiB and a little more each time.
        for _ in 0..5 {
            writer.execute_batch(rows).unwrap();
            watch.looked = None;
            watch.look(&writer);
        }
        assert!(watch.said.0 >= LARGE, "{}", watch.said.0);
    }

    #[test]
    fn a_log_that_a_large_commit_has_made_large_is_not_reported() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (x BLOB)").unwrap();
        let mut watch = Watch::new(&writer, OpenReads::default());
        for _ in 0..2 {
            writer.execute_batch("INSERT INTO t VALUES (zeroblob(80 << 20))").unwrap();
            let bytes = std::fs::metadata(watch.file.as_ref().unwrap()).unwrap().len();
            assert!(bytes >= LARGE, "{bytes}");
            watch.looked = None;
            watch.look(&writer);
        }
        assert_eq!(watch.said.0, 0);
    }
}
