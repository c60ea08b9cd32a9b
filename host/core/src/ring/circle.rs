//! The circle: points in the order of their positions, found through an index.
//!
//! A hash belongs to the first point at or after it, wrapping around. Points of several servers may
//! share a position: all of them are kept, the lowest server's is found, and removing one server
//! never removes another's point.

/// The maximum number of points of a circle.
pub const POINTS_MAX: usize = 1 << 22;

/// Buckets with more points than this are searched, others are scanned: scanning a few neighbours
/// is faster than the mispredicted branches of a search.
const WALK_MAX: usize = 8;

/// Points on a circle of `2^bits` positions, each owned by a server, named by its rank.
#[derive(Debug, Clone, Default)]
pub struct Circle {
    /// Positions in ascending order.
    at: Vec<u64>,
    /// The owner's rank, by point.
    owner: Vec<u32>,
    /// By the leading bits of a position: the first point that is not before its bucket. It has one
    /// more entry than there are buckets; the last is the number of points.
    index: Vec<u32>,
    /// How far a position is shifted to the right to give its bucket.
    shift: u32,
}

impl Circle {
    /// A circle of points (position, owner's rank), given in any order.
    ///
    /// # Panics
    /// Panics with more than [`POINTS_MAX`] points, with a width outside 1 to 64 bits, or with a
    /// position outside the circle.
    pub fn new(bits: u32, mut points: Vec<(u64, u32)>) -> Circle {
        assert!((1..=64).contains(&bits), "{bits} bits");
        assert!(points.len() <= POINTS_MAX, "{} points", points.len());
        points.sort_unstable();
        if let Some((last, _)) = points.last() {
            assert!(bits == 64 || last >> bits == 0, "{last} on a circle of {bits} bits");
        }
        // At most one point per bucket on average, and at least two buckets, so that the shift is
        // less than the width of a position.
        let wanted = (points.len() * 2).next_power_of_two().trailing_zeros();
        let k = wanted.clamp(1, bits);
        let shift = bits - k;
        let mut index = vec![0_u32; (1 << k) + 1];
        for (position, _) in &points {
            index[(position >> shift) as usize + 1] += 1;
        }
        for bucket in 1..index.len() {
            index[bucket] += index[bucket - 1];
        }
        let (at, owner) = points.into_iter().unzip();
        Circle { at, owner, index, shift }
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// Whether the circle has no points.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// The owner of a hash; none: the circle is empty. A hash beyond the circle's width wraps
    /// around like one after the last point.
    pub fn owner(&self, hash: u64) -> Option<u32> {
        self.owner.get(self.point(hash)).copied()
    }

    /// Like [`Circle::owner`], by binary search over all points without the index: the reference
    /// for tests and benchmarks.
    pub fn owner_by_search(&self, hash: u64) -> Option<u32> {
        let point = self.at.partition_point(|position| *position < hash);
        self.owner.get(if point == self.at.len() { 0 } else { point }).copied()
    }

    /// The owners of the points from a hash on, once around the circle. An owner appears once per
    /// point.
    pub fn walk(&self, hash: u64) -> impl Iterator<Item = u32> + '_ {
        let (before, from) = self.owner.split_at(self.point(hash).min(self.owner.len()));
        from.iter().chain(before).copied()
    }

    /// The points (position, owner's rank), ascending.
    pub fn points(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.at.iter().copied().zip(self.owner.iter().copied())
    }

    /// How many points are hidden by a lower server's point at the same position.
    pub fn collisions(&self) -> usize {
        self.at.windows(2).filter(|pair| pair[0] == pair[1]).count()
    }

    /// The first point at or after a hash.
    fn point(&self, hash: u64) -> usize {
        let bucket = usize::try_from(hash >> self.shift).unwrap_or(usize::MAX);
        // A default circle has no index, and a hash may lie beyond the circle.
        let bounds = self.index.get(bucket..).and_then(|rest| rest.first_chunk::<2>());
        let Some(&[from, to]) = bounds else { return 0 };
        let (from, to) = (from as usize, to as usize);
        let bucket = &self.at[from..to];
        let skipped = if bucket.len() <= WALK_MAX {
            bucket.iter().take_while(|position| **position < hash).count()
        } else {
            bucket.partition_point(|position| *position < hash)
        };
        let point = from + skipped;
        if point == self.at.len() { 0 } else { point }
    }
}
