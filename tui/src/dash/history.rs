//! The snapshots of the last 15 minutes, for stepping back.
//!
//! Snapshots share unchanged rows, so a snapshot costs only its new rows. Both the number of
//! snapshots and the total of new rows are bounded: in a large deployment that changes constantly,
//! the history reaches less far back.

use std::collections::VecDeque;
use std::sync::Arc;

use besom_core::time::Time;
use besom_snapshot::Snapshot;

/// How far back the history reaches at most, in seconds.
pub const REACH_S: u64 = 15 * 60;
/// The maximum number of snapshots: one per second.
pub const PICTURES_MAX: usize = REACH_S as usize;
/// The maximum total of new rows.
pub const ROWS_MAX: usize = 100_000;

#[derive(Debug, Clone)]
struct Picture {
    snap: Arc<Snapshot>,
    /// Rows that the previous snapshot does not contain.
    rows: usize,
}

/// Snapshots, oldest first.
#[derive(Debug, Clone, Default)]
pub struct History {
    pictures: VecDeque<Picture>,
    rows: usize,
}

fn second(time: Time) -> i64 {
    time.0.div_euclid(1_000_000)
}

fn new_rows<T>(old: &[Arc<T>], new: &[Arc<T>]) -> usize {
    let same = old.iter().zip(new).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
    new.len() - same
}

fn cost(old: Option<&Snapshot>, new: &Snapshot) -> usize {
    let Some(old) = old else {
        return new.nodes.len() + new.tasks.len() + new.runs.len() + 2;
    };
    new_rows(&old.nodes, &new.nodes)
        + new_rows(&old.tasks, &new.tasks)
        + new_rows(&old.runs, &new.runs)
        + new_rows(&old.dead, &new.dead)
        + new_rows(&old.events, &new.events)
        + 2
}

impl History {
    /// Adds a snapshot; of each second, the last one is kept.
    pub(super) fn push(&mut self, snap: &Arc<Snapshot>) {
        let last = self.pictures.back();
        if last.is_some_and(|last| second(last.snap.at) == second(snap.at)) {
            let last = self.pictures.pop_back();
            self.rows -= last.map_or(0, |last| last.rows);
        }
        let rows = cost(self.pictures.back().map(|last| &*last.snap), snap);
        self.rows += rows;
        self.pictures.push_back(Picture { snap: Arc::clone(snap), rows });
        let old = |first: &Picture| snap.at.since(first.snap.at).as_secs() > REACH_S;
        while self.pictures.len() > 1
            && (self.pictures.len() > PICTURES_MAX
                || self.rows > ROWS_MAX
                || self.pictures.front().is_some_and(old))
        {
            let first = self.pictures.pop_front();
            self.rows -= first.map_or(0, |first| first.rows);
        }
    }

    /// The last snapshot before a time.
    pub fn before(&self, at: Time) -> Option<&Arc<Snapshot>> {
        let place = self.pictures.partition_point(|picture| picture.snap.at < at);
        self.pictures.get(place.checked_sub(1)?).map(|picture| &picture.snap)
    }

    /// The first snapshot after a time.
    pub fn after(&self, at: Time) -> Option<&Arc<Snapshot>> {
        let place = self.pictures.partition_point(|picture| picture.snap.at <= at);
        self.pictures.get(place).map(|picture| &picture.snap)
    }

    /// The oldest snapshot.
    pub fn first(&self) -> Option<&Arc<Snapshot>> {
        self.pictures.front().map(|picture| &picture.snap)
    }

    /// The number of snapshots.
    pub fn len(&self) -> usize {
        self.pictures.len()
    }

    /// Whether there are no snapshots.
    pub fn is_empty(&self) -> bool {
        self.pictures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use besom_snapshot::Node;

    use super::*;

    fn at(ms: i64, nodes: usize) -> Arc<Snapshot> {
        let nodes = (0..nodes).map(|_| Arc::new(Node::default())).collect();
        Arc::new(Snapshot { at: Time::from_millis(ms), nodes, ..Snapshot::default() })
    }

    #[test]
    fn of_each_second_the_last_picture_stays() {
        let mut history = History::default();
        for ms in [0, 400, 900, 1_000, 1_100, 2_500] {
            history.push(&at(ms, 0));
        }
        assert_eq!(history.len(), 3);
        let time = |snap: Option<&Arc<Snapshot>>| snap.map(|snap| snap.at.millis());
        assert_eq!(time(history.first()), Some(900));
        assert_eq!(time(history.before(Time::from_millis(2_500))), Some(1_100));
        assert_eq!(time(history.after(Time::from_millis(1_100))), Some(2_500));
        assert_eq!(time(history.before(Time::from_millis(900))), None);
        assert_eq!(time(history.after(Time::from_millis(2_500))), None);
    }

    #[test]
    fn it_reaches_fifteen_minutes_back_and_no_further() {
        let mut history = History::default();
        for second in 0..3_000 {
            history.push(&at(second * 1_000, 0));
        }
        assert_eq!(history.len(), PICTURES_MAX);
    }

    #[test]
    fn a_deployment_that_changes_all_the_time_reaches_less_far() {
        let mut history = History::default();
        for second in 0..30 {
            history.push(&at(second * 1_000, ROWS_MAX / 10));
        }
        assert_eq!(history.len(), 9);
        let same = at(60_000, ROWS_MAX / 10);
        for second in 60..90 {
            let mut next = (*same).clone();
            next.at = Time::from_secs(second);
            history.push(&Arc::new(next));
        }
        assert!(history.len() > 30, "what is shared costs nothing: {}", history.len());
        history.push(&at(120_000, 2 * ROWS_MAX));
        assert_eq!(history.len(), 1, "the newest stays, whatever it costs");
    }
}
