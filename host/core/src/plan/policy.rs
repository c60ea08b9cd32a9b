//! A task's policy for its slots, and the other inputs of a decision.

use std::time::Duration;

use super::{CatchUp, Overlap, Run, Trigger};
use crate::cron::Schedule;
use crate::ids::{RunId, TaskName, Term};
use crate::time::Time;

/// The default of how late a slot may be decided and still count as on time.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(60);
/// The minimum grace: no leader decides a slot at its exact microsecond, and with a shorter grace a
/// busy node would miss every slot.
pub const GRACE_MIN: Duration = Duration::from_secs(5);
/// The maximum number of slots that `catch_up = all` runs.
pub const CATCH_UP_RUNS_MAX: u32 = 1_000;
/// A watermark further ahead of the clock than this was set under a wrong clock; it is set back,
/// because otherwise the task would stop until that time. Slots follow the store's clock, which
/// rarely goes back.
pub const CLOCK_BACK_MAX: Duration = Duration::from_secs(60);

/// A task's policy for its slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Applies to slots while the previous run is active.
    pub overlap: Overlap,
    /// Applies to slots whose time passed without a leader.
    pub catch_up: CatchUp,
    /// The upper bound of a run's random delay after its slot.
    pub jitter: Duration,
    /// How late a slot may be decided and still count as on time ([`GRACE_DEFAULT`]; at
    /// least [`GRACE_MIN`]).
    pub grace: Duration,
}

impl Policy {
    /// Of a task whose policy is not known: with nothing but its slots.
    pub const PLAIN: Policy = Policy {
        overlap: Overlap::Skip,
        catch_up: CatchUp::Skip,
        jitter: Duration::ZERO,
        grace: GRACE_DEFAULT,
    };

    /// The effective grace.
    pub(super) fn grace(&self) -> Duration {
        self.grace.max(GRACE_MIN)
    }
}

/// The leadership under which slots are decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The term of the leadership.
    pub term: Term,
    /// When it became active. Slots before it are missed, not late.
    pub since: Time,
}

/// A run of the task that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ActiveRun {
    /// The run's number in the store.
    pub run: RunId,
    /// The slot that it runs for.
    pub slot: Time,
    /// When it was started.
    pub started_at: Time,
    /// What started the run.
    pub trigger: Trigger,
    /// Whether somebody has to decide about its plan.
    pub held: bool,
}

impl From<&Run> for ActiveRun {
    fn from(run: &Run) -> ActiveRun {
        ActiveRun {
            run: run.id,
            slot: run.slot,
            started_at: run.started_at,
            trigger: run.trigger.clone(),
            held: run.held,
        }
    }
}

/// A run to be started now.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The slot that it runs for.
    pub slot: Time,
    /// What starts it.
    pub trigger: Trigger,
}

/// When a slot's run starts: the slot plus its share of the jitter. Every leader computes the same
/// time. The share never reaches the next slot, so runs start in the order of their slots.
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
