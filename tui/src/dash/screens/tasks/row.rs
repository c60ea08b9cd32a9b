//! The rows of the tasks: their columns and their order.

use besom_core::mode::Mode;
use besom_core::time::Time;
use besom_snapshot::{RunState, Task};

use super::{TasksScreen, ending};
use crate::dash::context::Context;
use crate::dash::table::{Cell, Column, Emphasis, SortKey, Width, plain};
use crate::dash::text;

type Col = Column<Task>;

/// The columns; the last one is wider if there is room.
pub(super) const COLUMNS: &[Col] = &[
    Col::left("TASK", Width::Fill(18), 0, |task, _| {
        (task.name.clone(), if task.orphaned { Emphasis::Dim } else { Emphasis::Text })
    })
    .by(|task, _| SortKey::Text(&task.name)),
    Col::left("SCHEDULE", Width::Fill(12), 3, |task, _| plain(schedule(task)))
        .by(|task, _| SortKey::text(task.schedule.as_deref())),
    Col::left("MODE", Width::Fixed(7), 2, mode).by(|task, _| SortKey::Text(task.mode.as_str())),
    Col::left("NEXT (UTC)", Width::Fixed(18), 0, next)
        .by(|task, _| SortKey::number(task.next.map(|at| at.0 as f64))),
    // Active, failed or rejected, succeeded, never run.
    Col::left("LAST", Width::Fixed(8), 1, last).by(|task, _| {
        SortKey::number(task.last.last().map(|run| match run.state {
            RunState::Scanning | RunState::Executing => 0.0,
            RunState::Failed | RunState::Rejected | RunState::Lapsed => 1.0,
            RunState::Unknown => 2.0,
            RunState::Ok => 3.0,
        }))
    }),
    Col::right("p99", Width::Fixed(6), 4, |task, _| {
        let p99 = task.p99_ms.map(|ms| text::took(ms.saturating_mul(1_000)));
        plain(p99.unwrap_or_else(|| "-".to_owned()))
    })
    .by(|task, _| SortKey::number(task.p99_ms.map(|took| took as f64))),
    Col::left("OVLP", Width::Fixed(5), 6, |task, _| plain(&task.overlap))
        .by(|task, _| SortKey::Text(&task.overlap)),
    Col::left("LAST 8", Width::Fixed(8), 5, |task, _| {
        (ending::curve(&task.last, 8), Emphasis::Spark)
    })
    .by(|task, _| SortKey::Text(&task.name)),
];

/// The column that the table is sorted by at first.
pub(super) const TASK: usize = 0;

/// The tasks that match the filter, in the order of the table.
pub(super) fn order<'a>(screen: &TasksScreen, cx: &Context<'a>) -> Vec<&'a Task> {
    let passes = |task: &&Task| text::passes(&screen.filter, [&*task.name, &task.plugin]);
    let tasks = cx.snap.tasks.iter().map(|task| &**task).filter(passes).collect();
    screen.table.order.arrange(COLUMNS, tasks, cx)
}

/// How far the runs of a task go by themselves.
fn mode(task: &Task, _: &Context<'_>) -> Cell {
    let emphasis = if task.mode == Mode::Live { Emphasis::Text } else { Emphasis::Accent };
    let word = if task.orphaned { "-" } else { task.mode.as_str() };
    (word.to_owned(), emphasis)
}

/// The names of tasks.
pub(super) fn ids(tasks: &[&Task]) -> Vec<String> {
    tasks.iter().map(|task| task.name.clone()).collect()
}

/// The time until an instant, such as `in 1m33s`, or `due` if it has passed.
fn in_words(at: Time, cx: &Context<'_>) -> String {
    if at <= cx.now { "due".to_owned() } else { format!("in {}", text::span(at.since(cx.now))) }
}

/// The next slot as a countdown, or why there is none.
pub(in crate::dash) fn next_in(task: &Task, cx: &Context<'_>) -> Cell {
    match (&task.paused, task.next) {
        (Some(pause), _) if pause.is_brake() => ("BRAKE".to_owned(), Emphasis::Bad),
        (Some(_), _) => ("PAUSED".to_owned(), Emphasis::Warn),
        (None, _) if let Some(at) = task.opens_at => {
            (format!("opens {}", in_words(at, cx)), Emphasis::Dim)
        }
        (None, Some(at)) => plain(in_words(at, cx)),
        (None, None) if task.orphaned => ("orphaned".to_owned(), Emphasis::Warn),
        (None, None) if task.schedule.is_none() => ("by trigger".to_owned(), Emphasis::Dim),
        (None, None) => ("?".to_owned(), Emphasis::Dim),
    }
}

/// The next slot with its time.
fn next(task: &Task, cx: &Context<'_>) -> Cell {
    let (words, emphasis) = next_in(task, cx);
    match (&task.paused, task.next) {
        (Some(pause), _) if pause.is_brake() => (words, emphasis),
        (Some(pause), _) => (format!("PAUSED by {}", pause.by), emphasis),
        (None, Some(at)) if task.opens_at.is_none() => {
            let far = at.since(cx.now).as_secs() >= 86_400;
            let clock = text::clock(at);
            let day = at.to_jiff().strftime("%a").to_string();
            let at = if far { format!("{day} {}", &clock[..5]) } else { clock };
            (format!("{at} {words}"), emphasis)
        }
        (None, _) => (words, emphasis),
    }
}

/// The state of the newest run.
pub(in crate::dash) fn last(task: &Task, cx: &Context<'_>) -> Cell {
    match task.last.last() {
        None => ("-".to_owned(), Emphasis::Dim),
        Some(run) => match run.state {
            RunState::Ok => ("ok".to_owned(), Emphasis::Good),
            RunState::Failed => ("FAIL".to_owned(), Emphasis::Bad),
            RunState::Unknown => ("?".to_owned(), Emphasis::Dim),
            state @ (RunState::Rejected | RunState::Lapsed) => {
                (state.as_str().to_owned(), Emphasis::Warn)
            }
            _ if task.is_braked() => ("BRAKED".to_owned(), Emphasis::Bad),
            _ if task.waits(run.id) => ("WAITS".to_owned(), Emphasis::Warn),
            _ if task.stop().is_some() => ("STOPPED".to_owned(), Emphasis::Warn),
            RunState::Scanning | RunState::Executing => {
                let going = text::short(cx.now.since(run.started_at));
                (format!("RUN {going}"), Emphasis::Accent)
            }
        },
    }
}

/// The expression, with its zone unless that is UTC.
fn schedule(task: &Task) -> String {
    let Some(expression) = &task.schedule else { return "-".to_owned() };
    let zone = task.timezone.rsplit('/').next().unwrap_or_default();
    match zone {
        "" | "UTC" => expression.clone(),
        zone => format!("{expression} {zone}"),
    }
}
