//! The earliest timers or retries, held in memory.
//!
//! The store holds all of them. The window holds the next ones in order, at most
//! `host.timers_ahead`, so that a node can sleep until the next due time without querying the store.
//! Items beyond the window, and items that other nodes have added, are read when their time
//! approaches.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::item::Source;
use besom_core::time::Time;

use besom_ports::store::Waiting;

/// When an item may be executed, and its id in the store.
pub type Place = (Time, u64);

/// How far the store has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loaded {
    /// Up to and including this place.
    Through(Option<Place>),
    /// Completely.
    All,
}

/// A request to read items from the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// The number of the read within its window. Only the answer with this number is accepted.
    pub number: u64,
    /// Return items after this place; `None`: from the beginning.
    pub after: Option<Place>,
    /// Maximum number of items.
    pub limit: u32,
}

/// The next timers, or the next retries.
#[derive(Debug)]
pub struct Window {
    waiting: BTreeMap<Place, Waiting>,
    /// The places of the items, by task.
    places: BTreeMap<TaskName, BTreeSet<Place>>,
    taken: HashSet<u64>,
    /// Items that were taken and finished while a read was under way; its answer may still contain
    /// them.
    done: HashSet<u64>,
    loaded: Loaded,
    /// The earliest item that is known to be in the store but not in the window.
    added: Option<Time>,
    reading: Option<Read>,
    /// Number of reads so far.
    reads: u64,
    retry_at: Option<Time>,
    size: u32,
}

impl Window {
    /// How long before its time an item that is not in the window is read.
    const AHEAD: Duration = Duration::from_secs(1);
    /// The pause after a read that failed.
    const RETRY: Duration = Duration::from_millis(500);

    /// Creates an empty window of about `size` items.
    pub fn new(size: u32) -> Window {
        Window {
            waiting: BTreeMap::new(),
            places: BTreeMap::new(),
            taken: HashSet::new(),
            done: HashSet::new(),
            loaded: Loaded::Through(None),
            added: None,
            reading: None,
            reads: 0,
            retry_at: None,
            size: size.max(2),
        }
    }

    /// An item that is due at `time` was added to the store.
    pub fn added(&mut self, time: Time) {
        let inside = match self.loaded {
            Loaded::All => true,
            Loaded::Through(last) => last.is_some_and(|(through, _)| time <= through),
        };
        if inside || self.reading.is_some() {
            self.added = Some(self.added.map_or(time, |known| known.min(time)));
        }
    }

    /// Reads the store from the beginning, because it may contain anything.
    pub fn reread(&mut self, now: Time) {
        self.added = Some(self.added.map_or(now, |known| known.min(now)));
    }

    /// Ends the pause after a read that failed.
    pub fn end_pause(&mut self) {
        self.retry_at = None;
    }

    /// The number of the last read.
    pub(super) fn reads(&self) -> u64 {
        self.reads
    }

    /// The read to make now, with a number above `last`.
    pub(super) fn wanted_after(&mut self, last: u64, now: Time) -> Option<Read> {
        self.reads = self.reads.max(last);
        self.wanted(now)
    }

    /// Whether the read with that number is under way.
    pub(super) fn awaits(&self, number: u64) -> bool {
        self.reading.is_some_and(|read| read.number == number)
    }

    /// Whether an item is taken.
    pub(super) fn has_taken(&self, item: &Waiting) -> bool {
        place(item).is_some_and(|(_, id)| self.taken.contains(&id))
    }

    /// Removes an item from the window, even if it is taken.
    pub(super) fn give_up(&mut self, item: &Waiting) {
        if let Some((_, id)) = place(item) {
            self.taken.remove(&id);
        }
    }

    /// The read to make now, if any. It then counts as under way.
    pub fn wanted(&mut self, now: Time) -> Option<Read> {
        if self.reading.is_some() || self.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        let after = if self.added.is_some_and(|time| time <= now + Self::AHEAD) {
            self.added = None;
            None
        } else {
            match self.loaded {
                Loaded::Through(after) if self.runs_low() => after,
                Loaded::Through(_) | Loaded::All => return None,
            }
        };
        self.retry_at = None;
        self.done.clear();
        self.reads += 1;
        let read = Read { number: self.reads, after, limit: self.size };
        self.reading = Some(read);
        Some(read)
    }

    /// Whether less than a quarter of the window is left. The smallest window runs low when it is
    /// empty.
    fn runs_low(&self) -> bool {
        self.waiting.len() * 4 < self.size as usize
    }

    /// Accepts the answer to a read; `None`: the read failed. A late or repeated answer is ignored:
    /// it would hide items that were added since.
    pub fn read(&mut self, now: Time, number: u64, answer: Option<Vec<Waiting>>) {
        let Some(read) = self.reading.take_if(|read| read.number == number) else { return };
        let Some(items) = answer else {
            self.retry_at = Some(now + Self::RETRY);
            if read.after.is_none() {
                self.added = Some(now);
            }
            return;
        };
        if read.after.is_none() {
            self.waiting.clear();
            self.places.clear();
        }
        let complete = items.len() < read.limit as usize;
        let last = items.last().and_then(place);
        for item in items {
            let Some(at) = place(&item) else { continue };
            if !self.taken.contains(&at.1) && !self.done.contains(&at.1) {
                self.insert(at, item);
            }
        }
        self.done.clear();
        self.loaded = if complete { Loaded::All } else { Loaded::Through(last.or(read.after)) };
    }

    fn insert(&mut self, at: Place, item: Waiting) {
        let task = item.item.identity.task.clone();
        self.places.entry(task).or_default().insert(at);
        self.waiting.insert(at, item);
    }

    fn remove(&mut self, at: Place) -> Option<Waiting> {
        let item = self.waiting.remove(&at)?;
        let task = &item.item.identity.task;
        if let Some(places) = self.places.get_mut(task) {
            places.remove(&at);
            if places.is_empty() {
                self.places.remove(task);
            }
        }
        Some(item)
    }

    /// The first item of each task, if it may be executed at `now`.
    pub fn first_of_each(&self, now: Time) -> impl Iterator<Item = &Waiting> {
        let first = |places: &BTreeSet<Place>| places.first().copied();
        let firsts = self.places.values().filter_map(first).filter(move |at| at.0 <= now);
        firsts.filter_map(|at| self.waiting.get(&at))
    }

    /// Takes items of a task whose time has come, in order. Items that `accept` rejects remain in
    /// the window.
    pub fn take(
        &mut self,
        task: &TaskName,
        now: Time,
        limit: usize,
        mut accept: impl FnMut(&Waiting) -> bool,
    ) -> Vec<Waiting> {
        let Some(places) = self.places.get(task) else { return Vec::new() };
        let chosen: Vec<Place> = places
            .range(..=(now, u64::MAX))
            .filter(|at| self.waiting.get(at).is_some_and(&mut accept))
            .copied()
            .take(limit)
            .collect();
        self.taken.extend(chosen.iter().map(|at| at.1));
        chosen.into_iter().filter_map(|at| self.remove(at)).collect()
    }

    /// A taken item was not executed: it waits again, until `at`.
    pub fn put_back(&mut self, at: Time, item: Waiting) {
        let Some((_, id)) = place(&item) else { return };
        self.taken.remove(&id);
        self.insert((at, id), Waiting { run_at: at, ..item });
    }

    /// A taken item no longer exists in the store.
    pub fn finished(&mut self, id: u64) {
        self.taken.remove(&id);
        if self.reading.is_some() {
            self.done.insert(id);
        }
    }

    /// Drops items whose time has come and whose task is unknown. They remain in the store;
    /// otherwise they would fill the window and block other items.
    pub fn drop_unknown(&mut self, now: Time, known: impl Fn(&TaskName) -> bool) {
        let unknown: Vec<Place> = self
            .places
            .iter()
            .filter(|(task, _)| !known(task))
            .flat_map(|(_, places)| places.range(..=(now, u64::MAX)).copied())
            .collect();
        for at in unknown {
            self.remove(at);
        }
    }

    /// Keeps only the items that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(&Waiting) -> bool) {
        let left: Vec<Place> =
            self.waiting.iter().filter(|(_, item)| !keep(item)).map(|(at, _)| *at).collect();
        for at in left {
            self.remove(at);
        }
    }

    /// When the window needs attention next, if items are taken `ahead` of their time.
    pub fn deadline(&self, ahead: Duration) -> Option<Time> {
        let next = self.waiting.first_key_value().map(|(at, _)| at.0 - ahead);
        if self.reading.is_some() {
            return next;
        }
        let read = if let Loaded::Through(_) = self.loaded
            && self.runs_low()
        {
            Some(self.retry_at.unwrap_or(Time(i64::MIN)))
        } else {
            self.added.map(|time| (time - Self::AHEAD).max(self.retry_at.unwrap_or(Time(i64::MIN))))
        };
        [next, read].into_iter().flatten().min()
    }

    /// The time of the earliest item.
    pub fn next(&self) -> Option<Time> {
        let first = self.waiting.first_key_value().map(|(at, _)| at.0);
        [first, self.added].into_iter().flatten().min()
    }

    /// Whether the store may contain items of any time that are not in the window.
    pub fn is_unread(&self) -> bool {
        self.reading.is_some() || self.loaded == Loaded::Through(None)
    }

    /// Whether nothing is waiting, in the window or in the store, and nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
            && self.taken.is_empty()
            && self.loaded == Loaded::All
            && self.added.is_none()
            && self.reading.is_none()
    }
}

fn place(item: &Waiting) -> Option<Place> {
    match item.source {
        Source::Timer(id) | Source::Retry(id) => Some((item.run_at, id)),
        Source::Log(_) | Source::Unqueued(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{Partition, RunId};
    use besom_core::item::{Identity, Item};

    use super::*;

    fn timer(id: u64, second: i64) -> Waiting {
        let due = Time::from_secs(second);
        Waiting {
            source: Source::Timer(id),
            item: Item {
                identity: Identity {
                    task: "t".into(),
                    tenant: None,
                    key: id.to_string(),
                    due: Some(due),
                },
                route: id.to_string(),
                partition: Partition(0),
                version: String::new(),
                payload: Vec::new(),
                run: RunId(1),
                planned_at: Time::EPOCH,
                attempts: 0,
                guard_retries: 0,
                deaths: 0,
                errors: Vec::new(),
            },
            run_at: due,
        }
    }

    fn ids(items: &[Waiting]) -> Vec<u64> {
        items.iter().filter_map(place).map(|(_, id)| id).collect()
    }

    fn at(second: i64) -> Time {
        Time::from_secs(second)
    }

    fn filled(size: u32, items: Vec<Waiting>) -> Window {
        let mut window = Window::new(size);
        assert_eq!(window.wanted(at(0)), Some(Read { number: 1, after: None, limit: size }));
        window.read(at(0), 1, Some(items));
        window
    }

    #[test]
    fn items_are_taken_at_their_time_in_order() {
        let mut window = filled(8, vec![timer(1, 10), timer(2, 10), timer(3, 11)]);
        assert_eq!(window.deadline(Duration::ZERO), Some(at(10)));
        assert!(window.take(&"t".into(), at(9), 10, |_| true).is_empty());
        assert_eq!(ids(&window.take(&"t".into(), at(10), 10, |_| true)), [1, 2]);
        assert_eq!(window.deadline(Duration::ZERO), Some(at(11)));
    }

    #[test]
    fn an_idle_window_wants_nothing_until_its_next_item() {
        let mut window = filled(8, vec![timer(1, 1_000_000)]);
        assert_eq!(window.wanted(at(5)), None);
        assert_eq!(window.deadline(Duration::ZERO), Some(at(1_000_000)));
    }

    #[test]
    fn what_lies_beyond_is_read_when_the_window_runs_low() {
        let mut window = filled(4, vec![timer(1, 1), timer(2, 2), timer(3, 3), timer(4, 4)]);
        assert_eq!(window.wanted(at(1)), None);
        assert_eq!(window.take(&"t".into(), at(4), 4, |_| true).len(), 4);
        assert_eq!(
            window.wanted(at(4)),
            Some(Read { number: 2, after: Some((at(4), 4)), limit: 4 })
        );
        window.read(at(4), 2, Some(vec![timer(5, 5)]));
        assert_eq!(ids(&window.take(&"t".into(), at(5), 4, |_| true)), [5]);
        assert_eq!(window.wanted(at(6)), None);
    }

    #[test]
    fn an_item_added_inside_is_read_shortly_before_its_time() {
        let mut window = filled(8, vec![timer(1, 100)]);
        window.added(at(50));
        assert_eq!(window.deadline(Duration::ZERO), Some(at(49)));
        assert_eq!(window.wanted(at(48)), None);
        assert_eq!(window.wanted(at(49)), Some(Read { number: 2, after: None, limit: 8 }));
        window.read(at(49), 2, Some(vec![timer(2, 50), timer(1, 100)]));
        assert_eq!(ids(&window.take(&"t".into(), at(50), 8, |_| true)), [2]);
    }

    #[test]
    fn an_item_added_beyond_the_window_is_not_read_early() {
        let mut window = filled(2, vec![timer(1, 10), timer(2, 20)]);
        window.added(at(30));
        assert_eq!(window.deadline(Duration::ZERO), Some(at(10)));
    }

    #[test]
    fn an_item_added_during_a_read_is_not_forgotten() {
        let mut window = Window::new(8);
        window.wanted(at(0));
        window.added(at(5));
        window.read(at(0), 1, Some(Vec::new()));
        assert_eq!(window.deadline(Duration::ZERO), Some(at(4)));
    }

    #[test]
    fn what_is_taken_or_finished_during_a_read_does_not_come_back() {
        let mut window = filled(8, vec![timer(1, 1), timer(2, 1), timer(3, 9)]);
        assert_eq!(ids(&window.take(&"t".into(), at(1), 8, |_| true)), [1, 2]);
        window.added(at(2));
        assert!(window.wanted(at(1)).is_some());
        window.finished(1);
        window.read(at(1), 2, Some(vec![timer(1, 1), timer(2, 1), timer(4, 2), timer(3, 9)]));
        assert_eq!(ids(&window.take(&"t".into(), at(9), 8, |_| true)), [4, 3]);
    }

    #[test]
    fn a_failed_read_is_repeated_after_a_while() {
        let mut window = Window::new(8);
        window.wanted(at(0));
        window.read(at(0), 1, None);
        assert_eq!(window.wanted(at(0)), None);
        assert!(
            window.deadline(Duration::ZERO) > Some(at(0))
                && window.deadline(Duration::ZERO) < Some(at(1))
        );
        assert!(window.wanted(at(1)).is_some());
    }

    #[test]
    fn an_answer_that_comes_twice_hides_nothing_that_was_added_since() {
        let mut window = filled(8, vec![timer(1, 100)]);
        window.added(at(5));
        assert_eq!(window.wanted(at(5)).map(|read| read.number), Some(2));
        window.read(at(5), 1, Some(vec![timer(1, 100)]));
        assert!(window.is_unread(), "the second read is still under way");
        window.read(at(5), 2, Some(vec![timer(2, 5), timer(1, 100)]));
        assert_eq!(ids(&window.take(&"t".into(), at(5), 8, |_| true)), [2]);
    }
}
