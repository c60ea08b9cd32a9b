//! Since when tasks work again that were paused, or whose plans have waited for an approval.

use besom_core::ids::{RunId, TaskName};
use besom_core::time::Time;

use besom_ports::store::{Command, CommandRow};

/// When a task began to work last: it was resumed, by itself or with all tasks, or somebody has decided about the
/// plan of one of its runs; none: not among these commands, which are in the order newest first. What was planned
/// before has not waited for its turn until then.
pub fn resumed_at(
    commands: &[CommandRow],
    task: &TaskName,
    is_own: impl Fn(RunId) -> bool,
) -> Option<Time> {
    let begins = |command: &Command| match command {
        Command::Resume { task: of, .. } => of == task || of.is_all(),
        Command::Approve { run } | Command::Reject { run } | Command::Lapse { run } => is_own(*run),
        _ => false,
    };
    let found = commands
        .iter()
        .find(|row| begins(&row.command) && !row.refused && row.applied_at.is_some());
    found.and_then(|row| row.applied_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(command: Command, applied_s: Option<i64>, refused: bool) -> CommandRow {
        CommandRow {
            id: 1,
            command,
            by: "ann".into(),
            reason: String::new(),
            at: Time::EPOCH,
            applied_at: applied_s.map(Time::from_secs),
            result: None,
            refused,
        }
    }

    #[test]
    fn a_plan_waits_for_a_person_until_it_is_decided() {
        let approve =
            |applied_s, refused| row(Command::Approve { run: RunId(7) }, applied_s, refused);
        let of = |rows: &[CommandRow], own: u64| {
            resumed_at(rows, &"sweep".into(), |run| run == RunId(own))
        };
        let resume = row(Command::Resume { task: "sweep".into(), release: false }, Some(3), false);
        let rows = [approve(None, false), approve(Some(9), true), approve(Some(5), false), resume];
        assert_eq!(of(&rows, 7), Some(Time::from_secs(5)));
        assert_eq!(of(&rows, 8), Some(Time::from_secs(3)), "a run of another task");
    }
}
