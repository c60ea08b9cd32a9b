//! What a repair writes off: items that are counted and exist nowhere.

use super::{Delta, Leaving};

/// Items of one task and tenant, by where they wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// In the log.
    pub log: i64,
    /// As timers.
    pub timers: i64,
    /// Among the retries.
    pub retries: i64,
}

/// The additions to the counters of a task and tenant that write off what they count and what is not
/// there; none: nothing is lost. The lost items count as discarded, and the baseline of the history
/// keeps as many, because no row says so.
pub fn write_off(counted: WaitingCounts, there: WaitingCounts) -> Option<Delta> {
    let lost = |counted: i64, there: i64| (counted - there).max(0);
    let log = lost(counted.log, there.log);
    let timers = lost(counted.timers, there.timers);
    let retries = lost(counted.retries, there.retries);
    let discarded = log + timers + retries;
    (discarded > 0).then(|| Delta {
        discarded,
        log: -log,
        timers: -timers,
        retries: -retries,
        ..Delta::default()
    })
}

/// Items of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunItems {
    /// In the log.
    pub log: i64,
    /// All that refer to the run: those that wait, and open dead letters.
    pub all: i64,
}

/// What leaves a run with its lost items; none: nothing is lost.
pub fn write_off_run(counted: RunItems, there: RunItems) -> Option<Leaving> {
    let log = (counted.log - there.log).max(0);
    let ended = (counted.all - there.all).max(0);
    (log > 0 || ended > 0).then_some(Leaving { log, ended })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_and_not_there_is_discarded() {
        let waiting = |log, timers, retries| WaitingCounts { log, timers, retries };
        assert_eq!(write_off(waiting(3, 2, 1), waiting(3, 2, 1)), None);
        let lost = write_off(waiting(5, 2, 2), waiting(2, 2, 1)).expect("four are lost");
        assert_eq!((lost.log, lost.timers, lost.retries, lost.discarded), (-3, 0, -1, 4));
        assert_eq!(lost.pending() + lost.discarded, 0, "the books still balance");
        // More rows than the counters say are an error that the audit shows, and nothing is lost.
        assert_eq!(write_off(waiting(0, 0, 0), waiting(1, 1, 1)), None);
        let lost = write_off(waiting(0, 2, 0), waiting(1, 1, 0)).expect("a timer is lost");
        assert_eq!((lost.log, lost.timers, lost.discarded), (0, -1, 1));
    }

    #[test]
    fn a_run_is_left_by_its_lost_items() {
        let items = |log, all| RunItems { log, all };
        for (counted, there, leaving) in [
            (items(2, 3), items(2, 3), None),
            (items(2, 3), items(0, 1), Some(Leaving { log: 2, ended: 2 })),
            (items(0, 3), items(0, 2), Some(Leaving { log: 0, ended: 1 })),
            (items(0, 0), items(1, 1), None),
        ] {
            assert_eq!(write_off_run(counted, there), leaving, "{counted:?}, {there:?}");
        }
    }
}
