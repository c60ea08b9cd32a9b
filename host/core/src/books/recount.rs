//! What the rows of the books count as.

use serde::{Deserialize, Serialize};

use crate::item::End;

/// How many items of one task and tenant have reached which state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Items ever planned.
    pub planned: u64,
    /// Items whose effects were committed.
    pub committed: u64,
    /// Items that ended without effects.
    pub skipped: u64,
    /// Items set aside and neither retried nor discarded. A resolved dead letter still counts: the
    /// later item of the same identity that resolved it was planned and is counted separately.
    pub dead: u64,
    /// Dead letters that were discarded.
    pub discarded: u64,
    /// Items waiting in the log, as timers or as retries.
    pub pending: u64,
    /// Rows of the product that were changed by committed items.
    #[serde(default)]
    pub rows: u64,
    /// How many of the dead letters are resolved. Used by the recount only; not part of the sum or
    /// of any report.
    #[serde(skip)]
    pub resolved: u64,
}

impl std::ops::AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, more: &Counts) {
        self.planned += more.planned;
        self.committed += more.committed;
        self.skipped += more.skipped;
        self.dead += more.dead;
        self.discarded += more.discarded;
        self.pending += more.pending;
        self.rows += more.rows;
        self.resolved += more.resolved;
    }
}

impl Counts {
    /// Whether the books balance: every planned item has ended, was set aside or is waiting.
    pub fn conserved(&self) -> bool {
        self.planned == self.all()
    }

    fn all(&self) -> u64 {
        self.committed + self.skipped + self.dead + self.discarded + self.pending
    }

    /// Counts history rows with this end. One that was set aside is counted by its letter, until an
    /// operator retries or discards that.
    pub fn count_ended(&mut self, end: End, rows: u64) {
        match end {
            End::Committed => self.committed += rows,
            End::Skipped => self.skipped += rows,
            End::Discarded => self.discarded += rows,
            End::Dead | End::Unknown => {}
        }
    }

    /// Counts dead letters, this many of which are resolved.
    pub fn count_letters(&mut self, letters: u64, resolved: u64) {
        self.dead += letters;
        self.resolved += resolved;
    }

    /// The recount of all rows, which tells how many items must have been planned.
    #[must_use]
    pub fn recounted(self) -> Counts {
        Counts { planned: self.all(), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_counted_where_it_is_once() {
        let mut counts = Counts { pending: 1, ..Counts::default() };
        for (end, rows) in
            [(End::Committed, 2), (End::Skipped, 3), (End::Dead, 9), (End::Discarded, 4)]
        {
            counts.count_ended(end, rows);
        }
        counts.count_letters(5, 2);
        let expected = Counts {
            planned: 15,
            committed: 2,
            skipped: 3,
            dead: 5,
            discarded: 4,
            pending: 1,
            rows: 0,
            resolved: 2,
        };
        assert_eq!(counts.recounted(), expected);
        assert!(expected.conserved() && !Counts { dead: 4, ..expected }.conserved());
    }
}
