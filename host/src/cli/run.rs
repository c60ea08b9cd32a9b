//! `besom run`: one pass without a host, until nothing new is found.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::time::Time;
use serde::Serialize;

use super::assembly::{Assembly, Running, asked_to_stop};
use super::output::{self, Table};
use super::watch::Watch;
use super::{Exit, Failure, Global, kept, open, submit};
use crate::config::printable;
use crate::host::dry_run::{DryItem, dry_run};
use crate::node::Role;
use crate::ports::members::Members as _;
use crate::ports::store::{Command, Counts, Store};

/// How often the progress is counted.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Runs that are looked at for a scan that has failed.
const RUNS: u32 = 200;

/// Commands that wait are counted up to here.
const COMMANDS: u32 = 1_000;

/// `besom run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print what would be changed, and commit nothing.
    #[arg(long)]
    dry_run: bool,
    /// Also tasks that somebody has paused.
    #[arg(long)]
    even_paused: bool,
    /// The tasks; all of them if none is named.
    #[arg(value_name = "TASK")]
    tasks: Vec<String>,
}

/// A pass that is held back for longer, by a missing privilege or a broken stream, ends with the
/// cause.
const HELD_MAX: Duration = Duration::from_secs(10);

/// What a pass has done with the items of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Passed {
    /// The task.
    pub task: String,
    /// Items planned by the pass.
    pub planned: u64,
    /// With effects.
    pub committed: u64,
    /// Without.
    pub skipped: u64,
    /// Set aside.
    pub dead: u64,
    /// Waiting now: what is due in the future.
    pub pending: u64,
    /// Why its scan has failed, if it has: not every row was looked at.
    pub error: Option<String>,
}

impl Args {
    /// Runs the pass and prints the counts per task.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        if self.dry_run {
            // Opening would create it, and a rehearsal changes nothing.
            open::refuse_absent(global)?;
        }
        let mut assembly = Assembly::new(global, false).await?;
        assembly.only(&self.tasks)?;
        if !self.even_paused && !self.dry_run {
            leave_out_paused(&mut assembly, &self.tasks).await?;
        }
        if !self.dry_run {
            refuse_beside_a_leader(&assembly).await?;
            let Assembly { config, ports, .. } = &assembly;
            let (store, by) = (ports.store.as_ref(), submit::caller());
            kept::note_loads(store, config, &by, "a pass has begun", |_| true).await;
        }
        if self.dry_run {
            let items = rehearse(&assembly).await?;
            output::show(global.output, &items, || {
                let lines: String = items.iter().map(ToString::to_string).collect();
                format!("{lines}{} items; nothing was committed.\n", items.len())
            })?;
            return Ok(Exit::Fine);
        }
        let passed = pass(&assembly).await?;
        let waiting = assembly.ports.store.pending_commands(COMMANDS).await?;
        let waiting = waiting.iter().filter(|row| !row.command.is_record()).count();
        if waiting > 0 {
            eprintln!("commands that wait for a host: {waiting} (`besom commands ls`)");
        }
        output::show(global.output, &passed, || text(&passed))?;
        let whole = passed.iter().all(|task| task.error.is_none());
        Ok(if whole { Exit::Fine } else { Exit::Failed })
    }
}

/// A pause holds for a pass as well, whether a leader has applied it or it waits for one.
async fn leave_out_paused(assembly: &mut Assembly, named: &[String]) -> Result<(), Failure> {
    let store = assembly.ports.store.as_ref();
    let mut paused = BTreeMap::new();
    for state in store.task_states().await? {
        if let Some(pause) = state.paused {
            paused.insert(state.task, format!("{}: {}", pause.by, pause.reason));
        }
    }
    for row in store.pending_commands(COMMANDS).await? {
        match row.command {
            Command::Pause { task } => {
                paused.insert(task, format!("{}: {}", row.by, row.reason));
            }
            Command::Resume { task } => drop(paused.remove(&task)),
            _ => {}
        }
    }
    paused.retain(|task, _| assembly.config.tasks.contains_key(task));
    for (task, why) in &paused {
        let words = format!("{task} is paused by {why}");
        if named.iter().any(|name| name == task.as_str()) {
            return Err(Failure::Failed(format!(
                "{words}; `besom task resume {task}` ends that, --even-paused runs it all the same"
            )));
        }
        eprintln!("{}", printable(&format!("{words}; it is left out")));
    }
    assembly.config.tasks.retain(|name, _| !paused.contains_key(name));
    Ok(())
}

async fn rehearse(assembly: &Assembly) -> Result<Vec<DryItem>, Failure> {
    let page = assembly.config.host.scan_page_items;
    let mut items = Vec::new();
    for (name, scheduled) in assembly.work().tasks {
        dry_run(&assembly.ports, &scheduled.definition, page, &mut |item| items.push(item))
            .await
            .map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
    }
    Ok(items)
}

/// Takes the lease and a new term, and runs the tasks of the assembly until nothing new is
/// planned.
///
/// # Errors
/// Somebody leads already, or the process was asked to stop.
pub async fn pass(assembly: &Assembly) -> Result<Vec<Passed>, Failure> {
    refuse_beside_a_leader(assembly).await?;
    let store = assembly.ports.store.as_ref();
    let before = counts(store).await?;
    let since = store.now().await?;
    let mut watch = Watch::begin(store, assembly.config.tasks.keys()).await;
    work_off(assembly, assembly.start(true), &mut watch).await?;
    let mut failed = failed(store, since).await?;
    watch.finish(store, &failed).await;
    let after = counts(store).await?;
    let of = |counts: &BTreeMap<String, Counts>, task: &str| {
        counts.get(task).cloned().unwrap_or_default()
    };
    let passed = assembly.config.tasks.keys().map(|task| {
        let (old, new) = (of(&before, task.as_str()), of(&after, task.as_str()));
        Passed {
            task: task.to_string(),
            planned: new.planned - old.planned,
            committed: new.committed - old.committed,
            skipped: new.skipped - old.skipped,
            dead: new.dead.saturating_sub(old.dead),
            pending: new.pending,
            error: failed.remove(task.as_str()),
        }
    });
    Ok(passed.collect())
}

/// The tasks whose scan has failed since then, with the error of the first one.
async fn failed(store: &dyn Store, since: Time) -> Result<BTreeMap<String, String>, Failure> {
    let mut failed = BTreeMap::new();
    // Newest first: what is noted last is the oldest.
    for run in store.runs(None, RUNS).await? {
        let now = run.started_at >= since || run.ended_at.is_some_and(|ended| ended >= since);
        if let Some(error) = run.error.filter(|_| now) {
            failed.insert(run.task.to_string(), error);
        }
    }
    Ok(failed)
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
            "{} is a member of the cluster: ask its leader with `besom task trigger`, or stop \
             every node first",
            member.name
        )));
    }
    match assembly.ports.coordination.leader().await? {
        Some(leader) => Err(Failure::Failed(format!(
            "{} leads (term {}): ask it with `besom task trigger`, or stop it first",
            leader.node, leader.term
        ))),
        None => Ok(()),
    }
}

/// Waits for the end of the pass; says meanwhile what is left.
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
                    .map_err(|error| Failure::Failed(format!("the pass has failed: {error}")))?;
                let ended = ended.map_err(|lost| Failure::Unreachable(lost.to_string()))?;
                if let Some(task) = ended.endless.first() {
                    let rounds = assembly.config.host.pass_rounds_max;
                    return Err(Failure::Failed(format!(
                        "{task} still plans after {rounds} rounds (`host.pass_rounds_max`): a scan has \
                         to leave out what is done, or to give it the version that it had; what was \
                         committed stays"
                    )));
                }
                return stopping.map_or(Ok(()), Err);
            }
            _ = &mut asked, if stopping.is_none() => {
                let words = "interrupted: what was committed stays, the rest waits";
                stopping = Some(Failure::Failed(words.into()));
                running.shutdown().await;
            }
            _ = tick.tick() => {
                led |= running.live.borrow().role != Role::Following;
                if !led && stopping.is_none() && tokio::time::Instant::now() > lead_by {
                    let words = "the lease could not be taken";
                    stopping = refuse_beside_a_leader(assembly)
                        .await
                        .err()
                        .or_else(|| Some(Failure::Unreachable(words.into())));
                    running.shutdown().await;
                }
                // A host would wait until that is mended; a pass has an end.
                let now = crate::host::clock::wall();
                let held = assembly.ports.health.held();
                let held = held.iter().find(|held| now.since(held.since) > HELD_MAX);
                if let Some(held) = held.filter(|_| stopping.is_none()) {
                    let task = held.task.as_deref().unwrap_or("this pass");
                    stopping = Some(Failure::Failed(format!(
                        "{task} is held ({}): {}; what was committed stays, the rest waits",
                        held.what, held.why
                    )));
                    running.shutdown().await;
                }
                watch.look(assembly.ports.store.as_ref()).await;
            }
        }
    }
}

/// The counters, per task.
async fn counts(store: &dyn Store) -> Result<BTreeMap<String, Counts>, Failure> {
    let mut tasks: BTreeMap<String, Counts> = BTreeMap::new();
    for row in store.audit().await?.rows {
        *tasks.entry(row.task.to_string()).or_default() += &row.counted;
    }
    Ok(tasks)
}

/// The counts for a person.
pub fn text(passed: &[Passed]) -> String {
    let mut table = Table::new(
        &["TASK", ">PLANNED", ">COMMITTED", ">SKIPPED", ">DEAD", ">PENDING"],
        "There is no task in the configuration.",
    );
    for row in passed {
        let cells = [row.planned, row.committed, row.skipped, row.dead, row.pending];
        let [a, b, c, d, e] = cells.map(|n| n.to_string());
        table.row([row.task.clone(), a, b, c, d, e]);
    }
    let mut text = table.render();
    for row in passed {
        if let Some(error) = &row.error {
            text.push_str(&format!("{}: its scan has failed: {error}\n", row.task));
        }
    }
    text
}
