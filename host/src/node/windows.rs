//! Separate windows for the lane of due items and for all other lanes, so that a large number of
//! items of other lanes cannot delay due items.

use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::time::Time;

use super::window::{Read, Window};
use crate::ports::guests::Lane;
use crate::ports::store::Waiting;

/// The tasks whose items a window holds.
pub type Tasks = Arc<[TaskName]>;

/// The timers, or the retries, of the known tasks.
#[derive(Debug)]
pub struct Windows {
    due: Part,
    rest: Part,
}

#[derive(Debug)]
struct Part {
    window: Window,
    tasks: Tasks,
}

impl Part {
    fn new(size: u32, tasks: Tasks) -> Part {
        Part { window: Window::new(size), tasks }
    }

    fn has(&self, task: &TaskName) -> bool {
        self.tasks.contains(task)
    }

    fn is_used(&self) -> bool {
        !self.tasks.is_empty()
    }
}

impl Windows {
    /// Creates empty windows of about `size` items each, without tasks.
    pub fn new(size: u32) -> Windows {
        Windows { due: Part::new(size, Tasks::default()), rest: Part::new(size, Tasks::default()) }
    }

    /// Removes all items but keeps the tasks.
    pub fn reset(&mut self, size: u32) {
        for part in self.parts_mut() {
            part.window = Window::new(size);
        }
    }

    /// Sets the tasks and their lanes. Their items in the store are not known yet.
    pub fn define<'a>(&mut self, tasks: impl Iterator<Item = (&'a TaskName, Lane)> + Clone) {
        let of = |due: bool| -> Tasks {
            let tasks = tasks.clone().filter(|(_, lane)| (*lane == Lane::Due) == due);
            tasks.map(|(task, _)| task.clone()).collect()
        };
        (self.due.tasks, self.rest.tasks) = (of(true), of(false));
        for Part { window, tasks } in [&mut self.due, &mut self.rest] {
            window.retain(|waiting| tasks.contains(&waiting.item.identity.task));
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        [&self.due, &self.rest].into_iter().filter(|part| part.is_used())
    }

    fn parts_mut(&mut self) -> [&mut Part; 2] {
        [&mut self.due, &mut self.rest]
    }

    /// The window that holds the items of that lane.
    pub fn of(&self, lane: Lane) -> &Window {
        match lane {
            Lane::Due => &self.due.window,
            Lane::Normal | Lane::Heavy => &self.rest.window,
        }
    }

    /// The window with the items of a task, and the other one.
    fn of_task(&mut self, task: &TaskName) -> (&mut Window, &mut Window) {
        match self.due.has(task) {
            true => (&mut self.due.window, &mut self.rest.window),
            false => (&mut self.rest.window, &mut self.due.window),
        }
    }

    /// An item that is due at `time` was added to the store.
    pub fn added(&mut self, time: Time) {
        for part in self.parts_mut() {
            part.window.added(time);
        }
    }

    /// Reads the store from the beginning, because it may contain anything.
    pub fn reread(&mut self, now: Time) {
        for part in self.parts_mut() {
            part.window.reread(now);
        }
    }

    /// The read to make now, if any, and its tasks. It then counts as under way.
    pub fn wanted(&mut self, now: Time) -> Option<(Read, Tasks)> {
        let last = self.due.window.reads().max(self.rest.window.reads());
        self.parts_mut().into_iter().filter(|part| part.is_used()).find_map(|part| {
            let read = part.window.wanted_after(last, now)?;
            Some((read, Arc::clone(&part.tasks)))
        })
    }

    /// Accepts the answer to a read; `None`: the read failed.
    pub fn read(&mut self, now: Time, number: u64, answer: Option<Vec<Waiting>>) {
        let (own, other) = match self.due.window.awaits(number) {
            true => (&mut self.due, &self.rest),
            false => (&mut self.rest, &self.due),
        };
        own.window.read(now, number, answer);
        // A task may have changed its lane while its items were being executed.
        let tasks = &own.tasks;
        own.window.retain(|waiting| {
            tasks.contains(&waiting.item.identity.task) && !other.window.has_taken(waiting)
        });
    }

    /// Takes items of a task: see [`Window::take`].
    pub fn take(
        &mut self,
        task: &TaskName,
        now: Time,
        limit: usize,
        accept: impl FnMut(&Waiting) -> bool,
    ) -> Vec<Waiting> {
        self.of_task(task).0.take(task, now, limit, accept)
    }

    /// A taken item was not executed: it waits again, until `at`.
    pub fn put_back(&mut self, at: Time, item: Waiting) {
        let (own, other) = self.of_task(&item.item.identity.task);
        other.give_up(&item);
        own.put_back(at, item);
    }

    /// A taken item no longer exists in the store.
    pub fn finished(&mut self, id: u64) {
        for part in self.parts_mut() {
            part.window.finished(id);
        }
    }

    /// Drops items whose time has come and whose task may not start any.
    pub fn drop_unready(&mut self, until: Time, ready: impl Fn(&TaskName) -> bool) {
        for part in self.parts_mut() {
            part.window.drop_unknown(until, &ready);
        }
    }

    /// Keeps only the items that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(&Waiting) -> bool) {
        for part in self.parts_mut() {
            part.window.retain(&keep);
        }
    }

    /// When the windows need attention next, if items are taken `ahead` of their time.
    pub fn deadline(&self, ahead: Duration) -> Option<Time> {
        self.parts().filter_map(|part| part.window.deadline(ahead)).min()
    }

    /// The time of the earliest item.
    pub fn next(&self) -> Option<Time> {
        self.parts().filter_map(|part| part.window.next()).min()
    }

    /// Whether the store may contain items of any time that are not in the windows.
    pub fn is_unread(&self) -> bool {
        self.parts().any(|part| part.window.is_unread())
    }

    /// Whether nothing is waiting, in the windows or in the store, and nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.parts().all(|part| part.window.is_empty())
    }
}
