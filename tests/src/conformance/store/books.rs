//! History, depths and nodes.

use std::time::Duration;

use besom_core::item::Candidate;
use besom_core::time::Time;
use besom_core::undo::Target;
use besom_ports::history::Rows;
use besom_ports::store::{Depth, HistoryQuery, Missing, NodeRow, Retention, Role};
use besom_snapshot::{HotKey, Latency, Report};

use crate::conformance::World;
use crate::conformance::tables::thing;
use crate::conformance::world::{
    ALL, apply, candidate, dead, due, retry, set_n, skip, task, tenant,
};

/// Every end of an item has a history row with node, time and reason.
pub async fn history_says_what_became_of_each_item_and_by_whom(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let run = world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    world.advance(Duration::from_secs(3));
    let batch = world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
    world.store().commit(&batch).await.unwrap();
    let row = world.history().await.remove(0);
    assert_eq!((row.identity, row.run, row.at), (item.item.identity, run, world.now));
    assert_eq!((row.outcome.as_str(), row.reason, row.settled), ("committed", None, false));
    assert_eq!((row.node, row.commit), (world.node.clone(), batch.id));
}

/// The history is read by task, tenant, key and run, newest first, in pages.
pub async fn history_is_found_by_task_tenant_key_and_run(world: &mut World) {
    let of_b = Candidate { tenant: Some(tenant("b")), ..candidate("x") };
    let mut runs = Vec::new();
    for (name, found) in [
        ("one", candidate("x")),
        ("one", candidate("y")),
        ("one", of_b),
        ("two", candidate("x")),
        ("two", Candidate { tenant: None, ..candidate("z") }),
    ] {
        runs.push(world.planned(name, vec![found]).await);
        let item = world.only(name).await;
        world.commit(vec![(&item, skip("no"))]).await;
    }
    let all = HistoryQuery { limit: ALL, ..HistoryQuery::default() };
    let rows = world.store().history(&all).await.unwrap();
    assert!(rows.windows(2).all(|pair| pair[0].id > pair[1].id), "newest first");
    let of = |task_name: Option<&str>, key: Option<&str>| HistoryQuery {
        task: task_name.map(task),
        key: key.map(str::to_owned),
        ..all.clone()
    };
    for (query, expected) in [
        (of(None, None), vec![4, 3, 2, 1, 0]),
        (of(Some("one"), None), vec![2, 1, 0]),
        (of(None, Some("x")), vec![3, 2, 0]),
        (of(Some("two"), Some("x")), vec![3]),
        (HistoryQuery { tenant: Some(tenant("b")), ..all.clone() }, vec![2]),
        (HistoryQuery { run: Some(runs[1]), ..all.clone() }, vec![1]),
        (HistoryQuery { limit: 2, ..all.clone() }, vec![4, 3]),
        (HistoryQuery { before: Some(rows[1].id), ..all.clone() }, vec![2, 1, 0]),
    ] {
        let found = world.store().history(&query).await.unwrap();
        let order: Vec<usize> =
            found.iter().map(|row| runs.iter().position(|r| *r == row.run).unwrap()).collect();
        assert_eq!(order, expected, "{query:?}");
    }
}

/// What can be undone is read page by page, also behind pages that are newer.
pub async fn the_rows_of_a_target_are_found_behind_newer_ones(world: &mut World) {
    let mut runs = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        runs.push(world.planned("task", vec![candidate(key)]).await);
        let item = world.only("task").await;
        world.commit(vec![(&item, skip("no"))]).await;
        world.advance(Duration::from_secs(10));
    }
    let all = world.history().await;
    let (second, third) = (&all[1], &all[2]);
    let span = Target::Span { task: task("task"), from: second.at, to: third.at };
    let numbered = Target::Item(runs[1], format!("#{}", second.id));
    for (target, expected) in [
        (span, vec![third.id, second.id]),
        (Target::Run(runs[1]), vec![second.id]),
        (Target::Item(runs[1], "b".into()), vec![second.id]),
        (Target::Item(runs[1], "c".into()), vec![]),
        (numbered, vec![second.id]),
        (Target::Item(runs[1], format!("#{}", third.id)), vec![]),
    ] {
        let store = world.store();
        let (mut rows, mut found) = (Rows::of_target(&*store, &target).paged(None, 1), Vec::new());
        while let Some(row) = rows.next().await.unwrap() {
            found.push(row.id);
        }
        assert_eq!(found, expected, "{target}");
    }
}

/// Waiting items are counted per task, with the age of the oldest.
pub async fn depths_count_what_waits_and_since_when(world: &mut World) {
    let start = world.now;
    let at = |seconds| start + Duration::from_secs(seconds);
    let one = |depths: Vec<Depth>| {
        let found = depths.into_iter().find(|d| d.task == Some(task("task")));
        found.unwrap_or_default()
    };
    world.settle(candidate("r"), retry(at(60), 1, "later")).await;
    world.settle(candidate("d"), dead("broken")).await;
    world.planned("task", vec![due("soon", at(100)), due("later", at(200))]).await;
    let depth = one(world.store().depths().await.unwrap());
    assert_eq!((depth.log, depth.timers, depth.retries, depth.dead), (0, 2, 1, 1));
    assert_eq!((depth.next_due, depth.oldest), (Some(at(100)), None));

    world.advance(Duration::from_secs(110));
    world.planned("task", vec![candidate("a")]).await;
    world.advance(Duration::from_secs(10));
    world.planned("task", vec![candidate("b")]).await;
    let depth = one(world.store().depths().await.unwrap());
    assert_eq!((depth.log, depth.next_due), (2, Some(at(100))));
    assert_eq!(depth.oldest, Some(at(100)), "an overdue timer is older than the log");

    let overdue = world.timers().await.remove(0);
    world.commit(vec![(&overdue, skip("done"))]).await;
    let depth = one(world.store().depths().await.unwrap());
    assert_eq!((depth.timers, depth.oldest, depth.next_due), (1, Some(at(110)), Some(at(200))));
    assert_eq!(depth.planned, 6, "whatever became of it");
}

fn busy(now: Time) -> Report {
    let mut latency = Latency::default();
    latency.add(1_500);
    let key = "a\u{0}key \"with\" \u{1}everything".to_owned();
    Report {
        version: "1.2.3".into(),
        started_at: now,
        finished: [("task".to_owned(), u64::MAX)].into(),
        rates: vec![0, 7, u32::MAX],
        latency,
        hot: vec![HotKey { task: "task".into(), key, count: 7, ..HotKey::default() }],
        config_fault: Some("line 3".into()),
        ..Report::default()
    }
}

/// Nodes report their state; the last report counts.
pub async fn nodes_report_themselves(world: &mut World) {
    let report = |name: &str, state: Role| NodeRow {
        node: name.into(),
        state,
        seen_at: world.now,
        config_digest: "abc".into(),
        missing: match state {
            Role::Leading => Vec::new(),
            _ => vec![Missing { what: "etcd".into(), since: world.now, why: "refused".into() }],
        },
        hostname: "machine-1".into(),
        address: "10.0.0.1:7070".into(),
        weight: u32::MAX,
        report: (state == Role::Leading).then(|| busy(world.now)),
    };
    for row in [report("n2", Role::Following), report("n1", Role::Draining)] {
        assert_eq!(world.store().report_node(&row).await.unwrap(), None);
    }
    let (before, now) = (world.now, world.now + Duration::from_secs(5));
    let last = NodeRow { seen_at: now, ..report("n1", Role::Leading) };
    assert_eq!(world.store().report_node(&last).await.unwrap(), Some(before));
    assert_eq!(world.store().report_node(&last).await.unwrap(), Some(now));
    let mut nodes = world.store().nodes().await.unwrap();
    nodes.sort_by(|a, b| a.node.cmp(&b.node));
    assert_eq!(nodes, [last, report("n2", Role::Following)]);
}

/// A node that leaves is removed at once; one that vanished, after its retention.
pub async fn nodes_are_forgotten(world: &mut World) {
    let seen_at = world.now;
    for name in ["left", "vanished"] {
        let (state, config_digest) = (Role::Following, "abc".into());
        let missing = Vec::new();
        let row = NodeRow {
            node: name.into(),
            state,
            seen_at,
            config_digest,
            missing,
            hostname: String::new(),
            address: String::new(),
            weight: 1,
            report: None,
        };
        world.store().report_node(&row).await.unwrap();
    }
    let hour = Duration::from_secs(3_600);
    let keep = Retention { history: hour * 24, undo: &[], nodes: hour, routed: None };
    world.store().forget_node(&"left".into()).await.unwrap();
    world.store().forget_node(&"never seen".into()).await.unwrap();
    for (passes, expected) in [(hour, vec!["vanished"]), (Duration::from_micros(1), vec![])] {
        world.advance(passes);
        world.store().prune(&world.fence, keep, 10).await.unwrap();
        let nodes = world.store().nodes().await.unwrap();
        assert_eq!(nodes.iter().map(|n| n.node.as_str()).collect::<Vec<_>>(), expected);
    }
}
