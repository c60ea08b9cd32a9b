//! Edits a task's schedule in place.
//!
//! The expression is parsed with every key, as the scheduler does. The host computes the change to
//! the file, which is requested after a pause in typing. A save names the digest of the file that
//! was opened, so that no other change is lost.
//!
//! ```text
//!   choose a task ──⏎──> form ──keys──> check, preview, forecast   (here)
//!        ^                 │ └──pause─> difference, problems        (the host)
//!        └──────esc────────┘ └──W─reason─> saved | refused, nothing lost
//! ```

mod agenda;
mod check;
mod exchange;
mod form;
mod open;
mod section;
mod values;
mod view;

use besom_core::snapshot::{Answer, Query, Subject};
use besom_core::time::Time;

use self::exchange::News;
use self::open::Open;
use self::values::{Name, Values};
use super::{Hint, Screen};
use crate::dash::context::Context;
use crate::dash::effect::{Effect, Outbox, Tone};
use crate::dash::field::Field;
use crate::dash::key::{Code, Key};
use crate::dash::table::{Column, SortKey, TableState, Width};

/// From this size on, the whole file and the agenda are shown.
const WIDE: (u16, u16) = (140, 36);

/// After this time, an answer counts as lost with its connection.
const PAST_AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

/// The columns of the list of tasks.
const COLUMNS: [Column; 5] = [
    Column::left("TASK", Width::Fill(16), 0),
    Column::left("SCHEDULE", Width::Fill(16), 0),
    Column::left("TIME ZONE", Width::Fixed(18), 1),
    Column::left("OVERLAP", Width::Fixed(8), 2),
    Column::left("CATCH-UP", Width::Fixed(9), 3),
];

/// The Edit screen: a task's schedule, edited in place.
#[derive(Debug, Default)]
pub struct EditScreen {
    table: TableState<String>,
    filter: String,
    open: Option<Open>,
}

impl EditScreen {
    /// Opens the form of a task, unless an open form has unsaved changes.
    fn edit(&mut self, task: &str, cx: &Context<'_>, out: &mut Outbox) {
        self.table.select(task.to_owned());
        let same = self.open.as_ref().is_some_and(|open| open.form.task == task);
        if !same && self.unsaved() {
            let open = self.open.as_ref().map_or("", |open| open.form.task.as_str());
            out.say(
                Tone::Bad,
                format!("{open} has unsaved changes: W saves them, esc discards them"),
            );
            return;
        }
        if !same {
            let Some(known) = cx.snap.task(task) else {
                out.say(Tone::Bad, format!("there is no task called {task}"));
                return;
            };
            if known.orphaned {
                out.say(
                    Tone::Bad,
                    format!("no configuration defines {task}: there is nothing to edit"),
                );
                return;
            }
            self.open = Some(Open::new(task, Values::of(known, None)));
        }
        self.refresh(cx, out);
    }

    fn rows(&self, cx: &Context<'_>) -> Vec<usize> {
        let tasks = &cx.snap.tasks;
        let wanted = self.filter.to_lowercase();
        let shown =
            |row: &usize| wanted.is_empty() || tasks[*row].name.to_lowercase().contains(&wanted);
        self.table.order((0..tasks.len()).filter(shown).collect(), |row, column| {
            let task = &tasks[row];
            match column {
                0 => SortKey::Text(&task.name),
                1 => task.schedule.as_deref().map_or(SortKey::Unknown, SortKey::Text),
                2 => SortKey::Text(&task.timezone),
                3 => SortKey::Text(&task.overlap),
                _ => SortKey::Text(&task.catch_up),
            }
        })
    }

    fn names(&self, cx: &Context<'_>) -> Vec<String> {
        self.rows(cx).into_iter().map(|row| cx.snap.tasks[row].name.clone()).collect()
    }

    fn list_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let names = self.names(cx);
        let chosen = self.table.id(&names).cloned();
        match (key.code, chosen) {
            (Code::Enter | Code::Char('e'), Some(task)) => self.edit(&task, cx, out),
            (Code::Char('y'), Some(task)) => out.copy(task),
            (Code::Char('E'), _) if fault(cx).is_some_and(|fault| fault.place().is_some()) => {
                if let Some((path, line)) = fault(cx).and_then(|fault| fault.place()) {
                    out.push(Effect::Editor { path, line });
                }
            }
            (Code::Char('s'), _) => self.table.sort_next(COLUMNS.len()),
            (Code::Char('S'), _) => self.table.descending = !self.table.descending,
            _ => return self.table.key(key, &names),
        }
        true
    }

    /// Handles a key while the reason is typed.
    fn reason_key(open: &mut Open, key: Key, cx: &Context<'_>, out: &mut Outbox) {
        let Some(reason) = &mut open.reason else { return };
        match key.code {
            Code::Esc => {
                open.reason = None;
                out.say(Tone::Info, "not saved; your changes are kept");
            }
            Code::Enter => {
                let reason = open.reason.take().unwrap_or_default();
                if let Some(why) = open.obstacle(cx) {
                    out.say(Tone::Bad, why);
                    return;
                }
                let (task, set) = (open.form.task.clone(), open.form.changes());
                if let Some(edit) = open.exchange.save(&task, set, reason.text().trim()) {
                    let ticket = out.ask(Query::Edit(edit));
                    open.exchange.sent(ticket, cx.now);
                }
            }
            _ => {
                reason.key(key);
            }
        }
    }

    /// Handles a key while a field is edited.
    fn field_key(open: &mut Open, key: Key, cx: &Context<'_>) {
        match key.code {
            Code::Esc => open.form.leave(),
            Code::Enter | Code::Tab | Code::Down => open.form.go(true, true),
            Code::BackTab | Code::Up => open.form.go(false, true),
            _ => {
                if open.form.key(key) {
                    open.changed(cx);
                }
            }
        }
    }

    /// Handles a key of the form while no field is edited.
    fn form_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let Some(open) = &mut self.open else { return false };
        match key.code {
            Code::Tab | Code::Down => open.form.go(true, true),
            Code::BackTab | Code::Up => open.form.go(false, true),
            Code::Char('j') => open.form.go(true, false),
            Code::Char('k') => open.form.go(false, false),
            Code::Enter | Code::Char('i' | 'e') => open.form.type_into(),
            Code::Char('u') => {
                if open.form.undo() {
                    open.changed(cx);
                } else {
                    out.say(Tone::Info, "nothing to undo");
                }
            }
            Code::Char('W') => match open.obstacle(cx) {
                Some(why) => out.say(Tone::Bad, why),
                None => open.reason = Some(Field::default()),
            },
            Code::Char('R') => {
                open.take_theirs(cx);
                out.say(Tone::Info, "the file is reloaded; your changes are kept");
                self.refresh(cx, out);
            }
            Code::Char('E') => match &open.exchange.file {
                Some(file) => {
                    out.push(Effect::Editor { path: file.path.clone(), line: open.line() });
                }
                None => out.say(Tone::Info, "the configuration file has not been read yet"),
            },
            Code::Char('y') => out.copy(open.form.values().get(open.form.focus).to_owned()),
            Code::Esc if open.form.is_changed() && !open.leaving => {
                open.leaving = true;
                out.say(Tone::Bad, "not saved: esc again discards the changes, W saves them");
            }
            Code::Esc => self.open = None,
            _ => {
                let chosen = open.form.choose(key);
                if chosen {
                    open.changed(cx);
                }
                return chosen;
            }
        }
        true
    }
}

/// The error of a file that a node could not load.
struct Fault<'a> {
    node: &'a str,
    text: &'a str,
    /// The file's path on the node.
    path: &'a str,
}

impl Fault<'_> {
    /// The file and the line of the error: `besom.toml:267:16: ...`.
    fn place(&self) -> Option<(String, u32)> {
        let (_, rest) = self.text.split_once(".toml:")?;
        let line = rest.split(':').next()?.parse().ok()?;
        Some((self.path.to_owned(), line))
    }
}

/// The error of the configuration file: the answering host's, or another host's.
fn fault<'a>(cx: &Context<'a>) -> Option<Fault<'a>> {
    let answers = cx.snap.node(&cx.snap.host).into_iter();
    answers.chain(&cx.snap.nodes).find_map(|node| {
        let report = node.report.as_ref()?;
        let text = report.config_fault.as_deref()?;
        Some(Fault { node: &node.name, text, path: &report.config_path })
    })
}

impl Screen for EditScreen {
    fn key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let typing = self.typing();
        if !typing && (key.ctrl || key.alt) {
            return false;
        }
        match &mut self.open {
            None => self.list_key(key, cx, out),
            Some(open) if open.reason.is_some() => {
                EditScreen::reason_key(open, key, cx, out);
                true
            }
            Some(open) if typing => {
                EditScreen::field_key(open, key, cx);
                true
            }
            Some(_) => self.form_key(key, cx, out),
        }
    }

    fn answer(&mut self, ticket: u64, answer: &Answer, cx: &Context<'_>, out: &mut Outbox) {
        let Some(open) = &mut self.open else { return };
        match open.exchange.answer(ticket, answer, cx.now) {
            Some(News::Opened) => {
                if let Some(file) = open.exchange.file.clone() {
                    open.rebase(&file, cx);
                }
            }
            Some(News::Saved) => {
                let values = open.form.values().clone();
                open.form.rebase(values);
                let task = &open.form.task;
                out.say(Tone::Good, format!("{task}: saved; it applies without a restart"));
            }
            Some(News::NotSaved(why)) => out.say(Tone::Bad, format!("not saved: {why}")),
            // No input can be lost: the form follows the file.
            None if open.exchange.is_stale() && !open.form.is_changed() => open.take_theirs(cx),
            None => {}
        }
        self.refresh(cx, out);
    }

    fn refresh(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let Some(open) = &mut self.open else {
            let names = self.names(cx);
            self.table.settle(&names);
            return;
        };
        open.look(cx);
        if !cx.live {
            open.was_live = false;
            return;
        }
        if !std::mem::replace(&mut open.was_live, true)
            && let Some(News::NotSaved(why)) = open.exchange.lost()
        {
            out.say(Tone::Bad, why);
        }
        if let Some(News::NotSaved(why)) = open.exchange.overdue(cx.now) {
            out.say(Tone::Bad, why);
        }
        // Requested when the form is opened, and again if no answer came.
        let again = open.past_at.is_none_or(|at| cx.now.since(at) > PAST_AGAIN);
        if again && open.past(cx).is_none() {
            open.past_at = Some(cx.now);
            out.ask(open.past_query());
        }
        let changes = open.form.changes();
        open.exchange.due(&open.form.task, &changes, cx.now, |query| out.ask(query));
    }

    fn wake(&self, cx: &Context<'_>) -> Option<Time> {
        Some(self.open.as_ref()?.exchange.next(cx.now))
    }

    fn open(&mut self, subject: &Subject, cx: &Context<'_>, out: &mut Outbox) {
        if let Subject::Task(task) = subject {
            self.edit(task, cx, out);
        }
    }

    fn typing(&self) -> bool {
        let typing = |open: &Open| open.reason.is_some() || open.form.field().is_some();
        self.open.as_ref().is_some_and(typing)
    }

    fn paste(&mut self, text: &str, cx: &Context<'_>, _out: &mut Outbox) {
        let Some(open) = &mut self.open else { return };
        if let Some(reason) = &mut open.reason {
            reason.insert(text);
        } else if open.form.paste(text) {
            open.changed(cx);
        }
    }

    fn unsaved(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.form.is_changed())
    }

    fn depth(&self) -> usize {
        let open = self.open.as_ref();
        open.map_or(0, |open| 1 + usize::from(open.reason.is_some()))
    }

    fn leave(&mut self) {
        self.open = None;
    }

    fn filter(&self) -> &str {
        if self.open.is_some() { "" } else { &self.filter }
    }

    fn set_filter(&mut self, filter: &str, cx: &Context<'_>) {
        if self.open.is_none() {
            filter.clone_into(&mut self.filter);
            let names = self.names(cx);
            self.table.settle(&names);
        }
    }

    fn commands(&self) -> Vec<(&'static str, Key)> {
        if self.open.is_none() {
            return vec![("e: edit the selected task", Key::char('e'))];
        }
        vec![
            ("w: save the schedule", Key::char('W')),
            ("u: undo the last change", Key::char('u')),
            ("e: open the file in $EDITOR", Key::char('E')),
            ("r: reload the file", Key::char('R')),
        ]
    }

    fn columns(&self) -> Vec<&'static str> {
        COLUMNS.iter().map(|column| column.name).collect()
    }

    fn sort(&mut self, column: usize) {
        self.table.sort_by(column, false);
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, _out: &mut Outbox) {
        if self.open.is_none() {
            self.table.click(x, y, &self.names(cx));
        }
    }

    fn words(&self) -> &'static [Hint] {
        &[
            ("OVERLAP", "skip, queue or allow a slot during a run"),
            ("CATCH-UP", "slots missed without a leader: skip, coalesce, N"),
            ("JITTER", "how much later than its slot a run may start"),
        ]
    }

    fn hints(&self, cx: &Context<'_>) -> Vec<Hint> {
        let Some(open) = &self.open else {
            let mut hints = vec![("⏎", "edit"), ("j k", "task"), ("s S", "sort")];
            if fault(cx).is_some_and(|fault| fault.place().is_some()) {
                hints.insert(0, ("E", "$EDITOR at the error"));
            }
            return hints;
        };
        if open.reason.is_some() {
            return vec![("⏎", "save"), ("esc", "back, unsaved")];
        }
        if open.form.field().is_some() {
            return vec![("tab ⏎", "next field"), ("esc", "leave the field, then W saves")];
        }
        let mut hints = vec![
            ("W", if open.obstacle(cx).is_some() { "save (not yet)" } else { "save" }),
            ("⏎ i", "type"),
            ("tab", "next field"),
            ("← →", "choose"),
            ("u", "undo"),
            ("E", "$EDITOR"),
            ("R", "reload"),
            ("esc", "leave"),
        ];
        if open.exchange.is_stale() {
            hints.rotate_right(2);
        }
        hints
    }
}

/// The fields of the form, by rows of the screen.
const ROWS: [&[Name]; 2] =
    [&[Name::Schedule, Name::Timezone], &[Name::Overlap, Name::CatchUp, Name::Jitter]];
