//! Writes the write-ahead log back into the database beside the writer.
//!
//! SQLite's own way is to do it within the commit that makes the log long, so that every write
//! waits for the disk. Here another thread does it on its own connection, which blocks neither
//! writers nor readers. The log starts over once all of it is written back; if the writer is too
//! busy for that, the writer finishes the rest itself.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::damage::Damage;
use besom_ports::store::{Error, Result};

/// How far the log grows.
struct Sizes {
    /// Whenever it has grown by this size, in pages, it is written back. Each time costs a write to the disk, also of
    /// pages that will be written again soon.
    step: c_int,
    /// From this size on, in pages, the writer does it, unless the thread is at it.
    max: c_int,
}

/// While no other process writes: 16 and 48 MiB with pages of 4 KiB.
const ALONE: Sizes = Sizes { step: 4_000, max: 12_000 };
/// Another process would write a log of more than 1,000 pages back within its own commit, by SQLite's default.
const BESIDE_OTHERS: Sizes = Sizes { step: 500, max: 4_000 };

/// Takes `beside`, a connection to the same database, for a thread that writes back the log of
/// `writer`. The thread ends when `writer` is closed. `others_write`: whether other processes do.
pub(super) fn start(
    writer: &mut Connection,
    beside: Connection,
    damage: Damage,
    others_write: Arc<AtomicBool>,
) -> Result<JoinHandle<()>> {
    let (wanted, wants) = sync_channel(1);
    let failed = |e: &dyn std::fmt::Display| {
        Error::Unavailable(format!("cannot write back the write-ahead log: {e}"))
    };
    let mut asked = 0;
    // This replaces the checkpoint at each commit.
    let hook = move |wal: &mut Wal, pages| {
        let sizes = if others_write.load(Ordering::Relaxed) { BESIDE_OTHERS } else { ALONE };
        on_commit(wal, pages, &sizes, &mut asked, &wanted)
    };
    writer.wal_hook(Some(hook)).map_err(|e| failed(&e))?;
    std::thread::Builder::new()
        .name("besom-sqlite-wal".into())
        .spawn(move || {
            write_back(&beside, &wants, &damage);
            damage.spare(&beside);
        })
        .map_err(|e| failed(&e))
}

/// `asked`: the size of the log when the thread was asked last.
fn on_commit(
    wal: &mut Wal,
    pages: c_int,
    sizes: &Sizes,
    asked: &mut c_int,
    wanted: &SyncSender<()>,
) -> rusqlite::Result<()> {
    if pages < *asked {
        // The log has started over.
        *asked = 0;
    }
    let alone = if pages - *asked >= sizes.step {
        *asked = pages;
        matches!(wanted.try_send(()), Err(TrySendError::Disconnected(())))
    } else {
        false
    };
    if alone || pages >= sizes.max {
        // The commit has happened: an error here, such as a full disk, must not deny it.
        if let Err(error) = wal.checkpoint() {
            tracing::debug!(%error, pages, "the write-ahead log was not written back");
        }
    }
    Ok(())
}

fn write_back(conn: &Connection, wants: &Receiver<()>, damage: &Damage) {
    while wants.recv().is_ok() && damage.found().is_none() {
        // What a reader or another checkpoint keeps is left for the next request.
        let done = conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if let Err(error) = done {
            tracing::debug!(%error, "the write-ahead log was not written back");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const MIB_16: &str =
        "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4096)
        INSERT INTO t SELECT randomblob(4000) FROM n";

    fn open(path: &Path) -> Connection {
        let conn = Connection::open(path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS t (x BLOB)")
            .unwrap();
        conn
    }

    /// The rows that the database has without its log; none while it has no table.
    fn rows_without_the_log(path: &Path) -> i64 {
        let copy = path.with_extension("copy");
        std::fs::copy(path, &copy).unwrap();
        let copy = Connection::open(copy).unwrap();
        copy.query_row("SELECT count(*) FROM t", [], |r| r.get(0)).unwrap_or(0)
    }

    #[test]
    fn what_is_committed_is_written_back_beside_the_writer() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let mut writer = open(&path);
        let others_write = Arc::default();
        let thread = start(&mut writer, open(&path), Damage::of(&path), others_write).unwrap();
        writer.execute_batch(MIB_16).unwrap();
        while rows_without_the_log(&path) == 0 {
            std::thread::yield_now();
        }
        drop(writer);
        thread.join().unwrap();
    }

    #[test]
    fn without_the_thread_the_writer_bounds_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        let mut writer = open(&path);
        let (wanted, wants) = sync_channel(1);
        let mut asked = 0;
        let hook = move |wal: &mut Wal, pages| on_commit(wal, pages, &ALONE, &mut asked, &wanted);
        writer.wal_hook(Some(hook)).unwrap();
        for _ in 0..8 {
            writer.execute_batch(MIB_16).unwrap();
        }
        // Nobody has taken a request.
        assert!(wants.try_recv().is_ok());
        let log = std::fs::metadata(path.with_extension("db-wal")).unwrap().len();
        assert!(log < 64 << 20, "{} MiB of log after 128 MiB", log >> 20);
        assert!(rows_without_the_log(&path) > 0);
    }
}
