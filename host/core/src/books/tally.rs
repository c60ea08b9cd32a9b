//! What a transaction adds to counters and runs.

use std::collections::BTreeMap;

use crate::ids::{RunId, TaskName, Tenant};
use crate::item::{Identity, Source};

/// Additions to the counters of one task and tenant; a negative number subtracts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Delta {
    /// Items planned.
    pub planned: i64,
    /// Items whose effects were committed.
    pub committed: i64,
    /// Items that ended without effects.
    pub skipped: i64,
    /// Items set aside and neither retried nor discarded.
    pub dead: i64,
    /// Of these, dead letters resolved by a later commit.
    pub resolved: i64,
    /// Dead letters that were discarded.
    pub discarded: i64,
    /// Items waiting in the log.
    pub log: i64,
    /// Items waiting as timers.
    pub timers: i64,
    /// Items waiting as retries.
    pub retries: i64,
    /// Size of the before-images held, in bytes.
    pub undo_bytes: i64,
    /// Rows of the product that were changed.
    pub rows: i64,
}

impl Delta {
    /// Items waiting anywhere.
    pub fn pending(&self) -> i64 {
        self.log + self.timers + self.retries
    }
}

/// What leaves a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leaving {
    /// Items that left the log. A run ends with the last of them.
    pub log: i64,
    /// Items that ended: they no longer refer to the run, which may be pruned after the last.
    pub ended: i64,
}

/// The sums of one transaction, each written once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally<'a> {
    /// Additions to the counters, by task and tenant.
    pub counters: BTreeMap<(&'a TaskName, Option<&'a Tenant>), Delta>,
    /// What leaves each run.
    pub runs: BTreeMap<RunId, Leaving>,
}

impl<'a> Tally<'a> {
    /// The additions for the task and tenant of this identity.
    pub fn of(&mut self, identity: &'a Identity) -> &mut Delta {
        self.at(&identity.task, identity.tenant.as_ref())
    }

    /// The additions for a task and tenant.
    pub fn at(&mut self, task: &'a TaskName, tenant: Option<&'a Tenant>) -> &mut Delta {
        self.counters.entry((task, tenant)).or_default()
    }

    /// The runs whose items left the log: those that may have ended.
    pub fn runs_left(&self) -> impl Iterator<Item = RunId> + '_ {
        self.runs.iter().filter(|(_, leaving)| leaving.log > 0).map(|(run, _)| *run)
    }

    /// An open dead letter of this identity, planned by this run, was resolved. It still counts as
    /// dead.
    pub fn resolved(&mut self, identity: &'a Identity, run: RunId) {
        self.of(identity).resolved += 1;
        self.ended(run);
    }

    /// A dead letter of this identity was moved to the retries.
    pub fn revived(&mut self, identity: &'a Identity) {
        let delta = self.of(identity);
        delta.dead -= 1;
        delta.retries += 1;
    }

    /// An item of the run has left the place where it was waiting.
    pub(super) fn took(&mut self, identity: &'a Identity, run: RunId, source: Source) {
        let delta = self.of(identity);
        match source {
            Source::Log(_) => {
                delta.log -= 1;
                self.runs.entry(run).or_default().log += 1;
            }
            Source::Timer(_) => delta.timers -= 1,
            Source::Retry(_) => delta.retries -= 1,
            // It was never counted as waiting.
            Source::Unqueued(_) => delta.planned += 1,
        }
    }

    /// An item of the run has ended.
    pub(super) fn ended(&mut self, run: RunId) {
        if run != RunId::NONE {
            self.runs.entry(run).or_default().ended += 1;
        }
    }
}
