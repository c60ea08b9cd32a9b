//! How a task treats its slots, and what a decision about them has to know.

use std::time::Duration;

use super::{CatchUp, Overlap, Run, Trigger};
use crate::cron::Schedule;
use crate::ids::{RunId, TaskName, Term};
use crate::time::Time;

/// How late a slot may be decided and still count as on time, by default.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(60);
/// The shortest grace: no leader decides a slot at its very microsecond, and a shorter one
/// would make every slot of a busy node a missed one.
pub const GRACE_MIN: Duration = Duration::from_secs(5);
/// Slots that `catch_up = all` runs at most, whatever it asks for.
pub const CATCH_UP_RUNS_MAX: u32 = 1_000;
/// A watermark further ahead of the clock than this was set by a clock that was wrong: it is set
/// back, or the task would stand still until then. Slots go by the store's clock, which hardly
/// goes back by itself.
pub const CLOCK_BACK_MAX: Duration = Duration::from_secs(60);

/// How a task treats its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// While the run before is active.
    pub overlap: Overlap,
    /// That passed while nobody led.
    pub catch_up: CatchUp,
    /// A run starts up to so much after its slot.
    pub jitter: Duration,
    /// How late a slot may be decided and still count as on time ([`GRACE_DEFAULT`]; at
    /// least [`GRACE_MIN`]).
    pub grace: Duration,
}

impl Policy {
    /// The grace that counts.
    pub(super) fn grace(&self) -> Duration {
        self.grace.max(GRACE_MIN)
    }
}

/// Under whom slots are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The term.
    pub term: Term,
    /// When it became active. Slots before it are missed, not late.
    pub since: Time,
}

/// A run of the task that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveRun {
    /// Its number.
    pub run: RunId,
    /// Its slot.
    pub slot: Time,
    /// When it was started.
    pub started_at: Time,
    /// What started it.
    pub trigger: Trigger,
}

impl From<&Run> for ActiveRun {
    fn from(run: &Run) -> ActiveRun {
        ActiveRun {
            run: run.id,
            slot: run.slot,
            started_at: run.started_at,
            trigger: run.trigger.clone(),
        }
    }
}

/// A run to be started now.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The slot it runs for.
    pub slot: Time,
    /// What starts it.
    pub trigger: Trigger,
}

/// When the run of a slot starts: the slot and its share of the jitter. Any leader computes
/// the same; the share never reaches the next slot, so slots start in their order.
pub fn start_of(task: &TaskName, schedule: &Schedule, policy: &Policy, slot: Time) -> Time {
    let gap = schedule.next_after(slot).map_or(Duration::MAX, |next| next.since(slot));
    let spread = policy.jitter.min(gap).as_micros();
    if spread == 0 {
        return slot;
    }
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.update(task.as_str().as_bytes());
    hasher.update(&slot.micros().to_le_bytes());
    let share = u128::from(hasher.digest()) % spread;
    slot + Duration::from_micros(share as u64)
}
