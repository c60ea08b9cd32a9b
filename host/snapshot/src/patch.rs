//! The minimal difference between two snapshots.
//!
//! A list is encoded as its changed rows or, if its order or length changed, as the origin of each
//! row of the new list. `apply(diff(a, b), a) == b` for any two snapshots.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DeadGroup, Event, Leadership, Missing, Node, Pause, Ring, Run, Snapshot, Task, Topic};
use besom_core::time::Time;

/// The difference between two snapshots.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Patch {
    /// The time of the later snapshot.
    pub at: Time,
    /// The answering host, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// The new leadership; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leadership: Option<Arc<Leadership>>,
    /// The changed nodes; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Rows<Node>>,
    /// The changed tasks; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Rows<Task>>,
    /// The changed runs; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Rows<Run>>,
    /// The changed groups of dead letters; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<Rows<DeadGroup>>,
    /// The changed topics; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topics: Option<Rows<Topic>>,
    /// The new ring; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<Arc<Ring>>,
    /// The changed events; none: no change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Rows<Event>>,
}

/// A line of a snapshot stream: first a whole snapshot, then differences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// The whole snapshot.
    Whole(Box<Snapshot>),
    /// The difference from the previous snapshot.
    Patch(Box<Patch>),
    /// Nothing differs; the time of the later snapshot.
    At(Time),
}

/// The answering host's own fields, and the pause of all tasks.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    model: u32,
    cluster: String,
    host: String,
    version: String,
    readonly: bool,
    missing: Vec<Missing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    all_paused: Option<Pause>,
}

/// The difference between two lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows<T> {
    /// Order and length are the same; the rows at these indexes are replaced.
    Set(Vec<(u32, Arc<T>)>),
    /// For each index of the new list: a number below the old list's length is an index into the
    /// old list; a greater one is an index into `rows`, plus that length.
    From {
        /// The origin of each row.
        from: Vec<u32>,
        /// New rows.
        rows: Vec<Arc<T>>,
    },
}

/// The patch was made for a different snapshot than the one it is applied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the patch was made for a different snapshot")]
pub struct Mismatch;

fn same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

impl<T: PartialEq> Rows<T> {
    fn between<K: Hash + Eq>(
        old: &[Arc<T>],
        new: &[Arc<T>],
        key: impl Fn(&T) -> K,
    ) -> Option<Rows<T>> {
        let pairs = || old.iter().zip(new);
        if old.len() == new.len() && pairs().all(|(a, b)| key(a) == key(b)) {
            let other = pairs().enumerate().filter(|(_, (a, b))| !same(a, b));
            let set: Vec<_> = other.map(|(at, (_, row))| (at as u32, Arc::clone(row))).collect();
            return (!set.is_empty()).then_some(Rows::Set(set));
        }
        let places: HashMap<K, usize> =
            old.iter().enumerate().map(|(at, row)| (key(row), at)).collect();
        let mut rows = Vec::new();
        let from = new.iter().map(|row| {
            let known = places.get(&key(row)).filter(|at| same(&old[**at], row));
            known.copied().unwrap_or_else(|| {
                rows.push(Arc::clone(row));
                old.len() + rows.len() - 1
            }) as u32
        });
        let from = from.collect();
        Some(Rows::From { from, rows })
    }

    fn apply(self, old: &mut Vec<Arc<T>>) -> Result<(), Mismatch> {
        match self {
            Rows::Set(rows) => {
                for (at, row) in rows {
                    *old.get_mut(at as usize).ok_or(Mismatch)? = row;
                }
            }
            Rows::From { from, rows } => {
                let row = |at: u32| {
                    let at = at as usize;
                    let row = old.get(at).or_else(|| rows.get(at.checked_sub(old.len())?));
                    row.cloned().ok_or(Mismatch)
                };
                *old = from.into_iter().map(row).collect::<Result<_, _>>()?;
            }
        }
        Ok(())
    }
}

/// The difference between two snapshots; none: only the time differs.
pub fn diff(old: &Snapshot, new: &Snapshot) -> Option<Patch> {
    let head = |s: &Snapshot| Head {
        model: s.model,
        cluster: s.cluster.clone(),
        host: s.host.clone(),
        version: s.version.clone(),
        readonly: s.readonly,
        missing: s.missing.clone(),
        all_paused: s.all_paused.clone(),
    };
    let other = |a: &Arc<Leadership>, b: &Arc<Leadership>| !same(a, b);
    let event = |e: &Event| (e.at, e.subject.clone(), e.text.clone());
    let patch = Patch {
        at: new.at,
        head: (head(old) != head(new)).then(|| head(new)),
        leadership: other(&old.leadership, &new.leadership).then(|| Arc::clone(&new.leadership)),
        nodes: Rows::between(&old.nodes, &new.nodes, |node| node.name.clone()),
        tasks: Rows::between(&old.tasks, &new.tasks, |task| task.name.clone()),
        runs: Rows::between(&old.runs, &new.runs, |run| run.id),
        dead: Rows::between(&old.dead, &new.dead, |g| (g.task.clone(), g.error.clone())),
        topics: Rows::between(&old.topics, &new.topics, |topic| topic.name.clone()),
        ring: (!same(&old.ring, &new.ring)).then(|| Arc::clone(&new.ring)),
        events: Rows::between(&old.events, &new.events, event),
    };
    (patch != Patch { at: new.at, ..Patch::default() }).then_some(patch)
}

impl Patch {
    /// Turns the snapshot that the patch was made for into the next one.
    ///
    /// # Errors
    /// [`Mismatch`] if the patch was made for another snapshot. The snapshot is then unusable;
    /// request a whole one.
    pub fn apply(self, to: &mut Snapshot) -> Result<(), Mismatch> {
        to.at = self.at;
        if let Some(Head { model, cluster, host, version, readonly, missing, all_paused }) =
            self.head
        {
            (to.model, to.readonly, to.missing) = (model, readonly, missing);
            to.all_paused = all_paused;
            (to.cluster, to.host, to.version) = (cluster, host, version);
        }
        if let Some(leadership) = self.leadership {
            to.leadership = leadership;
        }
        if let Some(ring) = self.ring {
            to.ring = ring;
        }
        self.nodes.map_or(Ok(()), |rows| rows.apply(&mut to.nodes))?;
        self.tasks.map_or(Ok(()), |rows| rows.apply(&mut to.tasks))?;
        self.runs.map_or(Ok(()), |rows| rows.apply(&mut to.runs))?;
        self.dead.map_or(Ok(()), |rows| rows.apply(&mut to.dead))?;
        self.topics.map_or(Ok(()), |rows| rows.apply(&mut to.topics))?;
        self.events.map_or(Ok(()), |rows| rows.apply(&mut to.events))
    }
}
