//! No run deletes more rows or sets more items aside than it may, unless an operator has released it, and no
//! more runs fail in a row.

use std::collections::BTreeMap;

use besom_core::brake::LETTERS;
use besom_core::command::Command;
use besom_core::ids::TaskName;
use besom_core::plan::Run;
use besom_core::time::Time;
use besom_ports::store::{End, Store as _};

use super::{CLOCK_SLACK, Invariant, Rest, history, now};
use crate::script;

pub(super) struct Brakes;

impl Invariant for Brakes {
    fn name(&self) -> &'static str {
        "brakes"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        let mut wrong = deletes(rest);
        wrong.extend(letters(rest));
        wrong.extend(failures(rest));
        wrong
    }
}

fn runs_of(rest: &Rest<'_>, task: &str) -> Vec<Run> {
    now(rest.store.runs(Some(&TaskName::from(task)), u32::MAX)).expect("the runs")
}

/// When a task was resumed with its brakes released.
fn released(rest: &Rest<'_>, of: &str) -> Vec<Time> {
    let commands = now(rest.store.commands(None, u32::MAX)).expect("the commands");
    let release = commands.into_iter().filter(|row| match &row.command {
        Command::Resume { task, release: true } => task.as_str() == of && !row.refused,
        _ => false,
    });
    release.filter_map(|row| row.applied_at).collect()
}

fn deletes(rest: &Rest<'_>) -> Vec<String> {
    let released = released(rest, "purge");
    let mut deleted: BTreeMap<_, u64> = BTreeMap::new();
    for row in history(rest.store) {
        if row.identity.task.as_str() == "purge" && row.outcome == End::Committed {
            *deleted.entry(row.run).or_default() += 1;
        }
    }
    let mut wrong = Vec::new();
    for run in runs_of(rest, "purge") {
        let rows = deleted.get(&run.id).copied().unwrap_or(0);
        let is_free = released.iter().any(|at| *at + CLOCK_SLACK >= run.started_at);
        if rows > script::DELETES_MAX && !is_free {
            let most = script::DELETES_MAX;
            wrong
                .push(format!("run {} of purge has deleted {rows} rows, more than {most}", run.id));
        }
    }
    wrong
}

/// The limit holds exactly, since the brakes of a run were set or a resumption has set their counts back.
fn letters(rest: &Rest<'_>) -> Vec<String> {
    let brakes = now(rest.store.brakes(&TaskName::from("sweep"), u32::MAX)).expect("the brakes");
    let beyond = brakes.into_iter().filter_map(|brake| {
        let most = brake.allowed.filter(|most| brake.what == LETTERS && brake.used > *most)?;
        let (run, used) = (brake.run, brake.used);
        Some(format!("run {run} of sweep has set {used} items aside, more than {most}"))
    });
    beyond.collect()
}

/// One more may be scanning as the brake trips, and the request for the pause may be lost after each, with its
/// leader or on its way to the store.
fn failures(rest: &Rest<'_>) -> Vec<String> {
    const SLACK: u64 = 3;
    let lost = |from: Time, to: Time| {
        let between = |at: &&Time| **at + CLOCK_SLACK >= from && **at <= to + CLOCK_SLACK;
        rest.lost.iter().filter(between).count() as u64
    };
    let mut runs = runs_of(rest, "grind");
    runs.sort_by_key(|run| run.id);
    let commands = now(rest.store.commands(None, u32::MAX)).expect("the commands");
    let stops: Vec<Time> = commands
        .iter()
        .filter(|row| match &row.command {
            Command::Pause { task } | Command::Brake { task, .. } => {
                task.is_all() || task.as_str() == "grind"
            }
            _ => false,
        })
        .map(|row| row.at)
        .collect();
    let (mut in_a_row, mut since, mut wrong) = (0, Time::EPOCH, Vec::new());
    for run in runs {
        let cancelled = run.error.as_deref().is_some_and(|e| e.starts_with("cancelled by "));
        if run.error.is_none() || cancelled {
            (in_a_row, since) = (0, run.started_at);
            continue;
        }
        in_a_row += 1;
        if stops.iter().any(|at| *at + CLOCK_SLACK >= since && *at <= run.started_at + CLOCK_SLACK)
        {
            (in_a_row, since) = (1, run.started_at);
        }
        let most = u64::from(script::FAILURES_MAX.get()) + SLACK;
        if in_a_row > most && in_a_row > most + lost(since, run.started_at) {
            wrong.push(format!("{in_a_row} runs of grind have failed up to run {}", run.id));
        }
    }
    wrong
}
