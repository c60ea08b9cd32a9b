//! What operators' commands do to dead letters.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{End, Tally, Write};
use crate::item::Item;
use crate::time::Time;

/// An item that was set aside because it failed for good.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The number of the letter, in the order of setting aside.
    pub id: u64,
    /// The item, with the errors of all its attempts.
    pub item: Item,
    /// When it was set aside.
    pub at: Time,
    /// When a later commit of the same identity succeeded; `None`: the letter is open. A resolved
    /// letter blocks nothing and can be neither retried nor discarded.
    pub resolved_at: Option<Time>,
}

impl DeadLetter {
    /// Whether it is open: it blocks its version, and can be retried or discarded.
    pub fn is_open(&self) -> bool {
        self.resolved_at.is_none()
    }
}

/// What counts against an item.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Past {
    /// The number of failed executions.
    pub attempts: u32,
    /// The number of failed guards.
    pub guard_retries: u32,
    /// The number of hosts that died while they executed it.
    pub deaths: u32,
}

/// Moves open letters, newest first, to the retries, due immediately and with a clean past: of
/// several letters of one identity only the newest. A store leaves a letter where it is if its
/// identity already waits, and tallies the others ([`Tally::revived`]).
pub fn retry(letters: &[DeadLetter], now: Time) -> Vec<Write<'_>> {
    let mut seen = HashSet::new();
    letters
        .iter()
        .enumerate()
        .filter(|(_, letter)| seen.insert(&letter.item.identity))
        .map(|(at, DeadLetter { id, item, .. })| Write::Revive {
            at,
            letter: *id,
            item,
            run_at: now,
            past: Past::default(),
        })
        .collect()
}

/// Discards open letters. Their versions are not planned again.
pub fn discard<'a>(letters: &'a [DeadLetter], reason: &'a str) -> (Vec<Write<'a>>, Tally<'a>) {
    let (mut writes, mut tally) = (Vec::with_capacity(letters.len() * 3), Tally::default());
    for (at, DeadLetter { id, item, .. }) in letters.iter().enumerate() {
        let delta = tally.of(&item.identity);
        delta.dead -= 1;
        delta.discarded += 1;
        tally.ended(item.run);
        let reason = Some(Cow::Borrowed(reason));
        let end = End::Discarded;
        writes.extend([
            Write::Discard { letter: *id },
            Write::Block { item, given_up: true },
            Write::History { at, item, end, settled: false, reason, notes: &[] },
        ]);
    }
    (writes, tally)
}
