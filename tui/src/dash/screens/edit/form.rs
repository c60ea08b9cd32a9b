//! The form: a field per key, the focused field, and the undo history.

use std::collections::BTreeMap;

use super::values::{Name, Values};
use crate::dash::field::Field;
use crate::dash::key::{Code, Key};

/// The maximum number of undo steps; the oldest are dropped.
pub const UNDO_MAX: usize = 100;

/// The form for a task's keys.
#[derive(Debug, Clone)]
pub struct Form {
    /// The task's name in the configuration.
    pub task: String,
    /// The values in the file.
    pub original: Values,
    values: Values,
    /// The field that keys go to.
    pub focus: Name,
    /// The text field that is being edited; none: keys are commands.
    field: Option<Field>,
    undo: Vec<Values>,
}

impl Form {
    /// A form with a task's values, and the cursor at the end of the schedule.
    pub fn open(task: &str, values: Values) -> Form {
        let mut form = Form {
            task: task.to_owned(),
            original: values.clone(),
            values,
            focus: Name::Schedule,
            field: None,
            undo: Vec::new(),
        };
        form.type_into();
        form
    }

    /// The current values.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The field that is being edited.
    pub fn field(&self) -> Option<&Field> {
        self.field.as_ref()
    }

    /// The changed keys.
    pub fn changes(&self) -> BTreeMap<String, Option<String>> {
        self.values.changes(&self.original)
    }

    /// Whether any value has changed.
    pub fn is_changed(&self) -> bool {
        self.values != self.original
    }

    /// Starts editing the focused field, if it is a text field.
    pub fn type_into(&mut self) {
        self.field =
            self.focus.choices().is_none().then(|| Field::with(self.values.get(self.focus)));
        if self.field.is_some() {
            self.remember();
        }
    }

    /// Stops editing: keys are commands again.
    pub fn leave(&mut self) {
        self.field = None;
    }

    /// Focuses the next or the previous field. Starts editing it if it is a text field, and if
    /// `typing` is set or a field was being edited.
    pub fn go(&mut self, forward: bool, typing: bool) {
        let typing = self.field.take().is_some() || typing;
        let all = Name::ALL.len();
        let to = self.focus as usize + if forward { 1 } else { all - 1 };
        self.focus = Name::ALL[to % all];
        if typing {
            self.type_into();
        }
    }

    /// Handles a key of the field that is being edited; false: there is none, or it does not use
    /// the key.
    pub fn key(&mut self, key: Key) -> bool {
        let Some(field) = &mut self.field else { return false };
        let taken = field.key(key);
        if taken {
            self.values.set(self.focus, field.text());
        }
        taken
    }

    /// Inserts pasted text; false: no field is being edited.
    pub fn paste(&mut self, text: &str) -> bool {
        let Some(field) = &mut self.field else { return false };
        field.insert(text);
        self.values.set(self.focus, field.text());
        true
    }

    /// Selects the next or the previous choice of the focused field; false: it has no choices, or
    /// the key selects none.
    pub fn choose(&mut self, key: Key) -> bool {
        let Some(choices) = self.focus.choices() else { return false };
        let by = match key.code {
            Code::Right | Code::Char(' ' | 'l') => 1,
            Code::Left | Code::Char('h') => choices.len() - 1,
            _ => return false,
        };
        let now = choices.iter().position(|choice| *choice == self.values.get(self.focus));
        let to = now.map_or(0, |now| (now + by) % choices.len());
        self.remember();
        self.values.set(self.focus, choices[to]);
        true
    }

    /// Undoes the last step; false: there is none.
    pub fn undo(&mut self) -> bool {
        while let Some(before) = self.undo.pop() {
            if before != self.values {
                self.values = before;
                return true;
            }
        }
        false
    }

    /// Replaces the file's values: untouched fields follow, changed fields keep their input.
    pub fn rebase(&mut self, original: Values) {
        // The undo steps follow as well: the file arrives a moment after the form was opened, when
        // the first step may already exist.
        for values in self.undo.iter_mut().chain([&mut self.values]) {
            for name in Name::ALL {
                if values.get(name) == self.original.get(name) {
                    values.set(name, original.get(name));
                }
            }
        }
        self.original = original;
        if let Some(field) = &self.field
            && field.text() != self.values.get(self.focus)
        {
            self.field = Some(Field::with(self.values.get(self.focus)));
        }
    }

    fn remember(&mut self) {
        if self.undo.last() != Some(&self.values) {
            self.undo.push(self.values.clone());
        }
        if self.undo.len() > UNDO_MAX {
            self.undo.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use besom_snapshot::Task;

    use super::*;

    fn form() -> Form {
        let task = Task {
            schedule: Some("@daily".into()),
            timezone: "UTC".into(),
            overlap: "skip".into(),
            catch_up: "coalesce".into(),
            ..Task::default()
        };
        Form::open("a", Values::of(&task, None))
    }

    #[test]
    fn what_is_typed_is_a_change_and_can_be_undone() {
        let mut form = form();
        assert!(form.field().is_some() && !form.is_changed());
        for c in "!?".chars() {
            assert!(form.key(Key::char(c)));
        }
        assert!(form.paste("\nx"));
        assert_eq!(form.values().get(Name::Schedule), "@daily!? x");
        form.leave();
        assert!(!form.key(Key::char('x')) && !form.paste("x"), "no field is open");
        form.focus = Name::Overlap;
        assert!(form.choose(Key::char(' ')));
        assert_eq!(form.changes()["overlap"].as_deref(), Some("queue"));
        assert!(form.undo());
        assert_eq!(form.changes().len(), 1);
        assert!(form.undo());
        assert!(!form.is_changed() && !form.undo());
    }

    #[test]
    fn choices_go_round_and_an_unknown_one_starts_at_the_first() {
        let mut form = form();
        form.leave();
        form.focus = Name::CatchUp;
        let keys = [Code::Right, Code::Right, Code::Left, Code::Up];
        let taken: Vec<_> = keys
            .map(|code| {
                let taken = form.choose(Key::plain(code));
                (taken, form.values().get(Name::CatchUp).to_owned())
            })
            .into();
        let expected = [(true, "all"), (true, "skip"), (true, "all"), (false, "all")];
        assert_eq!(taken, expected.map(|(taken, value)| (taken, value.to_owned())));
        form.values.set(Name::CatchUp, "of a later version");
        form.choose(Key::plain(Code::Right));
        assert_eq!(form.values().get(Name::CatchUp), "skip");
        form.focus = Name::Schedule;
        assert!(!form.choose(Key::plain(Code::Right)));
    }

    #[test]
    fn focus_goes_round_and_goes_on_typing_in_text() {
        let mut form = form();
        let mut seen = Vec::new();
        for _ in 0..7 {
            seen.push((form.focus, form.field().is_some()));
            form.go(true, true);
        }
        assert_eq!(seen[1], (Name::Timezone, true));
        assert_eq!(seen[2], (Name::Overlap, false), "a choice is not typed");
        assert_eq!(seen[4], (Name::Jitter, true), "past the choices it is typed again");
        assert_eq!((seen[5].0, seen[6].0), (Name::Mode, Name::Schedule));
        form.go(false, false);
        assert_eq!(form.focus, Name::Schedule);
        form.go(false, false);
        assert_eq!(form.focus, Name::Mode);
    }

    #[test]
    fn a_new_file_moves_what_was_not_touched() {
        let mut form = form();
        form.key(Key::char('x'));
        let mut theirs = form.original.clone();
        theirs.set(Name::Schedule, "@hourly");
        theirs.set(Name::Timezone, "Europe/Berlin");
        form.rebase(theirs);
        assert_eq!(form.values().get(Name::Schedule), "@dailyx", "what was typed stays");
        assert_eq!(form.values().get(Name::Timezone), "Europe/Berlin");
        assert_eq!(form.changes().len(), 1);
    }

    #[test]
    fn what_is_typed_is_undone_to_what_the_file_says_now() {
        let mut form = form();
        let mut theirs = form.original.clone();
        theirs.set(Name::Schedule, "@hourly");
        form.rebase(theirs);
        form.key(Key::char('x'));
        assert_eq!(form.values().get(Name::Schedule), "@hourlyx");
        assert!(form.undo());
        assert_eq!(form.values().get(Name::Schedule), "@hourly");
        assert!(!form.is_changed() && !form.undo());
    }

    #[test]
    fn steps_are_bounded() {
        let mut form = form();
        form.leave();
        form.focus = Name::Overlap;
        for _ in 0..1_000 {
            form.choose(Key::plain(Code::Right));
        }
        assert_eq!(form.undo.len(), UNDO_MAX);
    }
}
