//! Maintenance windows: the hours of the week in which a task may scan and execute.
//!
//! ```text
//! Mon-Fri 22:00-05:00 Europe/Berlin      the days are those on which it opens
//! Sat,Sun 00:00-24:00                    in the time zone of the task
//! 01:00-04:30 UTC                        every day
//! ```
//! A window follows the wall clock. When clocks go forward, one that would open or close in the hour
//! that is left out does so at the change; when they go back, the repeated hour belongs to a window that
//! opens or closes in it. Windows that overlap or touch are one.

use std::fmt;
use std::time::Duration;

use jiff::ToSpan;
use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Serialize};

use crate::cron::{PreviewRow, Schedule, Upcoming};
use crate::time::Time;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// How many days before the present a window may have opened that is still open.
const DAYS_BACK: i64 = 2;
/// How many days a window is looked for: one a week, and the week of a change of the clocks.
const DAYS_AHEAD: i64 = 16;
const MINUTES_OF_DAY: u16 = 24 * 60;

/// The windows of a task; none: it is always open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<String>")]
pub struct Windows(Vec<Window>);

/// One window of each week.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Whether it opens on a day, Monday first.
    days: [bool; 7],
    /// When it opens and closes, in minutes after midnight; not later: it closes on the next day.
    from: u16,
    to: u16,
    zone: TimeZone,
    /// As written, with its time zone.
    text: String,
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Window {
    /// Reads a window. `zone` is that of a window that names none.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn read(text: &str, zone: &str) -> Result<Window, String> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let is_hours = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
        let days = match words.first() {
            Some(word) if !is_hours(word) => days(words.remove(0))?,
            _ => [true; 7],
        };
        let Some(hours) = words.first().copied().filter(|word| is_hours(word)) else {
            return Err("the hours are missing: write, for example, `22:00-05:00`".to_owned());
        };
        let (from, to) = hours
            .split_once('-')
            .ok_or_else(|| format!("`{hours}` is not a range of hours such as `22:00-05:00`"))?;
        let (from, to) = (minutes(from)?, minutes(to)?);
        if from == to {
            return Err(format!("`{hours}` never opens: write 00:00-24:00 for a whole day"));
        }
        if from == MINUTES_OF_DAY {
            return Err(format!("`{hours}` opens at 24:00: write 00:00, and the next day"));
        }
        let (name, given) = match words.get(1..) {
            Some([named]) => (*named, text.trim().to_owned()),
            None | Some([]) => (zone, format!("{} {zone}", text.trim())),
            Some(_) => {
                let rest = words[2..].join(" ");
                return Err(format!("`{rest}` is not expected after the time zone"));
            }
        };
        let zone = TimeZone::get(name).map_err(|_| format!("`{name}` is not an IANA time zone"))?;
        Ok(Window { days, from, to, zone, text: given })
    }

    /// From when until when it is open, if it opens on this day.
    fn on(&self, day: Date) -> Option<(Time, Time)> {
        if !self.days[day.weekday().to_monday_zero_offset() as usize] {
            return None;
        }
        let closes_on = if self.to > self.from { day } else { day.tomorrow().ok()? };
        let opens = self.instant(day, self.from, false)?;
        let closes = self.instant(closes_on, self.to, true)?;
        (opens < closes).then_some((opens, closes))
    }

    /// When the wall clock shows this time: at the change, if it is left out; `last` of two otherwise.
    fn instant(&self, day: Date, minutes: u16, last: bool) -> Option<Time> {
        let midnight: DateTime = day.to_datetime(jiff::civil::Time::midnight());
        let wall = midnight.checked_add(i64::from(minutes).minutes()).ok()?;
        let at = match self.zone.to_ambiguous_timestamp(wall).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(wall).ok()?,
            AmbiguousOffset::Fold { before, after } => {
                (if last { after } else { before }).to_timestamp(wall).ok()?
            }
            AmbiguousOffset::Gap { after, .. } => {
                let earlier = after.to_timestamp(wall).ok()?;
                self.zone.following(earlier).next()?.timestamp()
            }
        };
        Some(Time::from_jiff(at))
    }

    /// All openings from a few days before `now` on, in order.
    fn around(&self, now: Time) -> impl Iterator<Item = (Time, Time)> + '_ {
        let today = self.zone.to_datetime(now.to_jiff()).date();
        (-DAYS_BACK..=DAYS_AHEAD)
            .filter_map(move |days| today.checked_add(days.days()).ok())
            .filter_map(|day| self.on(day))
    }
}

fn days(word: &str) -> Result<[bool; 7], String> {
    let mut found = [false; 7];
    if word == "*" {
        return Ok([true; 7]);
    }
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (mut at, last) = (day(first)?, day(last)?);
        found[at] = true;
        while at != last {
            at = (at + 1) % 7;
            found[at] = true;
        }
    }
    Ok(found)
}

fn day(word: &str) -> Result<usize, String> {
    DAYS.iter()
        .position(|name| word.eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("`{word}` is not a day: write Mon, Tue, Wed, Thu, Fri, Sat or Sun"))
}

fn minutes(word: &str) -> Result<u16, String> {
    let wrong = || format!("`{word}` is not a time such as 22:00");
    let (hours, minutes) = word.split_once(':').ok_or_else(wrong)?;
    let of = |digits: &str| match digits.len() {
        1 | 2 => digits.parse::<u16>().ok(),
        _ => None,
    };
    let (hours, minutes) = (of(hours).ok_or_else(wrong)?, of(minutes).ok_or_else(wrong)?);
    let all = hours * 60 + minutes;
    match minutes < 60 && all <= MINUTES_OF_DAY {
        true => Ok(all),
        false => Err(wrong()),
    }
}

impl Windows {
    /// These windows together.
    pub fn new(windows: Vec<Window>) -> Windows {
        Windows(windows)
    }

    /// Whether there is none, so that the task is always open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the task is open.
    pub fn is_open(&self, now: Time) -> bool {
        self.is_empty() || self.around(now).iter().any(|(from, to)| *from <= now && now < *to)
    }

    /// When the next window opens; none: one is open, or there is none.
    pub fn opens_at(&self, now: Time) -> Option<Time> {
        if self.is_open(now) {
            return None;
        }
        self.around(now).into_iter().map(|(from, _)| from).find(|from| *from > now)
    }

    /// When the present window opened; none: none is open, or there is none.
    pub fn opened_at(&self, now: Time) -> Option<Time> {
        let present = |(from, to): &(Time, Time)| *from <= now && now < *to;
        self.around(now).into_iter().find(present).map(|(from, _)| from)
    }

    /// The first slot of a schedule after `now` that lies in a window; none: there is none within two
    /// weeks.
    pub fn next_slot(&self, schedule: &Schedule, now: Time) -> Option<Time> {
        if self.is_empty() {
            return schedule.next_after(now);
        }
        self.slots(schedule, now).next()
    }

    /// The slots of a schedule after `now` that lie in a window; of windows, those of the next two weeks.
    pub fn slots(&self, schedule: &Schedule, now: Time) -> impl Iterator<Item = Time> {
        let open: Vec<_> = match self.is_empty() {
            true => vec![(now, Time::MAX)],
            false => self.openings(now).collect(),
        };
        open.into_iter().flat_map(move |(opens, closes)| {
            let first = schedule.next_after(now.max(Time(opens.0 - 1)));
            let all = std::iter::successors(first, |at| schedule.next_after(*at));
            all.take_while(move |slot| *slot < closes)
        })
    }

    /// The first slots of a schedule after `now` that lie in a window; at most `count`.
    pub fn upcoming(&self, schedule: &Schedule, now: Time, count: usize) -> Vec<Upcoming> {
        if self.is_empty() {
            return schedule.upcoming(now, count);
        }
        let next = |at: &Time| self.next_slot(schedule, *at);
        let slots = std::iter::successors(self.next_slot(schedule, now), next).take(count);
        slots.flat_map(|slot| schedule.upcoming(Time(slot.0 - 1), 1)).collect()
    }

    /// The first slots of a schedule after `now` that lie in a window, as table rows; at most `count`.
    pub fn preview(&self, schedule: &Schedule, now: Time, count: usize) -> Vec<PreviewRow> {
        schedule.rows(now, self.upcoming(schedule, now, count))
    }

    /// The number of slots of a schedule that lie in a window, in each of `count` spans of this length from
    /// `start` on. Windows are known for two weeks.
    pub fn counts(
        &self,
        schedule: &Schedule,
        start: Time,
        each: Duration,
        count: usize,
    ) -> Vec<u64> {
        let open: Vec<_> = match self.is_empty() {
            true => vec![(start, Time::MAX)],
            false => self.openings(start).collect(),
        };
        let ends = std::iter::successors(Some(start), |from| Some(*from + each));
        let spans = ends.clone().zip(ends.skip(1)).take(count);
        // From the first instant of a span up to, but excluding, that of the next.
        let of = |(from, to): (Time, Time)| {
            let clipped = open.iter().map(|(opens, closes)| (from.max(*opens), to.min(*closes)));
            clipped.map(|(low, high)| schedule.count(Time(low.0 - 1), Time(high.0 - 1))).sum()
        };
        spans.map(of).collect()
    }

    /// When the task next opens or closes; none: it is always open.
    pub fn changes_at(&self, now: Time) -> Option<Time> {
        let all = self.around(now);
        all.into_iter().flat_map(|(from, to)| [from, to]).find(|at| *at > now)
    }

    /// Openings from the present one on, of the next two weeks, in order and apart.
    pub fn openings(&self, now: Time) -> impl Iterator<Item = (Time, Time)> {
        self.around(now).into_iter().filter(move |(_, to)| *to > now)
    }

    /// Openings around the present, in order; those that overlap or touch are one.
    fn around(&self, now: Time) -> Vec<(Time, Time)> {
        let mut all: Vec<_> = self.0.iter().flat_map(|window| window.around(now)).collect();
        all.sort_unstable();
        let mut apart: Vec<(Time, Time)> = Vec::new();
        for (from, to) in all {
            match apart.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => apart.push((from, to)),
            }
        }
        apart
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, window) in self.0.iter().enumerate() {
            let before = if at == 0 { "" } else { ", " };
            write!(f, "{before}{window}")?;
        }
        Ok(())
    }
}

impl TryFrom<Vec<String>> for Windows {
    type Error = String;

    fn try_from(texts: Vec<String>) -> Result<Windows, String> {
        texts.iter().map(|text| Window::read(text, "UTC")).collect::<Result<_, _>>().map(Windows)
    }
}

impl From<Windows> for Vec<String> {
    fn from(windows: Windows) -> Vec<String> {
        windows.0.iter().map(Window::to_string).collect()
    }
}

#[cfg(test)]
mod tests;
