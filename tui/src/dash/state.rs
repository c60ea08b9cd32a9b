//! The dashboard's state: its data, the current screen, and what is open above it.
//!
//! Only [`State::update`](super::update) changes it, and it does not depend on a terminal.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::Query;

use super::confirm::Confirm;
use super::context::Context;
use super::data::Data;
use super::effect::Tone;
use super::field::Field;
use super::palette::Palette;
use super::screens::{Place, Screens};

/// How long a message is shown.
pub const MESSAGE_STAYS: Duration = Duration::from_secs(10);
/// The minimum interval between refreshes that a screen requests.
pub const WAKE_MIN: Duration = Duration::from_millis(50);
/// Jumps that can be undone.
pub const TRAIL_MAX: usize = 16;
/// Pending questions; beyond that, the oldest is abandoned.
pub const PENDING_MAX: usize = 256;

/// The colour theme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThemeChoice {
    /// The terminal's own colours that are readable on any background.
    #[default]
    Auto,
    /// For a light background.
    Light,
    /// For a dark background.
    Dark,
    /// No colours, as `NO_COLOR` requests.
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

/// The options of the dashboard.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The colour theme.
    pub theme: ThemeChoice,
    /// Whether this dashboard must not change anything.
    pub readonly: bool,
    /// Whether mouse events are enabled.
    pub mouse: bool,
    /// The name shown until a host reports the cluster's name.
    pub name: String,
}

/// The overlay above a screen.
#[derive(Debug, Default)]
pub enum Overlay {
    /// Nothing.
    #[default]
    None,
    /// The help, with the index of its first line shown.
    Help(u16),
    /// The command palette.
    Palette(Palette),
    /// A confirmation dialog.
    Confirm(Box<Confirm>),
    /// The filter is being typed.
    Filter(Field),
    /// The question whether to leave with unsaved input.
    Leave,
}

/// A message in the line above the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// How it is meant.
    pub tone: Tone,
    /// What.
    pub text: String,
    /// Until when it is shown, by the local clock.
    pub until: Time,
}

/// A pending question or action.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub place: Place,
    /// The question; none: it is an action.
    pub query: Option<Query>,
    /// The action, as text.
    pub what: String,
}

/// A jump from one screen to another. Undoing it closes what it opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Jump {
    pub from: Place,
    pub to: Place,
    /// How many levels were open on the screen that it led to.
    pub depth: usize,
    /// The filter that it set there.
    pub filter: String,
}

/// The state of the dashboard.
#[derive(Debug, Default)]
pub struct State {
    /// The current options; initially those it was started with.
    pub options: Options,
    /// The data.
    pub data: Data,
    /// The current screen.
    pub place: Place,
    /// All screens.
    pub screens: Screens,
    /// The overlay above the screen.
    pub overlay: Overlay,
    /// The current message.
    pub message: Option<Message>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// The jumps that led here, oldest first.
    pub(super) trail: Vec<Jump>,
    pub(super) pending: BTreeMap<u64, Pending>,
    pub(super) ticket: u64,
    pub(super) dirty: bool,
}

impl State {
    /// A dashboard without data.
    pub fn new(options: Options) -> State {
        State { options, size: (80, 24), dirty: true, ..State::default() }
    }

    /// The context for a screen.
    pub fn context(&self) -> Context<'_> {
        self.data.context(self.size, self.options.readonly)
    }

    /// The cluster's name, or the name given in the options.
    pub fn name(&self) -> &str {
        match self.data.snap().cluster.as_str() {
            "" => &self.options.name,
            name => name,
        }
    }

    /// Whether the screen has changed since [`State::drawn`].
    pub fn dirty(&self) -> bool {
        self.dirty
    }

    /// Records that the screen has been drawn.
    pub fn drawn(&mut self) {
        self.dirty = false;
    }

    /// When the screen changes without an input; the shell has to send a tick then. By the local
    /// machine's clock.
    pub fn next_tick(&self) -> Time {
        let local = self.data.local();
        // The next full second of the displayed clock, so that it never skips one.
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
