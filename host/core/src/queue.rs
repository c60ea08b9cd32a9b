//! Decides what happens to an item: turns verdicts and faults into decisions, spaces retries,
//! orders pages, and cuts batches so that no two items of a batch change the same row.
//!
//! This module does not know where items wait or which node executes them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::{Backoff, Jitter};
use crate::collection::{Collections, all_dependants};
use crate::ids::{Partition, TaskName, Tenant};
use crate::item::{Candidate, Item, Source};
use crate::proposal::{Change, OnGuardFailed, Proposal, Settle, Verdict};
use crate::time::Time;
use crate::value::Value;

/// The retry rules of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Executions before an item is set aside.
    pub attempts_max: u32,
    /// The wait after the first failure; it doubles with each further failure.
    pub backoff: Duration,
    /// The upper bound of the wait.
    pub backoff_max: Duration,
    /// Failed guards before an item is skipped as contended.
    pub guard_retries_max: u32,
    /// Deaths of a host before an item is set aside.
    pub deaths_max: u32,
}

/// How the reason of an item begins that was skipped because its guards failed again and again.
pub const CONTENDED: &str = "contended: others held or changed its rows";

impl RetryPolicy {
    /// The waits between executions that fail: up to a quarter longer than `backoff` says, so that
    /// items that failed together are not retried together.
    fn waits(&self) -> Backoff {
        Backoff { first: self.backoff, max: self.backoff_max, jitter: Jitter::QuarterLonger }
    }

    /// The result for an item whose execution failed through its own fault.
    pub fn failed(&self, item: &Item, now: Time, after: Duration, reason: String) -> Settle {
        let attempts = item.attempts + 1;
        if attempts >= self.attempts_max {
            return Settle::Dead { attempts, reason };
        }
        let wait = self.waits().pause(item.attempts, spread(item, attempts)).max(after);
        Settle::Retry { run_at: now + wait, attempts, guard_retries: item.guard_retries, reason }
    }

    /// The result for an item that the store could not take now, while it took others: it is
    /// retried after `wait` without using an attempt.
    pub fn postponed(&self, item: &Item, now: Time, wait: Duration, reason: String) -> Settle {
        let Item { attempts, guard_retries, .. } = *item;
        Settle::Retry { run_at: now + wait, attempts, guard_retries, reason }
    }

    /// The result for an item whose guard did not hold. It uses no attempt, because another writer
    /// was faster.
    pub fn guard_failed(&self, item: &Item, now: Time, wanted: &OnGuardFailed) -> Settle {
        match wanted {
            OnGuardFailed::Skip(reason) => Settle::Skip { reason: reason.clone(), settled: false },
            OnGuardFailed::Retry(_) if item.guard_retries >= self.guard_retries_max => {
                Settle::Skip {
                    reason: format!(
                        "{CONTENDED} {} times; a later slot plans it again",
                        item.guard_retries + 1
                    ),
                    settled: false,
                }
            }
            OnGuardFailed::Retry(after_ms) => {
                let guard_retries = item.guard_retries + 1;
                let after = Duration::from_millis(*after_ms);
                let jitter = spread(item, guard_retries) % 1_000;
                Settle::Retry {
                    run_at: now + after + Duration::from_micros(jitter),
                    attempts: item.attempts,
                    guard_retries,
                    reason: "a guard did not hold".into(),
                }
            }
        }
    }

    /// Sets the item aside without executing it if too many hosts died while executing it.
    pub fn deadly(&self, item: &Item) -> Option<Settle> {
        (item.deaths >= self.deaths_max).then(|| Settle::Dead {
            attempts: item.attempts,
            reason: format!("its host died {} times while executing it", item.deaths),
        })
    }
}

/// The result for an item that another attempt would not help.
pub fn set_aside(item: &Item, reason: String) -> Settle {
    Settle::Dead { attempts: item.attempts + 1, reason }
}

/// A number that differs between items and attempts, to spread waits.
fn spread(item: &Item, attempt: u32) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::with_seed(u64::from(attempt));
    hasher.update(item.identity.task.as_str().as_bytes());
    hasher.update(item.identity.key.as_bytes());
    hasher.digest()
}

/// The decision about an item, made before the commit so that the store has nothing to decide.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Check the guards and apply the changes.
    Apply {
        /// The guards, changes and notes.
        proposal: Proposal,
        /// Applies if a guard does not hold.
        on_guard_failed: Settle,
        /// Applies if a change violates a constraint or a type, or the row that it updates does not
        /// exist; the store appends the database's message to the reason.
        on_violation: Settle,
        /// Whether before-images are kept (`keep_removed` is not 0).
        undo: bool,
    },
    /// The item ends or continues without effects.
    Settle(Settle),
}

/// Decides about an item from its execution's result: a verdict, or the text of the fault that it
/// alone caused.
pub fn decide(
    policy: &RetryPolicy,
    item: &Item,
    now: Time,
    said: Result<Verdict, String>,
    undo: bool,
) -> Decision {
    Decision::Settle(match said {
        Ok(Verdict::Propose(proposal)) => {
            return Decision::Apply {
                on_guard_failed: policy.guard_failed(item, now, &proposal.on_guard_failed),
                on_violation: policy.failed(item, now, Duration::ZERO, "violation".into()),
                proposal,
                undo,
            };
        }
        Ok(Verdict::Skip { reason, settled }) => Settle::Skip { reason, settled },
        Ok(Verdict::Retry { after_ms, reason }) => {
            policy.failed(item, now, Duration::from_millis(after_ms), reason)
        }
        Ok(Verdict::Dead { reason }) => set_aside(item, reason),
        Err(fault) => policy.failed(item, now, Duration::ZERO, fault),
    })
}

/// The candidates of a page in planning order: those of one route are as far apart as the page
/// allows. Two items of a route are never in one batch and a stream is executed from its head, so
/// adjacent items of one route would cause many small batches. The first candidates of every route
/// come first, in their order; then the second ones; and so on.
pub fn apart(mut candidates: Vec<Candidate>) -> Vec<Candidate> {
    let mut seen: HashMap<(Option<Tenant>, String), u32> = HashMap::new();
    let mut rounds = Vec::with_capacity(candidates.len());
    for candidate in &candidates {
        let route = (candidate.tenant.clone(), candidate.route.clone());
        let round = seen.entry(route).or_default();
        rounds.push(*round);
        *round += 1;
    }
    if seen.len() < candidates.len() {
        let mut ordered: Vec<_> = rounds.into_iter().zip(candidates).collect();
        ordered.sort_by_key(|(round, _)| *round);
        candidates = ordered.into_iter().map(|(_, candidate)| candidate).collect();
    }
    candidates
}

/// Cuts a batch before the first item of a stream that must not be in it. Once an item of a stream
/// is left out, the items behind it are left out as well, because a stream is acknowledged without
/// gaps. Timers and retries are independent.
#[derive(Debug, Default)]
pub struct Cut {
    closed: HashSet<(TaskName, Partition)>,
}

impl Cut {
    /// Whether the item stays in the batch, given whether it may on its own.
    pub fn admit(&mut self, source: Source, item: &Item, may: bool) -> bool {
        match source {
            Source::Log(_) => {
                let stream = (item.identity.task.clone(), item.partition);
                if self.closed.contains(&stream) {
                    return false;
                }
                if !may {
                    self.closed.insert(stream);
                }
                may
            }
            Source::Timer(_) | Source::Retry(_) | Source::Unqueued(_) => may,
        }
    }
}

/// The rows that a batch changes so far; keeps two items from changing the same row. The second one
/// was decided from a row that no longer exists; in a batch of its own, it is decided again.
#[derive(Debug, Default)]
pub struct Touched {
    rows: HashSet<u128>,
    /// Tables of which single rows are changed, and tables of which ranges are.
    tables: HashSet<u128>,
    ranges: HashSet<u128>,
}

impl Touched {
    /// Adds the rows of a proposal and returns true; returns false and adds nothing if one of them
    /// is already changed. Ranges of one table may be changed together: each row is judged again.
    pub fn claim(&mut self, collections: &Collections, item: &Item, proposal: &Proposal) -> bool {
        let mut rows = Vec::with_capacity(proposal.changes.len());
        let (mut tables, mut ranges) = (HashSet::new(), HashSet::new());
        for change in &proposal.changes {
            let mark = |collection: &str| {
                let table = collections.get(collection).map_or(collection, |known| &known.table);
                row_mark(table, None, std::iter::empty())
            };
            if let Some(restore) = change.restore() {
                ranges.extend(restore.collections.iter().map(|name| mark(name)));
            }
            let Some(collection) = change.collection() else { continue };
            match change.range() {
                Some(_) => ranges.insert(mark(collection)),
                None => tables.insert(mark(collection)),
            };
            ranges.extend(change.into().map(mark));
            if change.deletes() {
                let dependants = all_dependants(collections, collection);
                ranges.extend(dependants.into_iter().map(|other| mark(&other.name)));
            }
            rows_of(collections, item.identity.tenant.as_ref(), change, &mut rows);
        }
        if rows.iter().any(|row| self.rows.contains(row))
            || !self.ranges.is_disjoint(&tables)
            || !self.tables.is_disjoint(&ranges)
        {
            return false;
        }
        self.rows.extend(rows);
        self.tables.extend(tables);
        self.ranges.extend(ranges);
        true
    }
}

/// Maximum number of upserts, updates, increments and deletes of one row by one item. The commit reads and
/// writes the whole row for each of them.
pub const ROW_CHANGES_MAX: usize = 16;

/// Checks that an item of that tenant changes no row too often. Inserts of one row fail by themselves, and
/// several may leave their key to the database.
///
/// # Errors
/// How often a row is changed, and the limit.
pub fn check_changes_of_one_row(
    collections: &Collections,
    tenant: Option<&Tenant>,
    proposal: &Proposal,
) -> Result<(), String> {
    if proposal.changes.len() <= ROW_CHANGES_MAX {
        return Ok(());
    }
    let (mut counts, mut rows) = (HashMap::<u128, usize>::new(), Vec::new());
    for change in &proposal.changes {
        if matches!(change, Change::Insert { .. } | Change::DeleteReadSet(_)) {
            continue;
        }
        rows_of(collections, tenant, change, &mut rows);
        for row in rows.drain(..) {
            *counts.entry(row).or_default() += 1;
        }
    }
    match counts.into_values().max() {
        Some(count) if count > ROW_CHANGES_MAX => {
            Err(format!("{count} changes of one row: at most {ROW_CHANGES_MAX}"))
        }
        _ => Ok(()),
    }
}

fn rows_of(
    collections: &Collections,
    tenant: Option<&Tenant>,
    change: &Change,
    out: &mut Vec<u128>,
) {
    match change {
        Change::Insert { collection, fields } | Change::Upsert { collection, fields } => {
            let Some(definition) = collections.get(collection) else { return };
            let key = definition.key.iter().map(|column| {
                fields.iter().find(|field| field.name == *column).map_or(&Value::Null, |f| &f.value)
            });
            out.push(row_mark(collection, tenant, key));
        }
        Change::Update { collection, key, .. }
        | Change::Increment { collection, key, .. }
        | Change::Delete { collection, key } => out.push(row_mark(collection, tenant, key.iter())),
        Change::DeleteReadSet(set) => {
            out.extend(
                set.rest
                    .iter()
                    .map(|rest| row_mark(&set.collection, tenant, set.prefix.iter().chain(rest))),
            );
        }
        Change::DeleteRange(_)
        | Change::UpdateRange { .. }
        | Change::MoveRange { .. }
        | Change::Restore(_)
        | Change::Emit { .. } => {}
    }
}

/// 128 bits over collection, tenant and key: a collision only postpones an item.
fn row_mark<'a>(
    collection: &str,
    tenant: Option<&Tenant>,
    key: impl Iterator<Item = &'a Value>,
) -> u128 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    let mut text = |s: &str| {
        hasher.update(&(s.len() as u64).to_le_bytes());
        hasher.update(s.as_bytes());
    };
    text(collection);
    text(tenant.map_or("", |t| t.as_str()));
    for value in key {
        match value {
            Value::Null => hasher.update(&[0]),
            Value::Bool(b) => hasher.update(&[1, u8::from(*b)]),
            Value::Integer(i) => {
                hasher.update(&[2]);
                hasher.update(&i.to_le_bytes());
            }
            Value::Float(f) => {
                hasher.update(&[3]);
                hasher.update(&f.to_bits().to_le_bytes());
            }
            Value::Timestamp(t) => {
                hasher.update(&[4]);
                hasher.update(&t.micros().to_le_bytes());
            }
            Value::Uuid(u) => {
                hasher.update(&[5]);
                hasher.update(u);
            }
            Value::Decimal(s) | Value::Text(s) | Value::Json(s) => {
                hasher.update(&[6]);
                hasher.update(&(s.len() as u64).to_le_bytes());
                hasher.update(s.as_bytes());
            }
            Value::Date(days) => {
                hasher.update(&[8]);
                hasher.update(&days.to_le_bytes());
            }
            Value::Bytes(b) => {
                hasher.update(&[7]);
                hasher.update(&(b.len() as u64).to_le_bytes());
                hasher.update(b);
            }
        }
    }
    hasher.digest128()
}

#[cfg(test)]
mod tests;
