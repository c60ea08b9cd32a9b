//! Handles inputs: they change the state and produce effects.
//!
//! Keys go to the overlay, then to the screen, then to the frame. Pasted text goes into an open
//! text field or is ignored: it is never a command.

use besom_core::time::Time;
use besom_snapshot::{Answer, Query, Subject};

use super::confirm::Answered;
use super::data::{Connection, Shown};
use super::effect::{Effect, Outbox, Tone};
use super::everywhere;
use super::field::Field;
use super::key::{Code, Feed, Input, Key, MouseKind};
use super::palette::{Command, Palette};
use super::screens::Place;
use super::state::{Jump, MESSAGE_STAYS, Message, Overlay, PENDING_MAX, Pending, State, TRAIL_MAX};
use super::table::{Heading, Order};

/// The longer step through the history.
const MINUTE_US: i64 = 60_000_000;
/// Lines by which the wheel scrolls.
const WHEEL_LINES: usize = 3;

impl State {
    /// Handles an input; returns the tasks for the shell.
    pub fn update(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Outbox::after(self.ticket);
        match input {
            Input::Tick(now) => self.tick(now, &mut out),
            Input::Resize(columns, rows) => {
                self.dirty |= self.size != (columns, rows);
                self.size = (columns, rows);
            }
            Input::Key(key) => {
                self.dirty = true;
                self.key(key, &mut out);
            }
            Input::Paste(text) => {
                self.dirty = true;
                self.paste(&text, &mut out);
            }
            Input::Mouse { x, y, kind } => {
                self.dirty = true;
                self.mouse(x, y, kind, &mut out);
            }
            Input::Feed(feed) => {
                self.dirty = true;
                self.feed(feed, &mut out);
            }
        }
        self.settle(out)
    }

    /// Performs a screen's requests to the frame, and returns the effects for the shell.
    fn settle(&mut self, mut out: Outbox) -> Vec<Effect> {
        // The screen that a jump leads to may ask questions, but must not jump again.
        if let Some((place, subject)) = out.jump.take() {
            let from = self.place;
            self.go(place, &mut out);
            let cx = self.data.context(self.size, self.options.readonly);
            let screen = self.screens.at_mut(self.place);
            screen.open(&subject, &cx, &mut out);
            if from != place {
                let (depth, filter) = (screen.depth(), screen.filter().to_owned());
                self.trail.push(Jump { from, to: place, depth, filter });
                let over = self.trail.len().saturating_sub(TRAIL_MAX);
                self.trail.drain(..over);
            }
        }
        if let Some((tone, text)) = out.message.take() {
            self.say(tone, text);
        }
        if let Some(confirm) = out.confirm.take() {
            match self.refusal() {
                Some(why) => self.say(Tone::Bad, why),
                None => self.overlay = Overlay::Confirm(Box::new(confirm)),
            }
        }
        self.ticket = out.last();
        let effects = out.effects();
        for effect in &effects {
            let place = self.place;
            let (ticket, pending) = match effect {
                Effect::Ask { ticket, query } => {
                    let query = Some(query.clone());
                    (*ticket, Pending { place, query, what: String::new() })
                }
                Effect::Act { ticket, .. } => {
                    (*ticket, Pending { place, query: None, what: String::new() })
                }
                _ => continue,
            };
            self.pending.entry(ticket).or_insert(pending);
        }
        while self.pending.len() > PENDING_MAX {
            self.pending.pop_first();
        }
        effects
    }

    /// Why nothing can be changed now.
    fn refusal(&self) -> Option<String> {
        if self.context().readonly {
            return Some("read-only: this dashboard cannot change anything".to_owned());
        }
        match (&self.data.connection, &self.data.shown) {
            (Connection::Connecting | Connection::Lost { .. }, _) => {
                Some("not connected: nothing can be changed now".to_owned())
            }
            (Connection::Live, Shown::Rewound(_)) => {
                Some("the past is shown: press f to return to the present, then act".to_owned())
            }
            (Connection::Live, Shown::Live | Shown::Frozen(_)) => None,
        }
    }

    /// Shows a message in the line above the keys.
    pub fn say(&mut self, tone: Tone, text: impl Into<String>) {
        let until = self.data.local() + MESSAGE_STAYS;
        self.message = Some(Message { tone, text: text.into(), until });
        self.dirty = true;
    }

    fn tick(&mut self, now: besom_core::time::Time, out: &mut Outbox) {
        let second = self.data.tick(now);
        if self.message.as_ref().is_some_and(|message| message.until <= now) {
            self.message = None;
            self.dirty = true;
        }
        let cx = self.data.context(self.size, self.options.readonly);
        let due = self.screens.at(self.place).wake(&cx).is_some_and(|due| due <= cx.now);
        if second || due {
            self.dirty |= second;
            self.refresh(out);
        }
    }

    fn refresh(&mut self, out: &mut Outbox) {
        let cx = self.data.context(self.size, self.options.readonly);
        self.screens.at_mut(self.place).refresh(&cx, out);
    }

    fn feed(&mut self, feed: Feed, out: &mut Outbox) {
        match feed {
            Feed::Connected => {
                self.data.connect(Connection::Live);
                out.ask(Query::Depths);
            }
            Feed::Snapshot(snap) => {
                let before = &self.data.snap().host;
                if !before.is_empty() && *before != snap.host {
                    let host = snap.host.clone();
                    self.say(Tone::Info, format!("{host} answers now"));
                }
                self.screens.runs.observe(&snap);
                if let Overlay::Confirm(confirm) = &mut self.overlay {
                    super::actions::recount(confirm, &snap);
                }
                self.data.take(snap);
                self.refresh(out);
            }
            Feed::Lost { why, retry_at } => {
                let since = match &self.data.connection {
                    Connection::Lost { since, .. } => *since,
                    _ => self.data.local(),
                };
                self.data.connect(Connection::Lost { since, why, retry_at });
                // Questions sent over the lost connection are not answered any more.
                let acts = self.pending.values().filter(|pending| pending.query.is_none()).count();
                if acts > 0 {
                    self.say(Tone::Bad, "the connection was lost before the result was reported");
                }
                self.pending.clear();
            }
            Feed::Answer { ticket, answer } => self.answer(ticket, answer, out),
        }
    }

    fn answer(&mut self, ticket: u64, answer: Answer, out: &mut Outbox) {
        // An answer without a pending question is ignored.
        let Some(Pending { place, query, what }) = self.pending.remove(&ticket) else { return };
        match (&query, &answer) {
            (None, Answer::Done(done)) => {
                let text = match (&done.result, done.applied, done.command) {
                    (Some(result), _, _) => format!("{what}: {result}"),
                    (None, true, _) => format!("{what}: done"),
                    (None, false, Some(command)) => {
                        format!("{what}: command {command} is waiting for the leader")
                    }
                    (None, false, None) => format!("{what}: requested"),
                };
                self.say(Tone::Good, text);
            }
            (_, Answer::Refused(refusal)) => {
                let sign = if what.is_empty() { "" } else { ": " };
                self.say(Tone::Bad, format!("{what}{sign}{}", refusal.message));
            }
            _ => {}
        }
        if let Answer::Depths { samples } = &answer {
            self.data.seed(samples);
            return;
        }
        // A host of another version does not know the question: then there is no earlier data.
        if query == Some(Query::Depths) {
            self.message = None;
            return;
        }
        if let Some(query) = query {
            let at = self.data.clock();
            self.data.details.keep(query, super::context::Detail { answer: answer.clone(), at });
        }
        let cx = self.data.context(self.size, self.options.readonly);
        self.screens.at_mut(place).answer(ticket, &answer, &cx, out);
    }

    /// Switches to another screen by its own key; this cannot be undone as a jump can.
    fn walk(&mut self, place: Place, out: &mut Outbox) {
        self.trail.clear();
        // The message belongs to the previous screen.
        self.message = None;
        self.go(place, out);
    }

    /// Switches to another screen.
    pub(super) fn go(&mut self, place: Place, out: &mut Outbox) {
        self.place = place;
        self.refresh(out);
    }

    fn key(&mut self, key: Key, out: &mut Outbox) {
        if key == Key::ctrl('c') {
            return out.push(Effect::Quit);
        }
        match std::mem::take(&mut self.overlay) {
            Overlay::None => self.screen_key(key, out),
            Overlay::Help(top) => self.help_key(key, top),
            Overlay::Palette(mut palette) => match palette.key(key) {
                Some(Some(command)) => self.command(command, out),
                Some(None) => {}
                None => self.overlay = Overlay::Palette(palette),
            },
            Overlay::Confirm(mut confirm) => match confirm.key(key, out) {
                Answered::Open => self.overlay = Overlay::Confirm(confirm),
                Answered::Cancelled => self.say(Tone::Info, "nothing was changed"),
                Answered::Asked(ticket) => {
                    let what = confirm.verb.trim_start_matches("besom ").to_owned();
                    self.say(Tone::Info, format!("{what}: sent"));
                    let pending = Pending { place: self.place, query: None, what };
                    self.pending.insert(ticket, pending);
                }
            },
            Overlay::Filter(field) => self.filter_key(key, field),
            Overlay::Leave => match key.as_char() {
                Some('y' | 'q') => out.push(Effect::Quit),
                _ => self.say(Tone::Info, "the dashboard stays open"),
            },
        }
    }

    fn help_key(&mut self, key: Key, top: u16) {
        let to = match key.code {
            Code::Char('j') | Code::Down => top.saturating_add(1),
            Code::Char('k') | Code::Up => top.saturating_sub(1),
            Code::PageDown | Code::Char(' ') => top.saturating_add(self.size.1 / 2),
            Code::PageUp => top.saturating_sub(self.size.1 / 2),
            Code::Char('g') | Code::Home => 0,
            _ => return,
        };
        let lines = super::help::lines(self.screens.at(self.place), &self.context()).len();
        self.overlay = Overlay::Help(to.min(lines.saturating_sub(1) as u16));
    }

    fn filter_key(&mut self, key: Key, mut field: Field) {
        match key.code {
            Code::Enter => return,
            Code::Esc => field = Field::default(),
            _ => {
                field.key(key);
            }
        }
        let cx = self.data.context(self.size, self.options.readonly);
        self.screens.at_mut(self.place).set_filter(field.text(), &cx);
        if key.code != Code::Esc {
            self.overlay = Overlay::Filter(field);
        }
    }

    /// Undoes the last jump, unless something was opened or typed since.
    fn jump_back(&mut self, out: &mut Outbox) -> bool {
        let Some(jump) = self.trail.last() else { return false };
        let screen = self.screens.at_mut(self.place);
        let inside = screen.depth() > jump.depth || screen.filter() != jump.filter;
        if jump.to != self.place || inside || screen.unsaved() {
            return false;
        }
        screen.leave();
        let from = jump.from;
        self.trail.pop();
        self.message = None;
        self.go(from, out);
        true
    }

    fn screen_key(&mut self, key: Key, out: &mut Outbox) {
        if key == Key::plain(Code::Esc) && self.jump_back(out) {
            return;
        }
        let cx = self.data.context(self.size, self.options.readonly);
        let screen = self.screens.at_mut(self.place);
        if screen.key(key, &cx, out) || screen.typing() {
            return;
        }
        self.frame_key(key, out);
    }

    fn frame_key(&mut self, key: Key, out: &mut Outbox) {
        if let Some(command) = everywhere::command(key) {
            self.command(command, out);
        }
    }

    /// Clears the message, or else the filter.
    fn escape(&mut self) {
        self.message = None;
        let cx = self.data.context(self.size, self.options.readonly);
        let screen = self.screens.at_mut(self.place);
        if !screen.filter().is_empty() {
            screen.set_filter("", &cx);
        }
    }

    fn open_palette(&mut self) {
        let cx = self.data.context(self.size, self.options.readonly);
        self.overlay = Overlay::Palette(Palette::open(self.screens.at(self.place), &cx));
    }

    fn command(&mut self, command: Command, out: &mut Outbox) {
        match command {
            Command::Key(key) => self.screen_key(key, out),
            Command::Go(place) => self.walk(place, out),
            Command::Open(place, subject) => out.go_to(place, subject),
            Command::Sort(column) => {
                self.sort(out, |order, headings| order.by(column, headings));
            }
            Command::SortNext => self.sort(out, Order::next),
            Command::Reverse => self.sort(out, |order, _| order.reverse()),
            Command::NextScreen => self.walk(self.place.step(1), out),
            Command::PreviousScreen => self.walk(self.place.step(Place::ALL.len() - 1), out),
            Command::Palette => self.open_palette(),
            // A different filter: the previous one applies until something is typed.
            Command::Filter => self.overlay = Overlay::Filter(Field::default()),
            Command::Escape => self.escape(),
            Command::Theme(theme) => self.options.theme = theme,
            Command::Mouse => {
                self.options.mouse = !self.options.mouse;
                out.push(Effect::Mouse(self.options.mouse));
                let what = if self.options.mouse { "on" } else { "off" };
                self.say(Tone::Info, format!("mouse {what}"));
            }
            Command::Freeze => {
                self.data.freeze();
                self.refresh(out);
            }
            Command::Back => {
                if !self.data.back() {
                    self.no_further();
                }
                self.refresh(out);
            }
            Command::BackMinute => {
                let at = Time(self.data.snap().at.0.saturating_sub(MINUTE_US));
                if !self.data.back_to(at) {
                    self.no_further();
                }
                self.refresh(out);
            }
            Command::ForwardMinute => {
                let at = Time(self.data.snap().at.0.saturating_add(MINUTE_US));
                self.data.forward_to(at);
                self.refresh(out);
            }
            Command::BackEvent => {
                let now = self.data.snap().at;
                // The first snapshot after the event shows it.
                let before = self
                    .data
                    .event_times()
                    .into_iter()
                    .find(|at| self.data.shown_after(*at).is_some_and(|shown| shown < now));
                match before {
                    Some(at) => self.data.forward_to(at),
                    None => self.no_further(),
                }
                self.refresh(out);
            }
            Command::Forward => {
                if !self.data.forward() {
                    self.say(Tone::Info, "the present is shown");
                }
                self.refresh(out);
            }
            Command::Help => self.overlay = Overlay::Help(0),
            Command::Confirm(confirm) => out.confirm(*confirm),
            Command::Quit => {
                let unsaved = Place::ALL.iter().any(|place| self.screens.at(*place).unsaved());
                if unsaved {
                    self.overlay = Overlay::Leave;
                } else {
                    out.push(Effect::Quit);
                }
            }
        }
    }

    /// Changes the order of the table that takes the keys.
    fn sort(&mut self, out: &mut Outbox, change: impl FnOnce(&mut Order, &[Heading])) {
        let screen = self.screens.at_mut(self.place);
        let headings = screen.headings();
        if let Some(order) = screen.order() {
            change(order, &headings);
            self.refresh(out);
        }
    }

    fn no_further(&mut self) {
        let words = match self.data.reach() {
            Some(at) => format!(
                "nothing earlier is kept: this dashboard started at {}Z",
                super::text::clock(at)
            ),
            None => "nothing is kept yet".to_owned(),
        };
        self.say(Tone::Info, words);
    }

    fn paste(&mut self, text: &str, out: &mut Outbox) {
        let cx = self.data.context(self.size, self.options.readonly);
        let screen = self.screens.at_mut(self.place);
        match &mut self.overlay {
            Overlay::Filter(field) => {
                field.insert(text);
                screen.set_filter(field.text(), &cx);
            }
            Overlay::Palette(palette) => palette.paste(text),
            Overlay::Confirm(confirm) => confirm.paste(text),
            Overlay::None if screen.typing() => screen.paste(text, &cx, out),
            Overlay::None | Overlay::Help(_) | Overlay::Leave => {}
        }
    }

    fn mouse(&mut self, x: u16, y: u16, kind: MouseKind, out: &mut Outbox) {
        if !self.options.mouse || !matches!(self.overlay, Overlay::None) {
            return;
        }
        let cx = self.data.context(self.size, self.options.readonly);
        let screen = self.screens.at_mut(self.place);
        let wheel = |code| (0..WHEEL_LINES).map(move |_| Key::plain(code));
        match kind {
            MouseKind::ScrollUp => wheel(Code::Up).for_each(|key| {
                screen.key(key, &cx, out);
            }),
            MouseKind::ScrollDown => wheel(Code::Down).for_each(|key| {
                screen.key(key, &cx, out);
            }),
            MouseKind::Click if y == super::tabs::ROW => {
                if let Some(place) = super::tabs::hit(x) {
                    self.walk(place, out);
                }
            }
            MouseKind::Click => screen.click(x, y, &cx, out),
        }
    }

    /// Shows an object, from any screen.
    pub fn open(&mut self, subject: Subject) -> Vec<Effect> {
        let mut out = Outbox::after(self.ticket);
        out.go(subject);
        self.dirty = true;
        self.settle(out)
    }
}
