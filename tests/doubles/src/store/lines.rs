//! What guests have logged, by run.

use std::collections::VecDeque;

use besom_core::ids::RunId;
use besom_snapshot::LogLine;

use super::state::State;
use besom_ports::store::{RunLine, RunLines};

/// The lines of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Logged {
    /// The number of the newest line.
    last: u64,
    /// Lines that their nodes dropped.
    dropped: u64,
    /// The newest lines, numbered up to `last` without gaps.
    kept: VecDeque<LogLine>,
}

impl State {
    pub(super) fn write_lines(&mut self, lines: &[RunLine], lost: &[(RunId, u64)], max: u32) {
        for line in lines.iter().filter(|line| self.runs.contains_key(&line.run)) {
            let logged = self.lines.entry(line.run).or_default();
            logged.last += 1;
            logged.dropped += line.dropped;
            logged.kept.push_back(LogLine {
                no: logged.last,
                at: line.at,
                node: line.node.clone(),
                level: line.level.to_owned(),
                text: line.text.clone(),
                dropped: line.dropped,
            });
            let over = logged.kept.len().saturating_sub(max as usize);
            logged.kept.drain(..over);
        }
        for (run, dropped) in lost.iter().filter(|(run, _)| self.runs.contains_key(run)) {
            self.lines.entry(*run).or_default().dropped += dropped;
        }
    }

    pub(super) fn list_lines(&self, run: RunId, after: u64, limit: u32) -> RunLines {
        let Some(logged) = self.lines.get(&run) else { return RunLines::default() };
        let wanted = logged.kept.iter().filter(|line| line.no > after);
        RunLines {
            lines: wanted.take(limit as usize).cloned().collect(),
            lost: logged.dropped + logged.last - logged.kept.len() as u64,
        }
    }

    /// Removes lines of runs that no longer exist, at most this many.
    pub(super) fn prune_lines(&mut self, limit: u32) -> u64 {
        let (mut left, runs) = (limit as usize, &self.runs);
        self.lines.retain(|run, logged| {
            if runs.contains_key(run) {
                return true;
            }
            let gone = logged.kept.len().min(left);
            logged.kept.drain(..gone);
            left -= gone;
            !logged.kept.is_empty()
        });
        u64::from(limit) - left as u64
    }
}
