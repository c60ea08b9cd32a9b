//! The differences between two snapshots become events, each once and in the order of time.

use besom_core::command::Command;
use besom_core::ids::Incarnation;
use besom_snapshot::{CODE_KEPT, Depth, Leader, Leadership, Node, Report, Run, Task, TermRow};

use super::*;
use crate::gather::reading::SetAside;

const BEGIN: Time = Time::from_secs(1_000);
const NEXT: Time = Time::from_secs(1_010);

fn node(name: &str, state: NodeState) -> Arc<Node> {
    let incarnation = format!("{name}-1");
    let (name, config_digest) = (name.to_owned(), "aaaa".to_owned());
    Arc::new(Node { name, incarnation, state, config_digest, ..Node::default() })
}

fn leader(node: &str, term: u64) -> Option<Leader> {
    Some(Leader { node: node.into(), term, ..Leader::default() })
}

fn run(id: u64, state: RunState) -> Arc<Run> {
    Arc::new(Run {
        id,
        task: "sweep".into(),
        slot: BEGIN,
        trigger: besom_core::plan::Trigger::Schedule,
        term: 3,
        plugin_digest: String::new(),
        started_at: BEGIN,
        ended_at: Some(Time::from_secs(1_005)),
        state,
        error: (state == RunState::Failed).then(|| "the store was away\nlong".into()),
        planned: 0,
        deduplicated: 0,
        blocked: 0,
        open: 0,
        scanned: 0,
        mode: besom_core::mode::Mode::Live,
        held: false,
    })
}

/// Two active nodes, one lost; a task with a dead letter and a run that ended well.
fn before() -> Snapshot {
    let terms = [(3, "a", 900), (2, "b", 100)];
    let terms = terms.map(|(term, node, since)| TermRow {
        term,
        node: node.into(),
        since: Time::from_secs(since),
    });
    let leadership =
        Leadership { leader: leader("a", 3), terms: terms.into(), ..Leadership::default() };
    let depth = Depth { dead: 1, ..Depth::default() };
    Snapshot {
        at: BEGIN,
        leadership: Arc::new(leadership),
        nodes: vec![
            node("a", NodeState::Active),
            node("b", NodeState::Active),
            node("c", NodeState::Lost),
        ],
        tasks: vec![Arc::new(Task { name: "sweep".into(), depth, ..Task::default() })],
        runs: vec![run(5, RunState::Ok)],
        ..Snapshot::default()
    }
}

/// A term that follows the existing ones.
fn led(now: &mut Snapshot, node: &str, term: u64) {
    let row = TermRow { term, node: node.into(), since: Time::from_secs(1_000 + term as i64) };
    lead(now).leader = leader(node, term);
    lead(now).terms.insert(0, row);
}

fn words(event: &Event) -> String {
    format!("{:?} {}: {}", event.kind, event.subject, event.text)
}

/// The events of the second of two snapshots, oldest first.
fn told(now: &Snapshot, reading: &Reading) -> Vec<Arc<Event>> {
    let (before, mut events) = (before(), Events::default());
    events.look(&Snapshot::default(), &before, &Reading::default());
    let known = events.newest();
    events.look(&before, now, reading);
    let newest = events.newest();
    newest.iter().rev().filter(|event| !known.contains(event)).cloned().collect()
}

#[track_caller]
fn check(change: impl FnOnce(&mut Snapshot), expected: &[&str]) {
    let mut now = Snapshot { at: NEXT, ..before() };
    change(&mut now);
    let told = told(&now, &Reading::default());
    assert_eq!(told.iter().map(|event| words(event)).collect::<Vec<_>>(), expected);
}

fn lead(now: &mut Snapshot) -> &mut Leadership {
    Arc::make_mut(&mut now.leadership)
}

fn change_node(now: &mut Snapshot, at: usize) -> &mut Node {
    Arc::make_mut(&mut now.nodes[at])
}

#[test]
fn nothing_is_told_where_nothing_differs() {
    check(|_| {}, &[]);
}

#[test]
fn leaderships_are_told_with_who_led_before() {
    check(|now| led(now, "b", 4), &["Leader b: a → b leads under term 4"]);
    check(|now| led(now, "a", 4), &["Leader a: a leads under term 4"]);
    let nobody = "Leader a: a no longer leads (term 3); there is no leader";
    check(|now| lead(now).leader = None, &[nobody]);
    // If the coordination does not answer, there may still be a leader.
    let unknown = |now: &mut Snapshot| {
        (lead(now).leader, lead(now).fault) = (None, Some("etcd is away".into()));
    };
    check(unknown, &[]);
}

#[test]
fn nodes_come_go_and_change() {
    type Case = (fn(&mut Snapshot), &'static [&'static str]);
    let cases: [Case; 10] = [
        (|now| change_node(now, 1).state = NodeState::Lost, &["Node b: is lost"]),
        (|now| change_node(now, 2).state = NodeState::Active, &["Node c: is back"]),
        (|now| change_node(now, 1).state = NodeState::Draining, &["Node b: drains"]),
        (|now| change_node(now, 1).state = NodeState::Joining, &["Node b: joins"]),
        (|now| now.nodes.push(node("d", NodeState::Lost)), &["Node d: is lost"]),
        (|now| drop(now.nodes.remove(2)), &[]),
        (|now| drop(now.nodes.remove(1)), &["Node b: has left"]),
        (
            |now| change_node(now, 1).config_digest = "bbbbbbbbcccc".into(),
            &["Config b: uses a different configuration (bbbbbbbb)"],
        ),
        (
            |now| {
                let config_fault = Some("besom.toml:3: no such key\nmore".into());
                change_node(now, 1).report = Some(Report { config_fault, ..Report::default() });
            },
            &["Config b: keeps its old configuration: besom.toml:3: no such key"],
        ),
        (
            |now| {
                let config_fault = Some(format!("{CODE_KEPT}\nbesom.toml:9: not the pinned file"));
                change_node(now, 1).report = Some(Report { config_fault, ..Report::default() });
            },
            &[
                "Config b: keeps the code of plugins whose files are refused: besom.toml:9: not the pinned file",
            ],
        ),
    ];
    for (change, expected) in cases {
        check(change, expected);
    }
}

fn set_aside(at: i64, error: &str) -> SetAside {
    SetAside { at: Time::from_secs(at), task: "sweep".into(), error: error.into() }
}

#[test]
fn what_is_set_aside_within_a_minute_is_told_together() {
    let mut reading = Reading {
        letters: vec![
            set_aside(1_015, "a change is missing"),
            set_aside(1_012, "corrupt"),
            set_aside(1_011, "a change is missing"),
            set_aside(900, "corrupt"),
        ],
        ..Reading::default()
    };
    let now = Snapshot { at: NEXT, ..before() };
    let expected = [
        "Dead sweep: 1 set aside: corrupt",
        "Dead sweep: 1 set aside: corrupt",
        "Dead sweep: 2 set aside: a change is missing",
    ];
    let mut events = Events::default();
    events.look(&before(), &now, &reading);
    let of_letters = |events: &Events| {
        let newest = events.newest();
        let dead = newest.iter().rev().filter(|event| event.kind == EventKind::Dead);
        dead.map(|event| words(event)).collect::<Vec<_>>()
    };
    assert_eq!(of_letters(&events), expected);
    // One letter was retried: the event that it had been set aside remains.
    reading.letters.remove(0);
    events.look(&now, &now, &reading);
    assert_eq!(of_letters(&events), expected);
}

fn row(node: &str, started: i64, seen: i64, state: Role) -> NodeRow {
    NodeRow {
        node: Incarnation::from(node),
        state,
        seen_at: Time::from_secs(seen),
        config_digest: String::new(),
        missing: Vec::new(),
        hostname: String::new(),
        address: String::new(),
        weight: 1,
        report: Some(Report { started_at: Time::from_secs(started), ..Report::default() }),
    }
}

#[test]
fn two_hosts_tell_one_story_and_a_restart_forgets_nothing() {
    let mut now = Snapshot { at: NEXT, nodes: Vec::new(), ..before() };
    led(&mut now, "b", 4);
    now.runs = vec![run(6, RunState::Failed)];
    let reading = Reading {
        nodes: vec![
            row("a-0000000a", 100, 400, Role::Leading),
            row("a-0000000b", 500, 600, Role::Stopped),
            row("a-0000000c", 700, 1_009, Role::Following),
        ],
        letters: vec![set_aside(1_002, "corrupt")],
        ..Reading::default()
    };
    let told = |events: &Events| -> Vec<String> {
        events.newest().iter().map(|event| format!("{} {}", event.at.0, words(event))).collect()
    };
    let mut watching = Events::default();
    watching.look(&Snapshot::default(), &before(), &Reading::default());
    watching.look(&before(), &before(), &reading);
    watching.look(&now, &now, &reading);
    let mut fresh = Events::default();
    fresh.look(&Snapshot::default(), &now, &reading);
    let of_fresh = told(&fresh);
    for words in [
        "400000000 Node a: is lost",
        "500000000 Node a: is back",
        "600000000 Node a: has left",
        "700000000 Node a: was restarted",
        "1004000000 Leader b: a → b leads under term 4",
        "1005000000 Run sweep: run 6 failed: the store was away",
        "1002000000 Dead sweep: 1 set aside: corrupt",
    ] {
        assert!(of_fresh.iter().any(|told| told == words), "{words}: {of_fresh:#?}");
    }
    // Except for a loss that has left nothing in the store.
    let of_watching = told(&watching).into_iter().filter(|told| !told.contains("Node c"));
    assert_eq!(of_watching.collect::<Vec<_>>(), of_fresh);
}

#[test]
fn a_run_that_fails_is_told_once_as_of_its_end() {
    let mut now = Snapshot { at: NEXT, ..before() };
    now.runs = vec![run(6, RunState::Failed), run(5, RunState::Ok)];
    let told = told(&now, &Reading::default());
    assert_eq!(words(&told[0]), "Run sweep: run 6 failed: the store was away");
    assert_eq!((told.len(), told[0].at), (1, Time::from_secs(1_005)));

    let mut events = Events::default();
    events.look(&before(), &now, &Reading::default());
    let known = events.newest();
    events.look(&now, &Snapshot { at: Time::from_secs(1_020), ..now.clone() }, &Reading::default());
    assert_eq!(events.newest(), known);
}

#[test]
fn commands_are_told_with_who_and_why_once_they_are_applied() {
    let row = |id, applied_at, result: Option<&str>| CommandRow {
        id,
        command: Command::Pause { task: "sweep".into() },
        by: "ann".into(),
        reason: if id == 1 { "INC-7".into() } else { String::new() },
        at: BEGIN,
        applied_at,
        result: result.map(Into::into),
        refused: id == 4,
    };
    let mut reading = Reading {
        commands: vec![
            row(4, Some(NEXT), Some("sweep is paused already")),
            row(3, None, None),
            row(2, Some(NEXT), None),
            row(1, Some(Time::from_secs(1_008)), Some("paused")),
        ],
        ..Reading::default()
    };
    let now = Snapshot { at: NEXT, ..before() };
    let first = told(&now, &reading);
    let refused = "Command sweep: pause: refused, sweep is paused already";
    let expected =
        ["Command sweep: pause: paused (INC-7)", "Command sweep: pause: applied", refused];
    assert_eq!(first.iter().map(|event| words(event)).collect::<Vec<_>>(), expected);
    assert!(first.iter().all(|event| event.by.as_deref() == Some("ann")));

    // The third command is applied after the fourth, and nothing is reported twice.
    let mut events = Events::default();
    events.look(&before(), &now, &reading);
    let known = events.newest().len();
    events.look(&now, &now, &Reading::default());
    reading.commands[1] = row(3, Some(NEXT), Some("paused"));
    events.look(&now, &now, &reading);
    events.look(&now, &now, &reading);
    assert_eq!(events.newest().len(), known + 1);
}

#[test]
fn the_first_picture_tells_of_the_leaderships_before_and_the_oldest_is_forgotten() {
    let mut events = Events::default();
    let mut last = before();
    events.look(&Snapshot::default(), &last, &Reading::default());
    let past: Vec<String> = events.newest().iter().map(|event| words(event)).collect();
    let expected = ["Leader a: b → a leads under term 3", "Leader b: b leads under term 2"];
    let leaders: Vec<&String> = past.iter().filter(|told| told.starts_with("Leader")).collect();
    assert_eq!(leaders, expected);
    for term in 4..4 + EVENTS_MAX as u64 {
        let mut now = Snapshot { at: Time::from_secs(1_000 + term as i64), ..last.clone() };
        led(&mut now, "a", term);
        lead(&mut now).terms.truncate(3);
        events.look(&last, &now, &Reading::default());
        last = now;
    }
    let newest = events.newest();
    assert_eq!(newest.len(), EVENTS_MAX);
    assert!(newest.iter().all(|event| event.at > BEGIN), "{newest:?}");
    assert!(newest.windows(2).all(|pair| pair[0].at >= pair[1].at), "newest first");
}
