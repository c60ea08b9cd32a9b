//! The dashboard as lines, for pipes and screen readers: first a report, then a line for each
//! relevant change. Lines contain no control characters.

use std::collections::BTreeMap;

use besom_core::command::counted;
use besom_snapshot::{
    Attention, NodeState, RunState, Snapshot, Subject, Thresholds, Urgency, attention,
};

use super::text;

/// What has been reported so far.
#[derive(Debug, Default)]
pub struct Plain {
    known: Option<Known>,
    lost: bool,
}

/// The parts of a snapshot whose changes are reported.
#[derive(Debug, Default, PartialEq)]
struct Known {
    leader: Option<(String, u64)>,
    nodes: BTreeMap<String, NodeState>,
    /// Active runs, and the newest run seen.
    active: BTreeMap<u64, String>,
    newest: u64,
    dead: BTreeMap<String, u64>,
    paused: BTreeMap<String, bool>,
    attention: Vec<(Subject, Urgency, String)>,
}

impl Known {
    fn of(snap: &Snapshot) -> Known {
        let leader = snap.leadership.leader.as_ref();
        let active = snap.runs.iter().filter(|run| run.state.is_active());
        Known {
            leader: leader.map(|leader| (leader.node.clone(), leader.term)),
            nodes: snap.nodes.iter().map(|node| (node.name.clone(), node.state)).collect(),
            active: active.map(|run| (run.id, run.task.clone())).collect(),
            newest: snap.runs.iter().map(|run| run.id).max().unwrap_or(0),
            dead: snap.tasks.iter().map(|t| (t.name.clone(), t.depth.dead)).collect(),
            paused: snap.tasks.iter().map(|t| (t.name.clone(), t.paused.is_some())).collect(),
            attention: needs(snap)
                .into_iter()
                .map(|item| (item.subject, item.urgency, kind(&item.text)))
                .collect(),
        }
    }
}

fn needs(snap: &Snapshot) -> Vec<Attention> {
    attention(snap, &Thresholds::default())
}

/// The words of an attention item without its numbers, which change constantly.
fn kind(words: &str) -> String {
    words.split(' ').filter(|word| !word.contains(|c: char| c.is_ascii_digit())).collect()
}

fn state(state: NodeState) -> &'static str {
    match state {
        NodeState::Unknown => "in a state unknown to this version",
        known => known.as_str(),
    }
}

fn needed(item: &Attention) -> String {
    let cause = item.cause.as_ref().map(|cause| format!(" (cause: {cause})"));
    format!("{}: {}{}", item.urgency.as_str(), item.text, cause.unwrap_or_default())
}

impl Plain {
    /// The lines for a snapshot, each with its time and without a line end.
    pub fn snapshot(&mut self, snap: &Snapshot) -> Vec<String> {
        let now = Known::of(snap);
        let mut lines = Vec::new();
        if std::mem::take(&mut self.lost) {
            lines.push("connected again".to_owned());
        }
        match &self.known {
            None => report(snap, &mut lines),
            Some(before) => changes(before, &now, snap, &mut lines),
        }
        self.known = Some(now);
        let at = text::clock(snap.at);
        lines.into_iter().map(|line| text::clean(&format!("{at}Z {line}")).into_owned()).collect()
    }

    /// The line for a lost connection; reported once per loss.
    pub fn lost(&mut self, why: &str) -> Vec<String> {
        if std::mem::replace(&mut self.lost, true) {
            return Vec::new();
        }
        vec![text::clean(&format!("connection lost: {why}")).into_owned()]
    }
}

fn report(snap: &Snapshot, lines: &mut Vec<String>) {
    let mode = if snap.readonly { "read-only" } else { "read-write" };
    let cluster = if snap.cluster.is_empty() { "?" } else { &snap.cluster };
    lines.push(format!("cluster {cluster}, answered by {} {}, {mode}", snap.host, snap.version));
    lines.push(match &snap.leadership.leader {
        Some(leader) => format!("leader {} in term {}", leader.node, leader.term),
        None => "no leader".to_owned(),
    });
    for node in &snap.nodes {
        let queued = match node.state {
            NodeState::Lost => "?".to_owned(),
            _ => text::grouped(node.queued),
        };
        lines.push(format!(
            "node {}: {}, {}, {queued} queued",
            node.name,
            state(node.state),
            counted(node.owned.into(), "partition")
        ));
    }
    for task in &snap.tasks {
        let next = match (&task.paused, task.next) {
            (Some(pause), _) => format!("paused by {}: {}", pause.by, pause.reason),
            (None, Some(next)) => format!("next {next}"),
            (None, None) => "no next run".to_owned(),
        };
        lines.push(format!(
            "task {}: {next}, {} queued, {} timers, {} retries, {} dead",
            task.name,
            text::grouped(task.depth.log),
            text::grouped(task.depth.timers),
            text::grouped(task.depth.retries),
            text::grouped(task.depth.dead),
        ));
    }
    lines.extend(needs(snap).iter().map(needed));
}

fn changes(before: &Known, now: &Known, snap: &Snapshot, lines: &mut Vec<String>) {
    if before.leader != now.leader {
        lines.push(match &now.leader {
            Some((node, term)) => format!("leader {node} in term {term}"),
            None => "no leader".to_owned(),
        });
    }
    for (name, is) in &now.nodes {
        match before.nodes.get(name) {
            None => lines.push(format!("node {name} has joined: {}", state(*is))),
            Some(was) if was != is => lines.push(format!("node {name}: {}", state(*is))),
            Some(_) => {}
        }
    }
    let gone = before.nodes.keys().filter(|name| !now.nodes.contains_key(*name));
    lines.extend(gone.map(|name| format!("node {name} has left")));
    runs(before, now, snap, lines);
    for (task, paused) in &now.paused {
        match (before.paused.get(task), paused) {
            (Some(false), true) => lines.push(format!("task {task} is paused")),
            (Some(true), false) => lines.push(format!("task {task} is resumed")),
            _ => {}
        }
    }
    for (task, dead) in &now.dead {
        let was = before.dead.get(task).copied().unwrap_or(0);
        match dead.checked_sub(was) {
            Some(0) => {}
            Some(more) => lines.push(format!("task {task}: {more} more dead letters, {dead} now")),
            None => {
                lines.push(format!("task {task}: {} fewer dead letters, {dead} now", was - dead));
            }
        }
    }
    for item in needs(snap) {
        let known = (item.subject.clone(), item.urgency, kind(&item.text));
        if !before.attention.contains(&known) {
            lines.push(needed(&item));
        }
    }
    let over = before.attention.iter().filter(|item| !now.attention.contains(item));
    for (subject, ..) in over {
        lines.push(format!("resolved: {}", about(subject)));
    }
}

fn runs(before: &Known, now: &Known, snap: &Snapshot, lines: &mut Vec<String>) {
    // In chronological order.
    for run in snap.runs.iter().rev() {
        let fresh = run.id > before.newest;
        if fresh {
            lines.push(format!("run {} of {} has started", run.id, run.task));
        }
        if !fresh && !before.active.contains_key(&run.id) {
            continue;
        }
        match run.state {
            RunState::Ok => lines.push(format!(
                "run {} of {} has ended, {} planned",
                run.id,
                run.task,
                text::grouped(run.planned)
            )),
            RunState::Failed => {
                let why = run.error.as_deref().unwrap_or("unknown reason");
                lines.push(format!("run {} of {} has failed: {why}", run.id, run.task));
            }
            RunState::Rejected | RunState::Lapsed => {
                let (id, state) = (run.id, run.state.as_str());
                lines.push(format!("the plan of run {id} of {} was {state}", run.task));
            }
            RunState::Scanning | RunState::Executing | RunState::Unknown => {}
        }
    }
    // In a busy deployment a run may have left the snapshot before its end was seen.
    let seen = |id: &u64| snap.run(*id).is_some();
    let unseen = before.active.iter().filter(|(id, _)| !now.active.contains_key(id) && !seen(id));
    lines.extend(unseen.map(|(id, task)| format!("run {id} of {task} is no longer shown")));
}

fn about(subject: &Subject) -> String {
    match subject {
        Subject::Leader => "the leadership".to_owned(),
        Subject::Tasks => "all tasks".to_owned(),
        Subject::Node(name) => format!("node {name}"),
        Subject::Task(name) => format!("task {name}"),
        Subject::Queue(name) => format!("the queue of {name}"),
        Subject::Dead(name) => format!("dead letters of {name}"),
        Subject::Run(run) => format!("run {run}"),
        Subject::Ring => "the ring".to_owned(),
        Subject::Config => "the configuration".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_samples::small;

    use super::*;

    #[test]
    fn the_first_picture_is_told_whole_and_the_same_one_not_again() {
        let mut plain = Plain::default();
        let lines = plain.snapshot(&small());
        for expected in [
            "14:03:27Z leader node-b in term 42",
            "14:03:27Z node node-e: lost, 68 partitions, ? queued",
            "14:03:27Z task gc-orphans: paused by ana: until INC-481 closes, 0 queued, 0 timers, \
             0 retries, 0 dead",
            "14:03:27Z warning: share-expiry: 1 set aside (cause: etcd: lease not found)",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
        }
        assert_eq!(plain.snapshot(&small()), Vec::<String>::new());
        let mut later = small();
        later.at.0 += 5_000_000;
        assert_eq!(plain.snapshot(&later), Vec::<String>::new(), "time alone is no change");
    }

    #[test]
    fn each_change_has_a_line() {
        type Change = fn(&mut Snapshot);
        let cases: &[(Change, &[&str])] = &[
            (
                |s| {
                    let lead = Arc::make_mut(&mut s.leadership);
                    let leader = lead.leader.as_mut().expect("there is a leader");
                    (leader.node, leader.term) = ("node-a".into(), 43);
                },
                &["leader node-a in term 43"],
            ),
            (
                |s| Arc::make_mut(&mut s.nodes[3]).state = NodeState::Active,
                &["node node-d: active", "resolved: node node-d"],
            ),
            (
                |s| {
                    let run =
                        s.runs.iter_mut().find(|run| run.id == 8_812).expect("the run is active");
                    let run = Arc::make_mut(run);
                    (run.state, run.error) = (RunState::Failed, Some("trap \x1b[31m".into()));
                },
                &["run 8812 of share-expiry has failed: trap ␛[31m"],
            ),
            (
                |s| Arc::make_mut(&mut s.tasks[6]).depth.dead = 5,
                &["task ttl-transition: 3 more dead letters, 5 now"],
            ),
            (
                |s| Arc::make_mut(&mut s.tasks[3]).paused = None,
                &["task gc-orphans is resumed", "resolved: task gc-orphans"],
            ),
        ];
        for (change, expected) in cases {
            let mut plain = Plain::default();
            plain.snapshot(&small());
            let mut next = small();
            change(&mut next);
            let lines = plain.snapshot(&next);
            let lines: Vec<&str> = lines.iter().map(|line| &line[10..]).collect();
            for line in *expected {
                assert!(lines.contains(line), "{line}: {lines:#?}");
            }
            assert_eq!(lines.len(), expected.len(), "{lines:#?}");
        }
    }

    #[test]
    fn a_lost_connection_is_told_once_and_so_is_its_return() {
        let mut plain = Plain::default();
        plain.snapshot(&small());
        assert_eq!(plain.lost("refused"), ["connection lost: refused"]);
        assert_eq!(plain.lost("refused"), Vec::<String>::new());
        assert_eq!(plain.snapshot(&small()), ["14:03:27Z connected again"]);
    }
}
