//! The invariants of a world, one in each file.
//!
//! An invariant sees every message that a node sends and every command that was carried out, and at the
//! end the world at rest. It says in words what is wrong; the world adds its name, the seed and the step.

mod brakes;
mod commands;
mod conservation;
mod definitions;
mod deliveries;
mod drained;
mod early;
mod effects;
mod fences;
mod leader;
mod leader_per_term;
mod messages;
mod owners;
mod paces;
mod pauses;
mod rings;
mod silence;
mod slots;
mod streams;
mod terms;
mod undo;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use besom_core::delivery::Claimed;
use besom_core::ids::{Incarnation, OwnerEpoch, Partition, RunId, TaskName, Tenant, Term};
use besom_core::time::Time;
use besom_core::undo::Target;
use besom_core::value::{Row, Value};
use besom_doubles::store::MemoryStore;
use besom_node::{Command, Event};
use besom_ports::store::{HistoryQuery, HistoryRow, ReadView, Store as _};
use futures::FutureExt as _;

use super::faults::STORE_CLOCK_MOST;
use super::script::Called;

/// By how much two times of the store may be in the wrong order: its clock jumps.
const CLOCK_SLACK: Duration = STORE_CLOCK_MOST.saturating_mul(2);

/// What an invariant sees while the world moves.
pub enum Step<'a> {
    /// A node sends a command.
    Sent {
        /// The node.
        node: &'a Incarnation,
        /// What it sends.
        command: &'a Command,
        /// How long the node may still rely on its lease; `None`: it holds none.
        lease_left: Option<Duration>,
        /// Whether the nodes share the partitions, so that those execute that do not lead.
        cluster: bool,
    },
    /// A command was carried out, whether or not its sender learns it.
    Performed {
        /// What was carried out.
        command: &'a Command,
        /// The answer, whether or not its sender receives it.
        answer: Option<&'a Event>,
        /// When, by the true time.
        at: Time,
        /// The store after it.
        store: &'a MemoryStore,
        /// The calls of plugins that belong to it.
        called: &'a [Called],
    },
    /// A node has begun to lead.
    Leads {
        /// The node.
        node: &'a Incarnation,
        /// Its term.
        term: Term,
    },
    /// The store's content was replaced by that of a backup.
    Restored,
    /// The store's clock was set.
    ClockJumped,
    /// The receiver has taken a message, whether or not its sender learns it.
    Received {
        /// The message.
        message: &'a Claimed,
        /// The store.
        store: &'a MemoryStore,
    },
}

/// What an invariant sees at the end.
pub struct Rest<'a> {
    /// The store.
    pub store: &'a MemoryStore,
    /// What the product has created, as far as no restored backup has lost it.
    pub made: &'a Made,
    /// The nodes.
    pub nodes: &'a [NodeAtRest],
    /// Whether the nodes share the partitions.
    pub cluster: bool,
    /// When a request of a host for a pause did not reach the store, by the true time.
    pub lost: &'a [Time],
}

/// A node of a world at rest.
pub struct NodeAtRest {
    /// This incarnation.
    pub name: Incarnation,
    /// Whether it leads.
    pub leads: bool,
    /// In a cluster: the partitions that it believes to own.
    pub owned: BTreeMap<Partition, OwnerEpoch>,
}

/// What the product has done. A restored backup sets it back.
#[derive(Debug, Clone, Default)]
pub struct Made {
    /// The things that it has created.
    pub things: Vec<(Tenant, String)>,
    /// The keys of things that it has changed after they were done.
    pub kept: BTreeSet<String>,
}

/// Something that has to hold, whatever goes wrong.
pub trait Invariant {
    /// Its name, as a violation prints it.
    fn name(&self) -> &'static str;

    /// What is wrong after a step.
    fn step(&mut self, _: &Step<'_>) -> Vec<String> {
        Vec::new()
    }

    /// What is wrong in a world at rest.
    fn rest(&mut self, _: &Rest<'_>) -> Vec<String> {
        Vec::new()
    }
}

/// All invariants, for a new world.
pub fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(effects::Effects),
        Box::new(messages::Messages),
        Box::new(early::Early),
        Box::new(conservation::Conservation::default()),
        Box::new(drained::Drained),
        Box::new(fences::Fences::default()),
        Box::new(terms::Terms),
        Box::new(slots::Slots),
        Box::new(leader::Leader),
        Box::new(leader_per_term::LeaderPerTerm::default()),
        Box::new(silence::Silence),
        Box::new(owners::Owners),
        Box::new(streams::Streams::default()),
        Box::new(definitions::Definitions),
        Box::new(deliveries::Deliveries::default()),
        Box::new(brakes::Brakes),
        Box::new(paces::Paces::default()),
        Box::new(pauses::Pauses),
        Box::new(commands::Commands),
        Box::new(undo::Undo),
        Box::new(rings::Rings),
    ]
}

/// A violation of an invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the invariant.
    pub invariant: &'static str,
    /// The seed of the world.
    pub seed: u64,
    /// The number of the event after which it was found.
    pub step: u64,
    /// What is wrong.
    pub said: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Violation { invariant, seed, step, said } = self;
        write!(f, "{invariant} (seed {seed}, step {step}): {said}")
    }
}

/// The result of a call of an adapter in memory, which never suspends.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("adapters in memory never suspend")
}

/// The columns of a row of the product; `None`: there is no such row.
pub fn row(
    view: &dyn ReadView,
    tenant: &Tenant,
    table: &str,
    key: &str,
    columns: &[&str],
) -> Option<Row> {
    let keys = [vec![Value::Text(key.into())]];
    let columns: Vec<String> = columns.iter().map(|column| (*column).to_owned()).collect();
    let rows = now(view.get_many(Some(tenant), table, &keys, &columns));
    rows.expect("the table is mapped").pop().flatten()
}

/// A view of the product's tables.
pub fn view(store: &MemoryStore) -> std::sync::Arc<dyn ReadView> {
    now(store.snapshot(Duration::from_secs(1))).expect("a snapshot")
}

/// The whole history, newest first.
pub fn history(store: &MemoryStore) -> Vec<HistoryRow> {
    let query = HistoryQuery { limit: u32::MAX, ..HistoryQuery::default() };
    now(store.history(&query)).expect("the history")
}

/// Whether a row of the history is one of the task `undo`.
fn is_of_undo(row: &HistoryRow) -> bool {
    row.identity.task.as_str() == besom_core::undo::TASK
}

/// The run and the row of the history that an item of the task `undo` takes back.
fn taken_back(row: &HistoryRow) -> Option<(RunId, u64)> {
    match Target::parse(&row.identity.key) {
        Ok(target @ Target::Item(run, _)) => Some((run, target.number()?)),
        _ => None,
    }
}

/// The rows of the history that were taken back, at least in part.
fn undone(history: &[HistoryRow]) -> BTreeSet<u64> {
    use besom_ports::store::End;
    let undo = history.iter().filter(|row| is_of_undo(row) && row.outcome == End::Committed);
    // One that has put nothing back says why: see `undo`.
    let undo = undo.filter(|row| row.rows > 0);
    undo.filter_map(taken_back).map(|(_, row)| row).collect()
}

/// The tasks that are paused by themselves or with all tasks.
fn paused(store: &MemoryStore) -> BTreeSet<TaskName> {
    let states = now(store.task_states()).expect("the states");
    states.into_iter().filter(|state| state.paused.is_some()).map(|state| state.task).collect()
}
