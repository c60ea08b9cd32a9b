//! The host: a node, its clock and its ports, on an async runtime.
//!
//! The loop takes an event, steps the node and spawns its commands; it decides nothing. It sleeps
//! until an answer arrives or the node's next deadline.

pub mod asking;
pub mod brakes;
pub mod clock;
pub mod cost;
pub mod deliver;
pub mod dry_run;
pub mod editing;
pub mod feed;
pub mod health;
pub mod lines;
pub mod pacing;
pub mod perform;
pub mod quota;
pub mod reads;
pub mod recorder;
pub mod reload;
pub mod replay;
pub mod retaken;
pub mod review;
pub mod setup;
pub mod undo;
pub mod wake;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use besom_core::clock::Skew;
use besom_core::ids::Term;
use besom_core::time::Time;
use besom_snapshot::{Report, SILENT_MAX_DEFAULT};
use tokio::sync::{mpsc, watch};

use besom_node::flight::Ticket;
use besom_node::planner::Endless;
use besom_node::{Bar, Command, Event, Node, Role, Settings, Whose, Work};
use besom_node::{executor, holdings};
use besom_ports::guests::StopFlag;
use besom_ports::store::NodeRow;
use besom_system::memory::{Rest, Spare, cpu_time};
use perform::{Cluster, Ports};

/// A request to a running host.
#[derive(Debug)]
pub enum Control {
    /// Use this configuration from now on.
    Reconfigure(Box<Reconfigured>),
    /// A command was submitted for the leader.
    Nudge,
    /// Finish the work in flight, release the lease and return.
    Shutdown,
}

/// A new configuration, limited to what takes effect without a restart.
#[derive(Debug)]
pub struct Reconfigured {
    /// The tasks and collections.
    pub work: Work,
    /// The digest of the configuration, for the node's row.
    pub digest: String,
}

/// The public state of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// What the node is doing.
    pub role: Role,
    /// The term under which it leads.
    pub term: Option<Term>,
}

/// How often a node writes its row, in addition to every change of its role.
pub const REPORT_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of consecutive reports without an answer that are remembered.
const UNANSWERED_MAX: usize = 1_000;
/// How long a node may be silent before observers that have no other source consider it lost.
pub const SILENT_MAX: Duration = SILENT_MAX_DEFAULT;
/// How often a clock difference that continues is logged.
const SAY_SKEW_EVERY: Duration = Duration::from_secs(600);
/// By how much a requested reading of the store's clock is delayed, to limit the load on the store.
const DOUBT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of events that wait for the node. Whoever has another one waits for room; the node
/// itself waits for nobody.
const EVENTS_MAX: usize = 1_024;
/// How long a follower waits for a notification before it checks by itself.
const WATCH_MAX: Duration = Duration::from_secs(5);

/// The reason why a host ends by itself: its store no longer exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Lost(pub String);

/// How a host has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ended {
    /// The tasks of a pass that was ended although they still planned items.
    pub endless: Option<Endless>,
}

/// Runs a node until it is asked to stop (or, in a pass, until it has finished).
///
/// # Errors
/// The store is permanently lost ([`Store::lost`](besom_ports::store::Store::lost)).
pub async fn run(
    ports: Ports,
    settings: Settings,
    work: Work,
    mut digest: String,
    mut control: mpsc::Receiver<Control>,
    live: watch::Sender<Live>,
) -> Result<Ended, Lost> {
    let mut ports = ports;
    let (events, mut answers) = mpsc::channel::<Event>(EVENTS_MAX);
    // A pass has no later chance to lead: it uses the store's clock, as every node does, regardless
    // of the machine's clock.
    let bars = !settings.planner.pass;
    let barred = bars && ports.clock.report().is_some_and(|report| report.leads_not);
    let mut look = tokio::time::interval(settings.timing.renew);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut lost = None;
    let mut node = Node::new(settings, work, seed(), ports.clock.now());
    let mut scans = StopFlag::default();
    let mut commits: HashMap<Ticket, StopFlag> = HashMap::new();
    let mut calls: HashMap<Ticket, StopFlag> = HashMap::new();
    let (spare, mut rest) = (Arc::new(Spare::default()), Rest::default());
    let (following, follows) = watch::channel(true);
    let watcher = tokio::spawn(watch_leader(ports.clone(), follows, events.clone()));
    let among_others = ports.cluster.clone().map(|cluster| {
        [
            tokio::spawn(watch_members(ports.clone(), cluster, events.clone())),
            tokio::spawn(watch_queues(ports.clone(), events.clone())),
        ]
    });
    let mut pulse = tokio::time::interval(REPORT_EVERY);
    pulse.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (leading, leads) = watch::channel(None);
    let (stop_delivery, asked) = watch::channel(false);
    let (done, mut delivered) = watch::channel(true);
    let delivering = ports.delivery.clone().map(|delivery| {
        let (store, health) = (ports.store.clone(), Arc::clone(&ports.health));
        let stopping = deliver::Stopping { asked, done };
        tokio::spawn(deliver::deliver(store, delivery, health, leads, stopping))
    });
    let (logging, logs) = watch::channel(());
    let logger = tokio::spawn(Arc::clone(&ports.lines).write_all(ports.store.clone(), logs));
    let clock_reader = tokio::spawn(read_clock(ports.clone(), (bars, barred), events.clone()));
    let pacer = tokio::spawn(Arc::clone(&ports.pacing).watch(ports.store.clone()));
    let (rows, to_report) = watch::channel(None);
    let reporter = tokio::spawn(report(ports.clone(), to_report, events.clone()));
    let give_back = || {
        let spare = Arc::clone(&spare);
        tokio::task::spawn_blocking(move || spare.give_back());
    };
    let mut reported = None;
    let mut event = if barred { Event::Barred(Bar::Clock, true) } else { Event::Tick };
    let mut control_open = true;
    'running: loop {
        let mut commands = Vec::new();
        let is_committed = match &event {
            Event::Executor(_, executor::Event::Committed(ticket, ..)) => {
                commits.remove(ticket);
                true
            }
            Event::Executor(_, executor::Event::Acted(ticket, _)) => {
                calls.remove(ticket);
                false
            }
            _ => false,
        };
        node.set_delivering(!*delivered.borrow_and_update());
        node.step(ports.clock.now(), event, &mut commands);
        stop_delivery.send_replace(node.finishes_work());
        if is_committed && spare.has_grown() {
            give_back();
        }
        for command in commands {
            match command {
                Command::Finished => break 'running,
                Command::StopGuests { whose, reason } => {
                    tracing::info!(?whose, reason, "stopped");
                    match whose {
                        Whose::Planner => std::mem::take(&mut scans).raise(reason),
                        Whose::Executor => {
                            ports.recorder.abandon_all();
                            calls.drain().for_each(|(_, stop)| stop.raise(reason));
                        }
                    }
                }
                Command::Executor(_, executor::Command::StopCommit(ticket)) => {
                    if let Some(stop) = commits.get(&ticket) {
                        stop.raise("the host stops");
                    }
                }
                Command::Executor(_, executor::Command::StopAct(ticket)) => {
                    if let Some(stop) = calls.get(&ticket) {
                        stop.raise("other tasks wait for the place of this call");
                    }
                }
                command => {
                    let stop = match &command {
                        Command::Executor(_, executor::Command::Act { ticket, .. }) => {
                            calls.entry(*ticket).or_default().clone()
                        }
                        Command::Executor(_, executor::Command::Commit(ticket, _)) => {
                            commits.entry(*ticket).or_default().clone()
                        }
                        // No other command of the executor can be stopped.
                        _ => scans.clone(),
                    };
                    let (ports, events) = (ports.clone(), events.clone());
                    tokio::spawn(async move {
                        let sent = clock::mono();
                        let answer = match command {
                            Command::Probe(begun, within) => {
                                let probe = ports.perform(command, sent, &stop);
                                let answer = tokio::time::timeout(within, probe).await;
                                answer.unwrap_or_else(|_| ports.unanswered(begun, sent, within))
                            }
                            command => ports.perform(command, sent, &stop).await,
                        };
                        if let Some(answer) = answer {
                            // The host may have ended in the meantime; the answer is then not
                            // needed.
                            let _ = events.send(answer).await;
                        }
                    });
                }
            }
        }
        let now = Live { role: node.role(), term: node.fence().map(|fence| fence.term) };
        let fence = node.fence();
        leading.send_if_modified(|known| {
            // A leader that stops finishes the attempts under way before it resigns.
            let fence = fence.filter(|fence| match now.role {
                Role::Leading => true,
                Role::Draining => known.as_ref() == Some(*fence),
                _ => false,
            });
            let other = known.as_ref() != fence;
            if other {
                *known = fence.cloned();
            }
            other
        });
        if reported.as_ref() != Some(&now) {
            tracing::info!(role = ?now.role, term = now.term.map(|term| term.0), "role");
            following.send_replace(now.role == Role::Following);
            live.send_replace(now.clone());
            rows.send_replace(Some(node_row(&ports, &now, &digest)));
            reported = Some(now);
        }
        let sleep = node.sleep(ports.clock.now()).unwrap_or(REPORT_EVERY);
        event = tokio::select! {
            biased;
            _ = look.tick() => {
                lost = ports.store.lost().await;
                if lost.is_some() {
                    break 'running;
                }
                Event::Tick
            }
            () = ports.health.store_lost() => {
                lost = ports.store.lost().await;
                if lost.is_some() {
                    break 'running;
                }
                Event::Tick
            }
            Some(answer) = answers.recv() => answer,
            Ok(()) = delivered.changed(), if delivering.is_some() => Event::Tick,
            asked = control.recv(), if control_open => match asked {
                Some(Control::Reconfigure(new)) => {
                    digest = new.digest;
                    ports.keep_removed = keep_removed(&new.work);
                    ports.store.set_collections(new.work.collections.clone());
                    reported = None;
                    Event::Reconfigured(new.work)
                }
                Some(Control::Nudge) => Event::Nudged,
                Some(Control::Shutdown) => Event::Shutdown,
                None => {
                    control_open = false;
                    Event::Tick
                }
            },
            _ = pulse.tick() => {
                if rest.begins(cpu_time()) {
                    give_back();
                }
                if let Some(now) = &reported {
                    rows.send_replace(Some(node_row(&ports, now, &digest)));
                }
                Event::Tick
            }
            () = tokio::time::sleep(sleep) => Event::Tick,
        };
    }
    // Whoever waits for room to send an answer ends.
    drop(answers);
    if lost.is_some() {
        for stop in calls.into_values().chain([scans]) {
            stop.raise("the store is lost");
        }
    }
    watcher.abort();
    clock_reader.abort();
    pacer.abort();
    if let Some(delivering) = delivering {
        delivering.abort();
    }
    for task in among_others.into_iter().flatten() {
        task.abort();
    }
    if let Some(why) = lost {
        // There is no store that could accept the remaining writes.
        reporter.abort();
        logger.abort();
        return Err(Lost(why));
    }
    // Pending reports are written first; otherwise they would follow the removal of the row.
    drop((rows, logging));
    let _ = reporter.await;
    let _ = logger.await;
    if let Err(error) = ports.store.forget_node(&ports.node).await {
        tracing::debug!(%error, "the row of this node could not be removed");
    }
    Ok(Ended { endless: node.endless().cloned() })
}

fn seed() -> [u8; 32] {
    use rand::{TryRngCore, rngs::OsRng};
    let mut seed = [0; 32];
    // Commit ids must differ between processes. If the system provides no randomness, time and
    // process id ensure that.
    if OsRng.try_fill_bytes(&mut seed).is_err() {
        seed[..8].copy_from_slice(&clock::mono().0.to_le_bytes());
        seed[8..12].copy_from_slice(&std::process::id().to_le_bytes());
        seed[16..24].copy_from_slice(&clock::wall().micros().to_le_bytes());
    }
    seed
}

/// How long before-images are kept, by task.
pub fn keep_removed(work: &Work) -> Vec<(besom_core::ids::TaskName, Duration)> {
    work.tasks.iter().map(|(name, task)| (name.clone(), task.definition.keep_removed)).collect()
}

fn node_row(ports: &Ports, live: &Live, digest: &str) -> NodeRow {
    let place = ports.cluster.as_ref().map(|cluster| &cluster.announcement);
    let clock = ports.clock.report();
    // Times by the machine's clock are converted to the store's clock, which all nodes share.
    let shared = |at: Time| Time(at.0.saturating_sub(clock.map_or(0, |clock| clock.skew_us)));
    let report = ports.recorder.report();
    let mut missing = ports.health.missing();
    missing.iter_mut().for_each(|missing| missing.since = shared(missing.since));
    let mut held = ports.health.held();
    held.iter_mut().for_each(|held| held.since = shared(held.since));
    let mut paces = ports.pacing.report(clock::mono());
    paces.iter_mut().for_each(|pace| pace.measured_at = pace.measured_at.map(shared));
    NodeRow {
        node: ports.node.clone(),
        state: live.role,
        seen_at: ports.clock.store(),
        config_digest: digest.to_owned(),
        missing,
        hostname: setup::hostname(),
        address: place.map(|place| place.addr.clone()).unwrap_or_default(),
        weight: place.map_or(1, |place| place.weight.get()),
        report: Some(Report {
            held,
            given_up: ports.health.given_up(),
            clock,
            paces,
            started_at: shared(report.started_at),
            config_at: shared(report.config_at),
            ..report
        }),
    }
}

/// Writes the node's row, skipping intermediate versions if the store is slow. Reports if the store
/// has lost the previous version.
async fn report(
    ports: Ports,
    mut rows: watch::Receiver<Option<NodeRow>>,
    events: mpsc::Sender<Event>,
) {
    // Until a version was confirmed, its absence proves nothing.
    let (mut written, mut confirmed) = (Vec::new(), false);
    while rows.changed().await.is_ok() {
        let Some(row) = rows.borrow_and_update().clone() else { continue };
        let before = ports.store.report_node(&row).await;
        ports.heard(&before);
        if let Ok(before) = before {
            let stands = before.is_some_and(|before| written.contains(&before));
            if !stands && confirmed {
                // The last rows are written even if the node no longer listens.
                let _ = events.send(Event::StoreWentBack).await;
            }
            written.clear();
            confirmed = true;
        }
        // A version without an answer may or may not have been written.
        if written.len() < UNANSWERED_MAX {
            written.push(row.seen_at);
        }
    }
}

/// Reads the store's clock periodically and on request. Logs differences to the machine's clock,
/// and keeps the node from leading if `bars` is set.
async fn read_clock(ports: Ports, (bars, mut barred): (bool, bool), events: mpsc::Sender<Event>) {
    let (mut known, mut said) = (Skew::Small, None);
    loop {
        let read = ports.clock.read(ports.store.as_ref()).await;
        ports.heard(&read);
        if let Ok(skew) = read {
            let words = ports.clock.report().map(|report| report.words()).unwrap_or_default();
            let again = said.is_none_or(|at| clock::mono().since(at) >= SAY_SKEW_EVERY);
            match skew {
                Skew::Small if known > Skew::Small => {
                    tracing::info!("this machine's clock agrees with the store's again");
                    said = None;
                }
                Skew::Noticed | Skew::TooLarge if known < skew || again => {
                    let effect = match skew {
                        Skew::TooLarge => ": the node does not lead until the clock is corrected",
                        _ => "",
                    };
                    tracing::warn!("this machine's clock is {words}{effect}; check NTP");
                    said = Some(clock::mono());
                }
                Skew::Small | Skew::Noticed | Skew::TooLarge => {}
            }
            known = skew;
            if bars && barred != (skew == Skew::TooLarge) {
                barred = !barred;
                if events.send(Event::Barred(Bar::Clock, barred)).await.is_err() {
                    return;
                }
            }
        }
        tokio::select! {
            () = tokio::time::sleep(ports.clock_read_every) => {}
            // Readings can be requested often; the pause limits the load on the store.
            () = ports.clock.doubted() => tokio::time::sleep(DOUBT_PAUSE).await,
        }
    }
}

/// While the node follows, waits for signs that the lease is free.
async fn watch_leader(
    ports: Ports,
    mut follows: watch::Receiver<bool>,
    events: mpsc::Sender<Event>,
) {
    loop {
        if follows.wait_for(|following| *following).await.is_err() {
            return;
        }
        let may_be_free = tokio::select! {
            () = ports.coordination.changed(WATCH_MAX) => true,
            gone = follows.wait_for(|following| !*following) => {
                if gone.is_err() {
                    return;
                }
                false
            }
        };
        if may_be_free && events.send(Event::LeaderChanged).await.is_err() {
            return;
        }
    }
}

/// Informs the node of its members whenever they may have changed.
async fn watch_members(ports: Ports, cluster: Cluster, events: mpsc::Sender<Event>) {
    // Without a leader, the ring uses the last known term, which only orders views.
    let (mut since, mut term) = (0, Term(0));
    loop {
        match cluster.members.members().await {
            Ok(members) => {
                since = members.revision;
                if let Ok(Some(leader)) = ports.coordination.leader().await {
                    term = term.max(leader.term);
                }
                let event = Event::Holdings(holdings::Event::Members(term, members));
                if events.send(event).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "the members cannot be read; retrying"),
        }
        cluster.members.members_changed(since, WATCH_MAX).await;
    }
}

/// Informs the node when something may have arrived in the queues.
async fn watch_queues(ports: Ports, events: mpsc::Sender<Event>) {
    loop {
        ports.store.nudged(WATCH_MAX).await;
        if events.send(Event::Nudged).await.is_err() {
            return;
        }
    }
}
