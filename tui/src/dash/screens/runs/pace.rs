//! Measures the speed of runs across snapshots, because a run's own counters are totals.
//!
//! Only active runs are measured, the newest of them, each with a bounded number of readings.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{Run, RunState, Snapshot};

use super::phases::Progress;

/// The span over which a rate is computed.
const WINDOW: Duration = Duration::from_secs(30);
/// Readings kept per run; faster readings are skipped.
const READINGS_MAX: usize = 61;
/// The minimum interval between two readings.
const READING_MIN: Duration = Duration::from_millis(500);
/// Runs that are measured; the oldest are dropped.
const RUNS_MAX: usize = 256;
/// A rate over a shorter span would fluctuate too much.
const SPAN_MIN: Duration = Duration::from_secs(2);
/// A longer estimate is not shown.
const ETA_MAX: Duration = Duration::from_secs(7 * 86_400);

/// The readings of one run.
#[derive(Debug, Clone, Default)]
struct Watch {
    /// (when, done), oldest first.
    readings: VecDeque<(Time, u64)>,
    /// Whether the run was seen scanning: then the first snapshot with another state marks the end
    /// of the scan.
    scanning: bool,
    seen: Seen,
}

/// Changes of a run's state that were seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// When its scan had ended.
    pub scanned_at: Option<Time>,
    /// Whether it has waited for an approval.
    pub waited: bool,
    /// When it went on after that.
    pub approved_at: Option<Time>,
}

/// The readings of all runs.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    watches: BTreeMap<u64, Watch>,
}

impl Pace {
    /// Records a snapshot.
    pub fn observe(&mut self, snapshot: &Snapshot) {
        for run in &snapshot.runs {
            let known = self.watches.contains_key(&run.id);
            if run.state.is_active() || known {
                let waits = snapshot.waits(run);
                self.watches.entry(run.id).or_default().observe(run, waits, snapshot.at);
            }
        }
        while self.watches.len() > RUNS_MAX {
            self.watches.pop_first();
        }
    }

    /// What was seen of a run.
    pub fn seen(&self, run: u64) -> Seen {
        self.watches.get(&run).map(|watch| watch.seen).unwrap_or_default()
    }

    /// Log items that a run finishes per second; none: not known yet.
    pub fn rate(&self, run: u64) -> Option<f64> {
        let readings = &self.watches.get(&run)?.readings;
        let ((from, first), (to, last)) = (readings.front()?, readings.back()?);
        let span = to.since(*from);
        let done = last.saturating_sub(*first) as f64;
        (span >= SPAN_MIN).then(|| done / span.as_secs_f64())
    }

    /// The remaining time of a run; none: its scan may still plan items, or its rate allows no
    /// estimate.
    pub fn eta(&self, run: &Run) -> Option<Duration> {
        if run.state != RunState::Executing {
            return None;
        }
        let rate = self.rate(run.id).filter(|rate| *rate > 0.0)?;
        let eta = Duration::try_from_secs_f64(run.open as f64 / rate).ok()?;
        Some(eta).filter(|eta| *eta <= ETA_MAX)
    }
}

impl Watch {
    fn observe(&mut self, run: &Run, waits: bool, at: Time) {
        let by_then = run.ended_at.map_or(at, |ended| ended.min(at));
        self.seen.waited |= waits;
        match run.state {
            // What waits for an approval is scanned, whatever its state is.
            _ if waits => {
                if self.scanning {
                    self.seen.scanned_at.get_or_insert(by_then);
                }
            }
            RunState::Scanning => self.scanning = true,
            RunState::Executing | RunState::Ok => {
                if self.scanning {
                    self.seen.scanned_at.get_or_insert(by_then);
                }
                // Of one that was not seen until its end, it is unknown.
                if self.seen.waited && run.state == RunState::Executing {
                    self.seen.approved_at.get_or_insert(by_then);
                }
            }
            // The way it ended does not show whether the scan had ended.
            RunState::Rejected | RunState::Lapsed | RunState::Failed | RunState::Unknown => {}
        }
        if !run.state.is_active() {
            return;
        }
        let done = Progress::of(run).done;
        match self.readings.back() {
            // Another host's clock may be behind: readings from its future are ignored.
            Some((last, before)) if at < *last || done < *before => self.readings.clear(),
            Some((last, _)) if at.since(*last) < READING_MIN => return,
            _ => {}
        }
        self.readings.push_back((at, done));
        let old = |readings: &VecDeque<(Time, u64)>| {
            readings.len() > READINGS_MAX
                || readings.front().is_some_and(|(first, _)| at.since(*first) > WINDOW)
        };
        while self.readings.len() > 1 && old(&self.readings) {
            self.readings.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_core::ids::RunId;
    use besom_snapshot::{Task, WaitingReview};

    use super::super::phases::tests::run;
    use super::*;

    fn seen(pace: &mut Pace, s: i64, run: Run) {
        let runs = vec![Arc::new(run)];
        pace.observe(&Snapshot { at: Time::from_secs(s), runs, ..Snapshot::default() });
    }

    #[test]
    fn the_end_is_told_once_the_scan_is_done_and_a_rate_is_known() {
        let mut pace = Pace::default();
        let at = |state, open| Run { open, ..run(state, None) };
        seen(&mut pace, 100, at(RunState::Scanning, 1_000));
        seen(&mut pace, 104, at(RunState::Scanning, 920));
        assert_eq!(pace.rate(8812), Some(20.0));
        assert_eq!(pace.eta(&at(RunState::Scanning, 920)), None, "it may still plan more");
        seen(&mut pace, 106, at(RunState::Executing, 880));
        assert_eq!(pace.seen(8812).scanned_at, Some(Time::from_secs(106)));
        let eta = pace.eta(&at(RunState::Executing, 880));
        assert_eq!(eta, Some(Duration::from_secs(44)));
        seen(&mut pace, 120, run(RunState::Ok, Some(118)));
        assert_eq!(pace.seen(8812).scanned_at, Some(Time::from_secs(106)));
    }

    #[test]
    fn the_time_of_waiting_for_an_approval_belongs_to_no_phase() {
        let review = WaitingReview {
            run: RunId(8812),
            opened_at: Time::from_secs(103),
            expires_at: None,
            items: 1_000,
            summary: String::new(),
            brake: None,
        };
        let task = Task { name: "share-expiry".into(), review: Some(review), ..Task::default() };
        let mut pace = Pace::default();
        let mut seen_waiting = |s, state, waits: bool| {
            let tasks = waits.then(|| Arc::new(task.clone())).into_iter().collect();
            let runs = vec![Arc::new(run(state, None))];
            pace.observe(&Snapshot { at: Time::from_secs(s), runs, tasks, ..Snapshot::default() });
        };
        seen_waiting(101, RunState::Scanning, false);
        seen_waiting(103, RunState::Scanning, true);
        seen_waiting(500, RunState::Scanning, true);
        seen_waiting(900, RunState::Executing, false);
        seen(&mut pace, 906, run(RunState::Ok, Some(905)));
        let s = Time::from_secs;
        let seen = Seen { scanned_at: Some(s(103)), waited: true, approved_at: Some(s(900)) };
        assert_eq!(pace.seen(8812), seen);
    }

    #[test]
    fn nothing_is_made_up_from_too_little() {
        let mut pace = Pace::default();
        let one = run(RunState::Executing, None);
        assert_eq!((pace.rate(8812), pace.eta(&one)), (None, None));
        seen(&mut pace, 100, one.clone());
        seen(&mut pace, 101, one.clone());
        assert_eq!(pace.rate(8812), None, "a second is too short");
        seen(&mut pace, 110, one.clone());
        assert_eq!((pace.rate(8812), pace.eta(&one)), (Some(0.0), None), "it stands still");
        assert_eq!(pace.seen(8812).scanned_at, None, "it was never seen scanning");
        // The clock of another host is behind.
        seen(&mut pace, 90, one.clone());
        assert_eq!(pace.rate(8812), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut pace = Pace::default();
        for i in 0..10_000 {
            let run = Run { id: i % 1_000, ..run(RunState::Executing, None) };
            seen(&mut pace, i64::try_from(i).unwrap(), run);
        }
        assert_eq!(pace.watches.len(), RUNS_MAX);
        assert!(pace.watches.values().all(|watch| watch.readings.len() <= READINGS_MAX));
    }
}
