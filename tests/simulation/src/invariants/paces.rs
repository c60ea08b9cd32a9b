//! A task takes no more rows per second than its ceiling, whatever its pace is.

use besom_core::time::Time;
use besom_node::{Command, Event, executor};
use besom_ports::store::Allowance;

use super::{Invariant, Step};
use crate::script::ROWS_MAX;

/// The task whose rows are counted.
const TASK: &str = "grind";

/// The rows that were granted, and when, by the true time.
#[derive(Default)]
pub(super) struct Paces {
    taken: Vec<(Time, u64)>,
}

impl Invariant for Paces {
    fn name(&self) -> &'static str {
        "paces"
    }

    fn step(&mut self, step: &Step<'_>) -> Vec<String> {
        let (command, answer, at) = match step {
            // What was taken is forgotten, or free earlier.
            Step::Restored | Step::ClockJumped => {
                self.taken.clear();
                return Vec::new();
            }
            Step::Performed { command, answer: Some(answer), at, .. } => (command, answer, *at),
            _ => return Vec::new(),
        };
        let Command::Executor(_, executor::Command::TakeRows { definition, rows, .. }) = command
        else {
            return Vec::new();
        };
        let is_granted =
            matches!(answer, Event::Executor(_, executor::Event::RowsTaken(_, Ok(Allowance::Now))));
        if definition.name.as_str() != TASK || !is_granted {
            return Vec::new();
        }
        // Before these rows, what had been granted was worth the time up to now, and one second's worth is kept.
        let mut sum = 0;
        let mut wrong = Vec::new();
        for (since, before) in self.taken.iter().rev() {
            sum += before;
            let seconds = at.since(*since).as_secs_f64() + 1.0;
            if sum as f64 > f64::from(ROWS_MAX.get()) * seconds + 1.0 {
                wrong
                    .push(format!("{TASK} has taken {sum} rows and then {rows} in {seconds:.1} s"));
                break;
            }
        }
        self.taken.push((at, *rows));
        wrong
    }
}
