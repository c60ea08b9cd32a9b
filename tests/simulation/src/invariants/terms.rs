//! No leader that was replaced has started a run after its successor.

use besom_core::ids::Term;
use besom_ports::store::Store as _;

use super::{Invariant, Rest, now};

pub(super) struct Terms;

impl Invariant for Terms {
    fn name(&self) -> &'static str {
        "terms"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let mut runs = now(rest.store.runs(None, u32::MAX)).expect("the runs");
        runs.sort_by_key(|run| run.id);
        let (mut last, mut wrong) = (Term(0), Vec::new());
        for run in &runs {
            if run.term < last {
                let (id, task, term) = (run.id, &run.task, run.term);
                wrong.push(format!("run {id} of {task}: started under term {term} after {last}"));
            }
            last = last.max(run.term);
        }
        wrong
    }
}
