//! The commit: ownership and cursors, then for each entry guards, changes, before-images,
//! history, counters, outbox and acknowledgement.
//!
//! ```text
//!   entry ── left out? ──> guards ──> changes ──> committed
//!               │ yes        │ no        │ violation, taken back
//!             left           └───────────┴──> skip, retry or dead
//! ```
//!
//! One mutex takes the place of the single writer: an anchor needs no lock.

use std::convert::Infallible;
use std::sync::Arc;

use besom_core::activity;
use besom_core::books::{Blocks, Closed, Judged, Owner, Places, close, left_out};
use besom_core::brake::{self, Used};
use besom_core::collection::Collections;
use besom_core::ids::{CommitId, Incarnation, Partition, Seq, TaskName, Tenant};
use besom_core::item::{Identity, Item, Source};
use besom_core::proposal::{Again, Change, Filter, Guard, Proposal, Restore};
use besom_core::purge::note;
use besom_core::time::Time;
use besom_core::undo::row_name;
use besom_record::restore::{Earlier, Kin, REMOVED, Restoring, nothing, said, unmapped};

use super::fault::Broken;
use super::ledger::{By, Changed};
use super::state::{Begun, State};
use super::tables::{Touched, Violation, check_conditions, collection, is_complete, meets};
use besom_ports::store::{
    Batch, BeforeImage, Committed, Decision, Entry, Error, Given, LeftOut, Restored,
};

/// What applies to the whole commit.
pub(super) struct Commit<'a> {
    pub(super) batch: &'a Batch,
    pub(super) collections: &'a Collections,
    pub(super) now: Time,
}

/// What the store finds about the entries of a node's batch.
struct Found<'a> {
    state: &'a State,
    node: &'a Incarnation,
}

impl Places for Found<'_> {
    type Error = Infallible;

    fn owner(&mut self, entry: &Entry) -> Result<Option<Owner<'_>>, Infallible> {
        if self.state.is_broken(Broken::Fence) || self.state.is_broken(Broken::Epoch) {
            return Ok(Some(Owner { node: self.node.as_str(), epoch: entry.epoch }));
        }
        let owner = self.state.owners.get(&entry.item.partition);
        Ok(owner.map(|owner| Owner { node: owner.node.as_str(), epoch: owner.epoch }))
    }

    fn acked(&mut self, task: &TaskName, partition: Partition) -> Result<Option<Seq>, Infallible> {
        Ok(self.state.streams.get(&(task.clone(), partition)).map(|stream| stream.acked))
    }

    fn is_there(&mut self, _: usize, entry: &Entry) -> Result<bool, Infallible> {
        let Entry { source, item, .. } = entry;
        let there = self.state.waiting_at(&item.identity.task, item.partition, *source);
        Ok(there.is_some_and(|there| {
            (&there.identity, there.partition, there.run)
                == (&item.identity, item.partition, item.run)
        }))
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
                return Err(Error::Invalid(format!("the commit {id} was abandoned")));
            }
            None => {}
        }
        let fence = self.fence.as_ref().filter(|_| !self.is_broken(Broken::Fence));
        if let (Some(term), Some((fence, _))) = (batch.unqueued()?, fence)
            && fence.term > term
        {
            return Err(Error::Fenced);
        }
        if let Some(ahead) = batch.ahead_of(now) {
            return Ok(ahead);
        }
        if self.holds(batch) {
            return Ok(batch.all_left(LeftOut::Braked, now));
        }
        // Until the brakes are judged, only these are changed.
        let copy = || (self.tables.clone(), self.brakes.clone());
        let before = batch.braked.then(copy);
        let commit = Commit { batch, collections, now };
        let mut found = Found { state: self, node: &batch.node };
        let Ok(left) = left_out(&batch.entries, &batch.node, now, &mut found);
        let mut applied: Vec<Changed> = Vec::new();
        applied.resize_with(batch.entries.len(), Changed::default);
        let mut judged = Vec::with_capacity(batch.entries.len());
        for (at, left) in left.into_iter().enumerate() {
            judged.push(match left {
                Some(why) => Err(why),
                None => Ok(self.judge(&commit, at, &mut applied[at])),
            });
        }
        let Closed { writes, mut tally, outcomes } =
            close(&batch.entries, judged, |_| Blocks::UNKNOWN, &batch.node);
        if batch.braked {
            let rows = |at: usize| (applied[at].rows, Some(&applied[at].dependants));
            let used = brake::used(&batch.entries, &outcomes, rows);
            if !self.uses(&used) {
                if let Some(before) = before {
                    (self.tables, self.brakes) = before;
                }
                return Ok(batch.stopped(used, now));
            }
        }
        let by = By { node: &batch.node, commit: batch.id, now };
        self.write(writes, &mut tally, by, applied);
        let runs_ended = self.add(&tally, now);
        self.begun.remove(&batch.id);
        let committed = Committed { outcomes, at: now, runs_ended, braked: Used::new() };
        self.commits.insert(batch.id, Some(committed.clone()));
        Ok(committed)
    }

    /// Removes the items of a batch from the queues although it was not committed, if the store has the defect
    /// [`Broken::PurgeFirst`].
    pub(super) fn purge(&mut self, batch: &Batch, now: Time) {
        if !self.is_broken(Broken::PurgeFirst) || self.commits.contains_key(&batch.id) {
            return;
        }
        let mut found = Found { state: self, node: &batch.node };
        let Ok(left) = left_out(&batch.entries, &batch.node, now, &mut found);
        for (Entry { source, item, .. }, _) in
            batch.entries.iter().zip(left).filter(|(_, left)| left.is_none())
        {
            self.waiting.remove(&item.identity);
            let place = (item.identity.task.clone(), item.partition);
            match source {
                Source::Log(seq) => {
                    if let Some(stream) = self.streams.get_mut(&place) {
                        stream.acked = *seq;
                        stream.items.remove(seq);
                    }
                }
                Source::Timer(id) => drop(self.timers.remove(id)),
                Source::Retry(id) => drop(self.retries.remove(id)),
                Source::Unqueued(_) => {}
            }
        }
    }

    /// The result of a commit. An unknown mark is abandoned, so that a copy of its batch that is
    /// still pending somewhere is never applied.
    pub(super) fn find_commit(&mut self, id: CommitId) -> Option<Committed> {
        self.commits.entry(id).or_default().clone()
    }

    /// Evaluates the guards of an entry, and applies its changes if they hold.
    pub(super) fn judge(&mut self, commit: &Commit<'_>, at: usize, did: &mut Changed) -> Judged {
        let Entry { item, decision, .. } = &commit.batch.entries[at];
        let Decision::Apply { proposal, undo: kept, .. } = decision else { return Judged::Held };
        let tenant = item.identity.tenant.as_ref();
        let applied = match self.guards_hold(commit, at, tenant, proposal) {
            Ok(false) => return Judged::GuardFailed,
            Ok(true) => self.apply_or_restore(commit.collections, tenant, &proposal.changes),
            Err(violation) => Err(violation),
        };
        match applied {
            Err(Violation(said)) => Judged::Violated(said),
            Ok((touched, said)) => {
                let rows = touched.iter().filter(|touched| !touched.is_copy).count() as u64;
                let judged = Judged::of_rows(proposal, rows, None, false);
                if judged.is_applied() {
                    let image = |touched: &Touched| touched.image(commit.collections);
                    (did.rows, did.said) = (rows, said);
                    let dependants = touched.iter().filter(|touched| touched.is_dependant);
                    for of in dependants {
                        *did.dependants.entry(of.collection.clone()).or_default() += 1;
                    }
                    did.images = kept.then(|| touched.iter().map(image).collect());
                    let entry = &commit.batch.entries[at];
                    did.given = kept.then(|| Given::of(entry, commit.batch.as_of)).flatten();
                }
                judged
            }
        }
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
            Guard::Absent(filter) => Ok(self.is_anchored(collections, tenant, filter)?
                && !self.tables.exists(collections, tenant, filter)?),
            Guard::AtLeast(filter, rows) => {
                let rows = *rows as usize;
                Ok(self.tables.count(collections, tenant, filter, rows)? == rows)
            }
            Guard::AtMost(filter, rows) => {
                let rows = *rows as usize;
                Ok(self.is_anchored(collections, tenant, filter)?
                    && self.tables.count(collections, tenant, filter, rows + 1)? <= rows)
            }
            Guard::Missing { collection: name, key } => {
                Ok(self.tables.row(collection(collections, name)?, tenant, key)?.is_none())
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

    /// Whether there is an anchor for the absence of rows that match. One mutex needs none, but a
    /// guard that fails on another store fails here as well.
    fn is_anchored(
        &self,
        collections: &Collections,
        tenant: Option<&Tenant>,
        filter: &Filter,
    ) -> Result<bool, Violation> {
        let of = collection(collections, &filter.collection)?;
        for (anchor, key) in of.anchors_of(filter).map_err(Violation)? {
            let target = collection(collections, &anchor.collection)?;
            if self.tables.row(target, tenant, &key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Like [`State::apply`], also if rows are put back; and why some of them are not.
    fn apply_or_restore(
        &mut self,
        collections: &Collections,
        tenant: Option<&Tenant>,
        changes: &[Change],
    ) -> Result<(Vec<Touched>, Option<String>), Violation> {
        let Some(restore) = changes.iter().find_map(Change::restore) else {
            return Ok((self.apply(collections, tenant, changes)?, None));
        };
        let (touched, restored) = self.restore(collections, restore)?;
        Ok((touched, said(&restored)))
    }

    /// Puts rows back as they were kept.
    pub(super) fn restore(
        &mut self,
        collections: &Collections,
        restore: &Restore,
    ) -> Result<(Vec<Touched>, Restored), Violation> {
        let mut touched = Vec::new();
        let nothing = |why: &str| Ok((Vec::new(), nothing(why)));
        if restore.again == Again::Only {
            return Ok((Vec::new(), Restored::default()));
        }
        let Some(images) = self.images(restore.history) else {
            return nothing(REMOVED);
        };
        if let Some(name) = restore.collections.iter().find(|name| !collections.contains_key(*name))
        {
            return nothing(&unmapped(name));
        }
        let mut earlier = Earlier::default();
        for (history, count) in restore.attempts() {
            earlier.add(&self.images(history).unwrap_or_default(), count);
        }
        let mut restore = restore.clone();
        if self.is_broken(Broken::Undo) {
            let name = |image: &BeforeImage| row_name(&image.collection, &image.key);
            restore.forced = Arc::new(images.iter().map(name).collect());
        }
        let of = restore.collections.iter().filter_map(|name| collections.get(name));
        let kin = Kin::of(of);
        let mut restoring = Restoring::new(images, &restore, earlier, kin);
        let mut mark = 0;
        while let Some(ask) = restoring.ask() {
            let answer = self.tables.put_back(collections, ask, (&mut touched, &mut mark))?;
            restoring.answer(answer);
        }
        let mut restored = restoring.end().restored;
        restored.notes.extend(note(restore.purged));
        Ok((touched, restored))
    }

    /// Applies all changes of an item, or none. Messages are not sent by it.
    pub(super) fn apply(
        &mut self,
        collections: &Collections,
        tenant: Option<&Tenant>,
        changes: &[Change],
    ) -> Result<Vec<Touched>, Violation> {
        let mut touched = Vec::new();
        for change in changes {
            match self.tables.apply(collections, tenant, change) {
                Ok(more) => touched.extend(more),
                Err(violation) => {
                    self.tables.restore(&touched);
                    return Err(violation);
                }
            }
        }
        Ok(touched)
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
