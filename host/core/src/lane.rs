//! The lanes: the priority classes of work on a node, as rows of a table.
//!
//! What distinguishes one lane from another is in its row, so that a new lane is a row here and a
//! key of the configuration. The enum of the WIT package is frozen: a plugin could request a lane
//! that the enum lacks only in the `extra` list of its manifest, where no host looks for one.

use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A lane, from the highest priority to the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Items with a due time. They take precedence over the other lanes.
    Due,
    /// Work that is neither due nor heavy.
    Normal,
    /// Work that may take long. Its commits yield to due items.
    Heavy,
}

/// What distinguishes a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The lane.
    pub lane: Lane,
    /// Its name in the configuration, in reports and in the keys `host.NAME_batches`.
    pub name: &'static str,
    /// Whether the operator must grant it to a plugin that is not built in.
    pub granted: bool,
    /// The default of `host.NAME_batches`: how many batches a node executes at once.
    pub batches: u32,
    /// How many further batches may be ready: waiting for their time, or in their commit.
    pub ready: usize,
    /// Whether its items must not be late. Then a run plans everything in its window, a new leader
    /// scans at once, items are executed ahead of their time, other lanes cannot fill the window of
    /// their timers, and its writes precede others in the store's queue.
    pub punctual: bool,
    /// Whether its batches always take long. Then its guests run on threads of low priority, and a
    /// long batch has no place of its own beside the others.
    pub long: bool,
    /// Whether its commits wait for items of the punctual lanes that fall due meanwhile, at most for
    /// `host.heavy_wait_max`.
    pub yields: bool,
    /// Whether the history records the cost of deciding about each item.
    pub metered: bool,
    /// The default of `tasks.NAME.timers_max`: items waiting for their time.
    pub timers_max: u32,
    /// The defaults of `tasks.NAME.limits` that differ from those of the other lanes, as in the
    /// configuration.
    pub limits: &'static [(&'static str, &'static str)],
}

/// All lanes, from the highest priority to the lowest.
pub const LANES: &[Row; 3] = &[
    Row {
        lane: Lane::Due,
        name: "due",
        granted: true,
        batches: 2,
        ready: 8,
        punctual: true,
        long: false,
        yields: false,
        metered: false,
        timers_max: 10_000_000,
        // What falls due in the meantime waits for a commit to end.
        limits: &[("batch_items", "256")],
    },
    Row {
        lane: Lane::Normal,
        name: "normal",
        granted: false,
        batches: 2,
        ready: 1,
        punctual: false,
        long: false,
        yields: false,
        metered: false,
        timers_max: 1_000_000,
        limits: &[],
    },
    Row {
        lane: Lane::Heavy,
        name: "heavy",
        granted: true,
        batches: 2,
        ready: 1,
        punctual: false,
        long: true,
        yields: true,
        metered: true,
        timers_max: 1_000_000,
        limits: &[
            ("memory_bytes", "1GiB"),
            ("fuel", "200000000000"),
            ("hostcall_fuel", "134217728"),
            ("wall", "120s"),
            ("batch_items", "64"),
            ("rows_read", "2000000"),
            ("read_bytes", "128MiB"),
            ("deletes", "2000000"),
        ],
    },
];

/// The names of the lanes; those that need no grant are first.
pub const NAMES: &[&str] = &{
    let mut names = [""; LANES.len()];
    let (mut n, mut at) = (0, 0);
    while at < 2 * LANES.len() {
        let row = &LANES[at % LANES.len()];
        if row.granted == (at >= LANES.len()) {
            names[n] = row.name;
            n += 1;
        }
        at += 1;
    }
    names
};

impl Lane {
    /// Its row.
    pub fn row(self) -> &'static Row {
        &LANES[self as usize]
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Those whose items must not be late.
    pub fn punctual() -> impl Iterator<Item = Lane> {
        LANES.iter().filter(|row| row.punctual).map(|row| row.lane)
    }
}

/// A value for each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerLane<T>([T; LANES.len()]);

impl<T> PerLane<T> {
    /// The value of each lane by its row.
    pub fn of(value: impl FnMut(&'static Row) -> T) -> PerLane<T> {
        PerLane(LANES.each_ref().map(value))
    }
}

impl<T> Index<Lane> for PerLane<T> {
    type Output = T;

    fn index(&self, lane: Lane) -> &T {
        &self.0[lane as usize]
    }
}

impl<T> IndexMut<Lane> for PerLane<T> {
    fn index_mut(&mut self, lane: Lane) -> &mut T {
        &mut self.0[lane as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_lanes() {
        for (at, row) in LANES.iter().enumerate() {
            assert_eq!((row.lane as usize, row.lane.row()), (at, row));
            assert_eq!(serde_json::to_value(row.lane).expect("a name"), row.name);
        }
        assert_eq!(NAMES, ["normal", "due", "heavy"]);
    }
}
