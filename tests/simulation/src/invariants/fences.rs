//! The fence only rises, and the store accepts no write of a leader under another term than that of its fence. A
//! restored database may forget terms, which are then given again.

use besom_core::ids::Term;
use besom_node::{Command, Event, Raise, planner};
use besom_ports::store::Store as _;

use super::{Invariant, Step, now};

#[derive(Default)]
pub(super) struct Fences {
    raised: Term,
}

impl Invariant for Fences {
    fn name(&self) -> &'static str {
        "fences"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        let (command, answer, store) = match step {
            Step::Restored => {
                self.raised = Term(0);
                return Vec::new();
            }
            Step::Performed { command, answer: Some(answer), store, .. } => {
                (command, answer, store)
            }
            _ => return Vec::new(),
        };
        if let Event::Raised(fence, Raise::Done(_)) = answer {
            let before = self.raised;
            self.raised = before.max(fence.term);
            if fence.term < before {
                return vec![format!("the fence was lowered from term {before} to {}", fence.term)];
            }
        }
        let Some(term) = accepted(command, answer) else { return Vec::new() };
        let fence = now(store.fence()).expect("the fence").map(|fence| fence.term);
        if fence == Some(term) {
            return Vec::new();
        }
        let fence = fence.unwrap_or_default();
        vec![format!("a write of term {term} was accepted, and the fence is at term {fence}")]
    }
}

/// The term under which the store has accepted a write of a leader.
fn accepted(command: &Command, answer: &Event) -> Option<Term> {
    use planner::Event as Planned;
    let is_accepted = matches!(
        answer,
        Event::Planner(_, Planned::Decided(_, Ok(_)) | Planned::Applied(_, Ok(_)))
            | Event::Planner(_, Planned::ScanEnded(_, Ok(_)) | Planned::Planned(_, Ok(_)))
            | Event::Pruned(Ok(_))
    );
    let term = match command {
        Command::Planner(term, _) => *term,
        Command::Prune(fence) => fence.term,
        _ => return None,
    };
    is_accepted.then_some(term)
}
