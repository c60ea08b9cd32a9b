//! The settlement of a batch.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Blocks, End, Entry, Judged, LeftOut, LetterContext, Outcome, Tally, Write};
use crate::ids::{Incarnation, Partition, Seq, TaskName};
use crate::item::{Item, Source};
use crate::proposal::{Again, Change, Proposal, Settle};
use crate::queue::Decision;
use crate::value::Field;

/// What a settlement does to the books.
#[derive(Debug, Default)]
pub struct Closed<'a> {
    /// The writes, entry by entry; then the acknowledgements.
    pub writes: Vec<Write<'a>>,
    /// The sums, except for what only executing the writes can tell: the letters that
    /// [`Write::Resolve`] finds, and the size of before-images.
    pub tally: Tally<'a>,
    /// The outcome of each entry.
    pub outcomes: Vec<Outcome>,
}

/// Settles a batch, given what the store found out about each entry, in order, and what may block
/// items of a task. `node` executed the batch.
pub fn close<'a>(
    entries: &'a [Entry],
    judged: impl IntoIterator<Item = Result<Judged, LeftOut>>,
    blocks: impl Fn(&TaskName) -> Blocks,
    node: &Incarnation,
) -> Closed<'a> {
    let mut closed = Closed {
        writes: Vec::with_capacity(entries.len() * 2),
        tally: Tally::default(),
        outcomes: Vec::with_capacity(entries.len()),
    };
    let mut acknowledged: BTreeMap<(&TaskName, Partition), (Seq, Seq)> = BTreeMap::new();
    for (at, (entry, judged)) in entries.iter().zip(judged).enumerate() {
        let (item, source) = (&entry.item, entry.source);
        let judged = match judged {
            Ok(judged) => judged,
            Err(why) => {
                closed.outcomes.push(Outcome::Left(why));
                continue;
            }
        };
        closed.tally.took(&item.identity, item.run, source);
        if let Source::Log(seq) = source {
            let stream = (&item.identity.task, item.partition);
            acknowledged.entry(stream).or_insert((seq, seq)).1 = seq;
        }
        let blocks = blocks(&item.identity.task);
        let mut settling = Settling { at, item, source, blocks, node, closed: &mut closed };
        let outcome = match (&entry.decision, judged) {
            (Decision::Settle(settle), _) => settling.settle(settle, None, &[]),
            (Decision::Apply { on_violation, .. }, Judged::Violated(said)) => {
                settling.settle(on_violation, Some(&said), &[])
            }
            (Decision::Apply { proposal, on_guard_failed, .. }, Judged::GuardFailed) => {
                settling.settle(on_guard_failed, None, proposal.planned())
            }
            (Decision::Apply { proposal, .. }, Judged::Held) => settling.commit(proposal, true),
            (Decision::Apply { proposal, .. }, Judged::Unchanged) => {
                settling.commit(proposal, false)
            }
            (Decision::Apply { proposal, .. }, Judged::Kept(_)) => {
                settling.commit(proposal, false);
                Outcome::Kept
            }
        };
        closed.outcomes.push(outcome);
    }
    for ((task, partition), (first, upto)) in acknowledged {
        let after = Seq(first.0.saturating_sub(1));
        closed.writes.push(Write::Acknowledge { task, partition, after, upto });
    }
    closed
}

/// One entry while it is settled.
struct Settling<'a, 'b> {
    at: usize,
    item: &'a Item,
    source: Source,
    blocks: Blocks,
    node: &'b Incarnation,
    closed: &'b mut Closed<'a>,
}

impl<'a> Settling<'a, '_> {
    /// The item's changes were applied. From now on nothing blocks its identity.
    fn commit(&mut self, proposal: &'a Proposal, emits: bool) -> Outcome {
        let (at, item) = (self.at, self.item);
        self.closed.tally.of(&item.identity).committed += 1;
        self.ends();
        self.lift();
        if self.blocks.dead {
            self.write(Write::Resolve { item });
        }
        for restore in proposal.changes.iter().filter_map(Change::restore) {
            // Neither the request nor the task whose work was undone plans it again by itself.
            self.write(Write::Block { item, given_up: false });
            let undone = restore.undone.as_ref();
            let undone = undone.filter(|undone| undone.identity.task != item.identity.task);
            match (undone, restore.again) {
                (Some(undone), Again::No) => {
                    self.write(Write::Block { item: undone, given_up: false });
                }
                (Some(undone), Again::Yes | Again::Only) => {
                    self.write(Write::Lift { item: undone });
                }
                (None, _) => {}
            }
        }
        self.history(End::Committed, false, None, &proposal.notes);
        for change in proposal.changes.iter().filter(|_| emits) {
            if let Change::Emit { topic, key, payload } = change {
                self.write(Write::Emit { at, item, topic, key, payload });
            }
        }
        Outcome::Committed
    }

    /// The item ends or moves without effects. `said` is appended to the reason, and a skip keeps these notes.
    fn settle(&mut self, settle: &'a Settle, said: Option<&str>, notes: &'a [Field]) -> Outcome {
        let (at, item, source) = (self.at, self.item, self.source);
        let with = |reason: &'a String| match said {
            Some(said) => Cow::Owned(format!("{reason}: {said}")),
            None => Cow::Borrowed(reason.as_str()),
        };
        match settle {
            Settle::Skip { reason, settled } => {
                let reason = with(reason);
                self.closed.tally.of(&item.identity).skipped += 1;
                self.ends();
                if *settled {
                    // The new version replaces what blocked the identity.
                    self.lift();
                    self.write(Write::Block { item, given_up: false });
                }
                let outcome = Outcome::Skipped(reason.clone().into_owned());
                self.history(End::Skipped, *settled, Some(reason), notes);
                outcome
            }
            Settle::Retry { run_at, attempts, guard_retries, reason } => {
                self.closed.tally.of(&item.identity).retries += 1;
                self.write(Write::Retry {
                    at,
                    item,
                    source,
                    run_at: *run_at,
                    attempts: *attempts,
                    guard_retries: *guard_retries,
                    error: with(reason),
                });
                Outcome::Retried(*run_at)
            }
            Settle::Dead { attempts, reason } => {
                let error = with(reason);
                self.closed.tally.of(&item.identity).dead += 1;
                let outcome = Outcome::Dead(error.clone().into_owned());
                self.write(Write::SetAside {
                    at,
                    item,
                    source,
                    attempts: *attempts,
                    error: error.clone(),
                    context: LetterContext { node: Some(self.node.clone()) },
                });
                // The letter refers to the run: the item has not ended.
                self.history(End::Dead, false, Some(error), &[]);
                outcome
            }
        }
    }

    fn ends(&mut self) {
        self.closed.tally.ended(self.item.run);
        // What was never queued waits nowhere.
        if !matches!(self.source, Source::Unqueued(_)) {
            self.write(Write::Remove { item: self.item, source: self.source });
        }
    }

    fn lift(&mut self) {
        if self.blocks.settled {
            self.write(Write::Lift { item: self.item });
        }
    }

    fn history(
        &mut self,
        end: End,
        settled: bool,
        reason: Option<Cow<'a, str>>,
        notes: &'a [Field],
    ) {
        let (at, item) = (self.at, self.item);
        self.write(Write::History { at, item, end, settled, reason, notes });
    }

    fn write(&mut self, write: Write<'a>) {
        self.closed.writes.push(write);
    }
}
