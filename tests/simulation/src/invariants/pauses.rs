//! A task is paused if and only if the last command about it says so.

use besom_core::command::Command;
use besom_core::ids::TaskName;
use besom_ports::store::Store as _;

use super::{Invariant, Rest, now, paused};
use crate::script;

pub(super) struct Pauses;

impl Invariant for Pauses {
    fn name(&self) -> &'static str {
        "pauses"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let paused = paused(rest.store);
        // Newest first.
        let commands = now(rest.store.commands(None, u32::MAX)).expect("the commands");
        let mut wrong = Vec::new();
        for task in script::TASKS.into_iter().chain([TaskName::ALL]) {
            let task = TaskName::from(task);
            // In the order of their numbers: the store's clock jumps.
            let mut applied =
                commands.iter().filter(|row| !row.refused && row.applied_at.is_some());
            let last = applied.find_map(|row| match &row.command {
                Command::Pause { task: of } | Command::Brake { task: of, .. } if *of == task => {
                    Some((row.id, true))
                }
                Command::Resume { task: of, .. } if *of == task => Some((row.id, false)),
                _ => None,
            });
            let (is, (command, wanted)) = (paused.contains(&task), last.unwrap_or((0, false)));
            if is != wanted {
                wrong.push(format!("{task}: paused {is}, but {wanted} by command {command}"));
            }
        }
        wrong
    }
}
