//! The books: what the engine does to its own tables, decided without a database.
//!
//! ```text
//!   facts, found under ──> admit             a page        ──> writes and sums ──> the store
//!   the store's locks      left_out, close   a batch                               executes them
//!                          retry, discard    dead letters
//!                          discard_planned   waiting items
//! ```
//!
//! This module decides which candidates become items, what blocks an identity and what lifts a
//! block, which entries are left out of a commit, which dead letters are resolved, where an item
//! goes, when a run ends, and which counters and cursors change. It does not decide whether the
//! guards of an entry hold: databases differ there, so the store finds that out and passes it in
//! ([`Judged`]).
//!
//! The order of the writes matters only within one item. Writes of different items do not affect
//! each other, because an identity waits only once; a store may therefore group writes by kind.

mod admit;
mod close;
mod entry;
mod letters;
mod loss;
mod place;
mod planned;
#[cfg(test)]
mod property;
mod recount;
mod run;
mod tally;
#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub use admit::{Admitted, CursorMove, Found, Known, New, PlanPage, Planned, admit};
pub use close::{Closed, close};
pub use entry::{Committed, Entry, Judged, LeftOut, Outcome};
pub use letters::{DeadLetter, LetterContext, LetterPage, Past, Progress, Reached, discard, retry};
pub use loss::{RunItems, WaitingCounts, write_off, write_off_run};
pub use place::{Owner, Places, left_out};
pub use planned::discard_planned;
pub use recount::Counts;
pub use run::RunFacts;
pub use tally::{Delta, Leaving, Tally};

use crate::ids::{Partition, Seq, TaskName};
pub use crate::item::End;
use crate::item::{Item, Source};
use crate::time::Time;
use crate::value::Field;

/// Whether anything of a task may block an identity, for any of its items. For most tasks nothing
/// does, and then no item is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// A version was settled or discarded.
    pub settled: bool,
    /// There is an open dead letter. A resolved one blocks nothing.
    pub dead: bool,
}

impl Blocks {
    /// The answer of a store that does not know: every item is looked up.
    pub const UNKNOWN: Blocks = Blocks { settled: true, dead: true };
}

/// A write to the engine's own tables. `at` is the index of the item's entry or letter; a store
/// derives numbers from it.
#[derive(Debug, Clone, PartialEq)]
pub enum Write<'a> {
    /// The item has ended and waits no longer. An item of the log is removed by its stream's
    /// [`Write::Acknowledge`].
    Remove {
        /// The item.
        item: &'a Item,
        /// Where it was waiting.
        source: Source,
    },
    /// The item moves to the retries, under a new id.
    Retry {
        /// The index of its entry.
        at: usize,
        /// The item.
        item: &'a Item,
        /// Where it was waiting.
        source: Source,
        /// The earliest time of the next attempt.
        run_at: Time,
        /// Its new number of failed executions.
        attempts: u32,
        /// Its new number of failed guards.
        guard_retries: u32,
        /// Appended to its errors.
        error: Cow<'a, str>,
    },
    /// The item moves to the dead letters.
    SetAside {
        /// The index of its entry.
        at: usize,
        /// The item.
        item: &'a Item,
        /// Where it was waiting.
        source: Source,
        /// Its new number of failed executions.
        attempts: u32,
        /// Appended to its errors.
        error: Cow<'a, str>,
        /// How it is set aside.
        context: LetterContext,
    },
    /// The cursor of a stream moves from `after` to `upto`. All items in between are settled: those
    /// that did not move are removed.
    Acknowledge {
        /// The task of the stream.
        task: &'a TaskName,
        /// The partition of the stream.
        partition: Partition,
        /// The cursor before.
        after: Seq,
        /// The cursor afterwards.
        upto: Seq,
    },
    /// Adds a history row. A store adds the before-images of the entry, if it has kept any.
    History {
        /// The index of the entry.
        at: usize,
        /// The item.
        item: &'a Item,
        /// How it ended.
        end: End,
        /// Whether a skip was settled.
        settled: bool,
        /// The reason of an outcome without effects.
        reason: Option<Cow<'a, str>>,
        /// The plugin's notes.
        notes: &'a [Field],
    },
    /// Puts a message into the outbox. It follows the history row of its item.
    Emit {
        /// The index of the entry.
        at: usize,
        /// The item that emits it.
        item: &'a Item,
        /// The topic.
        topic: &'a str,
        /// The key.
        key: &'a str,
        /// The content.
        payload: &'a [u8],
    },
    /// Removes all settled and discarded versions of the identity.
    Lift {
        /// An item of the identity.
        item: &'a Item,
    },
    /// Resolves the open dead letters of the identity; see [`Tally::resolved`].
    Resolve {
        /// An item of the identity.
        item: &'a Item,
    },
    /// The item's version is not planned again. A discarded version stays discarded.
    Block {
        /// The item.
        item: &'a Item,
        /// Whether an operator discarded it; otherwise the task settled it.
        given_up: bool,
    },
    /// Moves a dead letter to the retries; its errors are kept. Nothing is moved if the identity
    /// already waits; see [`Tally::revived`].
    Revive {
        /// The index of the letter.
        at: usize,
        /// The number of the letter.
        letter: u64,
        /// Its item.
        item: &'a Item,
        /// The earliest time of the next attempt.
        run_at: Time,
        /// What the item has been through from now on.
        past: Past,
    },
    /// Removes a dead letter.
    Discard {
        /// The number of the letter.
        letter: u64,
    },
}

impl Write<'_> {
    /// Whether it changes where an item waits. The other writes record what happened to it.
    pub fn moves(&self) -> bool {
        match self {
            Write::Remove { .. }
            | Write::Retry { .. }
            | Write::SetAside { .. }
            | Write::Acknowledge { .. }
            | Write::Revive { .. } => true,
            Write::History { .. }
            | Write::Emit { .. }
            | Write::Lift { .. }
            | Write::Resolve { .. }
            | Write::Block { .. }
            | Write::Discard { .. } => false,
        }
    }
}
