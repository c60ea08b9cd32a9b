//! What has happened, told by what differs from one picture to the next.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use besom_core::snapshot::{EVENTS_MAX, Event, EventKind, NodeState, RunState, Snapshot};
use besom_core::time::Time;

use super::reading::Reading;
use crate::ports::store::CommandRow;

#[cfg(test)]
mod tests;

/// The newest events, newest last.
#[derive(Debug, Default)]
pub struct Events {
    known: VecDeque<Arc<Event>>,
    /// Whether there was a picture before.
    begun: bool,
    /// The commands that are told of, as far back as they are still read: one may be applied
    /// after one that was asked for later.
    told: BTreeSet<u64>,
}

impl Events {
    /// Newest first.
    pub fn newest(&self) -> Vec<Arc<Event>> {
        self.known.iter().rev().cloned().collect()
    }

    /// Notes what is different.
    pub fn look(&mut self, before: &Snapshot, now: &Snapshot, reading: &Reading) {
        let mut found = Vec::new();
        if self.begun {
            leader(before, now, &mut found);
            nodes(before, now, &mut found);
            dead(before, now, &mut found);
        } else {
            past(now, &mut found);
        }
        runs(before, now, self.begun, &mut found);
        self.commands(&reading.commands, &mut found);
        self.begun = true;
        found.sort_by_key(|event| event.at);
        for event in found {
            // What is older than the newest known one is put where it belongs.
            let at = self.known.partition_point(|known| known.at <= event.at);
            self.known.insert(at, Arc::new(event));
        }
        while self.known.len() > EVENTS_MAX {
            self.known.pop_front();
        }
    }

    fn commands(&mut self, rows: &[CommandRow], found: &mut Vec<Event>) {
        if let Some(oldest) = rows.last().map(|row| row.id) {
            self.told = self.told.split_off(&oldest);
        }
        for row in rows.iter().rev().filter(|row| row.applied_at.is_some()) {
            if !self.told.insert(row.id) {
                continue;
            }
            let result = row.result.as_deref().unwrap_or("applied");
            let refused = if row.refused { "refused, " } else { "" };
            let why =
                if row.reason.is_empty() { String::new() } else { format!(" ({})", row.reason) };
            found.push(Event {
                at: row.applied_at.unwrap_or(row.at),
                kind: EventKind::Command,
                subject: row.command.subject(),
                text: format!("{}: {refused}{result}{why}", row.command.verb()),
                by: Some(row.by.clone()),
            });
        }
    }
}

fn event(at: Time, kind: EventKind, subject: &str, text: impl Into<String>) -> Event {
    Event { at, kind, subject: subject.to_owned(), text: text.into(), by: None }
}

fn leader(before: &Snapshot, now: &Snapshot, found: &mut Vec<Event>) {
    let (then, leads) = (&before.leadership.leader, &now.leadership.leader);
    let of = |leader: &Option<besom_core::snapshot::Leader>| {
        leader.as_ref().map(|leader| (leader.term, leader.node.clone()))
    };
    match (of(then), of(leads)) {
        (then, now) if then == now => {}
        (from, Some((term, node))) => {
            let from = from.filter(|(_, old)| *old != node);
            let from = from.map(|(_, old)| format!("{old} → ")).unwrap_or_default();
            let text = format!("{from}{node} leads under term {term}");
            found.push(event(now.at, EventKind::Leader, &node, text));
        }
        (Some((term, node)), None) if now.leadership.fault.is_none() => {
            let text = format!("{node} leads no more (term {term}); nobody does");
            found.push(event(now.at, EventKind::Leader, &node, text));
        }
        (_, None) => {}
    }
}

fn nodes(before: &Snapshot, now: &Snapshot, found: &mut Vec<Event>) {
    for node in &now.nodes {
        let old = before.node(&node.name);
        let text = match (old.map(|old| old.state), node.state) {
            (None, NodeState::Lost) => continue,
            (None, _) => "is there".to_owned(),
            (Some(then), is) if then != is => match is {
                NodeState::Joining => "joins".to_owned(),
                NodeState::Active if then == NodeState::Lost => "is back".to_owned(),
                NodeState::Active => "takes its share".to_owned(),
                NodeState::Draining => "drains".to_owned(),
                NodeState::Lost => "is lost".to_owned(),
                NodeState::Unknown => continue,
            },
            _ => String::new(),
        };
        if !text.is_empty() {
            found.push(event(now.at, EventKind::Node, &node.name, text));
        }
        let Some(old) = old else { continue };
        if old.incarnation != node.incarnation && old.state == node.state {
            found.push(event(now.at, EventKind::Node, &node.name, "was started anew"));
        }
        if old.config_digest != node.config_digest && !old.config_digest.is_empty() {
            let short: String = node.config_digest.chars().take(8).collect();
            let text = format!("works by another configuration ({short})");
            found.push(event(now.at, EventKind::Config, &node.name, text));
        }
        let fault = |node: &besom_core::snapshot::Node| {
            node.report.as_ref().and_then(|report| report.config_fault.clone())
        };
        if let Some(fault) = fault(node).filter(|new| fault(old).as_ref() != Some(new)) {
            let line = fault.lines().next().unwrap_or_default();
            let text = format!("keeps its old configuration: {line}");
            found.push(event(now.at, EventKind::Config, &node.name, text));
        }
    }
    for old in &before.nodes {
        if now.node(&old.name).is_none() && old.state != NodeState::Lost {
            found.push(event(now.at, EventKind::Node, &old.name, "has left"));
        }
    }
}

fn runs(before: &Snapshot, now: &Snapshot, begun: bool, found: &mut Vec<Event>) {
    for run in now.runs.iter().filter(|run| run.state == RunState::Failed) {
        let known = before.run(run.id).is_some_and(|old| old.state == RunState::Failed);
        let older = begun && before.runs.last().is_some_and(|oldest| run.id < oldest.id);
        if !known && !older {
            let error = run.error.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
            let at = run.ended_at.unwrap_or(now.at);
            let text = format!("run {} failed: {error}", run.id);
            found.push(event(at, EventKind::Run, &run.task, text));
        }
    }
}

fn dead(before: &Snapshot, now: &Snapshot, found: &mut Vec<Event>) {
    for task in &now.tasks {
        let then = before.task(&task.name).map_or(0, |task| task.depth.dead);
        let more = task.depth.dead.saturating_sub(then);
        if more > 0 && before.task(&task.name).is_some() {
            let newest = now.dead.iter().find(|group| group.task == task.name);
            let why = newest.map(|group| format!(": {}", group.error)).unwrap_or_default();
            let text = format!("{more} set aside{why}");
            found.push(event(now.at, EventKind::Dead, &task.name, text));
        }
    }
}

/// What the first picture tells of earlier.
fn past(now: &Snapshot, found: &mut Vec<Event>) {
    for term in &now.leadership.terms {
        let text = format!("{} leads under term {}", term.node, term.term);
        found.push(event(term.since, EventKind::Leader, &term.node, text));
    }
}
