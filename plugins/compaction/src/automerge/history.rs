//! Collects the changes of all rows, in an order in which each change follows its dependencies.
//!
//! Decides that no change is missing, that no change contradicts another (a sequence number or an
//! operation id used twice), and which changes are heads. It reads only the chunks' headers and
//! does not call the library.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::chunk::{self, Chunk, Hash};
use super::columns::Counts;
use crate::outcome::{Code, LeftAlone};

/// All rows.
#[derive(Debug, Default)]
pub struct Log<'a> {
    /// Every different change that is a chunk of its own, in the order of the rows.
    pub changes: Vec<Change<'a>>,
    /// Every document.
    pub documents: Vec<Document<'a>>,
    /// The counts over all chunks.
    pub facts: Facts,
    actors: HashMap<Vec<u8>, u32>,
    deps: Vec<Hash>,
}

/// The counts over the rows, before anything is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The bytes of the rows.
    pub bytes: u64,
    /// Changes, including repeated ones.
    pub changes: u64,
    /// Operations and columns, of changes and documents.
    pub operations: Counts,
    /// The maximum inflated bytes of a chunk.
    pub largest: u64,
}

/// A change in a row.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// The chunk.
    pub bytes: &'a [u8],
    /// The index of the row.
    pub row: usize,
    /// Its operations.
    pub operations: u64,
    /// The position of the change in its actor's history.
    pub step: Step,
    deps: (usize, usize),
}

/// A change's place in its actor's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The hash that identifies the change.
    pub hash: Hash,
    /// The number of the actor, from [`Log::actor`].
    pub actor: u32,
    /// The sequence number among the actor's changes.
    pub seq: u64,
    /// The counter of the first operation.
    pub start_op: u64,
    /// The counter after the last operation.
    pub end_op: u64,
}

/// A document in a row.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The chunk.
    pub bytes: &'a [u8],
    /// The index of the row.
    pub row: usize,
    /// The heads of the document.
    pub heads: Vec<Hash>,
    /// The counts over the changes.
    pub changes: u64,
    /// Its operations.
    pub operations: u64,
}

/// Reads all rows.
pub fn read<'a>(updates: &[&'a [u8]]) -> Result<Log<'a>, LeftAlone> {
    let mut log = Log::default();
    let mut known: HashSet<Hash> = HashSet::new();
    for (row, update) in updates.iter().enumerate() {
        log.facts.bytes += update.len() as u64;
        let chunks = chunk::chunks(update).map_err(|fault| {
            let words = format!("update {row} cannot be decoded: {fault}");
            LeftAlone::new(Code::Undecodable, words).at(row)
        })?;
        for (bytes, chunk) in chunks {
            match chunk {
                Chunk::Change(change) => {
                    log.facts.take(1, change.operations);
                    if known.insert(change.hash) {
                        log.push(bytes, row, change);
                    }
                }
                Chunk::Document(document) => {
                    log.facts.take(document.changes.rows, document.operations);
                    log.facts.operations.cells += document.changes.cells;
                    log.facts.operations.bytes += document.changes.bytes;
                    log.documents.push(Document {
                        bytes,
                        row,
                        heads: document.heads,
                        changes: document.changes.rows,
                        operations: document.operations.rows,
                    });
                }
                Chunk::Bundle => {
                    let words = format!("update {row} contains a bundle, which is experimental");
                    return Err(LeftAlone::new(Code::Unsupported, words).at(row));
                }
            }
        }
    }
    Ok(log)
}

impl Facts {
    fn take(&mut self, changes: u64, operations: Counts) {
        self.changes = self.changes.saturating_add(changes);
        self.operations += operations;
        self.largest = self.largest.max(operations.bytes);
    }
}

impl<'a> Log<'a> {
    fn push(&mut self, bytes: &'a [u8], row: usize, change: chunk::Change) {
        let start = self.deps.len();
        self.deps.extend_from_slice(&change.deps);
        let step = Step {
            hash: change.hash,
            actor: self.actor(&change.actor),
            seq: change.seq,
            start_op: change.start_op,
            end_op: change.start_op + change.operations.rows,
        };
        let deps = (start, self.deps.len());
        self.changes.push(Change { bytes, row, operations: change.operations.rows, step, deps });
    }

    /// The number of an actor.
    pub fn actor(&mut self, id: &[u8]) -> u32 {
        if let Some(&number) = self.actors.get(id) {
            return number;
        }
        let number = self.actors.len() as u32;
        self.actors.insert(id.to_vec(), number);
        number
    }

    fn name_of(&self, actor: u32) -> String {
        let found = self.actors.iter().find(|(_, number)| **number == actor);
        found.map(|(id, _)| hex(id)).unwrap_or_default()
    }

    /// The dependencies of a change.
    pub fn deps(&self, change: &Change<'_>) -> &[Hash] {
        &self.deps[change.deps.0..change.deps.1]
    }
}

/// The changes to be applied to a document, and the result.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// Indices of [`Log::changes`], each after its dependencies.
    pub order: Vec<usize>,
    /// The heads of the result, ascending.
    pub heads: Vec<Hash>,
    /// The hashes of all changes, ascending.
    pub hashes: Vec<Hash>,
}

/// Plans the changes that are not among `applied`, whose heads are `heads`.
pub fn plan(log: &Log<'_>, applied: &[Step], heads: &[Hash]) -> Result<Plan, LeftAlone> {
    let known: HashSet<Hash> = applied.iter().map(|step| step.hash).collect();
    let pending: Vec<usize> =
        (0..log.changes.len()).filter(|&i| !known.contains(&log.changes[i].step.hash)).collect();
    let place: HashMap<Hash, usize> =
        pending.iter().enumerate().map(|(at, &i)| (log.changes[i].step.hash, at)).collect();
    for change in pending.iter().map(|&index| &log.changes[index]) {
        let is_missing = |dep: &&Hash| !place.contains_key(*dep) && !known.contains(*dep);
        if let Some(dep) = log.deps(change).iter().find(is_missing) {
            let row = change.row;
            let words = format!("update {row} depends on change {}, which is missing", hex(dep));
            return Err(LeftAlone::new(Code::MissingDependency, words).at(row));
        }
    }
    let before = predecessors(log, applied, &pending)?;

    let mut waits = vec![0usize; pending.len()];
    let mut follow: Vec<Vec<u32>> = vec![Vec::new(); pending.len()];
    let mut is_head = vec![true; pending.len()];
    let mut heads = heads.to_vec();
    for (at, &index) in pending.iter().enumerate() {
        let change = &log.changes[index];
        for dep in log.deps(change) {
            if let Some(&on) = place.get(dep) {
                waits[at] += 1;
                follow[on].push(at as u32);
                is_head[on] = false;
            } else {
                heads.retain(|head| head != dep);
            }
        }
        if let Some(on) = before[at] {
            waits[at] += 1;
            follow[on].push(at as u32);
        }
    }
    let mut ready: VecDeque<usize> = (0..pending.len()).filter(|&at| waits[at] == 0).collect();
    let mut order = Vec::with_capacity(pending.len());
    while let Some(at) = ready.pop_front() {
        order.push(pending[at]);
        for &next in &follow[at] {
            waits[next as usize] -= 1;
            if waits[next as usize] == 0 {
                ready.push_back(next as usize);
            }
        }
    }
    if order.len() < pending.len() {
        let at = waits.iter().position(|&waits| waits > 0).expect("one waits");
        let row = log.changes[pending[at]].row;
        let words = format!("update {row} depends on a later change of its own actor");
        return Err(LeftAlone::new(Code::Conflict, words).at(row));
    }
    let is_head = |at: &usize| is_head[*at];
    heads.extend((0..pending.len()).filter(is_head).map(|at| log.changes[pending[at]].step.hash));
    heads.sort_unstable();
    let mut hashes: Vec<Hash> = known.into_iter().chain(place.into_keys()).collect();
    hashes.sort_unstable();
    Ok(Plan { order, heads, hashes })
}

/// For each pending change, the position of the same actor's previous change, if that is pending
/// as well. Fails if a sequence number is missing or used twice.
fn predecessors(
    log: &Log<'_>,
    applied: &[Step],
    pending: &[usize],
) -> Result<Vec<Option<usize>>, LeftAlone> {
    let mut before = vec![None; pending.len()];
    let mut actors: BTreeMap<u32, Vec<(Step, Option<usize>)>> = BTreeMap::new();
    for step in applied {
        actors.entry(step.actor).or_default().push((*step, None));
    }
    for (at, &index) in pending.iter().enumerate() {
        let step = log.changes[index].step;
        actors.entry(step.actor).or_default().push((step, Some(at)));
    }
    for (actor, mut steps) in actors {
        let fault = |code: Code, at: Option<usize>, what: &str| {
            let left = LeftAlone::new(code, format!("actor {}: {what}", log.name_of(actor)));
            at.map_or(left.clone(), |at| left.at(log.changes[pending[at]].row))
        };
        steps.sort_by_key(|(step, at)| (step.seq, *at));
        let (mut seq, mut end_op, mut last) = (0, 0, None);
        for (step, at) in steps {
            if step.seq == seq {
                let what = format!("the sequence number {seq} was used for two different changes");
                return Err(fault(Code::Conflict, at, &what));
            }
            if step.seq != seq + 1 {
                let what = format!("the change with sequence number {} is missing", seq + 1);
                return Err(fault(Code::Hole, at, &what));
            }
            if step.start_op < end_op {
                let what = format!("operation {} was used in two changes", step.start_op);
                return Err(fault(Code::Conflict, at, &what));
            }
            if let Some(at) = at {
                before[at] = last;
            }
            (seq, end_op, last) = (step.seq, step.end_op, at);
        }
    }
    Ok(before)
}

/// A hash in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
