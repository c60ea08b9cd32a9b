//! The store's clock: the database server's, so that all nodes use one clock to decide what is due.

use std::sync::Arc;

use besom_core::time::Time;

/// The source of the time in tests.
pub type TimeSource = Arc<dyn Fn() -> Time + Send + Sync>;

/// The store's clock.
#[derive(Clone, Default)]
pub(super) struct Clock(Option<TimeSource>);

impl Clock {
    pub(super) fn new(source: Option<TimeSource>) -> Clock {
        Clock(source)
    }

    /// The parameter of [`NOW`] in microseconds; none: the server's clock is used.
    pub(super) fn given(&self) -> Option<i64> {
        self.0.as_ref().map(|source| source().0)
    }
}

/// The current time in microseconds since the epoch; `$1` is [`Clock::given`].
pub(super) const NOW: &str =
    "coalesce($1::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)";
