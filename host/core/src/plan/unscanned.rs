//! Computes since when a task has not scanned its tables: items that became due since then are in
//! no queue and in no count.

use std::time::Duration;

use super::{CatchUp, GRACE_MIN, Policy, Run, SlotRecord, TaskState, start_of};
use crate::cron::Schedule;
use crate::time::Time;

/// How long a run's scan may take before its slot counts as not scanned.
pub const SCAN_GRACE: Duration = Duration::from_secs(60);

/// What a run says about whether the tables were scanned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// The slot of the run.
    pub slot: Time,
    /// When the run was started.
    pub started_at: Time,
    /// How its scan ended; none: it is still active.
    pub ended: Option<ScanEnd>,
}

/// How a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanEnd {
    /// The scan reached its end.
    Complete,
    /// The scan failed or was cancelled.
    Failed,
}

impl From<&Run> for Scan {
    fn from(run: &Run) -> Scan {
        let ended = match (&run.error, run.scan_done) {
            (Some(_), _) => Some(ScanEnd::Failed),
            (None, true) => Some(ScanEnd::Complete),
            (None, false) => None,
        };
        Scan { slot: run.slot, started_at: run.started_at, ended }
    }
}

/// What is known of a task's past.
#[derive(Debug, Clone, Copy)]
pub struct Past<'a> {
    /// Its latest runs, newest first; if the task has failed for longer than they reach, the oldest of them counts.
    pub runs: &'a [Scan],
    /// Its latest decided slots, newest first.
    pub slots: &'a [SlotRecord],
    /// Whether `slots` has all slots that were decided since the last complete scan.
    pub has_all: bool,
}

/// The start of the first slot since the last complete scan, if that time has come and no scan for
/// it has begun recently. None: the task is paused, runs by trigger only, has scanned its tables as scheduled, or no
/// leader has taken up its schedule yet. A task that is `held` because the database refuses
/// it does not scan, however recently its run began. `opened`: when its present window opened.
pub fn unscanned_since(
    now: Time,
    schedule: &Schedule,
    policy: &Policy,
    state: &TaskState,
    past: Past<'_>,
    held: bool,
    opened: Option<Time>,
) -> Option<Time> {
    let is_taken_up = state.schedule.is_empty() || state.schedule == schedule.canonical();
    if state.paused.is_some() || !is_taken_up {
        return None;
    }
    let runs = past.runs;
    let complete = runs.iter().find(|run| run.ended == Some(ScanEnd::Complete));
    let looked = match (complete, runs.last()) {
        // A scan sees everything that was due when it began, whatever its slot.
        (Some(run), _) => run.slot.max(run.started_at),
        (None, Some(oldest)) => Time(oldest.slot.0.saturating_sub(1)),
        (None, None) => state.last_slot?,
    };
    // Slots outside the windows are left out as well.
    let looked = opened.map_or(looked, |opened| looked.max(Time(opened.0.saturating_sub(1))));
    let newest = runs.first();
    let idle = newest.is_none_or(|run| run.ended == Some(ScanEnd::Complete));
    // Slots that passed without a leader are left out intentionally if the task says so.
    let looked = match (policy.catch_up, state.last_slot) {
        (CatchUp::Skip, Some(decided)) if idle => looked.max(decided),
        _ => looked,
    };
    let slot = first_slot(schedule, looked, state.last_slot, past)?;
    let due = start_of(&state.task, schedule, policy, slot);
    let grace = match newest {
        Some(run) if run.ended.is_none() && !held && now.since(run.started_at) <= SCAN_GRACE => {
            SCAN_GRACE
        }
        Some(_) | None => GRACE_MIN,
    };
    (now > due + grace).then_some(due)
}

/// The first slot of a task after a time. Before its schedule took effect, it had the slots of another one.
fn first_slot(
    schedule: &Schedule,
    after: Time,
    last: Option<Time>,
    past: Past<'_>,
) -> Option<Time> {
    let slot = schedule.next_after(after)?;
    if !past.has_all && past.slots.last().is_none_or(|oldest| oldest.from > slot) {
        return Some(slot);
    }
    match past.slots.iter().rfind(|decided| decided.to >= slot) {
        Some(first) => Some(first.from.max(slot)),
        // It counts from then.
        None => last.map_or(Some(slot), |last| schedule.next_after(last.max(after))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{POLICY, minutely, secs, state};
    use super::super::{Pause, SlotOutcome};
    use super::*;
    use crate::ids::Term;

    fn scan(second: i64, ended: Option<ScanEnd>) -> Scan {
        Scan { slot: secs(second), started_at: secs(second), ended }
    }

    const COMPLETE: Option<ScanEnd> = Some(ScanEnd::Complete);
    const FAILED: Option<ScanEnd> = Some(ScanEnd::Failed);

    /// Without the slots.
    fn of(runs: &[Scan]) -> Past<'_> {
        Past { runs, slots: &[], has_all: false }
    }

    fn since(now: i64, state: &TaskState, runs: &[Scan]) -> Option<Time> {
        unscanned_since(secs(now), &minutely(), &POLICY, state, of(runs), false, None)
    }

    #[test]
    fn a_schedule_counts_from_when_it_took_effect() {
        let decided = |from, to| SlotRecord {
            task: "sweep".into(),
            from: secs(from),
            to: secs(to),
            count: 1,
            outcome: SlotOutcome::Ran,
            reason: String::new(),
            run: None,
            term: Term(1),
        };
        // Daily until 10:30, and minutely since.
        let begun = TaskState { last_slot: Some(secs(630)), ..state(0) };
        let before = TaskState { schedule: "0 0 * * * UTC".into(), ..state(0) };
        let runs = [scan(661, None), scan(0, COMPLETE)];
        let since = |now, state: &TaskState, runs, slots, has_all| {
            let past = Past { runs, slots, has_all };
            unscanned_since(secs(now), &minutely(), &POLICY, state, past, false, None)
        };
        assert_eq!(since(640, &before, &runs[1..], &[], true), None, "nobody has taken it up");
        assert_eq!(since(640, &begun, &runs[1..], &[], true), None);
        assert_eq!(since(666, &begun, &runs[1..], &[], true), Some(secs(660)), "nobody decides");
        let first = [decided(660, 660)];
        assert_eq!(since(666, &state(11), &runs, &first, true), None, "it scans");
        let later = [decided(720, 720), decided(660, 660)];
        assert_eq!(since(770, &state(12), &runs, &later, true), Some(secs(660)));
        assert_eq!(since(770, &state(12), &runs, &later, false), Some(secs(60)), "not all of them");
        let until = [decided(660, 660), decided(0, 0)];
        assert_eq!(since(770, &state(11), &runs, &until, false), Some(secs(660)));
    }

    #[test]
    fn a_task_that_scans_in_time_leaves_nothing_unseen() {
        let runs = [scan(600, COMPLETE), scan(540, COMPLETE)];
        assert_eq!(since(659, &state(10), &runs), None);
        assert_eq!(since(664, &state(10), &runs), None, "a leader may decide a little late");
        assert_eq!(since(666, &state(10), &runs), Some(secs(660)));
        let going_on = [scan(660, None), scan(600, COMPLETE)];
        assert_eq!(since(710, &state(11), &going_on), None);
        assert_eq!(since(721, &state(11), &going_on), Some(secs(660)), "it scans for too long");
    }

    #[test]
    fn a_held_task_does_not_scan_however_lately_it_began() {
        let runs = [scan(660, None), scan(600, COMPLETE)];
        let since = |held| {
            unscanned_since(secs(710), &minutely(), &POLICY, &state(11), of(&runs), held, None)
        };
        assert_eq!((since(false), since(true)), (None, Some(secs(660))));
    }

    #[test]
    fn slots_before_the_window_opened_are_no_trouble() {
        let runs = [scan(120, COMPLETE)];
        let since = |now, opened| {
            let opened = Some(secs(opened));
            unscanned_since(secs(now), &minutely(), &POLICY, &state(10), of(&runs), false, opened)
        };
        assert_eq!(since(602, 600), None, "it has just opened");
        assert_eq!(since(666, 601), Some(secs(660)));
    }

    #[test]
    fn scans_that_fail_have_not_looked() {
        let runs = [scan(780, FAILED), scan(720, FAILED), scan(660, FAILED), scan(600, COMPLETE)];
        assert_eq!(since(790, &state(13), &runs), Some(secs(660)));
        assert_eq!(since(790, &state(13), &runs[..3]), Some(secs(660)), "all that is known");
        let again = [scan(840, None), runs[0], runs[3]];
        assert_eq!(since(845, &state(14), &again), Some(secs(660)), "one that goes on is no proof");
    }

    #[test]
    fn nobody_who_leads_and_no_run_at_all() {
        assert_eq!(since(3_600, &state(10), &[scan(600, COMPLETE)]), Some(secs(660)));
        assert_eq!(since(3_600, &state(10), &[]), Some(secs(660)));
        let unknown = TaskState { last_slot: None, ..state(10) };
        assert_eq!(since(3_600, &unknown, &[]), None);
    }

    #[test]
    fn a_pause_and_slots_that_are_left_out_on_purpose_are_no_trouble() {
        let pause = Pause { by: "a".into(), reason: "b".into(), since: secs(601) };
        let paused = TaskState { paused: Some(pause), ..state(10) };
        assert_eq!(since(3_600, &paused, &[scan(600, COMPLETE)]), None);
        // Nobody led until 3,590; the slots until then were decided as missed.
        let runs = [scan(600, COMPLETE)];
        let policy = Policy { catch_up: CatchUp::Skip, ..POLICY };
        let at = |now| {
            unscanned_since(secs(now), &minutely(), &policy, &state(59), of(&runs), false, None)
        };
        assert_eq!((at(3_600), at(3_606)), (None, Some(secs(3_600))));
    }
}
