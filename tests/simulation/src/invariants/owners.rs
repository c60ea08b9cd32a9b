//! Only the owner of a partition commits its items.

use besom_node::{Command, executor};
use besom_ports::store::{HistoryQuery, Store as _};

use super::{Invariant, Step, now};

pub(super) struct Owners;

impl Invariant for Owners {
    fn name(&self) -> &'static str {
        "owners"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        let Step::Performed { command, store, .. } = step else { return Vec::new() };
        let Command::Executor(_, executor::Command::Commit(_, batch)) = command else {
            return Vec::new();
        };
        // The newest row: a batch that was committed earlier, or left out, has added none.
        let query = HistoryQuery { limit: 1, ..HistoryQuery::default() };
        let newest = now(store.history(&query)).expect("the history");
        let Some(row) = newest.first().filter(|row| row.commit == batch.id) else {
            return Vec::new();
        };
        if row.at != now(store.now()).expect("a clock") {
            return Vec::new();
        }
        let table = now(store.partition_table()).expect("the table");
        let of = |partition| table.iter().find(|row| row.partition == partition);
        let entries = batch.entries.iter().filter(|e| e.item.identity == row.identity);
        let foreign = entries.filter_map(|entry| {
            let owner = of(entry.item.partition)?.owner.as_ref();
            let key = &entry.item.identity.key;
            (owner != Some(&batch.node))
                .then(|| format!("{} has committed {key}, which {owner:?} owns", batch.node))
        });
        foreign.collect()
    }
}
