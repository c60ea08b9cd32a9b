//! Executes the writes of the books ([`besom_core::books`]).

use std::borrow::Cow;

use besom_core::books::{Delta, Past, Tally, Write};
use besom_core::brake::Dependants;
use besom_core::ids::{CommitId, Incarnation, RunId, Seq};
use besom_core::item::{Identity, Item, Source};
use besom_core::proposal::{DEPENDANT_ROWS, PLANNED_ROWS, rows_noted};
use besom_core::time::Time;
use besom_core::value::{Field, Value};

use super::outbox::Origin;
use super::state::{Mark, Numbered, Recorded, State};
use besom_ports::store::{BeforeImage, Counts, DeadLetter, Given, HistoryRow};

/// What the changes of an item have done.
#[derive(Default)]
pub(super) struct Changed {
    /// The before-images; none: they are not kept.
    pub(super) images: Option<Vec<BeforeImage>>,
    /// The number of rows that were changed.
    pub(super) rows: u64,
    /// Those of them that were deleted as dependants of others.
    pub(super) dependants: Dependants,
    /// Why rows stay as they are that were to be put back.
    pub(super) said: Option<String>,
    /// What the item was given, if its before-images are kept.
    pub(super) given: Option<Given>,
}

/// The origin of the writes.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    pub(super) node: &'a Incarnation,
    pub(super) commit: CommitId,
    pub(super) now: Time,
}

impl State {
    /// Executes the writes in order, and adds to the tally what only they can tell.
    pub(super) fn write<'a>(
        &mut self,
        writes: Vec<Write<'a>>,
        tally: &mut Tally<'a>,
        by: By<'_>,
        mut applied: Vec<Changed>,
    ) {
        for write in writes {
            match write {
                Write::Remove { item, source } => {
                    self.waiting.remove(&item.identity);
                    if !matches!(source, Source::Log(_)) {
                        self.take_out(item, source);
                    }
                }
                Write::Retry { item, source, run_at, attempts, guard_retries, error, .. } => {
                    let mut item = self.take_out(item, source);
                    (item.attempts, item.guard_retries) = (attempts, guard_retries);
                    item.errors.push(error.into_owned());
                    self.add_retry(run_at, item);
                }
                Write::SetAside { item, source, attempts, error, context, .. } => {
                    self.waiting.remove(&item.identity);
                    let mut item = self.take_out(item, source);
                    item.attempts = attempts;
                    item.errors.push(error.into_owned());
                    let id = self.next_id(Numbered::Dead);
                    self.dead.insert(
                        id,
                        DeadLetter { id, item, at: by.now, resolved_at: None, context },
                    );
                }
                Write::Acknowledge { task, partition, after, upto } => {
                    if let Some(stream) = self.streams.get_mut(&(task.clone(), partition)) {
                        stream.acked = upto;
                        for seq in after.0 + 1..=upto.0 {
                            stream.items.remove(&Seq(seq));
                        }
                    }
                }
                Write::History { at, item, end, settled, reason, notes } => {
                    let Changed { images, rows, dependants, said, given } =
                        applied.get_mut(at).map(std::mem::take).unwrap_or_default();
                    let mut notes = notes.to_vec();
                    if !dependants.is_empty() && rows_noted(&notes, PLANNED_ROWS).is_some() {
                        let rows = Value::Integer(dependants.values().sum::<u64>() as i64);
                        notes.push(Field::new(DEPENDANT_ROWS, rows));
                    }
                    tally.of(&item.identity).rows += rows as i64;
                    let row = HistoryRow {
                        rows,
                        id: self.next_id(Numbered::History),
                        identity: item.identity.clone(),
                        run: item.run,
                        at: by.now,
                        outcome: end,
                        settled,
                        reason: reason.map(Cow::into_owned).or(said),
                        notes,
                        node: by.node.clone(),
                        commit: by.commit,
                        undo_bytes: images.iter().flatten().map(image_bytes).sum(),
                    };
                    let version = item.version.clone();
                    self.history.insert(
                        row.id,
                        Recorded {
                            row,
                            images,
                            version,
                            given,
                            purged: 0,
                            purged_of: Default::default(),
                        },
                    );
                }
                Write::Emit { item, topic, key, payload, .. } => {
                    let Identity { task, tenant, .. } = &item.identity;
                    let (run, tenant) = (Some(item.run), tenant.as_ref());
                    // It follows the history row of its item.
                    let history = self.history.last_key_value().map(|(id, _)| *id);
                    let origin = Origin { task: Some(task), run, history, tenant, now: by.now };
                    self.emit(origin, topic, key, payload, None);
                }
                Write::Lift { item } => {
                    self.settled.remove(&item.identity);
                }
                Write::Resolve { item } => {
                    let open = |letter: &&mut DeadLetter| {
                        letter.item.identity == item.identity && letter.is_open()
                    };
                    for letter in self.dead.values_mut().filter(open) {
                        letter.resolved_at = Some(by.now);
                        tally.resolved(&item.identity, letter.item.run);
                    }
                }
                Write::Block { item, given_up } => {
                    let marks = self.settled.entry(item.identity.clone()).or_default();
                    let before = marks.get(&item.version).is_some_and(|mark| mark.given_up);
                    let mark = Mark { at: by.now, given_up: given_up || before };
                    marks.insert(item.version.clone(), mark);
                }
                Write::Revive { letter, item, run_at, past, .. } => {
                    if self.waiting.contains(&item.identity) {
                        continue;
                    }
                    if let Some(DeadLetter { item: mut revived, .. }) = self.dead.remove(&letter) {
                        let Past { attempts, guard_retries, deaths } = past;
                        revived = Item { attempts, guard_retries, deaths, ..revived };
                        self.add_retry(run_at, revived);
                        tally.revived(&item.identity);
                    }
                }
                Write::Discard { letter } => {
                    self.dead.remove(&letter);
                }
            }
        }
    }

    /// Adds the sums to counters and runs; returns the runs that ended with them.
    pub(super) fn add(&mut self, tally: &Tally<'_>, now: Time) -> Vec<RunId> {
        for ((task, tenant), delta) in &tally.counters {
            let account = ((*task).clone(), tenant.cloned());
            add(self.counts.entry(account).or_default(), delta);
        }
        let mut ended = Vec::new();
        for (id, leaving) in &tally.runs {
            if let Some(run) = self.runs.get_mut(id) {
                bump(&mut run.open, -leaving.log);
            }
            if leaving.log > 0 && self.end_if_complete(*id, now) {
                ended.push(*id);
            }
        }
        ended
    }

    /// Removes the item from where it was waiting. The store's own copy is the one to keep: deaths
    /// of hosts may have been counted since it was read.
    fn take_out(&mut self, item: &Item, source: Source) -> Item {
        let taken = match source {
            Source::Timer(id) => self.timers.remove(&id),
            Source::Retry(id) => self.retries.remove(&id).map(|(_, item)| item),
            Source::Log(seq) => self.take_logged(item, seq),
            // It ends with its commit, and waits nowhere before.
            Source::Unqueued(_) => None,
        };
        taken.expect("entries that are not waiting were left out")
    }

    fn take_logged(&mut self, item: &Item, seq: Seq) -> Option<Item> {
        let stream = self.streams.get_mut(&(item.identity.task.clone(), item.partition))?;
        stream.items.remove(&seq).map(|(_, item)| item)
    }
}

/// Adds to the counters of a task and tenant.
pub(super) fn add(counts: &mut Counts, delta: &Delta) {
    bump(&mut counts.planned, delta.planned);
    bump(&mut counts.committed, delta.committed);
    bump(&mut counts.skipped, delta.skipped);
    bump(&mut counts.dead, delta.dead);
    bump(&mut counts.discarded, delta.discarded);
    bump(&mut counts.pending, delta.pending());
    bump(&mut counts.rows, delta.rows);
    bump(&mut counts.resolved, delta.resolved);
}

/// Adds to one counter; a negative number subtracts.
pub(super) fn bump(count: &mut u64, by: i64) {
    *count = count.checked_add_signed(by).expect("no count is negative");
}

/// The size of an image, in bytes.
pub(super) fn image_bytes(image: &BeforeImage) -> u64 {
    let fields = image.row.iter().flatten().map(|field| field.value.weight());
    let bytes: usize = fields.chain(image.key.iter().map(Value::weight)).sum();
    bytes as u64
}
