//! The errors of reads and guards that take too long.

use std::time::Duration;

use besom_ports::store::Error;
use besom_snapshot::Cause;

/// A snapshot was closed because its time was over.
pub fn snapshot_closed(open_max: Duration) -> Error {
    let longest = open_max.as_millis();
    let words = format!("the snapshot was open for longer than {longest} ms and was closed");
    Error::Refused(Cause::Slow, words)
}

/// A read was interrupted at the deadline of the guest's call.
pub fn read_cancelled() -> Error {
    Error::Refused(Cause::Slow, "a read was cancelled: the call exceeded its deadline".to_owned())
}

/// A statement of a commit took longer than the server allows. Waits for locks end before.
pub fn commit_cancelled(max: Duration, said: &str) -> Error {
    let millis = max.as_millis();
    Error::TimedOut(format!(
        "{said}; a statement of a commit has {millis} ms (`store.statement_timeout`)"
    ))
}

/// The guards of a commit took too long. A batch with such guards cannot be committed as a whole: its
/// items are retried one by one, and an item whose own guards take this long fails.
pub fn guards_cancelled(max: Duration) -> Error {
    Error::GuardsTimedOut(format!(
        "guards took longer than {} ms (`store.guard_timeout`)",
        max.as_millis()
    ))
}
