//! `[tasks.NAME.limits]`: the limits of one call of a plugin.
//!
//! The defaults depend on the lane: [`Row::limits`](besom_core::lane::Row::limits).

use std::time::Duration;

use super::keys::{Fault, Key, Setter};
use super::tree::Table;
use super::walk::Walker;
use besom_ports::guests::{Lane, Limits};
use besom_runtime::built_in;

/// The values of [`KEYS`]; the wall-clock time is kept as a duration.
#[derive(Debug, Clone)]
pub struct LimitsTable {
    limits: Limits,
    wall: Duration,
}

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The keys, with the defaults that most lanes have.
pub static KEYS: &[Key<LimitsTable>] = &[
    Key {
        name: "memory_bytes",
        default: "\"128MiB\"",
        doc: "Maximum linear memory of one instance.",
        setter: Setter::Bytes(|l| &mut l.limits.memory_bytes, MIB, 4 * GIB),
    },
    Key {
        name: "fuel",
        default: "2000000000",
        doc: "Fuel of one call, about one unit per instruction; 0 disables counting.",
        setter: Setter::U64OrNone(|l| &mut l.limits.fuel, 10_000, u64::MAX / 2),
    },
    Key {
        name: "hostcall_fuel",
        default: "33554432",
        doc: "Maximum amount of data that one host call may copy out of the plugin, approximately in bytes.",
        setter: Setter::U64(|l| &mut l.limits.hostcall_fuel, 4096, 4 * GIB),
    },
    Key {
        name: "wall",
        default: "\"10s\"",
        doc: "Maximum wall-clock time of one call, including waits for the database.",
        setter: Setter::Duration(
            |l| &mut l.wall,
            Duration::from_millis(10),
            Duration::from_secs(3_600),
        ),
    },
    Key {
        name: "batch_items",
        default: "1000",
        doc: "Maximum number of items in one call.",
        setter: Setter::U32(|l| &mut l.limits.batch_items, 1, 10_000),
    },
    Key {
        name: "batch_bytes",
        default: "\"1MiB\"",
        doc: "Maximum total size of the items in one call.",
        setter: Setter::Bytes(|l| &mut l.limits.batch_bytes, 4096, 64 * MIB),
    },
    Key {
        name: "rows_read",
        default: "100000",
        doc: "Maximum number of rows that one call may read.",
        setter: Setter::U64(|l| &mut l.limits.rows_read, 1, 100_000_000),
    },
    Key {
        name: "read_bytes",
        default: "\"16MiB\"",
        doc: "Maximum size of the result of one read; a page of a range read ends with the row that reaches it.",
        setter: Setter::Bytes(|l| &mut l.limits.read_bytes, 64 << 10, 4 * GIB),
    },
    Key {
        name: "changes",
        default: "1000",
        doc: "Maximum number of changes of one item, not counting the rows of read sets.",
        setter: Setter::U32(|l| &mut l.limits.changes, 1, 1_000_000),
    },
    Key {
        name: "deletes",
        default: "10000",
        doc: "Maximum number of rows that one item may delete, including the rows of read sets.",
        setter: Setter::U64(|l| &mut l.limits.deletes, 0, 100_000_000),
    },
    Key {
        name: "log_bytes",
        default: "\"64KiB\"",
        doc: "Maximum size of the log that is kept of one call.",
        setter: Setter::Bytes(|l| &mut l.limits.log_bytes, 0, 16 * MIB),
    },
];

/// Returns the limits of a task without `[tasks.NAME.limits]`.
pub fn default_limits(lane: Lane) -> Limits {
    settle(defaults(lane))
}

/// Reads the limits of a task; missing keys have the defaults of its lane and plugin.
pub fn read(
    walker: &mut Walker<'_>,
    path: &str,
    table: &Table,
    lane: Lane,
    plugin: &str,
) -> Limits {
    let mut limits = defaults(lane);
    if built_in::is_uncounted(plugin) {
        limits.limits.fuel = 0;
    }
    walker.read(&format!("{path}.limits"), table, KEYS, &[], &mut limits);
    settle(limits)
}

/// Checks a value of one of the keys.
///
/// # Errors
/// An unknown key, or what is wrong with the value.
pub fn judge(key: &str, text: &str) -> Result<(), Fault> {
    match KEYS.iter().find(|known| known.name == key) {
        Some(known) => known.read_text(&mut defaults(Lane::Normal), text),
        None => Err(Fault::new(format!("there is no limit `{key}`"))),
    }
}

fn settle(table: LimitsTable) -> Limits {
    let wall_ms = u64::try_from(table.wall.as_millis()).unwrap_or(u64::MAX);
    Limits { wall_ms, ..table.limits }
}

fn defaults(lane: Lane) -> LimitsTable {
    let limits = Limits {
        memory_bytes: 0,
        fuel: 0,
        hostcall_fuel: 0,
        wall_ms: 0,
        batch_items: 0,
        batch_bytes: 0,
        rows_read: 0,
        read_bytes: 0,
        changes: 0,
        deletes: 0,
        log_bytes: 0,
    };
    let mut table = LimitsTable { limits, wall: Duration::ZERO };
    for key in KEYS {
        key.set_default(&mut table);
    }
    for (name, text) in lane.row().limits {
        let key = KEYS.iter().find(|k| k.name == *name).expect("a key of the list");
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
