//! Since when tasks work again that were paused.

use besom_core::ids::TaskName;
use besom_core::time::Time;

use besom_ports::store::{Command, CommandRow};

/// When a task was resumed last, by itself or with all tasks; none: not among these commands, which are in the
/// order newest first. What was planned before has not waited for its turn until then.
pub fn resumed_at(commands: &[CommandRow], task: &TaskName) -> Option<Time> {
    commands.iter().find_map(|row| match &row.command {
        Command::Resume { task: of, .. } if (of == task || of.is_all()) && !row.refused => {
            row.applied_at
        }
        _ => None,
    })
}
