//! The commit: ownership and cursors, guards, changes, before-images, history, counters, outbox and
//! acknowledgement in one transaction.
//!
//! There is one writer, so BEGIN IMMEDIATE locks every anchor at once: nothing commits between a
//! guard and its change.
//!
//! An item's violation must undo that item alone. A savepoint around every item costs more than the
//! item, so a batch is first tried without: a violation by any statement that may have changed a row
//! repeats the transaction with savepoints.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use besom_core::books::{Blocks, Closed, Judged, Owner, Places, close, left_out};
use besom_core::brake::{Used, used};
use besom_core::ids::{CommitId, OwnerEpoch, Partition, RunId, Seq, TaskName};
use besom_core::item::Source;
use besom_core::proposal::Proposal;
use rusqlite::{Connection, OptionalExtension, ToSql, ffi, params};

use super::brakes;
use super::effects::{Effects, Kept, Stop};
use super::error::{Failure, Job};
use super::guards::{Activity, Observation};
use super::items::Progress;
use super::leadership::not_above;
use super::ledger::{Ledger, Named, blocks};
use super::mapping::Mapping;
use super::restore::Ahead;
use super::reviews;
use super::tally;
use super::values::of_kept;
use super::writer::{Durability, Tx, Writing};
use besom_ports::store::{
    Batch, Committed, Decision, Entry, Error, Given, LeftOut, Tried, TriedChanges,
};
use besom_record::Changed;
use besom_record::images::unpack;
use besom_tables::room::Room;

/// Commits a batch.
pub(super) fn commit(
    writing: &mut Writing,
    batch: &Batch,
    mapping: &Mapping,
    observation: &Observation,
    undo_bytes: u64,
) -> Job<Committed> {
    let setting = Setting { mapping, observation, undo_bytes };
    let mut care = Care { savepoints: false, poisoned: BTreeMap::new() };
    loop {
        let done = writing.transaction(Durability::Full, |tx| attempt(tx, batch, &setting, &care));
        match done {
            // Each repetition adds savepoints or excludes one more item, so the loop ends.
            Err(Failure::Repeat { poison }) => {
                care.savepoints = true;
                care.poisoned.extend(poison);
            }
            Err(Failure::Braked(used, now)) => return Ok(batch.stopped(used, now)),
            other => return other,
        }
    }
}

/// The result of the commit with that mark. If there is none, the mark is abandoned, so that a copy
/// of the batch that is still pending is never applied.
pub(super) fn find(tx: &mut Tx<'_>, id: CommitId) -> Job<Option<Committed>> {
    match recorded(tx, id)? {
        Some(Some(result)) => Ok(Some(postcard::from_bytes(&result)?)),
        Some(None) => Ok(None),
        None => {
            let no = tx.number()?;
            tx.conn
                .prepare_cached("INSERT INTO besom_commit VALUES (?1, ?2, '', ?3, NULL)")?
                .execute(params![no, id.0.to_be_bytes(), tx.now.0])?;
            Ok(None)
        }
    }
}

fn recorded(tx: &Tx<'_>, id: CommitId) -> Job<Option<Option<Vec<u8>>>> {
    Ok(tx
        .conn
        .prepare_cached("SELECT result FROM besom_commit WHERE id = ?1")?
        .query_row([id.0.to_be_bytes()], |r| r.get(0))
        .optional()?)
}

/// The environment of a commit besides its batch.
struct Setting<'a> {
    mapping: &'a Mapping,
    observation: &'a Observation,
    /// The maximum size of the before-images, in bytes before they are packed.
    undo_bytes: u64,
}

/// How carefully a batch is applied.
struct Care {
    /// Whether savepoints surround the effects of every item.
    savepoints: bool,
    /// Items that rolled back the whole transaction, with the database's message.
    poisoned: BTreeMap<usize, String>,
}

fn attempt(tx: &mut Tx<'_>, batch: &Batch, setting: &Setting<'_>, care: &Care) -> Job<Committed> {
    match recorded(tx, batch.id)? {
        Some(Some(result)) => return Ok(postcard::from_bytes(&result)?),
        Some(None) => {
            return Err(Error::Invalid(format!("the commit {} was abandoned", batch.id)).into());
        }
        None => {}
    }
    if let Some(term) = batch.unqueued()? {
        not_above(tx, term)?;
    }
    if let Some(ahead) = batch.ahead_of(tx.now) {
        return Ok(ahead);
    }
    if reviews::any_held(tx, runs_of(batch))? {
        return Ok(batch.all_left(LeftOut::Braked, tx.now));
    }
    let mut found = Found { tx, owners: BTreeMap::new(), deaths: BTreeMap::new() };
    let left = left_out(&batch.entries, &batch.node, found.tx.now, &mut found)?;
    let Found { tx, deaths, .. } = found;
    let Done { judged, applied, facts } = apply_all(tx, batch, left, setting, care)?;
    if !care.savepoints && deferred_violation(tx.conn) {
        return Err(Failure::Repeat { poison: None });
    }
    let known = |task: &TaskName| facts.get(task).copied().unwrap_or(Blocks::UNKNOWN);
    let Closed { writes, mut tally, outcomes } = close(&batch.entries, judged, known, &batch.node);
    if batch.braked {
        let rows = |at: usize| (applied[at].rows, Some(&applied[at].dependants));
        let used = used(&batch.entries, &outcomes, rows);
        if !brakes::add(tx, &used)? {
            return Err(Failure::Braked(used, tx.now));
        }
    }
    let mut ledger = Ledger::open(tx)?;
    ledger.write(tx, writes, &mut tally, applied, &deaths)?;
    let runs_ended = tally::write(tx, &tally)?;
    let committed = Committed { outcomes, at: tx.now, runs_ended, braked: Used::new() };
    ledger.close(tx, Some(batch.id), &batch.node, &postcard::to_stdvec(&committed)?)?;
    tx.conn
        .prepare_cached("DELETE FROM besom_inflight WHERE commit_id = ?1")?
        .execute([batch.id.0.to_be_bytes()])?;
    Ok(committed)
}

/// What became of the entries of a batch, before the books are written.
struct Done<'a> {
    judged: Vec<Result<Judged, LeftOut>>,
    applied: Vec<Changed>,
    facts: BTreeMap<&'a TaskName, Blocks>,
}

/// Evaluates the guards and applies the changes of every entry that is not left out.
fn apply_all<'a>(
    tx: &mut Tx<'_>,
    batch: &'a Batch,
    left: Vec<Option<LeftOut>>,
    setting: &Setting<'_>,
    care: &Care,
) -> Job<Done<'a>> {
    let mut idle: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    if !batch.activity_in_store {
        for (i, key) in &batch.idle {
            idle.entry(*i).or_default().push(key);
        }
    }
    let mut facts: BTreeMap<&TaskName, Blocks> = BTreeMap::new();
    let mut judged = Vec::with_capacity(batch.entries.len());
    let mut applied: Vec<Changed> = Vec::with_capacity(batch.entries.len());
    let mut room = Room::of_images(setting.undo_bytes);
    let ahead = Ahead::of(batch.entries.iter().filter_map(|entry| match &entry.decision {
        Decision::Apply { proposal, .. } => Some(proposal),
        Decision::Settle(_) => None,
    }));
    for (i, (entry, left)) in batch.entries.iter().zip(left).enumerate() {
        applied.push(Changed::default());
        if let Some(why) = left {
            judged.push(Err(why));
            continue;
        }
        let name = &entry.item.identity.task;
        if !facts.contains_key(name) {
            let task = tx.task(name)?;
            facts.insert(name, blocks(tx, task)?);
        }
        let activity = if batch.activity_in_store {
            Activity::Table(setting.observation)
        } else {
            Activity::Keys(idle.remove(&i).unwrap_or_default())
        };
        let Decision::Apply { proposal, undo: keep, .. } = &entry.decision else {
            judged.push(Ok(Judged::Held));
            continue;
        };
        let done = match care.poisoned.get(&i) {
            Some(said) => Err(said.clone()),
            None => {
                let tenant = entry.item.identity.tenant.as_ref();
                let images = keep.then(|| Kept::new(room.clone()));
                let effects = Effects::new(tx, setting.mapping, (tenant, &ahead), images);
                apply(tx, effects, proposal, &activity, care.savepoints, i)?
            }
        };
        judged.push(Ok(match done {
            Ok(Some(effects)) => {
                let restored = effects.restored.as_ref().and_then(besom_record::restore::said);
                let keep = effects.refused.is_kept();
                let said = effects.refused.said().or(restored);
                let judged = Judged::of_rows(proposal, effects.rows, said.as_deref(), keep);
                if judged.is_applied() {
                    let of = &mut applied[i];
                    (of.rows, of.dependants, of.said) = (effects.rows, effects.dependants, said);
                    let is_kept = matches!(judged, Judged::Kept(_));
                    if let Some(kept) = effects.images.filter(|_| !is_kept) {
                        let packed;
                        let given = Given::of(entry, batch.as_of);
                        (packed, room) = kept.pack(&entry.item.version, given.as_ref());
                        of.undo = Some(packed);
                    }
                }
                judged
            }
            Ok(None) => Judged::GuardFailed,
            Err(said) => Judged::Violated(said),
        }));
    }
    Ok(Done { judged, applied, facts })
}

/// The runs of a batch, each once.
fn runs_of(batch: &Batch) -> impl Iterator<Item = RunId> {
    let runs: BTreeSet<RunId> = batch.entries.iter().map(|entry| entry.item.run).collect();
    runs.into_iter().filter(|run| *run != RunId::NONE)
}

/// Does what a commit does with items that were never queued, and takes it back.
pub(super) fn rehearse(
    writing: &mut Writing,
    batch: &Batch,
    mapping: &Mapping,
    observation: &Observation,
    undo_bytes: u64,
) -> Job<Tried> {
    let setting = Setting { mapping, observation, undo_bytes };
    let mut care = Care { savepoints: true, poisoned: BTreeMap::new() };
    loop {
        let done =
            writing.transaction(Durability::Process, |tx| rehearsed(tx, batch, &setting, &care));
        match done {
            Err(Failure::Repeat { poison }) => care.poisoned.extend(poison),
            other => return other,
        }
    }
}

fn rehearsed(tx: &mut Tx<'_>, batch: &Batch, setting: &Setting<'_>, care: &Care) -> Job<Tried> {
    if let Some(term) = batch.unqueued()? {
        not_above(tx, term)?;
    }
    // A number that is given within the savepoint would be taken back with it.
    for entry in &batch.entries {
        tx.task(&entry.item.identity.task)?;
    }
    tx.conn.execute_batch("SAVEPOINT trial")?;
    let left = vec![None; batch.entries.len()];
    let Done { judged, applied, facts } = apply_all(tx, batch, left, setting, care)?;
    let known = |task: &TaskName| facts.get(task).copied().unwrap_or(Blocks::UNKNOWN);
    let judged = judged.into_iter().map(|judged| judged.map(Judged::of_trial));
    let outcomes = close(&batch.entries, judged, known, &batch.node).outcomes;
    tx.conn.execute_batch("ROLLBACK TO trial; RELEASE trial")?;
    let changes = applied.into_iter().map(|of| {
        let packed = of.undo.as_deref();
        let images = packed.map(|packed| unpack(packed, of_kept)).transpose()?;
        Ok(TriedChanges {
            rows: of.rows,
            images: images.unwrap_or_default(),
            bytes: packed.map_or(0, <[u8]>::len) as u64,
            said: of.said,
            // A writer has the whole file.
            locked: None,
        })
    });
    Ok(Tried { outcomes, changes: changes.collect::<Job<_>>()? })
}

/// Evaluates the guards and applies the changes of one item. `Ok(None)`: a guard does not hold. The
/// inner error is a violation, in the database's words; then nothing is changed.
fn apply<'a>(
    tx: &Tx<'a>,
    mut effects: Effects<'a>,
    proposal: &'a Proposal,
    activity: &Activity<'_>,
    savepoints: bool,
    index: usize,
) -> Job<Result<Option<Effects<'a>>, String>> {
    let savepoint = |sql: &str| tx.conn.prepare_cached(sql).and_then(|mut s| s.execute([]));
    if savepoints {
        savepoint("SAVEPOINT item")?;
    }
    let mut said = None;
    match run(&mut effects, proposal, activity, tx) {
        Ok(false) => {
            if savepoints {
                savepoint("RELEASE item")?;
            }
            return Ok(Ok(None));
        }
        Ok(true) if savepoints && deferred_violation(tx.conn) => {
            said = Some("FOREIGN KEY constraint failed".to_owned());
        }
        Ok(true) => {}
        Err(Stop::Violation(words)) => said = Some(words),
        Err(Stop::Failure(failure)) => return Err(failure),
    }
    let Some(said) = said else {
        if savepoints {
            savepoint("RELEASE item")?;
        }
        return Ok(Ok(Some(effects)));
    };
    if tx.conn.is_autocommit() {
        // The user's schema uses ON CONFLICT ROLLBACK: everything before it is rolled back as well.
        return Err(Failure::Repeat { poison: Some((index, said)) });
    }
    if savepoints {
        savepoint("ROLLBACK TO item")?;
        savepoint("RELEASE item")?;
    } else if effects.dirty {
        return Err(Failure::Repeat { poison: None });
    }
    Ok(Err(said))
}

fn run<'a>(
    effects: &mut Effects<'a>,
    proposal: &'a Proposal,
    activity: &Activity<'_>,
    tx: &Tx<'_>,
) -> Result<bool, Stop> {
    for guard in &proposal.guards {
        if !effects.holds(guard, &proposal.changes, activity, tx.now)? {
            return Ok(false);
        }
    }
    effects.sole_delete = proposal.deletes_a_seen_row();
    effects.rows_may_stay = proposal.rows_may_stay();
    for change in &proposal.changes {
        effects.apply(change)?;
    }
    Ok(true)
}

/// Whether a deferred foreign key is currently violated: COMMIT would fail.
pub(super) fn deferred_violation(conn: &Connection) -> bool {
    let (mut current, mut highest) = (0, 0);
    // SAFETY: the handle is of an open connection that this thread owns, and both out
    // parameters live through the call.
    unsafe {
        ffi::sqlite3_db_status(
            conn.handle(),
            ffi::SQLITE_DBSTATUS_DEFERRED_FKS,
            &mut current,
            &mut highest,
            0,
        );
    }
    current != 0
}

/// Removes a timer or a retry, and finds an item of the log, which is removed when its stream is
/// acknowledged. Returns the progress; none if this item is not there, because another commit has
/// taken it or the store was restored to an earlier state.
fn take(tx: &mut Tx<'_>, entry: &Entry) -> Job<Option<Option<Vec<u8>>>> {
    let Named { task, tenant, key, due } = Named::of(tx, &entry.item.identity)?;
    let (part, run) = (entry.item.partition.0, entry.item.run.0);
    let progress = |sql, params: &[&dyn ToSql]| -> Job<Option<Option<Vec<u8>>>> {
        let mut statement = tx.conn.prepare_cached(sql)?;
        Ok(statement.query_row(params, |r| r.get(0)).optional()?)
    };
    match entry.source {
        Source::Log(seq) => progress(
            "SELECT progress FROM besom_log WHERE task = ?1 AND part = ?2 AND seq = ?3
               AND tenant = ?4 AND key = ?5 AND run = ?6",
            params![task, part, seq.0, tenant, key, run],
        ),
        Source::Timer(id) => progress(
            "DELETE FROM besom_timer WHERE task = ?1 AND due = ?2 AND id = ?3 AND tenant = ?4
               AND key = ?5 AND run = ?6 AND part = ?7 RETURNING progress",
            params![task, due, id, tenant, key, run, part],
        ),
        Source::Retry(id) => progress(
            "DELETE FROM besom_retry WHERE task = ?1 AND due = ?2 AND id = ?3 AND tenant = ?4
               AND key = ?5 AND run = ?6 AND part = ?7 RETURNING progress",
            params![task, due, id, tenant, key, run, part],
        ),
        // It waits nowhere.
        Source::Unqueued(_) => Ok(Some(None)),
    }
}

/// What the store finds about the entries of a batch, as of its transaction.
struct Found<'t, 'c> {
    tx: &'t mut Tx<'c>,
    owners: BTreeMap<u32, (Option<String>, OwnerEpoch)>,
    /// By index of the entry: the deaths of its item, where more were counted since it was read.
    deaths: BTreeMap<usize, u32>,
}

impl Places for Found<'_, '_> {
    type Error = Failure;

    fn owner(&mut self, entry: &Entry) -> Job<Option<Owner<'_>>> {
        let partition = entry.item.partition.0;
        let (node, epoch) = match self.owners.entry(partition) {
            btree_map::Entry::Occupied(known) => known.into_mut(),
            btree_map::Entry::Vacant(unknown) => {
                let owner = self
                    .tx
                    .conn
                    .prepare_cached("SELECT owner, owner_epoch FROM besom_partition WHERE id = ?1")?
                    .query_row([partition], |r| Ok((r.get(0)?, OwnerEpoch(r.get(1)?))))
                    .optional()?;
                unknown.insert(owner.unwrap_or((None, OwnerEpoch(0))))
            }
        };
        let epoch = *epoch;
        Ok(node.as_deref().map(|node| Owner { node, epoch }))
    }

    fn acked(&mut self, task: &TaskName, partition: Partition) -> Job<Option<Seq>> {
        let task = self.tx.task(task)?;
        Ok(self
            .tx
            .conn
            .prepare_cached("SELECT acked FROM besom_stream WHERE task = ?1 AND part = ?2")?
            .query_row(params![task, partition.0], |r| Ok(Seq(r.get(0)?)))
            .optional()?)
    }

    fn is_there(&mut self, at: usize, entry: &Entry) -> Job<bool> {
        let Some(progress) = take(self.tx, entry)? else { return Ok(false) };
        if progress.is_some() {
            let deaths = Progress::unpack(progress.as_deref()).deaths;
            if deaths > entry.item.deaths {
                self.deaths.insert(at, deaths);
            }
        }
        Ok(true)
    }
}
