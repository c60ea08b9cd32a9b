//! An open form with everything that belongs to it: the parsed values, the exchange with the host,
//! and what prevents a save.

use std::time::Duration;

use besom_core::ids::TaskName;
use besom_core::plan::{Forecast, forecast};
use besom_core::time::Time;
use besom_snapshot::{Answer, ConfigFile, Query, RunState, TaskPast};

use super::WIDE;
use super::agenda::Agenda;
use super::check::{Check, Reading};
use super::exchange::Exchange;
use super::form::Form;
use super::section::Section;
use super::values::Values;
use crate::dash::context::Context;
use crate::dash::field::Field;

/// Slots that the forecast examines: enough to tell a pattern from a coincidence.
const FORECAST_SLOTS: u32 = 200;
/// Only runs are needed here, so as few slots as possible are requested.
const PAST_BACK_S: u64 = 1;

/// An open form.
#[derive(Debug)]
pub(super) struct Open {
    /// The fields.
    pub form: Form,
    /// The parsed schedule.
    pub check: Check,
    /// The exchange with the host.
    pub exchange: Exchange,
    /// The other tasks' slots.
    pub agenda: Agenda,
    /// The reason, while it is typed before a save.
    pub reason: Option<Field>,
    /// Whether Esc was pressed once with unsaved changes.
    pub leaving: bool,
    /// Whether the connection was up at the last refresh.
    pub was_live: bool,
    /// When the task's past was requested.
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

    /// The values have changed.
    pub fn changed(&mut self, cx: &Context<'_>) {
        self.leaving = false;
        self.check.read(self.form.values());
        self.exchange.typed(cx.now);
        self.look(cx);
    }

    /// Updates the other tasks' slots if they are visible.
    pub fn look(&mut self, cx: &Context<'_>) {
        if cx.size.0 >= WIDE.0 && cx.size.1 >= WIDE.1 {
            self.agenda.look(cx.snap, &self.form.task, self.check.valid.as_ref(), cx.now);
        }
    }

    /// Applies the task's values in the file on disk.
    pub fn rebase(&mut self, file: &ConfigFile, cx: &Context<'_>) {
        let section = Section::find(&file.text, &self.form.task);
        if let Some(task) = cx.snap.task(&self.form.task) {
            self.form.rebase(Values::of(task, section.as_ref()));
        }
        self.changed(cx);
    }

    /// Bases the edit on the file on disk; changed fields keep their input.
    pub fn take_theirs(&mut self, cx: &Context<'_>) {
        self.exchange.reload(cx.now);
        if let Some(file) = self.exchange.file.clone() {
            self.rebase(&file, cx);
        }
    }

    /// The question about the task's past.
    pub fn past_query(&self) -> Query {
        Query::Past { task: self.form.task.clone(), back_s: PAST_BACK_S }
    }

    /// The task's past, if it has been read.
    pub fn past<'a>(&self, cx: &Context<'a>) -> Option<&'a TaskPast> {
        match &cx.details.get(&self.past_query())?.answer {
            Answer::Past(past) => Some(past),
            _ => None,
        }
    }

    /// The forecast for the last valid schedule, from the durations of past runs.
    pub fn forecast(&self, cx: &Context<'_>) -> Option<Forecast> {
        let valid = self.check.valid.as_ref()?;
        let past = self.past(cx)?;
        let ended = past.runs.iter().rev().filter(|run| run.state == RunState::Ok);
        let durations: Vec<Duration> = ended.filter_map(|run| run.took()).collect();
        let name = TaskName::from(self.form.task.as_str());
        let policy = self.form.values().policy();
        forecast(&name, &valid.schedule, &policy, &durations, cx.now, FORECAST_SLOTS)
    }

    /// Why the form cannot be saved now; none: it can be saved.
    pub fn obstacle(&self, cx: &Context<'_>) -> Option<String> {
        if cx.readonly {
            return Some("read-only: this dashboard cannot change anything".into());
        }
        if !cx.live {
            return Some("the data shown is not live: nothing can be saved now".into());
        }
        if self.exchange.saves() {
            return Some("the edit is already being saved".into());
        }
        let Some(file) = &self.exchange.file else {
            return Some("the configuration file has not been read yet".into());
        };
        if let Some(why) = &file.locked {
            return Some(format!("the file cannot be replaced: {why}"));
        }
        if self.exchange.is_stale() {
            return Some(
                "the file has changed on disk: R reloads it and keeps your changes".into(),
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
        // Earlier errors elsewhere in the file do not block the edit; the host reports any other
        // error when it saves.
        let wrong = problems.iter().find(|problem| !problem.warning && problem.key.is_some())?;
        Some(format!("{}; {}", wrong.message, wrong.fix))
    }

    /// The line at which an editor is opened.
    pub fn line(&self) -> u32 {
        let file = self.exchange.file.as_ref();
        let section = file.and_then(|file| Section::find(&file.text, &self.form.task));
        section.map_or(1, |section| section.line_of(self.form.focus.key()))
    }
}
