//! The six screens: each owns what is chosen and opened in it, decides what its keys do, and
//! has a view beside it.
//!
//! A screen knows neither the others nor the connection. What it wants it puts into the
//! [`Outbox`]: the frame routes answers back, leads to other screens, and asks before anything
//! is changed.

pub mod edit;
pub mod figure;
pub mod overview;
pub mod queues;
pub mod ring;
pub mod runs;
pub mod tasks;

use besom_core::snapshot::{Answer, Subject};
use besom_core::time::Time;

use super::context::Context;
use super::effect::Outbox;
use super::key::Key;

/// A place on the keys 1 to 6.
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

    /// Where something is looked at.
    pub fn of(subject: &Subject) -> Place {
        match subject {
            Subject::Leader | Subject::Node(_) => Place::Overview,
            Subject::Task(_) => Place::Tasks,
            Subject::Queue(_) | Subject::Dead(_) => Place::Queues,
            Subject::Run(_) => Place::Runs,
            Subject::Ring => Place::Ring,
            Subject::Config => Place::Edit,
        }
    }
}

/// A key and what it does, for the line of keys and for help: `("t", "trigger")`.
pub type Hint = (&'static str, &'static str);

/// What the frame asks of a screen. Drawing is beside it, in the screen's `view`.
pub trait Screen {
    /// A key that no overlay has taken; false: it is none of the screen's, and the frame's own
    /// (`q`, `f`, `<`, `1` ...) may take it. Only a screen that is [`Screen::typing`] takes one
    /// of the frame's.
    fn key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool;

    /// The answer to something that this screen asked.
    fn answer(&mut self, ticket: u64, answer: &Answer, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (ticket, answer, cx, out);
    }

    /// Another picture, another second, or the screen was entered: the time to ask for more.
    fn refresh(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (cx, out);
    }

    /// When [`Screen::refresh`] is wanted before the next second, by the clock of
    /// [`Context::now`].
    fn wake(&self, cx: &Context<'_>) -> Option<Time> {
        let _ = cx;
        None
    }

    /// Looks at something: it was jumped to. Runs and Edit are opened with a task as well.
    fn open(&mut self, subject: &Subject, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (subject, cx, out);
    }

    /// Whether text is being typed: then every key is the screen's.
    fn typing(&self) -> bool {
        false
    }

    /// Pasted text, while text is being typed.
    fn paste(&mut self, text: &str, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (text, cx, out);
    }

    /// Whether something was typed that leaving would lose.
    fn unsaved(&self) -> bool {
        false
    }

    /// How much is open that Esc closes: a detail, a pane that has the keys.
    fn depth(&self) -> usize {
        0
    }

    /// Closes what a jump has opened: it is taken back.
    fn leave(&mut self) {}

    /// What rows are filtered by, or a log is searched for.
    fn filter(&self) -> &str {
        ""
    }

    /// Filters; called with every character.
    fn set_filter(&mut self, filter: &str, cx: &Context<'_>) {
        let _ = (filter, cx);
    }

    /// What it can be told now beside moving about: words for the palette, and the key that does
    /// it.
    fn commands(&self) -> Vec<(&'static str, Key)> {
        Vec::new()
    }

    /// The columns that its main table can be sorted by.
    fn columns(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Sorts by a column, or turns the order around if it is that one already.
    fn sort(&mut self, column: usize) {
        let _ = column;
    }

    /// A click at that place of the terminal.
    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, out: &mut Outbox) {
        let _ = (x, y, cx, out);
    }

    /// What its columns, signs and words mean, for help.
    fn words(&self) -> &'static [Hint] {
        &[]
    }

    /// The most useful keys now, most useful first; the line of keys shows as many as fit.
    fn hints(&self, cx: &Context<'_>) -> Vec<Hint>;
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
