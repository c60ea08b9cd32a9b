//! A leader sends nothing that changes the store once its lease may have ended.

use besom_node::{Command, executor, planner};

use super::{Invariant, Step};

pub(super) struct Silence;

impl Invariant for Silence {
    fn name(&self) -> &'static str {
        "silence"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        let Step::Sent { node, command, lease_left, cluster } = step else { return Vec::new() };
        let writes = match command {
            Command::Planner(_, command) => matches!(
                command,
                planner::Command::Decide(..)
                    | planner::Command::Scan(..)
                    | planner::Command::EndScan { .. }
                    | planner::Command::Apply(..)
            ),
            // In a cluster, those execute that do not lead.
            Command::Executor(_, command) => {
                let begins = matches!(
                    command,
                    executor::Command::Act { .. } | executor::Command::Commit(..)
                );
                begins && !cluster
            }
            Command::Prune(_) | Command::Bury(..) | Command::Load(_) => true,
            _ => false,
        };
        if writes && lease_left.is_none_or(|left| left.is_zero()) {
            return vec![format!("{node} sends {command:?} without a lease")];
        }
        Vec::new()
    }
}
