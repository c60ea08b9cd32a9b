//! An item is executed by the definition and the plugin of its own task.

use super::{Invariant, Step};

pub(super) struct Definitions;

impl Invariant for Definitions {
    fn name(&self) -> &'static str {
        "definitions"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        let Step::Performed { called, .. } = step else { return Vec::new() };
        let mut wrong = Vec::new();
        for call in *called {
            let plugin = call.digest.split('@').next();
            for (task, run, key) in &call.items {
                if *task != call.task || plugin != Some(task.as_str()) {
                    let (by, digest) = (&call.task, &call.digest);
                    wrong.push(format!("{key} of {task}, run {run}: executed as {by} by {digest}"));
                }
            }
        }
        wrong
    }
}
