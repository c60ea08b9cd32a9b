//! Schedules: when a task's slots are.
//!
//! Decides what an expression means in a time zone, which instant comes next, how many lie
//! between two instants, and what a person should know about them (moved, repeated and
//! missing runs). Does not decide what happens to a slot: that is `plan` of the crate `besom-core`.
//!
//! - five fields as in crontab(5) (whole minutes), or six with the seconds first; names of
//!   months and weekdays; 0 and 7 are Sunday; `L`, `LW`, `15W`, `5#2`, `5L`;
//! - `@yearly` (`@annually`), `@monthly`, `@weekly`, `@daily` (`@midnight`), `@hourly`;
//! - `@every 1h30m`: multiples of the span since the Unix epoch, in every zone the same.
//!
//! Everything here is bounded: a search ends with the calendar's cycle of 400 years,
//! counting is arithmetic per day, not per slot.

mod error;
mod every;
mod field;
#[cfg(test)]
mod oracle;
mod preview;
#[cfg(test)]
mod tests;
mod wall;
mod zone;

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::time::Time;

pub use error::{Place, ScheduleError};
pub use every::{EVERY_MAX_US, EVERY_MIN_US};
pub use preview::{DayWithoutRun, PreviewRow, Upcoming};

const SECOND_US: i64 = 1_000_000;
/// How far ahead [`Schedule::longest_gap`] searches.
const GAP_LOOKAHEAD: Duration = Duration::from_secs(366 * 86_400);

/// A schedule: an expression in a time zone, which defines a task's slots.
#[derive(Debug, Clone)]
pub struct Schedule {
    kind: Kind,
    zone: TimeZone,
    canonical: String,
}

#[derive(Debug, Clone)]
enum Kind {
    /// A multiple of this many microseconds since the epoch.
    Every(i64),
    Fields(Box<wall::Pattern>),
}

impl Schedule {
    /// Parses an expression in an IANA time zone (`Europe/Berlin`, `UTC`).
    ///
    /// # Errors
    /// Returns the invalid bytes and the fix. An expression that never runs is an error, too.
    pub fn parse(expression: &str, zone: &str) -> Result<Schedule, ScheduleError> {
        let (zone, zone_name) = parse_zone(zone)?;
        let word = expression.trim();
        let at = expression.len() - expression.trim_start().len();
        if word.is_empty() {
            return Err(ScheduleError::new(
                0..expression.len(),
                "the schedule is empty",
                "write a cron expression such as `30 2 * * *`, or `@every 30s`",
            ));
        }
        let fields = match word.strip_prefix('@') {
            None => field::parse(expression)?,
            Some(nickname) => {
                let (name, rest) = match nickname.split_once(char::is_whitespace) {
                    Some((name, rest)) => (name, rest),
                    None => (nickname, ""),
                };
                if name == "every" {
                    let every = every::parse(rest, at + word.len() - rest.len())?;
                    let canonical = every::canonical(every);
                    return Ok(Schedule { kind: Kind::Every(every), zone, canonical });
                }
                let meaning = match name {
                    "yearly" | "annually" => "0 0 1 1 *",
                    "monthly" => "0 0 1 * *",
                    "weekly" => "0 0 * * 0",
                    "daily" | "midnight" => "0 0 * * *",
                    "hourly" => "0 * * * *",
                    _ => "",
                };
                if meaning.is_empty() || !rest.trim().is_empty() {
                    let fix = match name {
                        "reboot" => "set `at_start = true` for a run at the start",
                        _ => "use @hourly, @daily, @weekly, @monthly, @yearly or `@every 30s`",
                    };
                    let message = format!("`{word}` is not a schedule");
                    return Err(ScheduleError::new(at..at + word.len(), message, fix));
                }
                field::parse(meaning)?
            }
        };
        let text = fields.text.join(" ");
        // Errors of croner beyond our own checks keep croner's text.
        let cron = croner::parser::CronParser::builder()
            .seconds(croner::parser::Seconds::Required)
            .year(croner::parser::Year::Disallowed)
            .build()
            .parse(&text)
            .map_err(|e| {
                ScheduleError::new(
                    at..at + word.len(),
                    e.to_string(),
                    "see crontab(5) for the fields",
                )
            })?;
        let pattern = wall::Pattern::new(cron.pattern, fields.fixed);
        if !pattern.has_days() {
            let [.., day, month, weekday] = &fields.text;
            let message = format!(
                "this never runs: no date has day {day} in month {month}{}",
                if weekday.starts_with('+') { " on such a weekday" } else { "" }
            );
            return Err(ScheduleError::new(
                fields.days,
                message,
                "use `L` for the last day of a month, or a day that the month has",
            ));
        }
        Ok(Schedule {
            kind: Kind::Fields(Box::new(pattern)),
            zone,
            canonical: format!("{text} {zone_name}"),
        })
    }

    /// The canonical spelling of this schedule, with its time zone where it matters. Two schedules
    /// with the same spelling have the same slots.
    pub fn canonical(&self) -> &str {
        &self.canonical
    }

    /// The time zone in which the expression is evaluated.
    pub fn zone(&self) -> &TimeZone {
        &self.zone
    }

    /// The first slot after `after`; none before the end of the calendar.
    pub fn next_after(&self, after: Time) -> Option<Time> {
        match &self.kind {
            Kind::Every(every) => {
                after.micros().div_euclid(*every).checked_add(1)?.checked_mul(*every).map(Time)
            }
            Kind::Fields(pattern) => {
                zone::next_after(pattern, &self.zone, after.micros().div_euclid(SECOND_US))
                    .map(Time::from_secs)
            }
        }
    }

    /// Whether `time` is a slot.
    pub fn is_slot(&self, time: Time) -> bool {
        self.next_after(Time(time.micros().saturating_sub(1))) == Some(time)
    }

    /// The number of slots in (after, until]. Computed arithmetically: its cost does not depend on
    /// how many slots there are per day.
    pub fn count(&self, after: Time, until: Time) -> u64 {
        if until <= after {
            return 0;
        }
        match &self.kind {
            Kind::Every(every) => {
                until.micros().div_euclid(*every).abs_diff(after.micros().div_euclid(*every))
            }
            Kind::Fields(pattern) => zone::count(
                pattern,
                &self.zone,
                after.micros().div_euclid(SECOND_US),
                until.micros().div_euclid(SECOND_US),
            ),
        }
    }

    /// The latest `n` slots in (after, until], oldest first.
    pub fn latest(&self, after: Time, until: Time, n: u32) -> Vec<Time> {
        let total = self.count(after, until);
        let n = u64::from(n).min(total);
        // The latest instant with at least n slots after it, found by bisection, because counting
        // is cheap.
        let (mut low, mut high) = (after, until);
        while n > 0 && high.micros() - low.micros() > SECOND_US {
            let middle = Time(low.micros() + (high.micros() - low.micros()) / 2);
            if self.count(middle, until) >= n { low = middle } else { high = middle }
        }
        let mut slots = Vec::new();
        let mut last = low;
        while let Some(slot) = self.next_after(last).filter(|slot| *slot <= until) {
            slots.push(slot);
            last = slot;
        }
        slots.split_off(slots.len() - (n as usize).min(slots.len()))
    }

    /// The longest interval between two slots in the year after `from` (between the first two slots
    /// if they are further apart), including clock changes.
    pub fn longest_gap(&self, from: Time) -> Duration {
        let Kind::Fields(pattern) = &self.kind else {
            let Kind::Every(every) = self.kind else { return Duration::ZERO };
            return Duration::from_micros(every.unsigned_abs());
        };
        // Within a day without a clock change.
        let times = pattern.times().zip(pattern.times().skip(1));
        let within = times.map(|(time, next)| next - time).max().unwrap_or(0);
        let mut longest = Duration::from_secs(within.unsigned_abs());
        // From the last slot of a day to the first slot of the next day that has any.
        let horizon = from + GAP_LOOKAHEAD;
        let mut start = self.next_after(from);
        while let Some(slot) = start {
            let midnight = self.midnight_after(slot);
            let last = self.latest(Time(slot.micros() - 1), midnight, 1).pop().unwrap_or(slot);
            let Some(next) = self.next_after(last) else { break };
            longest = longest.max(next.since(last));
            start = Some(next).filter(|next| *next < horizon);
        }
        // Across a clock change.
        let around = Duration::from_secs(within.unsigned_abs() + 1);
        for change in self.zone.following(from.to_jiff()) {
            let change = Time::from_jiff(change.timestamp());
            if change > horizon {
                break;
            }
            let last = self.latest(change - around, change, 1).pop();
            if let Some((slot, next)) = last.and_then(|slot| Some((slot, self.next_after(slot)?))) {
                longest = longest.max(next.since(slot));
            }
        }
        longest
    }

    /// The end of the local day of `time`, using the offset at `time`.
    fn midnight_after(&self, time: Time) -> Time {
        let offset = i64::from(self.zone.to_offset(time.to_jiff()).seconds());
        let wall = time.micros().div_euclid(SECOND_US) + offset;
        Time::from_secs((wall.div_euclid(wall::DAY_S) + 1) * wall::DAY_S - offset - 1)
    }
}

fn parse_zone(name: &str) -> Result<(TimeZone, String), ScheduleError> {
    let database = jiff::tz::db();
    match database.get(name) {
        Ok(zone) => {
            let name = zone.iana_name().unwrap_or(name).to_owned();
            Ok((zone, name))
        }
        Err(_) => {
            let wanted = name.trim().to_ascii_lowercase().replace(' ', "_");
            let known = database.available().find(|known| {
                let known = known.as_str().to_ascii_lowercase();
                !wanted.is_empty() && known.rsplit('/').next() == wanted.rsplit('/').next()
            });
            let fix = match known {
                Some(known) => format!("write `{}`", known.as_str()),
                None => "write an IANA name such as `Europe/Berlin`, or `UTC`".to_owned(),
            };
            let message = format!("unknown time zone `{name}`");
            Err(ScheduleError {
                place: Place::Zone,
                ..ScheduleError::new(0..name.len(), message, fix)
            })
        }
    }
}
