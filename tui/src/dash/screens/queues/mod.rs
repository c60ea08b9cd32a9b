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

use besom_core::snapshot::{Answer, DeadGroup, Subject};

use super::{Hint, Screen};
use crate::dash::actions;
use crate::dash::context::Context;
use crate::dash::effect::{Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::{SortKey, TableState};
use letters::Letters;

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
            queues: TableState::sorted(1, true),
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
    fn rows<'a>(&self, cx: &Context<'a>) -> Vec<depth::Row<'a>> {
        let rows = match self.by {
            By::Task => depth::by_task(cx),
            By::Node => depth::by_node(cx),
        };
        let wanted = self.filter.to_lowercase();
        let rows: Vec<_> =
            rows.into_iter().filter(|row| row.name.to_lowercase().contains(&wanted)).collect();
        let order = self.queues.order((0..rows.len()).collect(), |at, column| rows[at].key(column));
        order.into_iter().map(|at| rows[at].clone()).collect()
    }

    fn pane(&self) -> Pane {
        match (self.focus, &self.letters) {
            (Focus::Queues, _) => Pane::Queues,
            (Focus::Dead, None) => Pane::Groups,
            (Focus::Dead, Some(_)) => Pane::Letters,
        }
    }

    fn groups<'a>(&self, cx: &Context<'a>) -> Vec<&'a DeadGroup> {
        let wanted = self.groups_filter.to_lowercase();
        let passes = |group: &&DeadGroup| {
            wanted.is_empty()
                || group.task.to_lowercase().contains(&wanted)
                || group.error.to_lowercase().contains(&wanted)
        };
        let groups: Vec<&DeadGroup> =
            cx.snap.dead.iter().map(|group| &**group).filter(passes).collect();
        let order = self.groups.order((0..groups.len()).collect(), |at, column| {
            let group = groups[at];
            match column {
                1 => SortKey::Number(group.count as f64),
                2 => SortKey::Number(group.first.0 as f64),
                3 => SortKey::Number(group.last.0 as f64),
                4 => SortKey::Text(&group.task),
                _ => SortKey::Text(&group.error),
            }
        });
        order.into_iter().map(|at| groups[at]).collect()
    }

    /// The current state of the group whose letters are open.
    fn opened<'a>(&self, cx: &Context<'a>) -> Option<&'a DeadGroup> {
        let letters = self.letters.as_ref()?;
        cx.snap.dead.iter().map(|group| &**group).find(|group| letters.is_of(group))
    }

    fn retry_group(&self, group: &DeadGroup, out: &mut Outbox) {
        let about = format!("All dead letters of {} with the error: {}", group.task, group.error);
        out.confirm(actions::retry(&selector(group), group.count, &about));
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
    fn key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        if key.ctrl || key.alt {
            return false;
        }
        match key.code {
            Code::Char('b') => {
                self.by = match self.by {
                    By::Task => By::Node,
                    By::Node => By::Task,
                };
                self.focus = Focus::Queues;
            }
            Code::Char('d') => {
                self.focus = match self.focus {
                    Focus::Queues => Focus::Dead,
                    Focus::Dead => Focus::Queues,
                };
            }
            Code::Char('s') => match (self.pane(), &mut self.letters) {
                (Pane::Groups, _) => self.groups.sort_next(view::GROUP_COLUMNS.len()),
                (Pane::Letters, Some(letters)) => {
                    letters.table.sort_next(view::letter_columns(letters).len());
                    letters.go_on(cx.now, out);
                }
                _ => self.queues.sort_next(view::COLUMNS.len() - 1),
            },
            Code::Char('S') => match (self.pane(), &mut self.letters) {
                (Pane::Groups, _) => self.groups.descending = !self.groups.descending,
                (Pane::Letters, Some(letters)) => {
                    letters.table.descending = !letters.table.descending;
                }
                _ => self.queues.descending = !self.queues.descending,
            },
            _ => {
                return match (self.focus, &self.letters) {
                    (Focus::Queues, _) => self.queue_key(key, cx, out),
                    (Focus::Dead, Some(_)) => self.letter_key(key, cx, out),
                    (Focus::Dead, None) => self.group_key(key, cx, out),
                };
            }
        }
        true
    }

    fn answer(&mut self, ticket: u64, answer: &Answer, cx: &Context<'_>, out: &mut Outbox) {
        let Some(letters) = &mut self.letters else { return };
        match answer {
            Answer::Dead(page) => {
                let taken = letters.take(ticket, Some(page));
                if taken {
                    letters.go_on(cx.now, out);
                    self.fetched(cx, out);
                }
            }
            Answer::Refused(_) => {
                let taken = letters.take(ticket, None);
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
        let ids: Vec<String> = self.rows(cx).iter().map(|row| row.name.to_owned()).collect();
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

    fn columns(&self) -> Vec<&'static str> {
        let columns = match (self.pane(), &self.letters) {
            (Pane::Groups, _) => &view::GROUP_COLUMNS[..],
            (Pane::Letters, Some(letters)) => view::letter_columns(letters),
            _ => &view::COLUMNS[..view::COLUMNS.len() - 1],
        };
        columns.iter().map(|column| column.name).collect()
    }

    fn sort(&mut self, column: usize) {
        match (self.pane(), &mut self.letters) {
            (Pane::Groups, _) => self.groups.sort_by(column, false),
            (Pane::Letters, Some(letters)) => letters.table.sort_by(column, false),
            _ => self.queues.sort_by(column, false),
        }
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, _out: &mut Outbox) {
        let ids: Vec<String> = self.rows(cx).iter().map(|row| row.name.to_owned()).collect();
        if self.queues.click(x, y, &ids) {
            self.focus = Focus::Queues;
        } else if let Some(letters) = &mut self.letters {
            let ids = letters.ids();
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

    fn hints(&self, cx: &Context<'_>) -> Vec<Hint> {
        let mut hints = match (self.focus, &self.letters) {
            (Focus::Queues, _) => {
                return vec![
                    ("d", "dead letters"),
                    ("b", "by task/node"),
                    ("⏎", "open"),
                    ("s", "sort"),
                    ("y", "copy"),
                ];
            }
            (Focus::Dead, None) => vec![("⏎", "letters"), ("a", "all letters"), ("d", "queues")],
            (Focus::Dead, Some(_)) => {
                vec![
                    ("esc", "back"),
                    ("⏎", "open"),
                    ("/", "key, tenant, error"),
                    ("s", "sort"),
                    ("v", "pager"),
                    ("l", "log of its run"),
                ]
            }
        };
        if !cx.readonly {
            hints.extend(match self.letters {
                None => vec![("r", "retry group"), ("x", "discard group")],
                Some(Letters { of: None, .. }) => vec![("r", "retry"), ("x", "discard")],
                Some(_) => {
                    vec![
                        ("r", "retry"),
                        ("R", "retry group"),
                        ("x", "discard"),
                        ("X", "discard group"),
                    ]
                }
            });
        }
        hints.extend([("e", "export"), ("y", "copy")]);
        hints
    }
}
