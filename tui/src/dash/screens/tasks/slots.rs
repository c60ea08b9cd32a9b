//! The slots around now: what became of each, and why. The times are the scheduler's own, the
//! outcomes those of its books.

use std::time::Duration;

use besom_core::cron::Schedule;
use besom_core::plan::{SlotOutcome, SlotRecord};
use besom_core::snapshot::{RunState, Task};
use besom_core::time::Time;

/// How far back.
pub(super) const BACK: Duration = Duration::from_secs(2 * 3_600);
/// How far ahead.
pub(super) const AHEAD: Duration = Duration::from_secs(15 * 60);
/// Slots looked at in either direction: a schedule of seconds has thousands.
const SLOTS_MAX: u32 = 240;

/// What became of a slot; the later in the list, the more it deserves to be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It lies ahead.
    Planned,
    /// Nothing is known of it.
    Unknown,
    /// Its run ended well.
    Ok,
    /// Its run goes on.
    Runs,
    /// A later run stood for it.
    Coalesced,
    /// It waits for the run before.
    Queued,
    /// The task was paused.
    Paused,
    /// The run before was still active.
    Skipped,
    /// Nobody led.
    Missed,
    /// The leader lost its leadership.
    Fenced,
    /// Its run failed.
    Failed,
}

impl Fate {
    /// All of them with a meaning, in the order of the legend.
    pub(super) const LEGEND: [Fate; 10] = [
        Fate::Ok,
        Fate::Runs,
        Fate::Failed,
        Fate::Skipped,
        Fate::Queued,
        Fate::Coalesced,
        Fate::Missed,
        Fate::Fenced,
        Fate::Paused,
        Fate::Planned,
    ];

    /// Its sign.
    pub(super) fn sign(self) -> char {
        match self {
            Fate::Planned => '┆',
            Fate::Unknown => '·',
            Fate::Ok => '█',
            Fate::Runs => '▶',
            Fate::Coalesced => '«',
            Fate::Queued => '~',
            Fate::Paused => '‖',
            Fate::Skipped => '»',
            Fate::Missed => '○',
            Fate::Fenced => '!',
            Fate::Failed => '✕',
        }
    }

    /// It in a word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Fate::Planned => "planned",
            Fate::Unknown => "not in the books shown",
            Fate::Ok => "ok",
            Fate::Runs => "runs",
            Fate::Coalesced => "coalesced",
            Fate::Queued => "queued",
            Fate::Paused => "paused",
            Fate::Skipped => "skipped",
            Fate::Missed => "missed",
            Fate::Fenced => "fenced",
            Fate::Failed => "failed",
        }
    }
}

/// A slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Slot {
    pub at: Time,
    pub fate: Fate,
    /// Why, in the scheduler's words; empty: there is nothing to say.
    pub why: String,
    /// The run that was started, or was in the way.
    pub run: Option<u64>,
}

/// The slots of a task around a time, oldest first.
pub(super) fn around(task: &Task, now: Time) -> Vec<Slot> {
    let expression = task.schedule.as_deref().unwrap_or_default();
    let Ok(schedule) = Schedule::parse(expression, zone(task)) else { return Vec::new() };
    let mut slots: Vec<Slot> =
        schedule.latest(now - BACK, now, SLOTS_MAX).into_iter().map(|at| past(task, at)).collect();
    if task.paused.is_none() {
        let mut at = now;
        for _ in 0..SLOTS_MAX {
            match schedule.next_after(at).filter(|next| *next <= now + AHEAD) {
                Some(next) => at = next,
                None => break,
            }
            slots.push(Slot { at, fate: Fate::Planned, why: String::new(), run: None });
        }
    }
    slots
}

/// The zone of a task's schedule.
pub(super) fn zone(task: &Task) -> &str {
    if task.timezone.is_empty() { "UTC" } else { &task.timezone }
}

fn past(task: &Task, at: Time) -> Slot {
    // Newest first: a slot that was queued has a later row that says what became of it.
    let covers = |record: &&SlotRecord| record.from <= at && at <= record.to;
    let record = task.slots.iter().find(covers);
    let of_slot = task.last.iter().rev().find(|run| run.slot == at);
    let by_run = of_slot.map(|run| match run.state {
        RunState::Ok => Fate::Ok,
        RunState::Failed => Fate::Failed,
        RunState::Scanning | RunState::Executing => Fate::Runs,
        RunState::Unknown => Fate::Unknown,
    });
    let fate = match record.map(|record| &record.outcome) {
        None => by_run.unwrap_or(Fate::Unknown),
        Some(SlotOutcome::Ran) => by_run.unwrap_or(Fate::Ok),
        Some(SlotOutcome::Coalesced) => Fate::Coalesced,
        Some(SlotOutcome::Skipped) => Fate::Skipped,
        Some(SlotOutcome::Queued) => Fate::Queued,
        Some(SlotOutcome::Missed) => Fate::Missed,
        Some(SlotOutcome::Paused) => Fate::Paused,
        Some(SlotOutcome::Fenced) => Fate::Fenced,
    };
    let run = record.and_then(|record| record.run).map(|run| run.0);
    Slot {
        at,
        fate,
        why: record.map(|record| record.reason.clone()).unwrap_or_default(),
        run: run.or(of_slot.map(|run| run.id)),
    }
}

/// The column of a time on a line of so many columns; none: beyond its ends.
pub(super) fn column(at: Time, now: Time, columns: usize) -> Option<usize> {
    let start = now - BACK;
    let whole = (BACK + AHEAD).as_micros();
    if at < start || columns == 0 {
        return None;
    }
    let column = at.since(start).as_micros() * columns as u128 / whole;
    (column < columns as u128).then_some(column as usize)
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{RunId, TaskName, Term};
    use besom_core::snapshot::LastRun;

    use super::*;

    fn minute(n: i64) -> Time {
        Time::from_secs(1_000_000_200 + n * 60)
    }

    fn record(from: i64, to: i64, outcome: SlotOutcome, reason: &str) -> SlotRecord {
        SlotRecord {
            task: TaskName::from("a"),
            from: minute(from),
            to: minute(to),
            count: (to - from + 1) as u64,
            outcome,
            reason: reason.into(),
            run: Some(RunId(7)),
            term: Term(1),
        }
    }

    #[test]
    fn every_slot_has_its_fate_and_the_reason_of_the_books() {
        let run = |id, slot, state| LastRun { id, slot: minute(slot), state, ..LastRun::default() };
        let task = Task {
            schedule: Some("*/10 * * * *".into()),
            slots: vec![
                record(-10, -10, SlotOutcome::Queued, "waits"),
                record(-40, -20, SlotOutcome::Skipped, "run 7 was still active"),
                record(-50, -50, SlotOutcome::Ran, ""),
            ],
            last: vec![run(6, -60, RunState::Failed), run(7, -50, RunState::Executing)],
            ..Task::default()
        };
        let now = minute(3);
        let slots = around(&task, now);
        let at = |n: i64| slots.iter().find(|slot| slot.at == minute(n)).map(|s| (s.fate, &*s.why));
        assert_eq!(slots.len(), 12 + 1, "{slots:?}");
        assert_eq!(slots.iter().filter(|slot| slot.fate == Fate::Planned).count(), 1);
        assert!(slots.windows(2).all(|two| two[0].at < two[1].at));
        assert_eq!(at(-10), Some((Fate::Queued, "waits")));
        assert_eq!(at(-20), Some((Fate::Skipped, "run 7 was still active")));
        assert_eq!(at(-40), Some((Fate::Skipped, "run 7 was still active")));
        assert_eq!(at(-50), Some((Fate::Runs, "")));
        assert_eq!(at(-60), Some((Fate::Failed, "")));
        assert_eq!(at(-70), Some((Fate::Unknown, "")));
        assert_eq!(at(10), Some((Fate::Planned, "")));
    }

    #[test]
    fn a_schedule_of_seconds_costs_no_more_than_one_of_minutes() {
        let task = Task { schedule: Some("@every 1s".into()), ..Task::default() };
        assert_eq!(around(&task, minute(0)).len(), 2 * SLOTS_MAX as usize);
        let none = Task { schedule: Some("not a schedule".into()), ..Task::default() };
        assert_eq!(around(&none, minute(0)), []);
    }

    #[test]
    fn the_line_ends_where_its_time_ends() {
        let now = minute(0);
        for (at, expected) in [
            (now - BACK, Some(0)),
            (now, Some(80)),
            (now + AHEAD, None),
            (now - BACK - Duration::from_secs(1), None),
        ] {
            assert_eq!(column(at, now, 90), expected);
        }
        assert_eq!(column(now, now, 0), None);
    }
}
