//! Runs that plan many times what is usual for their task, which a brake may not cover.

use serde::{Deserialize, Serialize};

use crate::command::counted;

/// How many times the usual number of items is unusual.
const TIMES: u64 = 10;
/// The number of earlier runs that tell what is usual, at most.
const RUNS_MAX: usize = 20;
/// The number of earlier runs that are needed to tell.
const RUNS_MIN: usize = 5;
/// The number of items up to which no run is unusual.
const FLOOR: u64 = 100;

/// The number of a task's newest runs that tell whether the last one is unusual.
pub const UNUSUAL_RUNS: u32 = 40;

/// The last run of a task that planned anything, if it planned many times what is usual.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unusual {
    /// The run's number in the store.
    pub run: u64,
    /// The number of items that it has planned.
    pub planned: u64,
    /// The median of the earlier runs that planned any.
    pub usual: u64,
}

impl Unusual {
    /// Compares the newest run that planned any with those before it. `runs` are the numbers of the task's runs
    /// and of their items, newest first. None: it is usual, small, or too few runs are known.
    pub fn of(runs: impl IntoIterator<Item = (u64, u64)>) -> Option<Unusual> {
        let mut planning = runs.into_iter().filter(|(_, planned)| *planned > 0);
        let (run, planned) = planning.next()?;
        let mut earlier: Vec<u64> = planning.take(RUNS_MAX).map(|(_, planned)| planned).collect();
        if earlier.len() < RUNS_MIN || planned <= FLOOR {
            return None;
        }
        earlier.sort_unstable();
        let usual = earlier[(earlier.len() - 1) / 2];
        (planned > usual.saturating_mul(TIMES)).then_some(Unusual { run, planned, usual })
    }

    /// The comparison in words.
    pub fn words(&self) -> String {
        let Unusual { run, planned, usual } = self;
        let items = counted(*planned, "item");
        format!("run {run} has planned {items}, more than {TIMES} times the usual {usual}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(planned: &[u64]) -> Option<(u64, u64)> {
        let runs = (1..=planned.len() as u64).rev().zip(planned.iter().copied());
        Unusual::of(runs).map(|unusual| (unusual.run, unusual.usual))
    }

    #[test]
    fn only_a_large_run_beside_enough_earlier_ones_is_unusual() {
        assert_eq!(of(&[301, 10, 20, 30, 40, 50]), Some((6, 30)));
        assert_eq!(of(&[300, 10, 20, 30, 40, 50]), None, "ten times the usual is allowed");
        assert_eq!(of(&[100, 1, 1, 1, 1, 1]), None, "few items");
        assert_eq!(of(&[9_000, 1, 1, 1, 1]), None, "nothing is usual yet");
        assert_eq!(
            of(&[0, 0, 301, 0, 10, 20, 30, 40, 50]),
            Some((7, 30)),
            "runs without items do not count"
        );
        assert_eq!(of(&[20, 9_000, 10, 20, 30, 40, 50]), None, "the last run is usual again");
        assert_eq!(of(&[]), None);
        let words = Unusual { run: 7, planned: 301, usual: 30 }.words();
        assert_eq!(words, "run 7 has planned 301 items, more than 10 times the usual 30");
    }
}
