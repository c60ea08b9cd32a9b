//! Compares a run's duration with the latest runs of its task.

use std::time::Duration;

use besom_snapshot::{LastRun, RunState, Task};

/// Columns of the histogram.
pub const COLUMNS: usize = 16;

/// The durations of a task's ended runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Durations {
    /// The durations in ascending order.
    sorted: Vec<Duration>,
}

impl Durations {
    /// The durations of a task's latest successful runs, except the run to compare.
    pub fn of(task: &Task, without: u64) -> Durations {
        let took = |run: &LastRun| {
            let counted = run.id != without && run.state == RunState::Ok;
            run.took().filter(|_| counted)
        };
        let mut sorted: Vec<Duration> = task.last.iter().filter_map(took).collect();
        sorted.sort_unstable();
        Durations { sorted }
    }

    /// The number of durations.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// A quantile (0 to 1) of the durations; none: there are none.
    pub fn quantile(&self, part: f64) -> Option<Duration> {
        let rank = (self.sorted.len() as f64 * part).ceil() as usize;
        self.sorted.get(rank.clamp(1, self.sorted.len().max(1)) - 1).copied()
    }

    /// A duration as a multiple of the p99; none: there is nothing to compare with.
    pub fn factor(&self, of: Duration) -> Option<f64> {
        let p99 = self.quantile(0.99)?.as_secs_f64();
        (p99 > 0.0).then(|| of.as_secs_f64() / p99)
    }

    /// The number of durations in each of [`COLUMNS`] equal parts from the shortest to the longest
    /// of them and `here`, and the column of `here`. The scale is logarithmic, because a run may
    /// take many times as long as the others.
    pub fn histogram(&self, here: Duration) -> Option<(Vec<u64>, usize)> {
        let log = |duration: Duration| duration.as_secs_f64().max(0.001).ln();
        let (least, most) = (self.sorted.first()?, self.sorted.last()?);
        let (low, high) = (log(*least.min(&here)), log(*most.max(&here)));
        let column = |duration: Duration| {
            let part = if high > low { (log(duration) - low) / (high - low) } else { 0.0 };
            ((part * (COLUMNS - 1) as f64).round() as usize).min(COLUMNS - 1)
        };
        let mut counts = vec![0; COLUMNS];
        for duration in &self.sorted {
            counts[column(*duration)] += 1;
        }
        Some((counts, column(here)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use besom_core::time::Time;

    use super::*;

    /// A task whose last runs took so many seconds.
    pub fn task(seconds: &[i64]) -> Task {
        let run = |(id, s): (usize, &i64)| LastRun {
            id: id as u64 + 1,
            started_at: Time::from_secs(1_000),
            ended_at: Some(Time::from_secs(1_000 + s)),
            state: RunState::Ok,
            ..LastRun::default()
        };
        Task { last: seconds.iter().enumerate().map(run).collect(), ..Task::default() }
    }

    #[test]
    fn quantiles_are_those_of_runs_that_ended_well() {
        let mut task = task(&[10, 20, 30, 40, 1_000]);
        task.last[4].state = RunState::Failed;
        task.last.push(LastRun { id: 77, ended_at: None, ..LastRun::default() });
        let durations = Durations::of(&task, 4);
        let s = Duration::from_secs;
        assert_eq!(durations.count(), 3, "not the failed one, not the active, not itself");
        assert_eq!(durations.quantile(0.5), Some(s(20)));
        assert_eq!(durations.quantile(0.99), Some(s(30)));
        assert_eq!(durations.quantile(0.0), Some(s(10)));
        assert_eq!(durations.factor(s(60)), Some(2.0));
    }

    #[test]
    fn nothing_is_compared_with_nothing() {
        let none = Durations::default();
        assert_eq!(none.quantile(0.5), None);
        assert_eq!(none.factor(Duration::from_secs(1)), None);
        assert_eq!(none.histogram(Duration::from_secs(1)), None);
        let instant = Durations::of(&task(&[0, 0]), 0);
        assert_eq!(instant.factor(Duration::from_secs(1)), None);
        let (counts, here) = instant.histogram(Duration::ZERO).unwrap();
        assert_eq!((counts[0], here), (2, 0));
    }

    #[test]
    fn a_long_run_stands_far_to_the_right() {
        let durations = Durations::of(&task(&[40, 41, 45, 58]), 0);
        let (counts, here) = durations.histogram(Duration::from_secs(362)).unwrap();
        assert_eq!((counts.iter().sum::<u64>(), here), (4, COLUMNS - 1));
        assert!(counts[COLUMNS / 2..].iter().all(|count| *count == 0), "{counts:?}");
    }
}
