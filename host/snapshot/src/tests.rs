//! Patches reproduce the snapshot they were made for; attention reports problems and nothing else.

use std::sync::Arc;

use proptest::prelude::*;

use besom_core::mode::Mode;
use besom_core::plan::Trigger;

use super::*;

const NOW: Time = Time::from_secs(1_000_000);

fn ago(seconds: i64) -> Time {
    Time(NOW.0 - seconds * 1_000_000)
}

fn node(name: &str, queued: u64) -> Node {
    Node {
        name: name.into(),
        owned: 10,
        queued,
        seen_at: ago(1),
        config_digest: "aa".into(),
        ..Node::default()
    }
}

fn healthy() -> Snapshot {
    let leader = Leader { node: "a".into(), term: 3, ..Leader::default() };
    Snapshot {
        at: NOW,
        host: "a".into(),
        leadership: Arc::new(Leadership { leader: Some(leader), ..Leadership::default() }),
        nodes: vec![Arc::new(node("a", 5)), Arc::new(node("b", 5))],
        tasks: vec![Arc::new(Task { name: "sweep".into(), ..Task::default() })],
        ..Snapshot::default()
    }
}

fn texts(snapshot: &Snapshot) -> Vec<(Urgency, String)> {
    let found = attention(snapshot, &Thresholds::default());
    found.into_iter().map(|a| (a.urgency, a.text)).collect()
}

#[test]
fn rows_that_stay_are_told_with_the_command_that_lists_them() {
    let words = |rows, or_more| Staying { rows, or_more, undone: "5".into() }.words();
    assert_eq!(words(1, false), "1 row stays as it is: `besom undo 5` lists what stays");
    assert_eq!(words(2, false), "2 rows stay as they are: `besom undo 5` lists what stays");
    assert_eq!(words(1, true), "at least 1 row stays as it is: `besom undo 5` lists what stays");
}

#[test]
fn a_healthy_deployment_needs_no_attention() {
    assert_eq!(texts(&healthy()), []);
}

#[test]
fn what_is_held_is_an_alarm_with_its_cause_once_for_all_nodes_that_say_so() {
    let mut snapshot = healthy();
    for at in [0, 1] {
        let held = Held {
            task: Some("sweep".into()),
            what: "commit".into(),
            cause: Cause::Privilege,
            since: ago(90),
            why: "permission denied for table shares".into(),
        };
        let report = Report { held: vec![held], ..Report::default() };
        set(&mut snapshot.nodes, at, |node| node.report = Some(report));
    }
    let found = attention(&snapshot, &Thresholds::default());
    let [held] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((held.urgency, &held.subject), (Urgency::Alarm, &Subject::Task("sweep".into())));
    assert_eq!(held.text, "sweep has been held for 1m30s: commit");
    // What only tells of messages holds nothing.
    let told = Held {
        what: "messages of the topic t".into(),
        cause: Cause::NotTaken,
        since: ago(90),
        ..Held::default()
    };
    let mut telling = healthy();
    let report = Report { held: vec![told], ..Report::default() };
    set(&mut telling.nodes, 0, |node| node.report = Some(report));
    let words = format!("{}: messages of the topic t not taken for 1m30s", telling.nodes[0].name);
    assert_eq!(texts(&telling), [(Urgency::Alarm, words)]);
    assert_eq!(held.cause.as_deref(), Some("permission denied for table shares"));
}

#[test]
fn a_task_that_a_node_has_left_out_is_an_alarm_of_that_node_whoever_knows_the_task() {
    let mut snapshot = healthy();
    for (task, cause) in [
        ("sweep", Cause::Plugin),
        ("of another configuration", Cause::Plugin),
        ("sweep", Cause::Mapping),
    ] {
        let held = Held {
            task: Some(task.into()),
            what: "plugin".into(),
            cause,
            since: ago(90),
            why: "`sweep.wasm` is not the pinned file".into(),
        };
        set(&mut snapshot.nodes, 0, |node| {
            let mut report = node.report.clone().unwrap_or_default();
            report.held.push(held);
            node.report = Some(report);
        });
    }
    let found = attention(&snapshot, &Thresholds::default());
    let name = &snapshot.nodes[0].name;
    let [sweep, other, unmatched] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((sweep.urgency, &sweep.subject), (Urgency::Alarm, &Subject::Task("sweep".into())));
    assert_eq!(sweep.text, format!("{name} has refused the plugin file of sweep for 1m30s"));
    assert_eq!(sweep.cause.as_deref(), Some("`sweep.wasm` is not the pinned file"));
    assert!(other.text.contains("of another configuration"), "{other:?}");
    let held = format!("{name} has held sweep for 1m30s: a table differs from its mapping");
    assert_eq!((unmatched.urgency, &unmatched.text), (Urgency::Alarm, &held));
}

#[test]
fn a_brake_is_an_alarm_and_the_pause_of_all_tasks_is_said_once() {
    let pause = |by: &str| Pause { by: by.into(), reason: "why".into(), since: ago(90) };
    let mut snapshot = healthy();
    set(&mut snapshot.tasks, 0, |t| t.paused = Some(pause("brake")));
    assert_eq!(texts(&snapshot), [(Urgency::Alarm, "sweep: stopped by a brake for 1m30s".into())]);
    let found = attention(&snapshot, &Thresholds::default());
    assert_eq!(found[0].cause.as_deref(), Some("why"), "it tells the numbers");
    let mut snapshot = healthy();
    snapshot.all_paused = Some(pause("ana"));
    let late = Depth { log: 4, oldest: Some(ago(3_700)), ..Depth::default() };
    set(&mut snapshot.tasks, 0, |t| (t.paused, t.depth) = (Some(pause("ana")), late.clone()));
    let once = (Urgency::Warning, "all tasks are paused by ana for 1m30s".into());
    assert_eq!(texts(&snapshot), [once], "and what waits is not overdue");
    let mut closed = healthy();
    set(&mut closed.tasks, 0, |t| (t.opens_at, t.depth) = (Some(NOW), late.clone()));
    assert_eq!(texts(&closed), []);
    // A dashboard that has the snapshot before learns of it.
    let mut before = healthy();
    diff(&before, &snapshot).expect("a difference").apply(&mut before).expect("it fits");
    assert_eq!(before, snapshot);
}

#[test]
fn a_run_that_plans_many_times_the_usual_is_a_warning_without_any_limit() {
    let ran = |id: u64, planned| LastRun {
        id,
        planned,
        state: RunState::Ok,
        started_at: ago(100),
        ended_at: Some(ago(90)),
        ..LastRun::default()
    };
    let mut snapshot = healthy();
    let mut last: Vec<LastRun> = (1..=5).map(|id| ran(id, 30)).collect();
    last.push(ran(6, 301));
    set(&mut snapshot.tasks, 0, |t| t.last = last);
    let words = "sweep: run 6 has planned 301 items, more than 10 times the usual 30";
    assert_eq!(texts(&snapshot), [(Urgency::Warning, words.into())]);
    let found = attention(&snapshot, &Thresholds::default());
    assert_eq!(found[0].subject, Subject::Run(6));
}

type Change = fn(&mut Snapshot);

fn set<T: Clone>(rows: &mut [Arc<T>], at: usize, change: impl FnOnce(&mut T)) {
    change(Arc::make_mut(&mut rows[at]));
}

#[test]
fn what_is_wrong_is_named_with_its_urgency() {
    let cases: &[(Change, Urgency, &str)] = &[
        (
            |s| Arc::make_mut(&mut s.leadership).leader = None,
            Urgency::Alarm,
            "no leader: nothing new is planned",
        ),
        (
            |s| set(&mut s.nodes, 1, |n| (n.state, n.seen_at) = (NodeState::Lost, ago(75))),
            Urgency::Alarm,
            "b is lost, silent for 1m15s; 10 partitions have yet to move",
        ),
        (
            |s| set(&mut s.nodes, 1, |n| n.queued = 995),
            Urgency::Warning,
            "b has 2.0 times its share of the waiting items",
        ),
        (
            |s| set(&mut s.nodes, 1, |n| n.config_digest = "bb".into()),
            Urgency::Warning,
            "b runs a different configuration from the leader",
        ),
        (
            |s| {
                set(&mut s.tasks, 0, |t| {
                    t.depth = Depth { log: 4, oldest: Some(ago(3_700)), ..Depth::default() };
                });
            },
            Urgency::Warning,
            "sweep: the oldest of 4 has waited 1h01m",
        ),
        (|s| set(&mut s.tasks, 0, |t| t.depth.dead = 2), Urgency::Warning, "sweep: 2 set aside"),
        (
            |s| {
                set(&mut s.tasks, 0, |t| t.depth.dead = 2);
                for error in ["corrupt", "missing"] {
                    let (task, error) = ("sweep".to_owned(), error.to_owned());
                    let group = DeadGroup { task, error, count: 1, ..DeadGroup::default() };
                    s.dead.push(Arc::new(group));
                }
            },
            Urgency::Warning,
            "sweep: 2 set aside, 2 different errors",
        ),
        (
            |s| {
                let term = |term| TermRow { term, node: "a".into(), since: ago(term as i64 * 60) };
                Arc::make_mut(&mut s.leadership).terms = (1..=4).map(term).collect();
            },
            Urgency::Warning,
            "the leadership has changed 4 times in the last hour",
        ),
        (
            |s| {
                let failed = LastRun {
                    state: RunState::Failed,
                    ended_at: Some(ago(1)),
                    ..LastRun::default()
                };
                set(&mut s.tasks, 0, |t| t.last = vec![failed.clone(), failed]);
            },
            Urgency::Alarm,
            "sweep: its last 2 runs failed",
        ),
        (
            |s| {
                let ended = LastRun {
                    started_at: ago(700),
                    ended_at: Some(ago(660)),
                    state: RunState::Ok,
                    ..LastRun::default()
                };
                let active = LastRun { id: 8, started_at: ago(600), ..LastRun::default() };
                set(&mut s.tasks, 0, |t| t.last = vec![ended, active]);
            },
            Urgency::Warning,
            "sweep: run 8 active for 10m00s, 15.0 times the longest",
        ),
    ];
    for (change, urgency, text) in cases {
        let mut snapshot = healthy();
        change(&mut snapshot);
        assert_eq!(texts(&snapshot), [(*urgency, (*text).to_owned())]);
    }
}

/// A pass that has ended, under a term.
fn pass(term: u64) -> Run {
    Run {
        id: term,
        task: "sweep".into(),
        slot: NOW,
        trigger: Trigger::Pass,
        term,
        plugin_digest: String::new(),
        started_at: ago(1),
        ended_at: Some(ago(1)),
        state: RunState::Ok,
        error: None,
        planned: 0,
        deduplicated: 0,
        blocked: 0,
        open: 0,
        scanned: 0,
        mode: Mode::Live,
        held: false,
    }
}

#[test]
fn passes_are_no_changes_of_leadership_and_waiting_for_an_approval_is_no_duration() {
    let mut snapshot = healthy();
    let term = |term| TermRow { term, node: "a".into(), since: ago(term as i64 * 60) };
    Arc::make_mut(&mut snapshot.leadership).terms = (1..=6).map(term).collect();
    snapshot.runs = (1..=3).map(|term| Arc::new(pass(term))).collect();
    assert_eq!(texts(&snapshot), [], "three others are allowed");
    snapshot.runs.pop();
    let four = "the leadership has changed 4 times in the last hour";
    assert_eq!(texts(&snapshot), [(Urgency::Warning, four.to_owned())]);
    let asked = || Trigger::Manual { by: "ann".into(), reason: String::new() };
    let undo = Run { task: "undo".into(), trigger: asked(), ..pass(4) };
    snapshot.runs.push(Arc::new(undo));
    assert_eq!(texts(&snapshot), [], "a pass of `besom undo`");
    snapshot.runs.push(Arc::new(Run { trigger: Trigger::Schedule, ..pass(4) }));
    assert_eq!(texts(&snapshot), [(Urgency::Warning, four.to_owned())], "a host has undone it");

    let mut snapshot = healthy();
    let ended = |mode, took: i64| LastRun {
        mode,
        started_at: ago(5_000),
        ended_at: Some(ago(5_000 - took)),
        state: RunState::Ok,
        ..LastRun::default()
    };
    let active = LastRun { id: 8, started_at: ago(600), ..LastRun::default() };
    let last = vec![ended(Mode::Live, 40), ended(Mode::Approve, 4_000), active];
    set(&mut snapshot.tasks, 0, |t| t.last = last.clone());
    let words = "sweep: run 8 active for 10m00s, 15.0 times the longest";
    assert_eq!(texts(&snapshot), [(Urgency::Warning, words.to_owned())]);
}

#[test]
fn the_most_urgent_comes_first() {
    let mut snapshot = healthy();
    set(&mut snapshot.tasks, 0, |t| t.depth.dead = 2);
    set(&mut snapshot.nodes, 0, |n| n.state = NodeState::Draining);
    Arc::make_mut(&mut snapshot.leadership).leader = None;
    let urgencies: Vec<_> = texts(&snapshot).into_iter().map(|(u, _)| u).collect();
    assert_eq!(urgencies, [Urgency::Alarm, Urgency::Warning, Urgency::Notice]);
}

#[test]
fn a_latency_is_told_by_the_bound_of_its_bucket() {
    let mut latency = Latency::default();
    assert_eq!(latency.quantile(0.5), None);
    for us in [90, 100, 101, 999_999] {
        latency.add(us);
    }
    let quantiles = [0.0, 0.5, 0.75, 1.0].map(|part| latency.quantile(part));
    assert_eq!(quantiles, [Some(100), Some(100), Some(200), Some(1_000_000)]);
    latency.add(u64::MAX);
    assert_eq!(latency.quantile(1.0), Some(600_000_000));
}

#[test]
fn a_patch_of_another_snapshot_is_refused() {
    let (old, mut new) = (healthy(), healthy());
    set(&mut new.nodes, 1, |node| node.queued = 6);
    let patch = diff(&old, &new).expect("something differs");
    assert_eq!(patch.apply(&mut Snapshot::default()), Err(Mismatch));
}

#[test]
fn time_alone_is_no_difference() {
    let (old, mut new) = (healthy(), healthy());
    new.at = ago(-1);
    assert_eq!(diff(&old, &new), None);
}

fn snapshots() -> impl Strategy<Value = Snapshot> {
    let rows = prop::collection::btree_map(0_u8..9, 0_u64..4, 0..7);
    let order = any::<bool>();
    (rows.clone(), rows, order, 0_u64..3).prop_map(|(nodes, runs, reverse, term)| {
        let mut snapshot = Snapshot { at: NOW, host: term.to_string(), ..Snapshot::default() };
        snapshot.nodes =
            nodes.iter().map(|(name, n)| Arc::new(node(&name.to_string(), *n))).collect();
        let group = |(error, count): (&u8, &u64)| DeadGroup {
            error: error.to_string(),
            count: *count,
            ..DeadGroup::default()
        };
        snapshot.dead = runs.iter().map(group).map(Arc::new).collect();
        if reverse {
            snapshot.dead.reverse();
        }
        snapshot.leadership = Arc::new(Leadership { fence: Some(term), ..Leadership::default() });
        snapshot.ring = Arc::new(Ring { moving: term as u32, ..Ring::default() });
        snapshot
    })
}

proptest! {
    #[test]
    fn a_patch_leads_from_one_snapshot_to_the_other(old in snapshots(), new in snapshots()) {
        let mut patched = old.clone();
        if let Some(patch) = diff(&old, &new) {
            let wire = serde_json::to_string(&patch).expect("written");
            let patch: Patch = serde_json::from_str(&wire).expect("read");
            patch.apply(&mut patched).expect("it fits");
        }
        prop_assert_eq!(patched, new);
    }
}

#[test]
fn a_state_of_a_later_version_is_unknown_and_not_an_error() {
    let node: Node =
        serde_json::from_str(r#"{"name":"a","state":"asleep","colour":1}"#).expect("read");
    assert_eq!((node.name.as_str(), node.state), ("a", NodeState::Unknown));
}

#[test]
fn a_run_stands_while_its_task_is_stopped_and_unless_its_plan_waits() {
    let word = |snapshot: &Snapshot, run: &Run| snapshot.stop(run).map(|stop| stop.word);
    let mut snapshot = healthy();
    let (task, ended) = (snapshot.tasks[0].clone(), pass(7));
    let active = Run { ended_at: None, state: RunState::Executing, ..ended.clone() };
    assert_eq!(word(&snapshot, &active), None);
    let pause = |by: &str| Pause { by: by.into(), reason: "INC-7".into(), since: NOW };
    for (paused, opens_at, expected) in [
        (None, Some(NOW), "closed"),
        (Some(pause("ann")), Some(NOW), "paused"),
        (Some(pause("brake")), None, "braked"),
    ] {
        snapshot.tasks[0] = Arc::new(Task { paused, opens_at, ..(*task).clone() });
        assert_eq!((word(&snapshot, &active), word(&snapshot, &ended)), (Some(expected), None));
    }
    let review = WaitingReview {
        run: besom_core::ids::RunId(7),
        opened_at: NOW,
        expires_at: None,
        items: 1,
        summary: String::new(),
        brake: None,
    };
    let paused = Some(pause("ann"));
    snapshot.tasks[0] = Arc::new(Task { paused, review: Some(review), ..(*task).clone() });
    assert_eq!(word(&snapshot, &active), None);
}
