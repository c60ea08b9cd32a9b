//! Measures what the product feels while tasks that yield are changing rows, and keeps their paces.
//!
//! Whether a pace rises or falls is decided in [`besom_core::pace`]. While no such task works, nothing is
//! measured.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::pace::{INTERVAL, Pace, SAMPLES};
use besom_core::time::{Mono, Time};
use besom_ports::store::{Allowance, Store, Strain};
use besom_ports::task::TaskDefinition;
use besom_snapshot::Paced;
use tokio::sync::Notify;

/// How long after its last request for rows a task counts as working.
const WORKS_FOR: Duration = Duration::from_secs(10);

/// The paces of the tasks that yield.
#[derive(Debug, Default)]
pub struct Pacing {
    tasks: Mutex<BTreeMap<TaskName, Tracked>>,
    works: Notify,
}

#[derive(Debug)]
struct Tracked {
    pace: Pace,
    collections: Vec<String>,
    works_until: Mono,
    /// Work has waited for the pace in this interval.
    was_limit: bool,
    /// The strain of the last interval, and when it ended.
    last: Option<(Strain, Time)>,
}

impl Pacing {
    fn tasks(&self) -> MutexGuard<'_, BTreeMap<TaskName, Tracked>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows per second that a task may change now; `None`: as many as it can.
    pub fn allowed(&self, definition: &TaskDefinition, now: Mono) -> Option<NonZeroU32> {
        let ceiling = definition.rows_per_second;
        let Some(yielding) = definition.yields else { return ceiling };
        let changes = definition.grants.iter().filter(|(_, of)| of.update || of.delete);
        let mut tasks = self.tasks();
        let tracked = tasks.entry(definition.name.clone()).or_insert_with(|| Tracked {
            pace: Pace::new(yielding, ceiling),
            collections: Vec::new(),
            works_until: now,
            was_limit: false,
            last: None,
        });
        tracked.pace.set(yielding, ceiling);
        tracked.collections = changes.map(|(name, _)| name.clone()).collect();
        tracked.works_until = tracked.works_until.max(now + WORKS_FOR);
        self.works.notify_one();
        Some(tracked.pace.allowed())
    }

    /// Records the answer to a request for rows.
    pub fn answered(&self, task: &TaskName, answer: Allowance, (wall, now): (Time, Mono)) {
        if let (Allowance::NotBefore(at), Some(tracked)) = (answer, self.tasks().get_mut(task)) {
            tracked.was_limit = true;
            tracked.works_until = tracked.works_until.max(now + at.since(wall) + WORKS_FOR);
        }
    }

    /// The collections of the tasks that work; none: no task does.
    pub fn worked_on(&self, now: Mono) -> Option<Vec<String>> {
        let tasks = self.tasks();
        let works = tasks.values().filter(|tracked| tracked.works_until > now);
        let mut works = works.peekable();
        works.peek()?;
        let all: BTreeSet<&String> = works.flat_map(|tracked| &tracked.collections).collect();
        Some(all.into_iter().cloned().collect())
    }

    /// Ends an interval of the tasks that work, in which they strained the database so.
    pub fn step(&self, strain: &Strain, (wall, now): (Time, Mono)) {
        for (task, tracked) in self.tasks().iter_mut() {
            if tracked.works_until <= now {
                continue;
            }
            let before = tracked.pace.fallen();
            tracked.pace.step(strain, std::mem::take(&mut tracked.was_limit));
            tracked.last = Some((*strain, wall));
            if let (None, Some(sign)) = (before, tracked.pace.fallen()) {
                let allowed = tracked.pace.allowed();
                tracing::info!(%task, rows_per_second = allowed, "the task yields: {sign}");
            }
        }
    }

    /// The paces of the tasks that work, for the node's report.
    pub fn report(&self, now: Mono) -> Vec<Paced> {
        let micros = |felt: Option<Duration>| felt.map(|felt| felt.as_micros() as u64);
        let of = |(task, tracked): (&TaskName, &Tracked)| {
            let (strain, at) = tracked.last.unwrap_or_default();
            let yielding = tracked.pace.yielding();
            Paced {
                task: task.to_string(),
                rows_per_second: tracked.pace.allowed().get(),
                floor: tracked.pace.floor(),
                ceiling: tracked.pace.ceiling().map(NonZeroU32::get),
                reason: tracked.pace.fallen(),
                latency_us: micros(strain.latency),
                lock_wait_us: micros(strain.lock_wait),
                lag_us: micros(strain.lag),
                latency_max_us: yielding.latency.as_micros() as u64,
                lag_max_us: yielding.lag.as_micros() as u64,
                measured_at: tracked.last.is_some().then_some(at),
            }
        };
        self.tasks().iter().filter(|(_, tracked)| tracked.works_until > now).map(of).collect()
    }

    /// Measures while tasks that yield work, until it is dropped.
    pub async fn watch(self: Arc<Self>, store: Arc<dyn Store>) {
        loop {
            let now = || (super::clock::wall(), super::clock::mono());
            let Some(collections) = self.worked_on(now().1) else {
                self.works.notified().await;
                // What has gathered while nobody looked is not of this interval.
                let _ = store.strain(&[]).await;
                continue;
            };
            let mut worst = Strain::default();
            for _ in 0..SAMPLES {
                tokio::time::sleep(INTERVAL / SAMPLES).await;
                match store.strain(&collections).await {
                    Ok(strain) => worst = worst.worst(strain),
                    Err(error) => tracing::debug!(%error, "the strain cannot be measured"),
                }
            }
            self.step(&worst, now());
        }
    }
}

#[cfg(test)]
mod tests {
    use besom_core::pace::{Sign, Yielding};

    use super::*;

    fn definition() -> TaskDefinition {
        let floor = NonZeroU32::new(100).expect("a floor");
        let yields = Yielding { latency: Duration::from_millis(20), lag: Duration::ZERO, floor };
        TaskDefinition {
            name: "sweep".into(),
            rows_per_second: NonZeroU32::new(400),
            yields: Some(yields),
            ..super::super::undo::definition(std::iter::empty())
        }
    }

    #[test]
    fn a_pace_follows_the_strain_while_its_task_works() {
        let (pacing, of, start) = (Pacing::default(), definition(), Mono(0));
        let felt = |ms| Strain { latency: Some(Duration::from_millis(ms)), ..Strain::default() };
        let allowed = || pacing.allowed(&of, start).map(NonZeroU32::get);
        let step = |ms| pacing.step(&felt(ms), (Time::EPOCH, start));
        assert_eq!((pacing.worked_on(start), allowed()), (None, Some(100)));
        (0..3).for_each(|_| step(5));
        assert_eq!(allowed(), Some(400));
        step(50);
        let [shown] = pacing.report(start).try_into().expect("one task");
        assert_eq!((shown.rows_per_second, shown.reason), (200, Some(Sign::Latency)));
        assert_eq!((shown.latency_us, shown.ceiling), (Some(50_000), Some(400)));
        (0..9).for_each(|_| step(5));
        assert_eq!((allowed(), pacing.report(start)[0].reason), (Some(400), None));
        assert!(pacing.worked_on(start + WORKS_FOR).is_none(), "it has stopped");
        assert_eq!(pacing.report(start + WORKS_FOR), []);
        pacing.answered(&of.name, Allowance::NotBefore(Time::from_secs(60)), (Time::EPOCH, start));
        assert!(pacing.worked_on(start + WORKS_FOR).is_some(), "it waits for its pace");
    }

    #[test]
    fn a_task_that_does_not_yield_has_its_budget_and_no_pace() {
        let (pacing, of) = (Pacing::default(), TaskDefinition { yields: None, ..definition() });
        assert_eq!(pacing.allowed(&of, Mono(0)), NonZeroU32::new(400));
        assert_eq!(pacing.report(Mono(0)), []);
    }
}
