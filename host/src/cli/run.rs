//! `besom run`: makes one pass without a host, until nothing new is planned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::command::counted;
use besom_core::ids::TaskName;
use besom_core::item::End;
use besom_core::mode::Mode;
use besom_core::plan::Pause;
use besom_core::queue::CONTENDED;
use besom_core::review::{Operation, Plan, Review, Sizes, State, share};
use besom_core::time::Time;
use besom_snapshot::{Held, LeftOut};
use serde::Serialize;

use super::assembly::{Assembly, Running, asked_to_stop};
use super::open::{Purpose, unmatched};
use super::output::{self, Format, Table};
use super::stayed::{self, Stayed};
use super::watch::Watch;
use super::{Exit, Failure, Global, kept, open, submit};
use besom_config::{Problems, printable, sections};
use besom_engine::host::brakes::sizes;
use besom_engine::host::dry_run::{DryItem, dry_run};
use besom_node::Role;
use besom_node::planner::{Endless, Still};
use besom_ports::coordination::LeaderRecord;
use besom_ports::history;
use besom_ports::members::Members as _;
use besom_ports::store::{self, Command, Counts, DeadSelector, HistoryQuery, Letters, Run, Store};
use besom_ports::task::TaskDefinition;
use besom_product::retention::rule;

/// Interval between two reads of the progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Maximum number of runs searched for failed scans.
const RUNS: u32 = 200;

/// Number of dead letters read at a time.
const LETTERS: u32 = 1_000;

/// Maximum number of waiting commands that are counted.
const COMMANDS: u32 = 1_000;

/// `besom run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the changes without committing them.
    #[arg(long)]
    dry_run: bool,
    /// With --dry-run: print every item, not only the first ones.
    #[arg(long, requires = "dry_run")]
    all: bool,
    /// Include paused tasks, and tasks outside their windows.
    #[arg(long)]
    even_paused: bool,
    /// Tasks to run (default: all).
    #[arg(value_name = "TASK")]
    tasks: Vec<String>,
}

/// How long a pass may be held, by a missing privilege, a locked table or a broken stream, before it ends with the cause;
/// it goes on while other tasks work.
const HELD_MAX: Duration = Duration::from_secs(10);

/// What a pass has done with the items of a task. Its JSON is printed with `--output json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Passed {
    /// Name of the task.
    pub task: String,
    /// Items planned during the pass.
    pub planned: u64,
    /// Items committed with their effects during the pass.
    pub committed: u64,
    /// Items skipped during the pass.
    pub skipped: u64,
    /// Items that became dead letters during the pass.
    pub dead: u64,
    /// Items still waiting after the pass, such as timers that are due later.
    pub pending: u64,
    /// Rows of the product that the items committed during the pass have changed.
    pub rows: u64,
    /// Items committed during the pass that have left rows as they were, because the database refuses to change
    /// them.
    pub refused: u64,
    /// Why, in the latest of these items.
    pub refusal: Option<String>,
    /// The rows that were planned for the items that ended during the pass, and how many of them stayed as they were,
    /// by run; empty: the task does not say how many were planned.
    pub stayed: Vec<Stayed>,
    /// Candidates of the last scan that were not planned, because their version has an open dead
    /// letter, was settled by the task, or was discarded.
    pub blocked: u64,
    /// Open dead letters after the pass, new and earlier ones.
    pub dead_open: u64,
    /// Error of the first failed scan, after which not every row was examined.
    pub error: Option<String>,
    /// The rows that the last run of the task in the pass could not plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// What a run of the pass would change; `None`: the task is live, or nothing was found.
    pub review: Option<Reviewed>,
    /// Why a brake has stopped the task, in this pass or before it; what is planned of it waits. A task that
    /// was left out because of an earlier brake has counted nothing.
    pub braked: Option<String>,
}

/// The review of a run, in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reviewed {
    /// Number of the run.
    pub run: u64,
    /// `shown`, `waiting`, `done` or another state of a review.
    pub state: &'static str,
    /// What the run would change; if that is nothing, why.
    pub summary: String,
    /// Whether everything was examined and nothing would be changed.
    pub nothing: bool,
    /// Why a brake would stop the run; none: no limit is known to be exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub brake: Option<String>,
}

impl Passed {
    /// Says what would be changed, and how to decide; none: the task is live, or nothing was found.
    fn reviewed(&self) -> Option<String> {
        let Reviewed { run, state, summary, nothing, brake } = self.review.as_ref()?;
        let task = &self.task;
        // Whatever has failed would fail again.
        let live = match self.error {
            None => format!("; mode = \"live\" in [tasks.{task}] executes it"),
            Some(_) => String::new(),
        };
        let brake = brake.as_ref().map(|brake| format!("; {brake}")).unwrap_or_default();
        Some(match *state {
            "waiting" => format!(
                "{task}: run {run} waits for an approval: {summary}{brake} (`besom review show {run}`, then \
                 `besom review approve {run}` or `besom review reject {run} --reason TEXT`)"
            ),
            "done" => format!("{task}: run {run}: {summary} (`besom review show {run}`)"),
            _ if *nothing => {
                let refers = summary.to_lowercase().contains("foreign key");
                let fix = match refers {
                    true => "; `besom check --store` says which tables refer to these rows",
                    false => "",
                };
                format!("{task}: a preview: {summary} (`besom review show {run}`{fix})")
            }
            _ => format!(
                "{task}: a preview, nothing was committed: {summary}{brake} (`besom review show {run}`{live})"
            ),
        })
    }

    /// Says how many finished items were planned before the pass; none: no more were finished than
    /// planned. Of the items still waiting, some may be of this pass.
    fn carried(&self) -> Option<String> {
        let Passed { task, planned, committed, skipped, dead, pending, .. } = self;
        let carried = (committed + skipped + dead).checked_sub(*planned).filter(|n| *n > 0)?;
        let least = if *pending > 0 { "at least " } else { "" };
        let were = if carried == 1 { "was" } else { "were" };
        let items = counted(carried, "finished item");
        Some(format!("{task}: {least}{items} {were} planned by an earlier pass"))
    }

    /// Says which rows the database refuses to change; none: there are none.
    fn refused(&self) -> Option<String> {
        let Passed { task, refused, refusal, .. } = self;
        let items = counted(*refused, "item");
        let why = refusal.as_deref()?;
        Some(format!(
            "{task}: {items} left rows that the database refuses to change, the latest: {why}"
        ))
    }

    /// Says how many rows stayed as they were; none: all that were planned were changed, or it is unknown.
    fn stayed(&self) -> Option<String> {
        let words = stayed::in_runs(&self.stayed, self.refused > 0)?;
        Some(format!("{}: {words}", self.task))
    }

    /// Says why candidates were not planned, and what can be done about it; none: all were.
    fn blocked(&self) -> Option<String> {
        let Passed { task, blocked, dead, dead_open, .. } = self;
        // The new dead letters are already told.
        if dead == dead_open && blocked <= dead {
            return None;
        }
        let candidates = counted(*blocked, "candidate");
        match (blocked, dead_open) {
            (0, _) => None,
            (_, 0) => Some(format!(
                "{candidates} of {task} not planned: undone, settled or discarded until the version changes"
            )),
            (_, open) => {
                let letters = counted(*open, "open dead letter");
                Some(format!(
                    "{candidates} of {task} not planned: {letters}, or undone, settled or discarded until \
                     the version changes (see `besom dead ls --task {task}`; `besom dead retry \
                     --task {task}` retries them)"
                ))
            }
        }
    }
}

impl Args {
    /// Runs the pass and prints the counts per task.
    ///
    /// # Errors
    /// A leader or another member is present, a named task is paused, every task of the pass is refused or held, or the
    /// pass is interrupted.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        if self.dry_run {
            // Opening would create the database, but a dry run must change nothing.
            open::refuse_absent(global)?;
        }
        let mut assembly = Assembly::new(global, Purpose::Pass).await?;
        assembly.only(&self.tasks)?;
        let unmatched = assembly.config.unmatched.values().flat_map(|of| unmatched::places(of));
        let refused = assembly.config.refused.values().cloned().chain(unmatched);
        // Several tasks may have the same one.
        let mut known = BTreeSet::new();
        let refused: Vec<_> = refused.filter(|why| known.insert(why.to_string())).collect();
        // A lock ends, so that the next pass may find none.
        let only_locked =
            assembly.config.refused.is_empty() && unmatched::is_locked_only(&assembly.config);
        if assembly.config.tasks.is_empty() && !refused.is_empty() {
            let words = refused.iter().map(|why| why.message.as_str()).collect::<Vec<_>>();
            return Err(match only_locked {
                true => Failure::Unreachable(words.join("; ")),
                false => Problems(refused).into(),
            });
        }
        let of_the_others = |fine: Exit| match (fine, refused.is_empty()) {
            (Exit::Fine, false) if only_locked => Exit::Unreachable,
            (Exit::Fine, false) => Exit::Configuration,
            (exit, _) => exit,
        };
        let mut skipped = Skipped::default();
        if !self.even_paused && !self.dry_run {
            skipped = leave_out_paused(&mut assembly, &self.tasks).await?;
        }
        if !self.dry_run {
            refuse_beside_a_leader(&assembly).await?;
            if let Some(words) = skipped.refused {
                // The task may be paused so that what waits is discarded, or undone.
                assembly.leave_out(|_| true);
                pass(&assembly).await?;
                return Err(Failure::Failed(format!("{words}. Waiting commands were applied")));
            }
            let Assembly { config, ports, .. } = &assembly;
            let (store, by) = (ports.store.as_ref(), submit::caller());
            kept::note_loads(store, config, &by, "a pass has begun", |_| true).await;
        }
        if self.dry_run {
            let shown = match (global.output, self.all) {
                (Format::Table, false) => REHEARSED_SHOWN,
                _ => usize::MAX,
            };
            let rehearsal = rehearse(&assembly, shown).await?;
            output::show(global.output, &rehearsal.items, || rehearsal.text())?;
            if global.output != Format::Table {
                for line in rehearsal.blocked().chain(rehearsal.refusals()) {
                    to_stderr!("{line}");
                }
            }
            let exit = if rehearsal.holds() { Exit::Failed } else { Exit::Fine };
            return Ok(of_the_others(exit));
        }
        let mut passed = pass(&assembly).await?;
        passed.extend(skipped.rows(assembly.ports.store.as_ref()).await?);
        passed.sort_by(|a, b| a.task.cmp(&b.task));
        let waiting = assembly.ports.store.pending_commands(COMMANDS).await?;
        let waiting = waiting.iter().filter(|row| !row.command.is_record()).count();
        if waiting > 0 {
            to_stderr!("commands waiting for a host: {waiting} (see `besom commands ls`)");
        }
        for task in &passed {
            if task.dead > 0 {
                let (letters, task) = (counted(task.dead, "new dead letter"), &task.task);
                to_stderr!(
                    "{letters} of {task} (see `besom dead ls --task {task}`; correct the cause, then \
                     `besom dead retry --task {task}` and `besom run {task}`)"
                );
            }
            if let Some(words) = task.reviewed().filter(|_| global.output != Format::Table) {
                to_stderr!("{}", printable(&words));
            }
            if let Some(words) = task.stayed() {
                to_stderr!("{}", printable(&words));
            }
            if let Some(words) = task.refused() {
                to_stderr!("{}", printable(&words));
            }
            if let Some(left_out) = &task.left_out {
                to_stderr!("{}", printable(&format!("{}: {}", task.task, left_out.words())));
            }
            if let Some(words) = task.blocked() {
                to_stderr!("{words}");
            }
        }
        for Passed { task, rows, pending, .. } in passed.iter().filter(|task| task.braked.is_some())
        {
            if *pending == 0 {
                to_stderr!(
                    "{task}: a brake has stopped it, and nothing of it waits: `besom task resume {task}`"
                );
                continue;
            }
            let rows = counted(*rows, "row");
            let words = format!(
                "{task}: {rows} changed before it was stopped; what is planned waits. Look at it (`besom run {task} --dry-run`); then correct the rule and discard what is \
                 planned (`besom task discard {task} --reason ...`), or raise the limit in the file; and \
                 resume the task with `besom task resume {task}`. To let this run go on once: `besom task \
                 resume {task} --release`"
            );
            to_stderr!("{words}");
        }
        let none = match skipped.tasks {
            0 => NONE,
            _ => "All tasks were skipped.",
        };
        output::show(global.output, &passed, || text_or(&passed, none))?;
        let is_whole =
            |task: &Passed| task.error.is_none() && task.braked.is_none() && task.dead == 0;
        let whole = passed.iter().all(is_whole);
        Ok(of_the_others(if whole { Exit::Fine } else { Exit::Failed }))
    }
}

/// The tasks that a pass leaves out because they are paused, or outside their windows.
#[derive(Debug, Default)]
struct Skipped {
    /// Their number.
    tasks: usize,
    /// Those that a brake has stopped, with the reason.
    braked: BTreeMap<TaskName, String>,
    /// Why the pass runs no task, but applies the commands that wait.
    refused: Option<String>,
}

impl Skipped {
    /// The tasks that a brake has stopped, of which the pass has done nothing.
    async fn rows(&self, store: &dyn Store) -> Result<Vec<Passed>, Failure> {
        if self.braked.is_empty() {
            return Ok(Vec::new());
        }
        let (counts, open) = (counts(store).await?, open_letters(store).await?);
        let row = |(task, reason): (&TaskName, &String)| Passed {
            task: task.to_string(),
            pending: counts.get(task.as_str()).map_or(0, |counts| counts.pending),
            dead_open: open.get(task).copied().unwrap_or(0),
            braked: Some(reason.clone()),
            ..Passed::default()
        };
        Ok(self.braked.iter().map(row).collect())
    }
}

/// Leaves out tasks that are outside their windows or paused, including those whose pause no leader has
/// applied yet. If one of those that are `named` is, the pass is refused.
async fn leave_out_paused(assembly: &mut Assembly, named: &[String]) -> Result<Skipped, Failure> {
    let store = assembly.ports.store.as_ref();
    let states = store.task_states().await?.into_iter();
    let mut paused: BTreeMap<TaskName, Pause> =
        states.filter_map(|state| Some((state.task, state.paused?))).collect();
    let pending = store.pending_commands(COMMANDS).await?;
    let waits = pending.iter().any(|row| !row.command.is_record());
    for row in pending {
        let pause = Pause { by: row.by, reason: row.reason, since: row.at };
        match row.command {
            // A person's pause takes the place of a brake's.
            Command::Pause { task } if paused.get(&task).is_none_or(Pause::is_brake) => {
                paused.insert(task, pause);
            }
            Command::Brake { task, .. } => drop(paused.entry(task).or_insert(pause)),
            Command::Resume { task, .. } => drop(paused.remove(&task)),
            _ => {}
        }
    }
    let now = store.now().await?;
    let all = paused.remove(&TaskName::from(TaskName::ALL));
    let (mut left, mut skipped) = (BTreeMap::new(), Skipped::default());
    for (task, definition) in &assembly.config.tasks {
        let why = if let Some(pause) = paused.get(task) {
            let Pause { by, reason, .. } = pause;
            let words = match pause.is_brake() {
                true => format!("{task} is stopped by a brake: {reason}"),
                false => format!("{task} is paused by {by}: {reason}"),
            };
            if pause.is_brake() {
                skipped.braked.insert(task.clone(), reason.clone());
            }
            (words, format!("resume it with `besom task resume {task}`"))
        } else if let Some(Pause { by, reason, .. }) = &all {
            let words = format!("{task} is paused with all tasks by {by}: {reason}");
            (words, "resume them with `besom resume --all`".to_owned())
        } else if let Some(closed) = Pause::until_open(&definition.windows, now) {
            (format!("{task} is {}", closed.reason), "wait for it".to_owned())
        } else {
            continue;
        };
        left.insert(task.clone(), why);
    }
    for (task, (words, fix)) in &left {
        if named.iter().any(|name| name == task.as_str()) {
            let words = format!("{words}; {fix}, or run it with --even-paused");
            if !waits {
                return Err(Failure::Failed(words));
            }
            skipped.refused = Some(words);
            return Ok(skipped);
        }
        to_stderr!("{}", printable(&format!("{words}; skipping it")));
    }
    assembly.leave_out(|name| left.contains_key(name));
    skipped.tasks = left.len();
    Ok(skipped)
}

/// Number of items that a dry run prints without `--all`.
const REHEARSED_SHOWN: usize = 50;

/// The result of a dry run.
#[derive(Debug, Default)]
struct Rehearsal {
    /// The items to print.
    items: Vec<DryItem>,
    /// Number of items, printed or not, by task and verdict.
    verdicts: BTreeMap<(String, &'static str), u64>,
    /// Number of rows that would be changed, at most, by task.
    rows: BTreeMap<String, u64>,
    /// Those of them that are there now, by task and collection.
    rows_of: BTreeMap<String, BTreeMap<String, u64>>,
    /// About how many rows these collections have.
    sizes: Sizes,
    /// Number of refused items by task and reason.
    refused: BTreeMap<(String, String), u64>,
    /// Number of candidates that would not be planned again, by task.
    blocked: BTreeMap<String, u64>,
    /// The rows that each task takes, in words.
    rules: BTreeMap<String, String>,
}

impl Rehearsal {
    fn add(&mut self, item: DryItem, shown: usize) {
        *self.verdicts.entry((item.task.clone(), item.verdict)).or_default() += 1;
        if item.verdict == "propose" {
            *self.rows.entry(item.task.clone()).or_default() += item.rows;
            let rows_of = self.rows_of.entry(item.task.clone()).or_default();
            for of in item.rows_of.iter().filter(|of| of.operation != Operation::Insert) {
                *rows_of.entry(of.collection.clone()).or_default() += of.rows;
            }
        }
        if let Some(reason) = &item.refused {
            *self.refused.entry((item.task.clone(), reason.clone())).or_default() += 1;
        }
        if self.items.len() < shown {
            self.items.push(item);
        }
    }

    /// The refusals by task and reason, the most frequent first.
    fn refusals(&self) -> Vec<String> {
        let mut all: Vec<_> = self.refused.iter().collect();
        all.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let line = |((task, reason), count): (&(String, String), &u64)| {
            let refused = counted(*count, "item");
            printable(&format!("{task}: {refused} would be refused: {reason}"))
        };
        all.into_iter().map(line).collect()
    }

    /// The candidates that would not be planned again, by task.
    fn blocked(&self) -> impl Iterator<Item = String> {
        self.blocked.iter().map(|(task, count)| {
            let candidates = counted(*count, "candidate");
            printable(&format!(
                "{task}: {candidates} left out, because a run does not plan them again: undone, settled or \
                 discarded until the version changes, or an open dead letter"
            ))
        })
    }

    /// Whether a pass would hold a task: its items are refused, and none is accepted.
    fn holds(&self) -> bool {
        let accepted = |task: &String| self.verdicts.contains_key(&(task.clone(), "propose"));
        self.refused.keys().any(|(task, _)| !accepted(task))
    }

    fn text(&self) -> String {
        let mut text: String = self.items.iter().map(ToString::to_string).collect();
        let total: u64 = self.verdicts.values().sum();
        let hidden = total - self.items.len() as u64;
        if hidden > 0 {
            text.push_str(&format!("... and {hidden} more (--all prints them)\n"));
        }
        let mut by_verdict: BTreeMap<&str, u64> = BTreeMap::new();
        for ((_, verdict), count) in &self.verdicts {
            *by_verdict.entry(verdict).or_default() += count;
        }
        let counts: Vec<_> =
            by_verdict.iter().map(|(verdict, count)| format!("{count} {verdict}")).collect();
        let bracketed = |all: &[String]| match all {
            [] => String::new(),
            all => format!(" ({})", all.join(", ")),
        };
        let counts = bracketed(&counts);
        for (task, rule) in &self.rules {
            text.push_str(&printable(&format!("{task}: {rule}")));
            text.push('\n');
        }
        for (task, rows) in &self.rows {
            let items = self.verdicts.get(&(task.clone(), "propose")).copied().unwrap_or_default();
            let of = |(collection, rows): (&String, &u64)| {
                let size = self.sizes.get(collection)?;
                Some(format!("{} of {collection}", share(*rows, *size)))
            };
            let rows_of = self.rows_of.get(task).into_iter().flatten();
            let shares: Vec<String> = rows_of.filter_map(of).collect();
            let shares = bracketed(&shares);
            let (items, rows) = (counted(items, "item"), counted(*rows, "row"));
            text.push_str(&printable(&format!(
                "{task}: {items} would change at most {rows}{shares}"
            )));
            text.push('\n');
        }
        for line in self.blocked().chain(self.refusals()) {
            text.push_str(&format!("{line}\n"));
        }
        text.push_str(&format!("{}{counts}; nothing was committed.\n", counted(total, "item")));
        text
    }
}

async fn rehearse(assembly: &Assembly, shown: usize) -> Result<Rehearsal, Failure> {
    let page = assembly.config.host.scan_page_items;
    let mut rehearsal = Rehearsal::default();
    let collections = &assembly.config.collections;
    for (name, scheduled) in assembly.work().tasks {
        let definition = &scheduled.definition;
        let mut add = |item| rehearsal.add(item, shown);
        let blocked = dry_run(&assembly.ports, collections, definition, page, &mut add)
            .await
            .map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
        let now = assembly.ports.store.now().await?;
        if let Some(rule) = rule(definition, now) {
            rehearsal.rules.insert(name.to_string(), rule);
        }
        if blocked > 0 {
            rehearsal.blocked.insert(name.to_string(), blocked);
        }
    }
    let changed: BTreeSet<&str> =
        rehearsal.rows_of.values().flat_map(BTreeMap::keys).map(String::as_str).collect();
    rehearsal.sizes = sizes(&*assembly.ports.store, changed).await;
    Ok(rehearsal)
}

/// Acquires the lease under a new term, and runs the tasks of the assembly until nothing new is
/// planned.
///
/// # Errors
/// Another node leads or is a member, the pass is held or does not end, or the process is interrupted.
pub async fn pass(assembly: &Assembly) -> Result<Vec<Passed>, Failure> {
    refuse_beside_a_leader(assembly).await?;
    let store = assembly.ports.store.as_ref();
    let before = counts(store).await?;
    let since = store.now().await?;
    let mut watch = Watch::begin(store, assembly.config.tasks.keys()).await;
    work_off(assembly, assembly.start(true), &mut watch).await?;
    let mut braked = braked(store, since).await?;
    let mut stopped: BTreeMap<String, String> = BTreeMap::new();
    for (task, reason) in &braked {
        if assembly.config.tasks.contains_key(task) {
            let words = format!("{task} was stopped during the pass by a brake: {reason}");
            to_stderr!("{}", printable(&words));
            stopped.insert(task.to_string(), "a brake; what is planned waits".to_owned());
        }
    }
    for state in store.task_states().await? {
        let Some(pause) = state.paused.filter(|pause| pause.since >= since) else { continue };
        if assembly.config.tasks.contains_key(&state.task) && !pause.is_brake() {
            let (task, by, reason) = (&state.task, &pause.by, &pause.reason);
            let words = format!(
                "{task} was paused during the pass by {by}: {reason}; what is planned of it waits, and no \
                 further run was started"
            );
            to_stderr!("{}", printable(&words));
            stopped.insert(task.to_string(), format!("paused by {by}"));
        }
    }
    let mut reviews = reviews(store, &assembly.config.tasks, since).await?;
    for (task, Reviewed { run, .. }) in
        reviews.iter().filter(|(_, review)| review.state == State::Waiting.as_str())
    {
        stopped.insert(task.to_string(), format!("run {run} waits for an approval"));
    }
    let runs = store.runs(None, RUNS).await?;
    let mut failed = failed(&runs, since);
    let mut dead = set_aside(store, since).await?;
    watch.finish(store, &failed, &stopped).await;
    let after = counts(store).await?;
    let blocked = blocked(&runs, since);
    let open = open_letters(store).await?;
    let of = |counts: &BTreeMap<String, Counts>, task: &str| {
        counts.get(task).cloned().unwrap_or_default()
    };
    let mut rows_left = BTreeMap::new();
    for task in assembly.config.tasks.keys() {
        let (old, new) = (of(&before, task.as_str()), of(&after, task.as_str()));
        let (rows, committed) = (new.rows - old.rows, new.committed - old.committed);
        // Only items that stand for many rows leave some of them; others may have a long history.
        if rows > committed || committed <= u64::from(LETTERS) {
            rows_left.insert(task.clone(), left_rows(store, task, since).await?);
        }
    }
    let left_out = assembly.ports.recorder.report().left_out;
    let passed = assembly.config.tasks.keys().map(|task| {
        let (old, new) = (of(&before, task.as_str()), of(&after, task.as_str()));
        let LeftRows { refused, refusal, stayed } = rows_left.remove(task).unwrap_or_default();
        Passed {
            task: task.to_string(),
            planned: new.planned - old.planned,
            committed: new.committed - old.committed,
            skipped: new.skipped - old.skipped,
            dead: dead.remove(task.as_str()).unwrap_or(0),
            pending: new.pending,
            rows: new.rows - old.rows,
            refused,
            refusal,
            stayed: stayed.into_values().collect(),
            blocked: blocked.get(task).copied().unwrap_or(0),
            dead_open: open.get(task).copied().unwrap_or(0),
            error: failed.remove(task.as_str()),
            left_out: left_out.iter().find(|left| left.task == task.as_str()).cloned(),
            review: reviews.remove(task),
            braked: braked.remove(task),
        }
    });
    Ok(passed.collect())
}

/// The number of open dead letters, by task.
async fn open_letters(store: &dyn Store) -> Result<BTreeMap<TaskName, u64>, Failure> {
    let mut open: BTreeMap<TaskName, u64> = BTreeMap::new();
    for depth in store.depths().await? {
        if let Some(task) = depth.task {
            *open.entry(task).or_default() += depth.dead;
        }
    }
    Ok(open)
}

/// The tasks that brakes have stopped since then and nobody has resumed, with the reasons. Each brake is a
/// command: a task that somebody has paused before keeps that pause.
async fn braked(store: &dyn Store, since: Time) -> Result<BTreeMap<TaskName, String>, Failure> {
    let (mut found, mut resumed, mut before) = (BTreeMap::new(), BTreeSet::new(), None);
    loop {
        // Newest first.
        let page = store.commands(before, COMMANDS).await?;
        let new = page.iter().take_while(|row| row.at >= since).count();
        for row in &page[..new] {
            match &row.command {
                _ if row.refused => {}
                Command::Brake { task, trip } if !resumed.contains(task) => {
                    found.entry(task.clone()).or_insert_with(|| trip.to_string());
                }
                Command::Resume { task, .. } if row.applied_at.is_some() => {
                    resumed.insert(task.clone());
                }
                _ => {}
            }
        }
        before = page.last().map(|row| row.id);
        if new < page.len() || page.len() < COMMANDS as usize {
            return Ok(found);
        }
    }
}

/// The reviews of tasks that are not live, opened since.
async fn reviews(
    store: &dyn Store,
    tasks: &BTreeMap<TaskName, Arc<TaskDefinition>>,
    since: Time,
) -> Result<BTreeMap<TaskName, Reviewed>, Failure> {
    let mut reviews = BTreeMap::new();
    for task in tasks.values().filter(|task| task.mode != Mode::Live) {
        let name = &task.name;
        let found = store.latest_review(name).await?;
        let of_the_pass =
            |review: &Review| review.state == State::Waiting || review.opened_at >= since;
        if let Some(review) = found.filter(of_the_pass) {
            let Plan { partial, rows, messages, brake, .. } = &review.plan;
            let brake = brake.clone();
            let nothing = partial.is_none() && rows.is_empty() && messages.is_empty();
            let (run, state) = (review.run.0, review.state.as_str());
            let plan = Plan { nothing, ..review.plan };
            let summary = plan.why_nothing().unwrap_or_else(|| plan.words());
            reviews.insert(name.clone(), Reviewed { run, state, summary, nothing, brake });
        }
    }
    Ok(reviews)
}

/// Whether the latest item of a task has changed nothing, because other transactions hold its rows or foreign keys keep
/// them.
async fn stays(store: &dyn Store, task: &TaskName) -> Result<bool, Failure> {
    let query = HistoryQuery { task: Some(task.clone()), limit: 1, ..Default::default() };
    let latest = store.history(&query).await?.pop();
    Ok(latest.is_some_and(|row| match row.outcome {
        End::Skipped => row.reason.is_some_and(|reason| reason.starts_with(CONTENDED)),
        End::Committed => row.rows == 0 && row.reason.is_some(),
        _ => false,
    }))
}

/// The rows that the items of a task have left as they were.
#[derive(Debug, Default)]
struct LeftRows {
    /// The number of items of which the database has refused to change rows.
    refused: u64,
    /// Why, in the latest of them.
    refusal: Option<String>,
    /// All rows that stayed, by run.
    stayed: BTreeMap<u64, Stayed>,
}

/// Returns the rows that the items of a task that have ended after `since` have left as they were.
async fn left_rows(store: &dyn Store, task: &TaskName, since: Time) -> Result<LeftRows, Failure> {
    let mut found = LeftRows::default();
    let query = HistoryQuery { task: Some(task.clone()), ..HistoryQuery::default() };
    let mut rows = history::Rows::of(store, query);
    while let Some(row) = rows.next().await?.filter(|row| row.at >= since) {
        stayed::add(std::slice::from_ref(&row), &mut found.stayed);
        if let (End::Committed, Some(why)) = (row.outcome, row.reason) {
            found.refused += 1;
            found.refusal.get_or_insert(why);
        }
    }
    Ok(found)
}

/// Returns the tasks whose scan failed after `since`, each with its first error.
fn failed(runs: &[Run], since: Time) -> BTreeMap<String, String> {
    let mut failed = BTreeMap::new();
    // Runs are sorted newest first, so the oldest error is inserted last and stays.
    for run in runs {
        let now = run.started_at >= since || run.ended_at.is_some_and(|ended| ended >= since);
        if let Some(error) = run.error.as_ref().filter(|_| now) {
            failed.insert(run.task.to_string(), error.clone());
        }
    }
    failed
}

/// Returns the candidates that the last run of each task since then left out because their version
/// is blocked. Every round of a pass finds the same ones again.
fn blocked(runs: &[Run], since: Time) -> BTreeMap<&TaskName, u64> {
    let mut blocked = BTreeMap::new();
    for run in runs.iter().filter(|run| run.started_at >= since) {
        blocked.entry(&run.task).or_insert(run.blocked);
    }
    blocked
}

/// Returns the open dead letters of each task that were set aside after `since`. A difference of
/// totals would hide them behind letters that the pass has retried or discarded by command.
async fn set_aside(store: &dyn Store, since: Time) -> Result<BTreeMap<String, u64>, Failure> {
    let (mut dead, mut before) = (BTreeMap::new(), None);
    loop {
        // Newest first.
        let selector = DeadSelector::default();
        let page = store.dead_letters(&selector, Letters::Open, before, LETTERS).await?;
        let new = page.iter().take_while(|letter| letter.at >= since).count();
        for letter in &page[..new] {
            *dead.entry(letter.item.identity.task.to_string()).or_default() += 1;
        }
        before = page.last().map(|letter| letter.id);
        if new < page.len() || page.len() < LETTERS as usize {
            return Ok(dead);
        }
    }
}

async fn refuse_beside_a_leader(assembly: &Assembly) -> Result<(), Failure> {
    if let Some(etcd) = &assembly.etcd
        && let Some(member) = etcd
            .members()
            .await?
            .members
            .into_iter()
            .find(|member| member.incarnation != assembly.ports.node)
    {
        return Err(Failure::Failed(format!(
            "{} is a member of the cluster: use `besom task trigger` instead, or stop every node \
             first",
            member.name
        )));
    }
    match assembly.ports.coordination.leader().await? {
        Some(leader) => {
            let now = assembly.ports.store.now().await?;
            Err(Failure::Failed(leads(&leader, now, assembly.config.lease.ttl)))
        }
        None => Ok(()),
    }
}

/// Says who leads and, in case its process no longer runs, until when its lease lasts.
fn leads(leader: &LeaderRecord, now: Time, ttl: Duration) -> String {
    // The renewal was noted by the leader's clock, which may differ from the store's.
    let ago = now.since(leader.renewed_at).min(ttl);
    let (ago, left) = (ago.as_secs(), (ttl - ago).as_secs_f64().ceil());
    format!(
        "{} on {} leads (term {}): use `besom task trigger` instead, or stop it first. It renewed its \
         lease {ago} s ago; if its process has ended without releasing the lease, the lease expires \
         in at most {left} s (lease.ttl)",
        leader.node, leader.hostname, leader.term
    )
}

/// Waits for the end of the pass and shows its progress.
async fn work_off(
    assembly: &Assembly,
    mut running: Running,
    watch: &mut Watch,
) -> Result<(), Failure> {
    let mut tick = tokio::time::interval(PROGRESS_EVERY);
    tick.reset();
    let mut asked = std::pin::pin!(asked_to_stop());
    let lead_by = tokio::time::Instant::now() + assembly.config.lease.ttl;
    let (mut led, mut stopping) = (false, None);
    loop {
        tokio::select! {
            ended = &mut running.ended => {
                let ended = ended
                    .map_err(|error| Failure::Failed(format!("the pass failed: {error}")))?;
                let ended = ended.map_err(|lost| Failure::Unreachable(lost.to_string()))?;
                let store = &*assembly.ports.store;
                if let Some(Endless { mut tasks, still }) = ended.endless {
                    if still == Still::Skip {
                        for task in std::mem::take(&mut tasks) {
                            match stays(store, &task).await? {
                                true => to_stderr!("{task}: rows that other transactions hold or foreign keys keep stay; a later run takes them"),
                                false => tasks.push(task),
                            }
                        }
                    }
                    if let Some(task) = tasks.first() {
                        return Err(Failure::Failed(endless(task, still, &assembly.config.host)));
                    }
                }
                return stopping.map_or(Ok(()), Err);
            }
            _ = &mut asked, if stopping.is_none() => {
                let words = "interrupted: committed changes are kept, the remaining items wait";
                stopping = Some(Failure::Failed(words.into()));
                running.shutdown().await;
            }
            _ = tick.tick() => {
                led |= running.live.borrow().role != Role::Following;
                if !led && stopping.is_none() && tokio::time::Instant::now() > lead_by {
                    let words = "the lease could not be acquired";
                    stopping = refuse_beside_a_leader(assembly)
                        .await
                        .err()
                        .or_else(|| Some(Failure::Unreachable(words.into())));
                    running.shutdown().await;
                }
                // A host would wait until the cause is fixed; a pass gives up.
                let now = besom_engine::host::clock::wall();
                let all = assembly.ports.health.held();
                let held = all.iter().find(|held| now.since(held.since) > HELD_MAX);
                if let Some(held) = held.filter(|_| stopping.is_none())
                    && !others_work(assembly, &all).await.unwrap_or(false)
                {
                    let task = held.task.as_deref().unwrap_or("this pass");
                    stopping = Some(Failure::Failed(format!(
                        "{task} is held ({}): {}; committed changes are kept, the remaining items wait",
                        held.what, held.why
                    )));
                    running.shutdown().await;
                }
                watch.look(assembly.ports.store.as_ref()).await;
            }
        }
    }
}

/// Why a pass was ended although a task still planned items.
fn endless(task: &TaskName, still: Still, host: &sections::Host) -> String {
    let (most, idle) = (host.pass_rounds_max, host.pass_idle_rounds_max);
    match still {
        Still::Skip => format!(
            "{task} planned items in {idle} rounds in a row and skipped all of them \
             (host.pass_idle_rounds_max): `besom runs ls --task {task}` lists the rounds, and `besom runs show` \
             the reasons. Rows that others hold can be changed later; a task of your own must omit items that it \
             skips from its scan. Committed changes are kept"
        ),
        Still::Repeat => format!(
            "{task} changed the same items in {idle} rounds in a row, and found them again as they were \
             (host.pass_idle_rounds_max): see what sets the columns back, such as a trigger of the table; a task \
             of your own must change the version of an item that has more to do. Committed changes are kept; \
             `besom task pause {task} --reason TEXT` keeps its schedule from repeating them"
        ),
        Still::Plan => format!(
            "{task} still plans items after {most} rounds (host.pass_rounds_max): its scan must omit items that \
             are done, or return them with the same version; committed changes are kept"
        ),
    }
}

/// Whether a task of the pass works that is neither held nor waits for somebody.
async fn others_work(assembly: &Assembly, held: &[Held]) -> store::Result<bool> {
    let store = &*assembly.ports.store;
    let (runs, now) = (store.active_runs().await?, store.now().await?);
    let states = store.task_states().await?;
    let works = |run: &Run| {
        let is_own =
            |held: &Held| held.task.as_deref().is_none_or(|task| run.task.as_str() == task);
        let is_paused = states.iter().any(|of| of.task == run.task && of.paused.is_some());
        let definition = assembly.config.tasks.get(&run.task);
        let is_open = definition.is_some_and(|of| Pause::until_open(&of.windows, now).is_none());
        is_open && !is_paused && !run.held && !held.iter().any(is_own)
    };
    Ok(runs.iter().any(works))
}

/// Returns the counters of each task.
async fn counts(store: &dyn Store) -> Result<BTreeMap<String, Counts>, Failure> {
    let mut tasks: BTreeMap<String, Counts> = BTreeMap::new();
    for row in store.audit().await?.rows {
        *tasks.entry(row.task.to_string()).or_default() += &row.counted;
    }
    Ok(tasks)
}

/// What is printed if there is no task.
const NONE: &str = "No tasks are configured.";

/// Renders the counts and the errors as text.
pub fn text(passed: &[Passed]) -> String {
    text_or(passed, NONE)
}

/// Renders the counts and the errors as text; `none`: what is printed without any.
fn text_or(passed: &[Passed], none: &'static str) -> String {
    let mut table = Table::new(none);
    for row in passed {
        table.row([
            ("TASK", &row.task),
            (">PLANNED", &row.planned),
            (">COMMITTED", &row.committed),
            (">SKIPPED", &row.skipped),
            (">DEAD", &row.dead),
            (">PENDING", &row.pending),
            (">ROWS", &row.rows),
        ]);
    }
    let mut text = table.render();
    for row in passed {
        if let Some(words) = row.reviewed() {
            text.push_str(&format!("{}\n", printable(&words)));
        }
        if let Some(words) = row.carried() {
            text.push_str(&format!("{words}\n"));
        }
        if let Some(error) = &row.error {
            text.push_str(&format!("{}: the scan failed: {error}\n", row.task));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_an_earlier_pass_are_told_in_one_line() {
        let passed = |planned, committed, pending| Passed {
            task: "compaction".into(),
            planned,
            committed,
            pending,
            ..Passed::default()
        };
        let carried = text(&[passed(36_000, 36_244, 0)]);
        let line = "compaction: 244 finished items were planned by an earlier pass\n";
        assert!(carried.ends_with(line), "{carried}");
        let carried = text(&[passed(10, 11, 2)]);
        assert!(
            carried.contains("compaction: at least 1 finished item was planned by an earlier pass"),
            "{carried}"
        );
        assert!(!text(&[passed(10, 8, 2)]).contains("carried over"));
    }
}
