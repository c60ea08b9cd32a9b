//! Recent events: from the stored books as far as they contain them, and otherwise from the
//! differences between consecutive snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::time::Time;
use besom_snapshot::{EVENTS_MAX, Event, EventKind, NodeState, RunState, Snapshot, of_code};

use super::reading::Reading;
use besom_ports::store::{Command, CommandRow, NodeRow, Role};

#[cfg(test)]
mod tests;

/// One minute, in microseconds. Dead letters of one minute are combined into one event.
const MINUTE_US: i64 = 60_000_000;

/// The newest events. Events from the books are the same on every host and survive a restart;
/// events from differences are known only while the deployment was being observed.
#[derive(Debug, Default)]
pub struct Events {
    /// By subject: a term, a run, a command, an incarnation.
    known: BTreeMap<String, Known>,
    /// Whether there was an earlier snapshot.
    begun: bool,
}

#[derive(Debug)]
struct Known {
    event: Arc<Event>,
    /// Of two events about the same subject, the one with the higher weight is kept.
    weight: u64,
}

impl Events {
    /// The events, newest first.
    pub fn newest(&self) -> Vec<Arc<Event>> {
        let mut newest: Vec<_> =
            self.known.iter().map(|(key, known)| (&known.event, key)).collect();
        newest.sort_by(|(a, a_key), (b, b_key)| b.at.cmp(&a.at).then(b_key.cmp(a_key)));
        newest.into_iter().map(|(event, _)| Arc::clone(event)).collect()
    }

    /// Records the events of the books and the differences.
    pub fn look(&mut self, before: &Snapshot, now: &Snapshot, reading: &Reading) {
        if self.begun {
            self.nobody_leads(before, now);
            self.nodes(before, now);
        }
        self.begun = true;
        self.terms(now);
        self.incarnations(now, reading);
        self.runs(now);
        self.commands(&reading.commands);
        self.dead(reading);
        self.forget();
    }

    fn tell(&mut self, key: String, weight: u64, event: Event) {
        match self.known.get_mut(&key) {
            Some(known) if known.weight > weight || *known.event == event => {}
            Some(known) => *known = Known { event: Arc::new(event), weight },
            None => drop(self.known.insert(key, Known { event: Arc::new(event), weight })),
        }
    }

    /// Removes the oldest events if there are too many.
    fn forget(&mut self) {
        let over = self.known.len().saturating_sub(EVENTS_MAX);
        if over == 0 {
            return;
        }
        let mut times: Vec<(Time, String)> =
            self.known.iter().map(|(key, known)| (known.event.at, key.clone())).collect();
        times.sort_unstable();
        for (_, key) in times.into_iter().take(over) {
            self.known.remove(&key);
        }
    }

    /// The beginning of each leadership, with the previous leader.
    fn terms(&mut self, now: &Snapshot) {
        let terms = &now.leadership.terms;
        for (at, term) in terms.iter().enumerate() {
            let before = terms.get(at + 1).filter(|before| before.node != term.node);
            let from = before.map(|before| format!("{} → ", before.node)).unwrap_or_default();
            let text = format!("{from}{} leads under term {}", term.node, term.term);
            // The oldest term that was read may have had a predecessor.
            let weight = u64::from(at + 1 < terms.len());
            let event = event(term.since, EventKind::Leader, &term.node, text);
            self.tell(format!("term {:020}", term.term), weight, event);
        }
    }

    /// The end of a leadership without a successor: the books contain only beginnings.
    fn nobody_leads(&mut self, before: &Snapshot, now: &Snapshot) {
        let (Some(led), None) = (&before.leadership.leader, &now.leadership.leader) else { return };
        if now.leadership.fault.is_none() {
            let text =
                format!("{} no longer leads (term {}); there is no leader", led.node, led.term);
            let event = event(now.at, EventKind::Leader, &led.node, text);
            self.tell(format!("term {:020} ends", led.term), 0, event);
        }
    }

    /// Starts, ends and losses of nodes, from the rows that each incarnation has left in the store.
    fn incarnations(&mut self, now: &Snapshot, reading: &Reading) {
        let mut rows: Vec<(Time, &NodeRow)> = reading
            .nodes
            .iter()
            .filter_map(|row| Some((row.report.as_ref()?.started_at, row)))
            .collect();
        rows.sort_by_key(|(started, row)| (row.node.node_name().to_owned(), *started));
        for (at, (started, row)) in rows.iter().enumerate() {
            let name = row.node.node_name();
            let of_node = |other: &&(Time, &NodeRow)| other.1.node.node_name() == name;
            let earlier = at.checked_sub(1).and_then(|at| rows.get(at)).filter(of_node);
            let later = rows.get(at + 1).filter(of_node);
            let text = match earlier {
                None => "has started",
                Some((_, earlier)) if earlier.state == Role::Stopped => "was restarted",
                Some(_) => "is back",
            };
            let key = |what| format!("node {} {what}", row.node);
            let of = |at, text: &str| event(at, EventKind::Node, name, text);
            self.tell(key("begins"), 1, of(*started, text));
            if row.state == Role::Stopped {
                self.tell(key("ends"), 1, of(row.seen_at, "has left"));
            } else if later.is_some() {
                self.tell(key("ends"), 1, of(row.seen_at, "is lost"));
            }
        }
        for node in now.nodes.iter().filter(|node| node.state == NodeState::Lost) {
            let event = event(node.seen_at, EventKind::Node, &node.name, "is lost");
            self.tell(format!("node {} ends", node.incarnation), 0, event);
        }
    }

    fn runs(&mut self, now: &Snapshot) {
        for run in now.runs.iter().filter(|run| run.state == RunState::Failed) {
            let error = run.error.as_deref().unwrap_or_default().lines().next().unwrap_or_default();
            let at = run.ended_at.unwrap_or(run.started_at);
            let text = format!("run {} failed: {error}", run.id);
            self.tell(format!("run {}", run.id), 0, event(at, EventKind::Run, &run.task, text));
        }
    }

    fn commands(&mut self, rows: &[CommandRow]) {
        for row in rows.iter().filter(|row| row.applied_at.is_some()) {
            let result = row.result.as_deref().unwrap_or("applied");
            let refused = if row.refused { "refused, " } else { "" };
            let why =
                if row.reason.is_empty() { String::new() } else { format!(" ({})", row.reason) };
            // For actions that have already taken effect, the record itself is the result.
            let words = match &row.command {
                Command::Edited { change, .. } => format!("edited: {change}"),
                Command::Loaded { digest, .. } => {
                    format!("plugin loaded: {}", digest.get(..12).unwrap_or(digest))
                }
                Command::Reloaded { change, .. } => format!("reloaded: {change}"),
                Command::Imported { documents, .. } => format!("imported: {documents}"),
                Command::Drained { .. } => "drained".to_owned(),
                Command::Rejoined { .. } => "rejoined".to_owned(),
                command => format!("{}: {refused}{result}", command.verb()),
            };
            let event = Event {
                at: row.applied_at.unwrap_or(row.at),
                kind: EventKind::Command,
                subject: row.command.subject(),
                text: format!("{words}{why}"),
                by: Some(row.by.clone()),
            };
            self.tell(format!("command {:020}", row.id), 0, event);
        }
    }

    /// Open dead letters; those with the same error within one minute are combined.
    fn dead(&mut self, reading: &Reading) {
        let mut groups: BTreeMap<(i64, &str, &str), (u64, Time)> = BTreeMap::new();
        for letter in &reading.letters {
            let minute = letter.at.0.div_euclid(MINUTE_US);
            let group = groups.entry((minute, &letter.task, &letter.error));
            let (count, newest) = group.or_insert((0, letter.at));
            *count += 1;
            *newest = (*newest).max(letter.at);
        }
        for ((minute, task, error), (count, at)) in groups {
            let text = format!("{count} set aside: {error}");
            let event = event(at, EventKind::Dead, task, text);
            self.tell(format!("dead {minute} {task} {error}"), count, event);
        }
    }
}

fn event(at: Time, kind: EventKind, subject: &str, text: impl Into<String>) -> Event {
    Event { at, kind, subject: subject.to_owned(), text: text.into(), by: None }
}

impl Events {
    /// Changes that only a difference shows, because the store keeps the current state of a node
    /// only.
    fn nodes(&mut self, before: &Snapshot, now: &Snapshot) {
        for node in &now.nodes {
            let Some(old) = before.node(&node.name) else { continue };
            let same = old.incarnation == node.incarnation;
            let text = match (old.state, node.state) {
                (then, is) if then == is => None,
                (_, NodeState::Joining) => Some("joins"),
                (NodeState::Lost, NodeState::Active) => same.then_some("is back"),
                (_, NodeState::Active) => Some("takes its share"),
                (_, NodeState::Draining) => Some("drains"),
                (_, NodeState::Lost | NodeState::Unknown) => None,
            };
            if let Some(text) = text {
                let event = event(now.at, EventKind::Node, &node.name, text);
                self.tell(format!("node {} {} {text}", node.incarnation, now.at.0), 0, event);
            }
            if old.config_digest != node.config_digest && !old.config_digest.is_empty() {
                let short: String = node.config_digest.chars().take(8).collect();
                let text = format!("uses a different configuration ({short})");
                let event = event(now.at, EventKind::Config, &node.name, text);
                self.tell(format!("config {} {}", node.name, now.at.0), 0, event);
            }
            let fault = |node: &besom_snapshot::Node| {
                node.report.as_ref().and_then(|report| report.config_fault.clone())
            };
            if let Some(fault) = fault(node).filter(|new| fault(old).as_ref() != Some(new)) {
                let of_plugins = of_code(&fault);
                let line = of_plugins.unwrap_or(&fault).lines().next().unwrap_or_default();
                let what = match of_plugins {
                    Some(_) => "the code of plugins whose files are refused",
                    None => "its old configuration",
                };
                let text = format!("keeps {what}: {line}");
                let event = event(now.at, EventKind::Config, &node.name, text);
                self.tell(format!("fault {} {}", node.name, now.at.0), 0, event);
            }
        }
        for old in &before.nodes {
            if now.node(&old.name).is_none() && old.state != NodeState::Lost {
                let event = event(now.at, EventKind::Node, &old.name, "has left");
                self.tell(format!("node {} ends", old.incarnation), 0, event);
            }
        }
    }
}
