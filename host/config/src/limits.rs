//! `[tasks.NAME.limits]`: the limits of one call of a plugin.
//!
//! The defaults depend on the lane: [`Row::limits`](besom_core::lane::Row::limits).

use std::time::Duration;

use super::keys::{Bytes, Fault, U64OrNone, defaults, keys};
use super::quantity::{ms, secs};
use super::tree::Table;
use super::walk::Walker;
use besom_ports::guests::{Lane, Limits};
use besom_runtime::built_in;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

keys! {
    /// Limits of one call of the plugin.
    // The defaults are those that most lanes have.
    #[derive(Debug, Clone, Default)]
    pub struct LimitsTable {
        /// Maximum linear memory of one instance.
        memory_bytes: Bytes = "128MiB", within MIB..=4 * GIB;
        /// Fuel of one call, about one unit per instruction; 0 disables counting.
        fuel: U64OrNone = 2000000000, within 10_000..=u64::MAX / 2;
        /// Maximum amount of data that one host call may copy out of the plugin, approximately in bytes.
        hostcall_fuel: u64 = 33554432, within 4096..=4 * GIB;
        /// Maximum wall-clock time of one call, including waits for the database.
        wall: Duration = "10s", within ms(10)..=secs(3_600);
        /// Maximum number of items in one call.
        batch_items: u32 = 1000, within 1..=10_000;
        /// Maximum total size of the items in one call.
        batch_bytes: Bytes = "1MiB", within 4096..=64 * MIB;
        /// Maximum number of rows that one call may read.
        rows_read: u64 = 100000, within 1..=100_000_000;
        /// Maximum size of the result of one read; a page of a range read ends with the row that reaches it.
        read_bytes: Bytes = "16MiB", within 64 << 10..=4 * GIB;
        /// Maximum number of changes of one item, not counting the rows of read sets.
        changes: u32 = 1000, within 1..=1_000_000;
        /// Maximum number of rows that one item may delete, including the rows of read sets.
        deletes: u64 = 10000, within 0..=100_000_000;
        /// Maximum size of the log that is kept of one call.
        log_bytes: Bytes = "64KiB", within 0..=16 * MIB;
    }
}

/// Returns the limits of a task without `[tasks.NAME.limits]`.
pub fn default_limits(lane: Lane) -> Limits {
    settle(of_lane(lane))
}

/// Reads the limits of a task; missing keys have the defaults of its lane and plugin.
pub fn read(
    walker: &mut Walker<'_>,
    path: &str,
    table: &Table,
    lane: Lane,
    plugin: &str,
) -> Limits {
    let mut limits = of_lane(lane);
    if built_in::is_uncounted(plugin) {
        limits.fuel = 0;
    }
    walker.read(&format!("{path}.limits"), table, LimitsTable::KEYS, &[], &mut limits);
    settle(limits)
}

/// Checks a value of one of the keys.
///
/// # Errors
/// An unknown key, or what is wrong with the value.
pub fn judge(key: &str, text: &str) -> Result<(), Fault> {
    match LimitsTable::KEYS.iter().find(|known| known.name == key) {
        Some(known) => known.read_text(&mut of_lane(Lane::Normal), text),
        None => Err(Fault::new(format!("there is no limit `{key}`"))),
    }
}

fn settle(table: LimitsTable) -> Limits {
    Limits {
        memory_bytes: table.memory_bytes,
        fuel: table.fuel,
        hostcall_fuel: table.hostcall_fuel,
        wall_ms: u64::try_from(table.wall.as_millis()).unwrap_or(u64::MAX),
        batch_items: table.batch_items,
        batch_bytes: table.batch_bytes,
        rows_read: table.rows_read,
        read_bytes: table.read_bytes,
        changes: table.changes,
        deletes: table.deletes,
        log_bytes: table.log_bytes,
    }
}

fn of_lane(lane: Lane) -> LimitsTable {
    let mut table = defaults(LimitsTable::KEYS);
    for (name, text) in lane.row().limits {
        let key = LimitsTable::KEYS.iter().find(|k| k.name == *name).expect("a key of the list");
        key.read_text(&mut table, text).expect("a value of its type");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_work_gets_more_and_every_limit_is_set() {
        let (normal, heavy) = (default_limits(Lane::Normal), default_limits(Lane::Heavy));
        assert_eq!((normal.wall_ms, heavy.wall_ms), (10_000, 120_000));
        assert!(heavy.fuel > normal.fuel && heavy.rows_read > normal.rows_read);
        assert!(normal.hostcall_fuel > 0 && normal.changes > 0 && normal.log_bytes > 0);
    }
}
