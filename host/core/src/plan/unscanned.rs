//! Computes since when a task has not scanned its tables: items that became due since then are in
//! no queue and in no count.

use std::time::Duration;

use super::{CatchUp, GRACE_MIN, Policy, Run, TaskState, start_of};
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

/// The start of the first slot since the last complete scan, if that time has come and no scan for
/// it has begun recently. `runs` are the task's latest runs, newest first; if the task has failed
/// for longer than they reach, the oldest of them counts. None: the task is paused, runs by trigger
/// only, or has scanned its tables as scheduled. A task that is `held` because the database refuses
/// it does not scan, however recently its run began. `opened`: when its present window opened.
pub fn unscanned_since(
    now: Time,
    schedule: &Schedule,
    policy: &Policy,
    state: &TaskState,
    runs: &[Scan],
    held: bool,
    opened: Option<Time>,
) -> Option<Time> {
    if state.paused.is_some() {
        return None;
    }
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
    let slot = schedule.next_after(looked)?;
    let due = start_of(&state.task, schedule, policy, slot);
    let grace = match newest {
        Some(run) if run.ended.is_none() && !held && now.since(run.started_at) <= SCAN_GRACE => {
            SCAN_GRACE
        }
        Some(_) | None => GRACE_MIN,
    };
    (now > due + grace).then_some(due)
}

#[cfg(test)]
mod tests {
    use super::super::Pause;
    use super::super::tests::{POLICY, minutely, secs, state};
    use super::*;

    fn scan(second: i64, ended: Option<ScanEnd>) -> Scan {
        Scan { slot: secs(second), started_at: secs(second), ended }
    }

    const COMPLETE: Option<ScanEnd> = Some(ScanEnd::Complete);
    const FAILED: Option<ScanEnd> = Some(ScanEnd::Failed);

    fn since(now: i64, state: &TaskState, runs: &[Scan]) -> Option<Time> {
        unscanned_since(secs(now), &minutely(), &POLICY, state, runs, false, None)
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
        let since =
            |held| unscanned_since(secs(710), &minutely(), &POLICY, &state(11), &runs, held, None);
        assert_eq!((since(false), since(true)), (None, Some(secs(660))));
    }

    #[test]
    fn slots_before_the_window_opened_are_no_trouble() {
        let runs = [scan(120, COMPLETE)];
        let since = |now, opened| {
            let opened = Some(secs(opened));
            unscanned_since(secs(now), &minutely(), &POLICY, &state(10), &runs, false, opened)
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
        let at =
            |now| unscanned_since(secs(now), &minutely(), &policy, &state(59), &runs, false, None);
        assert_eq!((at(3_600), at(3_606)), (None, Some(secs(3_600))));
    }
}
