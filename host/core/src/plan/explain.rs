//! Explains why a slot ran or did not run: the answer to `besom task explain TASK@TIME`.

use super::{SlotOutcome, SlotRecord};
use crate::command::with_reason;
use crate::cron::Schedule;
use crate::time::Time;

/// A time without fractions names the whole second.
const SECOND_US: i64 = 1_000_000;

/// Explains the decision about the slot at `at`, from the rows of the slot history that cover its
/// time (in any order) and the currently configured schedule.
pub fn explain(at: Time, now: Time, schedule: Option<&Schedule>, records: &[SlotRecord]) -> String {
    let end = if at.micros() % SECOND_US == 0 { Time(at.micros() + SECOND_US - 1) } else { at };
    let is_slot = schedule.is_some_and(|schedule| schedule.is_slot(at));
    let mut found: Vec<&SlotRecord> = records
        .iter()
        // A row of several slots covers its ends and the slots between them.
        .filter(|record| {
            let names = |time: Time| (at..=end).contains(&time);
            names(record.from)
                || names(record.to)
                || (is_slot && record.from < at && at < record.to)
        })
        .collect();
    if !found.is_empty() {
        // A slot that waited has a second row, with the same term or a later one.
        found.sort_by_key(|record| (record.outcome != SlotOutcome::Queued, record.term));
        return found.into_iter().map(describe).collect::<Vec<_>>().join("\n");
    }
    let Some(schedule) = schedule else {
        return format!("{at}: the task has no schedule, and no run was requested at that time");
    };
    if at > now {
        return if is_slot {
            format!("{at}: an upcoming slot; slots are decided when they are due")
        } else {
            format!("{at}: in the future, and not a slot; {}", nearest(schedule, at))
        };
    }
    if !is_slot {
        return format!("{at}: no slot at that time; {}", nearest(schedule, at));
    }
    if records.iter().any(|record| record.from <= at) {
        format!(
            "{at}: a slot of the current schedule, but nothing was decided: the task had a different schedule then, or was resumed or defined later"
        )
    } else {
        format!(
            "{at}: a slot of the schedule, but before the task was defined or older than the retained history"
        )
    }
}

fn describe(record: &SlotRecord) -> String {
    let SlotRecord { from, to, count, outcome, reason, run, term, .. } = record;
    let what = outcome.as_str();
    let run = match (outcome, run) {
        (SlotOutcome::Ran, Some(run)) => format!(" as run {run}"),
        _ => String::new(),
    };
    let slots =
        if *count > 1 { format!("{from} to {to} ({count} slots)") } else { from.to_string() };
    let told = with_reason(&format!("{slots}: {what}{run}"), reason);
    format!("{told} (decided in term {term})")
}

/// The slots next to a time that is not a slot.
fn nearest(schedule: &Schedule, at: Time) -> String {
    // The longest schedule in use is yearly, or on a leap day.
    let years = std::time::Duration::from_secs(9 * 366 * 86_400);
    let before = schedule.latest(at - years, at, 1).pop();
    match (before, schedule.next_after(at)) {
        (Some(before), Some(after)) => format!("the nearest are {before} and {after}"),
        (Some(only), None) | (None, Some(only)) => format!("the nearest is {only}"),
        (None, None) => "there is no slot nearby".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{RunId, Term};

    fn record(from: i64, to: i64, count: u64, outcome: SlotOutcome, reason: &str) -> SlotRecord {
        SlotRecord {
            task: "sweep".into(),
            from: Time::from_secs(from),
            to: Time::from_secs(to),
            count,
            outcome,
            reason: reason.into(),
            run: Some(RunId(12)),
            term: Term(3),
        }
    }

    #[test]
    fn every_time_has_an_answer() {
        let schedule = Schedule::parse("* * * * *", "UTC").unwrap();
        let records = [
            record(600, 600, 1, SlotOutcome::Ran, "on time"),
            record(
                660,
                780,
                3,
                SlotOutcome::Skipped,
                "run 12 has been active since 1970-01-01T00:10:00Z",
            ),
            record(
                840,
                840,
                1,
                SlotOutcome::Ran,
                "started at 1970-01-01T00:15:00Z, after the previous run had ended",
            ),
            record(840, 840, 1, SlotOutcome::Queued, "run 12 has been active"),
        ];
        let table = [
            (600, "1970-01-01T00:10:00Z: ran as run 12: on time (decided in term 3)"),
            (
                720,
                "1970-01-01T00:11:00Z to 1970-01-01T00:13:00Z (3 slots): skipped: run 12 has been active since 1970-01-01T00:10:00Z (decided in term 3)",
            ),
            (
                840,
                "1970-01-01T00:14:00Z: queued: run 12 has been active (decided in term 3)\n1970-01-01T00:14:00Z: ran as run 12: started at 1970-01-01T00:15:00Z, after the previous run had ended (decided in term 3)",
            ),
            (
                730,
                "1970-01-01T00:12:10Z: no slot at that time; the nearest are 1970-01-01T00:12:00Z and 1970-01-01T00:13:00Z",
            ),
            (
                540,
                "1970-01-01T00:09:00Z: a slot of the schedule, but before the task was defined or older than the retained history",
            ),
            (
                900,
                "1970-01-01T00:15:00Z: a slot of the current schedule, but nothing was decided: the task had a different schedule then, or was resumed or defined later",
            ),
            (1200, "1970-01-01T00:20:00Z: an upcoming slot; slots are decided when they are due"),
            (
                1210,
                "1970-01-01T00:20:10Z: in the future, and not a slot; the nearest are 1970-01-01T00:20:00Z and 1970-01-01T00:21:00Z",
            ),
        ];
        for (at, expected) in table {
            assert_eq!(
                explain(Time::from_secs(at), Time::from_secs(1_000), Some(&schedule), &records),
                expected
            );
        }
        assert_eq!(
            explain(Time::from_secs(540), Time::from_secs(1_000), None, &[]),
            "1970-01-01T00:09:00Z: the task has no schedule, and no run was requested at that time"
        );
    }

    #[test]
    fn a_manual_run_is_found_by_its_second() {
        let mut manual = record(0, 0, 1, SlotOutcome::Ran, "triggered by anna: disk is full");
        (manual.from, manual.to) = (Time(61_250_000), Time(61_250_000));
        let text = explain(Time::from_secs(61), Time::from_secs(100), None, &[manual]);
        assert_eq!(
            text,
            "1970-01-01T00:01:01.25Z: ran as run 12: triggered by anna: disk is full (decided in term 3)"
        );
    }
}
