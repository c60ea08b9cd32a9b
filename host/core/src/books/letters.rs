//! What operators' commands do to dead letters.
//!
//! A command takes the letters that were open and matched when its first step began, in pages: each
//! page is one transaction, which records the [`Progress`] with the command.
//!
//! ```text
//!   page 1 ──> writes ──> progress ──> page 2 ──> ... ──> a page that is not full: applied
//! ```
//!
//! The pages follow the order of identities, newest letter first within one, so that the place where
//! a page ends is enough to know which identities the command has dealt with. Letters have
//! increasing numbers, so a letter that is set aside during the command, such as one that was
//! retried and failed again, has a higher number than every selected one and is left alone. (The
//! numbers are drawn before the commit: on PostgreSQL, a letter whose commit overlaps the first step
//! may still count as selected.) A letter that is resolved or discarded in the meantime is no longer
//! open, and is left out.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::{End, Tally, Write};
use crate::command::{DeadSelector, counted};
use crate::ids::Incarnation;
use crate::item::{Identity, Item};
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
    /// How it was set aside.
    pub context: LetterContext,
}

/// How an item was set aside. A store keeps it as one JSON text, so that a new field needs no new column; in
/// letters of former versions it has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LetterContext {
    /// The node whose commit set it aside; `None`: a former version did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Incarnation>,
}

impl LetterContext {
    /// As a store keeps it.
    pub fn pack(&self) -> String {
        // Neither a map with other keys than texts nor a failing writer is in it.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From what a store has kept. What cannot be read is left at its default: it decides nothing.
    pub fn unpack(packed: Option<&str>) -> LetterContext {
        packed.and_then(|packed| serde_json::from_str(packed).ok()).unwrap_or_default()
    }
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

/// The letter that a page ended with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reached {
    /// Its identity.
    pub identity: Identity,
    /// Its number.
    pub letter: u64,
}

/// How far a command over dead letters has come, recorded in the transaction of each page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The highest number of a letter when the command began; later letters are not the command's.
    pub newest: u64,
    /// The number of letters that matched when the command began.
    pub found: u64,
    /// Where the next page continues; none: at the beginning.
    pub after: Option<Reached>,
    /// The number of letters moved or discarded so far.
    pub taken: u64,
}

impl Progress {
    /// The progress of a command that has not taken any page.
    pub fn begin(newest: u64) -> Progress {
        Progress { newest, found: 0, after: None, taken: 0 }
    }
}

/// What one transaction takes of the open letters that match.
#[derive(Debug, Clone, PartialEq)]
pub struct LetterPage {
    /// At most as many as the limit, in the order of identities, newest first within one.
    pub letters: Vec<DeadLetter>,
    progress: Progress,
    limit: u32,
}

impl LetterPage {
    /// The letters that follow the progress of a command. `found` letters match as it begins.
    ///
    /// # Errors
    /// Why the command is refused, before its first page.
    pub fn new(
        mut progress: Progress,
        selector: &DeadSelector,
        letters: Vec<DeadLetter>,
        found: u64,
        limit: u32,
    ) -> Result<LetterPage, String> {
        if progress.after.is_none() {
            progress.found = found;
            if let Some(why) = selector.mismatch(found) {
                return Err(why);
            }
        }
        Ok(LetterPage { letters, progress, limit })
    }

    /// The letter that the page before it ended with.
    pub fn after(&self) -> Option<&Reached> {
        self.progress.after.as_ref()
    }

    /// The number of letters taken in all, and the progress after this page, of which `taken` were
    /// moved or discarded; no progress: it was the last page.
    pub fn end(self, taken: u64) -> (u64, Option<Progress>) {
        let LetterPage { letters, mut progress, limit } = self;
        progress.taken += taken;
        let is_full = letters.len() as u64 >= u64::from(limit);
        let Some(last) = letters.last().filter(|_| is_full) else { return (progress.taken, None) };
        progress.after = Some(Reached { identity: last.item.identity.clone(), letter: last.id });
        (progress.taken, Some(progress))
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.taken, counted(self.found, "dead letter"))
    }
}

/// Moves a page of open letters to the retries, newest first, due immediately and with a clean past:
/// of several letters of one identity only the newest. The page follows the letter `after`, whose
/// identity has been dealt with. A store leaves a letter where it is if its identity already waits,
/// and tallies the others ([`Tally::revived`]).
pub fn retry<'a>(
    letters: &'a [DeadLetter],
    after: Option<&'a Reached>,
    now: Time,
) -> Vec<Write<'a>> {
    let mut seen: HashSet<&Identity> = after.map(|reached| &reached.identity).into_iter().collect();
    newest_first(letters)
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

/// The letters by falling numbers, each with its rank.
fn newest_first(letters: &[DeadLetter]) -> impl Iterator<Item = (usize, &DeadLetter)> {
    let mut sorted: Vec<&DeadLetter> = letters.iter().collect();
    sorted.sort_by_key(|letter| Reverse(letter.id));
    sorted.into_iter().enumerate()
}

/// Discards open letters, newest first. Their versions are not planned again.
pub fn discard<'a>(letters: &'a [DeadLetter], reason: &'a str) -> (Vec<Write<'a>>, Tally<'a>) {
    let (mut writes, mut tally) = (Vec::with_capacity(letters.len() * 3), Tally::default());
    for (at, DeadLetter { id, item, .. }) in newest_first(letters) {
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
