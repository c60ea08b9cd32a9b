//! The progress of a bounded piece of work, such as `besom run`: the model behind the
//! [`Screen`](crate::Screen).
//!
//! It holds what is known about each task and computes rates. It does not depend on a terminal, a
//! clock or a store: readings are given to it.
//!
//! ```text
//!            counts              entered
//! Waiting ───────────> Working ───────────> Finished | Failed
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use besom_core::time::Mono;

use crate::dash::table::{Cell, Column, Emphasis, Width, plain};
use crate::dash::text;

/// The span over which a rate is computed.
pub const RATE_WINDOW: Duration = Duration::from_secs(3);

/// Readings kept per task, for its rate.
pub const SAMPLES_MAX: usize = 64;

/// How often the progress of a working task is reported as a line.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// The width of the bar.
const BAR: u16 = 10;

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
    /// It was stopped before all of its items had ended, for this reason.
    Stopped(String),
    /// It has failed, for this reason.
    Failed(String),
}

impl Phase {
    /// The word for the phase.
    fn word(&self) -> &'static str {
        match self {
            Phase::Waiting => "waiting",
            Phase::Working => "working",
            Phase::Finished => "done",
            Phase::Stopped(_) => "stopped",
            Phase::Failed(_) => "failed",
        }
    }

    /// How it is emphasised.
    fn emphasis(&self) -> Emphasis {
        match self {
            Phase::Waiting => Emphasis::Dim,
            Phase::Working => Emphasis::Accent,
            Phase::Finished => Emphasis::Good,
            Phase::Stopped(_) => Emphasis::Warn,
            Phase::Failed(_) => Emphasis::Bad,
        }
    }
}

/// A task and its progress.
#[derive(Debug, Clone)]
pub struct Task {
    name: String,
    phase: Phase,
    counts: Counts,
    /// The number of items that had ended or been set aside at each time, oldest first.
    samples: VecDeque<(Mono, u64)>,
    /// The phase that was reported as a line, and when.
    said: (Phase, Mono),
}

type Col = Column<Task>;

/// The columns on a terminal.
pub(crate) const COLUMNS: &[Col] = &[
    Col::left("TASK", Width::Fill(19), 0, |task, _| plain(&task.name)),
    Col::left("STATE", Width::Fixed(7), 0, |task, _| {
        (task.phase.word().to_owned(), task.phase.emphasis())
    }),
    Col::left("PROGRESS", Width::Fixed(BAR), 4, |task, _| {
        (bar(task.ratio(), BAR), task.phase.emphasis())
    }),
    Col::right("DONE", Width::Fixed(15), 1, |task, _| {
        let Counts { planned, done, .. } = task.counts;
        plain(format!("{}/{}", text::grouped(done), text::grouped(planned)))
    }),
    Col::right("RATE", Width::Fixed(7), 3, |task, _| plain(task.per_second().unwrap_or_default())),
    Col::left("", Width::Fill(12), 2, |task, _| task.aside()),
];

impl Task {
    /// The fraction of its items that have ended, from 0 to 1; 1 for a finished task without items.
    fn ratio(&self) -> f64 {
        let through = self.through();
        match (self.counts.planned.max(through), &self.phase) {
            (0, Phase::Finished) => 1.0,
            (0, _) => 0.0,
            (all, _) => through as f64 / all as f64,
        }
    }

    /// Items per second during the last [`RATE_WINDOW`]; none while it is not working or too little
    /// is known.
    fn rate(&self) -> Option<f64> {
        let (&(first_at, first), &(last_at, last)) = (self.samples.front()?, self.samples.back()?);
        let span = last_at.since(first_at).as_secs_f64();
        (self.phase == Phase::Working && span > 0.0)
            .then(|| last.saturating_sub(first) as f64 / span)
    }

    fn per_second(&self) -> Option<String> {
        Some(format!("{}/s", text::rate(Some(self.rate()?))))
    }

    /// How many items were set aside, or why the task has failed.
    fn aside(&self) -> Cell {
        match (&self.phase, self.counts.dead) {
            (Phase::Failed(why) | Phase::Stopped(why), _) => (why.clone(), self.phase.emphasis()),
            (_, 0) => plain(""),
            (_, dead) => (format!("{} set aside", text::grouped(dead)), Emphasis::Warn),
        }
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

    fn line(&self) -> String {
        let Counts { planned, done, dead } = self.counts;
        let (done, planned) = (text::grouped(done), text::grouped(planned));
        let mut line = format!("{}: {}, {done} of {planned}", self.name, self.phase.word());
        if dead > 0 {
            line += &format!(", {} set aside", text::grouped(dead));
        }
        if let Some(rate) = self.per_second() {
            line += &format!(", {rate}");
        }
        let wait = self.counts.planned.saturating_sub(self.through());
        if self.phase == Phase::Finished && wait > 0 {
            line += &format!(", {} wait", text::grouped(wait));
        }
        if let Phase::Failed(reason) | Phase::Stopped(reason) = &self.phase {
            line += &format!(": {reason}");
        }
        line
    }
}

/// A bar in eighths of a column; the missing part is drawn as well, so that its length is visible
/// without colour.
fn bar(ratio: f64, columns: u16) -> String {
    crate::dash::widgets::bar::bar(ratio, columns).replace(' ', "·")
}

/// The progress of a piece of work.
#[derive(Debug, Clone)]
pub struct Progress {
    tasks: Vec<Task>,
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
            said: (Phase::Waiting, Mono::START),
        };
        Progress { tasks: tasks.into_iter().map(task).collect(), began: None, now: Mono::START }
    }

    /// Sets the current time.
    pub fn tick(&mut self, now: Mono) {
        self.began.get_or_insert(now);
        self.now = self.now.max(now);
    }

    /// Sets a task's counts since the start of the work. A waiting task becomes a working one;
    /// counts of other tasks are ignored.
    pub fn count(&mut self, task: &str, counts: Counts) {
        let now = self.now;
        let Some(task) = self.tasks.iter_mut().find(|known| known.name == task) else { return };
        if task.phase == Phase::Waiting {
            task.phase = Phase::Working;
        }
        task.counts = counts;
        task.sample(now);
    }

    /// A task has entered another phase.
    pub fn enter(&mut self, task: &str, phase: Phase) {
        if let Some(task) = self.tasks.iter_mut().find(|known| known.name == task) {
            task.phase = phase;
        }
    }

    /// Every task has ended successfully, except these, each with how it has ended.
    pub fn finish(&mut self, otherwise: impl Fn(&str) -> Option<Phase>) {
        for task in &mut self.tasks {
            task.phase = otherwise(&task.name).unwrap_or(Phase::Finished);
        }
    }

    /// The tasks, in their order.
    pub(crate) fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// How long the work has taken so far.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now.since(self.began.unwrap_or(self.now))
    }

    /// The progress as lines, for pipes, logs and screen readers: a line when a task begins, when
    /// it ends and, while it works, every five seconds.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        let now = self.now;
        let due = |task: &&mut Task| {
            let again = task.phase == Phase::Working && now.since(task.said.1) >= SAY_EVERY;
            task.phase != task.said.0 || again
        };
        let told = self.tasks.iter_mut().filter(due).map(|task| {
            task.said = (task.phase.clone(), now);
            task.line()
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn counts(planned: u64, done: u64, dead: u64) -> Counts {
        Counts { planned, done, dead }
    }

    #[test]
    fn a_task_works_from_its_first_count_until_it_is_told_otherwise() {
        let mut progress = Progress::new(["a", "b"]);
        progress.count("a", counts(0, 0, 0));
        assert_eq!(progress.tasks[0].phase, Phase::Working);
        assert_eq!(progress.tasks[1].phase, Phase::Waiting);
        progress.enter("a", Phase::Finished);
        progress.count("a", counts(3, 3, 0));
        assert_eq!(progress.tasks[0].phase, Phase::Finished);
    }

    #[test]
    fn the_last_line_says_why_items_are_left() {
        let mut progress = Progress::new(["a", "b"]);
        ["a", "b"].iter().for_each(|task| progress.count(task, counts(7, 5, 0)));
        progress.finish(|task| (task == "a").then(|| Phase::Stopped("a brake".into())));
        assert_eq!(progress.lines(), ["a: stopped, 5 of 7: a brake", "b: done, 5 of 7, 2 wait"]);
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut progress = Progress::new(["a"]);
        progress.tick(Mono(0));
        progress.count("a", counts(1_000, 0, 0));
        assert_eq!(progress.tasks[0].rate(), None, "one reading says nothing");
        for second in 1..=10 {
            progress.tick(Mono(second * SECOND));
            // Slow for five seconds, then twenty a second, some of them dead letters.
            let fast = second.saturating_sub(5) * 20;
            progress.count("a", counts(1_000, second.min(5) + fast, 0));
        }
        assert_eq!(progress.tasks[0].rate(), Some(20.0));
        progress.tick(Mono(6 * SECOND));
        assert_eq!(progress.elapsed(), Duration::from_secs(10), "never back");
        progress.enter("a", Phase::Finished);
        assert_eq!(progress.tasks[0].rate(), None, "a task that is over has none");
    }

    #[test]
    fn readings_are_bounded_however_often_they_come() {
        let mut progress = Progress::new(["a"]);
        for reading in 0..10_000 {
            progress.tick(Mono(reading * 1_000));
            progress.count("a", counts(10_000, reading, 0));
        }
        assert_eq!(progress.tasks[0].samples.len(), SAMPLES_MAX);
        let rate = progress.tasks[0].rate().unwrap();
        assert!((rate - 1_000.0).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn the_bar_is_never_longer_than_it_is() {
        for (planned, done, dead, shown) in [
            (0, 0, 0, "····"),
            (4, 1, 0, "█···"),
            (4, 1, 1, "██··"),
            (4, 3, 1, "████"),
            (2, 5, 0, "████"),
            (160, 5, 0, "▏···"),
        ] {
            let mut progress = Progress::new(["a"]);
            progress.count("a", counts(planned, done, dead));
            assert_eq!(bar(progress.tasks[0].ratio(), 4), shown, "{planned} {done} {dead}");
        }
        let mut progress = Progress::new(["a"]);
        progress.enter("a", Phase::Finished);
        assert!(progress.tasks[0].ratio() > 0.99, "nothing to do is done");
    }

    #[test]
    fn a_task_speaks_when_its_phase_changes_and_now_and_then() {
        let mut progress = Progress::new(["compaction", "share-expiry"]);
        let mut check = |expected: &[&str], step: &dyn Fn(&mut Progress)| {
            step(&mut progress);
            assert_eq!(progress.lines(), expected);
            assert_eq!(progress.lines(), Vec::<String>::new(), "said once: {expected:?}");
        };
        check(&[], &|_| ());
        check(&["compaction: working, 0 of 1,200"], &|progress| {
            progress.tick(Mono(SECOND));
            progress.count("compaction", counts(1_200, 0, 0));
        });
        check(&[], &|progress| {
            progress.tick(Mono(4 * SECOND));
            progress.count("compaction", counts(1_200, 30, 0));
        });
        check(&["compaction: working, 300 of 1,200, 1 set aside, 60.2/s"], &|progress| {
            progress.tick(Mono(6 * SECOND));
            progress.count("compaction", counts(1_200, 300, 1));
        });
        check(&["compaction: done, 1,199 of 1,200, 1 set aside"], &|progress| {
            progress.enter("compaction", Phase::Finished);
            progress.count("compaction", counts(1_200, 1_199, 1));
        });
        check(&["share-expiry: failed, 0 of 0: the store is unavailable"], &|progress| {
            progress.tick(Mono(60 * SECOND));
            let failed = Phase::Failed("the store is unavailable".into());
            progress.enter("share-expiry", failed);
        });
    }
}
