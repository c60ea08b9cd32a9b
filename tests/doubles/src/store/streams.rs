//! Streams that have lost items: their state, and their repair.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use besom_core::books::{RunItems, WaitingCounts, write_off, write_off_run};
use besom_core::ids::{Partition, RunId, Seq, TaskName};
use besom_core::item::End;
use besom_core::time::Time;

use super::ledger::{add, bump};
use super::state::{Account, State, StreamState, account};
use besom_ports::store::{Repaired, Stream, StreamRow};

impl State {
    pub(super) fn stream_rows(&self, task: Option<&TaskName>) -> Vec<StreamRow> {
        let of_task = |stream: &Stream| task.is_none_or(|task| *task == stream.task);
        self.backlog(None)
            .into_iter()
            .filter(of_task)
            .map(|stream| {
                let place = (stream.task.clone(), stream.partition);
                StreamRow { items: self.streams[&place].items.len() as u64, stream }
            })
            .collect()
    }

    pub(super) fn repair_streams(&mut self, task: &TaskName, now: Time) -> Repaired {
        let mut repaired = Repaired::default();
        let streams = self.streams.iter_mut().filter(|((of, _), _)| of == task);
        for (_, stream) in streams {
            repaired.streams += u64::from(stream.number_anew());
        }
        let ended = self.ended_in_streams(task);
        if ended > self.positions(task) {
            for partition in (0..self.partitions).map(Partition) {
                let new =
                    StreamState { acked: Seq(ended), tail: Seq(ended), items: BTreeMap::new() };
                if let Entry::Vacant(place) = self.streams.entry((task.clone(), partition)) {
                    place.insert(new);
                    repaired.streams += 1;
                }
            }
        }
        let missing = ended.saturating_sub(self.positions(task));
        let mut streams = self.streams.iter_mut().filter(|((of, _), _)| of == task);
        if missing > 0
            && let Some((_, empty)) = streams.find(|(_, stream)| stream.items.is_empty())
        {
            empty.tail = Seq(empty.tail.0 + missing);
            empty.acked = empty.tail;
            repaired.streams += 1;
        }
        repaired.lost = self.write_off_items(task);
        self.write_off_runs(task, now);
        repaired
    }

    /// The number of items of the log that were committed or skipped, as far as the history knows.
    pub(super) fn ended_in_streams(&self, task: &TaskName) -> u64 {
        let rows = self.history.values().map(|recorded| &recorded.row);
        let ended = rows.filter(|row| {
            row.identity.task == *task
                && row.identity.due.is_none()
                && row.run != RunId::NONE
                && matches!(row.outcome, End::Committed | End::Skipped)
        });
        ended.count() as u64
    }

    /// The number of positions that were used in the streams of a task.
    pub(super) fn positions(&self, task: &TaskName) -> u64 {
        let streams = self.streams.iter().filter(|((of, _), _)| of == task);
        streams.map(|(_, stream)| stream.tail.0).sum()
    }

    /// Writes off items that are in the counters but exist nowhere.
    fn write_off_items(&mut self, task: &TaskName) -> u64 {
        let mut there: BTreeMap<Account, u64> = BTreeMap::new();
        for item in self.all_waiting().filter(|item| item.identity.task == *task) {
            *there.entry(account(&item.identity)).or_default() += 1;
        }
        let held: BTreeSet<_> = self.all_waiting().map(|item| item.identity.clone()).collect();
        self.waiting.retain(|identity| identity.task != *task || held.contains(identity));
        let mut lost = 0;
        for (who, counts) in self.counts.iter_mut().filter(|((of, _), _)| of == task) {
            // This store counts what waits in one sum.
            let sum = |log: u64| WaitingCounts { log: log as i64, ..WaitingCounts::default() };
            let there = there.get(who).copied().unwrap_or_default();
            let Some(delta) = write_off(sum(counts.pending), sum(there)) else { continue };
            add(counts, &delta);
            let discarded = delta.discarded.unsigned_abs();
            self.baseline.entry(who.clone()).or_default().discarded += discarded;
            lost += discarded;
        }
        lost
    }

    fn write_off_runs(&mut self, task: &TaskName, now: Time) {
        let mut open: BTreeMap<RunId, u64> = BTreeMap::new();
        for (_, item) in self.streams.values().flat_map(|stream| stream.items.values()) {
            *open.entry(item.run).or_default() += 1;
        }
        let runs: Vec<RunId> =
            self.runs.values().filter(|run| run.task == *task).map(|run| run.id).collect();
        for id in runs {
            // This store counts of a run only what is in the log.
            let items = |log: u64| RunItems { log: log as i64, all: 0 };
            let there = items(open.get(&id).copied().unwrap_or_default());
            if let Some(run) = self.runs.get_mut(&id)
                && let Some(leaving) = write_off_run(items(run.open), there)
            {
                bump(&mut run.open, -leaving.log);
            }
            self.end_if_complete(id, now);
        }
    }
}

impl StreamState {
    /// Renumbers the remaining items behind the last number if any is missing; returns whether one
    /// was.
    fn number_anew(&mut self) -> bool {
        let whole = self.tail.0 - self.acked.0 == self.items.len() as u64;
        if whole {
            return false;
        }
        self.acked = self.tail;
        let items = std::mem::take(&mut self.items);
        for entry in items.into_values() {
            self.tail = Seq(self.tail.0 + 1);
            self.items.insert(self.tail, entry);
        }
        true
    }
}
