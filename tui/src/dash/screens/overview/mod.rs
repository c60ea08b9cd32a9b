//! The Overview: nodes, the leader, and attention items.
//!
//! Two lists take keys: the nodes and the attention list. The focus moves between them with `a`, or
//! by moving past the end of one into the other.

mod nodes;
mod timeline;
mod view;

use besom_core::snapshot::{Attention, Node, NodeState, Subject, Urgency};

use super::{Hint, Screen};
use crate::dash::actions;
use crate::dash::context::Context;
use crate::dash::effect::{Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::TableState;

pub use nodes::{Health, health};

/// The list that has the focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    /// The nodes.
    #[default]
    Nodes,
    /// The attention list.
    Attention,
}

/// Identifies an attention item: its subject, its urgency, and how many equal ones directly precede
/// it. Its text changes every second.
type AttentionId = (Subject, Urgency, usize);

/// The Overview screen.
#[derive(Debug)]
pub struct OverviewScreen {
    /// The list that has the focus.
    pub focus: Focus,
    nodes: TableState<String>,
    attention: TableState<AttentionId>,
    /// The node whose details are open.
    opened: Option<String>,
    filter: String,
}

impl Default for OverviewScreen {
    fn default() -> OverviewScreen {
        OverviewScreen {
            focus: Focus::Nodes,
            nodes: TableState::unsorted(),
            attention: TableState::unsorted(),
            opened: None,
            filter: String::new(),
        }
    }
}

fn attention_ids(items: &[Attention]) -> Vec<AttentionId> {
    let mut ids: Vec<AttentionId> = Vec::with_capacity(items.len());
    for item in items {
        let before = ids
            .last()
            .filter(|(subject, urgency, _)| *subject == item.subject && *urgency == item.urgency);
        let n = before.map_or(0, |(_, _, n)| n + 1);
        ids.push((item.subject.clone(), item.urgency, n));
    }
    ids
}

impl OverviewScreen {
    /// The selected node.
    fn node<'a>(&self, cx: &Context<'a>) -> Option<&'a Node> {
        let order = nodes::order(self, cx);
        let ids = nodes::ids(cx, &order);
        let place = self.nodes.place(&ids)?;
        cx.snap.nodes.get(order[place]).map(|node| &**node)
    }

    /// Handles a key while the nodes have the focus.
    fn node_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let ids = nodes::ids(cx, &nodes::order(self, cx));
        let last = self.nodes.place(&ids).is_none_or(|place| place + 1 == ids.len());
        let down = matches!(key.code, Code::Char('j') | Code::Down);
        if last && down && !cx.attention.is_empty() && self.opened.is_none() {
            self.focus = Focus::Attention;
            let ids = attention_ids(cx.attention);
            self.attention.select_at(0, &ids);
            return true;
        }
        if self.nodes.key(key, &ids) {
            if self.opened.is_some() {
                self.opened = self.nodes.id(&ids).cloned();
            }
            return true;
        }
        let Some(node) = self.node(cx) else { return false };
        match key.code {
            Code::Enter => self.opened = Some(node.name.clone()),
            Code::Esc if self.opened.is_some() => self.opened = None,
            Code::Char('d') => match node.state {
                NodeState::Active | NodeState::Joining => out.confirm(actions::drain(&node.name)),
                _ => out.say(Tone::Info, format!("{} cannot be drained in its state", node.name)),
            },
            Code::Char('r') => match node.state {
                NodeState::Draining => out.confirm(actions::rejoin(&node.name)),
                _ => out.say(Tone::Info, format!("{} is not draining", node.name)),
            },
            Code::Char('y') => out.copy(node.name.clone()),
            _ => return false,
        }
        true
    }

    /// Handles a key while the attention list has the focus.
    fn attention_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let ids = attention_ids(cx.attention);
        let place = self.attention.place(&ids);
        let up = matches!(key.code, Code::Char('k') | Code::Up);
        if up && place.is_none_or(|place| place == 0) {
            self.focus = Focus::Nodes;
            return true;
        }
        if self.attention.key(key, &ids) {
            return true;
        }
        let Some(item) = place.map(|place| &cx.attention[place]) else { return false };
        match key.code {
            Code::Enter => out.go(item.subject.clone()),
            Code::Esc => self.focus = Focus::Nodes,
            Code::Char('y') => {
                let cause = item.cause.as_ref().map(|cause| format!(" ({cause})"));
                out.copy(format!("{}{}", item.text, cause.unwrap_or_default()));
            }
            _ => return false,
        }
        true
    }
}

impl Screen for OverviewScreen {
    fn key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        if key.ctrl || key.alt {
            return false;
        }
        match key.code {
            Code::Char('a') => {
                self.focus = match self.focus {
                    Focus::Nodes => Focus::Attention,
                    Focus::Attention => Focus::Nodes,
                };
                self.opened = None;
                self.attention.select_at(0, &attention_ids(cx.attention));
                return true;
            }
            Code::Char('L') => {
                match &cx.snap.leadership.leader {
                    Some(leader) => out.confirm(actions::resign(&leader.node, leader.term)),
                    None => out.say(Tone::Info, "there is no leader"),
                }
                return true;
            }
            Code::Char('s') => {
                self.nodes.sort_next(nodes::COLUMNS.len());
                return true;
            }
            Code::Char('S') => {
                self.nodes.descending = !self.nodes.descending;
                return true;
            }
            _ => {}
        }
        // If there is room for only one list, it is the attention list.
        match view::only_attention(cx.size) {
            true => self.attention_key(key, cx, out),
            false if self.focus == Focus::Attention => self.attention_key(key, cx, out),
            false => self.node_key(key, cx, out),
        }
    }

    fn refresh(&mut self, cx: &Context<'_>, _out: &mut Outbox) {
        self.nodes.settle(&nodes::ids(cx, &nodes::order(self, cx)));
        self.attention.settle(&attention_ids(cx.attention));
    }

    fn open(&mut self, subject: &Subject, _cx: &Context<'_>, _out: &mut Outbox) {
        match subject {
            Subject::Node(name) => {
                self.filter.clear();
                self.focus = Focus::Nodes;
                self.nodes.select(name.clone());
                self.opened = Some(name.clone());
            }
            Subject::Leader => self.focus = Focus::Nodes,
            _ => {}
        }
    }

    fn depth(&self) -> usize {
        usize::from(self.opened.is_some()) + usize::from(self.focus == Focus::Attention)
    }

    fn leave(&mut self) {
        self.opened = None;
    }

    fn filter(&self) -> &str {
        &self.filter
    }

    fn set_filter(&mut self, filter: &str, _cx: &Context<'_>) {
        filter.clone_into(&mut self.filter);
    }

    fn columns(&self) -> Vec<&'static str> {
        nodes::COLUMNS.iter().map(|column| column.name).collect()
    }

    fn sort(&mut self, column: usize) {
        self.nodes.sort_by(column, false);
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, _out: &mut Outbox) {
        let ids = nodes::ids(cx, &nodes::order(self, cx));
        if self.nodes.click(x, y, &ids) {
            self.focus = Focus::Nodes;
        } else if self.attention.click(x, y, &attention_ids(cx.attention)) {
            self.focus = Focus::Attention;
        }
    }

    fn words(&self) -> &'static [Hint] {
        &[
            ("HEARTBEAT", "age of the node's last report"),
            ("OWN%", "its percentage of all partitions"),
            ("QUEUED", "items waiting in its partitions"),
            ("RUN", "items it is executing now"),
            ("p50 p99", "batch start to commit, items of the last 15 minutes"),
            ("ITEMS 15m", "items done, 75 s per character"),
            ("★", "leader"),
            ("lease", "time left until another node may lead"),
            ("term", "number of the leadership; it only increases"),
            ("set aside", "failed permanently: a dead letter"),
        ]
    }

    fn hints(&self, cx: &Context<'_>) -> Vec<Hint> {
        if self.focus == Focus::Attention || view::only_attention(cx.size) {
            return vec![("⏎", "open"), ("a", "nodes"), ("y", "copy"), ("L", "resign leader")];
        }
        if cx.readonly {
            return vec![("⏎", "open"), ("a", "attention"), ("s", "sort"), ("y", "copy")];
        }
        vec![
            ("⏎", "open"),
            ("a", "attention"),
            ("d", "drain"),
            ("r", "rejoin"),
            ("L", "resign leader"),
            ("s", "sort"),
            ("y", "copy"),
        ]
    }
}
