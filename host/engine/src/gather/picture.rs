//! Converts a reading into a snapshot. Pure, except for what it remembers to derive rates and
//! events.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use besom_core::ids::{RunId, TaskName};
use besom_core::plan::{
    CatchUp, GRACE_DEFAULT, Overlap, Past, Pause, Scan, TaskState, unscanned_since,
};
use besom_core::ring::Assignment;
use besom_core::time::Time;
use besom_core::undo;
use besom_snapshot::{
    DEAD_GROUPS_MAX, Leader, Leadership, MODEL, Node, NodeState, Owner, RUNS_MAX, Ring,
    SLOTS_OF_TASK, Snapshot, TOPICS_MAX, Task, TermRow, Topic, WaitingReview,
};

use super::events::Events;
use super::rates::Rates;
use super::reading::Reading;
use super::resumed::resumed_at;
use super::{Defined, Sources, cache, rows};
use crate::host::{self, clock};
use besom_node::planner::Scheduled;
use besom_ports::members::{Member, MemberState, Membership};
use besom_ports::store::{Command, CommandRow, Depth, Fence, NodeRow, Role};

/// What is remembered between snapshots.
#[derive(Debug, Default)]
pub struct Picture {
    last: Snapshot,
    rates: Rates,
    events: Events,
    ring: Option<(Membership, Assignment)>,
}

impl Picture {
    /// The snapshot of a reading.
    pub fn of(&mut self, sources: &Sources, reading: &Reading) -> Snapshot {
        let defined = sources.defined.borrow().clone();
        self.rates.count(reading.now, &reading.depths);
        let ring = self.ring(sources, reading);
        let mut snapshot = Snapshot {
            at: reading.now,
            leadership: kept(Some(&self.last.leadership), leadership(sources, reading)),
            nodes: self.nodes(sources, reading, &ring),
            tasks: self.tasks(&defined, reading),
            all_paused: Self::all_paused(reading),
            runs: reading.runs.iter().take(RUNS_MAX).cloned().collect(),
            dead: self.dead(reading),
            topics: self.topics(sources, reading),
            ring: kept(Some(&self.last.ring), ring),
            ..head(sources)
        };
        self.events.look(&self.last, &snapshot, reading);
        snapshot.events = self.events.newest();
        self.last = snapshot.clone();
        snapshot
    }

    /// The last snapshot, or one without contents, for a host that currently cannot read its store.
    pub fn without_store(&mut self, sources: &Sources) -> Snapshot {
        let Snapshot { model, cluster, host, version, missing, .. } = head(sources);
        let at = clock::wall();
        Snapshot { model, cluster, host, version, missing, at, ..self.last.clone() }
    }

    fn nodes(&self, sources: &Sources, reading: &Reading, ring: &Ring) -> Vec<Arc<Node>> {
        // Of several incarnations of a node, the one seen last counts.
        let mut rows: BTreeMap<&str, &NodeRow> = BTreeMap::new();
        for row in reading.nodes.iter().filter(|row| row.state != Role::Stopped) {
            let known = rows.entry(row.node.node_name()).or_insert(row);
            if known.seen_at < row.seen_at {
                *known = row;
            }
        }
        let members: BTreeMap<&str, &Member> = reading
            .members
            .iter()
            .flat_map(|membership| &membership.members)
            .map(|member| (member.name.as_str(), member))
            .collect();
        let owners: BTreeMap<&str, &Owner> =
            ring.owners.iter().map(|owner| (owner.name.as_str(), owner)).collect();
        let names: std::collections::BTreeSet<&str> =
            rows.keys().chain(members.keys()).copied().collect();
        let silent_max = sources.lease.max(host::SILENT_MAX);
        let leader = reading.leader.as_ref().map(|record| &record.node);
        let mut nodes = Vec::new();
        for name in names {
            let (row, member) = (rows.get(name).copied(), members.get(name).copied());
            let silent = row.map(|row| reading.now.since(row.seen_at));
            if member.is_none() && silent.is_some_and(|silent| silent > sources.nodes_shown) {
                continue;
            }
            let owner = owners.get(name);
            let state = match (member.map(|member| member.state), &reading.members) {
                (Some(MemberState::Joining), _) => NodeState::Joining,
                (Some(MemberState::Active), _) => NodeState::Active,
                (Some(MemberState::Draining), _) => NodeState::Draining,
                (None, Some(_)) => NodeState::Lost,
                (None, None) if silent.is_some_and(|silent| silent > silent_max) => NodeState::Lost,
                (None, None) if row.is_some_and(|row| row.state == Role::Draining) => {
                    NodeState::Draining
                }
                (None, None) => NodeState::Active,
            };
            let incarnation = member.map(|member| &member.incarnation).or(row.map(|row| &row.node));
            let node = Node {
                name: name.to_owned(),
                incarnation: incarnation.map(ToString::to_string).unwrap_or_default(),
                state,
                drained: (state == NodeState::Draining).then(|| drained(name, reading)).flatten(),
                leads: leader.is_some() && leader == incarnation,
                seen_at: row.map_or(Time::EPOCH, |row| row.seen_at),
                weight: member
                    .map_or(row.map_or(1, |row| row.weight), |member| member.weight.get()),
                address: member.map(|member| member.addr.clone()).unwrap_or_default(),
                owned: owner.map_or(0, |owner| owner.owned),
                queued: owner.map_or(0, |owner| owner.queued),
                config_digest: row.map(|row| row.config_digest.clone()).unwrap_or_default(),
                missing: rows::missed(row, member),
                report: row.and_then(|row| row.report.clone()),
            };
            nodes.push(kept(self.last.node(name), node));
        }
        nodes
    }

    /// The pause of all tasks.
    pub(super) fn all_paused(reading: &Reading) -> Option<Pause> {
        reading.states.get(&TaskName::from(TaskName::ALL))?.paused.clone()
    }

    fn tasks(&self, defined: &Defined, reading: &Reading) -> Vec<Arc<Task>> {
        let last = cache::by_task(&reading.runs);
        let p99 = cache::p99_ms(&reading.runs);
        let depths: BTreeMap<&TaskName, &Depth> =
            reading.depths.iter().filter_map(|d| Some((d.task.as_ref()?, d))).collect();
        let waits = |d: &Depth| d.log + d.timers + d.retries + d.dead > 0;
        let orphans = depths
            .iter()
            .filter(|(task, depth)| waits(depth) && !defined.work.tasks.contains_key(**task))
            // Every host executes what somebody undoes.
            .filter(|(task, _)| task.as_str() != undo::TASK);
        let configured = defined.work.tasks.iter().map(|(name, task)| (name, Some(task)));
        let all = configured.chain(orphans.map(|(name, _)| (*name, None)));
        all.map(|(name, scheduled)| {
            let state = reading.states.get(name);
            let windows = scheduled.map(|task| task.definition.windows.clone()).unwrap_or_default();
            let own = state.and_then(|state| state.paused.clone());
            let paused = own.or_else(|| Self::all_paused(reading));
            let closed = Pause::until_open(&windows, reading.now);
            let (in_per_s, out_per_s) = self.rates.of(name);
            let slots = reading.slots.get(name).cloned().unwrap_or_default();
            let depth = depths.get(name);
            // What was planned before could not be executed until then.
            let is_own = |id: RunId| {
                reading.runs.iter().any(|run| run.id == id.0 && run.task == name.as_str())
            };
            let resumed = resumed_at(&reading.commands, name, is_own);
            let works_since = resumed.max(windows.opened_at(reading.now));
            let unscanned_since = scheduled.zip(state).and_then(|(task, state)| {
                let runs: Vec<Scan> = reading
                    .runs
                    .iter()
                    .filter(|run| run.task == name.as_str())
                    .map(|run| run.scan())
                    .collect();
                let has_all = slots.len() < SLOTS_OF_TASK;
                let past = Past { runs: &runs, slots: &slots, has_all };
                let (schedule, policy) = (task.schedule.as_ref()?, task.policy(GRACE_DEFAULT));
                let held = Self::is_held(name, reading);
                let paused = paused.clone().or_else(|| closed.clone());
                let state = &TaskState { paused, ..state.clone() };
                unscanned_since(reading.now, schedule, &policy, state, past, held, works_since)
            });
            let task = Task {
                orphaned: scheduled.is_none(),
                next: scheduled
                    .filter(|_| paused.is_none())
                    .and_then(|task| windows.next_slot(task.schedule.as_ref()?, reading.now)),
                opens_at: windows.opens_at(reading.now),
                windows,
                paused,
                review: reading.reviews.iter().find(|r| r.task == *name).map(WaitingReview::from),
                refused: reading.refused.get(name).cloned(),
                held_back: reading.held_back.get(name).cloned(),
                unscanned_since,
                depth: besom_snapshot::Depth {
                    oldest: depth
                        .and_then(|depth| depth.oldest)
                        .map(|at| works_since.map_or(at, |works| at.max(works))),
                    ..depth.map(|depth| rows::depth(depth)).unwrap_or_default()
                },
                planned: depth.map_or(0, |depth| depth.planned),
                in_per_s,
                out_per_s,
                last: last.get(name.as_str()).cloned().unwrap_or_default(),
                p99_ms: p99.get(name.as_str()).copied(),
                slots,
                ..scheduled.map_or_else(Task::default, described)
            };
            let task = Task { name: name.to_string(), ..task };
            kept(self.last.task(name.as_str()), task)
        })
        .collect()
    }

    /// Whether an active node reports that the task is held.
    fn is_held(task: &TaskName, reading: &Reading) -> bool {
        let there = reading.nodes.iter().filter(|row| row.state != Role::Stopped);
        let there = there.filter(|row| reading.now.since(row.seen_at) <= host::SILENT_MAX);
        let mut held = there.flat_map(|row| row.report.iter().flat_map(|report| &report.held));
        held.any(|held| held.task.as_deref() == Some(task.as_str()))
    }

    fn dead(&self, reading: &Reading) -> Vec<Arc<besom_snapshot::DeadGroup>> {
        let groups = reading.dead.iter().take(DEAD_GROUPS_MAX);
        groups
            .map(|group| {
                let same =
                    self.last.dead.iter().find(|g| g.task == group.task && g.error == group.error);
                kept(same, group.clone())
            })
            .collect()
    }

    fn topics(&self, sources: &Sources, reading: &Reading) -> Vec<Arc<Topic>> {
        let topics = rows::topics(&sources.routes, reading.topics.clone());
        let last = |topic: &Topic| self.last.topics.iter().find(|last| last.name == topic.name);
        topics.into_iter().take(TOPICS_MAX).map(|topic| kept(last(&topic), topic)).collect()
    }

    fn ring(&mut self, sources: &Sources, reading: &Reading) -> Ring {
        let mut names: BTreeMap<String, Owner> = BTreeMap::new();
        for member in reading.members.iter().flat_map(|membership| membership.ring()) {
            let owner = names.entry(member.name.to_string()).or_default();
            owner.weight = member.weight.get();
        }
        let mut rows = reading.partitions.clone();
        rows.sort_unstable_by_key(|row| row.partition);
        for owner in rows.iter().filter_map(|row| row.owner.as_ref()) {
            names.entry(owner.node_name().to_owned()).or_default().owned += 1;
        }
        let places: BTreeMap<&str, u16> =
            names.keys().zip(0..u16::MAX).map(|(name, at)| (name.as_str(), at)).collect();
        let partitions = sources.store.partitions();
        let mut owner = vec![None; partitions as usize];
        for row in &rows {
            let place = row.owner.as_ref().and_then(|o| places.get(o.node_name())).copied();
            if let Some(slot) = owner.get_mut(row.partition.0 as usize) {
                *slot = place;
            }
        }
        let mut queued = vec![0_u64; partitions as usize];
        for stream in &reading.backlog {
            if let Some(slot) = queued.get_mut(stream.partition.0 as usize) {
                *slot += stream.tail.0.saturating_sub(stream.acked.0);
            }
        }
        let mut owners: Vec<Owner> =
            names.iter().map(|(name, o)| Owner { name: name.clone(), ..o.clone() }).collect();
        for (place, waits) in owner.iter().zip(&queued) {
            if let Some(of) = place.and_then(|place| owners.get_mut(usize::from(place))) {
                of.queued += waits;
            }
        }
        let moving = reading.members.as_ref().map_or(0, |members| {
            let Some(wanted) = self.wanted(sources, members, partitions) else { return 0 };
            let other = |row: &&besom_ports::store::PartitionRow| {
                let wanted = wanted.owner(row.partition).map(|name| name.as_str());
                wanted.is_some() && wanted != row.owner.as_ref().map(|owner| owner.node_name())
            };
            rows.iter().filter(other).count() as u32
        });
        if queued.iter().all(|waits| *waits == 0) {
            queued.clear();
        }
        Ring {
            partitions,
            virtual_nodes: sources.virtual_nodes,
            owners,
            owner,
            queued,
            moving,
            revision: reading.members.as_ref().map_or(0, |members| members.revision),
        }
    }

    /// The intended owners of the partitions, recomputed only when the members have changed.
    fn wanted(
        &mut self,
        sources: &Sources,
        members: &Membership,
        partitions: u32,
    ) -> Option<&Assignment> {
        let known = self.ring.as_ref().is_some_and(|(known, _)| known.members == members.members);
        if !known {
            let partitions = NonZeroU32::new(partitions)?;
            let virtual_nodes = NonZeroU32::new(sources.virtual_nodes)?;
            let table = Assignment::with_virtual_nodes(&members.ring(), partitions, virtual_nodes);
            self.ring = Some((members.clone(), table));
        }
        self.ring.as_ref().map(|(_, table)| table)
    }
}

/// The previous value if it is equal, so that snapshots share unchanged parts.
fn kept<T: PartialEq>(before: Option<&Arc<T>>, now: T) -> Arc<T> {
    match before {
        Some(before) if **before == now => Arc::clone(before),
        _ => Arc::new(now),
    }
}

/// Who drained a node: the latest request about it.
fn drained(name: &str, reading: &Reading) -> Option<besom_snapshot::Pause> {
    let about = |row: &&CommandRow| match &row.command {
        Command::Drained { node } | Command::Rejoined { node } => node == name,
        _ => false,
    };
    let row = reading.commands.iter().find(about)?;
    matches!(row.command, Command::Drained { .. }).then(|| besom_snapshot::Pause {
        by: row.by.clone(),
        reason: row.reason.clone(),
        since: row.at,
    })
}

/// The part of a snapshot about the answering host.
fn head(sources: &Sources) -> Snapshot {
    Snapshot {
        model: MODEL,
        cluster: sources.cluster.clone(),
        host: sources.node.node_name().to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        missing: sources.health.missing(),
        ..Snapshot::default()
    }
}

fn leadership(sources: &Sources, reading: &Reading) -> Leadership {
    Leadership {
        leader: reading.leader.as_ref().map(|record| Leader {
            node: record.node.node_name().to_owned(),
            incarnation: record.node.to_string(),
            hostname: record.hostname.clone(),
            term: record.term.0,
            elected_at: record.elected_at,
            renewed_at: record.renewed_at,
        }),
        fault: reading.leader_fault.clone(),
        fence: reading.fence.as_ref().map(|fence| fence.term.0),
        lease_ms: sources.lease.as_millis() as u64,
        terms: reading.terms.iter().map(term).collect(),
    }
}

fn term(fence: &Fence) -> TermRow {
    TermRow { term: fence.term.0, node: fence.node.node_name().to_owned(), since: fence.raised_at }
}

/// The description of a task, from its definition.
fn described(scheduled: &Scheduled) -> Task {
    let definition = &scheduled.definition;
    Task {
        mode: definition.mode,
        plugin: definition.plugin.clone(),
        digest: definition.digest.clone(),
        schedule: definition.schedule.clone(),
        timezone: definition.timezone.clone(),
        overlap: match definition.overlap {
            Overlap::Skip => "skip",
            Overlap::Queue => "queue",
            Overlap::Allow => "allow",
        }
        .to_owned(),
        catch_up: match definition.catch_up {
            CatchUp::Skip => "skip".to_owned(),
            CatchUp::Coalesce => "coalesce".to_owned(),
            CatchUp::All(n) => n.to_string(),
        },
        jitter_ms: definition.jitter.as_millis() as u64,
        lane: definition.lane.name().to_owned(),
        limits: besom_snapshot::Limits {
            fuel: definition.limits.fuel,
            memory_bytes: definition.limits.memory_bytes,
            wall_ms: definition.limits.wall_ms,
            batch_items: definition.limits.batch_items,
            attempts: definition.retry.attempts_max,
        },
        ..Task::default()
    }
}
