//! Shows the progress of tasks on stderr, counted from the store.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use besom_core::ids::{RunId, TaskName};
use besom_core::time::Time;
use besom_tui::dash::Options;
use besom_tui::{Counts, Phase, Progress, Screen};

use super::log::{self, Diverted};
use super::top;
use besom_engine::host::clock;
use besom_ports::store::Store;

/// Maximum number of runs read each time.
const RUNS: u32 = 200;
/// The part of the time that counting may take: it uses the database that the tasks use.
const COUNTING: u32 = 20;

/// The progress of tasks since the watch began.
pub struct Watch {
    progress: Progress,
    screen: Screen,
    lines: Option<Diverted>,
    since: Time,
    /// Waiting items and dead letters of each task when the watch began.
    base: BTreeMap<TaskName, (u64, u64)>,
    /// Items planned by each run since then.
    planned: BTreeMap<RunId, (TaskName, u64)>,
    /// When it was last counted, and how long that took.
    counted: (Instant, Duration),
}

impl Watch {
    /// Starts watching these tasks.
    pub async fn begin(store: &dyn Store, tasks: impl Iterator<Item = &TaskName>) -> Watch {
        let progress = Progress::new(tasks.map(ToString::to_string));
        let screen = Screen::start(&progress, top::themed(Options::default()).theme);
        let lines = screen.is_inline().then(log::divert);
        let base = waiting(store).await.unwrap_or_default();
        let since = store.now().await.unwrap_or_else(|_| clock::wall());
        let counted = (Instant::now(), Duration::ZERO);
        Watch { progress, screen, lines, since, base, planned: BTreeMap::new(), counted }
    }

    /// Counts again, unless that took long a moment ago, and draws.
    pub async fn look(&mut self, store: &dyn Store) {
        let (at, took) = self.counted;
        if at.elapsed() >= took * COUNTING {
            let begun = Instant::now();
            self.count(store).await;
            self.counted = (Instant::now(), begun.elapsed());
        }
        self.draw();
    }

    /// Counts again. If the store cannot be read, the counts stay as they were.
    async fn count(&mut self, store: &dyn Store) {
        if let Some(waiting) = waiting(store).await
            && let Ok(runs) = store.runs(None, RUNS).await
        {
            for run in runs.into_iter().filter(|run| run.started_at >= self.since) {
                if run.ended_at.is_none() {
                    self.progress.enter(run.task.as_str(), Phase::Working);
                }
                self.planned.insert(run.id, (run.task, run.planned));
            }
            let mut planned: BTreeMap<&TaskName, u64> = BTreeMap::new();
            for (task, count) in self.planned.values() {
                *planned.entry(task).or_default() += count;
            }
            for (task, (now, dead)) in &waiting {
                let (then, dead_then) = self.base.get(task).copied().unwrap_or_default();
                // Dead letters that a command has retried are work of the pass.
                let retried = dead_then.saturating_sub(*dead);
                let planned = planned.get(task).copied().unwrap_or(0) + then + retried;
                let dead = dead.saturating_sub(dead_then);
                let done = planned.saturating_sub(now + dead);
                self.progress.count(task.as_str(), Counts { planned, done, dead });
            }
        }
    }

    /// Draws the final state: every task is finished, except those in `failed` and in `stopped`.
    pub async fn finish(
        mut self,
        store: &dyn Store,
        failed: &BTreeMap<String, String>,
        stopped: &BTreeMap<String, String>,
    ) {
        self.count(store).await;
        self.progress.finish(|task| {
            let stopped = || stopped.get(task).cloned().map(Phase::Stopped);
            failed.get(task).cloned().map(Phase::Failed).or_else(stopped)
        });
        self.draw();
    }

    fn draw(&mut self) {
        self.progress.tick(clock::mono());
        let said: Vec<String> = self.lines.iter().flat_map(Diverted::take).collect();
        // A closed terminal must not stop the work.
        for line in said {
            let _ = self.screen.say(&line);
        }
        let _ = self.screen.draw(&mut self.progress);
    }
}

/// Returns the waiting items, including timers, and the dead letters of each task.
async fn waiting(store: &dyn Store) -> Option<BTreeMap<TaskName, (u64, u64)>> {
    let depths = store.depths().await.ok()?;
    let by_task = depths.into_iter().filter_map(|depth| {
        Some((depth.task?, (depth.log + depth.retries + depth.timers, depth.dead)))
    });
    Some(by_task.collect())
}
