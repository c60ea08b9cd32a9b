//! The Overview: nodes, the leader, and attention items.
//!
//! Two lists take keys: the nodes and the attention list. The focus moves between them with `a`, or
//! by moving past the end of one into the other.

mod nodes;
mod timeline;
mod view;

use besom_snapshot::{Attention, Node, NodeState, Subject, Urgency};

use super::Screen;
use crate::dash::actions;
use crate::dash::bindings::{Binding, Bound, Hint};
use crate::dash::context::Context;
use crate::dash::effect::{Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::{self, Heading, Order, TableState};

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
        let nodes = nodes::rows(self, cx);
        Some(nodes[self.nodes.place(&nodes::ids(&nodes))?].node)
    }

    /// Whether the attention list takes the keys: it has the focus, or there is room for nothing
    /// else.
    fn attends(&self, cx: &Context<'_>) -> bool {
        self.focus == Focus::Attention || view::only_attention(cx.size)
    }

    /// The selected attention item, if the list takes the keys.
    fn item<'a>(&self, cx: &Context<'a>) -> Option<&'a Attention> {
        let place = self.attention.place(&attention_ids(cx.attention))?;
        self.attends(cx).then(|| &cx.attention[place])
    }

    /// Moves the focus to the other list.
    fn turn(&mut self, cx: &Context<'_>) {
        self.focus = match self.focus {
            Focus::Nodes => Focus::Attention,
            Focus::Attention => Focus::Nodes,
        };
        self.opened = None;
        self.attention.select_at(0, &attention_ids(cx.attention));
    }

    fn go_in(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        match (self.item(cx), self.node(cx)) {
            (Some(item), _) => out.go(item.subject.clone()),
            (None, Some(node)) if !self.attends(cx) => self.opened = Some(node.name.clone()),
            (None, _) => {}
        }
    }

    fn copy(&self, cx: &Context<'_>, out: &mut Outbox) {
        match (self.item(cx), self.node(cx)) {
            (Some(item), _) => {
                let cause = item.cause.as_ref().map(|cause| format!(" ({cause})"));
                out.copy(format!("{}{}", item.text, cause.unwrap_or_default()));
            }
            (None, Some(node)) if !self.attends(cx) => out.copy(node.name.clone()),
            (None, _) => {}
        }
    }

    /// Moves the selection among the nodes, and beyond the last one to the attention list.
    fn step_nodes(&mut self, key: Key, cx: &Context<'_>) -> bool {
        let ids = nodes::ids(&nodes::rows(self, cx));
        let last = self.nodes.place(&ids).is_none_or(|place| place + 1 == ids.len());
        let down = matches!(key.code, Code::Char('j') | Code::Down);
        if last && down && !cx.attention.is_empty() && self.opened.is_none() {
            self.focus = Focus::Attention;
            self.attention.select_at(0, &attention_ids(cx.attention));
            return true;
        }
        let moved = self.nodes.key(key, &ids);
        if moved && self.opened.is_some() {
            self.opened = self.nodes.id(&ids).cloned();
        }
        moved
    }

    /// Moves the selection in the attention list, and before its first item to the nodes.
    fn step_attention(&mut self, key: Key, cx: &Context<'_>) -> bool {
        let ids = attention_ids(cx.attention);
        let up = matches!(key.code, Code::Char('k') | Code::Up);
        if up && self.attention.place(&ids).is_none_or(|place| place == 0) {
            self.focus = Focus::Nodes;
            return true;
        }
        self.attention.key(key, &ids)
    }
}

type Bind = Binding<OverviewScreen>;

impl Bound for OverviewScreen {
    const BINDINGS: &'static [Bind] = &[
        Bind::new("⏎", "open", &[Code::Enter], |screen, _, cx, out| screen.go_in(cx, out)),
        Bind::new("a", "nodes", &[Code::Char('a')], |screen, _, cx, _| screen.turn(cx))
            .when(OverviewScreen::attends),
        Bind::new("a", "attention", &[Code::Char('a')], |screen, _, cx, _| screen.turn(cx))
            .when(|screen, cx| !screen.attends(cx)),
        Bind::new("y", "copy", &[Code::Char('y')], |screen, _, cx, out| screen.copy(cx, out))
            .when(OverviewScreen::attends),
        Bind::new("d", "drain", &[Code::Char('d')], |screen, _, cx, out| {
            let Some(node) = screen.node(cx) else { return };
            match node.state {
                NodeState::Active | NodeState::Joining => out.confirm(actions::drain(&node.name)),
                _ => out.say(Tone::Info, format!("{} cannot be drained in its state", node.name)),
            }
        })
        .when(|screen, cx| !screen.attends(cx))
        .changes(),
        Bind::new("r", "rejoin", &[Code::Char('r')], |screen, _, cx, out| {
            let Some(node) = screen.node(cx) else { return };
            match node.state {
                NodeState::Draining => out.confirm(actions::rejoin(&node.name)),
                _ => out.say(Tone::Info, format!("{} is not draining", node.name)),
            }
        })
        .when(|screen, cx| !screen.attends(cx))
        .changes(),
        Bind::new("L", "resign leader", &[Code::Char('L')], |_, _, cx, out| {
            match &cx.snap.leadership.leader {
                Some(leader) => out.confirm(actions::resign(&leader.node, leader.term)),
                None => out.say(Tone::Info, "there is no leader"),
            }
        })
        .changes(),
        Bind::shown("s", "sort").when(|screen, cx| !screen.attends(cx)),
        Bind::new("y", "copy", &[Code::Char('y')], |screen, _, cx, out| screen.copy(cx, out))
            .when(|screen, cx| !screen.attends(cx)),
        Bind::hidden(&[Code::Esc], |screen, _, _, _| screen.opened = None)
            .when(|screen, cx| !screen.attends(cx) && screen.opened.is_some()),
        Bind::hidden(&[Code::Esc], |screen, _, _, _| screen.focus = Focus::Nodes)
            .when(|screen, cx| screen.item(cx).is_some()),
    ];
}

impl Screen for OverviewScreen {
    fn step(&mut self, key: Key, cx: &Context<'_>, _out: &mut Outbox) -> bool {
        match self.attends(cx) {
            true => self.step_attention(key, cx),
            false => self.step_nodes(key, cx),
        }
    }

    fn refresh(&mut self, cx: &Context<'_>, _out: &mut Outbox) {
        self.nodes.settle(&nodes::ids(&nodes::rows(self, cx)));
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

    fn headings(&self) -> Vec<Heading> {
        table::headings(&nodes::Row::COLUMNS)
    }

    fn order(&mut self) -> Option<&mut Order> {
        Some(&mut self.nodes.order)
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, _out: &mut Outbox) {
        let ids = nodes::ids(&nodes::rows(self, cx));
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
}
