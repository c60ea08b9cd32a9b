//! `besom status`: prints the leader, the nodes, and the schedule and queues of each task.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::cron::Schedule;
use besom_core::ids::TaskName;
use besom_core::plan::{Scan, TaskState, unscanned_since};
use besom_core::snapshot::{Cause, ClockReport, Cut, Held};
use besom_core::time::Time;
use serde::Serialize;

use super::open::Outline;
use super::output::{self, Facts, Stamp, Table};
use super::{Exit, Failure, Global, open};
use crate::api::host::HostStatus;
use crate::config::{TaskOutline, printable};
use crate::host::health::Part;
use crate::ports::members::{MemberState, StoreAway};
use crate::ports::store::{self, Depth, Missing, NodeRow, Pause, Store};

/// `besom status`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// The status. Its JSON is a stable interface for scripts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The leading node; `None` if there is none or it is unknown.
    pub leader: Option<String>,
    /// Term of the leader; without a leader, the last term known to the store.
    pub term: Option<u64>,
    /// When the leader was elected.
    pub leading_since: Option<Stamp>,
    /// Why the leader is unknown.
    pub leader_fault: Option<String>,
    /// The nodes as last seen. A vanished node is listed for `retention.nodes`.
    pub nodes: Vec<NodeStatus>,
    /// The tasks of the configuration, then orphaned tasks.
    pub tasks: Vec<TaskStatus>,
    /// Number of commands that no leader has applied yet, up to 1,000.
    pub commands_waiting: usize,
    /// Errors of the configuration, as printed.
    pub problems: Vec<String>,
    /// Time of the report, by the store's clock.
    pub now: Stamp,
}

/// A node as it was last seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Name of the node, including its incarnation.
    pub node: String,
    /// The last state that the node reported, or `draining`. `gone`: the report is too old. `silent`: too
    /// old, but the node is still a member of the cluster. `aside`: the node cannot reach the store and
    /// leaves its work to the other members.
    pub state: String,
    /// When the node was last seen.
    pub seen_at: Stamp,
    /// What the node cannot reach.
    pub missing: Vec<MissingPart>,
    /// What holds the whole node; what holds a task is listed with the task.
    pub held: Vec<HeldPart>,
    /// The difference between its clock and the store's; `None` if not reported.
    pub clock: Option<ClockReport>,
    /// Why the node rejected the last change of its configuration file; it keeps the configuration before.
    pub config_fault: Option<String>,
    /// Number of earlier incarnations of the node that vanished.
    pub earlier: usize,
}

/// Work that is held, and resumes when its cause is removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldPart {
    /// The node that reports it.
    pub node: String,
    /// What is held: `scan`, `execution`, `commit`, or a stream such as `stream 17`.
    pub what: String,
    /// The kind of the cause.
    pub cause: Cause,
    /// When it was first held.
    pub since: Stamp,
    /// The last error, with the fix.
    pub why: String,
}

impl HeldPart {
    fn of(node: &NodeRow, held: &Held) -> HeldPart {
        HeldPart {
            node: node.node.to_string(),
            what: held.what.clone(),
            cause: held.cause,
            since: Stamp(held.since),
            why: held.why.clone(),
        }
    }
}

/// Something that a node cannot reach.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingPart {
    /// The part: the store, the coordination or the activity.
    pub what: String,
    /// When it was first unreachable.
    pub since: Stamp,
    /// The last error.
    pub why: String,
}

impl From<&Missing> for MissingPart {
    fn from(missing: &Missing) -> MissingPart {
        let Missing { what, since, why } = missing.clone();
        MissingPart { what, since: Stamp(since), why }
    }
}

/// The status of a task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskStatus {
    /// Name of the task.
    pub task: String,
    /// The next slot; `None` for a task that is paused, has no schedule, or is orphaned.
    pub next: Option<Stamp>,
    /// When the last run started.
    pub last: Option<Stamp>,
    /// The result of the last run: `running`, `ok`, or its error.
    pub last_result: Option<String>,
    /// Number of waiting items: `log` + `timers` + `retries`.
    pub waiting: u64,
    /// Waiting items in the log.
    pub log: u64,
    /// Waiting items with a due time.
    pub timers: u64,
    /// Waiting items that are retried.
    pub retries: u64,
    /// Number of unresolved dead letters.
    pub dead: u64,
    /// When the next timer is due.
    pub next_due: Option<Stamp>,
    /// How long the oldest executable item has been waiting, or how long a scheduled scan of the tables
    /// has been missing, whichever is longer, in seconds.
    pub overdue_seconds: f64,
    /// Size of the before-images, in bytes.
    pub undo_bytes: u64,
    /// Who paused the task, and why.
    pub paused: Option<Pause>,
    /// Whether the task is missing in the configuration although it has items or dead letters.
    pub orphaned: bool,
    /// What holds the task, as reported by the live nodes.
    pub held: Vec<HeldPart>,
    /// What the last run left for the next one, as reported by the leader.
    pub cut: Option<Cut>,
}

/// Maximum number of runs read for a task that has never completed a scan.
const RUNS_READ: u32 = 100;

/// Reads the store and combines it with what is known of the cluster.
pub async fn report(store: &dyn Store, outline: &Outline) -> Result<Report, store::Error> {
    let now = store.now().await?;
    let fence = store.fence().await?;
    let nodes = store.nodes().await?;
    let silent_max = outline.lease_ttl.max(crate::host::SILENT_MAX);
    let leader = outline.leader.as_ref().map(|leader| leader.node.to_string());
    let states: BTreeMap<_, _> =
        store.task_states().await?.into_iter().map(|s| (s.task.clone(), s)).collect();
    // A node that last reported to lead but is not the leader was replaced before it could report again.
    let alive = |row: &NodeRow| {
        let known = outline.leader_fault.is_none();
        let replaced =
            known && row.state == "leading" && leader.as_deref() != Some(row.node.as_str());
        now.since(row.seen_at) <= silent_max && !replaced
    };
    // A member that renews its lease is alive, even if it cannot write to the store.
    let member_of = |row: &NodeRow| {
        let mut members = outline.members.iter().flat_map(|members| &members.members);
        members.find(|member| member.incarnation == row.node)
    };
    // A node that cannot reach the store can report that only to the other members.
    let away_of = |row: &NodeRow| member_of(row).and_then(|member| member.store_away.as_ref());
    let is_draining =
        |row: &NodeRow| member_of(row).is_some_and(|m| m.state == MemberState::Draining);
    let held_of = |name: Option<&TaskName>| {
        let said = nodes.iter().filter(|row| alive(row)).flat_map(|row| {
            let held = row.report.iter().flat_map(|report| &report.held);
            held.map(move |held| (row, held))
        });
        let of = said.filter(|(_, held)| held.task.as_deref() == name.map(TaskName::as_str));
        of.map(|(row, held)| HeldPart::of(row, held)).collect::<Vec<_>>()
    };
    let cut_of = |name: &TaskName| {
        let leading = nodes.iter().filter(|row| leader.as_deref() == Some(row.node.as_str()));
        let mut cut = leading.flat_map(|row| row.report.iter().flat_map(|report| &report.cut));
        cut.find(|cut| cut.task == name.as_str()).cloned()
    };
    let depths = store.depths().await?;
    let mut tasks = Vec::new();
    let orphans = depths.iter().filter_map(|d| d.task.clone());
    let orphans = orphans.filter(|task| !outline.tasks.contains_key(task)).collect::<Vec<_>>();
    for name in outline.tasks.keys().chain(&orphans) {
        let paused = states.get(name).and_then(|s| s.paused.clone());
        let depth = depths.iter().find(|d| d.task.as_ref() == Some(name));
        let defined = outline.tasks.get(name);
        let waits = depth.is_some_and(|d| d.log + d.timers + d.retries + d.dead > 0);
        if defined.is_none() && !waits {
            continue;
        }
        let mut runs = store.runs(Some(name), 1).await?;
        match store.last_scanned(name).await? {
            Some(complete) if runs.first().is_none_or(|run| run.id != complete.id) => {
                runs.push(complete);
            }
            Some(_) => {}
            None => runs = store.runs(Some(name), RUNS_READ).await?,
        }
        let held = held_of(Some(name));
        let scans: Vec<Scan> = runs.iter().map(Scan::from).collect();
        let unscanned = match (defined, states.get(name)) {
            (Some(task), Some(state)) => unscanned(task, state, &scans, !held.is_empty(), now),
            _ => None,
        };
        let run = runs.into_iter().next();
        tasks.push(TaskStatus {
            next: match (&paused, defined) {
                (None, Some(task)) => next(task, now).map(Stamp),
                _ => None,
            },
            last: run.as_ref().map(|r| Stamp(r.started_at)),
            last_result: run.map(|r| match (r.ended_at, r.error) {
                (_, Some(error)) => error,
                (Some(_), None) => "ok".to_owned(),
                (None, None) => "running".to_owned(),
            }),
            paused,
            orphaned: defined.is_none(),
            held,
            cut: cut_of(name),
            ..waiting(name, depth, unscanned, now)
        });
    }
    // Stopped nodes are not shown, nor nodes that vanished longer ago than `retention.nodes`, even if no
    // leader has removed them yet.
    let shown: Vec<&NodeRow> = nodes
        .iter()
        .filter(|n| n.state != "stopped" && now.since(n.seen_at) <= outline.nodes_shown)
        .collect();
    // Of several incarnations of a node, the latest is shown, and all that are alive.
    let is_latest = |row: &NodeRow| {
        let same = shown.iter().filter(|other| other.node.node_name() == row.node.node_name());
        same.max_by_key(|other| (other.seen_at, &other.node)).is_some_and(|l| l.node == row.node)
    };
    let node_held = held_of(None);
    let nodes = shown
        .iter()
        .filter(|row| alive(row) || away_of(row).is_some() || is_latest(row))
        .map(|n| NodeStatus {
            node: n.node.to_string(),
            state: match away_of(n) {
                Some(away) if away.aside => "aside".to_owned(),
                Some(_) => n.state.clone(),
                None if alive(n) && is_draining(n) => "draining".to_owned(),
                None if alive(n) => n.state.clone(),
                None if member_of(n).is_some() => "silent".to_owned(),
                None => "gone".to_owned(),
            },
            seen_at: Stamp(n.seen_at),
            missing: missed(n, away_of(n)),
            held: node_held.iter().filter(|h| h.node == n.node.as_str()).cloned().collect(),
            clock: n.report.as_ref().and_then(|report| report.clock).filter(|_| alive(n)),
            config_fault: n.report.as_ref().and_then(|report| report.config_fault.clone()),
            earlier: if is_latest(n) {
                let same = |other: &&&NodeRow| {
                    other.node.node_name() == n.node.node_name() && other.node != n.node
                };
                shown.iter().filter(same).filter(|other| !alive(other)).count()
            } else {
                0
            },
        })
        .collect();
    Ok(Report {
        leader,
        // A newly elected leader may not have raised the fence yet.
        term: outline
            .leader
            .as_ref()
            .map(|leader| leader.term)
            .or(fence.as_ref().map(|fence| fence.term))
            .map(|term| term.0),
        leading_since: outline.leader.as_ref().map(|leader| Stamp(leader.elected_at)),
        leader_fault: outline.leader_fault.clone(),
        nodes,
        tasks,
        commands_waiting: {
            let pending = store.pending_commands(1_000).await?;
            pending.iter().filter(|row| !row.command.is_record()).count()
        },
        problems: outline.problems.clone(),
        now: Stamp(now),
    })
}

impl Report {
    /// Adds what the local host reports directly, because it may be unable to write to the store.
    fn beside(&mut self, host: &HostStatus) {
        let name = host.node.as_str();
        let Some(node) = self.nodes.iter_mut().find(|node| node.node == name) else { return };
        if matches!(node.state.as_str(), "gone" | "silent") {
            node.state.clone_from(&host.state);
        }
        for missing in &host.missing {
            if node.missing.iter().all(|known| known.what != missing.what) {
                node.missing.push(MissingPart::from(missing));
            }
        }
    }
}

/// Returns what a node cannot reach, from its row in the store and its announcement to the members.
fn missed(row: &NodeRow, away: Option<&StoreAway>) -> Vec<MissingPart> {
    let mut missed: Vec<MissingPart> = row.missing.iter().map(MissingPart::from).collect();
    if let Some(away) = away {
        let what = Part::Store.to_string();
        missed.retain(|missing| missing.what != what);
        missed.push(MissingPart { what, since: Stamp(away.since), why: away.told() });
    }
    missed
}

/// Returns the next slot of a task, or `None` if it has no valid schedule.
pub fn next(task: &TaskOutline, now: Time) -> Option<Time> {
    Schedule::parse(task.schedule.as_deref()?, &task.timezone).ok()?.next_after(now)
}

/// Returns since when a scheduled scan of the task has been missing.
fn unscanned(
    task: &TaskOutline,
    state: &TaskState,
    runs: &[Scan],
    held: bool,
    now: Time,
) -> Option<Time> {
    let schedule = Schedule::parse(task.schedule.as_deref()?, &task.timezone).ok()?;
    unscanned_since(now, &schedule, &task.policy, state, runs, held)
}

fn waiting(
    task: &TaskName,
    depth: Option<&Depth>,
    unscanned: Option<Time>,
    now: Time,
) -> TaskStatus {
    let empty = Depth::default();
    let d = depth.unwrap_or(&empty);
    TaskStatus {
        task: task.to_string(),
        next: None,
        last: None,
        last_result: None,
        waiting: d.log + d.timers + d.retries,
        log: d.log,
        timers: d.timers,
        retries: d.retries,
        dead: d.dead,
        next_due: d.next_due.map(Stamp),
        overdue_seconds: [d.oldest, unscanned]
            .into_iter()
            .flatten()
            .min()
            .map_or(Duration::ZERO, |t| now.since(t))
            .as_secs_f64(),
        undo_bytes: d.undo_bytes,
        paused: None,
        orphaned: false,
        held: Vec::new(),
        cut: None,
    }
}

impl Args {
    /// Gathers the status and prints it.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let gathered = async {
            let (store, outline) = open::reading(global).await?;
            Ok(report(&*store, &outline).await?)
        };
        let report = match gathered.await {
            Ok(mut report) => {
                // A store that is full or read-only can be read, but its rows about nodes are outdated.
                if let Some(host) = open::host_status(global).await {
                    report.beside(&host);
                }
                report
            }
            Err(Failure::Unreachable(words)) => {
                // The local host may know since when the store is unreachable.
                let host = open::host_status(global).await;
                let missing = host.iter().flat_map(|host| {
                    host.missing.iter().map(move |missing| {
                        let since = Stamp(missing.since);
                        format!("; {} cannot reach {} since {since}", host.node, missing.what)
                    })
                });
                let known: String = missing.collect();
                return Err(Failure::Unreachable(format!("{words}{known}")));
            }
            Err(failure) => return Err(failure),
        };
        output::show(global.output, &report, || text(&report))?;
        Ok(Exit::Fine)
    }
}

fn text(report: &Report) -> String {
    let mut facts = Facts::default();
    let leader = match (&report.leader, &report.leader_fault) {
        (Some(leader), _) => leader.clone(),
        (None, Some(fault)) => format!("unknown: {fault}"),
        (None, None) => "none".to_owned(),
    };
    facts.add("leader", leader);
    facts.add("term", output::text(report.term));
    if let Some(since) = report.leading_since {
        facts.add("leading since", format!("{since} ({})", since.beside(report.now)));
    }
    if report.commands_waiting > 0 {
        facts.add("commands waiting", report.commands_waiting);
    }
    let mut nodes = Table::new(
        &["NODE", "STATE", "SEEN"],
        "No hosts are running (a pass of `besom run` is not listed).",
    );
    for node in &report.nodes {
        let seen = node.seen_at.beside(report.now);
        let seen = match node.earlier {
            0 => seen,
            1 => format!("{seen}, after 1 earlier incarnation that vanished"),
            n => format!("{seen}, after {n} earlier incarnations that vanished"),
        };
        nodes.row([node.node.clone(), node.state.clone(), seen]);
    }
    let missing: String = report
        .nodes
        .iter()
        .flat_map(|node| node.missing.iter().map(move |missing| (node, missing)))
        .map(|(node, missing)| {
            let since = missing.since.beside(report.now);
            let why = printable(&missing.why);
            format!("{} cannot reach {} (since {since}): {why}\n", node.node, missing.what)
        })
        .collect();
    let clocks: String = report
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.clock.filter(|clock| clock.noticed)?)))
        .map(|(node, clock)| {
            let then = if clock.leads_not {
                "; the node does not lead until its clock is corrected"
            } else {
                ""
            };
            format!("the clock of {} is {}{then}\n", node.node, clock.words())
        })
        .collect();
    let refused: String = report
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.config_fault.as_ref()?)))
        .map(|(node, fault)| {
            let lines: Vec<String> =
                fault.lines().map(|line| format!("  {}", printable(line))).collect();
            format!(
                "{} keeps its earlier configuration: the changed file is invalid\n{}\n",
                node.node,
                lines.join("\n")
            )
        })
        .collect();
    let node_held = report
        .nodes
        .iter()
        .flat_map(|node| node.held.iter().map(move |held| (node.node.as_str(), held)));
    let task_held = report
        .tasks
        .iter()
        .flat_map(|task| task.held.iter().map(move |held| (task.task.as_str(), held)));
    let held: String = node_held
        .chain(task_held)
        .map(|(who, held)| {
            let since = held.since.beside(report.now);
            let why = printable(&held.why);
            format!("{who} is held (since {since}; {}, on {}): {why}\n", held.what, held.node)
        })
        .collect();
    let mut out = format!(
        "{}\n{}{missing}{clocks}{refused}\n{}",
        facts.render(),
        nodes.render(),
        tasks(&report.tasks, report.now)
    );
    if !held.is_empty() {
        out.push_str(&format!("\n{held}"));
    }
    for problem in &report.problems {
        let lines: Vec<String> = problem.lines().map(printable).collect();
        out.push_str(&format!("\n{}\n", lines.join("\n")));
    }
    out
}

/// Renders the tasks as a table, with times relative to `now`.
pub fn tasks(rows: &[TaskStatus], now: Stamp) -> String {
    let beside = |at: Option<Stamp>| output::text(at.map(|at| at.beside(now)));
    let mut table = Table::new(
        &["TASK", "NEXT", "LAST", "RESULT", ">WAITING", ">DEAD", ">OVERDUE", "NOTE"],
        "No tasks are configured.",
    );
    for t in rows {
        let note = match (&t.paused, t.orphaned, t.held.first()) {
            (Some(pause), _, _) => format!("paused by {}: {}", pause.by, pause.reason),
            (None, true, _) => "orphaned: not in the configuration".to_owned(),
            (None, false, Some(held)) => format!("held: {}", held.what),
            (None, false, None) => t.cut.as_ref().map(Cut::words).unwrap_or_default(),
        };
        table.row([
            t.task.clone(),
            beside(t.next),
            beside(t.last),
            output::text(t.last_result.clone()),
            t.waiting.to_string(),
            t.dead.to_string(),
            format!("{:.0}s", t.overdue_seconds),
            note,
        ]);
    }
    table.render()
}
