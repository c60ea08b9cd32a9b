//! A window for each punctual lane and one for all other lanes, so that a large number of items of
//! other lanes cannot delay due items.

use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::time::Time;

use super::window::{Read, Window};
use besom_ports::guests::Lane;
use besom_ports::store::Waiting;

/// The tasks whose items a window holds.
pub type Tasks = Arc<[TaskName]>;

/// The timers, or the retries, of the known tasks.
#[derive(Debug)]
pub struct Windows {
    /// One for each punctual lane, then the one for all others.
    parts: Vec<Part>,
}

/// The index of the window that holds the items of a lane.
fn place(lane: Lane) -> usize {
    let mut punctual = Lane::punctual();
    punctual.position(|own| own == lane).unwrap_or_else(|| Lane::punctual().count())
}

#[derive(Debug)]
struct Part {
    window: Window,
    tasks: Tasks,
}

impl Part {
    fn is_used(&self) -> bool {
        !self.tasks.is_empty()
    }
}

impl Windows {
    /// Creates empty windows of about `size` items each, without tasks.
    pub fn new(size: u32) -> Windows {
        let part = || Part { window: Window::new(size), tasks: Tasks::default() };
        Windows { parts: (0..=Lane::punctual().count()).map(|_| part()).collect() }
    }

    /// Removes all items but keeps the tasks.
    pub fn reset(&mut self, size: u32) {
        for part in &mut self.parts {
            part.window = Window::new(size);
        }
    }

    /// Sets the tasks and their lanes. Their items in the store are not known yet.
    pub fn define<'a>(&mut self, tasks: impl Iterator<Item = (&'a TaskName, Lane)> + Clone) {
        for (at, Part { window, tasks: own }) in self.parts.iter_mut().enumerate() {
            let its = tasks.clone().filter(|(_, lane)| place(*lane) == at);
            *own = its.map(|(task, _)| task.clone()).collect();
            window.retain(|waiting| own.contains(&waiting.item.identity.task));
        }
    }

    fn used(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| part.is_used())
    }

    /// The window that holds the items of that lane.
    pub fn of(&self, lane: Lane) -> &Window {
        &self.parts[place(lane)].window
    }

    /// The index of the window with the items of a task.
    fn place_of(&self, task: &TaskName) -> usize {
        let has = self.parts.iter().position(|part| part.tasks.contains(task));
        has.unwrap_or(self.parts.len() - 1)
    }

    /// An item that is due at `time` was added to the store.
    pub fn added(&mut self, time: Time) {
        for part in &mut self.parts {
            part.window.added(time);
        }
    }

    /// Reads the store from the beginning, because it may contain anything.
    pub fn reread(&mut self, now: Time) {
        for part in &mut self.parts {
            part.window.reread(now);
        }
    }

    /// Ends the pauses after reads that failed.
    pub fn end_pauses(&mut self) {
        for part in &mut self.parts {
            part.window.end_pause();
        }
    }

    /// The read to make now, if any, and its tasks. It then counts as under way.
    pub fn wanted(&mut self, now: Time) -> Option<(Read, Tasks)> {
        let last = self.parts.iter().map(|part| part.window.reads()).max().unwrap_or(0);
        self.parts.iter_mut().filter(|part| part.is_used()).find_map(|part| {
            let read = part.window.wanted_after(last, now)?;
            Some((read, Arc::clone(&part.tasks)))
        })
    }

    /// Accepts the answer to a read; `None`: the read failed.
    pub fn read(&mut self, now: Time, number: u64, answer: Option<Vec<Waiting>>) {
        let awaits = self.parts.iter().position(|part| part.window.awaits(number));
        let Some(own) = awaits else { return };
        let (before, rest) = self.parts.split_at_mut(own);
        let Some((own, after)) = rest.split_first_mut() else { return };
        own.window.read(now, number, answer);
        // A task may have changed its lane while its items were being executed.
        let taken = |waiting: &Waiting| {
            before.iter().chain(&*after).any(|other| other.window.has_taken(waiting))
        };
        let tasks = &own.tasks;
        own.window.retain(|waiting| tasks.contains(&waiting.item.identity.task) && !taken(waiting));
    }

    /// Takes items of a task: see [`Window::take`].
    pub fn take(
        &mut self,
        task: &TaskName,
        now: Time,
        limit: usize,
        accept: impl FnMut(&Waiting) -> bool,
    ) -> Vec<Waiting> {
        let own = self.place_of(task);
        self.parts[own].window.take(task, now, limit, accept)
    }

    /// A taken item was not executed: it waits again, until `at`.
    pub fn put_back(&mut self, at: Time, item: Waiting) {
        let own = self.place_of(&item.item.identity.task);
        for (_, other) in self.parts.iter_mut().enumerate().filter(|(place, _)| *place != own) {
            other.window.give_up(&item);
        }
        self.parts[own].window.put_back(at, item);
    }

    /// A taken item no longer exists in the store.
    pub fn finished(&mut self, id: u64) {
        for part in &mut self.parts {
            part.window.finished(id);
        }
    }

    /// Drops items whose time has come and whose task may not start any.
    pub fn drop_unready(&mut self, until: Time, ready: impl Fn(&TaskName) -> bool) {
        for part in &mut self.parts {
            part.window.drop_unknown(until, &ready);
        }
    }

    /// Keeps only the items that `keep` accepts.
    pub fn retain(&mut self, keep: impl Fn(&Waiting) -> bool) {
        for part in &mut self.parts {
            part.window.retain(&keep);
        }
    }

    /// When the windows need attention next, if items are taken `ahead` of their time.
    pub fn deadline(&self, ahead: Duration) -> Option<Time> {
        self.used().filter_map(|part| part.window.deadline(ahead)).min()
    }

    /// The time of the earliest item.
    pub fn next(&self) -> Option<Time> {
        self.used().filter_map(|part| part.window.next()).min()
    }

    /// Whether the store may contain items of any time that are not in the windows.
    pub fn is_unread(&self) -> bool {
        self.used().any(|part| part.window.is_unread())
    }

    /// Whether nothing is waiting, in the windows or in the store, and nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.used().all(|part| part.window.is_empty())
    }
}
