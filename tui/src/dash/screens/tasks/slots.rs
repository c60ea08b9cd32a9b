//! The slots around now: the outcome of each, and the reason. Past slots come from the history,
//! whatever the schedule was then; only future slots are computed from the current schedule.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::cron::Schedule;
use besom_core::plan::{SlotOutcome, SlotRecord};
use besom_core::time::Time;
use besom_snapshot::{LastRun, RunState, Task};

use super::past::Past;

/// Slots computed from a schedule in each direction; a schedule of seconds has thousands.
const SLOTS_MAX: u32 = 240;
/// If this many consecutive slots of the schedule are missing in the history, the schedule was a
/// different one.
const GAPS_MIN: u32 = 3;

/// The time span shown on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Span {
    /// Suitable for schedules of minutes.
    #[default]
    Hours,
    /// Suitable for schedules of hours.
    Day,
    /// Suitable for nightly schedules.
    Fortnight,
}

impl Span {
    /// How far back the span reaches.
    pub(super) fn back(self) -> Duration {
        Duration::from_secs(match self {
            Span::Hours => 2 * 3_600,
            Span::Day => 24 * 3_600,
            Span::Fortnight => 14 * 86_400,
        })
    }

    /// How far ahead the span reaches: an eighth of that.
    pub(super) fn ahead(self) -> Duration {
        self.back() / 8
    }

    /// The time between two marks of the axis.
    pub(super) fn tick(self) -> Duration {
        Duration::from_secs(match self {
            Span::Hours => 1_800,
            Span::Day => 6 * 3_600,
            Span::Fortnight => 2 * 86_400,
        })
    }

    /// How far back, in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Span::Hours => "2 h",
            Span::Day => "24 h",
            Span::Fortnight => "14 d",
        }
    }

    /// The next span; the last is followed by the first.
    pub(super) fn next(self) -> Span {
        match self {
            Span::Hours => Span::Day,
            Span::Day => Span::Fortnight,
            Span::Fortnight => Span::Hours,
        }
    }
}

/// The outcome of a slot; later variants take precedence when several slots share a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fate {
    /// It is in the future.
    Planned,
    /// It is due, and nothing has been decided yet.
    Undecided,
    /// It ran; the result was not read.
    Ran,
    /// Its run succeeded.
    Ok,
    /// Its run is active.
    Runs,
    /// A later run covered it.
    Coalesced,
    /// It waits for the previous run.
    Queued,
    /// The task was paused.
    Paused,
    /// The previous run was still active.
    Skipped,
    /// There was no leader.
    Missed,
    /// The leader lost its leadership.
    Fenced,
    /// Its run failed.
    Failed,
}

impl Fate {
    /// All of them, in the order of the legend.
    pub(super) const LEGEND: [Fate; 12] = [
        Fate::Ok,
        Fate::Ran,
        Fate::Runs,
        Fate::Failed,
        Fate::Skipped,
        Fate::Queued,
        Fate::Coalesced,
        Fate::Missed,
        Fate::Fenced,
        Fate::Paused,
        Fate::Undecided,
        Fate::Planned,
    ];

    /// Whether a past slot started no run.
    pub(super) fn is_without_run(self) -> bool {
        match self {
            Fate::Planned | Fate::Undecided | Fate::Ran | Fate::Ok | Fate::Runs | Fate::Failed => {
                false
            }
            Fate::Coalesced
            | Fate::Queued
            | Fate::Paused
            | Fate::Skipped
            | Fate::Missed
            | Fate::Fenced => true,
        }
    }

    /// Its sign.
    pub(super) fn sign(self) -> char {
        match self {
            Fate::Planned => '┆',
            Fate::Undecided => '·',
            Fate::Ran => '▒',
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

    /// The word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Fate::Planned => "planned",
            Fate::Undecided => "nothing decided yet",
            Fate::Ran => "ran",
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

/// A slot, or several that share a row in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot<'a> {
    /// The first slot.
    pub at: Time,
    /// The last slot.
    pub until: Time,
    /// The number of slots.
    pub count: u64,
    pub fate: Fate,
    /// The scheduler's reason; empty: there is none.
    pub why: &'a str,
    /// The run that was started, or that prevented the start.
    pub run: Option<u64>,
}

impl Slot<'_> {
    fn single(at: Time, fate: Fate) -> Slot<'static> {
        Slot { at, until: at, count: 1, fate, why: "", run: None }
    }

    /// The time of each slot, as far as known: the history has the first and the last.
    pub(super) fn times(&self, schedule: Option<&Schedule>) -> Vec<Time> {
        let before = Time(self.at.0.saturating_sub(1));
        match schedule {
            _ if self.count <= 1 => vec![self.at],
            Some(schedule) if schedule.count(before, self.until) == self.count => {
                schedule.latest(before, self.until, SLOTS_MAX)
            }
            _ => {
                let (steps, whole) =
                    (self.count.min(u64::from(SLOTS_MAX)), self.until.0 - self.at.0);
                let place =
                    |n| self.at.0 + (i128::from(whole) * n / (i128::from(steps) - 1)) as i64;
                (0..i128::from(steps)).map(|n| Time(place(n))).collect()
            }
        }
    }
}

/// The current schedule of a task.
pub(super) fn schedule(task: &Task) -> Option<Schedule> {
    Schedule::parse(task.schedule.as_deref()?, zone(task)).ok()
}

/// The slots of a task around a time, oldest first.
pub(super) fn around<'a>(task: &'a Task, past: &'a Past, span: Span, now: Time) -> Vec<Slot<'a>> {
    let start = now - span.back();
    let mut found: BTreeMap<Time, Slot<'a>> = BTreeMap::new();
    let runs: BTreeMap<u64, &LastRun> = past.runs(task).map(|run| (run.id, run)).collect();
    let mut newest: Option<Time> = None;
    // Newest first: a queued slot has a later row with its final outcome.
    for record in past.records(task).filter(|record| record.from <= now && record.to >= start) {
        newest = newest.max(Some(record.to));
        found.entry(record.from).or_insert_with(|| recorded(record, &runs));
    }
    for run in runs.values().filter(|run| start <= run.slot && run.slot <= now) {
        let run_slot = || Slot { run: Some(run.id), ..Slot::single(run.slot, of_run(run.state)) };
        found.entry(run.slot).or_insert_with(run_slot);
        newest = newest.max(Some(run.slot));
    }
    let Some(schedule) = schedule(task) else { return found.into_values().collect() };
    // Slots that became due since the history was last written.
    if let Some(newest) = newest.filter(|newest| schedule.is_slot(*newest)) {
        for at in schedule.latest(newest, now, SLOTS_MAX) {
            found.entry(at).or_insert_with(|| Slot::single(at, Fate::Undecided));
        }
    }
    let mut slots: Vec<Slot<'a>> = found.into_values().collect();
    if task.paused.is_none() {
        let ahead = task.windows.slots(&schedule, now).take_while(|at| *at <= now + span.ahead());
        slots.extend(ahead.take(SLOTS_MAX as usize).map(|at| Slot::single(at, Fate::Planned)));
    }
    slots
}

/// The zone of a task's schedule.
pub(super) fn zone(task: &Task) -> &str {
    if task.timezone.is_empty() { "UTC" } else { &task.timezone }
}

fn of_run(state: RunState) -> Fate {
    match state {
        RunState::Ok | RunState::Rejected | RunState::Lapsed => Fate::Ok,
        RunState::Failed => Fate::Failed,
        RunState::Scanning | RunState::Executing => Fate::Runs,
        RunState::Unknown => Fate::Ran,
    }
}

fn recorded<'a>(record: &'a SlotRecord, runs: &BTreeMap<u64, &LastRun>) -> Slot<'a> {
    let run = record.run.map(|run| run.0);
    let fate = match record.outcome {
        SlotOutcome::Ran => {
            run.and_then(|run| runs.get(&run)).map_or(Fate::Ran, |run| of_run(run.state))
        }
        SlotOutcome::Coalesced => Fate::Coalesced,
        SlotOutcome::Skipped => Fate::Skipped,
        SlotOutcome::Queued => Fate::Queued,
        SlotOutcome::Missed => Fate::Missed,
        SlotOutcome::Paused => Fate::Paused,
        SlotOutcome::Fenced => Fate::Fenced,
    };
    let SlotRecord { from, to, count, .. } = *record;
    Slot { at: from, until: to, count, fate, why: &record.reason, run }
}

/// The last slot of an earlier schedule: the later history agrees with the current schedule.
/// `records` are newest first.
pub(super) fn changed<'a>(
    schedule: &Schedule,
    records: impl Iterator<Item = &'a SlotRecord>,
) -> Option<Time> {
    let (mut later, mut gaps, mut streak) = (None, 0, None);
    for record in records {
        let (from, to) = (record.from, record.to);
        // Schedules use whole seconds; any other time is that of a request.
        if from.0.rem_euclid(1_000_000) != 0 {
            continue;
        }
        let before = Time(from.0 - 1);
        if !schedule.is_slot(from)
            || !schedule.is_slot(to)
            || schedule.count(before, to) != record.count
        {
            return Some(to);
        }
        match later.filter(|later| schedule.next_after(to).is_some_and(|next| next < *later)) {
            Some(_) => {
                gaps += 1;
                streak = streak.or(later);
            }
            None if later != Some(from) => (gaps, streak) = (0, None),
            None => {}
        }
        if gaps >= GAPS_MIN {
            return streak;
        }
        later = Some(from);
    }
    None
}

/// The column of a time on a line of this many columns; none: outside the line.
pub(super) fn column(at: Time, span: Span, now: Time, columns: usize) -> Option<usize> {
    let start = now - span.back();
    let whole = (span.back() + span.ahead()).as_micros();
    if at < start || columns == 0 {
        return None;
    }
    let column = at.since(start).as_micros() * columns as u128 / whole;
    (column < columns as u128).then_some(column as usize)
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{RunId, TaskName, Term};

    use super::*;

    fn minute(n: i64) -> Time {
        Time::from_secs(1_000_000_200 + n * 60)
    }

    fn record(from: i64, to: i64, count: u64, outcome: SlotOutcome, reason: &str) -> SlotRecord {
        SlotRecord {
            task: TaskName::from("a"),
            from: minute(from),
            to: minute(to),
            count,
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
                record(-10, -10, 1, SlotOutcome::Queued, "waits"),
                record(-40, -20, 3, SlotOutcome::Skipped, "run 7 was still active"),
                record(-50, -50, 1, SlotOutcome::Ran, ""),
            ],
            last: vec![run(6, -60, RunState::Failed), run(7, -50, RunState::Executing)],
            ..Task::default()
        };
        let now = minute(3);
        let past = Past::default();
        let slots = around(&task, &past, Span::Hours, now);
        let at = |n: i64| slots.iter().find(|slot| slot.at == minute(n)).map(|s| (s.fate, s.why));
        assert!(slots.windows(2).all(|two| two[0].at < two[1].at));
        assert_eq!(at(-10), Some((Fate::Queued, "waits")));
        assert_eq!(at(-40), Some((Fate::Skipped, "run 7 was still active")));
        assert_eq!(at(-50), Some((Fate::Runs, "")));
        assert_eq!(at(-60), Some((Fate::Failed, "")));
        assert_eq!(at(-70), None, "nothing was read of it");
        assert_eq!(at(0), Some((Fate::Undecided, "")));
        assert_eq!(at(10), Some((Fate::Planned, "")));
        assert_eq!(slots.len(), 6, "{slots:?}");
        let skipped = slots.iter().find(|slot| slot.fate == Fate::Skipped).expect("it is there");
        let schedule = schedule(&task);
        let times = |schedule| skipped.times(schedule);
        assert_eq!(times(schedule.as_ref()), [minute(-40), minute(-30), minute(-20)]);
        assert_eq!(times(None), [minute(-40), minute(-30), minute(-20)]);
    }

    #[test]
    fn the_past_stays_as_it_was_under_another_schedule() {
        let ran = |n| record(n, n, 1, SlotOutcome::Ran, "");
        let nightly = Schedule::parse("30 2 * * *", "UTC").expect("a schedule");
        let task = Task {
            schedule: Some("30 2 * * *".into()),
            slots: (1..40).map(|n| ran(-n)).collect(),
            ..Task::default()
        };
        let past = Past::default();
        let slots = around(&task, &past, Span::Hours, minute(0));
        assert_eq!(slots.len(), 39, "{slots:?}");
        assert!(slots.iter().all(|slot| slot.fate == Fate::Ran), "no end of them was read");
        assert_eq!(changed(&nightly, task.slots.iter()), Some(minute(-1)));
    }

    #[test]
    fn a_change_of_the_schedule_is_found_in_the_books() {
        let every = |minutes: u32| Schedule::parse(&format!("@every {minutes}m"), "UTC").unwrap();
        let ran = |n| record(n, n, 1, SlotOutcome::Ran, "");
        let start = minute(0).0.rem_euclid(6 * 60_000_000) / 60_000_000;
        // From 0 back: each second minute, and each third before that.
        let books: Vec<SlotRecord> =
            [0, 2, 4, 6, 9, 12, 15].iter().map(|n| ran(-start - n)).collect();
        let of = |schedule: &Schedule| changed(schedule, books.iter());
        assert_eq!(of(&every(2)), Some(minute(-start - 9)));
        assert_eq!(of(&every(3)), Some(minute(-start - 2)));
        // As many as before and others between them: only the books of now are as it would be.
        assert_eq!(of(&every(1)), Some(minute(-start)));
        assert_eq!(changed(&every(2), books[..4].iter()), None);
        let asked = SlotRecord { from: Time(1), to: Time(1), ..ran(0) };
        assert_eq!(changed(&every(2), [asked].iter()), None, "a run that somebody asked for");
    }

    #[test]
    fn what_is_laid_out_by_a_schedule_of_seconds_is_bounded() {
        let task = Task {
            schedule: Some("@every 1s".into()),
            slots: vec![record(-60, -60, 1, SlotOutcome::Ran, "")],
            ..Task::default()
        };
        let past = Past::default();
        let count = |task: &Task| around(task, &past, Span::Hours, minute(0)).len();
        assert_eq!(count(&task), 1 + 2 * SLOTS_MAX as usize);
        let none = Task { schedule: Some("not a schedule".into()), ..Task::default() };
        assert_eq!(count(&none), 0);
    }

    #[test]
    fn the_line_ends_where_its_time_ends() {
        let now = minute(0);
        for span in [Span::Hours, Span::Day, Span::Fortnight] {
            for (at, expected) in [
                (now - span.back(), Some(0)),
                (now, Some(80)),
                (now + span.ahead(), None),
                (now - span.back() - Duration::from_secs(1), None),
            ] {
                assert_eq!(column(at, span, now, 90), expected);
            }
        }
        assert_eq!(column(now, Span::Hours, now, 0), None);
    }
}
