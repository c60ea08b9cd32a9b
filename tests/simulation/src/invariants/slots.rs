//! No slot of a schedule was run twice.

use std::collections::BTreeSet;

use besom_core::ids::TaskName;
use besom_core::time::Time;
use besom_ports::store::{SlotOutcome, Store as _};

use super::{Invariant, Rest, now};
use crate::script;

pub(super) struct Slots;

impl Invariant for Slots {
    fn name(&self) -> &'static str {
        "slots"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let mut wrong = Vec::new();
        for task in script::TASKS {
            let task = TaskName::from(task);
            let slots = rest.store.slots(&task, Time(i64::MIN), Time::MAX, u32::MAX);
            let mut started = BTreeSet::new();
            for slot in now(slots).expect("the slots") {
                // A run at a takeover has its own instant as its slot, not a planned one.
                let ran = slot.outcome == SlotOutcome::Ran && slot.count == 1;
                if ran && !started.insert(slot.from) {
                    wrong.push(format!("{task}: the slot {} is recorded twice", slot.from));
                }
            }
        }
        let mut started = BTreeSet::new();
        for run in now(rest.store.runs(None, u32::MAX)).expect("the runs") {
            let place = (run.task.clone(), run.slot, run.trigger.as_str());
            if run.trigger.is_of_slot() && !started.insert(place) {
                wrong.push(format!("{}: the slot {} ran twice", run.task, run.slot));
            }
        }
        wrong
    }
}
