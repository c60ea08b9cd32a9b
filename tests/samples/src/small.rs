//! A sample with five nodes and seven tasks that shows most kinds of trouble.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::cron::Schedule;
use besom_core::ids::{RunId, TaskName, Term};
use besom_core::plan::{SlotOutcome, SlotRecord, Trigger};
use besom_core::time::Time;
use besom_snapshot::{
    DeadGroup, Depth, Event, EventKind, HotKey, LastRun, Leader, Leadership, Limits, MODEL, Node,
    NodeState, Pause, Report, Run, RunAtNode, RunState, Snapshot, Task, TermRow,
};

use super::{NOW, ago, ago_ms, arcs, latency, mixed, ring};

/// A realistic deployment at [`NOW`].
pub fn small() -> Snapshot {
    let mut nodes = nodes();
    let ring = ring(&nodes, 256, Some((77, 551)));
    for (node, owner) in nodes.iter_mut().zip(&ring.owners) {
        node.owned = owner.owned;
    }
    Snapshot {
        model: MODEL,
        at: NOW,
        cluster: "prod".into(),
        host: "node-a".into(),
        version: "0.1.0".into(),
        readonly: false,
        missing: Vec::new(),
        leadership: Arc::new(leadership()),
        nodes: arcs(nodes),
        tasks: arcs(tasks()),
        runs: arcs(runs()),
        dead: arcs(dead()),
        ring: Arc::new(ring),
        events: arcs(events()),
        ..Snapshot::default()
    }
}

fn leadership() -> Leadership {
    let row = |term, node: &str, since| TermRow { term, node: node.into(), since };
    Leadership {
        leader: Some(Leader {
            node: "node-b".into(),
            incarnation: "node-b-7d3f".into(),
            hostname: "db-2".into(),
            term: 42,
            elected_at: ago(1_340),
            renewed_at: ago_ms(3_500),
        }),
        fault: None,
        fence: Some(42),
        lease_ms: 10_000,
        terms: vec![
            row(42, "node-b", ago(1_340)),
            row(41, "node-c", ago(1_405)),
            row(40, "node-b", ago(2_300)),
            row(39, "node-a", ago(86_000)),
        ],
    }
}

fn rates(base: u32, n: u64, seed: u64) -> Vec<u32> {
    (0..n).map(|i| base + (mixed(seed * 100 + i) % u64::from(base.max(2))) as u32).collect()
}

fn nodes() -> Vec<Node> {
    let node = |name: &str, state, seen_ms, queued| Node {
        name: name.into(),
        incarnation: format!("{name}-7d3f"),
        state,
        seen_at: ago_ms(seen_ms),
        weight: 1,
        address: format!("10.0.0.{}:7070", name.len()),
        queued,
        config_digest: "5ac1".into(),
        ..Node::default()
    };
    let report = |running, latency, rates| Report {
        version: "0.1.0".into(),
        started_at: ago(90_000),
        running,
        latency,
        rates,
        config_path: "/etc/besom/besom.toml".into(),
        config_at: ago(138),
        ..Report::default()
    };
    let quick = || latency(&[(9_000, 600), (18_000, 300), (180_000, 6)]);
    let hot = |task: &str, key: &str, partition, count| HotKey {
        task: task.into(),
        tenant: None,
        key: key.into(),
        partition,
        count,
    };
    let mut a = node("node-a", NodeState::Active, 400, 41);
    a.report = Some(Report {
        hot: vec![hot("compact-docs", "doc:12", 3, 40), hot("compact-docs", "doc:9", 8, 22)],
        hot_of: 900,
        ..report(4, quick(), rates(60, 60, 1))
    });
    let mut b = node("node-b", NodeState::Active, 100, 12);
    b.leads = true;
    b.report = Some(report(3, quick(), rates(30, 60, 2)));
    let mut c = node("node-c", NodeState::Active, 900, 903);
    c.config_digest = "77fe".into();
    c.report = Some(Report {
        hot: vec![
            hot("share-expiry", "share:9f31", 77, 3_200),
            hot("compact-docs", "doc:7", 90, 160),
        ],
        hot_of: 5_245,
        finished: BTreeMap::from([("share-expiry".to_owned(), 41_203)]),
        runs: vec![RunAtNode {
            run: 8_812,
            running: 8,
            committed: 41_000,
            skipped: 203,
            fuel: 1_060_000_000,
            fuel_most: 21_000_000,
            memory_most: 16_148_070,
            host_calls: 82_406,
            rows_read: 95_000,
            instances: 412,
            ..RunAtNode::default()
        }],
        ..report(8, latency(&[(90_000, 500), (900_000, 80), (9_000_000, 9)]), rates(90, 60, 3))
    });
    let mut d = node("node-d", NodeState::Draining, 300, 3);
    d.weight = 0;
    d.report = Some(report(1, quick(), rates(12, 34, 4)));
    let e = node("node-e", NodeState::Lost, 67_000, 0);
    vec![a, b, c, d, e]
}

fn last(id: u64, period: i64, took: &[u64], ending: &str) -> Vec<LastRun> {
    let n = took.len() as i64;
    let newest = NOW.0.div_euclid(period * 1_000_000) * period * 1_000_000;
    let state = |sign| match sign {
        'f' => RunState::Failed,
        'r' => RunState::Executing,
        _ => RunState::Ok,
    };
    let signs = ending.chars().rev();
    let signs: Vec<char> = signs.chain(std::iter::repeat('o')).take(took.len()).collect();
    let run = |(i, took): (usize, &u64)| {
        let back = n - 1 - i as i64;
        let slot = Time(newest - back * period * 1_000_000);
        let state = state(signs[back as usize]);
        let started_at = Time(slot.0 + 200_000);
        let ended = Time(started_at.0 + *took as i64 * 1_000_000);
        LastRun {
            id: id - back as u64,
            slot,
            started_at,
            ended_at: (!state.is_active()).then_some(ended),
            state,
            planned: took * 12,
            ..LastRun::default()
        }
    };
    took.iter().enumerate().map(run).collect()
}

fn slots(task: &str, rows: &[(i64, i64, u64, SlotOutcome, &str, u64)]) -> Vec<SlotRecord> {
    let row =
        |(from, to, count, outcome, reason, run): &(i64, i64, u64, SlotOutcome, &str, u64)| {
            let minute = |minutes: i64| Time((NOW.0.div_euclid(60_000_000) - minutes) * 60_000_000);
            SlotRecord {
                task: TaskName::from(task),
                from: minute(*from),
                to: minute(*to),
                count: *count,
                outcome: outcome.clone(),
                reason: (*reason).into(),
                run: (*run > 0).then_some(RunId(*run)),
                term: Term(42),
            }
        };
    rows.iter().map(row).collect()
}

fn task(name: &str, plugin: &str, schedule: &str) -> Task {
    let limits = Limits {
        fuel: 2_000_000_000,
        memory_bytes: 64 << 20,
        wall_ms: 600_000,
        batch_items: 64,
        attempts: 5,
    };
    let next = Schedule::parse(schedule, "UTC").ok().and_then(|s| s.next_after(NOW));
    Task {
        name: name.into(),
        plugin: plugin.into(),
        digest: "91c2a7b04de15f3391c2a7b04de15f3391c2a7b04de15f3391c2a7b04de15f33".into(),
        schedule: Some(schedule.into()),
        timezone: "UTC".into(),
        overlap: "skip".into(),
        catch_up: "coalesce".into(),
        lane: "normal".into(),
        limits,
        next,
        in_per_s: Some(0.0),
        out_per_s: Some(0.0),
        ..Task::default()
    }
}

fn tasks() -> Vec<Task> {
    let mut audit = task("audit-trim", "builtin:ttl", "@every 90m");
    audit.last = last(8_700, 5_400, &[9, 10, 9, 11, 10, 9, 9, 10], "o");
    let mut compact = task("compact-docs", "builtin:compaction", "*/5 * * * *");
    compact.lane = "heavy".into();
    compact.depth =
        Depth { log: 48, oldest: Some(ago(3)), undo_bytes: 40 << 20, ..Depth::default() };
    (compact.in_per_s, compact.out_per_s) = (Some(6.1), Some(6.3));
    compact.last = last(8_811, 300, &[40, 44, 39, 61, 44, 98, 52, 131, 60, 55, 41, 47], "o");
    let mut deactivate = task("deactivate-clients", "builtin:clients", "0 3 * * *");
    deactivate.timezone = "Europe/Berlin".into();
    deactivate.next =
        Schedule::parse("0 3 * * *", "Europe/Berlin").ok().and_then(|s| s.next_after(NOW));
    deactivate.last = last(8_512, 86_400, &[480, 500, 542, 490, 510, 505, 500, 498], "o");
    deactivate.depth = Depth { timers: 1_204, next_due: Some(ago(-420)), ..Depth::default() };
    let mut gc = task("gc-orphans", "gc-orphans.wasm", "@daily");
    gc.paused = Some(Pause {
        by: "ana".into(),
        reason: "until INC-481 closes".into(),
        since: ago(180_000),
    });
    gc.next = None;
    gc.last = last(8_100, 86_400, &[200, 240, 260, 220, 280, 250], "o");
    gc.slots = slots(
        "gc-orphans",
        &[(2_280, 840, 2, SlotOutcome::Paused, "paused by ana: until INC-481 closes", 0)],
    );
    let mut report = task("my-report.wasm", "my-report.wasm", "0 6 * * 1");
    report.overlap = "allow".into();
    report.last = last(7_990, 604_800, &[2, 3, 2, 2], "o");
    let mut share = task("share-expiry", "builtin:shares", "* * * * *");
    share.lane = "due".into();
    share.depth = Depth {
        log: 903,
        timers: 11,
        retries: 7,
        dead: 1,
        next_due: Some(ago(-31)),
        oldest: Some(ago(252)),
        undo_bytes: 3 << 20,
        rows: 1_204,
    };
    (share.in_per_s, share.out_per_s) = (Some(11.0), Some(7.2));
    share.last = last(8_809, 60, &[41, 40, 43, 42, 41, 58, 44, 41], "o");
    // The run has been active for six minutes; the slots since then are skipped.
    for run in &mut share.last {
        run.slot.0 -= 420_000_000;
        run.started_at.0 -= 420_000_000;
        run.ended_at = run.ended_at.map(|at| Time(at.0 - 420_000_000));
    }
    share.last.push(LastRun {
        id: 8_812,
        slot: ago(387),
        started_at: ago(362),
        ended_at: None,
        state: RunState::Executing,
        planned: 62_000,
        ..LastRun::default()
    });
    share.slots = slots(
        "share-expiry",
        &[
            (2, 0, 3, SlotOutcome::Skipped, "run 8812 was still active (overlap = skip)", 8_812),
            (6, 6, 1, SlotOutcome::Ran, "", 8_812),
            (7, 7, 1, SlotOutcome::Ran, "", 8_809),
            (8, 8, 1, SlotOutcome::Ran, "", 8_808),
            (40, 31, 10, SlotOutcome::Missed, "no leader", 0),
        ],
    );
    let mut ttl = task("ttl-transition", "builtin:ttl", "15,45 * * * *");
    ttl.overlap = "queue".into();
    ttl.depth = Depth { dead: 2, retries: 1, oldest: Some(ago(20)), ..Depth::default() };
    (ttl.in_per_s, ttl.out_per_s) = (Some(0.1), Some(0.1));
    ttl.last = last(8_790, 1_800, &[20, 22, 19, 40, 21, 12, 11, 10], "fffof");
    let mut tasks = vec![audit, compact, deactivate, gc, report, share, ttl];
    for task in &mut tasks {
        let took = |run: &LastRun| Some(run.took()?.as_millis() as u64);
        task.p99_ms = task.last.iter().filter_map(took).max();
    }
    tasks
}

fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for task in tasks() {
        for last in task.last {
            let active = last.state.is_active();
            let failed = last.state == RunState::Failed;
            runs.push(Run {
                id: last.id,
                task: task.name.clone(),
                slot: last.slot,
                trigger: Trigger::Schedule,
                term: 42,
                plugin_digest: String::new(),
                started_at: last.started_at,
                ended_at: last.ended_at,
                state: last.state,
                error: failed.then(|| "trap: all fuel consumed at ttl::scan+0x4c".into()),
                planned: last.planned,
                deduplicated: 3,
                blocked: u64::from(failed),
                open: if active { 20_797 } else { 0 },
                scanned: last.planned * 4,
                mode: besom_core::mode::Mode::Live,
                held: false,
            });
        }
    }
    runs.sort_by_key(|run| (std::cmp::Reverse(run.started_at), run.id));
    runs
}

fn dead() -> Vec<DeadGroup> {
    let group = |task: &str, error: &str, count, first, last| DeadGroup {
        task: task.into(),
        error: error.into(),
        count,
        first: ago(first),
        last: ago(last),
    };
    vec![
        group("share-expiry", "etcd: lease not found", 1, 315, 315),
        group("ttl-transition", "trap: all fuel consumed ttl::scan+0x4c", 2, 2_907, 1_106),
    ]
}

fn events() -> Vec<Event> {
    let event = |at, kind, subject: &str, text: &str, by: Option<&str>| Event {
        at: ago(at),
        kind,
        subject: subject.into(),
        text: text.into(),
        by: by.map(str::to_owned),
    };
    vec![
        event(67, EventKind::Node, "node-e", "lost: silent for longer than its lease", None),
        event(138, EventKind::Config, "node-a", "configuration loaded", Some("ana")),
        event(315, EventKind::Dead, "share-expiry", "set aside: etcd: lease not found", None),
        event(1_340, EventKind::Leader, "node-b", "leads in term 42", None),
        event(1_405, EventKind::Leader, "node-c", "leads in term 41", None),
        event(
            180_000,
            EventKind::Command,
            "gc-orphans",
            "paused: until INC-481 closes",
            Some("ana"),
        ),
    ]
}
