//! The commit: ownership and cursors, then for each entry guards, changes, before-images,
//! history, counters, outbox and acknowledgement.
//!
//! ```text
//!   entry ── owner, epoch ── cursor, due ──> guards ──> changes ──> committed
//!              │ no             │ no           │ no        │ violation, taken back
//!              └────────────────┴──> left      └───────────┴──> skip, retry or dead
//! ```
//!
//! One mutex takes the place of the single writer: an anchor needs no lock.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::activity;
use besom_core::collection::{Collection, Collections};
use besom_core::ids::{CommitId, Incarnation, Partition, RunId, Seq, TaskName, Tenant};
use besom_core::item::{End, Identity, Item, Source};
use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard, Proposal, Settle};
use besom_core::time::Time;
use besom_core::value::{Field, Value};

use super::outbox::Origin;
use super::state::{Begun, Numbered, Recorded, State};
use super::tables::{Touched, Violation, check_conditions, collection, is_complete, meets};
use crate::ports::store::{
    Batch, BeforeImage, Committed, DeadLetter, Decision, Entry, Error, HistoryRow, LeftOut, Outcome,
};

/// What applies to the whole commit.
struct Commit<'a> {
    batch: &'a Batch,
    collections: &'a Collections,
    now: Time,
}

/// An item's end, for its history row.
struct Closing {
    outcome: End,
    settled: bool,
    reason: Option<String>,
    notes: Vec<Field>,
    images: Option<Vec<BeforeImage>>,
}

impl Closing {
    fn without_effects(outcome: End, reason: &str) -> Closing {
        let reason = Some(reason.to_owned());
        Closing { outcome, settled: false, reason, notes: Vec::new(), images: None }
    }
}

impl State {
    pub(super) fn commit(
        &mut self,
        batch: &Batch,
        collections: &Collections,
        now: Time,
    ) -> Result<Committed, Error> {
        match self.commits.get(&batch.id) {
            Some(Some(done)) => return Ok(done.clone()),
            Some(None) => {
                let id = batch.id;
                return Err(Error::Invalid(format!("the commit {id} was given up")));
            }
            None => {}
        }
        let fence = self.fence.as_ref().filter(|_| !self.fence_disabled);
        if let (Some(term), Some((fence, _))) = (batch.unqueued()?, fence)
            && fence.term > term
        {
            return Err(Error::Fenced);
        }
        if let Some(ahead) = batch.ahead_of(now) {
            return Ok(ahead);
        }
        let commit = Commit { batch, collections, now };
        let left = self.left_out(&commit);
        let mut outcomes = Vec::with_capacity(batch.entries.len());
        let mut runs_ended = Vec::new();
        for (at, (entry, left)) in batch.entries.iter().zip(left).enumerate() {
            outcomes.push(match left {
                Some(why) => Outcome::Left(why),
                None => self.settle_entry(&commit, at, entry, &mut runs_ended),
            });
        }
        self.begun.remove(&batch.id);
        let committed = Committed { outcomes, at: now, runs_ended };
        self.commits.insert(batch.id, Some(committed.clone()));
        Ok(committed)
    }

    /// The result of a commit. An unknown mark is abandoned, so that a copy of its batch that is
    /// still pending somewhere is never applied.
    pub(super) fn find_commit(&mut self, id: CommitId) -> Option<Committed> {
        self.commits.entry(id).or_default().clone()
    }

    /// The entries that are left out with their effects, and why.
    fn left_out(&self, commit: &Commit<'_>) -> Vec<Option<LeftOut>> {
        let entries = &commit.batch.entries;
        let mut streams: BTreeMap<(&TaskName, Partition), Vec<(Seq, &Entry)>> = BTreeMap::new();
        for entry in entries {
            if let Source::Log(seq) = entry.source {
                let place = (&entry.item.identity.task, entry.item.partition);
                streams.entry(place).or_default().push((seq, entry));
            }
        }
        let streams: BTreeMap<_, _> = streams
            .into_iter()
            .map(|(place, entries)| (place, self.stream_left_out(commit, place, &entries)))
            .collect();
        let mut taken = BTreeSet::new();
        let check = |entry: &Entry| match entry.source {
            Source::Log(_) => streams[&(&entry.item.identity.task, entry.item.partition)],
            Source::Unqueued(_) => None,
            Source::Timer(_) | Source::Retry(_) => match self.entry_left_out(commit, entry) {
                None if !taken.insert(entry.source) => Some(LeftOut::NotThere),
                left => left,
            },
        };
        entries.iter().map(check).collect()
    }

    /// A stream continues at its cursor under its owner; otherwise it is left out entirely.
    fn stream_left_out(
        &self,
        commit: &Commit<'_>,
        (task, partition): (&TaskName, Partition),
        entries: &[(Seq, &Entry)],
    ) -> Option<LeftOut> {
        if let Some(why) = entries.iter().find_map(|(_, e)| self.entry_left_out(commit, e)) {
            return Some(why);
        }
        let acked = self.streams.get(&(task.clone(), partition))?.acked;
        let expected = (acked.0 + 1..).map(Seq);
        let follows = entries.iter().map(|(seq, _)| *seq).zip(expected).all(|(a, b)| a == b);
        (!follows).then_some(LeftOut::NotThere)
    }

    fn entry_left_out(&self, commit: &Commit<'_>, entry: &Entry) -> Option<LeftOut> {
        let (identity, partition) = (&entry.item.identity, entry.item.partition);
        if !self.owns(&commit.batch.node, partition, entry.epoch) {
            return Some(LeftOut::NotOwner);
        }
        match self.waiting_at(&identity.task, partition, entry.source) {
            Some((item, run_at)) if item.identity == *identity => {
                let timer = matches!(entry.source, Source::Timer(_));
                (timer && run_at.is_some_and(|at| at > commit.now)).then_some(LeftOut::NotDue)
            }
            Some(_) | None => Some(LeftOut::NotThere),
        }
    }

    fn settle_entry(
        &mut self,
        commit: &Commit<'_>,
        at: usize,
        entry: &Entry,
        runs_ended: &mut Vec<RunId>,
    ) -> Outcome {
        let item = self.acknowledge(entry, commit.now, runs_ended);
        let (proposal, on_guard_failed, on_violation, undo) = match &entry.decision {
            Decision::Settle(settle) => return self.settle(commit, item, settle),
            Decision::Apply { proposal, on_guard_failed, on_violation, undo } => {
                (proposal, on_guard_failed, on_violation, *undo)
            }
        };
        let tenant = item.identity.tenant.clone();
        let applied = match self.guards_hold(commit, at, tenant.as_ref(), proposal) {
            Ok(false) => return self.settle(commit, item, on_guard_failed),
            Ok(true) => {
                let task = Some(&item.identity.task);
                let origin = Origin { task, tenant: tenant.as_ref(), now: commit.now };
                self.apply(commit.collections, origin, &proposal.changes)
            }
            Err(violation) => Err(violation),
        };
        match applied {
            Err(Violation(said)) => self.settle(commit, item, &because(on_violation, &said)),
            Ok(touched) => {
                let image = |touched: &Touched| touched.image(commit.collections);
                let images = undo.then(|| touched.iter().map(image).collect());
                let notes = proposal.notes.clone();
                let outcome = End::Committed;
                let end = Closing { outcome, settled: false, reason: None, notes, images };
                let counts = self.counts_of(&item.identity);
                counts.committed += 1;
                counts.pending -= 1;
                self.settled.remove(&item.identity);
                self.resolve(&item.identity, commit.now);
                self.record(&item, commit.now, &commit.batch.node, commit.batch.id, end);
                Outcome::Committed
            }
        }
    }

    /// Removes the item from where it was waiting.
    fn acknowledge(&mut self, entry: &Entry, now: Time, runs_ended: &mut Vec<RunId>) -> Item {
        let Item { identity, partition, .. } = &entry.item;
        let item = match entry.source {
            Source::Unqueued(_) => {
                let counts = self.counts_of(identity);
                counts.planned += 1;
                counts.pending += 1;
                return entry.item.clone();
            }
            Source::Timer(id) => self.timers.remove(&id),
            Source::Retry(id) => self.retries.remove(&id).map(|(_, item)| item),
            Source::Log(seq) => {
                let stream = self.streams.get_mut(&(identity.task.clone(), *partition));
                stream.and_then(|stream| {
                    stream.acked = seq;
                    stream.items.remove(&seq).map(|(_, item)| item)
                })
            }
        };
        let item = item.expect("entries that are not waiting were left out");
        self.waiting.remove(&item.identity);
        if let Source::Log(_) = entry.source {
            if let Some(run) = self.runs.get_mut(&item.run) {
                run.open -= 1;
            }
            if self.end_if_complete(item.run, now) {
                runs_ended.push(item.run);
            }
        }
        item
    }

    fn guards_hold(
        &self,
        commit: &Commit<'_>,
        at: usize,
        tenant: Option<&Tenant>,
        proposal: &Proposal,
    ) -> Result<bool, Violation> {
        for guard in &proposal.guards {
            if !self.guard_holds(commit, at, tenant, guard)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn guard_holds(
        &self,
        commit: &Commit<'_>,
        at: usize,
        tenant: Option<&Tenant>,
        guard: &Guard,
    ) -> Result<bool, Violation> {
        let collections = commit.collections;
        match guard {
            Guard::Columns { collection: name, key, conditions } => {
                let collection = collection(collections, name)?;
                check_conditions(collection, conditions)?;
                let row = self.tables.row(collection, tenant, key)?;
                Ok(row.is_some_and(|row| meets(row, conditions)))
            }
            Guard::Exists(filter) => self.tables.exists(collections, tenant, filter),
            Guard::Absent(filter) => {
                check_anchored(collection(collections, &filter.collection)?, filter)?;
                Ok(!self.tables.exists(collections, tenant, filter)?)
            }
            Guard::Complete(set) => is_complete(&self.tables, collections, tenant, set),
            Guard::Idle(key) if commit.batch.activity_in_store => {
                Ok(self.activity.state(key, commit.now) == activity::State::Idle)
            }
            Guard::Idle(key) => {
                Ok(commit.batch.idle.iter().any(|(entry, idle)| *entry == at && idle == key))
            }
        }
    }

    /// Applies all changes of an item, or none.
    pub(super) fn apply(
        &mut self,
        collections: &Collections,
        origin: Origin<'_>,
        changes: &[Change],
    ) -> Result<Vec<Touched>, Violation> {
        let mut touched = Vec::new();
        for change in changes {
            match self.tables.apply(collections, origin.tenant, change) {
                Ok(more) => touched.extend(more),
                Err(violation) => {
                    self.tables.restore(&touched);
                    return Err(violation);
                }
            }
        }
        for change in changes {
            if let Change::Emit { topic, key, payload } = change {
                self.emit(origin, topic, key, payload);
            }
        }
        Ok(touched)
    }

    /// Ends or moves an item without effects, after it was removed from where it was waiting.
    fn settle(&mut self, commit: &Commit<'_>, mut item: Item, settle: &Settle) -> Outcome {
        let (node, id) = (&commit.batch.node, commit.batch.id);
        match settle {
            Settle::Skip { reason, settled } => {
                let counts = self.counts_of(&item.identity);
                counts.skipped += 1;
                counts.pending -= 1;
                if *settled {
                    self.settled.remove(&item.identity);
                    self.block(&item, false, commit.now);
                }
                let end =
                    Closing { settled: *settled, ..Closing::without_effects(End::Skipped, reason) };
                self.record(&item, commit.now, node, id, end);
                Outcome::Skipped(reason.clone())
            }
            Settle::Retry { run_at, attempts, guard_retries, reason } => {
                item.attempts = *attempts;
                item.guard_retries = *guard_retries;
                item.errors.push(reason.clone());
                self.add_retry(*run_at, item);
                Outcome::Retried(*run_at)
            }
            Settle::Dead { attempts, reason } => {
                item.attempts = *attempts;
                let counts = self.counts_of(&item.identity);
                counts.dead += 1;
                counts.pending -= 1;
                item.errors.push(reason.clone());
                self.record(
                    &item,
                    commit.now,
                    node,
                    id,
                    Closing::without_effects(End::Dead, reason),
                );
                let id = self.next_id(Numbered::Dead);
                self.dead.insert(id, DeadLetter { id, item, at: commit.now, resolved_at: None });
                Outcome::Dead(reason.clone())
            }
        }
    }

    /// Resolves open dead letters of an item that has been committed. They stay in the books.
    fn resolve(&mut self, identity: &Identity, now: Time) {
        let mut resolved = 0;
        for letter in self.dead.values_mut() {
            if letter.item.identity == *identity && letter.resolved_at.is_none() {
                letter.resolved_at = Some(now);
                resolved += 1;
            }
        }
        self.counts_of(identity).resolved += resolved;
    }

    fn record(
        &mut self,
        item: &Item,
        at: Time,
        node: &Incarnation,
        commit: CommitId,
        end: Closing,
    ) {
        let id = self.next_id(Numbered::History);
        let row = HistoryRow {
            id,
            identity: item.identity.clone(),
            run: item.run,
            at,
            outcome: end.outcome,
            settled: end.settled,
            reason: end.reason,
            notes: end.notes,
            node: node.clone(),
            commit,
            undo_bytes: end.images.iter().flatten().map(image_bytes).sum(),
        };
        self.history.insert(id, Recorded { row, images: end.images });
    }

    /// Records in the history that an operator discarded a dead letter.
    pub(super) fn record_discarded(&mut self, item: &Item, at: Time, reason: &str) {
        let node = self.fence.as_ref().map(|(fence, _)| fence.node.clone());
        let node = node.unwrap_or_else(|| Incarnation::from(""));
        let end = Closing::without_effects(End::Discarded, reason);
        self.record(item, at, &node, CommitId(0), end);
    }

    // ---- deaths

    pub(super) fn begin(&mut self, id: CommitId, node: &Incarnation, items: &[(Source, &Item)]) {
        let place =
            |(source, item): &(Source, &Item)| (*source, item.partition, item.identity.clone());
        let begun = Begun { node: node.clone(), items: items.iter().map(place).collect() };
        self.begun.insert(id, begun);
    }

    pub(super) fn bury(&mut self, gone: &[Incarnation]) -> Vec<Identity> {
        let dead: Vec<CommitId> =
            self.begun.iter().filter(|(_, b)| gone.contains(&b.node)).map(|(id, _)| *id).collect();
        let mut counted = Vec::new();
        for begun in dead.iter().filter_map(|id| self.begun.remove(id)).collect::<Vec<_>>() {
            for (source, partition, identity) in begun.items {
                let item = self.waiting_at_mut(&identity.task, partition, source);
                if let Some(item) = item.filter(|item| item.identity == identity) {
                    item.deaths += 1;
                    counted.push(identity);
                }
            }
        }
        counted
    }
}

/// An absence of rows is only certain under an anchor whose key the filter fixes. A single writer
/// needs no lock, but a guard that another store would refuse is refused here as well.
fn check_anchored(collection: &Collection, filter: &Filter) -> Result<(), Violation> {
    let fixed = |column: &String| {
        let equal = |c: &Condition| c.column == *column && c.comparison == Comparison::Equal;
        filter.conditions.iter().any(equal)
    };
    if collection.anchors.iter().any(|anchor| anchor.columns.iter().all(fixed)) {
        return Ok(());
    }
    let name = &collection.name;
    Err(Violation(format!(
        "a guard on the absence of {name} does not fix the key of any of its anchors"
    )))
}

/// The settlement with the database's message appended to its reason.
fn because(settle: &Settle, said: &str) -> Settle {
    let mut settle = settle.clone();
    match &mut settle {
        Settle::Skip { reason, .. }
        | Settle::Retry { reason, .. }
        | Settle::Dead { reason, .. } => {
            *reason = format!("{reason}: {said}");
        }
    }
    settle
}

/// The size of an image, in bytes.
fn image_bytes(image: &BeforeImage) -> u64 {
    let fields = image.row.iter().flatten().map(|field| field.value.weight());
    let bytes: usize = fields.chain(image.key.iter().map(Value::weight)).sum();
    bytes as u64
}
