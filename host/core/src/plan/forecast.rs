//! Forecasts how a schedule behaves if runs take as long as past runs did.
//!
//! Decides how many of the next slots would find the previous run still active, and what the
//! overlap policy would do with them. Past durations are replayed in order, repeatedly; slots and
//! starts are computed as the scheduler does. It does not know why a run takes long, nor that the
//! backlog of a slow run may slow down the next one.

use std::collections::VecDeque;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Overlap, Policy, Run, start_of};
use crate::cron::Schedule;
use crate::ids::TaskName;
use crate::mode::Mode;
use crate::time::Time;

/// The maximum number of slots in a forecast.
pub const SLOTS_MAX: u32 = 10_000;
/// The default number of slots in a forecast.
pub const SLOTS_DEFAULT: u32 = 200;

/// The forecast for the next slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forecast {
    /// The number of slots examined.
    pub slots: u32,
    /// The number of slots that find a run still active: the sum of the next three fields.
    pub clashing: u32,
    /// Slots that are skipped.
    pub skipped: u32,
    /// Slots that wait for the previous run (`overlap = queue`).
    pub queued: u32,
    /// Slots that overlap the previous run (`overlap = allow`).
    pub overlapping: u32,
    /// The number of past runs used.
    pub runs: u32,
    /// The median of their durations.
    pub p50: Duration,
    /// The 99th percentile of their durations.
    pub p99: Duration,
    /// The longest of their durations.
    pub max: Duration,
    /// The shortest interval between two of the slots; none: there is only one slot.
    pub gap: Option<Duration>,
    /// The forecast as a sentence.
    pub sentence: String,
}

impl Forecast {
    /// Whether any slot finds a run still active.
    pub fn is_warning(&self) -> bool {
        self.clashing > 0
    }
}

/// Examines the next `slots` slots after `from` (at most [`SLOTS_MAX`]). `durations` are those of
/// past runs, oldest first; without any, there is no forecast.
pub fn forecast(
    task: &TaskName,
    schedule: &Schedule,
    policy: &Policy,
    durations: &[Duration],
    from: Time,
    slots: u32,
) -> Option<Forecast> {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let max = *sorted.last()?;
    let times = std::iter::successors(schedule.next_after(from), |at| schedule.next_after(*at));
    let times: Vec<Time> = times.take(slots.min(SLOTS_MAX) as usize).collect();
    let gap = times.windows(2).map(|pair| pair[1].since(pair[0])).min();
    let mut replay = Replay {
        overlap: policy.overlap,
        durations: durations.iter().cycle(),
        active: VecDeque::new(),
        waits: false,
        skipped: 0,
        queued: 0,
        overlapping: 0,
    };
    for slot in &times {
        replay.slot(start_of(task, schedule, policy, *slot));
    }
    let mut forecast = Forecast {
        slots: count(times.len()),
        clashing: replay.skipped + replay.queued + replay.overlapping,
        skipped: replay.skipped,
        queued: replay.queued,
        overlapping: replay.overlapping,
        runs: count(durations.len()),
        p50: percentile(&sorted, 50),
        p99: percentile(&sorted, 99),
        max,
        gap,
        sentence: String::new(),
    };
    forecast.sentence = sentence(&forecast);
    Some(forecast)
}

/// The durations of successful runs, oldest first. `runs` is ordered newest first, as the store
/// lists them.
pub fn durations(runs: &[Run]) -> Vec<Duration> {
    let ended = runs.iter().rev().filter(|run| run.error.is_none());
    ended.filter_map(|run| took(run.started_at, run.ended_at, run.mode)).collect()
}

/// How long a run took; none: it is active, or it waited for an approval, which takes as long as people do.
pub fn took(started_at: Time, ended_at: Option<Time>, mode: Mode) -> Option<Duration> {
    ended_at.filter(|_| mode != Mode::Approve).map(|ended| ended.since(started_at))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// The nearest-rank percentile; zero of no durations.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// Consecutive runs under the overlap policy.
struct Replay<'a> {
    overlap: Overlap,
    durations: std::iter::Cycle<std::slice::Iter<'a, Duration>>,
    /// When the active runs end, earliest first.
    active: VecDeque<Time>,
    /// Whether a slot waits for the active run to end.
    waits: bool,
    skipped: u32,
    queued: u32,
    overlapping: u32,
}

impl Replay<'_> {
    fn slot(&mut self, at: Time) {
        while let Some(end) = self.active.front().copied().filter(|end| *end <= at) {
            self.active.pop_front();
            if std::mem::take(&mut self.waits) {
                self.start(end);
            }
        }
        match self.overlap {
            _ if self.active.is_empty() => self.start(at),
            Overlap::Allow => {
                self.overlapping += 1;
                self.start(at);
            }
            Overlap::Queue if !self.waits => {
                self.queued += 1;
                self.waits = true;
            }
            Overlap::Queue | Overlap::Skip => self.skipped += 1,
        }
    }

    fn start(&mut self, at: Time) {
        let took = self.durations.next().copied().unwrap_or_default();
        let end = at + took;
        let place = self.active.partition_point(|other| *other <= end);
        self.active.insert(place, end);
    }
}

fn sentence(f: &Forecast) -> String {
    let took = match f.runs {
        1 => format!("the last run took {}", show(f.max)),
        n => format!(
            "the last {n} runs: median {}, p99 {}, longest {}",
            show(f.p50),
            show(f.p99),
            show(f.max)
        ),
    };
    let apart =
        f.gap.map_or(String::new(), |gap| format!("; slots are at least {} apart", show(gap)));
    let slots = match f.slots {
        1 => "the next slot".to_owned(),
        n => format!("the next {n} slots"),
    };
    let what = match (f.queued, f.skipped, f.overlapping) {
        (0, 0, 0) if f.slots == 1 => format!("{slots} would find no run still active"),
        (0, 0, 0) => format!("none of {slots} would find the previous run still active"),
        (0, 0, n) => format!("{n} of {slots} would overlap the previous run"),
        (0, n, _) => {
            format!("{n} of {slots} would be skipped because the previous run is still active")
        }
        (n, 0, _) => format!("{n} of {slots} would wait for the previous run to end"),
        (n, more, _) => format!(
            "{n} of {slots} would wait for the previous run to end, and {more} more would be skipped because one is already waiting"
        ),
    };
    format!("{what} ({took}{apart})")
}

/// A duration in its two largest units.
fn show(span: Duration) -> String {
    let (s, ms) = (span.as_secs(), span.subsec_millis());
    let two = |big: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit} {small}{part}"),
    };
    match s {
        0 => format!("{ms}ms"),
        1..10 if ms > 0 => format!("{s}.{}s", ms / 100),
        1..60 => format!("{s}s"),
        60..3_600 => two(s / 60, "m", s % 60, "s"),
        3_600..86_400 => two(s / 3_600, "h", s % 3_600 / 60, "m"),
        _ => two(s / 86_400, "d", s % 86_400 / 3_600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CatchUp, GRACE_DEFAULT};
    use super::*;

    const FROM: Time = Time::from_secs(1_750_000_000);

    fn of(every: &str, overlap: Overlap, seconds: &[u64], slots: u32) -> Forecast {
        let policy = Policy {
            overlap,
            catch_up: CatchUp::Coalesce,
            jitter: Duration::ZERO,
            grace: GRACE_DEFAULT,
        };
        let schedule = Schedule::parse(every, "UTC").expect("a schedule");
        let durations: Vec<_> = seconds.iter().map(|s| Duration::from_secs(*s)).collect();
        let task = TaskName::from("sweep");
        forecast(&task, &schedule, &policy, &durations, FROM, slots).expect("durations")
    }

    #[test]
    fn a_run_that_waited_for_an_approval_has_no_duration() {
        let end = Some(FROM + Duration::from_secs(9));
        assert_eq!(took(FROM, end, Mode::Live), Some(Duration::from_secs(9)));
        assert_eq!(took(FROM, end, Mode::Approve), None);
        assert_eq!(took(FROM, None, Mode::Live), None);
    }

    #[test]
    fn the_policy_says_what_becomes_of_slots_that_meet_a_run() {
        use Overlap::{Allow, Queue, Skip};
        for (every, overlap, seconds, slots, expected) in [
            // Just in time is in time.
            ("@every 60s", Skip, &[60][..], 10, (0, 0, 0)),
            ("@every 60s", Skip, &[61], 10, (5, 0, 0)),
            ("@every 60s", Allow, &[61], 10, (0, 0, 9)),
            // Every second waits; the run that waited then delays the next.
            ("@every 60s", Queue, &[61], 10, (0, 9, 0)),
            // One slow run of 5 hides the five slots it covers; one may wait.
            ("@every 60s", Skip, &[10, 10, 10, 10, 350], 20, (10, 0, 0)),
            ("@every 60s", Queue, &[10, 10, 10, 10, 350], 20, (8, 2, 0)),
            ("@every 60s", Allow, &[10, 10, 10, 10, 350], 20, (0, 0, 15)),
        ] {
            let f = of(every, overlap, seconds, slots);
            let found = (f.skipped, f.queued, f.overlapping);
            assert_eq!(found, expected, "{every} {overlap:?} {seconds:?}: {}", f.sentence);
            assert_eq!(f.clashing, found.0 + found.1 + found.2);
            assert_eq!(f.is_warning(), f.clashing > 0);
        }
    }

    #[test]
    fn percentiles_are_those_of_the_past_runs() {
        let seconds: Vec<u64> = (1..=200).rev().collect();
        let f = of("@hourly", Overlap::Skip, &seconds, 5);
        let found = [f.p50, f.p99, f.max].map(|d| d.as_secs());
        assert_eq!((found, f.runs, f.slots), ([100, 198, 200], 200, 5));
        assert_eq!(f.gap, Some(Duration::from_secs(3_600)));
        let one = of("@hourly", Overlap::Skip, &[7], 1);
        assert_eq!(([one.p50, one.p99, one.max], one.gap), ([Duration::from_secs(7); 3], None));
    }

    #[test]
    fn only_runs_that_ended_well_say_how_long_one_takes() {
        let run = |id: u64, took: Option<u64>, error: Option<&str>| Run {
            id: crate::ids::RunId(id),
            task: TaskName::from("sweep"),
            slot: FROM,
            trigger: crate::plan::Trigger::Schedule,
            term: crate::ids::Term(1),
            digest: String::new(),
            definition: String::new(),
            started_at: FROM,
            ended_at: took.map(|took| FROM + Duration::from_secs(took)),
            scan_done: true,
            error: error.map(str::to_owned),
            planned: 0,
            deduplicated: 0,
            blocked: 0,
            open: 0,
            scanned: 0,
            mode: crate::mode::Mode::Live,
            held: false,
        };
        let runs = [
            run(4, None, None),
            run(3, Some(3), None),
            run(2, Some(2), Some("trap")),
            run(1, Some(1), None),
        ];
        assert_eq!(durations(&runs), [1, 3].map(Duration::from_secs));
        assert_eq!(durations(&[]), []);
    }

    #[test]
    fn it_is_told_in_a_sentence() {
        for (overlap, seconds, slots, expected) in [
            (
                Overlap::Skip,
                &[4, 4, 362][..],
                200,
                "99 of the next 200 slots would be skipped because the previous run is still active (the last 3 runs: median 4s, p99 6m 2s, longest 6m 2s; slots are at least 2m apart)",
            ),
            (
                Overlap::Skip,
                &[4],
                1,
                "the next slot would find no run still active (the last run took 4s)",
            ),
        ] {
            assert_eq!(of("@every 2m", overlap, seconds, slots).sentence, expected);
        }
    }

    #[test]
    fn jitter_moves_the_starts_as_the_scheduler_does() {
        let schedule = Schedule::parse("@every 60s", "UTC").expect("a schedule");
        let policy = |jitter| Policy {
            overlap: Overlap::Skip,
            catch_up: CatchUp::Coalesce,
            jitter: Duration::from_secs(jitter),
            grace: GRACE_DEFAULT,
        };
        let run = [Duration::from_secs(59)];
        let skipped = |jitter| {
            let task = TaskName::from("sweep");
            forecast(&task, &schedule, &policy(jitter), &run, FROM, 200).map(|f| f.skipped)
        };
        assert_eq!(skipped(0), Some(0));
        assert!(skipped(50) > Some(10), "{:?}", skipped(50));
    }

    #[test]
    fn nothing_is_said_without_a_past_and_a_look_ahead_has_an_end() {
        let schedule = Schedule::parse("@every 1s", "UTC").expect("a schedule");
        let policy = Policy {
            overlap: Overlap::Allow,
            catch_up: CatchUp::Coalesce,
            jitter: Duration::ZERO,
            grace: GRACE_DEFAULT,
        };
        let task = TaskName::from("sweep");
        assert_eq!(forecast(&task, &schedule, &policy, &[], FROM, 9), None);
        let hour = [Duration::from_secs(3_600)];
        let far = forecast(&task, &schedule, &policy, &hour, FROM, u32::MAX).expect("durations");
        assert_eq!((far.slots, far.overlapping), (SLOTS_MAX, SLOTS_MAX - 1));
    }

    #[test]
    fn spans_are_told_in_two_units() {
        for (ms, text) in [
            (0, "0ms"),
            (340, "340ms"),
            (1_260, "1.2s"),
            (58_900, "58s"),
            (120_000, "2m"),
            (362_000, "6m 2s"),
            (3_660_000, "1h 1m"),
            (180_000_000, "2d 2h"),
        ] {
            assert_eq!(show(Duration::from_millis(ms)), text);
        }
    }
}
