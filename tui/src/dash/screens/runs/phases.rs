//! The phases of a run: when each began, and how long it took.
//!
//! ```text
//! slot ─wait─> started ─ scan ─> executing ─ items ─> ended
//! ```
//! The snapshot contains the beginning and the end. When the scan ended is known only if the change
//! of state was seen ([`super::pace`]).

use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{Run, RunState};

use super::pace::Seen;

/// The length of a phase, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// The phase has ended after this time.
    Took(Duration),
    /// The phase is active and has lasted this long.
    Goes(Duration),
    /// The phase has ended; its length was not seen.
    Unseen,
    /// The phase has not begun.
    Ahead,
    /// The phase was not reached.
    Never,
}

/// A run's phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phases {
    /// From the slot to the start.
    pub wait: Duration,
    /// The scan.
    pub scanning: Length,
    /// From the end of the scan, or from its approval, to the end of its items.
    pub executing: Length,
    /// The whole run, from its start; none: it is active.
    pub whole: Option<Duration>,
    /// From the start until now or the end.
    pub elapsed: Duration,
}

impl Phases {
    /// The phases of a run, by what was seen of it.
    pub fn of(run: &Run, seen: Seen, now: Time) -> Phases {
        let until = run.ended_at.unwrap_or(now);
        let elapsed = until.since(run.started_at);
        // A change of state that was seen late must not fall outside the run.
        let within = |at: Time| at.clamp(run.started_at, until.max(run.started_at));
        let scanned = seen.scanned_at.map(within);
        // The time of waiting for an approval belongs to neither.
        let from = match seen.waited {
            true => seen.approved_at.map(within),
            false => scanned,
        };
        let since = |at: Time| until.since(from.unwrap_or(at));
        let (scanning, executing) = match (run.state, scanned) {
            (RunState::Rejected | RunState::Lapsed, _) => (Length::Unseen, Length::Never),
            (RunState::Scanning, _) => (Length::Goes(elapsed), Length::Ahead),
            (RunState::Executing, Some(at)) => {
                (Length::Took(at.since(run.started_at)), Length::Goes(since(at)))
            }
            (RunState::Executing, None) => (Length::Unseen, Length::Goes(since(run.started_at))),
            (RunState::Ok | RunState::Failed | RunState::Unknown, Some(at)) => {
                let executing = from.map(|from| Length::Took(until.since(from)));
                (Length::Took(at.since(run.started_at)), executing.unwrap_or(Length::Unseen))
            }
            (RunState::Ok, None) => (Length::Unseen, Length::Unseen),
            (RunState::Failed | RunState::Unknown, None) => (Length::Unseen, Length::Never),
        };
        let whole = run.ended_at.map(|_| elapsed);
        Phases { wait: run.started_at.since(run.slot), scanning, executing, whole, elapsed }
    }
}

/// A run's finished log items, relative to those planned so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Items that have ended.
    pub done: u64,
    /// Items planned so far.
    pub planned: u64,
    /// Whether more items may be planned.
    pub grows: bool,
}

impl Progress {
    /// The progress of a run.
    pub fn of(run: &Run) -> Progress {
        Progress {
            done: run.planned.saturating_sub(run.open),
            planned: run.planned,
            grows: run.state == RunState::Scanning,
        }
    }

    /// The fraction (0 to 1) that is done; none: nothing has been planned yet.
    pub fn part(self) -> Option<f64> {
        (self.planned > 0).then(|| self.done as f64 / self.planned as f64)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use besom_core::plan::Trigger;

    use super::*;

    /// A run that was started at second 100 for the slot of second 98.
    pub fn run(state: RunState, ended_s: Option<i64>) -> Run {
        Run {
            id: 8812,
            task: "share-expiry".into(),
            slot: Time::from_secs(98),
            trigger: Trigger::Schedule,
            term: 42,
            plugin_digest: String::new(),
            started_at: Time::from_secs(100),
            ended_at: ended_s.map(Time::from_secs),
            state,
            error: None,
            planned: 1_000,
            deduplicated: 5,
            blocked: 2,
            open: 340,
            scanned: 62_000,
            mode: besom_core::mode::Mode::Live,
            held: false,
        }
    }

    #[test]
    fn phases_tell_what_was_seen_and_nothing_else() {
        let s = Duration::from_secs;
        let seen = Some(Time::from_secs(103));
        let approved =
            Seen { scanned_at: seen, waited: true, approved_at: Some(Time::from_secs(106)) };
        let phases = Phases::of(&run(RunState::Ok, Some(108)), approved, Time::from_secs(110));
        assert_eq!(
            (phases.scanning, phases.executing),
            (Length::Took(s(3)), Length::Took(s(2))),
            "without the time of waiting"
        );
        let unseen = Seen { approved_at: None, ..approved };
        let phases = Phases::of(&run(RunState::Ok, Some(108)), unseen, Time::from_secs(110));
        assert_eq!((phases.scanning, phases.executing), (Length::Took(s(3)), Length::Unseen));
        for (state, ended, scanned, scanning, executing) in [
            (RunState::Scanning, None, None, Length::Goes(s(10)), Length::Ahead),
            (RunState::Executing, None, seen, Length::Took(s(3)), Length::Goes(s(7))),
            (RunState::Executing, None, None, Length::Unseen, Length::Goes(s(10))),
            (RunState::Ok, Some(108), seen, Length::Took(s(3)), Length::Took(s(5))),
            (RunState::Ok, Some(108), None, Length::Unseen, Length::Unseen),
            (RunState::Failed, Some(101), None, Length::Unseen, Length::Never),
            (RunState::Failed, Some(101), seen, Length::Took(s(1)), Length::Took(s(0))),
        ] {
            let scanned = Seen { scanned_at: scanned, ..Seen::default() };
            let phases = Phases::of(&run(state, ended), scanned, Time::from_secs(110));
            assert_eq!((phases.scanning, phases.executing), (scanning, executing), "{state:?}");
            assert_eq!(phases.wait, s(2));
            assert_eq!(phases.whole, ended.map(|at| s(at as u64 - 100)));
        }
    }

    #[test]
    fn a_clock_that_is_behind_makes_no_negative_span() {
        let phases =
            Phases::of(&run(RunState::Executing, None), Seen::default(), Time::from_secs(50));
        assert_eq!(phases.elapsed, Duration::ZERO);
        let late = Seen { scanned_at: Some(Time::from_secs(95)), ..Seen::default() };
        let phases = Phases::of(&run(RunState::Ok, Some(90)), late, Time(0));
        assert_eq!(phases.whole, Some(Duration::ZERO));
    }

    #[test]
    fn progress_is_of_what_was_planned_so_far() {
        let progress = Progress::of(&run(RunState::Executing, None));
        assert_eq!((progress.done, progress.planned, progress.grows), (660, 1_000, false));
        assert_eq!(progress.part(), Some(0.66));
        let empty = Run { planned: 0, open: 3, ..run(RunState::Scanning, None) };
        assert_eq!(Progress::of(&empty).part(), None);
        assert_eq!(Progress::of(&empty).done, 0);
    }
}
