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
mod planned;
mod view;
mod work;

use besom_core::command::{counted, with_reason};
use besom_core::mode::Mode;
use besom_core::plan::Trigger;
use besom_core::time::Time;
use besom_snapshot::{Answer, Run, RunState, Snapshot, Subject, WaitingReview};

use self::detail::{Detail, Pane};
use self::older::Older;
use self::pace::Pace;
use self::phases::Progress;
use super::Screen;
use super::figure::{clock_ms, date_clock};
use crate::dash::actions;
use crate::dash::bindings::{Binding, Bound, Hint};
use crate::dash::context::Context;
use crate::dash::effect::{Effect, Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::{
    self, Column, Emphasis, Heading, Order, SortKey, TableState, Width, plain,
};
use crate::dash::text;

/// Lines by which page up and page down move the log.
const PAGE: isize = 10;

/// The distance from the end of the list at which older runs are requested.
const AHEAD: usize = 20;

type Col = Column<Run>;

/// The columns of the list.
const COLUMNS: &[Col] = &[
    Col::right("RUN", Width::Fixed(7), 0, |run, _| plain(run.id.to_string()))
        .by(|run, _| SortKey::Number(run.id as f64))
        .descending(),
    Col::left("TASK", Width::Fill(14), 0, |run, _| plain(&run.task))
        .by(|run, _| SortKey::Text(&run.task)),
    Col::left("STATE", Width::Fixed(9), 0, |run, cx| {
        let (word, emphasis) = state(run, cx.snap);
        (word.to_owned(), emphasis)
    })
    .by(|run, cx| SortKey::Text(state(run, cx.snap).0)),
    Col::left("STARTED (UTC)", Width::Fixed(14), 3, |run, _| {
        plain(run.started_at.to_jiff().strftime("%m-%d %H:%M:%S").to_string())
    })
    .by(|run, _| SortKey::Number(run.started_at.0 as f64))
    .descending(),
    Col::right("TOOK", Width::Fixed(7), 1, |run, cx| plain(text::took_span(took(run, cx.now))))
        .by(|run, cx| SortKey::Number(took(run, cx.now).as_secs_f64()))
        .descending(),
    Col::right("PLANNED", Width::Fixed(9), 2, |run, _| plain(text::grouped(run.planned)))
        .by(|run, _| SortKey::Number(run.planned as f64))
        .descending(),
    Col::right("OPEN", Width::Fixed(8), 2, |run, _| plain(text::grouped(run.open)))
        .by(|run, _| SortKey::Number(run.open as f64))
        .descending(),
    Col::left("BY", Width::Fixed(12), 4, |run, _| (by(&run.trigger), Emphasis::Dim)).by(
        |run, _| match &run.trigger {
            Trigger::Manual { by, .. } => SortKey::Text(by),
            Trigger::Schedule => SortKey::Text("schedule"),
            Trigger::Takeover => SortKey::Text("takeover"),
            Trigger::Pass => SortKey::Text("one pass"),
        },
    ),
    Col::left("ERROR", Width::Fill(10), 5, |run, _| {
        (run.error.clone().unwrap_or_default(), Emphasis::Bad)
    })
    .by(|run, _| SortKey::text(run.error.as_deref()))
    .descending(),
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
        Trigger::Manual { by, reason } => with_reason(by, reason),
        Trigger::Takeover => "takeover".to_owned(),
        Trigger::Pass => "one pass".to_owned(),
    }
}

/// How a run stands, in a word and its emphasis.
fn state(run: &Run, snap: &Snapshot) -> (&'static str, Emphasis) {
    let stopped = snap.stop(run).map(|stop| stop.word);
    match (run.state, run.mode) {
        _ if stopped == Some("braked") => ("BRAKED", Emphasis::Bad),
        _ if stopped == Some("paused") => ("PAUSED", Emphasis::Warn),
        _ if stopped.is_some() => ("CLOSED", Emphasis::Warn),
        _ if snap.waits(run) => ("WAITS", Emphasis::Warn),
        (RunState::Scanning, _) => ("SCANNING", Emphasis::Accent),
        (RunState::Executing, _) => ("RUNNING", Emphasis::Accent),
        (RunState::Ok, Mode::Preview) => ("preview", Emphasis::Good),
        (RunState::Ok, _) => ("ok", Emphasis::Good),
        (RunState::Failed, _) => ("FAILED", Emphasis::Bad),
        (state @ (RunState::Rejected | RunState::Lapsed), _) => (state.as_str(), Emphasis::Warn),
        (RunState::Unknown, _) => ("?", Emphasis::Dim),
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
        let shown = |run: &&Run| {
            self.filter.is_empty() || {
                let id = run.id.to_string();
                text::passes(&self.filter, [&*run.task, &id, state(run, cx.snap).0])
            }
        };
        let runs = self.older.with(cx.snap).into_iter();
        let mut runs: Vec<&Run> = runs.filter(shown).collect();
        runs.sort_by_key(|run| (!run.state.is_active(), std::cmp::Reverse(run.id)));
        self.table.order.arrange(COLUMNS, runs, cx)
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

    /// Asks for confirmation before what a run has planned is approved or rejected.
    fn decide(&self, approve: bool, cx: &Context<'_>, out: &mut Outbox) {
        let Some(run) = self.chosen(cx) else { return };
        let open = self.detail.as_ref().and_then(|detail| detail.review());
        let task = cx.snap.task(&run.task).and_then(|task| task.review.as_ref());
        let of_task = task.filter(|review| review.run.0 == run.id);
        let open = open.map(WaitingReview::from);
        match open.as_ref().or(of_task) {
            None => out.say(Tone::Info, format!("run {} is still planning", run.id)),
            Some(review) => out.confirm(match approve {
                true => actions::approve(&run.task, review),
                false => actions::reject(run.id, &run.task).line(&*review.summary),
            }),
        }
    }

    /// Asks for confirmation before what a run has done is undone.
    fn undo(&self, cx: &Context<'_>, out: &mut Outbox) {
        match self.chosen(cx) {
            None => {}
            Some(run) if run.state.is_active() => {
                out.say(Tone::Info, format!("run {} has not ended", run.id));
            }
            Some(run) => {
                let items = format!("It has planned {} items.", text::grouped(run.planned));
                out.confirm(actions::undo(run.id, &run.task).line(items));
            }
        }
    }

    /// The run that the keys mean: the open one, or the selected one.
    fn chosen<'a>(&'a self, cx: &Context<'a>) -> Option<&'a Run> {
        if let Some(detail) = &self.detail {
            return detail.run(cx.snap);
        }
        let rows = self.rows(cx);
        let ids: Vec<u64> = rows.iter().map(|run| run.id).collect();
        Some(rows[self.table.place(&ids)?])
    }

    /// Does something with the open run, if there is one.
    fn with(&mut self, act: impl FnOnce(&mut Detail)) {
        if let Some(detail) = &mut self.detail {
            act(detail);
        }
    }
}

type Bind = Binding<RunsScreen>;

impl Bound for RunsScreen {
    const BINDINGS: &'static [Bind] = &[
        Bind::new("⏎", "detail and log", &[Code::Enter], |screen, _, cx, out| {
            if let Some(run) = screen.chosen(cx).map(|run| run.id) {
                screen.look_at(run, cx, out);
            }
        })
        .when(in_list),
        Bind::new("K", "cancel", &[Code::Char('K')], cancel_chosen).when(scans).changes(),
        Bind::new("a", "approve", &[Code::Char('a')], approve_chosen).when(is_held).changes(),
        Bind::new("x", "reject", &[Code::Char('x')], reject_chosen).when(is_held).changes(),
        Bind::new("U", "undo", &[Code::Char('U')], undo_chosen).when(can_undo).changes(),
        Bind::shown("s S", "sort").when(in_list),
        Bind::new("y", "copy", &[Code::Char('y')], |screen, _, cx, out| {
            if let Some(run) = screen.chosen(cx) {
                out.copy(run.id.to_string());
            }
        })
        .when(in_list),
        // A run in detail.
        Bind::new("s", "follow/stop", &[Code::Char('s')], |screen, _, _, _| {
            screen.with(|detail| detail.log.follow(!detail.log.follows()));
        })
        .when(in_detail)
        .command("follow the log or stop"),
        Bind::new("/ n N", "search", &[Code::Char('n'), Code::Char('N')], |screen, key, _, _| {
            screen.with(|detail| detail.next_match(key.code == Code::Char('n')));
        })
        .when(in_detail),
        Bind::new("L", "level", &[Code::Char('L')], |screen, _, _, _| {
            screen.with(|detail| detail.log.level = detail.log.level.next());
        })
        .when(in_detail)
        .command("minimum level of the log"),
        Bind::new("i", "items, nodes", &[Code::Char('i')], |screen, _, _, _| {
            screen.with(|detail| {
                let has_plan = detail.review().is_some();
                (detail.pane, detail.top) = (detail.pane.next(has_plan), 0);
            });
        })
        .when(in_detail)
        .command("items and nodes of this run"),
        Bind::new("E", "export", &[Code::Char('E')], |screen, _, cx, out| {
            let Some(detail) = &screen.detail else { return };
            match detail.export(cx.snap) {
                Some(text) => out.export(format!("run-{}.json", detail.id), text),
                None => out.say(Tone::Info, "this run has not been read yet"),
            }
        })
        .when(in_detail)
        .command("export this run as JSON"),
        Bind::new("w", "wrap", &[Code::Char('w')], |screen, _, _, _| {
            screen.with(|detail| detail.log.wrap = !detail.log.wrap);
        })
        .when(in_detail)
        .command("wrap long lines"),
        Bind::new("o", "pager", &[Code::Char('o')], |screen, _, cx, out| {
            screen.with(|detail| out.push(Effect::Pager(detail.paged(cx.snap))));
        })
        .when(in_detail)
        .command("show the log in $PAGER"),
        Bind::new("y", "copy line", &[Code::Char('y')], |screen, _, _, out| {
            let line = screen.detail.as_ref().and_then(|detail| detail.log.current());
            match line {
                Some(line) => out.copy(line.text.clone()),
                None => out.say(Tone::Info, "nothing is logged yet"),
            }
        })
        .when(in_detail),
        Bind::new("t", "task", &[Code::Char('t')], |screen, _, cx, out| {
            if let Some(run) = screen.chosen(cx) {
                out.go(Subject::Task(run.task.clone()));
            }
        }),
        Bind::new("esc", "back", &[Code::Esc], |screen, _, _, _| match &mut screen.detail {
            Some(detail) if !detail.log.pattern().is_empty() => detail.log.search(""),
            _ => screen.detail = None,
        })
        .when(in_detail),
        // For a run that has nothing left to cancel: it is said why.
        Bind::hidden(&[Code::Char('K')], cancel_chosen),
    ];
}

fn in_list(screen: &RunsScreen, _: &Context<'_>) -> bool {
    screen.detail.is_none()
}

fn in_detail(screen: &RunsScreen, _: &Context<'_>) -> bool {
    screen.detail.is_some()
}

/// Whether the scan of the run that the keys mean has not ended.
fn scans(screen: &RunsScreen, cx: &Context<'_>) -> bool {
    let chosen = screen.chosen(cx).and_then(|run| cx.snap.run(run.id));
    chosen.is_some_and(|run| run.state == RunState::Scanning)
}

/// Whether the run that the keys mean waits for an approval.
fn is_held(screen: &RunsScreen, cx: &Context<'_>) -> bool {
    screen.chosen(cx).is_some_and(|run| run.held && run.state.is_active())
}

/// Whether the run that the keys mean may have changed rows.
fn can_undo(screen: &RunsScreen, cx: &Context<'_>) -> bool {
    let changed = |run: &Run| run.mode != Mode::Preview && run.planned > 0 && !run.held;
    screen.chosen(cx).is_some_and(|run| changed(run) && !run.state.is_active())
}

fn approve_chosen(screen: &mut RunsScreen, _: Key, cx: &Context<'_>, out: &mut Outbox) {
    screen.decide(true, cx, out);
}

fn reject_chosen(screen: &mut RunsScreen, _: Key, cx: &Context<'_>, out: &mut Outbox) {
    screen.decide(false, cx, out);
}

fn undo_chosen(screen: &mut RunsScreen, _: Key, cx: &Context<'_>, out: &mut Outbox) {
    screen.undo(cx, out);
}

fn cancel_chosen(screen: &mut RunsScreen, _: Key, cx: &Context<'_>, out: &mut Outbox) {
    RunsScreen::cancel(screen.chosen(cx), out);
}

impl Detail {
    /// Scrolls the pane below the figures; false: the key does not scroll.
    fn scroll(&mut self, key: Key) -> bool {
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
            Pane::Plan => {
                let last = self.plan().len().saturating_sub(1);
                self.top = self.top.saturating_add_signed(by).min(last);
            }
            Pane::Items | Pane::Nodes => {
                let last = self.without_effect().count().saturating_sub(1);
                self.top = self.top.saturating_add_signed(by).min(last);
            }
        }
        true
    }

    /// The lines of the plan with the search text.
    fn plan_matches(&self) -> Vec<usize> {
        let lines = self.plan();
        let found = lines.iter().enumerate().filter(|(_, line)| self.log.is_match(&line.words));
        found.map(|(at, _)| at).collect()
    }

    /// Goes to the next or the previous line with the search text, of the plan or the log.
    fn next_match(&mut self, forward: bool) {
        if self.pane != Pane::Plan {
            return self.log.next_match(forward);
        }
        let found = self.plan_matches();
        let next = match forward {
            true => found.iter().find(|at| **at > self.top).or(found.first()),
            false => found.iter().rev().find(|at| **at < self.top).or(found.last()),
        };
        self.top = next.copied().unwrap_or(self.top);
    }

    /// The run and its log as text for a pager.
    fn paged(&self, snapshot: &Snapshot) -> String {
        let mut lines = Vec::new();
        if let Some(run) = self.run(snapshot) {
            let (state, _) = state(run, snapshot);
            let started = date_clock(run.started_at);
            lines.push(format!("run {} of {}: {state}, started {started}Z", run.id, run.task));
            lines.extend(run.error.iter().map(|error| format!("error: {error}")));
        }
        lines.extend(self.plan().into_iter().map(|line| line.words));
        for item in self.without_effect() {
            let reason = item.reason.as_deref().unwrap_or("");
            lines.push(format!("{} {}: {reason}", item.outcome, item.key));
        }
        for line in self.log.lines() {
            if line.dropped > 0 {
                lines.push(format!("⋮ {} dropped", counted(line.dropped, "line")));
            }
            let (at, level) = (clock_ms(line.at), &line.level);
            lines.push(format!("{at} {level:<5} {}  {}", line.node, line.text));
        }
        let clean: Vec<_> = lines.iter().map(|line| text::clean(line).into_owned()).collect();
        clean.join("\n")
    }
}

impl Screen for RunsScreen {
    fn step(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        if let Some(detail) = &mut self.detail {
            return detail.scroll(key);
        }
        let moved = self.table.key(key, &self.ids(cx));
        self.follow(cx, out);
        moved
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
            _ => {}
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
                match detail.pane {
                    Pane::Plan => detail.top = detail.plan_matches().first().copied().unwrap_or(0),
                    _ => detail.pane = Pane::Log,
                }
            }
            None => {
                filter.clone_into(&mut self.filter);
                let ids = self.ids(cx);
                self.table.settle(&ids);
            }
        }
    }

    fn headings(&self) -> Vec<Heading> {
        if self.detail.is_none() { table::headings(COLUMNS) } else { Vec::new() }
    }

    fn order(&mut self) -> Option<&mut Order> {
        self.detail.is_none().then_some(&mut self.table.order)
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
            ("OPEN", "of these, items still in the log, not timers and retries"),
            ("BY", "what or who started it"),
            ("already queued", "candidates with an item in the queue"),
            ("left alone", "settled or set aside before; unchanged since"),
            ("WAITS", "what it has planned waits for an approval"),
            ("BRAKED PAUSED", "it does not go on; CLOSED: outside its windows"),
            ("waited", "from the slot to the start"),
            ("▲ here", "this run among the latest, short to long"),
        ]
    }
}
