//! What was planned has ended or still waits, and the counters equal a recount of the rows.

use besom_doubles::store::MemoryStore;
use besom_node::{Command, executor};
use besom_ports::store::Store as _;

use super::{Invariant, Rest, Step, now};

/// After how many commits the books are counted again: a recount reads all of them.
const EVERY: u64 = 64;

#[derive(Default)]
pub(super) struct Conservation {
    commits: u64,
}

impl Invariant for Conservation {
    fn name(&self) -> &'static str {
        "conservation"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        let Step::Performed { command, store, .. } = step else { return Vec::new() };
        if !matches!(command, Command::Executor(_, executor::Command::Commit(..))) {
            return Vec::new();
        }
        self.commits += 1;
        if self.commits.is_multiple_of(EVERY) { recount(store) } else { Vec::new() }
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        recount(rest.store)
    }
}

fn recount(store: &MemoryStore) -> Vec<String> {
    let audit = now(store.audit()).expect("an audit");
    let mut wrong = audit.violations;
    for row in audit.rows {
        if row.counted != row.recounted || !row.counted.conserved() {
            wrong.push(format!("{} {:?}: {row:?}", row.task, row.tenant));
        }
    }
    wrong
}
