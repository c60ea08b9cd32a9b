//! The keys of the Queues screen: in the queues, in the groups of dead letters, and in a group's
//! letters.

use besom_core::snapshot::{DeadGroup, Subject};

use super::letters::{self, Letters};
use super::{By, Fetching, Focus, QueuesScreen, group_ids};
use crate::dash::actions;
use crate::dash::context::Context;
use crate::dash::effect::{Effect, Outbox};
use crate::dash::key::{Code, Key};

impl QueuesScreen {
    pub(super) fn queue_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let ids: Vec<String> = self.rows(cx).iter().map(|row| row.name.to_owned()).collect();
        let place = self.queues.place(&ids);
        let last = place.is_none_or(|place| place + 1 == ids.len());
        if last && matches!(key.code, Code::Char('j') | Code::Down) && !cx.snap.dead.is_empty() {
            self.focus = Focus::Dead;
            return true;
        }
        if self.queues.key(key, &ids) {
            return true;
        }
        let Some(name) = place.map(|place| ids[place].clone()) else { return false };
        match key.code {
            Code::Char('y') => out.copy(name),
            Code::Enter if self.by == By::Task => out.go(Subject::Task(name)),
            Code::Enter => out.go(Subject::Node(name)),
            _ => return false,
        }
        true
    }

    pub(super) fn group_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let groups = self.groups(cx);
        let ids = group_ids(&groups);
        // A group that is being retried disappears for a moment; no other group must receive its
        // keys.
        let place = self.groups.exact(&ids);
        let first = self.groups.place(&ids).is_none_or(|place| place == 0);
        if matches!(key.code, Code::Char('k') | Code::Up) && first {
            self.focus = Focus::Queues;
            return true;
        }
        if self.groups.key(key, &ids) {
            self.letters = None;
            return true;
        }
        if key.code == Code::Esc {
            match self.groups_filter.is_empty() {
                true => self.focus = Focus::Queues,
                false => self.groups_filter.clear(),
            }
            return true;
        }
        if key.code == Code::Char('a') {
            self.letters = Some(Letters::all(cx.snap.dead_letters(), cx.now, out));
            return true;
        }
        let Some(group) = place.map(|place| groups[place]) else { return false };
        match key.code {
            Code::Enter => self.letters = Some(Letters::of(group, cx.now, out)),
            Code::Char('y') => out.copy(group.error.clone()),
            Code::Char('r') => self.retry_group(group, out),
            Code::Char('x') => self.fetch(Fetching::Discard, group, cx, out),
            _ => return self.shared_key(key, group, cx, out),
        }
        true
    }

    /// Handles keys about a whole group, in the list of groups and within a group.
    fn shared_key(
        &mut self,
        key: Key,
        group: &DeadGroup,
        cx: &Context<'_>,
        out: &mut Outbox,
    ) -> bool {
        match key.code {
            Code::Char('R') => self.retry_group(group, out),
            Code::Char('X') => self.fetch(Fetching::Discard, group, cx, out),
            Code::Char('e') => self.fetch(Fetching::Export, group, cx, out),
            _ => return false,
        }
        true
    }

    pub(super) fn letter_key(&mut self, key: Key, cx: &Context<'_>, out: &mut Outbox) -> bool {
        let Some(letters) = &mut self.letters else { return false };
        if let Some(top) = letters.opened {
            let to = match key.code {
                Code::Char('j') | Code::Down => Some(top.saturating_add(1)),
                Code::Char('k') | Code::Up => Some(top.saturating_sub(1)),
                Code::PageDown => Some(top.saturating_add(cx.size.1 / 2)),
                Code::PageUp => Some(top.saturating_sub(cx.size.1 / 2)),
                Code::Char('g') | Code::Home => Some(0),
                _ => None,
            };
            if let Some(to) = to {
                let most = letters.chosen().map_or(0, |letter| letters::lines(letter).len());
                letters.opened = Some(to.min(u16::try_from(most).unwrap_or(u16::MAX)));
                return true;
            }
        } else {
            let ids = letters.ids();
            if letters.table.key(key, &ids) {
                let place = letters.table.place(&ids).unwrap_or(0);
                letters.near_end(place, cx.now, out);
                return true;
            }
        }
        match key.code {
            Code::Esc if letters.opened.is_some() => letters.opened = None,
            Code::Esc if !letters.filter.is_empty() => letters.filter.clear(),
            Code::Esc => self.letters = None,
            Code::Enter if letters.chosen().is_some() => letters.opened = Some(0),
            _ => {
                let Some(letter) = letters.chosen() else { return false };
                let which = actions::Letters::Some(vec![letter.id]);
                let about = format!("Key {} of {}.", letter.key, letter.task);
                match key.code {
                    Code::Char('y') => out.copy(letter.key.clone()),
                    Code::Char('l') => out.go(Subject::Run(letter.run)),
                    Code::Char('r') => out.confirm(actions::retry(&which, 1, &about)),
                    Code::Char('v') => {
                        let lines = letters::lines(letter);
                        let lines = lines.iter().map(|line| crate::dash::text::clean(line));
                        out.push(Effect::Pager(lines.collect::<Vec<_>>().join("\n")));
                    }
                    Code::Char('x') => {
                        let name = letters::file_name(&format!("{}-{}", letter.task, letter.id));
                        let text = letters::json(std::slice::from_ref(letter));
                        out.confirm(actions::discard(&which, 1, &about).exporting(name, text));
                    }
                    _ => {
                        let Some(group) = self.opened(cx) else { return false };
                        return self.shared_key(key, group, cx, out);
                    }
                }
            }
        }
        true
    }
}
