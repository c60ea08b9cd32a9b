//! What a person should know about the next slots. The slots are the scheduler's; nothing here
//! searches by itself.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::wall::{DAY_S, Pattern};
use super::zone::{self, Period};
use super::{Kind, SECOND_US, Schedule};
use crate::time::Time;

/// How many missing times a note lists by name.
const NAMED_MAX: usize = 3;
/// How far ahead [`Schedule::day_without_run`] searches, in seconds: four years.
const LOOKAHEAD_S: i64 = 1_461 * DAY_S;

/// An upcoming slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upcoming {
    /// The slot's instant.
    pub utc: Time,
    /// The slot in the schedule's time zone: RFC 3339 with the offset.
    pub local: String,
    /// The effect of daylight saving: moved, one of two occurrences, or times missing before it.
    pub note: Option<String>,
}

/// An upcoming slot as a table row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviewRow {
    /// Its position among the upcoming slots, from 1.
    pub number: u32,
    /// The slot's instant.
    pub utc: Time,
    /// The slot in the schedule's time zone: date, time and the zone's abbreviation, such as
    /// `2026-10-25 02:56:00 CEST`.
    pub local: String,
    /// The time from now until the slot.
    pub wait: Duration,
    /// The effect of daylight saving on the slot.
    pub note: Option<String>,
}

/// A day on which the schedule would run, but every scheduled time falls into a clock change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayWithoutRun {
    /// The local date, such as `2026-03-29`.
    pub date: String,
    /// A sentence for `besom check`.
    pub warning: String,
}

impl Schedule {
    /// The next `n` slots after `from`.
    pub fn upcoming(&self, from: Time, n: usize) -> Vec<Upcoming> {
        let mut last = from;
        let next = std::iter::from_fn(|| {
            let utc = self.next_after(last)?;
            let note = self.note(last, utc);
            last = utc;
            Some(Upcoming { utc, local: self.local(utc), note })
        });
        next.take(n).collect()
    }

    /// The next `n` slots after `now` as table rows.
    pub fn preview(&self, now: Time, n: usize) -> Vec<PreviewRow> {
        self.rows(now, self.upcoming(now, n))
    }

    /// Slots after `now` as table rows.
    pub(crate) fn rows(&self, now: Time, slots: Vec<Upcoming>) -> Vec<PreviewRow> {
        let row = |(number, slot): (u32, Upcoming)| PreviewRow {
            number,
            local: self.wall(slot.utc),
            wait: slot.utc.since(now),
            utc: slot.utc,
            note: slot.note,
        };
        (1..).zip(slots).map(row).collect()
    }

    /// An instant in the schedule's time zone, with the abbreviation in force at that instant.
    pub fn wall(&self, time: Time) -> String {
        let at = time.to_jiff().to_zoned(self.zone().clone());
        at.strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }

    /// An instant in the schedule's time zone: RFC 3339 with the offset.
    pub fn local(&self, time: Time) -> String {
        let at = time.to_jiff();
        at.display_with_offset(self.zone().to_offset(at)).to_string()
    }

    /// The first day within four years after `from` without a run because the clocks skip all its
    /// scheduled times.
    pub fn day_without_run(&self, from: Time) -> Option<DayWithoutRun> {
        let Kind::Fields(pattern) = &self.kind else { return None };
        let from = from.micros().div_euclid(SECOND_US);
        for change in self.zone().following(zone::timestamp(from)) {
            let start = change.timestamp().as_second();
            if start > from + LOOKAHEAD_S {
                break;
            }
            let Some((low, high)) = Period::at(self.zone(), start).hole() else { continue };
            let Some(missing) = pattern.next(low).filter(|wall| *wall < high) else { continue };
            let midnight = missing.div_euclid(DAY_S) * DAY_S;
            let before = Period::at(self.zone(), start - 1);
            let day_start = if midnight < low { midnight - before.offset } else { start };
            let next = zone::next_after(pattern, self.zone(), day_start - 1)?;
            // In the period after the change, the day ends at its next midnight; a gap that
            // swallows the rest of the day ends it at once.
            let after = Period::at(self.zone(), start);
            let day_end = (midnight + DAY_S - after.offset).max(start + 1);
            if next < day_end {
                continue;
            }
            let date = date(missing);
            let warning = format!(
                "no run on {date}: the clocks change from {} to {}, and every scheduled time \
                 falls in between",
                clock(low, false),
                clock(high, false)
            );
            return Some(DayWithoutRun { date, warning });
        }
        None
    }

    fn note(&self, last: Time, slot: Time) -> Option<String> {
        let Kind::Fields(pattern) = &self.kind else { return None };
        let slot = slot.micros().div_euclid(SECOND_US);
        let last = last.micros().div_euclid(SECOND_US);
        let mut notes = Vec::new();
        // Clock changes since the previous slot, including the instant of this slot.
        let mut at = last;
        loop {
            let period = Period::at(self.zone(), at);
            if let Some(hole) = period.hole().filter(|_| period.start.is_some_and(|s| s > last)) {
                let lost = missing(pattern, hole);
                if let Some(lost) = lost {
                    let what = if pattern.fixed && period.start == Some(slot) {
                        format!("; runs at {} instead", clock(hole.1, false))
                    } else {
                        String::new()
                    };
                    notes.push(format!("{lost} on {}{what}", date(hole.0)));
                }
            }
            if period.end > slot {
                break;
            }
            at = period.end;
        }
        let period = Period::at(self.zone(), slot);
        let wall = slot + period.offset;
        let again = zone_again(self, &period, slot);
        let seconds = wall % 60 != 0;
        if period.second_pass().is_some_and(|(low, high)| (low..high).contains(&wall)) {
            notes.push(format!(
                "{} occurs twice on {}: second time",
                clock(wall, seconds),
                date(wall)
            ));
        } else if again {
            let which = if pattern.fixed { "runs the first time only" } else { "first time" };
            notes.push(format!("{} occurs twice on {}: {which}", clock(wall, seconds), date(wall)));
        }
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// Whether the wall time of `slot` occurs again after the end of its period.
fn zone_again(schedule: &Schedule, period: &Period, slot: i64) -> bool {
    if period.end == i64::MAX {
        return false;
    }
    let wall = slot + period.offset;
    let next = Period::at(schedule.zone(), period.end);
    next.second_pass().is_some_and(|(low, high)| (low..high).contains(&wall))
}

/// `02:00, 02:20, 02:40 do not exist`.
fn missing(pattern: &Pattern, (low, high): (i64, i64)) -> Option<String> {
    let count = pattern.count(low, high) as usize;
    let mut names = Vec::new();
    let mut wall = low;
    while let Some(next) = pattern.next(wall).filter(|next| *next < high && names.len() < NAMED_MAX)
    {
        names.push(clock(next, next % 60 != 0));
        wall = next + 1;
    }
    match count {
        0 => None,
        1 => Some(format!("{} does not exist", names[0])),
        n if n > NAMED_MAX => {
            Some(format!("{} and {} more do not exist", names.join(", "), n - NAMED_MAX))
        }
        _ => Some(format!("{} do not exist", names.join(", "))),
    }
}

fn date(wall: i64) -> String {
    jiff::tz::Offset::UTC.to_datetime(zone::timestamp(wall)).date().to_string()
}

fn clock(wall: i64, seconds: bool) -> String {
    let time = wall.rem_euclid(DAY_S);
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    if seconds {
        format!("{hour:02}:{minute:02}:{second:02}")
    } else {
        format!("{hour:02}:{minute:02}")
    }
}
