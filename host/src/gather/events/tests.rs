//! What differs between two pictures is told in words, once and in the order of its time.

use besom_core::command::Command;
use besom_core::snapshot::{
    DeadGroup, Depth, Leader, Leadership, Node, Report, Run, Task, TermRow,
};

use super::*;

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
        started_at: BEGIN,
        ended_at: Some(Time::from_secs(1_005)),
        state,
        error: (state == RunState::Failed).then(|| "the store was away\nlong".into()),
        planned: 0,
        deduplicated: 0,
        blocked: 0,
        open: 0,
        scanned: 0,
    })
}

/// Two nodes at work, one lost; a task with a dead letter and a run that ended well.
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

fn words(event: &Event) -> String {
    format!("{:?} {}: {}", event.kind, event.subject, event.text)
}

/// What is told of the second of two pictures, oldest first.
fn told(now: &Snapshot, reading: &Reading) -> Vec<Arc<Event>> {
    let (before, mut events) = (before(), Events::default());
    events.look(&Snapshot::default(), &before, &Reading::default());
    let known = events.newest().len();
    events.look(&before, now, reading);
    let newest = events.newest();
    newest[..newest.len() - known].iter().rev().cloned().collect()
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
    check(|now| lead(now).leader = leader("b", 4), &["Leader b: a → b leads under term 4"]);
    check(|now| lead(now).leader = leader("a", 4), &["Leader a: a leads under term 4"]);
    let nobody = "Leader a: a leads no more (term 3); nobody does";
    check(|now| lead(now).leader = None, &[nobody]);
    // That it cannot be asked does not say that nobody leads.
    let unknown = |now: &mut Snapshot| {
        (lead(now).leader, lead(now).fault) = (None, Some("etcd is away".into()));
    };
    check(unknown, &[]);
}

#[test]
fn nodes_come_go_and_change() {
    type Case = (fn(&mut Snapshot), &'static [&'static str]);
    let cases: [Case; 12] = [
        (|now| change_node(now, 1).state = NodeState::Lost, &["Node b: is lost"]),
        (|now| change_node(now, 2).state = NodeState::Active, &["Node c: is back"]),
        (|now| change_node(now, 1).state = NodeState::Draining, &["Node b: drains"]),
        (|now| change_node(now, 1).state = NodeState::Joining, &["Node b: joins"]),
        (|now| now.nodes.push(node("d", NodeState::Active)), &["Node d: is there"]),
        // One that was lost before anybody looked is no news, nor is its end.
        (|now| now.nodes.push(node("d", NodeState::Lost)), &[]),
        (|now| drop(now.nodes.remove(2)), &[]),
        (|now| drop(now.nodes.remove(1)), &["Node b: has left"]),
        (|now| change_node(now, 1).incarnation = "b-2".into(), &["Node b: was started anew"]),
        // That it comes back says that it was started anew.
        (
            |now| {
                let node = change_node(now, 2);
                (node.state, node.incarnation) = (NodeState::Active, "c-2".into());
            },
            &["Node c: is back"],
        ),
        (
            |now| change_node(now, 1).config_digest = "bbbbbbbbcccc".into(),
            &["Config b: works by another configuration (bbbbbbbb)"],
        ),
        (
            |now| {
                let config_fault = Some("besom.toml:3: no such key\nmore".into());
                change_node(now, 1).report = Some(Report { config_fault, ..Report::default() });
            },
            &["Config b: keeps its old configuration: besom.toml:3: no such key"],
        ),
    ];
    for (change, expected) in cases {
        check(change, expected);
    }
}

#[test]
fn what_is_set_aside_is_counted_with_its_newest_error() {
    let dead = |count: u64| {
        move |now: &mut Snapshot| {
            Arc::make_mut(&mut now.tasks[0]).depth.dead = count;
            let (task, error) = ("sweep".to_owned(), "a change is missing".to_owned());
            now.dead.push(Arc::new(DeadGroup { task, error, count, ..DeadGroup::default() }));
        }
    };
    check(dead(3), &["Dead sweep: 2 set aside: a change is missing"]);
    check(dead(1), &[]);
    check(dead(0), &[]);
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
    // One that has come into the list from below is older than what was known.
    check(|now| now.runs.push(run(4, RunState::Failed)), &[]);
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

    // The third is applied after the fourth, and nothing is told twice.
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
    let expected = ["Leader a: a leads under term 3", "Leader b: b leads under term 2"];
    assert_eq!(past, expected);
    for term in 4..4 + EVENTS_MAX as u64 {
        let mut now = Snapshot { at: Time::from_secs(1_000 + term as i64), ..last.clone() };
        lead(&mut now).leader = leader("a", term);
        events.look(&last, &now, &Reading::default());
        last = now;
    }
    let newest = events.newest();
    assert_eq!(newest.len(), EVENTS_MAX);
    assert!(newest.iter().all(|event| event.at > BEGIN), "{newest:?}");
    assert!(newest.windows(2).all(|pair| pair[0].at >= pair[1].at), "newest first");
}
