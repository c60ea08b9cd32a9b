//! `besom status`: prints the leader, the nodes, and the schedule and queues of each task.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::brake::Brakes;
use besom_core::command::{Command, counted};
use besom_core::cron::Schedule;
use besom_core::ids::{RunId, TaskName};
use besom_core::mode::Mode;
use besom_core::plan::{Past, Policy, Scan, TaskState, UNUSUAL_RUNS, Unusual, unscanned_since};
use besom_core::time::Time;
use besom_snapshot::{
    CODE_KEPT, Cause, ClockReport, Cut, Depth, Held, HeldBack, LeftOut, Paced, RefusedPlan,
    RunState, TOPICS_MAX, Topic, WaitingReview, of_code, unlike_leader,
};
use serde::{Serialize, Serializer};

use super::open::Outline;
use super::output::{self, Facts, Stamp, Table};
use super::printed::Printed;
use super::{Exit, Failure, Global, open};
use besom_config::{TaskOutline, printable};
use besom_engine::api::host::HostStatus;
use besom_engine::gather::held_back::Undone;
use besom_engine::gather::refused::{refused_of, standing};
use besom_engine::gather::resumed::resumed_at;
use besom_engine::gather::rows;
use besom_ports::members::MemberState;
use besom_ports::store::{
    self, CommandRow, Missing, NodeRow, Pause, ReviewQuery, Role, Store, Waiting,
};

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
    /// Who paused all tasks, and why.
    pub all_paused: Option<Printed<Pause>>,
    /// Number of commands that no leader has applied yet, up to 1,000.
    pub commands_waiting: usize,
    /// Whether the leader refuses the changed file, and runs the configuration before.
    pub file_refused: bool,
    /// Whether the tasks are shown as in a refused file, because no host on this machine says how they run.
    pub as_in_file: bool,
    /// Tasks of a refused file that the leader does not run.
    pub only_in_file: Vec<String>,
    /// Errors of the configuration, as printed; and which nodes run a different configuration from the
    /// leader.
    pub problems: Vec<String>,
    /// Tasks that have run from this store and are not in the configuration.
    pub unconfigured: Vec<String>,
    /// The topics with a route, and those of which messages wait for their delivery.
    pub topics: Vec<Printed<Topic>>,
    /// Size of the rows that are kept for undo, in bytes, by task; without tasks of which none are kept.
    pub kept_bytes: BTreeMap<String, u64>,
    /// Time of the report, by the store's clock.
    pub now: Stamp,
}

/// A node as it was last seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeStatus {
    /// Name of the node, including its incarnation.
    pub node: String,
    /// Name of the node, the same after a restart.
    pub name: String,
    /// What the node does.
    pub state: Standing,
    /// Name of its machine; empty: not reported.
    pub hostname: String,
    /// Address at which other nodes reach it; empty: none.
    pub address: String,
    /// Weight of the node in the ring relative to the others'.
    pub weight: u32,
    /// Digest of its configuration.
    pub config_digest: String,
    /// When the node was last seen.
    pub seen_at: Stamp,
    /// What the node cannot reach.
    pub missing: Printed<Vec<Missing>>,
    /// What holds the whole node; what holds a task is listed with the task.
    pub held: Vec<HeldPart>,
    /// The difference between its clock and the store's; `None` if not reported.
    pub clock: Option<ClockReport>,
    /// Why the node rejected the last change of its configuration file; it keeps the configuration before.
    pub config_fault: Option<String>,
    /// The keys of its configuration file whose changes take effect at its next start.
    pub needs_restart: Vec<String>,
    /// Number of earlier incarnations of the node that vanished.
    pub earlier: usize,
}

/// What a node does, as far as the others can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The last role that the node reported, or draining.
    Is(Role),
    /// The node cannot reach the store and leaves its work to the other members.
    Aside,
    /// The last report is too old, but the node is still a member of the cluster.
    Silent,
    /// The last report is too old.
    Gone,
}

impl Standing {
    fn as_str(self) -> &'static str {
        match self {
            Standing::Is(role) => role.as_str(),
            Standing::Aside => "aside",
            Standing::Silent => "silent",
            Standing::Gone => "gone",
        }
    }
}

impl Serialize for Standing {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

/// Work that is held, and resumes when its cause is removed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldPart {
    /// The node that reports it.
    pub node: String,
    /// What it reports.
    #[serde(flatten)]
    pub held: Printed<Held>,
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
    /// The result of the last run: `running`, `ok`, its error, or what stops it: `braked`, `paused` or `closed`.
    pub last_result: Option<String>,
    /// Number of waiting items: `log` + `timers` + `retries`.
    pub waiting: u64,
    /// The numbers of its items, by where they are.
    #[serde(flatten)]
    pub depth: Printed<Depth>,
    /// How long the oldest executable item has been waiting, or how long a scheduled scan of the tables
    /// has been missing, whichever is longer, in seconds.
    pub overdue_seconds: f64,
    /// Who paused the task, or all tasks, and why.
    pub paused: Option<Printed<Pause>>,
    /// How far its runs go by themselves: `preview`, `approve`, `live`; `None`: the task is orphaned.
    pub mode: Option<Mode>,
    /// Whether there is a review of one of its runs.
    pub previewed: bool,
    /// What one of its runs has planned and waits for an approval.
    pub review: Option<Printed<WaitingReview>>,
    /// When its next window opens; `None`: one is open, or the task has no windows.
    pub opens: Option<Stamp>,
    /// Whether the task is missing in the configuration although it has items or dead letters.
    pub orphaned: bool,
    /// What holds the task, as reported by the live nodes.
    pub held: Vec<HeldPart>,
    /// How fast it may go, if it yields, and why: as reported by the live nodes that have executed it.
    pub paces: Vec<Printed<Paced>>,
    /// What the last run left for the next one, as reported by the leader.
    pub cut: Option<Cut>,
    /// The rows that its last run could not plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// The last run that planned anything, if it planned many times what is usual.
    pub unusual: Option<Unusual>,
    /// What its last run has planned although the database refuses all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedPlan>,
    /// What its last run has left out, because an undo holds it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBack>,
    /// A pause or a resumption that no leader has applied yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
    /// Number of items that have failed and wait for another attempt, up to 1,000.
    pub failing: usize,
    /// The latest error of the item with the most attempts among them.
    pub failing_error: Option<String>,
}

/// Maximum number of reviews that wait.
const REVIEWS_READ: u32 = 1_000;

/// Maximum number of retried items read for a task.
const RETRIED_READ: u32 = 1_000;

/// Returns the items of a task that have failed at least once and wait for another attempt, the one
/// with the most attempts first.
pub async fn retried(store: &dyn Store, task: &TaskName) -> Result<Vec<Waiting>, store::Error> {
    let of = std::slice::from_ref(task);
    let mut retried = store.read_retries(Some(of), None, None, RETRIED_READ).await?;
    retried.retain(|waiting| waiting.item.attempts > 0);
    retried.sort_by_key(|waiting| std::cmp::Reverse(waiting.item.attempts));
    Ok(retried)
}

/// Maximum number of commands among which the last resumption of a task, and undos of it, are looked for.
const COMMANDS_READ: u32 = 200;

/// Maximum number of runs read for a task that has never completed a scan.
const RUNS_READ: u32 = 100;

/// Maximum number of slots read of a task that has not scanned.
const SLOTS_READ: u32 = 1_000;

/// Reads the store and combines it with what is known of the cluster.
pub async fn report(store: &dyn Store, outline: &Outline) -> Result<Report, store::Error> {
    let now = store.now().await?;
    let fence = store.fence().await?;
    let nodes = store.nodes().await?;
    let silent_max = outline.lease_ttl.max(besom_engine::host::SILENT_MAX);
    let leader = outline.leader.as_ref().map(|leader| leader.node.to_string());
    let states: BTreeMap<_, _> =
        store.task_states().await?.into_iter().map(|s| (s.task.clone(), s)).collect();
    // A node that last reported to lead but is not the leader was replaced before it could report again.
    let alive = |row: &NodeRow| {
        let known = outline.leader_fault.is_none();
        let replaced =
            known && row.state == Role::Leading && leader.as_deref() != Some(row.node.as_str());
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
        let part = |(row, held): (&NodeRow, &Held)| HeldPart {
            node: row.node.to_string(),
            held: Printed(held.clone()),
        };
        of.map(part).collect::<Vec<_>>()
    };
    let leading = || {
        let rows = nodes.iter().filter(|row| leader.as_deref() == Some(row.node.as_str()));
        rows.flat_map(|row| &row.report)
    };
    let paces_of = |name: &TaskName| {
        let paces = nodes.iter().filter(|row| alive(row)).filter_map(|row| row.report.as_ref());
        let paces =
            paces.flat_map(|report| &report.paces).filter(|pace| pace.task == name.as_str());
        paces.cloned().map(Printed).collect::<Vec<_>>()
    };
    let cut_of = |name: &TaskName| {
        let mut all = leading().flat_map(|report| &report.cut);
        all.find(|cut| cut.task == name.as_str()).cloned()
    };
    let left_out_of = |name: &TaskName| {
        let mut all = leading().flat_map(|report| &report.left_out);
        all.find(|left_out| left_out.task == name.as_str()).cloned()
    };
    let all_paused = states.get(&TaskName::from(TaskName::ALL)).and_then(|s| s.paused.clone());
    let waiting = ReviewQuery { waiting: true, limit: REVIEWS_READ, ..ReviewQuery::default() };
    let reviews = store.reviews(&waiting).await?;
    let depths = store.depths().await?;
    let commands = store.commands(None, COMMANDS_READ).await?;
    let mut undone = Undone::default();
    let mut tasks = Vec::new();
    let orphans = depths.iter().filter_map(|d| d.task.clone());
    let orphans = orphans.filter(|task| !outline.tasks.contains_key(task)).collect::<Vec<_>>();
    for name in outline.tasks.keys().chain(&orphans) {
        let own = states.get(name).and_then(|s| s.paused.clone());
        let paused = own.or_else(|| all_paused.clone());
        let windows = outline.tasks.get(name).map(|task| task.windows.clone()).unwrap_or_default();
        let closed = Pause::until_open(&windows, now);
        let depth = depths.iter().find(|d| d.task.as_ref() == Some(name));
        let defined = outline.tasks.get(name);
        let depth = depth.map(rows::depth).unwrap_or_default();
        let waiting = depth.log + depth.timers + depth.retries;
        if defined.is_none() && waiting + depth.dead == 0 {
            continue;
        }
        let mut runs = store.runs(Some(name), UNUSUAL_RUNS).await?;
        let unusual = Unusual::of(runs.iter().map(|run| (run.id.0, run.planned)));
        let own: Vec<RunId> = runs.iter().map(|run| run.id).collect();
        runs.truncate(1);
        match store.last_scanned(name).await? {
            Some(complete) if runs.first().is_none_or(|run| run.id != complete.id) => {
                runs.push(complete);
            }
            Some(_) => {}
            None => runs = store.runs(Some(name), RUNS_READ).await?,
        }
        let failing = match depth.retries {
            0 => Vec::new(),
            _ => retried(store, name).await?,
        };
        let held = held_of(Some(name));
        let scans: Vec<Scan> = runs.iter().map(Scan::from).collect();
        // Passes of `besom run` leave runs, but no state of the schedule.
        let never_led = TaskState::initial(name.clone());
        let state = states.get(name).unwrap_or(&never_led);
        let review = reviews.iter().find(|review| review.task == *name);
        let previewed = review.is_some() || store.latest_review(name).await?.is_some();
        let stop = paused.clone().or_else(|| closed.clone());
        let state = &TaskState { paused: stop, ..state.clone() };
        let works_since =
            resumed_at(&commands, name, |run| own.contains(&run)).max(windows.opened_at(now));
        let mut past = Past { runs: &scans, slots: &[], has_all: false };
        let unscanned = |past| {
            let (task, held) = (defined?, !held.is_empty());
            unscanned(task, state, past, held, (now, works_since))
        };
        let mut since = unscanned(past);
        let slots;
        if let Some(first) = since {
            // It may have begun later than its slot.
            let from = first - defined.map_or(Duration::ZERO, |task| task.policy.jitter);
            slots = store.slots(name, from, now, SLOTS_READ).await?;
            (past.slots, past.has_all) = (&slots, slots.len() < SLOTS_READ as usize);
            since = unscanned(past);
        }
        let unscanned = since;
        let ended = runs.iter().find(|run| run.ended_at.is_some()).filter(|run| run.held);
        let refused = match ended {
            Some(run) => refused_of(store, run.id).await?,
            None => None,
        };
        let blocked = runs.first().map_or(0, |run| run.blocked);
        let held_back = undone.holds(store, &commands, name, (blocked, depth.dead)).await?;
        let run = runs.into_iter().next();
        let ended_as = match &run {
            Some(run) => standing(store, run).await?.state,
            None => RunState::Ok,
        };
        // What is planned waits on purpose while the task may not work.
        let works = state.paused.is_none() && review.is_none();
        let oldest = depth.oldest.filter(|_| works).max(
            // Until then it waited on purpose as well.
            works_since.filter(|_| depth.oldest.is_some() && works),
        );
        let overdue = [oldest, unscanned].into_iter().flatten().min();
        let recorded = Recorded::of(&commands, name, paused.as_ref());
        tasks.push(TaskStatus {
            task: name.to_string(),
            next: match (&paused, defined) {
                (None, Some(task)) => next(task, now).map(Stamp),
                _ => None,
            },
            last: run.as_ref().map(|r| Stamp(r.started_at)),
            last_result: run.map(|r| match (r.ended_at, r.error) {
                (_, Some(error)) => error,
                (Some(_), None) => ended_as.as_str().to_owned(),
                (None, None) => match &paused {
                    Some(pause) if pause.is_brake() => "braked".to_owned(),
                    Some(_) => "paused".to_owned(),
                    None if review.is_some() => "waits for an approval".to_owned(),
                    None if closed.is_some() => "closed".to_owned(),
                    None => "running".to_owned(),
                },
            }),
            waiting,
            overdue_seconds: overdue.map_or(Duration::ZERO, |t| now.since(t)).as_secs_f64(),
            depth: Printed(depth),
            paused: paused.map(Printed),
            mode: defined.map(|task| task.mode),
            previewed,
            review: review.map(WaitingReview::from).map(Printed),
            opens: windows.opens_at(now).map(Stamp),
            orphaned: defined.is_none(),
            held,
            paces: paces_of(name),
            cut: cut_of(name),
            left_out: left_out_of(name),
            unusual,
            refused,
            held_back,
            recorded,
            failing: failing.len(),
            failing_error: failing.first().and_then(|waiting| waiting.item.errors.last().cloned()),
        });
    }
    // Stopped nodes are not shown, nor nodes that vanished longer ago than `retention.nodes`, even if no
    // leader has removed them yet.
    let shown: Vec<&NodeRow> = nodes
        .iter()
        .filter(|n| n.state != Role::Stopped && now.since(n.seen_at) <= outline.nodes_shown)
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
            name: n.node.node_name().to_owned(),
            hostname: n.hostname.clone(),
            address: n.address.clone(),
            weight: n.weight,
            config_digest: n.config_digest.clone(),
            state: match away_of(n) {
                Some(away) if away.aside => Standing::Aside,
                Some(_) => Standing::Is(n.state),
                None if alive(n) && is_draining(n) => Standing::Is(Role::Draining),
                None if alive(n) => Standing::Is(n.state),
                None if member_of(n).is_some() => Standing::Silent,
                None => Standing::Gone,
            },
            seen_at: Stamp(n.seen_at),
            missing: Printed(rows::missed(Some(n), member_of(n))),
            held: node_held.iter().filter(|h| h.node == n.node.as_str()).cloned().collect(),
            clock: n.report.as_ref().and_then(|report| report.clock).filter(|_| alive(n)),
            config_fault: n.report.as_ref().and_then(|report| report.config_fault.clone()),
            needs_restart: n.report.as_ref().map(|r| r.needs_restart.clone()).unwrap_or_default(),
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
    let mut report = Report {
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
        all_paused: all_paused.map(Printed),
        commands_waiting: {
            let pending = store.pending_commands(1_000).await?;
            pending.iter().filter(|row| !row.command.is_record()).count()
        },
        file_refused: outline.refused.is_some(),
        as_in_file: matches!(outline.refused, Some(None)),
        only_in_file: outline.refused.iter().flatten().flatten().map(ToString::to_string).collect(),
        problems: outline.problems.clone(),
        topics: {
            let stored = store.outbox_topics(TOPICS_MAX as u32, Topic::COUNT_MAX).await?;
            rows::topics(&outline.routes, stored).into_iter().map(Printed).collect()
        },
        kept_bytes: kept_bytes(&depths),
        unconfigured: states
            .keys()
            .filter(|name| !outline.tasks.contains_key(*name) && !name.is_all())
            .map(ToString::to_string)
            .collect(),
        now: Stamp(now),
    };
    let unlike = report.unlike();
    report.problems.extend(unlike);
    Ok(report)
}

impl Report {
    /// Says which nodes run a different configuration from the leader.
    fn unlike(&self) -> Option<String> {
        let leader = self.nodes.iter().find(|node| self.leader.as_ref() == Some(&node.node))?;
        let heard = self.nodes.iter().filter(|node| node.state != Standing::Gone);
        let digests = heard.map(|node| (node.name.as_str(), node.config_digest.as_str()));
        unlike_leader(&leader.config_digest, digests)
    }

    /// Adds what the local host reports directly, because it may be unable to write to the store.
    fn beside(&mut self, host: &HostStatus) {
        let name = host.node.as_str();
        let Some(node) = self.nodes.iter_mut().find(|node| node.node == name) else { return };
        if matches!(node.state, Standing::Gone | Standing::Silent) {
            node.state = Standing::Is(host.state);
        }
        refresh(&mut node.missing.0, &host.missing);
    }
}

/// Replaces what a node has written to the store by what its host says now: this may be another outage of the same
/// service.
fn refresh(known: &mut Vec<Missing>, said: &[Missing]) {
    known.retain(|known| said.iter().all(|missing| missing.what != known.what));
    known.extend(said.iter().cloned());
}

/// Returns the next slot of a task, or `None` if it has no valid schedule.
pub fn next(task: &TaskOutline, now: Time) -> Option<Time> {
    let schedule = Schedule::parse(task.schedule.as_deref()?, &task.timezone).ok()?;
    task.windows.next_slot(&schedule, now)
}

/// Returns since when a scheduled scan of the task has been missing.
fn unscanned(
    task: &TaskOutline,
    state: &TaskState,
    past: Past<'_>,
    held: bool,
    (now, works_since): (Time, Option<Time>),
) -> Option<Time> {
    let schedule = Schedule::parse(task.schedule.as_deref()?, &task.timezone).ok()?;
    unscanned_since(now, &schedule, &task.policy, state, past, held, works_since)
}

/// If the leader refuses the changed file, replaces its tasks by those that run, as a host on this machine
/// says.
async fn as_it_runs(
    global: &Global,
    store: &dyn Store,
    outline: &mut Outline,
) -> Result<(), Failure> {
    let Some(leader) = &outline.leader else { return Ok(()) };
    let nodes = store.nodes().await?;
    let reports = nodes.iter().filter(|row| row.node == leader.node).flat_map(|row| &row.report);
    if reports.filter_map(besom_snapshot::Report::file_refused).next().is_none() {
        return Ok(());
    }
    outline.refused = Some(None);
    if let Some(snapshot) = open::snapshot(global).await {
        let run: BTreeMap<TaskName, _> = snapshot
            .tasks
            .iter()
            .filter(|task| !task.orphaned)
            .map(|task| (TaskName::from(task.name.as_str()), task))
            .collect();
        let only = outline.tasks.keys().filter(|name| !run.contains_key(*name)).cloned();
        outline.refused = Some(Some(only.collect()));
        let outlined = |(name, task): (TaskName, &std::sync::Arc<besom_snapshot::Task>)| {
            let outlined = TaskOutline {
                plugin: task.plugin.clone(),
                schedule: task.schedule.clone(),
                timezone: task.timezone.clone(),
                policy: outline.tasks.get(&name).map_or(Policy::PLAIN, |task| task.policy),
                windows: task.windows.clone(),
                mode: task.mode,
                keep_removed: Duration::ZERO,
                brakes: Brakes::default(),
                rate: None,
            };
            (name, outlined)
        };
        outline.tasks = run.into_iter().map(outlined).collect();
    }
    Ok(())
}

impl Args {
    /// Gathers the status and prints it.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let gathered = async {
            let (store, mut outline) = open::reading(global).await?;
            as_it_runs(global, &*store, &mut outline).await?;
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
    if let Some(Printed(pause)) = &report.all_paused {
        let since = Stamp(pause.since).beside(report.now);
        facts.add("all tasks paused", format!("by {}, since {since}: {}", pause.by, pause.reason));
    }
    if report.commands_waiting > 0 {
        facts.add("commands waiting", report.commands_waiting);
    }
    let mut nodes = Table::new("No hosts are running (a pass of `besom run` is not listed).");
    for node in &report.nodes {
        let seen = node.seen_at.beside(report.now);
        let seen = match node.earlier {
            0 => seen,
            1 => format!("{seen}, after 1 earlier incarnation that vanished"),
            n => format!("{seen}, after {n} earlier incarnations that vanished"),
        };
        nodes.row([("NODE", &node.node), ("STATE", &node.state.as_str()), ("SEEN", &seen)]);
    }
    let missing: String = report
        .nodes
        .iter()
        .flat_map(|node| node.missing.0.iter().map(move |missing| (node, missing)))
        .map(|(node, missing)| {
            let since = Stamp(missing.since).beside(report.now);
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
            let (what, fault) = match of_code(fault) {
                Some(problems) => (format!(": {CODE_KEPT}"), problems),
                None => {
                    let words = " keeps its earlier configuration: the changed file is invalid";
                    (words.to_owned(), fault.as_str())
                }
            };
            let lines: Vec<String> =
                fault.lines().map(|line| format!("  {}", printable(line))).collect();
            format!("{}{what}\n{}\n", node.node, lines.join("\n"))
        })
        .collect();
    let refused = refused + &of_file(report);
    let waiting = report.nodes.iter().filter(|node| !node.needs_restart.is_empty());
    let waiting: String = waiting
        .map(|node| {
            let keys = printable(&node.needs_restart.join(", "));
            format!("{}: changes that wait for a restart: {keys}\n", node.node)
        })
        .collect();
    let unlike = report.unlike().map(|words| format!("{}\n", printable(&words)));
    let unlike = unlike.unwrap_or_default();
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
        .map(|(who, HeldPart { node, held: Printed(held) })| {
            let since = Stamp(held.since).beside(report.now);
            let why = printable(&held.why);
            match held.cause {
                Cause::Broker => {
                    format!("{} is held (since {since}, on {node}): {why}\n", held.what)
                }
                Cause::NotTaken => {
                    format!("{}: not taken (since {since}, on {node}): {why}\n", held.what)
                }
                _ => format!("{who} is held (since {since}; {}, on {node}): {why}\n", held.what),
            }
        })
        .collect();
    let mut out = format!(
        "{}\n{}{missing}{clocks}{refused}{waiting}{unlike}\n{}",
        facts.render(),
        nodes.render(),
        tasks(&report.tasks, report.now)
    );
    if report.tasks.iter().all(|task| task.orphaned) && !report.unconfigured.is_empty() {
        out.push_str(&format!(
            "The configuration file has no tasks, but this store has run: {}.\n",
            report.unconfigured.join(", ")
        ));
    }
    let failing = report.tasks.iter().filter_map(|task| Some((task, task.failing_error.as_ref()?)));
    for (task, error) in failing {
        let (name, items) = (&task.task, counted(task.failing as u64, "item"));
        let words = format!(
            "{name}: {items} retried after errors (see `besom task show {name}`), latest: {error}"
        );
        out.push_str(&format!("{}\n", printable(&words)));
    }
    for (task, unusual) in report.tasks.iter().filter_map(|task| Some((task, task.unusual?))) {
        let name = &task.task;
        let words = format!("{name}: {} (see `besom runs show {}`)", unusual.words(), unusual.run);
        out.push_str(&format!("warning: {}\n", printable(&words)));
    }
    for (task, refused) in report.tasks.iter().filter_map(|t| Some((&t.task, t.refused.as_ref()?)))
    {
        let (words, why, run) = (refused.words(), &refused.reason, refused.run);
        let words = format!("{task}: {words}: {why} (see `besom review show {run}`)");
        out.push_str(&format!("warning: {}\n", printable(&words)));
    }
    for left_out in report.tasks.iter().filter_map(|task| task.left_out.as_ref()) {
        let words = format!("{}: {}", left_out.task, left_out.words());
        out.push_str(&format!("warning: {}\n", printable(&words)));
    }
    out.push_str(&kept_line(&report.kept_bytes));
    if !report.topics.is_empty() {
        out.push_str(&format!("\n{}", topics(&report.topics, report.now)));
    }
    // The errors of the configuration are on stderr already, as with every verb.
    if !held.is_empty() {
        out.push_str(&format!("\n{held}"));
    }
    out
}

/// Renders the topics as a table.
fn topics(topics: &[Printed<Topic>], now: Stamp) -> String {
    let mut table = Table::new("");
    let mut given_up = String::new();
    for Printed(topic) in topics {
        let note = match (topic.has_route, &topic.waiting_error) {
            (false, _) => "no route: Besom does not deliver them".to_owned(),
            (true, Some(error)) => printable(error).to_string(),
            (true, None) => String::new(),
        };
        if let Some((at, error)) = topic.given_up_at.zip(topic.given_up_error.as_deref()) {
            given_up.push_str(&format!(
                "topic {}: the latest message was given up {}: {}\n",
                topic.name,
                Stamp(at).beside(now),
                printable(error)
            ));
        }
        table.row([
            ("TOPIC", &topic.name),
            (">INSERTED", &topic.count_inserted()),
            (">WAITING", &topic.count()),
            ("OLDEST", &output::text(topic.oldest.map(|at| Stamp(at).beside(now)))),
            (">GIVEN UP", &topic.count_given_up()),
            ("NOTE", &note),
        ]);
    }
    if !given_up.is_empty() {
        given_up.push_str(
            "`besom outbox ls --state given-up` lists such messages, `besom outbox retry` sends them again\n",
        );
    }
    format!("{}{given_up}", table.render())
}

/// Where the listed tasks come from while the leader refuses the file; empty: from the file.
fn of_file(report: &Report) -> String {
    if !report.file_refused {
        return String::new();
    }
    if report.as_in_file {
        return "The tasks are listed as in the file. The leader runs them as before its last change: `besom top` \
                shows how.\n"
            .to_owned();
    }
    let only = match report.only_in_file.as_slice() {
        [] => String::new(),
        names => format!(" Only in the file: {}.", names.join(", ")),
    };
    format!("The tasks are listed as they run, which is not as in the file.{}\n", printable(&only))
}

/// The tasks of which rows are kept for undo, with the bytes of these.
pub fn kept_bytes(depths: &[store::Depth]) -> BTreeMap<String, u64> {
    let kept = depths.iter().filter(|depth| depth.undo_bytes > 0);
    kept.filter_map(|depth| Some((depth.task.as_ref()?.to_string(), depth.undo_bytes))).collect()
}

/// A line about what is kept of each task; empty: nothing is.
pub fn kept_line(kept: &BTreeMap<String, u64>) -> String {
    let all = kept.iter().map(|(task, bytes)| format!("{task} {}", counted(*bytes, "byte")));
    let all = all.collect::<Vec<_>>().join(", ");
    match kept.is_empty() {
        true => String::new(),
        false => format!("rows kept for undo: {all} (see `besom quarantine ls`)\n"),
    }
}

/// A command about a task that no leader has applied yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// The number of the command.
    pub command: u64,
    /// `pause` or `resume`.
    pub what: &'static str,
    /// Who has asked for it.
    pub by: String,
}

impl Recorded {
    /// The latest that changes whether a task is paused; `commands` are the newest first.
    fn of(commands: &[CommandRow], task: &TaskName, paused: Option<&Pause>) -> Option<Recorded> {
        let mut pending = commands.iter().filter(|row| row.applied_at.is_none());
        let is_of = |row: &&CommandRow| match &row.command {
            // A person's pause takes the place of a brake's.
            Command::Pause { task: of } => {
                (of == task || of.is_all()) && paused.is_none_or(Pause::is_brake)
            }
            Command::Resume { task: of, .. } => paused.is_some() && of == task,
            _ => false,
        };
        let row = pending.find(is_of)?;
        Some(Recorded { command: row.id, what: row.command.verb(), by: row.by.clone() })
    }

    fn words(&self) -> String {
        let Recorded { command, what, by } = self;
        format!(
            "{by} has asked to {what} it (command {command}), not applied yet: the next `besom serve` or `besom run` does it"
        )
    }
}

/// Renders the tasks as a table, with times relative to `now`.
pub fn tasks(rows: &[TaskStatus], now: Stamp) -> String {
    let beside = |at: Option<Stamp>| output::text(at.map(|at| at.beside(now)));
    let mut table = Table::new("No tasks are configured.");
    for t in rows {
        let note = match (&t.paused, t.orphaned, t.held.first()) {
            (Some(Printed(pause)), _, _) if pause.is_brake() => {
                let recorded = t.recorded.as_ref().map(|recorded| recorded.words() + "; ");
                let brake = format!("stopped by a brake: {}", pause.reason);
                recorded.unwrap_or_default() + &brake
            }
            _ if let Some(recorded) = &t.recorded => recorded.words(),
            (Some(Printed(pause)), _, _) => format!("paused by {}: {}", pause.by, pause.reason),
            (None, true, _) => "orphaned: not in the configuration".to_owned(),
            (None, false, _) if let Some(opens) = t.opens => {
                format!("closed: opens {}", opens.beside(now))
            }
            (None, false, Some(held)) => format!("held: {}", held.held.0.what),
            (None, false, None) if let Some(Printed(review)) = &t.review => {
                let run = review.run;
                format!("run {run} waits for an approval: besom review show {run}")
            }
            (None, false, None)
                if let Some(slowed) = t.paces.iter().find(|pace| pace.0.reason.is_some()) =>
            {
                format!("yields: {}", slowed.0)
            }
            (None, false, None) if t.failing > 0 => {
                let task = &t.task;
                format!("{} retried after errors: besom task show {task}", t.failing)
            }
            (None, false, None) if let Some(held_back) = &t.held_back => held_back.words(),
            (None, false, None) => match (t.cut.as_ref(), t.mode) {
                (Some(cut), _) => cut.words(),
                (None, Some(Mode::Preview)) => match t.previewed {
                    true => format!("previews only: besom review show {}", t.task),
                    false => format!("previews only: besom run {}", t.task),
                },
                (None, _) => String::new(),
            },
        };
        table.row([
            ("TASK", &t.task),
            ("NEXT", &beside(t.next)),
            ("LAST", &beside(t.last)),
            ("RESULT", &output::text(t.last_result.as_ref())),
            (">WAITING", &t.waiting),
            (">DEAD", &t.depth.0.dead),
            (">OVERDUE", &format!("{:.0}s", t.overdue_seconds)),
            ("NOTE", &note),
        ]);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_knows_better_what_it_misses_than_its_row() {
        let missing = |what: &str, why: &str| Missing {
            what: what.into(),
            since: Time::EPOCH,
            why: why.into(),
        };
        let mut known = vec![missing("the store", "disk full"), missing("etcd", "away")];
        refresh(&mut known, &[missing("the store", "read-only"), missing("redis", "away")]);
        let expected = [("etcd", "away"), ("the store", "read-only"), ("redis", "away")];
        assert_eq!(known, expected.map(|(what, why)| missing(what, why)));
    }
}
