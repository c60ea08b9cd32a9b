//! The recorded past of the selected task: requested when the task is shown, and continued with the
//! newest rows of each snapshot.

use std::collections::HashSet;
use std::time::Duration;

use besom_core::plan::{SlotOutcome, SlotRecord};
use besom_core::time::Time;
use besom_snapshot::{LastRun, Query, SLOTS_OF_TASK, Task, TaskPast};

use super::slots::Span;
use crate::dash::context::Context;
use crate::dash::effect::Outbox;

/// After this time, an answer counts as lost with its connection.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// The past of one task.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The task, and how far back.
    of: (String, Span),
    /// The pending question, and when it was asked.
    asked: Option<(u64, Time)>,
    page: Option<TaskPast>,
    /// Whether the host refused the question.
    refused: bool,
}

impl Past {
    /// Requests the past of the task that is shown, unless it is here.
    pub(super) fn follow(&mut self, task: &Task, span: Span, cx: &Context<'_>, out: &mut Outbox) {
        if self.of.0 != task.name || self.of.1 != span {
            *self = Past { of: (task.name.clone(), span), ..Past::default() };
        }
        let lost = self.asked.is_some_and(|(_, at)| cx.now.since(at) > ANSWER_MAX);
        let wanted = match &self.page {
            None => !self.refused,
            Some(page) => self.has_gap(page, task),
        };
        if cx.live && wanted && (self.asked.is_none() || lost) {
            let query = Query::Past { task: task.name.clone(), back_s: span.back().as_secs() };
            self.asked = Some((out.ask(query), cx.now));
        }
    }

    /// Whether slots are missing between the page and the snapshot.
    fn has_gap(&self, page: &TaskPast, task: &Task) -> bool {
        let read_at = page.from + self.of.1.back();
        task.slots.len() >= SLOTS_OF_TASK
            && task.slots.last().is_some_and(|oldest| oldest.from > read_at)
    }

    /// Handles an answer; none: the question was refused.
    pub(super) fn take(&mut self, ticket: u64, page: Option<&TaskPast>) {
        if self.asked.take_if(|(asked, _)| *asked == ticket).is_some() {
            self.refused = page.is_none();
            self.page = page.cloned().or(self.page.take());
        }
    }

    /// The page, if it belongs to this task.
    fn page(&self, task: &Task) -> Option<&TaskPast> {
        self.page.as_ref().filter(|_| self.of.0 == task.name)
    }

    /// Its slots, newest first.
    pub(super) fn records<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = &'a SlotRecord> {
        // The last row of the snapshot may have grown since the page was read.
        let outcome =
            |record: &SlotRecord| (record.from, record.outcome == SlotOutcome::Queued, record.run);
        let newer: HashSet<_> = task.slots.iter().map(outcome).collect();
        let page = self.page(task).map_or(&[][..], |page| &page.slots);
        task.slots.iter().chain(page.iter().filter(move |record| !newer.contains(&outcome(record))))
    }

    /// Its runs, newest first: those of the snapshot, then those read earlier.
    pub(super) fn runs<'a>(&'a self, task: &'a Task) -> impl Iterator<Item = &'a LastRun> {
        let newer: HashSet<u64> = task.last.iter().map(|run| run.id).collect();
        let page = self.page(task).map_or(&[][..], |page| &page.runs);
        task.last.iter().rev().chain(page.iter().filter(move |run| !newer.contains(&run.id)))
    }

    /// Since when all slots are here; none: they have not been read yet.
    pub(super) fn since(&self, task: &Task) -> Option<Time> {
        let page = self.page(task)?;
        match page.slots.last().filter(|_| page.more) {
            Some(oldest) => Some(oldest.from),
            None => Some(page.from),
        }
    }

    /// Whether the host refused the question.
    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{RunId, TaskName, Term};

    use super::*;

    fn ran(second: i64) -> SlotRecord {
        let at = Time::from_secs(second);
        SlotRecord {
            task: TaskName::from("a"),
            from: at,
            to: at,
            count: 1,
            outcome: SlotOutcome::Ran,
            reason: String::new(),
            run: Some(RunId(second as u64)),
            term: Term(1),
        }
    }

    #[test]
    fn a_page_is_continued_by_the_rows_of_the_picture() {
        let of = ("a".to_owned(), Span::Hours);
        let from = Time::from_secs(10_000) - Span::Hours.back();
        let slots: Vec<SlotRecord> = (0..50).map(|n| ran(10_000 - n)).collect();
        let page = TaskPast { task: "a".into(), from, slots, more: false, runs: Vec::new() };
        let past = Past { of, asked: None, page: Some(page.clone()), refused: false };
        let newest = |until: i64| Task {
            name: "a".into(),
            slots: (0..SLOTS_OF_TASK as i64).map(|n| ran(until - n)).collect(),
            ..Task::default()
        };
        let task = newest(10_020);
        let seconds: Vec<i64> = past.records(&task).map(|r| r.from.0 / 1_000_000).collect();
        let expected: Vec<i64> = (9_951..=10_020).rev().collect();
        assert_eq!(seconds, expected, "each once, newest first");
        assert!(!past.has_gap(&page, &task));
        assert!(past.has_gap(&page, &newest(10_100)));
        let other = Task { name: "b".into(), ..Task::default() };
        assert_eq!(past.records(&other).count(), 0, "another task has another past");
    }
}
