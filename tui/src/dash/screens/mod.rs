//! The six screens. Each owns its selection and what is open in it, handles its keys, and has a
//! view next to it.
//!
//! A screen knows neither the other screens nor the connection. It puts its requests into the
//! [`Outbox`]; the frame routes answers back, switches screens, and asks for confirmation before
//! anything is changed.

pub mod edit;
pub mod figure;
pub mod overview;
pub mod queues;
pub mod ring;
pub mod runs;
pub mod tasks;

use besom_core::time::Time;
use besom_snapshot::{Answer, Subject};

use super::bindings::{Hint, Keys};
use super::context::Context;
use super::effect::Outbox;
use super::key::Key;
use super::table::{Heading, Order};

/// A screen, reached by the keys 1 to 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Place {
    /// Nodes, leader, attention.
    #[default]
    Overview,
    /// Tasks and schedules.
    Tasks,
    /// Queues and dead letters.
    Queues,
    /// Ownership and load.
    Ring,
    /// Runs and their logs.
    Runs,
    /// The schedule of a task.
    Edit,
}

impl Place {
    /// All of them, in the order of their keys.
    pub const ALL: [Place; 6] =
        [Place::Overview, Place::Tasks, Place::Queues, Place::Ring, Place::Runs, Place::Edit];

    /// Its key, as a number from 1.
    pub fn number(self) -> usize {
        self as usize + 1
    }

    /// The screen this many places further to the right, from the last to the first.
    pub fn step(self, by: usize) -> Place {
        Place::ALL[(self as usize + by) % Place::ALL.len()]
    }

    /// Its name in the line of tabs.
    pub fn name(self) -> &'static str {
        match self {
            Place::Overview => "Overview",
            Place::Tasks => "Tasks",
            Place::Queues => "Queues",
            Place::Ring => "Ring",
            Place::Runs => "Runs",
            Place::Edit => "Edit",
        }
    }

    /// The screen that shows an object.
    pub fn of(subject: &Subject) -> Place {
        match subject {
            Subject::Leader | Subject::Node(_) => Place::Overview,
            Subject::Tasks | Subject::Task(_) => Place::Tasks,
            Subject::Queue(_) | Subject::Dead(_) => Place::Queues,
            Subject::Run(_) => Place::Runs,
            Subject::Ring => Place::Ring,
            Subject::Config => Place::Edit,
        }
    }
}

/// The frame's interface to a screen. Drawing is separate, in the screen's `view`.
pub trait Screen: Keys {
    /// Handles a key that no overlay has taken: a binding, or a movement. False: the screen does
    /// not use it, and the frame may (`q`, `f`, `<`, `1` ...). Only a screen that is
    /// [`Screen::typing`] takes one of the frame's keys.
    fn key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        !key.ctrl && !key.alt && (self.press(key, cx, out) || self.step(key, cx, out))
    }

    /// Handles a key that moves a selection or scrolls; false: it does neither.
    fn step(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool;

    /// Handles the answer to a question of this screen.
    fn answer(&mut self, ticket: u64, answer: &Answer, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (ticket, answer, cx, out);
    }

    /// Called for a new snapshot, a new second, and when the screen is entered: the time to ask
    /// questions.
    fn refresh(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (cx, out);
    }

    /// When [`Screen::refresh`] has to be called before the next second, by the clock of
    /// [`Context::now`].
    fn wake(&self, cx: &Context<'_>) -> Option<Time> {
        let _ = cx;
        None
    }

    /// Shows an object after a jump. Runs and Edit can be opened with a task as well.
    fn open(&mut self, subject: &Subject, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (subject, cx, out);
    }

    /// Whether text is being typed: then the screen receives every key.
    fn typing(&self) -> bool {
        false
    }

    /// Handles pasted text while text is being typed.
    fn paste(&mut self, text: &str, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (text, cx, out);
    }

    /// Whether leaving would lose unsaved input.
    fn unsaved(&self) -> bool {
        false
    }

    /// How many levels Esc can close: a detail, a pane with the focus.
    fn depth(&self) -> usize {
        0
    }

    /// Closes what a jump has opened, because the jump is undone.
    fn leave(&mut self) {}

    /// The filter of the rows, or the search of a log.
    fn filter(&self) -> &str {
        ""
    }

    /// Sets the filter; called with every character.
    fn set_filter(&mut self, filter: &str, cx: &Context<'_>) {
        let _ = (filter, cx);
    }

    /// The headings of the table that takes the keys; empty: there is none.
    fn headings(&self) -> Vec<Heading> {
        Vec::new()
    }

    /// The order of that table.
    fn order(&mut self) -> Option<&mut Order> {
        None
    }

    /// Handles a click at a position of the terminal.
    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (x, y, cx, out);
    }

    /// The meanings of its columns, symbols and terms, for the help.
    fn words(&self) -> &'static [Hint] {
        &[]
    }
}

/// The screens.
#[derive(Debug, Default)]
pub struct Screens {
    /// 1.
    pub overview: overview::OverviewScreen,
    /// 2.
    pub tasks: tasks::TasksScreen,
    /// 3.
    pub queues: queues::QueuesScreen,
    /// 4.
    pub ring: ring::RingScreen,
    /// 5.
    pub runs: runs::RunsScreen,
    /// 6.
    pub edit: edit::EditScreen,
}

impl Screens {
    /// The screen at a place.
    pub fn at(&self, place: Place) -> &dyn Screen {
        match place {
            Place::Overview => &self.overview,
            Place::Tasks => &self.tasks,
            Place::Queues => &self.queues,
            Place::Ring => &self.ring,
            Place::Runs => &self.runs,
            Place::Edit => &self.edit,
        }
    }

    /// The screen at a place.
    pub fn at_mut(&mut self, place: Place) -> &mut dyn Screen {
        match place {
            Place::Overview => &mut self.overview,
            Place::Tasks => &mut self.tasks,
            Place::Queues => &mut self.queues,
            Place::Ring => &mut self.ring,
            Place::Runs => &mut self.runs,
            Place::Edit => &mut self.edit,
        }
    }
}
