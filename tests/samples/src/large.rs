//! A sample with a thousand nodes, five hundred tasks and a hundred thousand waiting items.

use std::sync::Arc;

use besom_core::plan::Trigger;
use besom_core::time::Time;
use besom_snapshot::{
    DeadGroup, Depth, Event, EventKind, HotKey, LastRun, Leader, Leadership, MODEL, Node,
    RATE_SAMPLES, Report, Run, RunState, Snapshot, Task, TermRow,
};

use super::{NOW, arcs, latency, mixed, ring};

/// Nodes of the large deployment.
pub const LARGE_NODES: usize = 1_000;
/// Its tasks.
pub const LARGE_TASKS: usize = 500;
/// Items that wait in it.
const QUEUED: u64 = 100_000;

/// So many seconds before a time.
fn ago(now: Time, seconds: i64) -> Time {
    Time(now.0 - seconds * 1_000_000)
}

/// The large deployment at [`NOW`].
pub fn large() -> Snapshot {
    large_at(NOW)
}

/// The large deployment at a time.
pub fn large_at(now: Time) -> Snapshot {
    let nodes: Vec<Node> = (0..LARGE_NODES).map(|i| node(i, now, 0)).collect();
    let ring = ring(&nodes, 16_384, None);
    let leader = Leader {
        node: nodes[0].name.clone(),
        term: 97,
        elected_at: ago(now, 900),
        renewed_at: Time(now.0 - 2_100_000),
        ..Leader::default()
    };
    let term = |n: u64| TermRow {
        term: 97 - n,
        node: nodes[n as usize % 7].name.clone(),
        since: ago(now, 900 * (n as i64 + 1)),
    };
    Snapshot {
        model: MODEL,
        at: now,
        cluster: "prod-large".into(),
        host: nodes[1].name.clone(),
        version: "0.1.0".into(),
        readonly: false,
        missing: Vec::new(),
        leadership: Arc::new(Leadership {
            leader: Some(leader),
            fault: None,
            fence: Some(97),
            lease_ms: 10_000,
            terms: (0..20).map(term).collect(),
        }),
        ring: Arc::new(ring),
        tasks: arcs((0..LARGE_TASKS).map(|i| task(i, now, 0)).collect()),
        runs: arcs((0..200).map(|i| run(i, now)).collect()),
        dead: arcs((0..200).map(|i| group(i, now)).collect()),
        events: arcs((0..200).map(|i| event(i, now)).collect()),
        nodes: arcs(nodes),
        ..Snapshot::default()
    }
}

/// The first snapshot `round` seconds later: every node and every task has changed.
pub fn stirred(first: &Snapshot, round: u64) -> Snapshot {
    let mut next = first.clone();
    next.at = ago(first.at, -(round as i64));
    next.nodes = arcs((0..LARGE_NODES).map(|i| node(i, first.at, round)).collect());
    next.tasks = arcs((0..LARGE_TASKS).map(|i| task(i, first.at, round)).collect());
    for (node, owner) in next.nodes.iter_mut().zip(&first.ring.owners) {
        Arc::make_mut(node).owned = owner.owned;
    }
    next
}

fn node(i: usize, now: Time, round: u64) -> Node {
    let some = mixed(i as u64 * 1_000 + round);
    Node {
        name: format!("node-{i:04}"),
        incarnation: format!("node-{i:04}-{:04x}", some & 0xffff),
        seen_at: Time(now.0 + round as i64 * 1_000_000 - (some % 5_000) as i64 * 1_000),
        leads: i == 0,
        weight: 1,
        address: format!("10.0.{}.{}:7070", i / 250, i % 250),
        owned: 16,
        queued: QUEUED / LARGE_NODES as u64 + some % 9,
        config_digest: "5ac1".into(),
        report: Some(Report {
            version: "0.1.0".into(),
            started_at: ago(now, 90_000),
            running: (some % 9) as u32,
            rates: (0..RATE_SAMPLES as u64).map(|s| (mixed(some + s) % 90) as u32).collect(),
            latency: latency(&[(9_000, 600), (180_000, 6 + some % 30)]),
            hot: vec![HotKey {
                task: format!("task-{:03}", i % LARGE_TASKS),
                tenant: None,
                key: format!("doc:{some}"),
                partition: (some % 16_384) as u32,
                count: 40,
            }],
            hot_of: 900,
            ..Report::default()
        }),
        ..Node::default()
    }
}

fn task(i: usize, now: Time, round: u64) -> Task {
    let some = mixed(i as u64 * 7_000 + round);
    let last = |n: u64| LastRun {
        id: i as u64 * 20 + n,
        slot: ago(now, (20 - n) as i64 * 300),
        started_at: ago(now, (20 - n) as i64 * 300),
        ended_at: Some(ago(now, (20 - n) as i64 * 300 - (mixed(some + n) % 200) as i64)),
        state: if mixed(some + n).is_multiple_of(50) { RunState::Failed } else { RunState::Ok },
        planned: 400,
        ..LastRun::default()
    };
    Task {
        name: format!("task-{i:03}"),
        plugin: "builtin:ttl".into(),
        schedule: Some(format!("{} * * * *", i % 60)),
        timezone: "UTC".into(),
        overlap: "skip".into(),
        catch_up: "coalesce".into(),
        lane: "normal".into(),
        next: Some(ago(now, -((i % 60) as i64) * 60)),
        depth: Depth {
            log: QUEUED / LARGE_TASKS as u64 + some % 50,
            retries: some % 4,
            dead: u64::from(some.is_multiple_of(20)),
            oldest: Some(ago(now, (some % 90) as i64)),
            ..Depth::default()
        },
        in_per_s: Some((some % 100) as f64 / 10.0),
        out_per_s: Some((some % 90) as f64 / 10.0),
        last: (0..20).map(last).collect(),
        ..Task::default()
    }
}

fn run(i: usize, now: Time) -> Run {
    Run {
        id: 100_000 - i as u64,
        task: format!("task-{:03}", i % LARGE_TASKS),
        slot: ago(now, i as i64 * 7),
        trigger: Trigger::Schedule,
        term: 97,
        plugin_digest: String::new(),
        started_at: ago(now, i as i64 * 7),
        ended_at: (i >= 12).then(|| ago(now, i as i64 * 7 - 6)),
        state: if i < 12 { RunState::Executing } else { RunState::Ok },
        error: None,
        planned: 400,
        deduplicated: 0,
        blocked: 0,
        open: if i < 12 { 120 } else { 0 },
        scanned: 1_600,
        mode: besom_core::mode::Mode::Live,
        held: false,
    }
}

fn group(i: usize, now: Time) -> DeadGroup {
    DeadGroup {
        task: format!("task-{:03}", i % LARGE_TASKS),
        error: format!("conflict: row {i} of the index is there already"),
        count: 50,
        first: ago(now, 3_600 + i as i64),
        last: ago(now, i as i64 * 9),
    }
}

fn event(i: usize, now: Time) -> Event {
    Event {
        at: ago(now, i as i64 * 11),
        kind: EventKind::Run,
        subject: format!("task-{:03}", i % LARGE_TASKS),
        text: format!("run {} failed: the store was away", 100_000 - i),
        by: None,
    }
}
