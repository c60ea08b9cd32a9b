//! The dashboard's state: what is known, where one is, and what is open above it.
//!
//! It changes by [`State::update`](super::update) alone, and knows nothing of a terminal.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::snapshot::Query;
use besom_core::time::Time;

use super::confirm::Confirm;
use super::context::Context;
use super::data::Data;
use super::effect::Tone;
use super::field::Field;
use super::palette::Palette;
use super::screens::{Place, Screens};

/// How long a message stays.
pub const MESSAGE_STAYS: Duration = Duration::from_secs(10);
/// A screen that wants to be refreshed is not, before this.
pub const WAKE_MIN: Duration = Duration::from_millis(50);
/// Jumps that can be taken back.
pub const TRAIL_MAX: usize = 16;
/// Questions that wait for an answer; the oldest is given up.
pub const PENDING_MAX: usize = 256;

/// The colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThemeChoice {
    /// The terminal's own colours, those that read well on any ground.
    #[default]
    Auto,
    /// For a light ground.
    Light,
    /// For a dark ground.
    Dark,
    /// No colour at all, as `NO_COLOR` asks for.
    Mono,
}

impl ThemeChoice {
    /// All of them.
    pub const ALL: [ThemeChoice; 4] =
        [ThemeChoice::Auto, ThemeChoice::Light, ThemeChoice::Dark, ThemeChoice::Mono];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ThemeChoice::Auto => "auto",
            ThemeChoice::Light => "light",
            ThemeChoice::Dark => "dark",
            ThemeChoice::Mono => "mono",
        }
    }
}

/// How the dashboard is started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The colours.
    pub theme: ThemeChoice,
    /// Whether nothing may be changed from here.
    pub readonly: bool,
    /// Whether the mouse is listened to.
    pub mouse: bool,
    /// What is looked at, as long as no host has told the cluster's name.
    pub name: String,
}

/// What is open above a screen.
#[derive(Debug, Default)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The keys; the first line shown.
    Help(u16),
    /// The commands.
    Palette(Palette),
    /// A question before something is changed.
    Confirm(Box<Confirm>),
    /// The filter is typed.
    Filter(Field),
    /// Whether to leave, though something is typed that would be lost.
    Leave,
}

/// Something said in the line above the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How it is meant.
    pub tone: Tone,
    /// What.
    pub text: String,
    /// Until when it stays, by the clock here.
    pub until: Time,
}

/// Who waits for an answer, and to what.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub place: Place,
    /// The question; none: it is an action.
    pub query: Option<Query>,
    /// What was asked for, in words.
    pub what: String,
}

/// A jump from one screen to another: what takes it back is as far out as it led in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Jump {
    pub from: Place,
    pub to: Place,
    /// How much was open on the screen that it led to.
    pub depth: usize,
    /// The filter that it set there.
    pub filter: String,
}

/// The dashboard.
#[derive(Debug, Default)]
pub struct State {
    /// How it was started; what can be changed since is changed here.
    pub options: Options,
    /// What is known.
    pub data: Data,
    /// Where one is.
    pub place: Place,
    /// The screens.
    pub screens: Screens,
    /// What is open above the screen.
    pub overlay: Overlay,
    /// What is said.
    pub message: Option<Message>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Where one came from, jump by jump.
    pub(super) trail: Vec<Jump>,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) ticket: u64,
    pub(super) dirty: bool,
}

impl State {
    /// A dashboard that knows nothing yet.
    pub fn new(options: Options) -> State {
        State { options, size: (80, 24), dirty: true, ..State::default() }
    }

    /// What a screen sees.
    pub fn context(&self) -> Context<'_> {
        self.data.context(self.size, self.options.readonly)
    }

    /// What is looked at: the cluster's name, or what was asked for.
    pub fn name(&self) -> &str {
        match self.data.snap().cluster.as_str() {
            "" => &self.options.name,
            name => name,
        }
    }

    /// Whether the picture has changed since [`State::drawn`].
    pub fn dirty(&self) -> bool {
        self.dirty
    }

    /// The picture has been drawn.
    pub fn drawn(&mut self) {
        self.dirty = false;
    }

    /// When the picture changes by itself: the shell sends a tick then. By the clock of the
    /// machine that shows.
    pub fn next_tick(&self) -> Time {
        let local = self.data.local();
        // The next full second of the clock that is shown, so that it never skips one.
        let into = self.data.clock().0.rem_euclid(1_000_000);
        let mut next = Time(local.0.saturating_add(1_000_000 - into));
        let cx = self.context();
        if let Some(due) = self.screens.at(self.place).wake(&cx).filter(|_| cx.live) {
            next = next.min(local + due.since(cx.now).max(WAKE_MIN));
        }
        match &self.message {
            Some(message) if message.until > local => next.min(message.until),
            _ => next,
        }
    }
}
