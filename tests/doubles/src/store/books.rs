//! The books: the history, the recount of the counters, and pruning.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use besom_core::ids::{CommitId, FencingToken, RunId, Seq, TaskName};
use besom_core::item::{Identity, Item};
use besom_core::plan::{Run, SlotRecord};
use besom_core::time::Time;
use besom_core::undo::{self, Target};

use super::ledger::image_bytes;
use super::state::{Account, Recorded, State, account};
use besom_ports::store::{
    Applied, Audit, AuditRow, BeforeImage, Counts, DeadLetter, HistoryQuery, HistoryRow, KeptItem,
    Left, Pruned, Purge, Result, Retention, TERMS_KEPT,
};

impl State {
    pub(super) fn list_runs(&self, task: Option<&TaskName>, limit: u32) -> Vec<Run> {
        let runs = self.runs.values().rev().filter(|run| task.is_none_or(|task| *task == run.task));
        runs.take(limit as usize).cloned().collect()
    }

    pub(super) fn list_slots(
        &self,
        task: &TaskName,
        from: Time,
        to: Time,
        limit: u32,
    ) -> Vec<SlotRecord> {
        let touches = |slot: &&SlotRecord| slot.task == *task && slot.to >= from && slot.from <= to;
        self.slots.iter().rev().filter(touches).take(limit as usize).cloned().collect()
    }

    pub(super) fn list_history(&self, query: &HistoryQuery) -> Vec<HistoryRow> {
        fn asked<T: PartialEq>(wanted: &Option<T>, actual: &T) -> bool {
            wanted.as_ref().is_none_or(|wanted| wanted == actual)
        }
        let HistoryQuery { task, tenant, key, run, before, limit } = query;
        self.history
            .values()
            .rev()
            .map(|recorded| &recorded.row)
            .filter(|row| asked(task, &row.identity.task) && asked(key, &row.identity.key))
            .filter(|row| tenant.is_none() || *tenant == row.identity.tenant)
            .filter(|row| asked(run, &row.run) && before.is_none_or(|before| row.id < before))
            .take(*limit as usize)
            .cloned()
            .collect()
    }

    pub(super) fn images(&self, history: u64) -> Option<Vec<BeforeImage>> {
        self.history.get(&history)?.images.clone()
    }

    pub(super) fn kept(&self, history: u64) -> Option<KeptItem> {
        let Recorded { images, version, given, purged, purged_of, .. } =
            self.history.get(&history)?;
        let (version, given) = (Some(version.clone()), given.clone());
        let purged_of = purged_of.iter().cloned().collect();
        let mut kept =
            KeptItem { version, given, purged: *purged, purged_of, ..KeptItem::default() };
        for image in images.as_ref()? {
            kept.rows += 1;
            if !kept.collections.contains(&image.collection) {
                kept.collections.push(image.collection.clone());
            }
        }
        Some(kept)
    }

    /// Removes chosen rows from what is kept.
    pub(super) fn purge_kept(&mut self, purge: &Purge, applied: &mut Applied, limit: NonZeroU32) {
        let mut step = (0, 0);
        while let Some(place) = applied.next_place(purge, step, limit) {
            let found = self.history.get_mut(&place.history);
            step = (step.0 + 1, step.1 + place.bytes);
            let Some(Recorded { row, images: Some(images), given, purged, purged_of, .. }) = found
            else {
                applied.count_place(false, None);
                continue;
            };
            let all = images.len() as u64;
            if (place.bytes, place.of) != (row.undo_bytes, all) {
                applied.count_place(true, None);
                continue;
            }
            let (mut at, mut removed) = (0, 0);
            images.retain(|image| {
                at += 1;
                let stays = !place.has(at - 1);
                removed += u64::from(!stays && image.left != Left::Copy);
                if !stays {
                    purged_of.insert(image.collection.clone());
                }
                stays
            });
            row.undo_bytes = images.iter().map(image_bytes).sum();
            *given = None;
            *purged += removed;
            if images.is_empty()
                && let Some(recorded) = self.history.get_mut(&place.history)
            {
                recorded.images = None;
            }
            applied.count_place(true, Some(removed));
        }
        applied.end_step(purge);
    }

    // ---- the audit

    pub(super) fn audit(&self) -> Audit {
        let recounted = self.recount();
        let accounts: BTreeSet<&Account> = self.counts.keys().chain(recounted.keys()).collect();
        let row = |who: &Account| {
            let recounted = recounted.get(who).cloned().unwrap_or_default().recounted();
            let counted = self.counts.get(who).cloned().unwrap_or_default();
            AuditRow { task: who.0.clone(), tenant: who.1.clone(), counted, recounted }
        };
        Audit { rows: accounts.into_iter().map(row).collect(), violations: self.violations() }
    }

    /// Counts every row, and the pruned ones.
    fn recount(&self) -> BTreeMap<Account, Counts> {
        let mut all = self.baseline.clone();
        for Recorded { row, .. } in self.history.values() {
            let counts = all.entry(account(&row.identity)).or_default();
            counts.count_ended(row.outcome, 1);
            counts.rows += row.rows;
        }
        for letter in self.dead.values() {
            let counts = all.entry(account(&letter.item.identity)).or_default();
            counts.count_letters(1, u64::from(!letter.is_open()));
        }
        for item in self.all_waiting() {
            all.entry(account(&item.identity)).or_default().pending += 1;
        }
        all
    }

    pub(super) fn all_waiting(&self) -> impl Iterator<Item = &Item> {
        let log = self.streams.values().flat_map(|stream| stream.items.values());
        (log.map(|(_, item)| item))
            .chain(self.timers.values())
            .chain(self.retries.values().map(|(_, item)| item))
    }

    fn violations(&self) -> Vec<String> {
        let mut found = Vec::new();
        for ((task, partition), stream) in &self.streams {
            for seq in stream.acked.0 + 1..=stream.tail.0 {
                if !stream.items.contains_key(&besom_core::ids::Seq(seq)) {
                    found.push(format!("{task}, partition {partition}: a gap at {seq}"));
                }
            }
        }
        for ((task, partition), stream) in &self.streams {
            let beyond = stream.items.range(Seq(stream.tail.0 + 1)..).count();
            if beyond > 0 {
                found.push(format!("{task}, partition {partition}: {beyond} beyond the tail"));
            }
        }
        for task in self.counts.keys().map(|(task, _)| task).collect::<BTreeSet<_>>() {
            let (ended, positions) = (self.ended_in_streams(task), self.positions(task));
            if ended > positions {
                found.push(format!("the streams of {task}: {ended} ended, {positions} positions"));
            }
        }
        let mut seen: BTreeSet<&Identity> = BTreeSet::new();
        for item in self.all_waiting() {
            if !seen.insert(&item.identity) {
                found.push(format!("{:?} is waiting twice", item.identity));
            }
        }
        let index: BTreeSet<&Identity> = self.waiting.iter().collect();
        let astray = index.symmetric_difference(&seen);
        found.extend(astray.map(|id| format!("{id:?} and the index of waiting items disagree")));
        let mut open: BTreeMap<RunId, u64> = BTreeMap::new();
        for (_, item) in self.streams.values().flat_map(|stream| stream.items.values()) {
            *open.entry(item.run).or_default() += 1;
        }
        for run in self.runs.values() {
            let actual = open.get(&run.id).copied().unwrap_or_default();
            if run.open != actual {
                let (id, counted) = (run.id, run.open);
                found.push(format!("run {id} counts {counted} open items and has {actual}"));
            }
        }
        found
    }

    // ---- pruning

    pub(super) fn prune(
        &mut self,
        fence: &FencingToken,
        keep: Retention<'_>,
        limit: u32,
        now: Time,
    ) -> Result<Pruned> {
        self.check_fence(fence)?;
        let before = now - keep.history;
        let mut pruned = self.prune_history(before, limit);
        for (task, retention) in keep.undo {
            pruned.undo += self.prune_images(task, now - *retention, limit);
        }
        let silent = now - keep.nodes;
        pruned.other = self.prune_others(before, limit)
            + self.prune_unrouted(before, keep.routed, limit)
            + remove_old(&mut self.cursors, limit, |_, (moved_at, _)| *moved_at < before)
            + remove_old(&mut self.nodes, limit, |_, node| node.seen_at < silent)
            + self.activity.forget_idle(now, limit);
        Ok(pruned)
    }

    /// Images that are removed with their history row are counted as well.
    fn prune_history(&mut self, before: Time, limit: u32) -> Pruned {
        let old = self.history.values().filter(|recorded| recorded.row.at < before);
        let old: Vec<u64> = old.map(|recorded| recorded.row.id).take(limit as usize).collect();
        let mut pruned = Pruned::default();
        for recorded in old.iter().filter_map(|id| self.history.remove(id)) {
            let counts = self.baseline.entry(account(&recorded.row.identity)).or_default();
            counts.count_ended(recorded.row.outcome, 1);
            counts.rows += recorded.row.rows;
            pruned.history += 1;
            pruned.undo += u64::from(recorded.images.is_some());
        }
        pruned
    }

    fn prune_images(&mut self, task: &TaskName, before: Time, limit: u32) -> u64 {
        let expired = |recorded: &&Recorded| {
            let row = &recorded.row;
            let is_of = row.identity.task == *task || self.undone_of(row).as_ref() == Some(task);
            recorded.images.is_some() && is_of && row.at < before
        };
        let expired = self.history.values().filter(expired).take(limit as usize);
        let expired: Vec<u64> = expired.map(|recorded| recorded.row.id).collect();
        for id in &expired {
            if let Some(recorded) = self.history.get_mut(id) {
                recorded.images = None;
                recorded.row.undo_bytes = 0;
            }
        }
        expired.len() as u64
    }

    /// The task of which a history row has undone an item, in however many steps; none: it has undone nothing, or
    /// that is not recorded any more.
    fn undone_of(&self, row: &HistoryRow) -> Option<TaskName> {
        let mut row = row;
        while row.identity.task.as_str() == undo::TASK {
            let number = Target::parse(&row.identity.key).ok()?.number()?;
            row = &self.history.get(&number)?.row;
        }
        Some(row.identity.task.clone())
    }

    /// The runs of which items wait, or are set aside.
    pub(super) fn runs_with_items(&self) -> BTreeSet<RunId> {
        let open = self.dead.values().filter(|letter| letter.is_open());
        self.all_waiting().chain(open.map(|letter| &letter.item)).map(|item| item.run).collect()
    }

    fn prune_others(&mut self, before: Time, limit: u32) -> u64 {
        let resolved = self.prune_resolved(before, limit);
        let referred = self.runs_with_items();
        let told: BTreeSet<CommitId> =
            self.history.values().map(|recorded| recorded.row.commit).collect();
        let ended = |run: &Run| run.ended_at.is_some_and(|at| at < before);
        resolved
            + remove_old(&mut self.commits, limit, |id, committed| {
                committed.as_ref().is_some_and(|committed| committed.at < before)
                    && !told.contains(id)
            })
            + remove_old(&mut self.runs, limit, |id, run| ended(run) && !referred.contains(id))
            + remove_old(&mut self.commands, limit, |_, row| {
                row.applied_at.is_some_and(|at| at < before)
            })
            + self.prune_messages(before, limit)
            + self.prune_slots(before, limit)
            + self.prune_settled(before, limit)
            + self.prune_lines(limit)
            + self.prune_brakes(limit)
            + self.prune_terms(before, limit)
    }

    /// The newest terms are kept, however old.
    fn prune_brakes(&mut self, limit: u32) -> u64 {
        let runs = &self.runs;
        remove_old(&mut self.brakes, limit, |(run, _), _| !runs.contains_key(run))
            + remove_old(&mut self.reviews, limit, |run, _| !runs.contains_key(run))
    }

    fn prune_terms(&mut self, before: Time, limit: u32) -> u64 {
        let newest = self.terms.keys().rev().nth(TERMS_KEPT as usize - 1).copied();
        remove_old(&mut self.terms, limit, |term, raised| {
            raised.raised_at < before && newest.is_some_and(|newest| *term < newest)
        })
    }

    /// Removes dead letters that were resolved long ago; the baseline still counts them.
    fn prune_resolved(&mut self, before: Time, limit: u32) -> u64 {
        let old = |letter: &&DeadLetter| letter.resolved_at.is_some_and(|at| at < before);
        let mut old: Vec<_> =
            self.dead.values().filter(old).map(|letter| (letter.resolved_at, letter.id)).collect();
        old.sort_unstable();
        old.truncate(limit as usize);
        for letter in old.iter().filter_map(|(_, id)| self.dead.remove(id)) {
            let counts = self.baseline.entry(account(&letter.item.identity)).or_default();
            counts.count_letters(1, 1);
        }
        old.len() as u64
    }

    /// The last outcome of each task is kept, however old.
    fn prune_slots(&mut self, before: Time, limit: u32) -> u64 {
        let mut last: BTreeMap<TaskName, Time> = BTreeMap::new();
        for slot in &self.slots {
            let latest = last.entry(slot.task.clone()).or_insert(slot.to);
            *latest = (*latest).max(slot.to);
        }
        let mut pruned = 0;
        self.slots.retain(|slot| {
            let superseded = last.get(&slot.task).is_some_and(|latest| slot.to < *latest);
            let old = slot.to < before && superseded && pruned < u64::from(limit);
            pruned += u64::from(old);
            !old
        });
        pruned
    }

    /// A version that a task settled may be planned again once per retention; a version that an
    /// operator discarded may not.
    fn prune_settled(&mut self, before: Time, limit: u32) -> u64 {
        let mut pruned = 0;
        self.settled.retain(|_, marks| {
            marks.retain(|_, mark| {
                let old = mark.at < before && !mark.given_up && pruned < u64::from(limit);
                pruned += u64::from(old);
                !old
            });
            !marks.is_empty()
        });
        pruned
    }
}

fn remove_old<K: Ord + Clone, V>(
    rows: &mut BTreeMap<K, V>,
    limit: u32,
    old: impl Fn(&K, &V) -> bool,
) -> u64 {
    let keys: Vec<K> = rows
        .iter()
        .filter(|(key, value)| old(key, value))
        .map(|(key, _)| key.clone())
        .take(limit as usize)
        .collect();
    for key in &keys {
        rows.remove(key);
    }
    keys.len() as u64
}
