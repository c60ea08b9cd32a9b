//! Reads the store incrementally: data that cannot have changed is not read again, such as ended
//! runs and the slots of tasks without new decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::{RunId, TaskName};
use besom_core::plan::{ScanEnd, SlotRecord, TaskState};
use besom_core::time::Time;
use besom_snapshot::{
    DEAD_GROUPS_MAX, DeadGroup, HeldBack, RUNS_JUDGED, RUNS_OF_TASK, RefusedPlan, SLOTS_OF_TASK,
    TOPICS_MAX, Topic,
};

use super::Sources;
use super::held_back::{self, Undone};
use super::reading::{Reading, SetAside};
use super::refused::{refused_of, standing};
use besom_ports::store::{self, DeadSelector, Depth, Letters, ReviewQuery, Run, Store};

/// Maximum number of runs kept of all tasks together.
const RUNS_KEPT: usize = 5_000;
/// Number of runs read initially.
const RUNS_FIRST: u32 = 1_000;
/// Number of runs read each time; more if all of them are new.
const RUNS_AGAIN: u32 = 16;
/// How far back slots are shown, at least; it reaches to the last scan.
const SLOTS_BACK: Duration = Duration::from_secs(2 * 3_600);

/// Maximum number of leaderships shown.
const TERMS: u32 = 50;
/// Maximum number of reviews that wait.
const REVIEWS: u32 = 100;
/// Maximum number of commands shown as events.
const COMMANDS: u32 = 50;
/// Maximum number of dead letters shown as events.
const LETTERS: u32 = 50;

/// What is kept between readings.
#[derive(Debug, Default)]
pub struct Cache {
    runs: BTreeMap<u64, Arc<besom_snapshot::Run>>,
    /// Tasks whose own latest runs were read. The runs of a rarely scheduled task may be older than
    /// the newest runs of all tasks.
    tasks: BTreeSet<TaskName>,
    slots: BTreeMap<TaskName, (TaskState, Vec<SlotRecord>)>,
    /// What the database refuses of plans that were discarded, by the number of the run.
    refused: BTreeMap<u64, Option<RefusedPlan>>,
    undone: Undone,
    /// The newest dead letters, and the groups that existed when they were read.
    letters: (Vec<DeadGroup>, Vec<SetAside>),
}

impl Cache {
    /// Reads everything.
    ///
    /// # Errors
    /// Those of the store. Unavailable coordination is part of the result.
    pub async fn read(&mut self, sources: &Sources) -> store::Result<Reading> {
        let store = sources.store.as_ref();
        let now = store.now().await?;
        let (fence, leader, members, nodes, depths, states) = tokio::join!(
            store.fence(),
            sources.coordination.leader(),
            members(sources),
            store.nodes(),
            store.depths(),
            store.task_states(),
        );
        let waiting = ReviewQuery { waiting: true, limit: REVIEWS, ..ReviewQuery::default() };
        let (partitions, backlog, dead, terms, commands, reviews, topics) = tokio::join!(
            store.partition_table(),
            store.backlog(None),
            store.dead_groups(DEAD_GROUPS_MAX as u32),
            store.terms(TERMS),
            store.commands(None, COMMANDS),
            store.reviews(&waiting),
            store.outbox_topics(TOPICS_MAX as u32, Topic::COUNT_MAX),
        );
        let states: BTreeMap<_, _> = states?.into_iter().map(|s| (s.task.clone(), s)).collect();
        self.read_runs(store).await?;
        let configured = sources.defined.borrow().work.tasks.keys().cloned().collect();
        self.read_rare(store, configured).await?;
        self.forget_runs();
        let refused = self.read_refused(store).await?;
        let depths = depths?;
        let held_back = self.read_held_back(store, &depths).await?;
        self.read_slots(store, &states, now).await?;
        let dead = dead?;
        self.read_letters(store, &dead).await?;
        Ok(Reading {
            now,
            fence: fence?,
            leader_fault: leader.as_ref().err().map(ToString::to_string),
            leader: leader.ok().flatten(),
            members,
            nodes: nodes?,
            partitions: partitions?,
            backlog: backlog?,
            depths,
            states,
            reviews: reviews?,
            refused,
            held_back,
            runs: self.runs.values().rev().cloned().collect(),
            slots: self
                .slots
                .iter()
                .map(|(task, (_, slots))| (task.clone(), slots.clone()))
                .collect(),
            dead,
            letters: self.letters.1.clone(),
            topics: topics?,
            terms: terms?,
            commands: commands?,
        })
    }

    async fn read_runs(&mut self, store: &dyn Store) -> store::Result<()> {
        let known = self.runs.keys().next_back().copied();
        let mut newest =
            store.runs(None, if known.is_some() { RUNS_AGAIN } else { RUNS_FIRST }).await?;
        if let Some(known) = known
            && newest.len() == RUNS_AGAIN as usize
            && newest.iter().all(|run| run.id.0 > known)
        {
            newest = store.runs(None, RUNS_FIRST).await?;
        }
        let active = store.active_runs().await?;
        let was_active: Vec<u64> =
            self.runs.iter().filter(|(_, run)| run.state.is_active()).map(|(id, _)| *id).collect();
        for run in newest.iter().chain(&active) {
            self.note(store, run).await?;
        }
        // Runs that have ended since and are not among the newest.
        for id in was_active {
            let read = newest.iter().chain(&active).any(|run| run.id.0 == id);
            if !read {
                match store.run(RunId(id)).await? {
                    Some(run) => self.note(store, &run).await?,
                    None => drop(self.runs.remove(&id)),
                }
            }
        }
        Ok(())
    }

    /// Reads the latest runs of newly configured tasks, regardless of their age.
    async fn read_rare(
        &mut self,
        store: &dyn Store,
        tasks: BTreeSet<TaskName>,
    ) -> store::Result<()> {
        self.tasks.retain(|task| tasks.contains(task));
        for task in tasks {
            if !self.tasks.contains(&task) {
                for run in store.runs(Some(&task), RUNS_JUDGED).await? {
                    self.note(store, &run).await?;
                }
                self.tasks.insert(task);
            }
        }
        Ok(())
    }

    /// Reads the reviews of tasks whose last run has ended and was never released. They do not change any more.
    async fn read_refused(
        &mut self,
        store: &dyn Store,
    ) -> store::Result<BTreeMap<TaskName, RefusedPlan>> {
        let mut last: BTreeMap<&str, &Arc<besom_snapshot::Run>> = BTreeMap::new();
        for run in self.runs.values().rev().filter(|run| !run.state.is_active()) {
            last.entry(&run.task).or_insert(run);
        }
        let mut known = BTreeMap::new();
        for run in last.into_values().filter(|run| run.held) {
            let refused = match self.refused.remove(&run.id) {
                Some(refused) => refused,
                None => refused_of(store, RunId(run.id)).await?,
            };
            known.insert(run.id, refused);
        }
        self.refused = known;
        let refused = self.refused.values().flatten().cloned();
        let task = |run: RunId| self.runs.get(&run.0).map(|run| TaskName::from(run.task.as_str()));
        Ok(refused.filter_map(|refused| Some((task(refused.run)?, refused))).collect())
    }

    /// Reads what undos hold back of the tasks whose last run has left out candidates.
    async fn read_held_back(
        &mut self,
        store: &dyn Store,
        depths: &[Depth],
    ) -> store::Result<BTreeMap<TaskName, HeldBack>> {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for run in self.runs.values().rev() {
            last.entry(&run.task).or_insert(run.blocked);
        }
        last.retain(|_, blocked| *blocked > 0);
        let mut held_back = BTreeMap::new();
        if last.is_empty() {
            return Ok(held_back);
        }
        let commands = store.commands(None, held_back::COMMANDS).await?;
        for (task, blocked) in last {
            let task = TaskName::from(task);
            let depth = depths.iter().find(|depth| depth.task.as_ref() == Some(&task));
            let blocked = (blocked, depth.map_or(0, |depth| depth.dead));
            if let Some(held) = self.undone.holds(store, &commands, &task, blocked).await? {
                held_back.insert(task, held);
            }
        }
        Ok(held_back)
    }

    /// Reads the newest dead letters if their groups have changed.
    async fn read_letters(&mut self, store: &dyn Store, groups: &[DeadGroup]) -> store::Result<()> {
        if self.letters.0 != groups {
            let all = DeadSelector::default();
            let found = store.dead_letters(&all, Letters::Open, None, LETTERS);
            let short = |letter: store::DeadLetter| SetAside {
                at: letter.at,
                task: letter.item.identity.task.to_string(),
                error: letter.item.errors.into_iter().next_back().unwrap_or_default(),
            };
            let letters = found.await?.into_iter().map(short).collect();
            self.letters = (groups.to_vec(), letters);
        }
        Ok(())
    }

    /// Removes the oldest runs if there are too many, but keeps the latest of each task.
    fn forget_runs(&mut self) {
        let mut over = self.runs.len().saturating_sub(RUNS_KEPT);
        if over == 0 {
            return;
        }
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut old = Vec::new();
        for (id, run) in self.runs.iter().rev() {
            let of_task = seen.entry(run.task.clone()).or_default();
            *of_task += 1;
            if *of_task > RUNS_JUDGED as usize && !run.state.is_active() {
                old.push(*id);
            }
        }
        for id in old.into_iter().rev() {
            if over == 0 {
                break;
            }
            self.runs.remove(&id);
            over -= 1;
        }
    }

    async fn note(&mut self, store: &dyn Store, run: &Run) -> store::Result<()> {
        let known = self.runs.get(&run.id.0);
        let run = match known.filter(|known| known.ended_at == run.ended_at) {
            // Its review does not change any more.
            Some(known) if run.ended_at.is_some() => {
                let state = known.state;
                besom_snapshot::Run { state, ..besom_snapshot::Run::from(run) }
            }
            _ => standing(store, run).await?,
        };
        if known.is_none_or(|known| **known != run) {
            self.runs.insert(run.id, Arc::new(run));
        }
        Ok(())
    }

    /// The slot of the last complete scan of a task; if none is known, that of its oldest run.
    fn scanned(&self, task: &TaskName) -> Option<Time> {
        let runs = || self.runs.values().filter(|run| run.task == task.as_str());
        let complete =
            |run: &&Arc<besom_snapshot::Run>| run.scan().ended == Some(ScanEnd::Complete);
        Some(runs().rfind(complete).or_else(|| runs().next())?.slot)
    }

    async fn read_slots(
        &mut self,
        store: &dyn Store,
        states: &BTreeMap<TaskName, TaskState>,
        now: Time,
    ) -> store::Result<()> {
        self.slots.retain(|task, _| states.contains_key(task));
        for (task, state) in states {
            if self.slots.get(task).is_some_and(|(known, _)| known == state) {
                continue;
            }
            let back = Time(now.0.saturating_sub(SLOTS_BACK.as_micros() as i64));
            let back = self.scanned(task).map_or(back, |scanned| back.min(scanned));
            let slots = store.slots(task, back, now, SLOTS_OF_TASK as u32).await?;
            self.slots.insert(task.clone(), (state.clone(), slots));
        }
        Ok(())
    }
}

async fn members(sources: &Sources) -> Option<besom_ports::members::Membership> {
    sources.members.as_ref()?.members().await.ok()
}

/// The 99th percentile of the durations of the last runs of each task, in milliseconds. `runs` is
/// sorted newest first. A task without a successful run is omitted.
pub fn p99_ms(runs: &[Arc<besom_snapshot::Run>]) -> BTreeMap<&str, u64> {
    let mut took: BTreeMap<&str, (usize, Vec<u64>)> = BTreeMap::new();
    for run in runs {
        let (seen, of_task) = took.entry(&run.task).or_default();
        *seen += 1;
        if *seen <= RUNS_JUDGED as usize
            && run.error.is_none()
            && let Some(took) = run.took()
        {
            of_task.push(took.as_millis() as u64);
        }
    }
    let rank = |(_, mut took): (usize, Vec<u64>)| {
        took.sort_unstable();
        took.get((took.len() * 99).div_ceil(100).checked_sub(1)?).copied()
    };
    took.into_iter().filter_map(|(task, took)| Some((task, rank(took)?))).collect()
}

/// The summary of a run for its task.
pub fn last_run(run: &besom_snapshot::Run) -> besom_snapshot::LastRun {
    besom_snapshot::LastRun {
        stood: false,
        mode: run.mode,
        id: run.id,
        slot: run.slot,
        started_at: run.started_at,
        ended_at: run.ended_at,
        state: run.state,
        planned: run.planned,
    }
}

/// The latest runs of each task, oldest first. `runs` is sorted newest first.
pub fn by_task(runs: &[Arc<besom_snapshot::Run>]) -> BTreeMap<&str, Vec<besom_snapshot::LastRun>> {
    let mut last: BTreeMap<&str, Vec<besom_snapshot::LastRun>> = BTreeMap::new();
    for run in runs {
        let of_task = last.entry(&run.task).or_default();
        if of_task.len() < RUNS_OF_TASK {
            of_task.push(last_run(run));
        }
    }
    last.values_mut().for_each(|runs| runs.reverse());
    last
}
