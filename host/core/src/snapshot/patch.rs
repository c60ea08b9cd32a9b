//! From one snapshot to the next, as little as tells it.
//!
//! A list is told as the places that changed, or, where its order or length changed, as where
//! each row of the new list comes from. `apply(diff(a, b), a) == b`, whatever the two are.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{DeadGroup, Event, Leadership, Missing, Node, Ring, Run, Snapshot, Task};
use crate::time::Time;

/// What differs between two snapshots.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Patch {
    /// The time of the later one.
    pub at: Time,
    /// Who answers, where that has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Head>,
    /// Who leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leadership: Option<Arc<Leadership>>,
    /// The nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Rows<Node>>,
    /// The tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<Rows<Task>>,
    /// The runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<Rows<Run>>,
    /// The groups of dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dead: Option<Rows<DeadGroup>>,
    /// The ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ring: Option<Arc<Ring>>,
    /// The events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub events: Option<Rows<Event>>,
}

/// A line of what is told to an onlooker: first a whole snapshot, then what differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Frame {
    /// All of it.
    Whole(Box<Snapshot>),
    /// What differs from what was told before.
    Patch(Box<Patch>),
    /// Nothing differs, as of that time.
    At(Time),
}

/// Who answers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    model: u32,
    cluster: String,
    host: String,
    version: String,
    readonly: bool,
    missing: Vec<Missing>,
}

/// What differs between two lists.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows<T> {
    /// Order and length are as before; these places have other rows.
    Set(Vec<(u32, Arc<T>)>),
    /// For each place of the new list: below the old list's length, the row at that place of the
    /// old one; from there on, one of `rows`.
    From {
        /// Where the rows come from.
        from: Vec<u32>,
        /// New rows.
        rows: Vec<Arc<T>>,
    },
}

/// A patch does not fit the snapshot that it is applied to: it was made of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the patch is of another snapshot")]
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

/// What has to be told to whoever knows `old`; none: nothing but the time.
pub fn diff(old: &Snapshot, new: &Snapshot) -> Option<Patch> {
    let head = |s: &Snapshot| Head {
        model: s.model,
        cluster: s.cluster.clone(),
        host: s.host.clone(),
        version: s.version.clone(),
        readonly: s.readonly,
        missing: s.missing.clone(),
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
        ring: (!same(&old.ring, &new.ring)).then(|| Arc::clone(&new.ring)),
        events: Rows::between(&old.events, &new.events, event),
    };
    (patch != Patch { at: new.at, ..Patch::default() }).then_some(patch)
}

impl Patch {
    /// Turns the snapshot that the patch was made of into the next one.
    ///
    /// # Errors
    /// [`Mismatch`]; the snapshot is not to be used any more, ask for a whole one.
    pub fn apply(self, to: &mut Snapshot) -> Result<(), Mismatch> {
        to.at = self.at;
        if let Some(Head { model, cluster, host, version, readonly, missing }) = self.head {
            (to.model, to.readonly, to.missing) = (model, readonly, missing);
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
        self.events.map_or(Ok(()), |rows| rows.apply(&mut to.events))
    }
}
