//! The store's clock: the database server's, so that every node judges what is due by one.

use std::sync::Arc;

use besom_core::time::Time;

/// Where the time comes from instead, in tests.
pub type TimeSource = Arc<dyn Fn() -> Time + Send + Sync>;

/// The store's clock.
#[derive(Clone, Default)]
pub(super) struct Clock(Option<TimeSource>);

impl Clock {
    pub(super) fn new(source: Option<TimeSource>) -> Clock {
        Clock(source)
    }

    /// The parameter of [`NOW`]: microseconds; none: by the server's clock.
    pub(super) fn given(&self) -> Option<i64> {
        self.0.as_ref().map(|source| source().0)
    }
}

/// The present in microseconds since the epoch; `$1` is [`Clock::given`].
pub(super) const NOW: &str =
    "coalesce($1::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)";
