//! The keys of a task that can be edited on the Edit screen, and their changes.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::mode;
use besom_core::plan::{CATCH_UP_RUNS_MAX, CatchUp, GRACE_DEFAULT, Overlap, Policy};
use besom_snapshot::Task;

use super::section::Section;

/// A key of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// The expression; empty: the task runs by trigger only.
    Schedule,
    /// The time zone of the expression.
    Timezone,
    /// Slots while the previous run is active.
    Overlap,
    /// Slots that passed without a leader.
    CatchUp,
    /// The maximum random delay of a run after its slot.
    Jitter,
    /// How far a run goes by itself.
    Mode,
}

impl Name {
    /// All keys, in the order of the form.
    pub const ALL: [Name; 6] =
        [Name::Schedule, Name::Timezone, Name::Overlap, Name::CatchUp, Name::Jitter, Name::Mode];

    /// The key in the file.
    pub fn key(self) -> &'static str {
        match self {
            Name::Schedule => "schedule",
            Name::Timezone => "timezone",
            Name::Overlap => "overlap",
            Name::CatchUp => "catch_up",
            Name::Jitter => "jitter",
            Name::Mode => "mode",
        }
    }

    /// The possible values; none: free text.
    pub fn choices(self) -> Option<&'static [&'static str]> {
        match self {
            Name::Schedule | Name::Timezone | Name::Jitter => None,
            Name::Overlap => Some(&["skip", "queue", "allow"]),
            Name::CatchUp => Some(&["skip", "coalesce", "all"]),
            Name::Mode => Some(mode::NAMES),
        }
    }
}

/// The values of the keys, as text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Values {
    values: [String; 6],
}

impl Values {
    /// The values of a task. The values in the file's section take precedence, because the file is
    /// edited.
    pub fn of(task: &Task, section: Option<&Section>) -> Values {
        let runs = |name| match name {
            Name::Schedule => task.schedule.clone().unwrap_or_default(),
            Name::Timezone => task.timezone.clone(),
            Name::Overlap => task.overlap.clone(),
            // The number of slots to catch up is a separate key, which is not edited here.
            Name::CatchUp if task.catch_up.parse::<u32>().is_ok() => "all".to_owned(),
            Name::CatchUp => task.catch_up.clone(),
            Name::Jitter => span_text(task.jitter_ms),
            Name::Mode => task.mode.as_str().to_owned(),
        };
        let value = |name: Name| {
            let written = section.and_then(|section| section.value(name.key()));
            written.map_or_else(|| runs(name), str::to_owned)
        };
        Values { values: Name::ALL.map(value) }
    }

    /// A value.
    pub fn get(&self, name: Name) -> &str {
        &self.values[name as usize]
    }

    /// Sets a value.
    pub fn set(&mut self, name: Name, value: impl Into<String>) {
        self.values[name as usize] = value.into();
    }

    /// The keys to set and to remove to get from `before` to these values.
    pub fn changes(&self, before: &Values) -> BTreeMap<String, Option<String>> {
        let changed = Name::ALL.into_iter().filter(|name| self.get(*name) != before.get(*name));
        let change = |name: Name| {
            let value = self.get(name).trim();
            (name.key().to_owned(), (!value.is_empty()).then(|| value.to_owned()))
        };
        changed.map(change).collect()
    }

    /// The policy that these values define; an invalid value counts as its default.
    pub fn policy(&self) -> Policy {
        Policy {
            overlap: match self.get(Name::Overlap) {
                "queue" => Overlap::Queue,
                "allow" => Overlap::Allow,
                _ => Overlap::Skip,
            },
            catch_up: match self.get(Name::CatchUp) {
                "skip" => CatchUp::Skip,
                "all" => CatchUp::All(CATCH_UP_RUNS_MAX),
                _ => CatchUp::Coalesce,
            },
            jitter: span(self.get(Name::Jitter)).unwrap_or_default(),
            grace: GRACE_DEFAULT,
        }
    }
}

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A duration as in a configuration: in the largest unit without a remainder.
fn span_text(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    let unit = UNITS.iter().find(|(_, factor)| ms.is_multiple_of(*factor));
    unit.map_or_else(|| format!("{ms}ms"), |(unit, factor)| format!("{}{unit}", ms / factor))
}

/// A duration of one number and unit, for the forecast; the server validates it.
fn span(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (_, factor) = UNITS.iter().find(|(unit, _)| *unit == &text[digits..])?;
    text[..digits].parse::<u64>().ok()?.checked_mul(*factor).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            schedule: Some("* * * * *".into()),
            timezone: "UTC".into(),
            overlap: "skip".into(),
            catch_up: "7".into(),
            jitter_ms: 90_000,
            ..Task::default()
        }
    }

    #[test]
    fn only_what_changed_is_sent_and_an_empty_value_removes_its_key() {
        let before = Values::of(&task(), None);
        assert_eq!(before.get(Name::CatchUp), "all");
        let mut after = before.clone();
        assert!(after.changes(&before).is_empty());
        after.set(Name::Schedule, " */2 * * * * ");
        after.set(Name::Jitter, "  ");
        let changes = after.changes(&before);
        let expected = [("jitter", None), ("schedule", Some("*/2 * * * *".to_owned()))];
        assert_eq!(changes, expected.map(|(k, v)| (k.to_owned(), v)).into());
    }

    #[test]
    fn the_file_says_what_is_edited() {
        let text = "[tasks.a]\nschedule = '@daily'\n";
        let values = Values::of(&task(), Section::find(text, "a").as_ref());
        assert_eq!(values.get(Name::Schedule), "@daily");
        assert_eq!(values.get(Name::Timezone), "UTC");
    }

    #[test]
    fn spans_are_those_of_a_configuration() {
        for (ms, text) in
            [(0, "0s"), (1, "1ms"), (1_500, "1500ms"), (90_000, "90s"), (120_000, "2m")]
        {
            assert_eq!(span_text(ms), text);
            assert_eq!(span(text), Some(Duration::from_millis(ms)));
        }
        for wrong in ["", "10", "s", "1 parsec", "99999999999999999999d", "1h30m", "ä"] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
        let mut values = Values::of(&task(), None);
        values.set(Name::Overlap, "queue");
        let policy = values.policy();
        assert_eq!((policy.overlap, policy.jitter), (Overlap::Queue, Duration::from_secs(90)));
    }
}
