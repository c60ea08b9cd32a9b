//! A form that is open, with everything that belongs to it: what its values mean, what goes to
//! and fro with the host, and what keeps it from being saved.

use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::plan::{Forecast, forecast};
use besom_core::snapshot::{Answer, ConfigFile, Query, RunState, TaskPast};
use besom_core::time::Time;

use super::WIDE;
use super::agenda::Agenda;
use super::check::{Check, Reading};
use super::exchange::Exchange;
use super::form::Form;
use super::section::Section;
use super::values::Values;
use crate::dash::context::Context;
use crate::dash::field::Field;

/// Slots that the forecast looks at: enough to tell a habit from an accident.
const FORECAST_SLOTS: u32 = 200;
/// Of the past only runs are wanted here: as few slots as there may be.
const PAST_BACK_S: u64 = 1;

/// A form that is open.
#[derive(Debug)]
pub(super) struct Open {
    /// The fields.
    pub form: Form,
    /// What the schedule means.
    pub check: Check,
    /// What goes to and fro.
    pub exchange: Exchange,
    /// The other tasks' slots.
    pub agenda: Agenda,
    /// The reason is typed before it is saved.
    pub reason: Option<Field>,
    /// Leaving was asked for once, with changes that would be lost.
    pub leaving: bool,
    /// Whether the connection stood at the last look.
    pub was_live: bool,
    /// When the task's past was asked for.
    pub past_at: Option<Time>,
}

impl Open {
    /// The form of a task.
    pub fn new(task: &str, values: Values) -> Open {
        Open {
            check: Check::of(&values),
            form: Form::open(task, values),
            exchange: Exchange::default(),
            agenda: Agenda::default(),
            reason: None,
            leaving: false,
            was_live: true,
            past_at: None,
        }
    }

    /// Something was typed.
    pub fn changed(&mut self, cx: &Context<'_>) {
        self.leaving = false;
        self.check.read(self.form.values());
        self.exchange.typed(cx.now);
        self.look(cx);
    }

    /// The other tasks' slots, where they are shown.
    pub fn look(&mut self, cx: &Context<'_>) {
        if cx.size.0 >= WIDE.0 && cx.size.1 >= WIDE.1 {
            self.agenda.look(cx.snap, &self.form.task, self.check.valid.as_ref(), cx.now);
        }
    }

    /// The file as it is now says this of the task.
    pub fn rebase(&mut self, file: &ConfigFile, cx: &Context<'_>) {
        let section = Section::find(&file.text, &self.form.task);
        if let Some(task) = cx.snap.task(&self.form.task) {
            self.form.rebase(Values::of(task, section.as_ref()));
        }
        self.changed(cx);
    }

    /// Takes the file as it is now for the one that is edited; what was typed stays.
    pub fn take_theirs(&mut self, cx: &Context<'_>) {
        self.exchange.reload(cx.now);
        if let Some(file) = self.exchange.file.clone() {
            self.rebase(&file, cx);
        }
    }

    /// The question for the task's past.
    pub fn past_query(&self) -> Query {
        Query::Past { task: self.form.task.clone(), back_s: PAST_BACK_S }
    }

    /// The task's past, where it was read.
    pub fn past<'a>(&self, cx: &Context<'a>) -> Option<&'a TaskPast> {
        match &cx.details.get(&self.past_query())?.answer {
            Answer::Past(past) => Some(past),
            _ => None,
        }
    }

    /// What runs as long as the past ones did would meet by the last valid schedule.
    pub fn forecast(&self, cx: &Context<'_>) -> Option<Forecast> {
        let valid = self.check.valid.as_ref()?;
        let past = self.past(cx)?;
        let ended = past.runs.iter().rev().filter(|run| run.state == RunState::Ok);
        let took = ended.filter_map(|run| Some(run.ended_at?.since(run.started_at)));
        let durations: Vec<Duration> = took.collect();
        let name = TaskName::from(self.form.task.as_str());
        let policy = self.form.values().policy();
        forecast(&name, &valid.schedule, &policy, &durations, cx.now, FORECAST_SLOTS)
    }

    /// Why it cannot be saved now; none: it can.
    pub fn obstacle(&self, cx: &Context<'_>) -> Option<String> {
        if cx.readonly {
            return Some("read-only: nothing can be changed from here".into());
        }
        if !cx.live {
            return Some("this is not the present: nothing can be saved now".into());
        }
        if self.exchange.saves() {
            return Some("it is being saved already".into());
        }
        let Some(file) = &self.exchange.file else {
            return Some("the configuration file is not known yet".into());
        };
        if let Some(why) = &file.locked {
            return Some(format!("the file cannot be replaced: {why}"));
        }
        if self.exchange.is_stale() {
            return Some(
                "the file was changed by somebody else: R takes theirs, and keeps what you typed"
                    .into(),
            );
        }
        if !self.form.is_changed() {
            return Some("nothing has changed".into());
        }
        if let Reading::Wrong(error) = &self.check.reading {
            return Some(format!("{}; {}", error.message, error.fix));
        }
        let current = self.exchange.preview.as_ref().filter(|(of, _)| *of == self.form.changes());
        let problems = current.map(|(_, edited)| edited.problems.as_slice()).unwrap_or_default();
        // What was wrong elsewhere before is not in the way; whether anything else is, the host
        // tells when it is saved.
        let wrong = problems.iter().find(|problem| !problem.warning && problem.key.is_some())?;
        Some(format!("{}; {}", wrong.message, wrong.fix))
    }

    /// Where an editor is to be opened.
    pub fn line(&self) -> u32 {
        let file = self.exchange.file.as_ref();
        let section = file.and_then(|file| Section::find(&file.text, &self.form.task));
        section.map_or(1, |section| section.line_of(self.form.focus.key()))
    }
}
