//! `besom undo`: puts rows back as they were before an item, a run or a task has changed them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use besom_core::command::{Undo, counted};
use besom_core::ids::{RunId, TaskName};
use besom_core::item::End;
use besom_core::proposal::{Again, Change, Verdict};
use besom_core::purge;
use besom_core::undo::{self, Differing, Target, UNCHOSEN, is_whole, row_name};
use besom_core::value::Field;
use serde::Serialize;
use serde_json::{Map, Value};

use super::assembly::Assembly;
use super::open::Purpose;
use super::output::{self, Facts, Table};
use super::quarantine::chosen;
use super::submit::{self, Asking};
use super::{Exit, Failure, Global, open, run};
use besom_config::printable;
use besom_engine::gather::rows;
use besom_engine::host::asking::submit_once;
use besom_engine::host::retaken::{self, Retaken};
use besom_engine::host::undo::{ALREADY, Plugins, Proposer, definition, is_part, nothing_kept};
use besom_ports::history;
use besom_ports::store::{Command, HistoryQuery, HistoryRow, Run, Staying, Store, UNDO_GRANTS};
use besom_ports::task::TaskDefinition;
use besom_ports::undone::is_only_planned_again;

/// Maximum number of rows that stay and are listed.
const STAY_MAX: usize = 10_000;
/// Maximum number of rows that stay and are printed for people.
const SHOWN: usize = 50;
/// Maximum number of rows that can be chosen, or forced, at once, and of bytes of a file that names them.
const CHOSEN_MAX: usize = 10_000;
const CHOSEN_BYTES_MAX: u64 = 1 << 20;
/// How often an undo is repeated, at most, for rows that can come back since.
const ROUNDS_MAX: u32 = 16;
/// Number of runs searched for that of a request.
const RUNS: u32 = 100;
/// How often the run of a request is looked at.
const POLL: std::time::Duration = std::time::Duration::from_millis(100);

/// `besom undo`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A run, RUN/ITEM with the key of an item or #NUMBER, or TASK@FROM..TO with instants such as
    /// 2026-01-31T08:00:00Z.
    #[arg(value_name = "TARGET")]
    target: String,
    /// Show what would be put back and what would stay, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Put back only the rows with this value in their key, in any spelling that the database accepts, or one row, as
    /// `users (38)`; what went with them comes along. Can be repeated.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    key: Vec<String>,
    /// The same for the keys in this file, one per line.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
    /// Put back the rows that this file names, one per line as `besom undo` lists them, even if somebody has
    /// changed them since.
    #[arg(long, value_name = "FILE")]
    force_keys: Option<PathBuf>,
    /// Let the task plan the undone items again, also those that were undone before; otherwise it does so only
    /// when their version has changed.
    #[arg(long)]
    plan_again: bool,
    /// Leave a live task that plans ranges of rows running: it may take the rows again with its next run.
    #[arg(long)]
    no_pause: bool,
    /// Reason and waiting time.
    #[command(flatten)]
    asking: Asking,
}

/// What was put back, or would be.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// What was to be undone.
    target: String,
    /// Whether nothing was changed.
    dry_run: bool,
    /// The run that has put rows back, or is doing so.
    run: Option<u64>,
    /// Whether that run has ended.
    ended: bool,
    /// Items whose rows were put back.
    items: u64,
    /// Rows put back.
    rows: u64,
    /// Rows that were as they had been.
    already: u64,
    /// Number of rows that stay as they are.
    staying: u64,
    /// The first of them.
    stay: Vec<Stays>,
    /// Rows that have stayed, and can come back now.
    #[serde(skip)]
    open: u64,
    /// Items that their task may plan again.
    plan_again: u64,
    /// Items that were not undone, by reason.
    skipped: BTreeMap<String, u64>,
    /// What is different although rows were put back, and how often.
    notes: BTreeMap<String, u64>,
    /// Rows that came back with other values, and the number of their items.
    #[serde(skip)]
    differing: (Differing, u64),
    /// Triggers of the tables.
    triggers: BTreeSet<String>,
    /// Number of messages that had gone out, by topic; they are not taken back.
    messages: BTreeMap<String, u64>,
    /// Number of messages that tell of it, by topic.
    told: BTreeMap<String, u64>,
    /// What has removed rows since they were put back; none: nothing was undone before, or no later run has.
    #[serde(skip_serializing_if = "Option::is_none")]
    later: Option<String>,
    /// What may take the rows again; none: nothing is known to.
    warning: Option<String>,
    /// The task that was paused, or would be, because its next run would take the rows again.
    pauses: Option<TaskName>,
}

/// A row that stays as it is.
#[derive(Debug, Serialize)]
struct Stays {
    /// The name for `--force-keys`.
    row: String,
    /// What keeps it from being put back, in words for the user.
    why: String,
    /// The row as it was kept; `None`: it did not exist.
    was: Option<Map<String, Value>>,
    /// The row as it is; `None`: there is none.
    now: Option<Map<String, Value>>,
}

impl Args {
    /// Puts rows back, or shows what that would do.
    ///
    /// # Errors
    /// A target that does not exist or is still running, a key that names nothing kept of it, a file that names other
    /// rows than those that stay, or a store that cannot be written.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let target = Target::parse(&self.target).map_err(Failure::Usage)?;
        submit::checked(&self.asking.reason)?;
        open::refuse_absent(global)?;
        let read = |option, file: &Option<PathBuf>| match file {
            Some(path) => named(option, path),
            None => Ok(Vec::new()),
        };
        let forced = read("--force-keys", &self.force_keys)?;
        let listed = read("--keys", &self.keys)?.into_iter().map(|(_, key)| key);
        let keys: Vec<String> = self.key.iter().cloned().chain(listed).collect();
        if keys.iter().any(String::is_empty) {
            return Err(Failure::Usage("--key must not be empty".into()));
        }
        let assembly = Assembly::new(global, Purpose::Restore).await?;
        let store = Arc::clone(&assembly.ports.store);
        let leads = assembly.ports.coordination.leader().await?.is_some();
        refuse_unknown(&*store, &target, leads).await?;
        if !self.plan_again
            && let Some(why) = nothing_kept(&*store, &target).await?
        {
            return Err(Failure::Failed(why));
        }
        let names: Vec<String> = forced.iter().map(|(_, name)| name.clone()).collect();
        let plan_again = self.plan_again;
        let rows = match keys.is_empty() {
            true => BTreeMap::new(),
            false => chosen(&*store, &target, &keys, CHOSEN_MAX).await?,
        };
        let is_chosen = !rows.is_empty();
        let mut request = Undo { target: target.to_string(), forced: Vec::new(), plan_again, rows };
        let undoing = Proposer::new(Arc::clone(&store), assembly.config.topics.keys());
        let known_task = |task: &TaskName| assembly.config.tasks.get(task).cloned();
        let mut again = retaken::retaken(&*store, known_task, &target).await?;
        let pauses = |of: &Retaken| of.in_ranges && !self.no_pause && !self.plan_again;
        if self.dry_run || is_chosen || !forced.is_empty() {
            let mut report = rehearsed(&undoing, &store, &target, &request).await?;
            if let (Some(file), false) = (&self.force_keys, forced.is_empty()) {
                known(file, &forced, &report)?;
                request.forced = names;
                if self.dry_run || is_chosen {
                    report = rehearsed(&undoing, &store, &target, &request).await?;
                }
            }
            if self.dry_run {
                match again.filter(|_| report.rows > 0) {
                    Some(of) if pauses(&of) => report.pauses = Some(of.task),
                    of => report.warning = of.as_ref().map(warning),
                }
                output::show(global.output, &report, || report.text())?;
                return Ok(report.exit());
            }
            // Others of the target may be open, and nothing is paused for them.
            again = again.filter(|_| !is_chosen || report.rows > 0);
        }
        let (pauses, warning) = match again {
            Some(of) if pauses(&of) => (Some(of.task), None),
            of => (None, of.as_ref().map(warning)),
        };
        if let Some(task) = &pauses {
            let why = (&*submit::caller(), &*self.asking.reason);
            retaken::pause(&*store, task, &request.target, why).await?;
        }
        let mut report = all_undone((assembly, &undoing), &target, &request, &self.asking).await?;
        report.warning = warning.filter(|_| report.rows > 0);
        report.pauses = pauses;
        if report.rows == 0 && report.skipped.keys().any(|why| why.starts_with(ALREADY)) {
            report.later = later(&*store, &target).await?;
        }
        output::show(global.output, &report, || report.text())?;
        Ok(report.exit())
    }
}

/// The runs that have changed rows after a run that was undone; none: there are none.
async fn later(store: &dyn Store, target: &Target) -> Result<Option<String>, Failure> {
    let (Target::Run(id) | Target::Item(id, _)) = target else { return Ok(None) };
    let Some(run) = store.run(*id).await? else { return Ok(None) };
    let mut since = Vec::new();
    for run in store.runs(Some(&run.task), RUNS).await?.iter().filter(|later| later.id > *id) {
        let query = HistoryQuery { run: Some(run.id), limit: 1, ..HistoryQuery::default() };
        let changed = |row: &HistoryRow| row.outcome == End::Committed && row.rows > 0;
        if store.history(&query).await?.first().is_some_and(changed) {
            since.push(run.id);
        }
    }
    since.sort_unstable();
    Ok(since.first().map(|first| {
        let (task, runs) = (&run.task, counted(since.len() as u64, "later run"));
        format!(
            "{runs} of {task} changed rows as well, the first of them run {first}: rows that are missing now come \
             back with `besom undo {first}`"
        )
    }))
}

/// The rows that the file of an option names, with the numbers of their lines.
fn named(option: &str, path: &Path) -> Result<Vec<(usize, String)>, Failure> {
    let shown = path.display();
    let unreadable = |why: String| Failure::Usage(format!("{option}: {shown}: {why}"));
    let bytes = std::fs::metadata(path).map_err(|e| unreadable(e.to_string()))?.len();
    if bytes > CHOSEN_BYTES_MAX {
        let why =
            format!("{bytes} bytes: at most {CHOSEN_BYTES_MAX}; name the rows in several steps");
        return Err(unreadable(why));
    }
    let text = std::fs::read_to_string(path).map_err(|e| unreadable(e.to_string()))?;
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim().to_owned()));
    let lines: Vec<_> =
        lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')).collect();
    match lines.len() {
        0 => Err(unreadable("it names no row".to_owned())),
        1..=CHOSEN_MAX => Ok(lines),
        rows => Err(unreadable(format!("{rows} rows: at most {CHOSEN_MAX}"))),
    }
}

/// Refuses a file that names rows that would not stay anyway.
fn known(file: &Path, forced: &[(usize, String)], report: &Report) -> Result<(), Failure> {
    let stay: BTreeSet<&str> = report.stay.iter().map(|stay| stay.row.as_str()).collect();
    let Some((line, name)) = forced.iter().find(|(_, name)| !stay.contains(name.as_str())) else {
        return Ok(());
    };
    Err(Failure::Usage(printable(&format!(
        "--force-keys: {}:{line}: `{name}` is none of the {} that would stay: write them as `besom undo {} --dry-run` \
         lists them",
        file.display(),
        counted(report.staying, "row"),
        report.target
    ))))
}

/// Why the next run of a live task may take the rows again, and what to do.
fn warning(of: &Retaken) -> String {
    let task = &of.task;
    format!(
        "{task} is live: it may take the rows again with its next run; pause it (`besom task pause {task} --reason TEXT`) \
         or correct its rule"
    )
}

/// The refusal of an item that is not in the history of a run.
pub(super) fn no_such_item(run: RunId) -> Failure {
    Failure::Usage(format!(
        "run {run} has no such item; list its items with `besom quarantine show {run}`"
    ))
}

/// The refusal of a run that has not ended, and what ends it.
fn active(run: &Run, leads: bool) -> Failure {
    let (id, task) = (run.id, &run.task);
    let stop = match (run.held, run.scan_done) {
        (true, _) => format!("reject its plan with `besom review reject {id} --reason TEXT`"),
        (false, false) => format!("stop it with `besom runs cancel {id}`"),
        (false, true) => format!(
            "discard what waits of it with `besom task pause {task} --reason TEXT` and `besom task discard {task} \
             --reason TEXT`"
        ),
    };
    let settings = TaskDefinition::of_run(run).map(|definition| definition.settings);
    let end = match undo::requested(&settings.unwrap_or_default()) {
        _ if leads => format!("wait for its end, or {stop}"),
        Some((of, _)) => format!("no host runs, so end it with `besom undo {of}`"),
        None => format!("no host runs, so end it with `besom run`, or {stop}"),
    };
    Failure::Failed(format!("run {id} has not ended: {end}; nothing was undone"))
}

async fn refuse_unknown(store: &dyn Store, target: &Target, leads: bool) -> Result<(), Failure> {
    match target {
        Target::Run(id) | Target::Item(id, _) => match store.run(*id).await? {
            Some(run) if run.ended_at.is_none() => Err(active(&run, leads)),
            Some(_) if matches!(target, Target::Item(..)) => {
                match history::Rows::of_target(store, target).next().await? {
                    None => Err(no_such_item(*id)),
                    Some(_) => Ok(()),
                }
            }
            Some(_) => Ok(()),
            None => {
                Err(Failure::Usage(format!("there is no run {id}; list runs with `besom runs ls`")))
            }
        },
        Target::Span { task, .. } => {
            let runs = store.active_runs().await?;
            if let Some(run) = runs.iter().find(|run| run.task == *task) {
                return Err(active(run, leads));
            }
            let states = store.task_states().await?;
            if states.iter().any(|state| state.task == *task) {
                return Ok(());
            }
            let query =
                HistoryQuery { task: Some(task.clone()), limit: 1, ..HistoryQuery::default() };
            match store.history(&query).await?.is_empty() {
                true => Err(Failure::Usage(format!(
                    "nothing of a task `{task}` is recorded; list tasks with `besom task ls`"
                ))),
                false => Ok(()),
            }
        }
    }
}

/// Puts rows back in transactions that are rolled back.
async fn rehearsed(
    undoing: &Proposer,
    store: &Arc<dyn Store>,
    target: &Target,
    request: &Undo,
) -> Result<Report, Failure> {
    let mut report =
        Report { target: target.to_string(), dry_run: true, ended: true, ..Report::default() };
    let (mut rows, plugins) = (history::Rows::of_target(&**store, target), Plugins::default());
    while let Some(row) = rows.next().await? {
        if is_part(request, &row) {
            look(undoing, store, request, &row, &plugins, &mut report).await?;
        }
    }
    report.tell();
    Ok(report)
}

async fn look(
    undoing: &Proposer,
    store: &Arc<dyn Store>,
    request: &Undo,
    row: &HistoryRow,
    plugins: &Plugins,
    report: &mut Report,
) -> Result<(), Failure> {
    let proposal = match undoing.propose(request, row, plugins).await? {
        Verdict::Propose(proposal) => proposal,
        Verdict::Skip { reason, .. } | Verdict::Retry { reason, .. } | Verdict::Dead { reason } => {
            if reason.starts_with(ALREADY) {
                report.purged(&**store, row.id).await?;
            }
            *report.skipped.entry(reason).or_default() += 1;
            return Ok(());
        }
    };
    let restores = || proposal.changes.iter().filter_map(Change::restore);
    report.plan_again += restores().filter(|restore| restore.again != Again::No).count() as u64;
    let put_back: Vec<_> = restores().filter(|restore| restore.again != Again::Only).collect();
    report.items += u64::from(!put_back.is_empty());
    for restore in put_back {
        let found = store.rehearse(row.identity.tenant.as_ref(), restore).await?;
        report.rows += found.rows;
        let emitted = |change: &Change| match change {
            Change::Emit { topic, .. } => Some(topic.clone()),
            _ => None,
        };
        if found.rows > 0 {
            count_by_topic(&mut report.told, proposal.changes.iter().filter_map(emitted));
        }
        report.already += found.already;
        report.staying += found.stay.len() as u64;
        let room = STAY_MAX.saturating_sub(report.stay.len());
        report.stay.extend(found.stay.iter().take(room).map(Stays::of));
        report.note(found.notes);
        report.triggers.extend(found.triggers);
        let sent = undoing.sent(restore.history).await?;
        count_by_topic(&mut report.messages, sent.into_iter().map(|message| message.topic));
    }
    Ok(())
}

/// Undoes, and undoes again while rows have stayed that can come back since: what they refer to came back after them,
/// from an item that was deleted earlier.
async fn all_undone(
    (mut assembly, undoing): (Assembly, &Proposer),
    target: &Target,
    request: &Undo,
    asking: &Asking,
) -> Result<Report, Failure> {
    let mut sum = undone((&mut assembly, undoing), target, request, asking).await?;
    for _ in 1..ROUNDS_MAX {
        if sum.open == 0 || !sum.ended {
            break;
        }
        let next = undone((&mut assembly, undoing), target, request, asking).await?;
        if next.rows == 0 {
            break;
        }
        let Report { run, ended, staying, stay, open, notes, .. } = next;
        (sum.run, sum.ended, sum.staying, sum.stay, sum.open) = (run, ended, staying, stay, open);
        (sum.rows, sum.notes) = (sum.rows + next.rows, notes);
    }
    sum.staying += sum.open;
    if sum.open > 0 {
        let open = counted(sum.open, "row");
        let note = format!("{open} that stayed can come back now: undo {target} again");
        sum.notes.insert(note, 1);
    }
    Ok(sum)
}

/// Records the request, and has it carried out: by the leader, or by a pass of this process if nobody leads.
async fn undone(
    (assembly, undoing): (&mut Assembly, &Proposer),
    target: &Target,
    request: &Undo,
    asking: &Asking,
) -> Result<Report, Failure> {
    let store = Arc::clone(&assembly.ports.store);
    let leads = assembly.ports.coordination.leader().await?.is_some();
    let by = submit::caller();
    let command = Command::Undo(request.clone());
    let (id, _) = submit_once(&*store, &command, &by, &asking.reason).await?;
    if !leads {
        let task = definition(assembly.config.tasks.values().map(|task| &**task));
        assembly.leave_out(|_| true);
        assembly.config.tasks = BTreeMap::from([(task.name.clone(), Arc::new(task))]);
        run::pass(assembly).await?;
    }
    let deadline = tokio::time::Instant::now() + asking.wait;
    let found = loop {
        let row = store.command(id).await?;
        if let Some(row) = row.filter(|row| row.refused) {
            let why = row.result.unwrap_or_default();
            return Err(Failure::Failed(format!("refused by the leader: {why}")));
        }
        let found = run_of(&*store, id).await?;
        let has_ended = found.as_ref().is_some_and(|run| run.ended_at.is_some());
        if has_ended || tokio::time::Instant::now() >= deadline {
            break found;
        }
        tokio::time::sleep(POLL).await;
    };
    let mut report = Report { target: target.to_string(), ..Report::default() };
    let Some(run) = found else {
        let note =
            format!("command {id} is recorded; the next leader, or `besom undo`, carries it out");
        report.notes.insert(note, 1);
        return Ok(report);
    };
    report.run = Some(run.id.0);
    report.ended = run.ended_at.is_some();
    if let Some(error) = run.error {
        return Err(Failure::Failed(format!("the scan of run {} failed: {error}", run.id)));
    }
    summed(undoing, &store, (&run.id, request), &mut report).await?;
    Ok(report)
}

/// The run of a command.
async fn run_of(store: &dyn Store, command: u64) -> Result<Option<Run>, Failure> {
    let runs = store.runs(Some(&TaskName::from(undo::TASK)), RUNS).await?;
    let request = format!("command {command}");
    let is_of = |run: &Run| {
        let definition = TaskDefinition::of_run(run);
        let settings = definition.map(|definition| definition.settings).unwrap_or_default();
        undo::requested(&settings).is_some_and(|(_, id)| id == request)
    };
    Ok(runs.into_iter().find(is_of))
}

/// Sums up what a run has put back, and looks at the rows that stay.
async fn summed(
    undoing: &Proposer,
    store: &Arc<dyn Store>,
    (run, request): (&RunId, &Undo),
    report: &mut Report,
) -> Result<(), Failure> {
    let query = HistoryQuery { run: Some(*run), ..HistoryQuery::default() };
    let (mut rows, plugins) = (history::Rows::of(&**store, query), Plugins::default());
    while let Some(row) = rows.next().await? {
        match (row.outcome, &row.reason) {
            (End::Committed, _) if is_only_planned_again(&row) => report.plan_again += 1,
            (End::Committed, reason) => {
                report.items += 1;
                report.plan_again += u64::from(request.plan_again);
                report.rows += row.rows;
                if undoing.tells() {
                    let sent = undoing.sent(row.id).await?;
                    count_by_topic(&mut report.told, sent.into_iter().map(|m| m.topic));
                }
                if undo::left(reason.as_deref()).is_none() {
                    report.note(undo::notes_of(reason.as_deref()));
                    continue;
                }
                let mut stays = Report::default();
                if let Some(undone) = undone_by(&**store, &row).await? {
                    look(undoing, store, request, &undone, &plugins, &mut stays).await?;
                }
                report.staying += stays.staying;
                report.open += stays.rows;
                report.stay.extend(stays.stay);
                report.stay.truncate(STAY_MAX);
                // What it has put back is told by its reason, and not by another look.
                report.note(undo::notes_of(reason.as_deref()));
                let partial = |(note, _): &(String, u64)| !is_whole(Some(note));
                for (note, count) in stays.notes.into_iter().filter(partial) {
                    *report.notes.entry(note).or_default() += count;
                }
            }
            (_, reason) => {
                let reason = reason.clone().unwrap_or_else(|| row.outcome.to_string());
                if reason.starts_with(ALREADY)
                    && let Some(undone) = undone_by(&**store, &row).await?
                {
                    report.purged(&**store, undone.id).await?;
                }
                *report.skipped.entry(reason).or_default() += 1;
            }
        }
    }
    report.tell();
    Ok(())
}

/// The history row that an item has undone.
async fn undone_by(store: &dyn Store, row: &HistoryRow) -> Result<Option<HistoryRow>, Failure> {
    let Ok(target) = Target::parse(&row.identity.key) else { return Ok(None) };
    Ok(history::Rows::of_target(store, &target).next().await?)
}

impl Stays {
    fn of(of: &Staying) -> Stays {
        let row = |fields: &[Field]| {
            fields.iter().map(|field| (field.name.to_string(), rows::plain(&field.value))).collect()
        };
        Stays {
            row: row_name(&of.collection, &of.key),
            why: of.why.clone(),
            was: (!of.kept.is_empty()).then(|| row(&of.kept)),
            now: of.now.as_deref().map(row),
        }
    }

    /// The columns that differ.
    fn difference(&self) -> String {
        let (Some(was), Some(now)) = (&self.was, &self.now) else { return String::new() };
        let other = |(name, was): (&String, &Value)| {
            let now = now.get(name).filter(|now| *now != was)?;
            Some(format!("{name}: {was} -> {now}"))
        };
        was.iter().filter_map(other).collect::<Vec<_>>().join(", ")
    }
}

/// Adds messages to their number by topic.
fn count_by_topic(counts: &mut BTreeMap<String, u64>, topics: impl Iterator<Item = String>) {
    for topic in topics {
        *counts.entry(topic).or_default() += 1;
    }
}

impl Report {
    /// Adds what is different in an item although its rows were put back.
    fn note(&mut self, notes: Vec<String>) {
        for note in notes {
            match Differing::parse(&note) {
                Some(differing) => {
                    self.differing.0.merge(differing);
                    self.differing.1 += 1;
                }
                // That the others stay away was asked for.
                None if note.starts_with(UNCHOSEN) => {}
                None => *self.notes.entry(note).or_default() += 1,
            }
        }
    }

    /// Notes the rows of an item that was undone before which were purged: they have not come back.
    async fn purged(&mut self, store: &dyn Store, history: u64) -> Result<(), Failure> {
        let purged = store.kept(history).await?.map_or(0, |kept| kept.purged);
        self.note(purge::note(purged).into_iter().collect());
        Ok(())
    }

    /// Sums up the rows that came back with other values.
    fn tell(&mut self) {
        let (differing, items) = std::mem::take(&mut self.differing);
        if differing.rows > 0 {
            self.notes.insert(differing.to_string(), items);
        }
    }

    fn exit(&self) -> Exit {
        let is_done = |reason: &String| reason.starts_with(ALREADY);
        let is_partial = |note: &String| !is_whole(Some(note)) || note.ends_with(purge::NOTE);
        let whole = self.ended
            && self.staying == 0
            && self.skipped.keys().all(is_done)
            && !self.notes.keys().any(is_partial);
        if whole { Exit::Fine } else { Exit::Failed }
    }

    fn text(&self) -> String {
        let mut facts = Facts::default();
        facts.add("undone", &self.target);
        if let Some(run) = self.run {
            facts.add(
                "run",
                if self.ended { run.to_string() } else { format!("{run} (still active)") },
            );
        }
        let would = if self.dry_run { "would be put back" } else { "put back" };
        facts.add("items", self.items).add(format!("rows {would}"), self.rows);
        if self.already > 0 {
            facts.add("rows as they were", self.already);
        }
        facts.add("rows that stay", self.staying);
        if self.plan_again > 0 {
            let can = if self.dry_run { "could be planned again" } else { "may be planned again" };
            facts.add(can, counted(self.plan_again, "item"));
        }
        for (reason, count) in &self.skipped {
            facts.add("not undone", format!("{}: {reason}", counted(*count, "item")));
        }
        let is_nothing = self.items == 0 && self.plan_again == 0;
        if is_nothing && self.skipped.is_empty() && self.notes.is_empty() {
            facts.add("note", "no item of it has changed rows");
        }
        for note in self.notes.keys() {
            facts.add("note", note);
        }
        if let Some(later) = &self.later {
            facts.add("note", later);
        }
        if let Some(warning) = &self.warning {
            facts.add("warning", warning);
        }
        if let Some(task) = &self.pauses {
            let would = if self.dry_run { "would be paused" } else { "paused" };
            let fix = format!(
                "{task}: its next run would take the rows again; correct its rule, then `besom task resume {task}`"
            );
            facts.add(would, fix);
        }
        for trigger in &self.triggers {
            facts.add("trigger that may fire", trigger);
        }
        for (topic, count) in &self.messages {
            let words = format!("{} to {topic} had been sent or wait", counted(*count, "message"));
            facts.add("not taken back", words);
        }
        let told = if self.dry_run { "would be told" } else { "told" };
        for (topic, count) in &self.told {
            facts.add(told, format!("{} to {topic}", counted(*count, "message")));
        }
        // Said once, and not for each of the rows.
        let ungranted =
            |why: &str| Some(why.strip_suffix(UNDO_GRANTS)?.trim_end_matches("; ").to_owned());
        if self.stay.iter().any(|stay| ungranted(&stay.why).is_some()) {
            facts.add("fix", UNDO_GRANTS);
        }
        let mut text = facts.render();
        if !self.stay.is_empty() {
            let mut table = Table::new("");
            for stay in self.stay.iter().take(SHOWN) {
                let why = ungranted(&stay.why).unwrap_or_else(|| stay.why.clone());
                table.row([
                    ("ROW THAT STAYS", &stay.row),
                    ("WHY", &why),
                    ("WAS -> IS", &stay.difference()),
                ]);
            }
            text.push_str(&format!("\n{}", table.render()));
            if self.staying > SHOWN as u64 {
                let more = self.staying - SHOWN as u64;
                text.push_str(&format!("... and {more} more (--output json lists them)\n"));
            }
        }
        if self.dry_run {
            text.push_str("Nothing was changed.\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_grant_is_told_once_with_its_fix() {
        let stays = |key: u32| Stays {
            row: format!("sessions ({key})"),
            why: format!("permission denied for table sessions; {UNDO_GRANTS}"),
            was: None,
            now: None,
        };
        let report = Report { stay: vec![stays(1), stays(2)], staying: 2, ..Report::default() };
        let text = report.text();
        assert_eq!(text.matches(UNDO_GRANTS).count(), 1, "{text}");
        assert_eq!(text.matches("permission denied for table sessions\n").count(), 2, "{text}");
    }
}
