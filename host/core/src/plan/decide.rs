//! Decides one task's slots between the last decision and now.
//!
//! A watermark, [`TaskState::last_slot`], marks the latest decided slot. It is stored in the
//! transaction that starts the runs, so every slot is decided exactly once, however often a leader
//! restarts.
//!
//! ```text
//!   last_slot        leadership.since, now - grace            now
//!       ┤── missed: catch_up decides ──┤── on time: overlap ──┤
//! ```

use std::time::Duration;

use super::{
    ActiveRun, CATCH_UP_RUNS_MAX, CLOCK_BACK_MAX, CatchUp, Leadership, Overlap, Pause, Policy,
    SlotOutcome, SlotRecord, Start, TaskState, Trigger, start_of,
};
use crate::cron::Schedule;
use crate::ids::{RunId, TaskName};
use crate::time::Time;

/// The decision about one task.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Rows of the slot history, in the order in which they were decided.
    pub slots: Vec<SlotRecord>,
    /// Runs to be started, in order.
    pub starts: Vec<Start>,
    /// The task's state from now on.
    pub state: TaskState,
    /// How far the watermark was ahead of `now` before it was set back; none: it was not set back.
    pub set_back: Option<Duration>,
    /// Whether anything has to be stored.
    pub changed: bool,
    /// When to decide again unless a run ends or a command arrives first: always after `now`,
    /// jitter included. None: there is no further slot.
    pub next: Option<Time>,
}

/// Decides about all slots of a task up to `now` and about waiting slots. Call it when
/// [`Decision::next`] has come, when a run of the task has ended, and when its definition, its
/// pause or the leadership has changed. `active` are the task's runs that have not ended.
pub fn decide(
    now: Time,
    leadership: Leadership,
    schedule: Option<&Schedule>,
    policy: &Policy,
    state: &TaskState,
    active: &[ActiveRun],
) -> Decision {
    let mut desk = Desk {
        now,
        leadership,
        policy,
        active,
        old: state,
        state: state.clone(),
        slots: vec![],
        starts: vec![],
        set_back: None,
    };
    let canonical = schedule.map_or("", Schedule::canonical);
    if state.schedule != canonical || (state.last_slot.is_none() && schedule.is_some()) {
        desk.begin(canonical);
    }
    let Some(schedule) = schedule else {
        return desk.decided(None);
    };
    // If the clock goes back a little, the watermark waits: no slot is decided twice.
    let mut last = desk.state.last_slot.unwrap_or(now);
    if last > now + CLOCK_BACK_MAX {
        desk.set_back = Some(last.since(now));
        last = now;
        desk.state.last_slot = Some(now);
    }
    let due = Due::find(now, last, schedule, policy, &state.task);
    match state.paused.clone() {
        Some(pause) => desk.pause(&pause, schedule, last, due),
        None => {
            desk.start_queued();
            if let Some(due) = due {
                desk.plan(schedule, last, due);
            }
        }
    }
    if let Some(due) = due {
        desk.state.last_slot = Some(due.latest);
        last = due.latest;
    }
    let next = schedule.next_after(last).map(|slot| start_of(&state.task, schedule, policy, slot));
    desk.decided(next)
}

/// The slots whose start time has come.
#[derive(Clone, Copy)]
struct Due {
    latest: Time,
    count: u64,
}

impl Due {
    fn find(
        now: Time,
        last: Time,
        schedule: &Schedule,
        policy: &Policy,
        task: &TaskName,
    ) -> Option<Due> {
        // Nearly always none, or one.
        schedule.next_after(last).filter(|first| *first <= now)?;
        let mut latest = *schedule.latest(last, now, 1).last()?;
        if start_of(task, schedule, policy, latest) > now {
            latest = *schedule.latest(last, Time(latest.micros() - 1), 1).last()?;
        }
        Some(Due { latest, count: schedule.count(last, latest) })
    }
}

/// A decision under construction.
struct Desk<'a> {
    now: Time,
    leadership: Leadership,
    policy: &'a Policy,
    active: &'a [ActiveRun],
    old: &'a TaskState,
    state: TaskState,
    slots: Vec<SlotRecord>,
    starts: Vec<Start>,
    set_back: Option<Duration>,
}

impl Desk<'_> {
    fn decided(self, next: Option<Time>) -> Decision {
        let changed = !self.slots.is_empty() || !self.starts.is_empty() || self.state != *self.old;
        Decision {
            slots: self.slots,
            starts: self.starts,
            state: self.state,
            set_back: self.set_back,
            changed,
            next,
        }
    }

    /// A new schedule counts from now.
    fn begin(&mut self, canonical: &str) {
        self.give_up_queued(usize::MAX, SlotOutcome::Skipped, "the schedule was changed");
        self.state.schedule = canonical.to_owned();
        self.state.last_slot = Some(self.now);
    }

    fn pause(&mut self, pause: &Pause, schedule: &Schedule, last: Time, due: Option<Due>) {
        let reason = pause.words();
        self.give_up_queued(usize::MAX, SlotOutcome::Paused, &reason);
        let Some(due) = due else { return };
        let since = pause.since.clamp(last, due.latest);
        let before = "the slot was not decided before the task was paused".to_owned();
        self.rows(schedule, last, since, SlotOutcome::Missed, before);
        self.rows(schedule, since, due.latest, SlotOutcome::Paused, reason);
    }

    /// Starts slots that have waited for a run to end.
    fn start_queued(&mut self) {
        while !self.state.queued_slots.is_empty() && self.in_the_way().is_none() {
            let slot = self.state.queued_slots.remove(0);
            let reason = format!("started at {}, after the previous run had ended", self.now);
            self.start(slot, reason);
        }
    }

    fn plan(&mut self, schedule: &Schedule, last: Time, due: Due) {
        let Due { latest, count } = due;
        let on_time_from =
            self.leadership.since.max(self.now - self.policy.grace()) - self.policy.jitter;
        let missed = if on_time_from <= last {
            0
        } else {
            // A slot at the very start of the leadership is on time.
            schedule.count(last, Time(on_time_from.micros() - 1).min(latest))
        };
        if missed == 0 {
            let reason = format!("decided late, together with the slot at {latest}");
            self.rows(schedule, last, Time(latest.micros() - 1), SlotOutcome::Coalesced, reason);
            return self.on_time(schedule, latest);
        }
        match self.policy.catch_up {
            CatchUp::Skip | CatchUp::All(0) => {
                let why = self.absence(last, "catch_up = \"skip\"");
                let start = start_of(&self.state.task, schedule, self.policy, latest);
                let latest_on_time = missed < count || self.now.since(start) <= self.policy.grace();
                let end = if latest_on_time { Time(latest.micros() - 1) } else { latest };
                let missed_end = if missed < count { Time(on_time_from.micros() - 1) } else { end };
                self.rows(schedule, last, missed_end, SlotOutcome::Missed, why);
                if latest_on_time {
                    let reason = format!("decided late, together with the slot at {latest}");
                    self.rows(schedule, missed_end, end, SlotOutcome::Coalesced, reason);
                    self.on_time(schedule, latest);
                }
            }
            CatchUp::Coalesce => {
                let why =
                    self.absence(last, &format!("covered by the run of the slot at {latest}"));
                self.rows(schedule, last, Time(latest.micros() - 1), SlotOutcome::Coalesced, why);
                self.catch_up(&[latest], 1);
            }
            CatchUp::All(n) => {
                let n = n.min(CATCH_UP_RUNS_MAX);
                let slots = schedule.latest(last, latest, n);
                let first = slots.first().copied().unwrap_or(latest);
                let why = self.absence(last, &format!("catch_up runs only the latest {n}"));
                self.rows(schedule, last, Time(first.micros() - 1), SlotOutcome::Missed, why);
                self.catch_up(&slots, n);
            }
        }
    }

    /// Why the slots after `last` were not decided in time.
    fn absence(&self, last: Time, consequence: &str) -> String {
        if last < self.leadership.since {
            format!("no leader from {last} to {}; {consequence}", self.leadership.since)
        } else {
            format!("the leader decided late, at {}; {consequence}", self.now)
        }
    }

    /// A slot at its time: `overlap` decides.
    fn on_time(&mut self, schedule: &Schedule, slot: Time) {
        let Some((run, way)) = self.in_the_way() else {
            let start = start_of(&self.state.task, schedule, self.policy, slot);
            let reason = if start > slot {
                format!("on time: jitter delays the start to {start}")
            } else {
                "on time".to_owned()
            };
            return self.start(slot, reason);
        };
        match (self.policy.overlap, self.state.queued_slots.first()) {
            (Overlap::Queue, None) => {
                self.state.queued_slots.push(slot);
                self.row(slot, SlotOutcome::Queued, way, run);
            }
            (Overlap::Queue, Some(waiting)) => {
                let reason = format!("the slot at {waiting} is already waiting, and {way}");
                self.row(slot, SlotOutcome::Skipped, reason, run);
            }
            (Overlap::Skip | Overlap::Allow, _) => self.row(slot, SlotOutcome::Skipped, way, run),
        }
    }

    /// Missed slots that run: one after the other, unless runs may overlap.
    fn catch_up(&mut self, slots: &[Time], queued_max: u32) {
        for slot in slots {
            match self.in_the_way() {
                None => self.start(*slot, format!("caught up at {}", self.now)),
                Some((run, way)) => {
                    self.state.queued_slots.push(*slot);
                    self.row(
                        *slot,
                        SlotOutcome::Queued,
                        format!("to be caught up later: {way}"),
                        run,
                    );
                }
            }
        }
        let surplus = self.state.queued_slots.len().saturating_sub(queued_max.max(1) as usize);
        let reason = format!("catch_up keeps only the latest {queued_max}");
        self.give_up_queued(surplus, SlotOutcome::Missed, &reason);
    }

    /// Drops the oldest waiting slots. They need not be consecutive, so each gets its own row and
    /// reason.
    fn give_up_queued(&mut self, count: usize, outcome: SlotOutcome, reason: &str) {
        let count = count.min(self.state.queued_slots.len());
        for slot in self.state.queued_slots.drain(..count).collect::<Vec<_>>() {
            self.row(slot, outcome.clone(), format!("{slot} was waiting: {reason}"), None);
        }
    }

    /// What prevents a start, in words that do not change while it does.
    fn in_the_way(&self) -> Option<(Option<RunId>, String)> {
        if self.policy.overlap == Overlap::Allow {
            return None;
        }
        if let Some(active) = self.active.first() {
            let way = format!("run {} has been active since {}", active.run, active.started_at);
            return Some((Some(active.run), way));
        }
        self.starts
            .first()
            .map(|start| (None, format!("the run of the slot at {} has just started", start.slot)))
    }

    fn start(&mut self, slot: Time, reason: String) {
        self.row(slot, SlotOutcome::Ran, reason, None);
        self.starts.push(Start { slot, trigger: Trigger::Schedule });
    }

    fn row(&mut self, slot: Time, outcome: SlotOutcome, reason: String, run: Option<RunId>) {
        self.push(slot, slot, 1, outcome, reason, run);
    }

    /// Adds one row for all slots in (after, until], if there are any.
    fn rows(
        &mut self,
        schedule: &Schedule,
        after: Time,
        until: Time,
        outcome: SlotOutcome,
        reason: String,
    ) {
        let count = schedule.count(after, until);
        if count > 0
            && let Some(first) = schedule.next_after(after)
            && let Some(last) = schedule.latest(after, until, 1).last()
        {
            self.push(first, *last, count, outcome, reason, None);
        }
    }

    fn push(
        &mut self,
        from: Time,
        to: Time,
        count: u64,
        outcome: SlotOutcome,
        reason: String,
        run: Option<RunId>,
    ) {
        let task = self.state.task.clone();
        let row =
            SlotRecord { task, from, to, count, outcome, reason, run, term: self.leadership.term };
        if !self.slots.last_mut().is_some_and(|last| last.absorb(&row)) {
            self.slots.push(row);
        }
    }
}
