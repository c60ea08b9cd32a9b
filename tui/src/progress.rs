//! The progress of a piece of work: the model behind the screen.
//!
//! It holds what is known about each task, computes rates and decides whether a change has to be
//! drawn. It does not depend on a terminal, a clock or a store: readings arrive as events.
//!
//! ```text
//!            counts              entered
//! Waiting ───────────> Working ───────────> Finished | Failed
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use besom_core::time::Mono;

/// The span over which a rate is computed.
pub const RATE_WINDOW: Duration = Duration::from_secs(3);

/// Readings kept per task, for its rate.
pub const SAMPLES_MAX: usize = 64;

/// The counts of a task's items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items found.
    pub planned: u64,
    /// Items that ended: committed, skipped, discarded.
    pub done: u64,
    /// Items set aside as dead letters.
    pub dead: u64,
}

/// The phase of a task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Phase {
    /// It has not begun.
    #[default]
    Waiting,
    /// It is searching for items or executing them.
    Working,
    /// It has ended successfully.
    Finished,
    /// It has failed, for this reason.
    Failed(String),
}

impl Phase {
    /// The word for the phase.
    pub fn word(&self) -> &'static str {
        match self {
            Phase::Waiting => "waiting",
            Phase::Working => "working",
            Phase::Finished => "done",
            Phase::Failed(_) => "failed",
        }
    }
}

/// An input of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The current time.
    Tick(Mono),
    /// The current stage of the whole work, in a few words; empty: none.
    Stage(String),
    /// A task's new counts. A waiting task becomes a working one.
    Counted {
        /// The task's name.
        task: String,
        /// The counts since the start of the work.
        counts: Counts,
    },
    /// A task has entered another phase.
    Entered {
        /// The task's name.
        task: String,
        /// The phase.
        phase: Phase,
    },
}

/// A task and its progress.
#[derive(Debug, Clone)]
pub struct Task {
    name: String,
    phase: Phase,
    counts: Counts,
    /// The number of items that had ended or been set aside at each time, oldest first.
    samples: VecDeque<(Mono, u64)>,
}

impl Task {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its phase.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The counts of its items.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The fraction of its items that have ended, from 0 to 1; 1 for a finished task without items.
    pub fn ratio(&self) -> f64 {
        let through = self.through();
        match (self.counts.planned.max(through), &self.phase) {
            (0, Phase::Finished) => 1.0,
            (0, _) => 0.0,
            #[allow(clippy::cast_precision_loss, reason = "the length of a bar")]
            (all, _) => through as f64 / all as f64,
        }
    }

    /// Items per second during the last [`RATE_WINDOW`]; none while it is not working or too little
    /// is known.
    pub fn rate(&self) -> Option<f64> {
        let (&(first_at, first), &(last_at, last)) = (self.samples.front()?, self.samples.back()?);
        let span = last_at.since(first_at).as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
        (self.phase == Phase::Working && span > 0.0)
            .then(|| last.saturating_sub(first) as f64 / span)
    }

    fn through(&self) -> u64 {
        self.counts.done.saturating_add(self.counts.dead)
    }

    fn sample(&mut self, now: Mono) {
        let through = self.through();
        match self.samples.back_mut() {
            Some((at, count)) if *at == now => *count = through,
            _ => self.samples.push_back((now, through)),
        }
        // The oldest reading that covers the window is kept; otherwise the span would be too short.
        let covers = |(at, _): &(Mono, u64)| now.since(*at) >= RATE_WINDOW;
        while self.samples.len() > SAMPLES_MAX || self.samples.get(1).is_some_and(covers) {
            self.samples.pop_front();
        }
    }
}

/// The progress of a piece of work.
#[derive(Debug, Clone)]
pub struct Progress {
    tasks: Vec<Task>,
    stage: String,
    began: Option<Mono>,
    now: Mono,
}

impl Progress {
    /// The progress of these tasks, none of which has begun. They are shown in this order.
    pub fn new<N: Into<String>>(tasks: impl IntoIterator<Item = N>) -> Progress {
        let task = |name: N| Task {
            name: name.into(),
            phase: Phase::Waiting,
            counts: Counts::default(),
            samples: VecDeque::new(),
        };
        Progress {
            tasks: tasks.into_iter().map(task).collect(),
            stage: String::new(),
            began: None,
            now: Mono::START,
        }
    }

    /// Handles an event; returns whether the display has changed. Events about other tasks are
    /// ignored.
    pub fn update(&mut self, event: Event) -> bool {
        match event {
            Event::Tick(now) => {
                let before = self.elapsed().as_secs();
                self.began.get_or_insert(now);
                self.now = self.now.max(now);
                self.elapsed().as_secs() != before
            }
            Event::Stage(stage) => {
                let changed = self.stage != stage;
                self.stage = stage;
                changed
            }
            Event::Counted { task, counts } => {
                let now = self.now;
                let Some(task) = self.tasks.iter_mut().find(|t| t.name == task) else {
                    return false;
                };
                let began = task.phase == Phase::Waiting;
                if began {
                    task.phase = Phase::Working;
                }
                let changed = began || task.counts != counts;
                task.counts = counts;
                task.sample(now);
                changed
            }
            Event::Entered { task, phase } => {
                let Some(task) = self.tasks.iter_mut().find(|t| t.name == task) else {
                    return false;
                };
                let changed = task.phase != phase;
                task.phase = phase;
                changed
            }
        }
    }

    /// The tasks, in their order.
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// The current stage of the whole work; often empty.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// The time of the last tick.
    pub fn now(&self) -> Mono {
        self.now
    }

    /// How long the work has taken so far.
    pub fn elapsed(&self) -> Duration {
        self.now.since(self.began.unwrap_or(self.now))
    }
}

/// A whole number with thousands separators: `12,345`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A rate with about three digits: `0.4/s`, `12/s`, `1,234/s`.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is positive")]
pub(crate) fn per_second(rate: f64) -> String {
    match rate {
        slow if slow < 9.95 => format!("{slow:.1}/s"),
        fast => format!("{}/s", grouped(fast.round() as u64)),
    }
}

/// A duration in whole seconds: `7s`, `2m 05s`, `1h 00m 09s`.
pub(crate) fn span(d: Duration) -> String {
    let (hours, minutes, seconds) = (d.as_secs() / 3_600, d.as_secs() / 60 % 60, d.as_secs() % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m {seconds:02}s"),
        _ => format!("{hours}h {minutes:02}m {seconds:02}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn counted(planned: u64, done: u64, dead: u64) -> Event {
        Event::Counted { task: "a".into(), counts: Counts { planned, done, dead } }
    }

    #[test]
    fn a_task_works_from_its_first_count_until_it_is_told_otherwise() {
        let mut progress = Progress::new(["a", "b"]);
        assert_eq!(progress.tasks()[0].phase(), &Phase::Waiting);
        assert!(progress.update(counted(0, 0, 0)));
        assert_eq!(progress.tasks()[0].phase(), &Phase::Working);
        assert_eq!(progress.tasks()[1].phase(), &Phase::Waiting);
        progress.update(Event::Entered { task: "a".into(), phase: Phase::Finished });
        progress.update(counted(3, 3, 0));
        assert_eq!(progress.tasks()[0].phase(), &Phase::Finished);
    }

    #[test]
    fn only_what_can_be_seen_is_a_change() {
        let mut progress = Progress::new(["a"]);
        progress.update(counted(9, 1, 0));
        let stage = |text: &str| Event::Stage(text.into());
        for (event, changed) in [
            (counted(9, 1, 0), false),
            (counted(9, 2, 0), true),
            (stage("importing"), true),
            (stage("importing"), false),
            (Event::Tick(Mono(7 * SECOND)), false), // the beginning
            (Event::Tick(Mono(7 * SECOND + 400_000)), false),
            (Event::Tick(Mono(8 * SECOND)), true),
            (Event::Tick(Mono(6 * SECOND)), false), // never back
            (Event::Entered { task: "b".into(), phase: Phase::Finished }, false),
            (Event::Entered { task: "a".into(), phase: Phase::Working }, false),
            (Event::Entered { task: "a".into(), phase: Phase::Failed("x".into()) }, true),
        ] {
            let label = format!("{event:?}");
            assert_eq!(progress.update(event), changed, "{label}");
        }
        assert_eq!(progress.elapsed(), Duration::from_secs(1));
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut progress = Progress::new(["a"]);
        progress.update(Event::Tick(Mono(0)));
        progress.update(counted(1_000, 0, 0));
        assert_eq!(progress.tasks()[0].rate(), None, "one reading says nothing");
        for second in 1..=10 {
            progress.update(Event::Tick(Mono(second * SECOND)));
            // Slow for five seconds, then twenty a second, some of them dead letters.
            let fast = second.saturating_sub(5) * 20;
            progress.update(counted(1_000, second.min(5) + fast, 0));
        }
        assert_eq!(progress.tasks()[0].rate(), Some(20.0));
        progress.update(Event::Entered { task: "a".into(), phase: Phase::Finished });
        assert_eq!(progress.tasks()[0].rate(), None, "a task that is over has none");
    }

    #[test]
    fn readings_are_bounded_however_often_they_come() {
        let mut progress = Progress::new(["a"]);
        for reading in 0..10_000 {
            progress.update(Event::Tick(Mono(reading * 1_000)));
            progress.update(counted(10_000, reading, 0));
        }
        assert_eq!(progress.tasks()[0].samples.len(), SAMPLES_MAX);
        let rate = progress.tasks()[0].rate().unwrap();
        assert!((rate - 1_000.0).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn the_bar_is_never_longer_than_it_is() {
        for (planned, done, dead, ratio) in
            [(0, 0, 0, 0.0), (4, 1, 0, 0.25), (4, 1, 1, 0.5), (4, 3, 1, 1.0), (2, 5, 0, 1.0)]
        {
            let mut progress = Progress::new(["a"]);
            progress.update(counted(planned, done, dead));
            assert!((progress.tasks()[0].ratio() - ratio).abs() < 1e-9, "{planned} {done} {dead}");
        }
        let mut progress = Progress::new(["a"]);
        progress.update(Event::Entered { task: "a".into(), phase: Phase::Finished });
        assert!(progress.tasks()[0].ratio() > 0.99, "nothing to do is done");
    }

    #[test]
    fn numbers_are_written_to_be_read() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), text);
        }
        for (rate, text) in [(0.0, "0.0/s"), (9.94, "9.9/s"), (9.96, "10/s"), (1234.4, "1,234/s")] {
            assert_eq!(per_second(rate), text);
        }
        for (seconds, text) in [(0, "0s"), (59, "59s"), (125, "2m 05s"), (3_609, "1h 00m 09s")] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
