//! Runs beyond the newest ones in the snapshot: those of tasks that the filter names, and more of
//! them near the end of the list.

use std::collections::HashSet;
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{Query, RUNS_MAX, RUNS_PAGE, RUNS_TASKS_MAX, Run, RunPage, Snapshot};

use crate::dash::context::Context;
use crate::dash::effect::Outbox;
use crate::dash::text;

/// After this time, an answer counts as lost with its connection.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A request: the tasks (empty: all) and the number of runs.
type Wanted = (Vec<String>, u32);

/// Runs beyond those of the snapshot.
#[derive(Debug, Default)]
pub(super) struct Older {
    /// The request that the page answers.
    of: Option<Wanted>,
    page: RunPage,
    /// The pending question, and when it was asked.
    asked: Option<(u64, Wanted, Time)>,
}

impl Older {
    /// Requests the runs that the filter needs, and more of them near the end of the list.
    pub(super) fn follow(
        &mut self,
        filter: &str,
        at_end: bool,
        cx: &Context<'_>,
        out: &mut Outbox,
    ) {
        let tasks = tasks_of(filter, cx.snap);
        let known = self.of.as_ref().filter(|(of, _)| *of == tasks);
        let limit = match known {
            Some((_, limit)) if at_end && self.page.more => limit.saturating_mul(2).min(RUNS_PAGE),
            Some((_, limit)) => *limit,
            // The snapshot has the newest runs of all tasks.
            None if filter.is_empty() && !at_end => return,
            None => RUNS_MAX as u32,
        };
        let wanted = (tasks, limit);
        let open = self
            .asked
            .as_ref()
            .is_some_and(|(_, asked, at)| *asked == wanted && cx.now.since(*at) <= ANSWER_MAX);
        if cx.live && !open && self.of.as_ref() != Some(&wanted) {
            let query = Query::Runs { tasks: wanted.0.clone(), limit };
            self.asked = Some((out.ask(query), wanted, cx.now));
        }
    }

    /// Handles an answer; none: the question was refused.
    pub(super) fn take(&mut self, ticket: u64, page: Option<&RunPage>) {
        if let Some((_, wanted, _)) = self.asked.take_if(|(asked, ..)| *asked == ticket) {
            self.page = page.cloned().unwrap_or_default();
            self.of = Some(wanted);
        }
    }

    /// Whether an answer is pending.
    pub(super) fn waits(&self) -> bool {
        self.asked.is_some()
    }

    /// Whether the host has older runs of these tasks.
    pub(super) fn more(&self) -> bool {
        self.of.is_none() || self.page.more
    }

    /// The runs of the snapshot together with those read beyond it.
    pub(super) fn with<'a>(&'a self, snap: &'a Snapshot) -> Vec<&'a Run> {
        let newest: HashSet<u64> = snap.runs.iter().map(|run| run.id).collect();
        let older = self.page.runs.iter().filter(|run| !newest.contains(&run.id));
        snap.runs.iter().map(|run| &**run).chain(older).collect()
    }
}

/// The tasks that a filter names; empty: it names something else, or too many.
fn tasks_of(filter: &str, snap: &Snapshot) -> Vec<String> {
    let names = snap.tasks.iter().map(|task| &task.name);
    let named: Vec<String> =
        names.filter(|name| text::passes(filter, [&***name])).cloned().collect();
    match named.iter().find(|name| **name == filter) {
        Some(exactly) => vec![exactly.clone()],
        None if filter.is_empty() || named.len() > RUNS_TASKS_MAX => Vec::new(),
        None => named,
    }
}
