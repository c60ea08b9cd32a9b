//! Reviews of runs, and what commits would do.

use besom_core::books::{Blocks, close};
use besom_core::collection::Collections;
use besom_core::ids::{FencingToken, RunId, TaskName};
use besom_core::item::{Item, Source};
use besom_core::review::{Standing, State as Stands};
use besom_core::time::Time;

use super::commit::Commit;
use super::ledger::Changed;
use super::state::State;
use besom_ports::store::{
    Batch, CommandRow, Error, NewReview, Result, Review, ReviewQuery, Tried, TriedChanges,
    decided_or, not_waiting,
};

impl State {
    pub(super) fn open_review(
        &mut self,
        fence: &FencingToken,
        review: &NewReview,
        now: Time,
    ) -> Result<()> {
        self.check_fence(fence)?;
        let Some(run) = self.runs.get(&review.run) else {
            return Err(Error::Invalid(format!("there is no run {}", review.run)));
        };
        let review = Review {
            run: run.id,
            task: run.task.clone(),
            opened_at: now,
            expires_at: review.within.map(|within| now + within),
            state: if run.held { Stands::Waiting } else { Stands::Shown },
            by: String::new(),
            reason: String::new(),
            decided_at: None,
            plan: review.plan.clone(),
        };
        self.reviews.entry(review.run).or_insert(review);
        Ok(())
    }

    pub(super) fn list_reviews(&self, query: &ReviewQuery) -> Vec<Review> {
        let matches = |review: &&Review| {
            query.run.is_none_or(|run| review.run == run)
                && query.task.as_ref().is_none_or(|task| review.task == *task)
                && (!query.waiting || review.state == Stands::Waiting)
                && query.before.is_none_or(|before| review.run < before)
        };
        let newest = self.reviews.values().rev().filter(matches);
        newest.take(query.limit as usize).cloned().collect()
    }

    /// Decides a review that waits, or returns why it cannot be decided.
    pub(super) fn decide_review(
        &mut self,
        run: RunId,
        state: Stands,
        row: &CommandRow,
        now: Time,
    ) -> std::result::Result<(), String> {
        let found = self.reviews.get(&run).map(Standing::from);
        // A run that is stopped while it plans has no review yet.
        if found.is_none() && state != Stands::Approved {
            return Ok(());
        }
        if found.as_ref().is_none_or(|found| found.state != Stands::Waiting) {
            return Err(not_waiting(run, found.as_ref()));
        }
        self.close_review(run, state, row, now);
        if state == Stands::Approved
            && let Some(run) = self.runs.get_mut(&run)
        {
            run.held = false;
        }
        Ok(())
    }

    /// Why a run that does not wait cannot be decided: the decision, or else `why`.
    pub(super) fn not_waiting(&self, run: RunId, why: &str) -> String {
        decided_or(run, self.reviews.get(&run).map(Standing::from), why)
    }

    /// Rejects the reviews of a task that wait, and ends those that were approved and whose runs are active, because
    /// what it has planned is discarded.
    pub(super) fn reject_reviews(&mut self, task: &TaskName, row: &CommandRow, now: Time) {
        let waits = |review: &&Review| review.task == *task && review.state == Stands::Waiting;
        let waiting: Vec<RunId> = self.reviews.values().filter(waits).map(|r| r.run).collect();
        for run in waiting {
            self.close_review(run, Stands::Rejected, row, now);
        }
        let is_active = |run: &RunId| self.runs.get(run).is_some_and(|run| run.ended_at.is_none());
        let approved = |review: &&Review| {
            review.task == *task && review.state == Stands::Approved && is_active(&review.run)
        };
        let approved: Vec<_> = self.reviews.values().filter(approved).cloned().collect();
        for Review { run, by, .. } in approved {
            let reason = &row.reason;
            let reason = format!("what was left of it was discarded: {reason} (approved by {by})");
            self.close_review(run, Stands::Done, &CommandRow { reason, ..row.clone() }, now);
        }
    }

    fn close_review(&mut self, run: RunId, state: Stands, row: &CommandRow, now: Time) {
        if let Some(review) = self.reviews.get_mut(&run) {
            review.state = state;
            review.by.clone_from(&row.by);
            row.why().clone_into(&mut review.reason);
            review.decided_at = Some(now);
        }
    }

    /// The items of a held run, at most so many, or why they cannot be read. Those in a stream are its
    /// first.
    pub(super) fn planned_of_run(
        &self,
        task: &TaskName,
        run: RunId,
        limit: usize,
    ) -> std::result::Result<Vec<(Source, Item)>, String> {
        let timers = self.timers.iter().filter(|(_, item)| item.run == run);
        let mut planned: Vec<(Source, Item)> =
            timers.take(limit).map(|(id, item)| (Source::Timer(*id), item.clone())).collect();
        for ((_, _), stream) in self.streams.iter().filter(|((name, _), _)| name == task) {
            let first = stream.items.iter().map(|(seq, (_, item))| (Source::Log(*seq), item));
            let own = first.take_while(|(_, item)| item.run == run);
            let room = limit - planned.len();
            planned.extend(own.take(room).map(|(source, item)| (source, item.clone())));
        }
        Ok(planned)
    }

    /// Whether a run of the batch is held.
    pub(super) fn holds(&self, batch: &Batch) -> bool {
        let run = |run: &RunId| self.runs.get(run).is_some_and(|run| run.held);
        batch.entries.iter().any(|entry| run(&entry.item.run))
    }

    /// What a commit would do; the state that it is asked of is dropped.
    pub(super) fn try_commit(
        mut self,
        batch: &Batch,
        collections: &Collections,
        now: Time,
    ) -> Result<Tried> {
        let fence = self.fence.as_ref();
        if let (Some(term), Some((fence, _))) = (batch.unqueued()?, fence)
            && fence.term > term
        {
            return Err(Error::Fenced);
        }
        let commit = Commit { batch, collections, now };
        let mut applied: Vec<Changed> = Vec::new();
        applied.resize_with(batch.entries.len(), Changed::default);
        let judged: Vec<_> = applied
            .iter_mut()
            .enumerate()
            .map(|(at, did)| Ok(self.judge(&commit, at, did)))
            .collect();
        let outcomes = close(&batch.entries, judged, |_| Blocks::UNKNOWN, &batch.node).outcomes;
        let changes = applied.into_iter().map(|did| {
            let images = did.images.unwrap_or_default();
            let bytes = images.iter().map(|image| format!("{image:?}").len() as u64).sum();
            TriedChanges { rows: did.rows, images, bytes, said: did.said, locked: None }
        });
        Ok(Tried { outcomes, changes: changes.collect() })
    }
}
