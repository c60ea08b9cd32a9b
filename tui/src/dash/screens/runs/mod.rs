//! The Runs screen: runs, one of them in detail, and its log.
//!
//! The list shows active runs first, then the newest. Enter opens a run: its phases, its progress
//! and estimated end, its resource use relative to its limits, how it compares with the latest runs
//! of its task, and its guests' log.

mod compare;
mod detail;
mod log;
mod older;
mod pace;
mod phases;
mod view;
mod work;

use besom_core::plan::Trigger;
use besom_core::snapshot::{Answer, Run, RunState, Snapshot, Subject};
use besom_core::time::Time;

use self::detail::{Detail, Pane};
use self::older::Older;
use self::pace::Pace;
use self::phases::Progress;
use super::figure::{clock_ms, date_clock};
use super::{Hint, Screen};
use crate::dash::actions;
use crate::dash::context::Context;
use crate::dash::effect::{Effect, Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::{Column, SortKey, TableState, Width};
use crate::dash::text;

/// Lines by which page up and page down move the log.
const PAGE: isize = 10;

/// The distance from the end of the list at which older runs are requested.
const AHEAD: usize = 20;

/// The columns of the list.
const COLUMNS: [Column; 9] = [
    Column::right("RUN", Width::Fixed(7), 0),
    Column::left("TASK", Width::Fill(14), 0),
    Column::left("STATE", Width::Fixed(9), 0),
    Column::left("STARTED (UTC)", Width::Fixed(14), 3),
    Column::right("TOOK", Width::Fixed(7), 1),
    Column::right("PLANNED", Width::Fixed(9), 2),
    Column::right("OPEN", Width::Fixed(8), 2),
    Column::left("BY", Width::Fixed(12), 4),
    Column::left("ERROR", Width::Fill(10), 5),
];

/// Runs.
#[derive(Debug, Default)]
pub struct RunsScreen {
    table: TableState<u64>,
    filter: String,
    /// Runs beyond those of the snapshot, as far as they were requested.
    older: Older,
    pace: Pace,
    detail: Option<Detail>,
}

/// How long a run took, or has taken so far.
fn took(run: &Run, now: Time) -> std::time::Duration {
    run.ended_at.unwrap_or(now).since(run.started_at)
}

/// What started a run: the trigger, and the operator with the reason.
fn by(trigger: &Trigger) -> String {
    match trigger {
        Trigger::Schedule => "schedule".to_owned(),
        Trigger::Manual { by, reason } if reason.is_empty() => by.clone(),
        Trigger::Manual { by, reason } => format!("{by}: {reason}"),
        Trigger::Takeover => "takeover".to_owned(),
        Trigger::Pass => "one pass".to_owned(),
    }
}

/// A state in a word.
fn state_word(state: RunState) -> &'static str {
    match state {
        RunState::Scanning => "SCANNING",
        RunState::Executing => "RUNNING",
        RunState::Ok => "ok",
        RunState::Failed => "FAILED",
        RunState::Unknown => "?",
    }
}

impl RunsScreen {
    /// Records a snapshot, whatever screen is shown: the speed of runs is measured across
    /// snapshots.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        self.pace.observe(snapshot);
    }

    /// The runs of the list.
    fn rows<'a>(&'a self, cx: &Context<'a>) -> Vec<&'a Run> {
        let runs = self.older.with(cx.snap);
        let wanted = self.filter.to_lowercase();
        let shown = |run: &Run| {
            wanted.is_empty()
                || run.task.to_lowercase().contains(&wanted)
                || run.id.to_string().contains(&wanted)
                || state_word(run.state).to_lowercase().contains(&wanted)
        };
        let mut rows: Vec<usize> = (0..runs.len()).filter(|row| shown(runs[*row])).collect();
        rows.sort_by_key(|row| {
            let run = runs[*row];
            (!run.state.is_active(), std::cmp::Reverse(run.id))
        });
        let order = self.table.order(rows, |row, column| {
            let run = runs[row];
            match column {
                0 => SortKey::Number(run.id as f64),
                1 => SortKey::Text(&run.task),
                2 => SortKey::Text(state_word(run.state)),
                3 => SortKey::Number(run.started_at.0 as f64),
                4 => SortKey::Number(took(run, cx.now).as_secs_f64()),
                5 => SortKey::Number(run.planned as f64),
                6 => SortKey::Number(run.open as f64),
                7 => match &run.trigger {
                    Trigger::Manual { by, .. } => SortKey::Text(by),
                    Trigger::Schedule => SortKey::Text("schedule"),
                    Trigger::Takeover => SortKey::Text("takeover"),
                    Trigger::Pass => SortKey::Text("one pass"),
                },
                _ => run.error.as_deref().map_or(SortKey::Unknown, SortKey::Text),
            }
        });
        order.into_iter().map(|row| runs[row]).collect()
    }

    /// The numbers of the list.
    fn ids(&self, cx: &Context<'_>) -> Vec<u64> {
        self.rows(cx).into_iter().map(|run| run.id).collect()
    }

    /// Requests runs beyond the snapshot: those that match the filter, and those past the end.
    fn follow(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let ids = self.ids(cx);
        self.table.settle(&ids);
        let at_end = self.table.place(&ids).is_some_and(|place| place + AHEAD >= ids.len());
        self.older.follow(&self.filter, at_end && !ids.is_empty(), cx, out);
    }

    fn look_at(&mut self, run: u64, cx: &Context<'_>, out: &mut Outbox) {
        self.table.select(run);
        if self.detail.as_ref().is_none_or(|detail| detail.id != run) {
            self.detail = Some(Detail::open(run));
        }
        self.refresh(cx, out);
    }

    /// Asks for confirmation before a run is cancelled.
    fn cancel(run: Option<&Run>, out: &mut Outbox) {
        match run {
            None => out.say(Tone::Info, "there is no run to cancel"),
            Some(run) if !run.state.is_active() => {
                out.say(Tone::Info, format!("run {} has already ended", run.id));
            }
            // The leader would refuse it.
            Some(run) if run.state != RunState::Scanning => out.say(
                Tone::Info,
                format!(
                    "run {} has nothing left to cancel: its scan has ended; the planned items \
                     are still executed",
                    run.id
                ),
            ),
            Some(run) => {
                let progress = Progress::of(run);
                let line = format!(
                    "{} of {} items are done; the others are still executed.",
                    text::grouped(progress.done),
                    text::grouped(progress.planned)
                );
                out.confirm(actions::cancel(run.id, &run.task).line(line));
            }
        }
    }

    fn list_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let ids = self.ids(cx);
        let chosen = self.table.id(&ids).copied();
        match (key.code, chosen) {
            (Code::Enter, Some(run)) => self.look_at(run, cx, out),
            (Code::Char('K'), chosen) => {
                let rows = self.rows(cx);
                Self::cancel(rows.into_iter().find(|run| Some(run.id) == chosen), out);
            }
            (Code::Char('y'), Some(run)) => out.copy(run.to_string()),
            (Code::Char('t'), Some(run)) => {
                if let Some(run) = self.rows(cx).into_iter().find(|known| known.id == run) {
                    out.go(Subject::Task(run.task.clone()));
                }
            }
            (Code::Char('s'), _) => self.table.sort_next(COLUMNS.len()),
            (Code::Char('S'), _) => self.table.descending = !self.table.descending,
            _ => {
                let moved = self.table.key(key, &ids);
                self.follow(cx, out);
                return moved;
            }
        }
        true
    }

    fn detail_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let Some(detail) = &mut self.detail else { return false };
        let log = &mut detail.log;
        match key.code {
            Code::Esc if !log.pattern().is_empty() => log.search(""),
            Code::Esc => self.detail = None,
            Code::Char('s') => {
                let follow = !log.follows();
                log.follow(follow);
            }
            Code::Char('w') => log.wrap = !log.wrap,
            Code::Char('L') => log.level = log.level.next(),
            Code::Char('n') => log.next_match(true),
            Code::Char('N') => log.next_match(false),
            Code::Char('K') => Self::cancel(detail.run(cx.snap), out),
            Code::Char('i') => (detail.pane, detail.top) = (detail.pane.next(), 0),
            Code::Char('y') => match log.current() {
                Some(line) => out.copy(line.text.clone()),
                None => out.say(Tone::Info, "nothing is logged yet"),
            },
            Code::Char('o') => out.push(Effect::Pager(detail.paged(cx.snap))),
            Code::Char('E') => match detail.export(cx.snap) {
                Some(text) => out.export(format!("run-{}.json", detail.id), text),
                None => out.say(Tone::Info, "this run has not been read yet"),
            },
            Code::Char('t') => {
                if let Some(run) = detail.run(cx.snap) {
                    out.go(Subject::Task(run.task.clone()));
                }
            }
            _ => return detail.step(key),
        }
        true
    }
}

impl Detail {
    /// Scrolls the pane below the figures; false: the key does not scroll.
    fn step(&mut self, key: Key) -> bool {
        let by = match key.code {
            Code::Char('j') | Code::Down => 1,
            Code::Char('k') | Code::Up => -1,
            Code::PageDown => PAGE,
            Code::PageUp => -PAGE,
            Code::Char('g') | Code::Home => isize::MIN / 2,
            Code::Char('G') | Code::End => isize::MAX / 2,
            _ => return false,
        };
        match self.pane {
            Pane::Log => self.log.step(by),
            Pane::Items | Pane::Nodes => {
                let last = self.without_effect().count().saturating_sub(1);
                self.top = self.top.saturating_add_signed(by).min(last);
            }
        }
        true
    }

    /// The run and its log as text for a pager.
    fn paged(&self, snapshot: &Snapshot) -> String {
        let mut lines = Vec::new();
        if let Some(run) = self.run(snapshot) {
            let state = state_word(run.state);
            let started = date_clock(run.started_at);
            lines.push(format!("run {} of {}: {state}, started {started}Z", run.id, run.task));
            lines.extend(run.error.iter().map(|error| format!("error: {error}")));
        }
        for item in self.without_effect() {
            let reason = item.reason.as_deref().unwrap_or("");
            lines.push(format!("{} {}: {reason}", item.outcome, item.key));
        }
        for line in self.log.lines() {
            if line.dropped > 0 {
                lines.push(format!("⋮ {} lines dropped", line.dropped));
            }
            let (at, level) = (clock_ms(line.at), &line.level);
            lines.push(format!("{at} {level:<5} {}  {}", line.node, line.text));
        }
        let clean: Vec<_> = lines.iter().map(|line| text::clean(line).into_owned()).collect();
        clean.join("\n")
    }
}

impl Screen for RunsScreen {
    fn key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        if key.ctrl || key.alt {
            return false;
        }
        if self.detail.is_some() {
            self.detail_key(key, cx, out)
        } else {
            self.list_key(key, cx, out)
        }
    }

    fn answer(&mut self, ticket: u64, answer: &Answer, cx: &Context<'_>, out: &mut Outbox) {
        match answer {
            Answer::Runs(page) => self.older.take(ticket, Some(page)),
            Answer::Refused(_) => self.older.take(ticket, None),
            _ => {}
        }
        let Some(detail) = &mut self.detail else { return };
        if detail.answer(ticket, answer, cx.now) {
            self.refresh(cx, out);
        }
    }

    fn refresh(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        if let Some(detail) = &mut self.detail {
            detail.ask(cx.snap, cx.live, cx.now, |query| out.ask(query));
        } else {
            self.follow(cx, out);
        }
    }

    fn wake(&self, cx: &Context<'_>) -> Option<Time> {
        self.detail.as_ref()?.due(cx.now)
    }

    fn open(&mut self, subject: &Subject, cx: &Context<'_>, out: &mut Outbox) {
        match subject {
            Subject::Run(run) => self.look_at(*run, cx, out),
            Subject::Task(task) => {
                self.detail = None;
                self.set_filter(task, cx);
                self.follow(cx, out);
            }
            Subject::Leader
            | Subject::Node(_)
            | Subject::Queue(_)
            | Subject::Dead(_)
            | Subject::Ring
            | Subject::Config => {}
        }
    }

    fn depth(&self) -> usize {
        usize::from(self.detail.is_some())
    }

    fn leave(&mut self) {
        self.detail = None;
        self.filter.clear();
    }

    fn filter(&self) -> &str {
        self.detail.as_ref().map_or(&self.filter, |detail| detail.log.pattern())
    }

    fn set_filter(&mut self, filter: &str, cx: &Context<'_>) {
        match &mut self.detail {
            Some(detail) => {
                detail.log.search(filter);
                detail.pane = Pane::Log;
            }
            None => {
                filter.clone_into(&mut self.filter);
                let ids = self.ids(cx);
                self.table.settle(&ids);
            }
        }
    }

    fn commands(&self) -> Vec<(&'static str, Key)> {
        if self.detail.is_none() {
            return Vec::new();
        }
        vec![
            ("follow the log or stop", Key::char('s')),
            ("minimum level of the log", Key::char('L')),
            ("wrap long lines of the log", Key::char('w')),
            ("show the log in $PAGER", Key::char('o')),
            ("export this run as JSON", Key::char('E')),
            ("items and nodes of this run", Key::char('i')),
        ]
    }

    fn columns(&self) -> Vec<&'static str> {
        COLUMNS.iter().map(|column| column.name).collect()
    }

    fn sort(&mut self, column: usize) {
        self.table.sort_by(column, !matches!(column, 1 | 2 | 7));
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, _out: &mut Outbox) {
        if self.detail.is_none() {
            let ids = self.ids(cx);
            self.table.click(x, y, &ids);
        }
    }

    fn words(&self) -> &'static [Hint] {
        &[
            ("PLANNED", "items that the run planned"),
            ("OPEN", "of these, items not done yet"),
            ("BY", "what or who started it"),
            ("already queued", "candidates with an item in the queue"),
            ("left alone", "settled or set aside before; unchanged since"),
            ("waited", "from the slot to the start"),
            ("▲ here", "this run among the latest, short to long"),
        ]
    }

    fn hints(&self, cx: &Context<'_>) -> Vec<Hint> {
        let chosen = match &self.detail {
            Some(detail) => Some(detail.id),
            None => self.table.id(&self.ids(cx)).copied(),
        };
        let scans = chosen.and_then(|run| cx.snap.run(run));
        let scans = scans.is_some_and(|run| run.state == RunState::Scanning);
        let cancel = (scans && !cx.readonly).then_some(("K", "cancel"));
        let Some(detail) = &self.detail else {
            let hints = [("t", "task"), ("s S", "sort"), ("y", "copy")];
            return [("⏎", "detail and log")].into_iter().chain(cancel).chain(hints).collect();
        };
        let follow = if detail.log.follows() { "stop following" } else { "follow" };
        let hints = [("s", follow), ("/ n N", "search"), ("L", "level"), ("i", "items, nodes")];
        let rest = [
            ("E", "export"),
            ("w", "wrap"),
            ("o", "pager"),
            ("y", "copy line"),
            ("t", "task"),
            ("esc", "back"),
        ];
        hints.into_iter().chain(cancel).chain(rest).collect()
    }
}
