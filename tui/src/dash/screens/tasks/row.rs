//! The rows of the tasks: their columns and their order.

use besom_core::snapshot::RunState;

use super::TasksScreen;
use crate::dash::context::Context;
use crate::dash::table::{Column, SortKey, Width};

pub(super) const TASK: usize = 0;
pub(super) const SCHEDULE: usize = 1;
pub(super) const NEXT: usize = 2;
pub(super) const LAST: usize = 3;
pub(super) const P99: usize = 4;
pub(super) const OVERLAP: usize = 5;

/// The columns; the last one is wider if there is room.
pub(super) const COLUMNS: [Column; 7] = [
    Column::left("TASK", Width::Fill(18), 0),
    Column::left("SCHEDULE", Width::Fill(12), 3),
    Column::left("NEXT (UTC)", Width::Fixed(18), 0),
    Column::left("LAST", Width::Fixed(8), 1),
    Column::right("p99", Width::Fixed(6), 4),
    Column::left("OVLP", Width::Fixed(5), 6),
    Column::left("LAST 8", Width::Fixed(8), 5),
];

/// The order of the tasks that match the filter.
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
            // Active, failed, succeeded, never run.
            LAST => number(task.last.last().map(|run| match run.state {
                RunState::Scanning | RunState::Executing => 0.0,
                RunState::Failed => 1.0,
                RunState::Unknown => 2.0,
                RunState::Ok => 3.0,
            })),
            P99 => number(task.p99_ms.map(|took| took as f64)),
            OVERLAP => SortKey::Text(&task.overlap),
            _ => SortKey::Text(&task.name),
        }
    })
}

/// The names of the tasks in this order.
pub(super) fn ids(cx: &Context<'_>, order: &[usize]) -> Vec<String> {
    order.iter().map(|at| cx.snap.tasks[*at].name.clone()).collect()
}
