//! Candidates that the last run of a task has left out, because an undo holds them back.

use std::collections::BTreeSet;

use besom_core::command::{Command, counted};
use besom_core::ids::TaskName;
use besom_core::undo::Target;
use besom_ports::store::{self, CommandRow, Run, Store};
use serde::Serialize;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldBack {
    /// Their number.
    pub candidates: u64,
    /// What was undone, as `besom undo` takes it.
    pub undone: String,
}

impl HeldBack {
    /// Of a run; `dead` is the number of open dead letters, which block others. `commands` are the latest ones.
    pub(super) async fn of(
        store: &dyn Store,
        commands: &[CommandRow],
        run: Option<&Run>,
        dead: u64,
    ) -> store::Result<Option<HeldBack>> {
        let Some(run) = run else { return Ok(None) };
        let candidates = run.blocked.saturating_sub(dead);
        let mut again = BTreeSet::new();
        for row in commands.iter().filter(|row| candidates > 0 && !row.refused) {
            let Command::Undo(undo) = &row.command else { continue };
            if undo.plan_again {
                again.insert(&undo.target);
            } else if !again.contains(&undo.target) && is_of(store, &undo.target, &run.task).await?
            {
                return Ok(Some(HeldBack { candidates, undone: undo.target.clone() }));
            }
        }
        Ok(None)
    }

    /// In words, with the command that lets the task plan them again.
    pub fn words(&self) -> String {
        let (candidates, undone) = (counted(self.candidates, "candidate"), &self.undone);
        let (are, they) =
            if self.candidates == 1 { ("is", "it was") } else { ("are", "they were") };
        format!(
            "{candidates} {are} held back, because {they} undone: `besom undo {undone} --plan-again`"
        )
    }
}

/// Whether something that was undone is of a task.
async fn is_of(store: &dyn Store, target: &str, task: &TaskName) -> store::Result<bool> {
    Ok(match Target::parse(target) {
        Ok(Target::Run(run) | Target::Item(run, _)) => {
            store.run(run).await?.is_some_and(|run| run.task == *task)
        }
        Ok(Target::Span { task: of, .. }) => of == *task,
        Err(_) => false,
    })
}
