//! The rows of the tasks: what is said of each, and in which order.

use besom_core::snapshot::{RunState, Task};
use besom_core::time::Time;
use ratatui::style::Style;

use super::{TasksScreen, ending};
use crate::dash::context::Context;
use crate::dash::table::{Column, SortKey, Width};
use crate::dash::text;
use crate::dash::theme::Theme;

const TASK: usize = 0;
const SCHEDULE: usize = 1;
pub(super) const NEXT: usize = 2;
const LAST: usize = 3;
const P99: usize = 4;
const OVERLAP: usize = 5;

/// The columns; the last one is wider where there is room.
pub(super) const COLUMNS: [Column; 7] = [
    Column::left("TASK", Width::Fill(18), 0),
    Column::left("SCHEDULE", Width::Fill(12), 3),
    Column::left("NEXT (UTC)", Width::Fixed(18), 0),
    Column::left("LAST", Width::Fixed(8), 1),
    Column::right("p99", Width::Fixed(6), 4),
    Column::left("OVLP", Width::Fixed(5), 6),
    Column::left("LAST 8", Width::Fixed(8), 5),
];

/// The time until something, as `in 1m33s`; what has passed is due.
fn in_words(at: Time, cx: &Context<'_>) -> String {
    if at <= cx.now { "due".to_owned() } else { format!("in {}", text::span(at.since(cx.now))) }
}

/// The next slot as a countdown, or why there is none.
pub(in crate::dash) fn next_in(task: &Task, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
    match (&task.paused, task.next) {
        (Some(_), _) => ("PAUSED".to_owned(), theme.warn),
        (None, Some(at)) => (in_words(at, cx), theme.text),
        (None, None) if task.orphaned => ("orphaned".to_owned(), theme.warn),
        (None, None) if task.schedule.is_none() => ("by trigger".to_owned(), theme.dim),
        (None, None) => ("?".to_owned(), theme.dim),
    }
}

/// The next slot with its time.
pub(super) fn next(task: &Task, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
    let (words, style) = next_in(task, cx, theme);
    match (&task.paused, task.next) {
        (Some(pause), _) => (format!("PAUSED by {}", pause.by), style),
        (None, Some(at)) => {
            let far = at.since(cx.now).as_secs() >= 86_400;
            let clock = text::clock(at);
            let day = at.to_jiff().strftime("%a").to_string();
            let at = if far { format!("{day} {}", &clock[..5]) } else { clock };
            (format!("{at} {words}"), style)
        }
        (None, None) => (words, style),
    }
}

/// How the newest run stands.
pub(in crate::dash) fn last(task: &Task, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
    match task.last.last() {
        None => ("-".to_owned(), theme.dim),
        Some(run) => match run.state {
            RunState::Ok => ("ok".to_owned(), theme.good),
            RunState::Failed => ("FAIL".to_owned(), theme.bad),
            RunState::Unknown => ("?".to_owned(), theme.dim),
            RunState::Scanning | RunState::Executing => {
                let going = text::short(cx.now.since(run.started_at));
                (format!("RUN {going}"), theme.accent)
            }
        },
    }
}

/// The expression with its zone, where that is not UTC.
fn schedule(task: &Task) -> String {
    let Some(expression) = &task.schedule else { return "-".to_owned() };
    let zone = task.timezone.rsplit('/').next().unwrap_or_default();
    match zone {
        "" | "UTC" => expression.clone(),
        zone => format!("{expression} {zone}"),
    }
}

/// What stands in a column.
pub(super) fn cell(task: &Task, column: usize, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
    match column {
        TASK if task.orphaned => (task.name.clone(), theme.dim),
        TASK => (task.name.clone(), theme.text),
        SCHEDULE => (schedule(task), theme.text),
        NEXT => next(task, cx, theme),
        LAST => last(task, cx, theme),
        P99 => {
            let p99 = ending::p99(&task.last);
            (p99.map_or_else(|| "?".to_owned(), text::short), theme.text)
        }
        OVERLAP => (task.overlap.clone(), theme.text),
        _ => (ending::curve(&task.last, 8), theme.spark),
    }
}

/// The order in which the tasks that pass the filter are shown.
pub(super) fn order(screen: &TasksScreen, cx: &Context<'_>) -> Vec<usize> {
    let tasks = &cx.snap.tasks;
    let wanted = screen.filter.to_lowercase();
    let passes = |at: &usize| {
        let task = &tasks[*at];
        wanted.is_empty()
            || task.name.to_lowercase().contains(&wanted)
            || task.plugin.to_lowercase().contains(&wanted)
    };
    let rows = (0..tasks.len()).filter(passes).collect();
    let number = |n: Option<f64>| n.map_or(SortKey::Unknown, SortKey::Number);
    screen.table.order(rows, |at, column| {
        let task = &tasks[at];
        match column {
            SCHEDULE => task.schedule.as_deref().map_or(SortKey::Unknown, SortKey::Text),
            NEXT => number(task.next.map(|at| at.0 as f64)),
            // What goes on, what failed, what ended well, what never ran.
            LAST => number(task.last.last().map(|run| match run.state {
                RunState::Scanning | RunState::Executing => 0.0,
                RunState::Failed => 1.0,
                RunState::Unknown => 2.0,
                RunState::Ok => 3.0,
            })),
            P99 => number(ending::p99(&task.last).map(|took| took.as_secs_f64())),
            OVERLAP => SortKey::Text(&task.overlap),
            _ => SortKey::Text(&task.name),
        }
    })
}

/// The names in an order.
pub(super) fn ids(cx: &Context<'_>, order: &[usize]) -> Vec<String> {
    order.iter().map(|at| cx.snap.tasks[*at].name.clone()).collect()
}
