//! Sets of clocks as sorted, disjoint ranges, used for deletions.

/// A set of clocks of one client. Filled in any order, then put in order once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Half-open; sorted, disjoint and not adjacent once [`Ranges::settle`] has run.
    ranges: Vec<(u32, u32)>,
}

impl Ranges {
    /// The empty set.
    pub const EMPTY: Ranges = Ranges { ranges: Vec::new() };

    /// Adds `[start, end)`.
    #[inline]
    pub fn insert(&mut self, start: u32, end: u32) {
        match self.ranges.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => self.ranges.push((start, end)),
        }
    }

    /// Sorts and joins the ranges; the functions below require it.
    pub fn settle(&mut self) {
        self.ranges.sort_unstable();
        self.ranges.dedup_by(|next, kept| {
            let joined = next.0 <= kept.1;
            if joined {
                kept.1 = kept.1.max(next.1);
            }
            joined
        });
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + '_ {
        self.ranges.iter().copied()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The first clock after the last range.
    pub fn end(&self) -> u32 {
        self.ranges.last().map_or(0, |last| last.1)
    }

    /// Whether the set contains `clock`, and the next clock at which the answer changes.
    #[inline]
    pub fn at(&self, clock: u32) -> (bool, u32) {
        let index = self.ranges.partition_point(|range| range.1 <= clock);
        match self.ranges.get(index) {
            Some(&(start, end)) if start <= clock => (true, end),
            Some(&(start, _)) => (false, start),
            None => (false, u32::MAX),
        }
    }

    /// Whether the set contains all of `[start, end)`.
    pub fn covers(&self, start: u32, end: u32) -> bool {
        let (inside, until) = self.at(start);
        inside && until >= end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_whatever_their_order() {
        let mut set = Ranges::default();
        for (start, end) in [(8, 10), (0, 2), (1, 3), (3, 4), (9, 12)] {
            set.insert(start, end);
        }
        set.settle();
        assert_eq!(set.iter().collect::<Vec<_>>(), [(0, 4), (8, 12)]);
        assert_eq!(set.at(3), (true, 4));
        assert_eq!(set.at(4), (false, 8));
        assert_eq!(set.at(12), (false, u32::MAX));
        assert!(set.covers(8, 12) && !set.covers(3, 9));
    }
}
