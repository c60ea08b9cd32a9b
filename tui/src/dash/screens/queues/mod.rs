//! The Queues screen: waiting items and dead letters.
//!
//! ```text
//!  queues <── d, or past the end ──> groups of dead letters ── ⏎ ──> letters ── ⏎ ──> one of them
//!                                                           <─ esc ─         <─ esc ─
//! ```

mod depth;
mod keys;
mod letters;
mod view;

use besom_snapshot::{Answer, DeadGroup, Subject};

use super::Screen;
use crate::dash::actions;
use crate::dash::bindings::Hint;
use crate::dash::context::Context;
use crate::dash::effect::{Outbox, Tone};
use crate::dash::key::Key;
use crate::dash::table::{
    self, Column, Emphasis, Heading, Order, SortKey, TableState, Width, plain,
};
use crate::dash::text;
use depth::Row;
use letters::Letters;

type Col = Column<DeadGroup>;

/// The columns of the groups of dead letters.
const GROUPS: &[Col] = &[
    Col::left("ERROR", Width::Fill(20), 0, |group, _| (group.error.clone(), Emphasis::Warn))
        .by(|group, _| SortKey::Text(&group.error)),
    Col::right("COUNT", Width::Fixed(6), 0, |group, _| plain(text::count(group.count)))
        .by(|group, _| SortKey::Number(group.count as f64)),
    Col::right("FIRST", Width::Fixed(8), 3, |group, _| plain(text::clock(group.first)))
        .by(|group, _| SortKey::Number(group.first.0 as f64)),
    Col::right("LAST", Width::Fixed(8), 1, |group, _| plain(text::clock(group.last)))
        .by(|group, _| SortKey::Number(group.last.0 as f64)),
    Col::left("TASK", Width::Fixed(16), 2, |group, _| plain(&group.task))
        .by(|group, _| SortKey::Text(&group.task)),
];

/// The part that has the focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Focus {
    /// The queues.
    #[default]
    Queues,
    /// The dead letters: their groups, or the letters of one.
    Dead,
}

/// What a row of the queues stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum By {
    /// Tasks.
    #[default]
    Task,
    /// Nodes.
    Node,
}

/// Identifies a group: its task, and its error exactly.
type GroupId = (String, String);

/// The Queues screen.
#[derive(Debug)]
pub struct QueuesScreen {
    /// The part that has the focus.
    pub focus: Focus,
    /// What a row stands for.
    pub by: By,
    queues: TableState<String>,
    groups: TableState<GroupId>,
    letters: Option<Letters>,
    /// Why all letters of a group are being fetched: to be discarded or exported.
    fetching: Option<Fetching>,
    filter: String,
    groups_filter: String,
}

/// What happens once all letters of a group have been fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fetching {
    Discard,
    Export,
}

impl Default for QueuesScreen {
    fn default() -> QueuesScreen {
        QueuesScreen {
            focus: Focus::Queues,
            by: By::Task,
            queues: TableState::sorted(Row::READY, true),
            groups: TableState::unsorted(),
            letters: None,
            fetching: None,
            filter: String::new(),
            groups_filter: String::new(),
        }
    }
}

/// The table that receives the keys, the filter and the order.
enum Pane {
    Queues,
    Groups,
    Letters,
}

impl QueuesScreen {
    fn rows<'a>(&self, cx: &Context<'a>) -> Vec<Row<'a>> {
        let rows = match self.by {
            By::Task => depth::by_task(cx),
            By::Node => depth::by_node(cx),
        };
        let passes = |row: &Row<'_>| text::passes(&self.filter, [row.name]);
        let rows = rows.into_iter().filter(passes).collect();
        self.queues.order.arrange(&Row::COLUMNS, rows, cx)
    }

    /// The names of the rows.
    fn names(&self, cx: &Context<'_>) -> Vec<String> {
        self.rows(cx).iter().map(|row| row.name.to_owned()).collect()
    }

    fn pane(&self) -> Pane {
        match (self.focus, &self.letters) {
            (Focus::Queues, _) => Pane::Queues,
            (Focus::Dead, None) => Pane::Groups,
            (Focus::Dead, Some(_)) => Pane::Letters,
        }
    }

    fn groups<'a>(&self, cx: &Context<'a>) -> Vec<&'a DeadGroup> {
        let passes =
            |group: &&DeadGroup| text::passes(&self.groups_filter, [&*group.task, &group.error]);
        let groups = cx.snap.dead.iter().map(|group| &**group).filter(passes).collect();
        self.groups.order.arrange(GROUPS, groups, cx)
    }

    /// The current state of the group whose letters are open.
    fn opened<'a>(&self, cx: &Context<'a>) -> Option<&'a DeadGroup> {
        let letters = self.letters.as_ref()?;
        cx.snap.dead.iter().map(|group| &**group).find(|group| letters.is_of(group))
    }

    /// Fetches all letters of a group for an action.
    fn fetch(&mut self, what: Fetching, group: &DeadGroup, cx: &Context<'_>, out: &mut Outbox) {
        if what == Fetching::Discard && cx.readonly {
            out.say(Tone::Bad, "read-only: this dashboard cannot change anything");
            return;
        }
        if !self.letters.as_ref().is_some_and(|letters| letters.is_of(group)) {
            self.letters = Some(Letters::of(group, cx.now, out));
        }
        self.fetching = Some(what);
        out.say(Tone::Info, format!("fetching {} dead letters", group.count));
        self.fetched(cx, out);
    }

    /// Requests the next page, or performs the action once all letters are here.
    fn fetched(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let (Some(what), Some(letters)) = (self.fetching, &mut self.letters) else { return };
        if !letters.complete() {
            letters.next_page(cx.now, out);
            return;
        }
        self.fetching = None;
        let name = letters::file_name(letters.of.as_ref().map_or("all", |(task, _)| task));
        let text = letters::json(&letters.list);
        let held = letters.list.len() as u64;
        let Some(group) = self.opened(cx) else { return };
        match what {
            Fetching::Export => {
                out.say(Tone::Info, format!("{held} of {} dead letters", group.count));
                out.export(name, text);
            }
            Fetching::Discard => {
                let about =
                    format!("All dead letters of {} with the error: {}", group.task, group.error);
                let mut confirm =
                    actions::discard(&selector(group), group.count, &about).exporting(name, text);
                if held < group.count {
                    confirm =
                        confirm.line(format!("The export contains the newest {held} of them."));
                }
                out.confirm(confirm);
            }
        }
    }
}

fn selector(group: &DeadGroup) -> actions::Letters {
    actions::Letters::Group { task: group.task.clone(), error: group.error.clone() }
}

fn group_ids(groups: &[&DeadGroup]) -> Vec<GroupId> {
    groups.iter().map(|group| (group.task.clone(), group.error.clone())).collect()
}

impl Screen for QueuesScreen {
    fn step(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        match self.pane() {
            Pane::Queues => self.step_queues(key, cx),
            Pane::Groups => self.step_groups(key, cx),
            Pane::Letters => self.step_letters(key, cx, out),
        }
    }

    fn answer(&mut self, ticket: u64, answer: &Answer, cx: &Context<'_>, out: &mut Outbox) {
        let Some(letters) = &mut self.letters else { return };
        match answer {
            Answer::Dead(page) => {
                let taken = letters.take(ticket, Some(page), cx);
                if taken {
                    letters.go_on(cx.now, out);
                    self.fetched(cx, out);
                }
            }
            Answer::Refused(_) => {
                let taken = letters.take(ticket, None, cx);
                if taken {
                    self.fetching = None;
                }
            }
            // Something has changed: the remaining letters are requested.
            Answer::Done(done) if done.applied && !letters.waits() => letters.reload(cx.now, out),
            _ => {}
        }
    }

    fn refresh(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let ids = self.names(cx);
        self.queues.settle(&ids);
        let groups = self.groups(cx);
        self.groups.hold(&group_ids(&groups));
        let all = self.letters.as_ref().is_some_and(|letters| letters.of.is_none());
        let opened = match all {
            true => Some(cx.snap.dead_letters()),
            false => self.opened(cx).map(|group| group.count),
        };
        match (&mut self.letters, opened) {
            (Some(letters), Some(count)) if cx.live => letters.follow(count, cx.now, out),
            // All of them were retried or discarded.
            (Some(_), None) if cx.live => self.letters = None,
            _ => {}
        }
    }

    fn open(&mut self, subject: &Subject, cx: &Context<'_>, _out: &mut Outbox) {
        self.filter.clear();
        self.groups_filter.clear();
        match subject {
            Subject::Queue(task) => {
                self.by = By::Task;
                self.focus = Focus::Queues;
                self.queues.select(task.clone());
            }
            Subject::Dead(task) => {
                self.focus = Focus::Dead;
                self.letters = None;
                if let Some(group) = cx.snap.dead.iter().find(|group| group.task == *task) {
                    self.groups.select((group.task.clone(), group.error.clone()));
                }
            }
            _ => {}
        }
    }

    fn depth(&self) -> usize {
        let letters = self.letters.as_ref();
        usize::from(self.focus == Focus::Dead)
            + letters.map_or(0, |letters| 1 + usize::from(letters.opened.is_some()))
    }

    fn leave(&mut self) {
        self.letters = None;
        self.focus = Focus::Queues;
    }

    fn filter(&self) -> &str {
        match (self.pane(), &self.letters) {
            (Pane::Groups, _) => &self.groups_filter,
            (Pane::Letters, Some(letters)) => &letters.filter,
            _ => &self.filter,
        }
    }

    fn set_filter(&mut self, filter: &str, _cx: &Context<'_>) {
        let kept = match (self.pane(), &mut self.letters) {
            (Pane::Groups, _) => &mut self.groups_filter,
            (Pane::Letters, Some(letters)) => &mut letters.filter,
            _ => &mut self.filter,
        };
        filter.clone_into(kept);
    }

    fn headings(&self) -> Vec<Heading> {
        match (self.pane(), &self.letters) {
            (Pane::Groups, _) => table::headings(GROUPS),
            (Pane::Letters, Some(letters)) => table::headings(letters.columns()),
            _ => table::headings(&Row::COLUMNS),
        }
    }

    fn order(&mut self) -> Option<&mut Order> {
        Some(match (self.pane(), &mut self.letters) {
            (Pane::Groups, _) => &mut self.groups.order,
            (Pane::Letters, Some(letters)) => &mut letters.table.order,
            _ => &mut self.queues.order,
        })
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, _out: &mut Outbox) {
        let ids = self.names(cx);
        if self.queues.click(x, y, &ids) {
            self.focus = Focus::Queues;
        } else if let Some(letters) = &mut self.letters {
            let ids = letters.ids(cx);
            letters.table.click(x, y, &ids);
        } else if self.groups.click(x, y, &group_ids(&self.groups(cx))) {
            self.focus = Focus::Dead;
        }
    }

    fn words(&self) -> &'static [Hint] {
        &[
            ("READY", "items waiting for their turn"),
            ("TIMERS", "items waiting for their due time"),
            ("RETRY", "items waiting for their next attempt"),
            ("RUN", "items being executed"),
            ("DEAD", "set aside after their last attempt"),
            ("IN/s OUT/s", "planned and done per second, last minute"),
            ("DRAIN", "time until READY is empty at this rate"),
            ("OLDEST", "how long the oldest ready item has waited"),
            ("TRIES", "how often the item was executed"),
        ]
    }
}
