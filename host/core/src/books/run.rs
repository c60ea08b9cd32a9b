//! The end of a run.

use crate::ids::RunId;

/// What a store finds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunFacts {
    /// Its number in the store.
    pub run: RunId,
    /// Whether its scan has ended.
    pub scan_done: bool,
    /// The number of its items in the log.
    pub open: i64,
    /// Whether the run has ended before.
    pub ended: bool,
}

impl RunFacts {
    /// Whether it ends now: its scan has ended and nothing of it is in the log. Timers and retries
    /// outlive their run. Both conditions stay true once they are, so facts that were read before
    /// the end is written are as good as facts read with it.
    pub fn ends(&self) -> bool {
        self.scan_done && self.open == 0 && !self.ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_once_with_its_scan_and_its_last_item_in_the_log() {
        for (scan_done, open, ended, ends) in [
            (false, 0, false, false),
            (false, 1, false, false),
            (true, 1, false, false),
            (true, 0, false, true),
            (true, 0, true, false),
        ] {
            let facts = RunFacts { run: RunId(1), scan_done, open, ended };
            assert_eq!(facts.ends(), ends, "{facts:?}");
        }
    }
}
