//! A stream has no gap, and its positions only grow.

use std::collections::BTreeMap;

use besom_core::ids::{Partition, Seq, TaskName};
use besom_doubles::store::MemoryStore;
use besom_node::{Command, executor, planner};
use besom_ports::store::Store as _;

use super::{Invariant, Rest, Step, now};

#[derive(Default)]
pub(super) struct Streams {
    seen: BTreeMap<(TaskName, Partition), (Seq, Seq)>,
}

impl Streams {
    fn look(&mut self, store: &MemoryStore) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in now(store.streams(None)).expect("the streams") {
            let (stream, items) = (row.stream, row.items);
            let (acked, tail) = (stream.acked, stream.tail);
            let place = (stream.task, stream.partition);
            let said = format!("{} in partition {}", place.0, place.1);
            if items != tail.0 - acked.0 {
                wrong.push(format!("{said}: {items} items after {acked} up to {tail}"));
            }
            let before = self.seen.insert(place, (acked, tail));
            if let Some((a, t)) = before.filter(|(a, t)| *a > acked || *t > tail) {
                wrong.push(format!("{said}: went back from {a}, {t} to {acked}, {tail}"));
            }
        }
        wrong
    }
}

impl Invariant for Streams {
    fn name(&self) -> &'static str {
        "streams"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        match step {
            Step::Restored => self.seen.clear(),
            Step::Performed { command, store, .. } => {
                let changes = matches!(
                    command,
                    Command::Executor(_, executor::Command::Commit(..))
                        | Command::Planner(
                            _,
                            planner::Command::Scan(_) | planner::Command::Apply(..)
                        )
                );
                if changes {
                    return self.look(store);
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        self.look(rest.store)
    }
}
