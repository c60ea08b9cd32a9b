//! No slot of a schedule was run twice, and no run is recorded twice.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::ids::TaskName;
use besom_core::plan::{SlotOutcome, Trigger};
use besom_core::time::Time;
use besom_ports::store::Store as _;

use super::{Invariant, Rest, now};
use crate::script;

pub(super) struct Slots;

impl Invariant for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let mut wrong = Vec::new();
        let runs = now(rest.store.runs(None, u32::MAX)).expect("the runs");
        let triggers: BTreeMap<_, _> = runs.iter().map(|run| (run.id, &run.trigger)).collect();
        for task in script::TASKS {
            let task = TaskName::from(task);
            let slots = rest.store.slots(&task, Time(i64::MIN), Time::MAX, u32::MAX);
            let (mut started, mut recorded) = (BTreeSet::new(), BTreeSet::new());
            for slot in now(slots).expect("the slots") {
                let Some(run) = slot.run.filter(|_| slot.outcome == SlotOutcome::Ran) else {
                    continue;
                };
                if slot.count == 1 && !recorded.insert(run) {
                    wrong.push(format!("{task}: run {run} is recorded twice"));
                }
                // A run on command or at a takeover has the store's instant as its slot, which
                // such a run of the other kind can share.
                let trigger = triggers.get(&run).copied().unwrap_or(&Trigger::Schedule);
                let place = (slot.from, trigger.as_str());
                if slot.count == 1 && trigger.is_of_slot() && !started.insert(place) {
                    wrong.push(format!("{task}: the slot {} is recorded twice", slot.from));
                }
            }
        }
        let mut started = BTreeSet::new();
        for run in runs {
            let place = (run.task.clone(), run.slot, run.trigger.as_str());
            if run.trigger.is_of_slot() && !started.insert(place) {
                wrong.push(format!("{}: the slot {} ran twice", run.task, run.slot));
            }
        }
        wrong
    }
}
