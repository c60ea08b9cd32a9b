//! Since when tasks work again that were paused, or whose plans have waited for an approval.

use besom_core::ids::{RunId, TaskName};
use besom_core::time::Time;

use besom_ports::store::{self, Command, CommandRow, Store};

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

/// Maximum number of commands among which the pauses of a task are looked for.
const COMMANDS: u32 = 1_000;

/// When a task was stopped or resumed, by itself or with all tasks. A run that was active then has taken as long
/// as people do.
#[derive(Debug, Default)]
pub struct Stops(Vec<Time>);

impl Stops {
    /// Those of a task among the latest commands.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(store: &dyn Store, task: &TaskName) -> store::Result<Stops> {
        Ok(Stops::of(&store.commands(None, COMMANDS).await?, task))
    }

    fn of(commands: &[CommandRow], task: &TaskName) -> Stops {
        let concerns = |command: &Command| match command {
            Command::Pause { task: of }
            | Command::Brake { task: of, .. }
            | Command::Resume { task: of, .. } => of == task || of.is_all(),
            _ => false,
        };
        let rows = commands.iter().filter(|row| concerns(&row.command) && !row.refused);
        Stops(rows.filter_map(|row| row.applied_at).collect())
    }

    /// Whether the task was stopped or resumed between two times.
    pub fn between(&self, from: Time, to: Option<Time>) -> bool {
        self.0.iter().any(|at| from <= *at && to.is_none_or(|to| *at <= to))
    }
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
    #[test]
    fn a_run_stood_if_its_task_was_stopped_or_resumed_meanwhile() {
        let resume = |task: &str, at, refused| {
            row(Command::Resume { task: task.into(), release: false }, at, refused)
        };
        let pause = row(Command::Pause { task: TaskName::from(TaskName::ALL) }, Some(20), false);
        let rows = [
            pause,
            resume("sweep", Some(10), false),
            resume("sweep", Some(30), true),
            resume("sweep", None, false),
            resume("other", Some(40), false),
        ];
        let stops = Stops::of(&rows, &"sweep".into());
        let stood =
            |from, to: Option<i64>| stops.between(Time::from_secs(from), to.map(Time::from_secs));
        assert!(stood(5, Some(15)) && stood(15, Some(25)) && stood(15, None));
        assert!(!stood(1, Some(9)) && !stood(11, Some(19)) && !stood(21, Some(50)));
    }
}
