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
/// How long bulk work rests when it begins, and after a write of others, whether or not they are known to write. On
/// SQLite they are seen only if they find a gap: without one, they would be kept waiting for seconds.
const PROBE: Duration = Duration::from_millis(100);
/// The longest rest meanwhile: each is a chance to see them.
const PROBE_REST_MAX: Duration = Duration::from_millis(20);

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
    /// When bulk work last left room for others to be seen; none: they are seen without it.
    bulk_at: Option<Instant>,
    /// Until when it does.
    probes_until: Option<Instant>,
}

impl Courtesy {
    /// Bulk work writes for at most `share` percent of the time while others write; 100: it never rests.
    pub fn new(share: u32) -> Courtesy {
        let share = share.clamp(1, 100);
        Courtesy {
            share,
            seen: [None; SEEN_MIN],
            goes_on: false,
            bulk_at: None,
            probes_until: None,
        }
    }

    /// Others have written. Returns what to log, if this begins now.
    pub fn notice(&mut self, now: Instant) -> Option<String> {
        self.goes_on = self.others_write(now);
        self.seen.rotate_left(1);
        self.seen[SEEN_MIN - 1] = Some(now);
        if self.bulk_at.is_some() {
            self.probes_until = Some(now + PROBE);
        }
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
        if self.is_shared(now) { self.rest(bulk, took).min(REST_MAX) } else { Duration::ZERO }
    }

    /// The same where others are seen only if they find a gap.
    pub fn rest_with_gaps(&mut self, bulk: Bulk, took: Duration, now: Instant) -> Duration {
        let before = self.bulk_at.replace(now);
        if before.is_none_or(|at| now.duration_since(at) >= SEEN_WITHIN) {
            self.probes_until = Some(now + PROBE);
        }
        let probes = self.share < 100 && self.probes_until.is_some_and(|until| now < until);
        match probes && !self.is_shared(now) {
            true => self.rest(bulk, took).min(PROBE_REST_MAX),
            false => self.rest_after(bulk, took, now),
        }
    }

    fn rest(&self, bulk: Bulk, took: Duration) -> Duration {
        let share = match bulk {
            Bulk::Ranges => self.share,
            Bulk::Items => self.share.max(ITEMS_SHARE_MIN),
        };
        took * (100 - share) / share
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
    fn bulk_work_leaves_gaps_when_it_begins_and_after_a_write_of_others() {
        let (mut courtesy, start) = (Courtesy::new(5), Instant::now());
        let took = Duration::from_millis(1);
        let after = |courtesy: &mut Courtesy, ms| {
            courtesy.rest_with_gaps(Bulk::Ranges, took, start + Duration::from_millis(ms))
        };
        assert_eq!(after(&mut courtesy, 0), Duration::from_millis(19));
        assert_eq!(after(&mut courtesy, 99), Duration::from_millis(19));
        assert_eq!(after(&mut courtesy, 100), Duration::ZERO, "nobody writes");
        let longer = courtesy.clone().rest_with_gaps(Bulk::Ranges, took * 9, start);
        assert_eq!(longer, PROBE_REST_MAX, "a long transaction");
        assert_eq!(courtesy.notice(start + Duration::from_millis(200)), None);
        assert_eq!(after(&mut courtesy, 299), Duration::from_millis(19));
        assert_eq!(after(&mut courtesy, 300), Duration::ZERO, "it was a command");
        let later = 301 + SEEN_WITHIN.as_millis() as u64;
        assert_eq!(after(&mut courtesy, later), Duration::from_millis(19), "it begins again");
        let mut alone = Courtesy::new(100);
        assert_eq!(after(&mut alone, 0), Duration::ZERO);
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
