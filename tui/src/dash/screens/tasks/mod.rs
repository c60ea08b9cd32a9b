//! The Tasks screen: tasks, their schedules, and why a slot did not run.
//!
//! Up and down move between the tasks of the table; left and right move between the slots of the
//! selected task.

pub(in crate::dash) mod ending;
mod past;
pub(in crate::dash) mod row;
mod slots;
mod view;

use besom_core::time::Time;
use besom_snapshot::{Answer, Query, RunState, Subject, Task};

use super::{Place, Screen};
use crate::dash::actions;
use crate::dash::bindings::{Binding, Bound, Hint};
use crate::dash::context::Context;
use crate::dash::effect::{Outbox, Tone};
use crate::dash::key::{Code, Key};
use crate::dash::table::{self, Heading, Order, TableState};
use past::Past;
use slots::{Slot, Span};

/// The Tasks screen.
#[derive(Debug)]
pub struct TasksScreen {
    table: TableState<String>,
    filter: String,
    /// The selected slot of the selected task; none: the newest that has passed.
    slot: Option<Time>,
    /// The time span of the slots shown.
    span: Span,
    /// The recorded past of the task.
    past: Past,
    /// The slot that the host was asked about, and its explanation once it has arrived.
    asked: Option<(String, Time)>,
    explained: Option<(String, Time, String)>,
}

impl Default for TasksScreen {
    fn default() -> TasksScreen {
        TasksScreen {
            table: TableState::sorted(row::TASK, false),
            filter: String::new(),
            slot: None,
            span: Span::default(),
            past: Past::default(),
            asked: None,
            explained: None,
        }
    }
}

impl TasksScreen {
    /// The selected task.
    fn task<'a>(&self, cx: &Context<'a>) -> Option<&'a Task> {
        let tasks = row::order(self, cx);
        Some(tasks[self.table.place(&row::ids(&tasks))?])
    }

    /// The slots of a task around now.
    fn slots<'a>(&'a self, task: &'a Task, cx: &Context<'_>) -> Vec<Slot<'a>> {
        slots::around(task, &self.past, self.span, cx.now)
    }

    /// Requests the past of the selected task.
    fn follow(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        if let Some(task) = self.task(cx) {
            self.past.follow(task, self.span, cx, out);
        }
    }

    /// The index of the selected slot among the slots around now.
    fn slot_place(&self, slots: &[Slot<'_>], now: Time) -> Option<usize> {
        let chosen = self.slot.and_then(|slot| slots.iter().position(|s| s.at == slot));
        let newest = || slots.iter().rposition(|slot| slot.at <= now);
        chosen.or_else(newest).or_else(|| (!slots.is_empty()).then_some(0))
    }

    /// The run of the selected slot.
    fn chosen_run(&self, task: &Task, cx: &Context<'_>) -> Option<u64> {
        self.slots(task, cx).iter().find(|slot| Some(slot.at) == self.slot)?.run
    }

    fn step_slot(&mut self, cx: &Context<'_>, by: isize) {
        let Some(task) = self.task(cx) else { return };
        let slots = self.slots(task, cx);
        if let Some(place) = self.slot_place(&slots, cx.now) {
            let to = place.saturating_add_signed(by).min(slots.len() - 1);
            self.slot = Some(slots[to].at);
        }
    }

    /// Moves to the nearest earlier or later slot that started no run.
    fn step_to_gap(&mut self, cx: &Context<'_>, back: bool, out: &mut Outbox) {
        let Some(task) = self.task(cx) else { return };
        let slots = self.slots(task, cx);
        let Some(place) = self.slot_place(&slots, cx.now) else { return };
        let gap = |slot: &&Slot<'_>| slot.fate.is_without_run();
        let found = match back {
            true => slots[..place].iter().rev().find(gap),
            false => slots[place + 1..].iter().find(gap),
        };
        match found.map(|slot| slot.at) {
            Some(at) => self.slot = Some(at),
            None => {
                let side = if back { "earlier" } else { "later" };
                let name = self.span.name();
                out.say(Tone::Info, format!("each {side} slot of these {name} started a run"));
            }
        }
    }

    /// Does something with the selected task, if there is one.
    fn with(&self, cx: &Context<'_>, out: &mut Outbox, act: fn(&Task, &mut Outbox)) {
        if let Some(task) = self.task(cx) {
            act(task, out);
        }
    }

    fn open_runs(&self, cx: &Context<'_>, out: &mut Outbox) {
        let Some(task) = self.task(cx) else { return };
        match self.chosen_run(task, cx) {
            Some(run) => out.go(Subject::Run(run)),
            None => out.go_to(Place::Runs, Subject::Task(task.name.clone())),
        }
    }

    /// Asks the host why the selected slot ran or did not run.
    fn explain(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        let Some(task) = self.task(cx) else { return };
        let slots = self.slots(task, cx);
        let Some(place) = self.slot_place(&slots, cx.now) else {
            out.say(Tone::Info, format!("{} has no slots to explain", task.name));
            return;
        };
        let at = slots[place].at;
        self.slot = Some(at);
        self.asked = Some((task.name.clone(), at));
        out.ask(Query::Explain { task: task.name.clone(), at });
    }
}

type Bind = Binding<TasksScreen>;

impl Bound for TasksScreen {
    const BINDINGS: &'static [Bind] = &[
        Bind::new("t", "trigger", &[Code::Char('t')], |screen, _, cx, out| {
            screen.with(cx, out, trigger);
        })
        .changes(),
        Bind::new("p", "pause/resume", &[Code::Char('p')], |screen, _, cx, out| {
            screen.with(cx, out, |task, out| match &task.paused {
                None => out.confirm(actions::pause(&task.name)),
                Some(_) => out.confirm(actions::resume(task, false)),
            });
        })
        .changes(),
        Bind::new("R", "release", &[Code::Char('R')], |screen, _, cx, out| {
            screen.with(cx, out, |task, out| out.confirm(actions::resume(task, true)));
        })
        .when(braked)
        .changes(),
        Bind::new("P", "take over", &[Code::Char('P')], |screen, _, cx, out| {
            screen.with(cx, out, |task, out| out.confirm(actions::take_over(task)));
        })
        .when(braked)
        .changes(),
        Bind::new("e", "edit", &[Code::Char('e')], |screen, _, cx, out| {
            screen.with(cx, out, |task, out| {
                out.go_to(Place::Edit, Subject::Task(task.name.clone()));
            });
        })
        .changes(),
        Bind::new("c", "cancel run", &[Code::Char('c')], |screen, _, cx, out| {
            screen.with(cx, out, cancel);
        })
        .changes(),
        Bind::new(
            "← →",
            "slots",
            &[Code::Left, Code::Right, Code::Char('h'), Code::Char('l')],
            |screen, key, cx, _| {
                let back = matches!(key.code, Code::Left | Code::Char('h'));
                screen.step_slot(cx, if back { -1 } else { 1 });
            },
        ),
        Bind::new("w", "why", &[Code::Char('w')], |screen, _, cx, out| screen.explain(cx, out)),
        Bind::new("⏎", "runs", &[Code::Enter], |screen, _, cx, out| screen.open_runs(cx, out)),
        Bind::new("d", "dead letters", &[Code::Char('d')], |screen, _, cx, out| {
            screen.with(cx, out, |task, out| out.go(Subject::Dead(task.name.clone())));
        }),
        Bind::new(
            "[ ]",
            "slots without a run",
            &[Code::Char('['), Code::Char(']')],
            |screen, key, cx, out| screen.step_to_gap(cx, key.code == Code::Char('['), out),
        ),
        Bind::new("z", "zoom", &[Code::Char('z')], |screen, _, cx, out| {
            screen.span = screen.span.next();
            screen.follow(cx, out);
        }),
        Bind::hidden(&[Code::Char('y')], |screen, _, cx, out| {
            screen.with(cx, out, |task, out| out.copy(task.name.clone()));
        }),
        Bind::hidden(&[Code::Esc], |screen, _, _, _| screen.slot = None)
            .when(|screen, _| screen.slot.is_some()),
    ];
}

fn braked(screen: &TasksScreen, cx: &Context<'_>) -> bool {
    screen.task(cx).is_some_and(Task::is_braked)
}

fn trigger(task: &Task, out: &mut Outbox) {
    let name = &task.name;
    match task.orphaned {
        true => out.say(Tone::Bad, format!("no configuration defines {name}: it cannot run")),
        false => out.confirm(actions::trigger(name)),
    }
}

fn cancel(task: &Task, out: &mut Outbox) {
    match task.last.iter().rev().find(|run| run.state.is_active()) {
        Some(run) if run.state == RunState::Executing => out.say(
            Tone::Info,
            format!("the scan of run {} has ended: nothing is left to cancel", run.id),
        ),
        Some(run) => out.confirm(actions::cancel(run.id, &task.name)),
        None => out.say(Tone::Info, format!("no run of {} is active", task.name)),
    }
}

impl Screen for TasksScreen {
    fn step(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let ids = row::ids(&row::order(self, cx));
        let before = self.table.id(&ids).cloned();
        let moved = self.table.key(key, &ids);
        if moved && self.table.id(&ids) != before.as_ref() {
            self.slot = None;
            self.follow(cx, out);
        }
        moved
    }

    fn answer(&mut self, ticket: u64, answer: &Answer, _cx: &Context<'_>, _out: &mut Outbox) {
        match answer {
            Answer::Past(page) => self.past.take(ticket, Some(page)),
            Answer::Refused(_) => self.past.take(ticket, None),
            _ => {}
        }
        if let Answer::Explained(explained) = answer
            && self
                .asked
                .as_ref()
                .is_some_and(|(task, at)| *task == explained.task && *at == explained.at)
        {
            self.asked = None;
            self.explained = Some((explained.task.clone(), explained.at, explained.text.clone()));
        }
    }

    fn refresh(&mut self, cx: &Context<'_>, out: &mut Outbox) {
        self.table.settle(&row::ids(&row::order(self, cx)));
        self.follow(cx, out);
    }

    fn open(&mut self, subject: &Subject, cx: &Context<'_>, out: &mut Outbox) {
        if let Subject::Task(name) = subject {
            self.filter.clear();
            self.slot = None;
            self.table.select(name.clone());
            self.follow(cx, out);
        }
    }

    fn depth(&self) -> usize {
        usize::from(self.slot.is_some())
    }

    fn leave(&mut self) {
        self.slot = None;
    }

    fn filter(&self) -> &str {
        &self.filter
    }

    fn set_filter(&mut self, filter: &str, _cx: &Context<'_>) {
        filter.clone_into(&mut self.filter);
    }

    fn headings(&self) -> Vec<Heading> {
        table::headings(row::COLUMNS)
    }

    fn order(&mut self) -> Option<&mut Order> {
        Some(&mut self.table.order)
    }

    fn click(&mut self, x: u16, y: u16, cx: &Context<'_>, out: &mut Outbox) {
        if self.table.click(x, y, &row::ids(&row::order(self, cx))) {
            self.slot = None;
            self.follow(cx, out);
        }
    }

    fn words(&self) -> &'static [Hint] {
        &[
            ("MODE", "preview, approve or live: how far its runs go by themselves"),
            ("NEXT", "the next slot of the schedule"),
            ("LAST", "how the newest run ended, or how long it has run"),
            ("p99", "99th percentile of the last 200 runs"),
            ("OVLP", "overlap: what a slot does while a run is active"),
            ("LAST 8", "lengths of the newest runs; ✕ failed, – rejected, ▶ active"),
            ("lane", "priority on a node: the lane due is first"),
            ("█ ▒ ▶ ✕", "run succeeded, result unknown, active, failed"),
            ("» ~ «", "skipped, queued, coalesced into a later run"),
            ("○ ! ‖", "missed, fenced, paused"),
            ("· ┆ ╌", "nothing decided yet, planned, not read"),
            ("◇", "before this, the schedule was different"),
        ]
    }
}
