//! Answers questions and performs actions of viewers of the dashboard.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use besom_core::command::{Action, Command, DeadSelector, MessageSelector, check_reason};
use besom_core::ids::{RunId, TaskName};
use besom_core::mode::Mode;
use besom_core::ring::NodeName;
use besom_core::time::Time;
use besom_core::undo::{self, Target};
use besom_snapshot::{
    Answer, DEAD_PAGE, DeadPage, Done, Edit, ItemRow, LOG_PAGE, LastRun, Letter, LogPage, Query,
    RUNS_JUDGED, RUNS_PAGE, RUNS_TASKS_MAX, Refusal, Run, RunDetail, RunPage, SLOTS_PAGE, Staying,
    TaskPast,
};

use super::Gatherer;
use super::cache::last_run;
use super::explain::explain;
use super::refused::{by_review, standings};
use super::resumed::Stops;
use super::rows;
use crate::host::asking;
use crate::host::editing::Desk;
use crate::host::retaken::{self, Retaken};
use crate::host::undo::nothing_kept;
use besom_ports::members::MemberState;
use besom_ports::store::{self, HistoryQuery, HistoryRow, Letters, Store};
use besom_ports::task::TaskDefinition;

/// How long a command may wait for a leader before the answer says that it is pending.
const APPLY_MAX: Duration = Duration::from_secs(5);
/// How far back slots are searched.
const BACK_MAX: Duration = Duration::from_secs(366 * 86_400);
/// Maximum number of history rows of a run that are examined.
const ITEMS_MAX: u32 = 500;
/// Maximum number of pages of an undo's history rows that are examined for rows that stay.
const STAYING_PAGES: usize = 100;

/// The refusal of changes on a read-only connection.
const LOOK_ONLY: &str = "this connection is read-only";

/// How long after the end of a run nodes may still have lines of it to write.
const LAST_LINES: Duration = Duration::from_secs(5);

/// The caller of a question or an action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The caller's identity for the audit records: a user of this machine, or an address with the
    /// name of its token.
    pub by: String,
    /// Whether the caller is read-only.
    pub readonly: bool,
}

/// Why a question cannot be answered or an action cannot be performed.
type Refused = String;

fn refused(error: impl std::fmt::Display) -> Refused {
    error.to_string()
}

impl Gatherer {
    /// Answers a question.
    pub async fn answer(&self, caller: &Caller, query: Query) -> Answer {
        let answered = match query {
            Query::Dead { task, error, before } => self.dead(task, error, before).await,
            Query::Run { run } => self.run_detail(run).await,
            Query::Runs { tasks, limit } => self.runs(&tasks, limit).await,
            Query::Depths => Ok(Answer::Depths { samples: self.depths() }),
            Query::Past { task, back_s } => self.past(task, back_s).await,
            Query::Explain { task, at } => self.explain(task, at).await,
            Query::Log { run, after } => self.log(run, after).await,
            Query::Config => self.at_desk(|desk| desk.show()).await.map(Answer::Config),
            Query::Edit(edit) => self.edit(caller, edit).await,
        };
        answered.unwrap_or_else(|message| Answer::Refused(Refusal { message }))
    }

    /// Performs an action on behalf of the caller.
    pub async fn act(&self, caller: &Caller, action: Action, reason: &str) -> Answer {
        if caller.readonly {
            let message = LOOK_ONLY.to_owned();
            return Answer::Refused(Refusal { message });
        }
        if let Err(message) = check_reason(reason) {
            return Answer::Refused(Refusal { message });
        }
        let done = match action {
            Action::Ask { command } => self.ask(caller, &command, reason).await,
            Action::Drain { node } => {
                self.set_state(caller, &node, MemberState::Draining, reason).await
            }
            Action::Rejoin { node } => {
                self.set_state(caller, &node, MemberState::Active, reason).await
            }
        };
        self.hurry();
        done.map_or_else(|message| Answer::Refused(Refusal { message }), Answer::Done)
    }

    fn store(&self) -> &dyn Store {
        self.sources().store.as_ref()
    }

    async fn ask(&self, caller: &Caller, command: &Command, reason: &str) -> Result<Done, Refused> {
        // Records of completed actions cannot be submitted as commands.
        if let Command::Edited { .. }
        | Command::Loaded { .. }
        | Command::Reloaded { .. }
        | Command::Imported { .. }
        | Command::Drained { .. }
        | Command::Rejoined { .. }
        | Command::Unknown = command
        {
            return Err(format!("{} is not a command for the leader", command.verb()));
        }
        let needs_reason = command.discards() || matches!(command, Command::Pause { .. });
        if needs_reason && reason.trim().is_empty() {
            return Err(format!("a reason is required for {}", command.verb()));
        }
        if let Command::RetryDead(which) | Command::DiscardDead(which) = command
            && !which.is_narrow()
        {
            return Err("select the dead letters by number, task or error".to_owned());
        }
        if let Command::RetryMessages(which) | Command::DiscardMessages(which) = command
            && which == &MessageSelector::default()
        {
            return Err("select the messages by number or topic".to_owned());
        }
        if let Command::Undo(of) = command
            && !of.plan_again
            && let Ok(target) = Target::parse(&of.target)
        {
            if let Some(why) = nothing_kept(self.store(), &target).await.map_err(refused)? {
                return Err(why);
            }
            self.pause_for(caller, &target, reason).await?;
        }
        let asked = asking::ask(self.store(), command, &caller.by, reason, APPLY_MAX).await;
        let asked = asked.map_err(refused)?;
        if asked.refused {
            return Err(asked.result.unwrap_or_default());
        }
        Ok(Done { command: Some(asked.command), applied: asked.applied, result: asked.result })
    }

    /// Pauses the task whose next run would take the rows of an undo again.
    async fn pause_for(
        &self,
        caller: &Caller,
        target: &Target,
        reason: &str,
    ) -> Result<(), Refused> {
        let defined = Arc::clone(&self.sources().defined.borrow());
        let known = |task: &TaskName| Some(Arc::clone(&defined.work.tasks.get(task)?.definition));
        let again = retaken::retaken(self.store(), known, target).await.map_err(refused)?;
        match again.filter(|of| of.in_ranges) {
            Some(Retaken { task, .. }) => {
                let why = (&*caller.by, reason);
                let target = target.to_string();
                retaken::pause(self.store(), &task, &target, why).await.map_err(refused)
            }
            None => Ok(()),
        }
    }

    /// Runs work on the configuration file, which waits for the disk, on a blocking thread.
    async fn at_desk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Desk) -> Result<T, String> + Send + 'static,
    ) -> Result<T, Refused> {
        let desk = self.sources().desk.clone();
        tokio::task::spawn_blocking(move || work(&desk)).await.map_err(refused)?
    }

    async fn edit(&self, caller: &Caller, edit: Edit) -> Result<Answer, Refused> {
        if edit.save && caller.readonly {
            return Err(LOOK_ONLY.to_owned());
        }
        check_reason(&edit.reason)?;
        let (task, reason) = (TaskName::from(edit.task.as_str()), edit.reason.clone());
        let now = self.store().now().await.map_err(refused)?;
        let done = self.at_desk(move |desk| desk.edit(&edit, now)).await?;
        if let Some(change) = done.change {
            self.note(caller, &Command::Edited { task, change }, &reason).await;
        }
        Ok(Answer::Edited(done.edited))
    }

    /// Records who performed an action that has already taken effect. A failure is only logged,
    /// because the action cannot be undone.
    async fn note(&self, caller: &Caller, command: &Command, reason: &str) {
        if let Err(error) = self.store().submit(command, &caller.by, reason).await {
            let (by, what, of) = (&caller.by, command.verb(), command.subject());
            tracing::warn!(
                %error, by, what, of,
                "the audit record of this action could not be stored"
            );
        }
    }

    async fn set_state(
        &self,
        caller: &Caller,
        node: &str,
        state: MemberState,
        reason: &str,
    ) -> Result<Done, Refused> {
        let Some(members) = &self.sources().members else {
            return Err("this host is not in a cluster: no other node can take its work".into());
        };
        let there = members.set_state(&NodeName::from(node), state).await.map_err(refused)?;
        if !there {
            return Err(format!("there is no node `{node}`"));
        }
        self.note(caller, &state.noted(node.to_owned()), reason).await;
        let result = match state {
            MemberState::Draining => format!("{node} is draining: it receives no new work"),
            MemberState::Active | MemberState::Joining => {
                format!("{node} receives its share of the partitions again")
            }
        };
        Ok(Done { command: None, applied: true, result: Some(result) })
    }

    async fn dead(
        &self,
        task: Option<String>,
        error: Option<String>,
        before: Option<u64>,
    ) -> Result<Answer, Refused> {
        let task = task.map(TaskName::from);
        let selector = DeadSelector { task, error, ..DeadSelector::default() };
        let page = DEAD_PAGE + 1;
        let found = self.store().dead_letters(&selector, Letters::Open, before, page).await;
        let mut letters: Vec<Letter> = found.map_err(refused)?.iter().map(Letter::from).collect();
        let more = letters.len() > DEAD_PAGE as usize;
        letters.truncate(DEAD_PAGE as usize);
        Ok(Answer::Dead(DeadPage { letters, more }))
    }

    async fn run_detail(&self, id: u64) -> Result<Answer, Refused> {
        let run = self.store().run(RunId(id)).await.map_err(refused)?;
        let run = run.ok_or_else(|| format!("there is no run {id}, or it was pruned"))?;
        let query = HistoryQuery { run: Some(run.id), limit: ITEMS_MAX, ..HistoryQuery::default() };
        let history = self.store().history(&query).await.map_err(refused)?;
        let items: Vec<ItemRow> = history.iter().map(rows::item).collect();
        let mut outcomes = BTreeMap::new();
        items.iter().for_each(|item| *outcomes.entry(item.outcome).or_default() += 1);
        let definition = run.definition.clone();
        let rows = items.iter().map(|item| item.rows).sum();
        let mut review = None;
        if run.mode != Mode::Live {
            review = self.store().review_of(run.id).await.map_err(refused)?;
        }
        let rule = review.as_ref().and_then(|review| {
            besom_product::retention::rule(&TaskDefinition::of_run(&run)?, review.opened_at)
        });
        let staying = self.staying(&run, history).await.map_err(refused)?;
        let run = by_review(Run::from(&run), review.as_ref());
        let detail = RunDetail { run, outcomes, rows, items, definition, review, rule, staying };
        Ok(Answer::Run(Box::new(detail)))
    }

    /// The rows that a run leaves as they are, if it undoes something. Of a run that has ended, all history rows are
    /// read, because the next answer would not differ; of an active one, only the newest.
    async fn staying(
        &self,
        run: &store::Run,
        mut history: Vec<HistoryRow>,
    ) -> store::Result<Option<Staying>> {
        let settings = TaskDefinition::of_run(run).map(|task| task.settings).unwrap_or_default();
        let requested = undo::requested(&settings).filter(|_| run.task.as_str() == undo::TASK);
        let Some((of, _)) = requested else { return Ok(None) };
        let mut staying = Staying { rows: 0, or_more: false, undone: of.to_string() };
        for page in 1.. {
            for left in history.iter().filter_map(|row| undo::left(row.reason.as_deref())) {
                staying.rows += left.rows;
                staying.or_more |= left.or_more;
            }
            let before = history.last().map(|row| row.id);
            if history.len() < ITEMS_MAX as usize {
                break;
            }
            if run.ended_at.is_none() || page == STAYING_PAGES {
                staying.or_more = true;
                break;
            }
            let (run, limit) = (Some(run.id), ITEMS_MAX);
            let query = HistoryQuery { run, before, limit, ..HistoryQuery::default() };
            history = self.store().history(&query).await?;
        }
        Ok(Some(staying).filter(|staying| staying.rows > 0))
    }

    async fn log(&self, id: u64, after: u64) -> Result<Answer, Refused> {
        let run = self.store().run(RunId(id)).await.map_err(refused)?;
        let found = self.store().lines(RunId(id), after, LOG_PAGE).await.map_err(refused)?;
        let now = self.store().now().await.map_err(refused)?;
        let may_log = |ended: Option<Time>| ended.is_none_or(|at| now.since(at) < LAST_LINES);
        let open = run.is_some_and(|run| may_log(run.ended_at));
        Ok(Answer::Log(LogPage { lines: found.lines, dropped: found.lost, open }))
    }

    async fn runs(&self, tasks: &[String], limit: u32) -> Result<Answer, Refused> {
        let limit = limit.min(RUNS_PAGE);
        let mut found = Vec::new();
        if tasks.is_empty() {
            found.push(self.store().runs(None, limit + 1).await.map_err(refused)?);
        }
        for task in tasks.iter().take(RUNS_TASKS_MAX) {
            let task = TaskName::from(task.as_str());
            found.push(self.store().runs(Some(&task), limit + 1).await.map_err(refused)?);
        }
        let more = found.iter().any(|runs| runs.len() > limit as usize);
        let of_task = |runs: Vec<_>| runs.into_iter().take(limit as usize);
        let mut runs: Vec<_> = found.into_iter().flat_map(of_task).collect();
        runs.sort_unstable_by_key(|run| std::cmp::Reverse(run.id));
        let more = more || runs.len() > RUNS_PAGE as usize;
        runs.truncate(RUNS_PAGE as usize);
        let runs = standings(self.store(), &runs).await.map_err(refused)?;
        Ok(Answer::Runs(RunPage { runs, more }))
    }

    async fn past(&self, task: String, back_s: u64) -> Result<Answer, Refused> {
        let name = TaskName::from(task.as_str());
        let store = self.store();
        let now = store.now().await.map_err(refused)?;
        let from = now - Duration::from_secs(back_s.min(BACK_MAX.as_secs()));
        let slots = store.slots(&name, from, now, SLOTS_PAGE + 1);
        let runs = store.runs(Some(&name), RUNS_JUDGED);
        let stops = Stops::read(store, &name);
        let (slots, runs, stops) = tokio::try_join!(slots, runs, stops).map_err(refused)?;
        let mut slots = slots;
        let more = slots.len() > SLOTS_PAGE as usize;
        slots.truncate(SLOTS_PAGE as usize);
        let runs = standings(store, &runs).await.map_err(refused)?;
        let stood = |run: &Run| stops.between(run.started_at, run.ended_at);
        let runs = runs.iter().map(|run| LastRun { stood: stood(run), ..last_run(run) }).collect();
        Ok(Answer::Past(TaskPast { task, from, slots, more, runs }))
    }

    async fn explain(&self, task: String, at: Time) -> Result<Answer, Refused> {
        let name = TaskName::from(task);
        let defined = self.sources().defined.borrow().clone();
        let scheduled = defined.work.tasks.get(&name);
        let schedule = scheduled.and_then(|task| task.schedule.as_ref());
        let windows = scheduled.map(|task| task.definition.windows.clone()).unwrap_or_default();
        let found = explain(self.store(), schedule, &windows, &name, at).await.map_err(refused)?;
        Ok(Answer::Explained(Box::new(found)))
    }
}
