//! The operators: they pause, resume, discard, retry and undo. After the faults they resume what is paused.

use std::time::Duration;

use besom_core::command::{Command, DeadSelector, Undo};
use besom_core::ids::TaskName;
use besom_ports::store::{End, HistoryQuery, Store as _};
use rand::Rng as _;

use super::faults::Luck;
use super::invariants::now;
use super::script;
use super::world::{Coming, World};

/// How many of the newest runs and items an operator looks at.
const NEWEST: u32 = 40;

impl World<'_> {
    pub(super) fn operate(&mut self) {
        let wait = if self.troubled() {
            if let Some(command) = self.wish() {
                self.submit(command);
            }
            self.random_millis(500, 6_000)
        } else {
            self.resume_all();
            Duration::from_secs(3)
        };
        self.schedule(wait, Coming::Operate);
    }

    /// The operator does not learn whether a request with an unknown result has arrived, and leaves it at that.
    fn submit(&mut self, command: Command) {
        self.note(|| format!("an operator asks: {command:?}"));
        let store = self.connect_by(Luck::of);
        let _ = now(store.submit(&command, "operator", "a reason"));
    }

    fn some_task(&mut self) -> TaskName {
        TaskName::from(script::TASKS[self.random.random_range(0..script::TASKS.len())])
    }

    fn some_paused(&mut self) -> Option<TaskName> {
        let states = now(self.root.task_states()).expect("no read fails");
        let paused: Vec<TaskName> =
            states.into_iter().filter(|state| state.paused.is_some()).map(|s| s.task).collect();
        if paused.is_empty() {
            return None;
        }
        Some(paused[self.random.random_range(0..paused.len())].clone())
    }

    fn wish(&mut self) -> Option<Command> {
        Some(match self.random.random_range(0..16) {
            0 => Command::Pause { task: self.some_task() },
            1 if self.chance(3) => Command::Pause { task: TaskName::from(TaskName::ALL) },
            1 => Command::Resign,
            2..=5 => {
                let task = self.some_paused()?;
                let release = self.chance(2) && !task.is_all();
                Command::Resume { task, release }
            }
            6 => Command::DiscardPlanned { task: self.some_paused()? },
            7 => Command::Trigger { task: self.some_task() },
            8 => {
                let runs = now(self.root.active_runs()).expect("no read fails");
                let run = runs.iter().find(|run| script::TASKS.contains(&run.task.as_str()))?;
                Command::Cancel { run: run.id }
            }
            9 => Command::RetryDead(self.some_letters()),
            10 => Command::DiscardDead(self.some_letters()),
            11 => Command::RepairStreams { task: self.some_task() },
            12..=13 => self.undo_of(|run, _| run)?,
            _ => self.undo_of(|run, key| format!("{run}/{key}"))?,
        })
    }

    fn some_letters(&mut self) -> DeadSelector {
        let task = Some(self.some_task());
        DeadSelector { task, ..DeadSelector::default() }
    }

    /// An undo of something that was committed not long ago.
    fn undo_of(&mut self, target: impl Fn(String, &str) -> String) -> Option<Command> {
        let query = HistoryQuery { limit: NEWEST, ..HistoryQuery::default() };
        let mut rows = now(self.root.history(&query)).expect("no read fails");
        rows.retain(|row| {
            row.outcome == End::Committed && script::TASKS.contains(&row.identity.task.as_str())
        });
        if rows.is_empty() {
            return None;
        }
        let row = &rows[self.random.random_range(0..rows.len())];
        let target = target(row.run.to_string(), &row.identity.key);
        Some(Command::Undo(Undo { target, ..Undo::default() }))
    }

    fn resume_all(&mut self) {
        let states = now(self.root.task_states()).expect("no read fails");
        let pending = now(self.root.pending_commands(u32::MAX)).expect("no read fails");
        for state in states.into_iter().filter(|state| state.paused.is_some()) {
            let asked = pending.iter().any(
                |row| matches!(&row.command, Command::Resume { task, .. } if *task == state.task),
            );
            if !asked {
                let release = !state.task.is_all();
                self.submit(Command::Resume { task: state.task, release });
            }
        }
    }
}
