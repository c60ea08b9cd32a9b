//! Instants in microseconds and durations in milliseconds, the units of the contract.

use std::fmt;

/// An instant: microseconds since 1970-01-01T00:00:00Z (negative before).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Adds `ms` milliseconds; saturates at the last representable instant.
    pub fn plus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(micros(ms)))
    }

    /// Subtracts `ms` milliseconds; saturates at the first representable instant.
    pub fn minus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_sub(micros(ms)))
    }

    /// The microseconds since the epoch, negative before it.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// An instant in UTC: a date, or a date and a time with or without a fraction of a second, such as
    /// `2026-01-31`, `2026-01-31 08:00:00.25` or `2026-01-31T08:00:00Z`. None: the text is none.
    pub fn parse(text: &str) -> Option<Time> {
        let (date, time) = match text.split_once(['T', ' ']) {
            Some((date, time)) => (date, time.strip_suffix('Z').unwrap_or(time)),
            None => (text, "00:00:00"),
        };
        let day = Day::parse(date)?;
        let (clock, fraction) = time.split_once('.').map_or((time, None), |(c, f)| (c, Some(f)));
        let [hour, minute, second] = *clock.split(':').collect::<Vec<_>>() else { return None };
        let (hour, minute) = (number(hour, 2, 0..24)?, number(minute, 2, 0..60)?);
        let second = number(second, 2, 0..60)?;
        let micros = match fraction {
            None => 0,
            Some(digits) if digits.is_empty() || digits.len() > 6 => return None,
            Some(digits) => number(&format!("{digits:0<6}"), 6, 0..1_000_000)?,
        };
        let seconds = hour * 3_600 + minute * 60 + second;
        Some(Time(day.begins().0 + seconds * 1_000_000 + micros))
    }

    /// The instant in UTC as [`Time::parse`] reads it, such as `2026-01-31T08:00:00Z`. None: it is not in
    /// the years 1 to 9999.
    pub fn text(self) -> Option<String> {
        let day = Day::of(self).text()?;
        let micros = self.0.rem_euclid(DAY_MICROS);
        let (second, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
        let clock = format!("{day}T{hour:02}:{minute:02}:{second:02}");
        Some(match fraction {
            0 => format!("{clock}Z"),
            fraction => {
                format!("{clock}.{}Z", format!("{fraction:06}").trim_end_matches('0'))
            }
        })
    }
}

fn number(text: &str, digits: usize, range: std::ops::Range<i64>) -> Option<i64> {
    let fits = text.len() == digits && text.bytes().all(|b| b.is_ascii_digit());
    text.parse::<i64>().ok().filter(|n| fits && range.contains(n))
}

/// A day of the calendar: days since 1970-01-01, negative before. The smallest and the largest number are
/// the infinities of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i32);

impl Day {
    /// The day in UTC of an instant; the last or first day for an instant beyond it.
    pub fn of(time: Time) -> Day {
        let days = time.0.div_euclid(DAY_MICROS);
        Day(i32::try_from(days).unwrap_or(if days < 0 { i32::MIN } else { i32::MAX }))
    }

    /// The instant at which the day begins in UTC.
    pub fn begins(self) -> Time {
        Time(i64::from(self.0).saturating_mul(DAY_MICROS))
    }

    /// The day that is written as `2026-01-31`, in the years 1 to 9999. None: the text is no such day.
    pub fn parse(text: &str) -> Option<Day> {
        let [year, month, day] = *text.split('-').collect::<Vec<_>>() else { return None };
        let (year, month) = (number(year, 4, 1..10_000)?, number(month, 2, 1..13)?);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let longest = match month {
            2 => 28 + i64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        let day = number(day, 2, 1..longest + 1)?;
        // https://howardhinnant.github.io/date_algorithms.html, as below.
        let year = year - i64::from(month <= 2);
        let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
        let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
        i32::try_from(days).ok().map(Day)
    }

    /// The day as [`Day::parse`] reads it. None: it is not in the years 1 to 9999.
    pub fn text(self) -> Option<String> {
        let days = i64::from(self.0) + 719_468;
        let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = year + era * 400 + i64::from(month <= 2);
        (1..10_000).contains(&year).then(|| format!("{year:04}-{month:02}-{day:02}"))
    }
}

impl fmt::Display for Day {
    /// Writes the days since the epoch: a form for versions, not for operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The length of a day, in microseconds.
const DAY_MICROS: i64 = 86_400_000_000;

fn micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000)
}

impl fmt::Display for Time {
    /// Writes the microseconds since the epoch: a form for versions, not for operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The milliseconds of a duration such as `250ms`, `90s`, `5m`, `24h`, `7d` or `2w`; none if the
/// text is not a duration or the result overflows.
pub fn parse_duration_ms(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("0s", Some(0)),
            ("250ms", Some(250)),
            ("90s", Some(90_000)),
            ("5m", Some(300_000)),
            ("24h", Some(86_400_000)),
            ("7d", Some(604_800_000)),
            ("2w", Some(1_209_600_000)),
            ("", None),
            ("7", None),
            ("d", None),
            ("7 d", None),
            ("-7d", None),
            ("99999999999999999999d", None),
            ("18446744073709551615s", None),
        ] {
            assert_eq!(parse_duration_ms(text), expected, "{text:?}");
        }
    }

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        assert_eq!(Time(5_000).minus_ms(3), Time(2_000));
        assert_eq!(Time(i64::MAX).plus_ms(1), Time(i64::MAX));
        assert_eq!(Time(i64::MIN).minus_ms(u64::MAX), Time(i64::MIN));
    }

    #[test]
    fn instants_are_those_of_the_calendar() {
        for (text, seconds) in [
            ("1970-01-01", Some(0)),
            ("1969-12-31T23:59:59Z", Some(-1)),
            ("2000-02-29", Some(951_782_400)),
            ("2024-12-31 23:59:59", Some(1_735_689_599)),
            ("2100-03-01", Some(4_107_542_400)),
            ("0001-01-01", Some(-62_135_596_800)),
            ("9999-12-31", Some(253_402_214_400)),
            ("2100-02-29", None),
            ("2026-13-01", None),
            ("2026-1-1", None),
            ("2026-01-01T24:00:00Z", None),
            ("2026-01-01T00:00:00+01:00", None),
            ("2026-01-01 00:00", None),
            ("2026-01-01 00:00:00.", None),
        ] {
            let time = seconds.map(|s| Time(s * 1_000_000));
            assert_eq!(Time::parse(text), time, "{text}");
            let written = time.and_then(Time::text);
            assert_eq!(written.as_deref().and_then(Time::parse), time, "{text}");
        }
        assert_eq!(Time::parse("1970-01-01 00:00:00.25"), Some(Time(250_000)));
        assert_eq!(Time(250_000).text().as_deref(), Some("1970-01-01T00:00:00.25Z"));
        assert_eq!(Time(-1).text().as_deref(), Some("1969-12-31T23:59:59.999999Z"));
        assert_eq!(Time(i64::MAX).text(), None);
        assert_eq!(Time(i64::MIN).text(), None);
    }

    #[test]
    fn every_day_of_four_centuries_is_read_as_it_is_written() {
        for days in -146_097..=146_097 {
            let day = Day(days);
            assert_eq!(Day::parse(&day.text().expect("in range")), Some(day));
        }
        assert_eq!(Day(20_484).text().as_deref(), Some("2026-01-31"));
        assert_eq!(Day(i32::MAX).text(), None);
    }
}
