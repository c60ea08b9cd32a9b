//! The cells of a task's row.

use besom_core::snapshot::{RunState, Task};
use besom_core::time::Time;
use ratatui::style::Style;

use crate::dash::context::Context;
use crate::dash::screens::tasks::ending;
use crate::dash::screens::tasks::row::{LAST, NEXT, OVERLAP, P99, SCHEDULE, TASK};
use crate::dash::text;
use crate::dash::theme::Theme;

/// The time until an instant, such as `in 1m33s`, or `due` if it has passed.
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
pub(in crate::dash) fn next(task: &Task, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
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

/// The state of the newest run.
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

/// The expression, with its zone unless that is UTC.
fn schedule(task: &Task) -> String {
    let Some(expression) = &task.schedule else { return "-".to_owned() };
    let zone = task.timezone.rsplit('/').next().unwrap_or_default();
    match zone {
        "" | "UTC" => expression.clone(),
        zone => format!("{expression} {zone}"),
    }
}

/// The content of a column.
pub(in crate::dash) fn cell(
    task: &Task,
    column: usize,
    cx: &Context<'_>,
    theme: &Theme,
) -> (String, Style) {
    match column {
        TASK if task.orphaned => (task.name.clone(), theme.dim),
        TASK => (task.name.clone(), theme.text),
        SCHEDULE => (schedule(task), theme.text),
        NEXT => next(task, cx, theme),
        LAST => last(task, cx, theme),
        P99 => {
            let p99 = task.p99_ms.map(|ms| text::took(ms.saturating_mul(1_000)));
            (p99.unwrap_or_else(|| "-".to_owned()), theme.text)
        }
        OVERLAP => (task.overlap.clone(), theme.text),
        _ => (ending::curve(&task.last, 8), theme.spark),
    }
}
