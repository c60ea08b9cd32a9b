//! The checks of a world at rest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use besom_core::ids::{RunId, TaskName, Tenant, Term};
use besom_core::time::Time;
use besom_core::value::Value;
use besom_doubles::store::MemoryStore;
use besom_ports::store::{End, HistoryQuery, ReadView, SlotOutcome, Store};
use futures::FutureExt;

use super::script::{self, Fate, fate};
use super::world::Report;

/// A violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// An effect did not happen as often as its script asks for.
    Effects {
        /// The thing.
        key: String,
        /// How often it happened.
        found: i64,
        /// How often it should have.
        wanted: i64,
    },
    /// A message was not emitted as often as its script asks for.
    Messages {
        /// The thing.
        key: String,
        /// How often it was.
        found: i64,
        /// How often it should have been.
        wanted: i64,
    },
    /// A leader that had been replaced wrote.
    StaleTerm {
        /// The run that it started.
        run: RunId,
        /// The run's task.
        task: TaskName,
        /// The term of the run.
        term: Term,
        /// A later term that had already written.
        after: Term,
    },
    /// One slot of a schedule was run twice.
    SlotTwice {
        /// The task.
        task: TaskName,
        /// The slot.
        slot: Time,
    },
    /// A thing was ended before it was due.
    Early {
        /// The thing.
        key: String,
        /// When it was due.
        due: Time,
        /// When it was ended, by the store's clock.
        at: Time,
    },
    /// The engine's books do not balance, or something is left waiting.
    Books(String),
    /// Not exactly one node leads the world at rest.
    Leaders(usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Effects { key, found, wanted } => {
                write!(f, "{key}: {found} effects instead of {wanted}")
            }
            Violation::Messages { key, found, wanted } => {
                write!(f, "{key}: {found} messages instead of {wanted}")
            }
            Violation::StaleTerm { run, task, term, after } => {
                write!(f, "run {run} of {task} was started under term {term} after term {after}")
            }
            Violation::SlotTwice { task, slot } => write!(f, "{task}: the slot {slot} ran twice"),
            Violation::Early { key, due, at } => {
                write!(f, "{key} was due at {due} and was ended at {at}")
            }
            Violation::Books(said) => f.write_str(said),
            Violation::Leaders(count) => write!(f, "{count} nodes lead a world at rest"),
        }
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("adapters in memory never suspend")
}

/// Adds every violation to the report.
pub(super) fn judge(store: &MemoryStore, things: &[(Tenant, String)], report: &mut Report) {
    effects(store, things, report);
    early(store, things, report);
    books(store, report);
    history(store, report);
}

/// Each effect of the script happened exactly once, and no other.
fn effects(store: &MemoryStore, things: &[(Tenant, String)], report: &mut Report) {
    let view = now(store.snapshot(std::time::Duration::from_secs(1))).expect("a snapshot");
    let mut emitted: BTreeMap<String, i64> = BTreeMap::new();
    for message in store.outbox() {
        *emitted.entry(message.key).or_default() += 1;
    }
    for (tenant, key) in things {
        let wanted = match fate(key) {
            Fate::Done | Fate::DoneLater => 1,
            Fate::Skipped | Fate::Hopeless | Fate::Poison => 0,
        };
        let found = effects_of(view.as_ref(), tenant, key);
        if found != wanted {
            report.violations.push(Violation::Effects { key: key.clone(), found, wanted });
        }
        let found = emitted.get(key).copied().unwrap_or(0);
        if found != wanted {
            report.violations.push(Violation::Messages { key: key.clone(), found, wanted });
        }
    }
}

fn effects_of(view: &dyn ReadView, tenant: &Tenant, key: &str) -> i64 {
    let keys = [vec![Value::Text(key.into())]];
    let rows = now(view.get_many(Some(tenant), "ledger", &keys, &["effects".into()]));
    match rows.expect("the ledger").pop().flatten().as_deref() {
        Some([Value::Integer(effects)]) => *effects,
        other => panic!("{key}: {other:?} in the ledger"),
    }
}

/// Whether a thing is still open.
pub(super) fn is_open(store: &MemoryStore, tenant: &Tenant, key: &str) -> bool {
    let view = now(store.snapshot(std::time::Duration::from_secs(1))).expect("a snapshot");
    let keys = [vec![Value::Text(key.into())]];
    let rows = now(view.get_many(Some(tenant), "things", &keys, &["state".into()]));
    let row = rows.expect("the things").pop().flatten();
    row.as_deref() == Some([Value::Text("open".into())].as_slice())
}

/// Nothing was ended before its due time at that moment.
fn early(store: &MemoryStore, things: &[(Tenant, String)], report: &mut Report) {
    let view = now(store.snapshot(std::time::Duration::from_secs(1))).expect("a snapshot");
    let query = HistoryQuery { limit: u32::MAX, ..HistoryQuery::default() };
    let ended: BTreeMap<String, Time> = now(store.history(&query))
        .expect("the history")
        .into_iter()
        .filter(|row| row.outcome == End::Committed)
        .map(|row| (row.identity.key, row.at))
        .collect();
    for (tenant, key) in things {
        let keys = [vec![Value::Text(key.clone())]];
        let rows = now(view.get_many(Some(tenant), "things", &keys, &["due".into()]));
        let row = rows.expect("the things").pop().flatten();
        if let (Some([Value::Timestamp(due)]), Some(at)) = (row.as_deref(), ended.get(key))
            && at < due
        {
            report.violations.push(Violation::Early { key: key.clone(), due: *due, at: *at });
        }
    }
}

/// The books balance, and nothing is left waiting.
fn books(store: &MemoryStore, report: &mut Report) {
    let audit = now(store.audit()).expect("an audit");
    let mut wrong = audit.violations;
    for row in audit.rows {
        let counts = &row.counted;
        let ends =
            counts.committed + counts.skipped + counts.dead + counts.discarded + counts.pending;
        if row.counted != row.recounted {
            wrong.push(format!("{} {:?}: {row:?}", row.task, row.tenant));
        }
        if counts.planned != ends {
            wrong.push(format!("{}: planned {} != {ends}", row.task, counts.planned));
        }
        if counts.pending != 0 {
            wrong.push(format!("{}: {} still wait", row.task, counts.pending));
        }
    }
    report.violations.extend(wrong.into_iter().map(Violation::Books));
}

/// No slot was run twice, and no term wrote after a later one.
fn history(store: &MemoryStore, report: &mut Report) {
    let mut last_term = Term(0);
    let mut runs = now(store.runs(None, u32::MAX)).expect("runs");
    runs.sort_by_key(|run| run.id);
    for run in &runs {
        if run.term < last_term {
            report.violations.push(Violation::StaleTerm {
                run: run.id,
                task: run.task.clone(),
                term: run.term,
                after: last_term,
            });
        }
        last_term = last_term.max(run.term);
    }
    report.terms = last_term.0;
    for task in script::TASKS {
        let task = TaskName::from(task);
        let slots = now(store.slots(&task, Time(i64::MIN), Time::MAX, u32::MAX)).expect("slots");
        let mut started = BTreeSet::new();
        for slot in slots.iter().filter(|slot| slot.outcome == SlotOutcome::Ran) {
            // A run at a takeover has its own instant as its slot, not a planned one.
            if slot.count == 1 && !started.insert(slot.from) {
                let (task, slot) = (task.clone(), slot.from);
                report.violations.push(Violation::SlotTwice { task, slot });
            }
        }
    }
}
