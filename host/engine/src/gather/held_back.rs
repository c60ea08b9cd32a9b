//! Candidates that the last run of a task has left out, because an undo holds them back.

use std::collections::{BTreeMap, BTreeSet};

use besom_core::ids::TaskName;
use besom_core::undo::Target;
use besom_snapshot::HeldBack;

use besom_ports::store::{self, Command, CommandRow, Store};

/// Maximum number of commands among which undos are looked for.
pub(super) const COMMANDS: u32 = 200;

/// The tasks of what was undone, by what `besom undo` took; each is read once, because it does not change.
#[derive(Debug, Default)]
pub struct Undone(BTreeMap<String, Option<TaskName>>);

impl Undone {
    /// What is held back of a task, if its last run has left out `blocked` candidates; `dead` is the number of open
    /// dead letters, which block others. `commands` are the latest ones, newest first.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn holds(
        &mut self,
        store: &dyn Store,
        commands: &[CommandRow],
        task: &TaskName,
        (blocked, dead): (u64, u64),
    ) -> store::Result<Option<HeldBack>> {
        let candidates = blocked.saturating_sub(dead);
        let mut again = BTreeSet::new();
        for row in commands.iter().filter(|row| candidates > 0 && !row.refused) {
            let Command::Undo(undo) = &row.command else { continue };
            let undone = undo.to_string();
            if undo.plan_again {
                again.insert(undone);
            } else if !again.contains(&undone)
                && !again.contains(&undo.target)
                && self.task(store, &undo.target).await?.as_ref() == Some(task)
            {
                return Ok(Some(HeldBack { candidates, undone }));
            }
        }
        Ok(None)
    }

    /// The task of something that was undone.
    async fn task(&mut self, store: &dyn Store, target: &str) -> store::Result<Option<TaskName>> {
        if let Some(task) = self.0.get(target) {
            return Ok(task.clone());
        }
        let task = match Target::parse(target) {
            Ok(Target::Run(run) | Target::Item(run, _)) => {
                store.run(run).await?.map(|run| run.task)
            }
            Ok(Target::Span { task, .. }) => Some(task),
            Err(_) => None,
        };
        self.0.insert(target.to_owned(), task.clone());
        Ok(task)
    }
}
