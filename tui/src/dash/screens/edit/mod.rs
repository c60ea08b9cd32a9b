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

use besom_core::time::Time;
use besom_snapshot::{Answer, Query, Subject, Task};

use self::exchange::News;
use self::open::Open;
use self::values::{Name, Values};
use super::Screen;
use crate::dash::bindings::{Binding, Bound, Hint, Keys as _};
use crate::dash::context::Context;
use crate::dash::effect::{Effect, Outbox, Tone};
use crate::dash::field::Field;
use crate::dash::key::{Code, Key};
use crate::dash::table::{
    self, Column, Emphasis, Heading, Order, SortKey, TableState, Width, plain,
};
use crate::dash::text;

/// From this size on, the whole file and the agenda are shown.
const WIDE: (u16, u16) = (140, 36);

/// After this time, an answer counts as lost with its connection.
const PAST_AGAIN: std::time::Duration = std::time::Duration::from_secs(10);

type Col = Column<Task>;

/// The columns of the list of tasks.
const COLUMNS: &[Col] = &[
    Col::left("TASK", Width::Fill(16), 0, |task, _| match task.orphaned {
        true => (format!("{} (orphaned)", task.name), Emphasis::Dim),
        false => plain(&task.name),
    })
    .by(|task, _| SortKey::Text(&task.name)),
    Col::left("SCHEDULE", Width::Fill(16), 0, |task, _| match &task.schedule {
        Some(schedule) => plain(schedule),
        None => ("by trigger only".to_owned(), Emphasis::Dim),
    })
    .by(|task, _| SortKey::text(task.schedule.as_deref())),
    Col::left("TIME ZONE", Width::Fixed(18), 1, |task, _| plain(&task.timezone))
        .by(|task, _| SortKey::Text(&task.timezone)),
    Col::left("OVERLAP", Width::Fixed(8), 2, |task, _| plain(&task.overlap))
        .by(|task, _| SortKey::Text(&task.overlap)),
    Col::left("CATCH-UP", Width::Fixed(9), 3, |task, _| plain(&task.catch_up))
        .by(|task, _| SortKey::Text(&task.catch_up)),
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

    fn rows<'a>(&self, cx: &Context<'a>) -> Vec<&'a Task> {
        let shown = |task: &&Task| text::passes(&self.filter, [&*task.name]);
        let tasks = cx.snap.tasks.iter().map(|task| &**task).filter(shown).collect();
        self.table.order.arrange(COLUMNS, tasks, cx)
    }

    fn names(&self, cx: &Context<'_>) -> Vec<String> {
        self.rows(cx).into_iter().map(|task| task.name.clone()).collect()
    }

    /// The selected task of the list.
    fn chosen(&self, cx: &Context<'_>) -> Option<String> {
        let names = self.names(cx);
        self.table.id(&names).cloned()
    }

    /// Does something with the open form, if there is one.
    fn with(&mut self, act: impl FnOnce(&mut Open)) {
        if let Some(open) = &mut self.open {
            act(open);
        }
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

    /// Reloads the file and keeps the changes.
    fn reload(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        self.with(|open| open.take_theirs(cx));
        out.say(Tone::Info, "the file is reloaded; your changes are kept");
        self.refresh(cx, out);
    }

    /// Leaves the form; changes are discarded if it is asked twice.
    fn leave_form(&mut self, out: &mut Outbox) {
        match &mut self.open {
            Some(open) if open.form.is_changed() && !open.leaving => {
                open.leaving = true;
                out.say(Tone::Bad, "not saved: esc again discards the changes, W saves them");
            }
            _ => self.open = None,
        }
    }
}

type Bind = Binding<EditScreen>;

impl Bound for EditScreen {
    const BINDINGS: &'static [Bind] = &[
        Bind::new("E", "$EDITOR at the error", &[Code::Char('E')], |_, _, cx, out| {
            if let Some((path, line)) = fault(cx).and_then(|fault| fault.place()) {
                out.push(Effect::Editor { path, line });
            }
        })
        .when(|screen, cx| in_list(screen, cx) && fault(cx).is_some_and(|f| f.place().is_some())),
        Bind::new("⏎", "edit", &[Code::Char('e'), Code::Enter], |screen, _, cx, out| {
            if let Some(task) = screen.chosen(cx) {
                screen.edit(&task, cx, out);
            }
        })
        .when(in_list)
        .command("e: edit the selected task"),
        Bind::shown("j k", "task").when(in_list),
        Bind::shown("s S", "sort").when(in_list),
        Bind::hidden(&[Code::Char('y')], |screen, _, cx, out| {
            if let Some(task) = screen.chosen(cx) {
                out.copy(task);
            }
        })
        .when(in_list),
        // The reason and a field take every key.
        Bind::shown("⏎", "save").when(in_reason),
        Bind::shown("esc", "back, unsaved").when(in_reason),
        Bind::shown("tab ⏎", "next field").when(in_field),
        Bind::shown("esc", "leave the field, then W saves").when(in_field),
        // The form. If the file has changed, it has to be reloaded first.
        Bind::new("R", "reload", &[Code::Char('R')], |s, _, cx, out| s.reload(cx, out))
            .when(|screen, cx| in_form(screen, cx) && is_stale(screen))
            .command(RELOAD),
        Bind::new("esc", "leave", &[Code::Esc], |screen, _, _, out| screen.leave_form(out))
            .when(|screen, cx| in_form(screen, cx) && is_stale(screen)),
        Bind::new("W", "save", &[Code::Char('W')], |screen, _, _, _| {
            screen.with(|open| open.reason = Some(Field::default()));
        })
        .when(|screen, cx| in_form(screen, cx) && obstacle(screen, cx).is_none())
        .command(SAVE),
        Bind::new("W", "save (not yet)", &[Code::Char('W')], |screen, _, cx, out| {
            if let Some(why) = obstacle(screen, cx) {
                out.say(Tone::Bad, why);
            }
        })
        .when(|screen, cx| in_form(screen, cx) && obstacle(screen, cx).is_some())
        .command(SAVE),
        Bind::new(
            "⏎ i",
            "type",
            &[Code::Enter, Code::Char('i'), Code::Char('e')],
            |screen, _, _, _| screen.with(|open| open.form.type_into()),
        )
        .when(in_form),
        Bind::shown("tab", "next field").when(in_form),
        Bind::shown("← →", "choose").when(in_form),
        Bind::new("u", "undo", &[Code::Char('u')], |screen, _, cx, out| {
            screen.with(|open| match open.form.undo() {
                true => open.changed(cx),
                false => out.say(Tone::Info, "nothing to undo"),
            });
        })
        .when(in_form)
        .command("u: undo the last change"),
        Bind::new("E", "$EDITOR", &[Code::Char('E')], |screen, _, _, out| {
            screen.with(|open| match &open.exchange.file {
                Some(file) => {
                    out.push(Effect::Editor { path: file.path.clone(), line: open.line() });
                }
                None => out.say(Tone::Info, "the configuration file has not been read yet"),
            });
        })
        .when(in_form)
        .command("e: open the file in $EDITOR"),
        Bind::new("R", "reload", &[Code::Char('R')], |s, _, cx, out| s.reload(cx, out))
            .when(|screen, cx| in_form(screen, cx) && !is_stale(screen))
            .command(RELOAD),
        Bind::new("esc", "leave", &[Code::Esc], |screen, _, _, out| screen.leave_form(out))
            .when(|screen, cx| in_form(screen, cx) && !is_stale(screen)),
        Bind::hidden(&[Code::Char('y')], |screen, _, _, out| {
            screen.with(|open| out.copy(open.form.values().get(open.form.focus).to_owned()));
        })
        .when(in_form),
    ];
}

/// The commands of the palette that save the schedule and that reload the file.
const SAVE: &str = "w: save the schedule";
const RELOAD: &str = "r: reload the file";

fn in_list(screen: &EditScreen, _: &Context<'_>) -> bool {
    screen.open.is_none()
}

fn in_reason(screen: &EditScreen, _: &Context<'_>) -> bool {
    screen.open.as_ref().is_some_and(|open| open.reason.is_some())
}

fn in_field(screen: &EditScreen, cx: &Context<'_>) -> bool {
    screen.typing() && !in_reason(screen, cx)
}

fn in_form(screen: &EditScreen, _: &Context<'_>) -> bool {
    screen.open.is_some() && !screen.typing()
}

/// Whether the file has changed since it was opened.
fn is_stale(screen: &EditScreen) -> bool {
    screen.open.as_ref().is_some_and(|open| open.exchange.is_stale())
}

/// Why the form cannot be saved now.
fn obstacle(screen: &EditScreen, cx: &Context<'_>) -> Option<String> {
    screen.open.as_ref()?.obstacle(cx)
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
        match &mut self.open {
            Some(open) if open.reason.is_some() => EditScreen::reason_key(open, key, cx, out),
            Some(open) if open.form.field().is_some() => EditScreen::field_key(open, key, cx),
            _ => {
                let bare = !key.ctrl && !key.alt;
                return bare && (self.press(key, cx, out) || self.step(key, cx, out));
            }
        }
        true
    }

    fn step(&mut self, key: Key, cx: &Context<'_>, _out: &mut Outbox) -> bool {
        let Some(open) = &mut self.open else {
            let names = self.names(cx);
            return self.table.key(key, &names);
        };
        match key.code {
            Code::Tab | Code::Down => open.form.go(true, true),
            Code::BackTab | Code::Up => open.form.go(false, true),
            Code::Char('j') => open.form.go(true, false),
            Code::Char('k') => open.form.go(false, false),
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

    fn headings(&self) -> Vec<Heading> {
        if self.open.is_none() { table::headings(COLUMNS) } else { Vec::new() }
    }

    fn order(&mut self) -> Option<&mut Order> {
        self.open.is_none().then_some(&mut self.table.order)
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
            ("MODE", "preview shows, approve waits for a person, live executes"),
        ]
    }
}

/// The fields of the form, by rows of the screen.
const ROWS: [&[Name]; 3] = [
    &[Name::Schedule, Name::Timezone],
    &[Name::Overlap, Name::CatchUp, Name::Jitter],
    &[Name::Mode],
];
