//! The keys of the Queues screen: in the queues, in the groups of dead letters, and in a group's
//! letters.

use besom_snapshot::{DeadGroup, Letter, Subject};

use super::letters::{self, Letters};
use super::{By, Fetching, Focus, Pane, QueuesScreen, group_ids};
use crate::dash::actions;
use crate::dash::bindings::{Binding, Bound};
use crate::dash::context::Context;
use crate::dash::effect::{Effect, Outbox};
use crate::dash::key::{Code, Key};
use crate::dash::text;

type Bind = Binding<QueuesScreen>;

impl Bound for QueuesScreen {
    const BINDINGS: &'static [Bind] = &[
        Bind::new("d", "dead letters", &[Code::Char('d')], turn).when(in_queues),
        Bind::new("b", "by task/node", &[Code::Char('b')], turn_rows).when(in_queues),
        Bind::new("⏎", "open", &[Code::Enter], |screen, _, cx, out| {
            match (screen.queue(cx), screen.by) {
                (Some(name), By::Task) => out.go(Subject::Task(name)),
                (Some(name), By::Node) => out.go(Subject::Node(name)),
                (None, _) => {}
            }
        })
        .when(in_queues),
        Bind::shown("s", "sort").when(in_queues),
        Bind::new("y", "copy", &[Code::Char('y')], |screen, _, cx, out| {
            if let Some(name) = screen.queue(cx) {
                out.copy(name);
            }
        })
        .when(in_queues),
        // The groups of dead letters.
        Bind::new("⏎", "letters", &[Code::Enter], |screen, _, cx, out| {
            if let Some(group) = screen.group(cx) {
                screen.letters = Some(Letters::of(group, cx.now, out));
            }
        })
        .when(in_groups),
        Bind::new("a", "all letters", &[Code::Char('a')], |screen, _, cx, out| {
            screen.letters = Some(Letters::all(cx.snap.dead_letters(), cx.now, out));
        })
        .when(in_groups),
        Bind::new("d", "queues", &[Code::Char('d')], turn).when(in_groups),
        Bind::new("r", "retry group", &[Code::Char('r')], retry_group).when(in_groups).changes(),
        Bind::new("x", "discard group", &[Code::Char('x')], discard_group)
            .when(in_groups)
            .changes(),
        Bind::hidden(&[Code::Esc], |screen, _, _, _| match screen.groups_filter.is_empty() {
            true => screen.focus = Focus::Queues,
            false => screen.groups_filter.clear(),
        })
        .when(in_groups),
        // The letters of a group, or all of them.
        Bind::new("esc", "back", &[Code::Esc], |screen, _, _, _| screen.back()).when(in_letters),
        Bind::new("⏎", "open", &[Code::Enter], |screen, _, cx, _| {
            if let Some(letters) = &mut screen.letters
                && letters.chosen(cx).is_some()
            {
                letters.opened = Some(0);
            }
        })
        .when(in_letters),
        Bind::shown("/", "key, tenant, error").when(in_letters),
        Bind::shown("s", "sort").when(in_letters),
        Bind::new("v", "pager", &[Code::Char('v')], |screen, _, cx, out| {
            if let Some(letter) = screen.letter(cx) {
                let lines = letters::lines(letter);
                let lines = lines.iter().map(|line| text::clean(line));
                out.push(Effect::Pager(lines.collect::<Vec<_>>().join("\n")));
            }
        })
        .when(in_letters),
        Bind::new("l", "log of its run", &[Code::Char('l')], |screen, _, cx, out| {
            if let Some(letter) = screen.letter(cx) {
                out.go(Subject::Run(letter.run));
            }
        })
        .when(in_letters),
        Bind::new("r", "retry", &[Code::Char('r')], |screen, _, cx, out| {
            let Some(letter) = screen.letter(cx) else { return };
            let which = actions::Letters::Some(vec![letter.id]);
            out.confirm(actions::retry(&which, 1, &about(letter)));
        })
        .when(in_letters)
        .changes(),
        Bind::new("R", "retry group", &[Code::Char('R')], retry_group)
            .when(in_letters_of_group)
            .changes(),
        Bind::new("x", "discard", &[Code::Char('x')], |screen, _, cx, out| {
            let Some(letter) = screen.letter(cx) else { return };
            let which = actions::Letters::Some(vec![letter.id]);
            let name = letters::file_name(&format!("{}-{}", letter.task, letter.id));
            let text = letters::json(std::slice::from_ref(letter));
            out.confirm(actions::discard(&which, 1, &about(letter)).exporting(name, text));
        })
        .when(in_letters)
        .changes(),
        Bind::new("X", "discard group", &[Code::Char('X')], discard_group)
            .when(in_letters_of_group)
            .changes(),
        Bind::new("e", "export", &[Code::Char('e')], |screen, _, cx, out| {
            if let Some(group) = screen.group(cx) {
                screen.fetch(Fetching::Export, group, cx, out);
            }
        })
        .when(|screen, cx| in_groups(screen, cx) || in_letters_of_group(screen, cx)),
        Bind::new("y", "copy", &[Code::Char('y')], |screen, _, cx, out| {
            if let Some(letter) = screen.letter(cx) {
                out.copy(letter.key.clone());
            } else if let Some(group) = screen.group(cx).filter(|_| screen.letters.is_none()) {
                out.copy(group.error.clone());
            }
        })
        .when(|screen, cx| !in_queues(screen, cx)),
        // Keys of one part work in the others as well.
        Bind::hidden(&[Code::Char('d')], turn),
        Bind::hidden(&[Code::Char('b')], turn_rows),
        Bind::hidden(&[Code::Char('R')], retry_group).when(in_groups),
        Bind::hidden(&[Code::Char('X')], discard_group).when(in_groups),
    ];
}

fn in_queues(screen: &QueuesScreen, _: &Context<'_>) -> bool {
    matches!(screen.pane(), Pane::Queues)
}

fn in_groups(screen: &QueuesScreen, _: &Context<'_>) -> bool {
    matches!(screen.pane(), Pane::Groups)
}

fn in_letters(screen: &QueuesScreen, _: &Context<'_>) -> bool {
    matches!(screen.pane(), Pane::Letters)
}

fn in_letters_of_group(screen: &QueuesScreen, cx: &Context<'_>) -> bool {
    in_letters(screen, cx) && screen.group(cx).is_some()
}

/// Moves the focus between the queues and the dead letters.
fn turn(screen: &mut QueuesScreen, _: Key, _: &Context<'_>, _: &mut Outbox) {
    screen.focus = match screen.focus {
        Focus::Queues => Focus::Dead,
        Focus::Dead => Focus::Queues,
    };
}

/// Shows the queues by node instead of by task, or the reverse.
fn turn_rows(screen: &mut QueuesScreen, _: Key, _: &Context<'_>, _: &mut Outbox) {
    screen.by = match screen.by {
        By::Task => By::Node,
        By::Node => By::Task,
    };
    screen.focus = Focus::Queues;
}

fn retry_group(screen: &mut QueuesScreen, _: Key, cx: &Context<'_>, out: &mut Outbox) {
    if let Some(group) = screen.group(cx) {
        let about = format!("All dead letters of {} with the error: {}", group.task, group.error);
        out.confirm(actions::retry(&super::selector(group), group.count, &about));
    }
}

fn discard_group(screen: &mut QueuesScreen, _: Key, cx: &Context<'_>, out: &mut Outbox) {
    if let Some(group) = screen.group(cx) {
        screen.fetch(Fetching::Discard, group, cx, out);
    }
}

/// The letter of a confirmation.
fn about(letter: &Letter) -> String {
    format!("Key {} of {}.", letter.key, letter.task)
}

impl QueuesScreen {
    /// The name of the selected queue.
    fn queue(&self, cx: &Context<'_>) -> Option<String> {
        let names = self.names(cx);
        self.queues.id(&names).cloned()
    }

    /// The group that keys about a whole group mean: the selected one, or the one whose letters are
    /// open. A group that is being retried disappears for a moment; no other group must receive its
    /// keys.
    fn group<'a>(&self, cx: &Context<'a>) -> Option<&'a DeadGroup> {
        if self.letters.is_some() {
            return self.opened(cx);
        }
        let groups = self.groups(cx);
        Some(groups[self.groups.exact(&group_ids(&groups))?])
    }

    /// The selected letter.
    fn letter(&self, cx: &Context<'_>) -> Option<&Letter> {
        self.letters.as_ref()?.chosen(cx)
    }

    /// Closes a letter, or else clears the filter, or else closes the letters.
    fn back(&mut self) {
        match &mut self.letters {
            Some(letters) if letters.opened.is_some() => letters.opened = None,
            Some(letters) if !letters.filter.is_empty() => letters.filter.clear(),
            _ => self.letters = None,
        }
    }

    /// Moves the selection among the queues, and beyond the last one to the dead letters.
    pub(super) fn step_queues(&mut self, key: Key, cx: &Context<'_>) -> bool {
        let ids = self.names(cx);
        let last = self.queues.place(&ids).is_none_or(|place| place + 1 == ids.len());
        if last && matches!(key.code, Code::Char('j') | Code::Down) && !cx.snap.dead.is_empty() {
            self.focus = Focus::Dead;
            return true;
        }
        self.queues.key(key, &ids)
    }

    /// Moves the selection among the groups, and before the first one to the queues.
    pub(super) fn step_groups(&mut self, key: Key, cx: &Context<'_>) -> bool {
        let ids = group_ids(&self.groups(cx));
        let first = self.groups.place(&ids).is_none_or(|place| place == 0);
        if matches!(key.code, Code::Char('k') | Code::Up) && first {
            self.focus = Focus::Queues;
            return true;
        }
        self.groups.key(key, &ids)
    }

    /// Moves the selection among the letters, or scrolls the open one.
    pub(super) fn step_letters(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let Some(letters) = &mut self.letters else { return false };
        let Some(top) = letters.opened else {
            let ids = letters.ids(cx);
            let moved = letters.table.key(key, &ids);
            if moved {
                let place = letters.table.place(&ids).unwrap_or(0);
                letters.near_end(place, cx, out);
            }
            return moved;
        };
        let to = match key.code {
            Code::Char('j') | Code::Down => top.saturating_add(1),
            Code::Char('k') | Code::Up => top.saturating_sub(1),
            Code::PageDown => top.saturating_add(cx.size.1 / 2),
            Code::PageUp => top.saturating_sub(cx.size.1 / 2),
            Code::Char('g') | Code::Home => 0,
            _ => return false,
        };
        let most = letters.chosen(cx).map_or(0, |letter| letters::lines(letter).len());
        letters.opened = Some(to.min(u16::try_from(most).unwrap_or(u16::MAX)));
        true
    }
}
