//! How much of the time tasks may write while others write to the same database.
//!
//! A product that finds the write lock of SQLite taken sleeps and tries again, each time for longer; on a server it
//! shares processors and the disk. So while others write, bulk work rests after each of its transactions, in
//! proportion to the time that it took.

use std::time::{Duration, Instant};

use besom_ports::store::{Batch, Decision, Entry};

/// The share of the time for ranges of rows while others write, in percent: a transaction of the product is then
/// rarely behind one of them.
pub const WRITE_SHARE_DEFAULT: u32 = 5;
/// The share of items, if that of ranges is smaller.
const ITEMS_SHARE_MIN: u32 = 50;
/// Others write if they were seen to so often within this time: a command of an operator is no product at work. They
/// go on until they were not seen at all for as long: while bulk work rests, it seldom looks.
pub const SEEN_WITHIN: Duration = Duration::from_secs(5);
const SEEN_MIN: usize = 3;
/// The longest rest after one transaction.
pub const REST_MAX: Duration = Duration::from_secs(1);

/// Work that rests while others write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bulk {
    /// Ranges of rows, of which there may be any number, and which can wait.
    Ranges,
    /// Items, which have to keep up with what the product does, or which somebody waits for, such as those of an
    /// undo: they have at least half of the time.
    Items,
}

/// The number of kinds of such work, each of which has its own share.
pub const BULK_KINDS: usize = 2;

impl Bulk {
    /// What a batch is.
    pub fn of(batch: &Batch) -> Bulk {
        let has_range = |entry: &Entry| match &entry.decision {
            Decision::Apply { proposal, .. } => {
                proposal.changes.iter().any(|change| change.range().is_some())
            }
            Decision::Settle(_) => false,
        };
        if batch.entries.iter().any(has_range) { Bulk::Ranges } else { Bulk::Items }
    }
}

/// What is known about other writers.
#[derive(Debug, Clone)]
pub struct Courtesy {
    /// In percent of the time.
    share: u32,
    /// When writes of others were seen last.
    seen: [Option<Instant>; SEEN_MIN],
    /// Whether others wrote already when they were seen last.
    goes_on: bool,
}

impl Courtesy {
    /// Bulk work writes for at most `share` percent of the time while others write; 100: it never rests.
    pub fn new(share: u32) -> Courtesy {
        Courtesy { share: share.clamp(1, 100), seen: [None; SEEN_MIN], goes_on: false }
    }

    /// Others have written. Returns what to log, if this begins now.
    pub fn notice(&mut self, now: Instant) -> Option<String> {
        self.goes_on = self.others_write(now);
        self.seen.rotate_left(1);
        self.seen[SEEN_MIN - 1] = Some(now);
        let begins = !self.goes_on && self.others_write(now);
        let share = self.share;
        (begins && share < 100).then(|| {
            format!(
                "others write to the database: ranges of rows are changed for {share} % of the time \
                 (store.write_share)"
            )
        })
    }

    /// Whether others write.
    pub fn others_write(&self, now: Instant) -> bool {
        let is_fresh =
            |at: Option<Instant>| at.is_some_and(|at| now.duration_since(at) < SEEN_WITHIN);
        is_fresh(self.seen[0]) || (self.goes_on && is_fresh(self.seen[SEEN_MIN - 1]))
    }

    /// Whether bulk work has to rest between its transactions.
    pub fn is_shared(&self, now: Instant) -> bool {
        self.share < 100 && self.others_write(now)
    }

    /// How long such work rests, after a transaction that took so long.
    pub fn rest_after(&self, bulk: Bulk, took: Duration, now: Instant) -> Duration {
        if !self.is_shared(now) {
            return Duration::ZERO;
        }
        let share = match bulk {
            Bulk::Ranges => self.share,
            Bulk::Items => self.share.max(ITEMS_SHARE_MIN),
        };
        (took * (100 - share) / share).min(REST_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_work_rests_while_others_write() {
        let (mut courtesy, start) = (Courtesy::new(5), Instant::now());
        let took = Duration::from_millis(2);
        assert_eq!(
            courtesy.rest_after(Bulk::Ranges, took, start),
            Duration::ZERO,
            "nobody has written"
        );
        assert_eq!((courtesy.notice(start), courtesy.notice(start)), (None, None));
        assert_eq!(courtesy.rest_after(Bulk::Ranges, took, start), Duration::ZERO, "a command");
        assert!(courtesy.notice(start).is_some_and(|said| said.contains("5 %")));
        assert_eq!(courtesy.notice(start), None, "it goes on");
        assert_eq!(courtesy.rest_after(Bulk::Ranges, took, start), Duration::from_millis(38));
        assert_eq!(courtesy.rest_after(Bulk::Items, took, start), took);
        assert_eq!(courtesy.rest_after(Bulk::Ranges, Duration::from_secs(9), start), REST_MAX);
        // Seen once in a while is enough to go on.
        let nearly = SEEN_WITHIN * 9 / 10;
        assert_eq!(courtesy.notice(start + nearly), None);
        assert!(courtesy.is_shared(start + nearly * 2));
        let after = start + nearly + SEEN_WITHIN;
        assert_eq!(courtesy.rest_after(Bulk::Ranges, took, after), Duration::ZERO, "it is over");
        assert_eq!(courtesy.notice(after), None);
        assert!(!courtesy.is_shared(after), "a command");
    }

    #[test]
    fn with_all_of_the_time_nothing_rests() {
        let (mut courtesy, start) = (Courtesy::new(100), Instant::now());
        assert!((0..SEEN_MIN).all(|_| courtesy.notice(start).is_none()));
        assert!(courtesy.others_write(start) && !courtesy.is_shared(start));
        assert_eq!(
            courtesy.rest_after(Bulk::Ranges, Duration::from_secs(1), start),
            Duration::ZERO
        );
    }
}
