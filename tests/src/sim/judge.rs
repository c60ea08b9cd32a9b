//! What must hold when the world has come to rest.

use std::collections::{BTreeMap, BTreeSet};

use besom::ports::store::{SlotOutcome, Snapshot, Store};
use besom::store::memory::MemoryStore;
use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use futures::FutureExt;

use super::script::{self, Fate, fate};
use super::world::Report;

fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("adapters in memory never suspend")
}

/// Adds every violation to the report.
pub(super) fn judge(store: &MemoryStore, things: &[(Tenant, String)], report: &mut Report) {
    effects(store, things, report);
    books(store, report);
    history(store, report);
}

/// Exactly the effects that the script asks for, each once.
fn effects(store: &MemoryStore, things: &[(Tenant, String)], report: &mut Report) {
    let view = now(store.snapshot(std::time::Duration::from_secs(1))).expect("a snapshot");
    let mut emitted: BTreeMap<String, u32> = BTreeMap::new();
    for message in store.outbox() {
        *emitted.entry(message.key).or_default() += 1;
    }
    for (tenant, key) in things {
        let wanted = match fate(key) {
            Fate::Done | Fate::DoneLater => 1,
            Fate::Skipped | Fate::Hopeless | Fate::Poison => 0,
        };
        let effects = effects_of(view.as_ref(), tenant, key);
        if effects != wanted {
            report.violations.push(format!("{key}: {effects} effects instead of {wanted}"));
        }
        let messages = emitted.get(key).copied().unwrap_or(0);
        if i64::from(messages) != wanted {
            report.violations.push(format!("{key}: {messages} messages instead of {wanted}"));
        }
    }
}

fn effects_of(view: &dyn Snapshot, tenant: &Tenant, key: &str) -> i64 {
    let keys = [vec![Value::Text(key.into())]];
    let rows = now(view.get_many(Some(tenant), "ledger", &keys, &["effects".into()]));
    match rows.expect("the ledger").pop().flatten().as_deref() {
        Some([Value::Integer(effects)]) => *effects,
        other => panic!("{key}: {other:?} in the ledger"),
    }
}

/// The books balance, and nothing is left waiting.
fn books(store: &MemoryStore, report: &mut Report) {
    let audit = now(store.audit()).expect("an audit");
    report.violations.extend(audit.violations);
    for row in audit.rows {
        let counts = &row.counted;
        let ends =
            counts.committed + counts.skipped + counts.dead + counts.discarded + counts.pending;
        if row.counted != row.recounted {
            report.violations.push(format!("{} {:?}: {row:?}", row.task, row.tenant));
        }
        if counts.planned != ends {
            report.violations.push(format!("{}: planned {} != {ends}", row.task, counts.planned));
        }
        if counts.pending != 0 {
            report.violations.push(format!("{}: {} still wait", row.task, counts.pending));
        }
    }
}

/// No slot was run twice, and no term wrote after a later one.
fn history(store: &MemoryStore, report: &mut Report) {
    let mut last_term = besom_core::ids::Term(0);
    let mut runs = now(store.runs(None, u32::MAX)).expect("runs");
    runs.sort_by_key(|run| run.id);
    for run in &runs {
        if run.term < last_term {
            report.violations.push(format!(
                "run {} of {} was started under term {} after term {last_term}",
                run.id, run.task, run.term
            ));
        }
        last_term = last_term.max(run.term);
    }
    report.terms = last_term.0;
    for task in script::TASKS {
        let task = task.into();
        let slots = now(store.slots(&task, Time(i64::MIN), Time::MAX, u32::MAX)).expect("slots");
        let mut started = BTreeSet::new();
        for slot in slots.iter().filter(|slot| slot.outcome == SlotOutcome::Ran) {
            // A run at a takeover stands at its own instant, not at a planned one.
            if slot.count == 1 && !started.insert(slot.from) {
                report.violations.push(format!("{task}: the slot {} was run twice", slot.from));
            }
        }
    }
}
