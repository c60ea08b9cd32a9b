//! The fence, and what a leader has added to the queues.

use besom_core::ids::{Incarnation, OwnerEpoch, Partition, Term};
use besom_core::time::Time;

/// The number of newest terms that are kept regardless of their age.
pub const TERMS_KEPT: u32 = 20;

/// The result of raising the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    /// The partitions that this node owns from now on, with their new epochs.
    pub owned: Vec<(Partition, OwnerEpoch)>,
}

/// The highest term that the store has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The highest term.
    pub term: Term,
    /// The node that raised the fence to this term.
    pub node: Incarnation,
    /// When the fence was raised.
    pub raised_at: Time,
}

/// What has arrived in the queues, for a node that executes what another node plans. It may report
/// more than has arrived, but never less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrivals {
    /// Everything up to this mark is reported. Pass it to the next call.
    pub mark: u64,
    /// Whether any stream has new items.
    pub log: bool,
    /// The earliest due time among new timers.
    pub timer: Option<Time>,
    /// The earliest time among retries that did not come from a commit.
    pub retry: Option<Time>,
}
