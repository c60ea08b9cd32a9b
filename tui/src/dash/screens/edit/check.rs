//! The schedule as typed so far, parsed as the scheduler does, and the last valid one.

use besom_core::cron::{Place, Schedule, ScheduleError};
use besom_core::time::Time;
use besom_core::window::Windows;

use super::values::{Name, Values};

/// The result of parsing the schedule and its time zone.
#[derive(Debug, Clone)]
pub enum Reading {
    /// There is no schedule: the task runs by trigger only.
    None,
    /// The schedule is valid.
    Valid,
    /// The schedule is invalid.
    Wrong(ScheduleError),
}

/// A valid schedule.
#[derive(Debug, Clone)]
pub struct Valid {
    /// The expression.
    pub expression: String,
    /// Its time zone.
    pub zone: String,
    /// The parsed schedule.
    pub schedule: Schedule,
}

/// The parsed schedule, kept until its text changes.
#[derive(Debug, Clone)]
pub struct Check {
    text: (String, String),
    /// The result for the current values.
    pub reading: Reading,
    /// The last valid schedule.
    pub valid: Option<Valid>,
}

impl Check {
    /// Parses these values.
    pub fn of(values: &Values) -> Check {
        let mut check = Check { text: <_>::default(), reading: Reading::None, valid: None };
        check.read(values);
        check
    }

    /// Parses the values again if their text has changed.
    pub fn read(&mut self, values: &Values) {
        let (expression, zone) = (values.get(Name::Schedule), values.get(Name::Timezone));
        if (self.text.0.as_str(), self.text.1.as_str()) == (expression, zone)
            && !matches!(self.reading, Reading::None)
        {
            return;
        }
        self.text = (expression.to_owned(), zone.to_owned());
        let zone = if zone.trim().is_empty() { "UTC" } else { zone };
        if expression.trim().is_empty() {
            self.reading = Reading::None;
            return;
        }
        self.reading = match Schedule::parse(expression, zone) {
            Err(error) => Reading::Wrong(error),
            Ok(schedule) => {
                let (expression, zone) = (expression.trim().to_owned(), zone.to_owned());
                self.valid = Some(Valid { expression, zone, schedule });
                Reading::Valid
            }
        };
    }

    /// The error of a field: the first character and the number of characters it concerns, and the
    /// error.
    pub fn error(&self, name: Name) -> Option<(usize, usize, &ScheduleError)> {
        let Reading::Wrong(error) = &self.reading else { return None };
        let text = match (error.place, name) {
            (Place::Expression, Name::Schedule) => &self.text.0,
            (Place::Zone, Name::Timezone) => &self.text.1,
            _ => return None,
        };
        let chars =
            |bytes: std::ops::Range<usize>| text.get(bytes).map_or(0, |part| part.chars().count());
        Some((chars(0..error.range.start), chars(error.range.clone()).max(1), error))
    }
}

/// A row of the preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slot {
    /// The slot's instant.
    pub at: Time,
    /// The date in the schedule's zone.
    pub date: String,
    /// The time of day in the schedule's zone, with the zone's abbreviation.
    pub local: String,
    /// The effect of daylight saving on the slot.
    pub note: Option<String>,
}

impl Valid {
    /// The next slots within these windows, as the scheduler computes them.
    pub fn next(&self, windows: &Windows, from: Time, n: usize) -> Vec<Slot> {
        let zone = self.schedule.zone();
        let slot = |next: besom_core::cron::Upcoming| {
            let local = next.utc.to_jiff().to_zoned(zone.clone());
            Slot {
                at: next.utc,
                date: local.strftime("%Y-%m-%d").to_string(),
                local: local.strftime("%H:%M:%S %Z").to_string(),
                note: next.note,
            }
        };
        windows.upcoming(&self.schedule, from, n).into_iter().map(slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(schedule: &str, zone: &str) -> Values {
        let mut values = Values::default();
        values.set(Name::Schedule, schedule);
        values.set(Name::Timezone, zone);
        values
    }

    #[test]
    fn the_error_stands_under_its_characters_and_the_last_valid_one_stays() {
        let mut check = Check::of(&values("*/2 0-23 * * *", "Europe/Berlin"));
        assert!(matches!(check.reading, Reading::Valid));
        check.read(&values("*/2 0-24 * * *", "Europe/Berlin"));
        let (from, chars, error) = check.error(Name::Schedule).unwrap();
        assert_eq!((from, chars), (6, 2), "{error}");
        assert!(error.message.contains("`24`") && !error.fix.is_empty());
        assert!(check.error(Name::Timezone).is_none());
        assert_eq!(check.valid.as_ref().unwrap().expression, "*/2 0-23 * * *");
        check.read(&values("@daily", "Berlin"));
        assert_eq!(check.error(Name::Timezone).unwrap().0, 0);
        assert!(check.error(Name::Schedule).is_none());
        check.read(&values("ä 0 * * *", "UTC"));
        let (from, chars, _) = check.error(Name::Schedule).unwrap();
        assert_eq!((from, chars), (0, 1), "characters, not bytes");
        check.read(&values("  ", "UTC"));
        assert!(matches!(check.reading, Reading::None), "it runs by trigger only");
    }

    #[test]
    fn the_preview_tells_both_passes_of_the_hour_that_comes_twice() {
        let check = Check::of(&values("*/2 * * * *", "Europe/Berlin"));
        let from = Time::from_secs(1_792_889_688); // 2026-10-25 00:54:48
        let slots = check.valid.unwrap().next(&Windows::default(), from, 5);
        let local: Vec<_> = slots.iter().map(|slot| slot.local.as_str()).collect();
        let expected =
            ["02:56:00 CEST", "02:58:00 CEST", "02:00:00 CET", "02:02:00 CET", "02:04:00 CET"];
        assert_eq!(local, expected);
        assert!(slots[2].note.as_ref().unwrap().contains("second time"), "{slots:?}");
    }
}
