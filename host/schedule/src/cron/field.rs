//! Checks the fields of an expression and brings them into one spelling.
//!
//! croner parses what leaves this module. Its errors carry no position, and it accepts names in any
//! field (`MON` as a minute), empty list entries and `L` as an hour; therefore every entry is
//! checked here first, with its byte range.

use std::ops::Range;

use super::ScheduleError;

/// The values that a field may hold.
struct Spec {
    name: &'static str,
    min: u32,
    max: u32,
    /// Three-letter names; the first one means `names_from`.
    names: &'static [&'static str],
    names_from: u32,
    days: Days,
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Days {
    No,
    OfMonth,
    OfWeek,
}

const MONTHS: &[&str] =
    &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

const fn plain(name: &'static str, min: u32, max: u32, days: Days) -> Spec {
    Spec { name, min, max, names: &[], names_from: 0, days }
}

const SPECS: [Spec; 6] = [
    plain("second", 0, 59, Days::No),
    plain("minute", 0, 59, Days::No),
    plain("hour", 0, 23, Days::No),
    plain("day of the month", 1, 31, Days::OfMonth),
    Spec { names: MONTHS, names_from: 1, ..plain("month", 1, 12, Days::No) },
    Spec { names: WEEKDAYS, ..plain("weekday", 0, 7, Days::OfWeek) },
];

/// A valid expression.
pub(super) struct Fields {
    /// Seconds to weekdays, with names replaced by numbers.
    pub text: [String; 6],
    /// Whether seconds, minutes and hours are single values or lists of them.
    pub fixed: bool,
    /// The bytes of the fields that choose the day: from day of the month to weekday.
    pub days: Range<usize>,
}

/// Checks five or six fields.
pub(super) fn parse(expression: &str) -> Result<Fields, ScheduleError> {
    let words = words(expression);
    let skipped = match words.len() {
        5 => 1,
        6 => 0,
        7 => {
            let (at, word) = words[6];
            return Err(ScheduleError::new(
                at..at + word.len(),
                "a seventh field (a year) is not supported",
                "use five fields (minute to weekday), or six with the seconds first",
            ));
        }
        n => {
            return Err(ScheduleError::new(
                0..expression.len(),
                format!("{n} field{} instead of five or six", if n == 1 { "" } else { "s" }),
                "write minute, hour, day of the month, month and weekday, such as `30 2 * * *`; \
                 or six fields with the seconds first",
            ));
        }
    };
    let mut text: [String; 6] = std::array::from_fn(|_| "0".to_owned());
    for (index, (at, word)) in words.iter().enumerate() {
        text[index + skipped] = field(&SPECS[index + skipped], word, *at)?;
    }
    // crontab(5): the two day fields are alternatives only if neither starts with a star. croner
    // looks for a lone star; its `+` requires both to match.
    let stepped = |field: &str| field.starts_with("*/");
    if !text[5].starts_with('+')
        && text[3] != "*"
        && text[5] != "*"
        && (stepped(&text[3]) || stepped(&text[5]))
    {
        text[5].insert(0, '+');
    }
    let fixed = text[..3].iter().all(|field| !field.contains(['*', '-', '/']));
    let (first, last) = (words[3 - skipped].0, words[5 - skipped]);
    Ok(Fields { text, fixed, days: first..last.0 + last.1.len() })
}

/// The words of a text with their byte positions.
fn words(text: &str) -> Vec<(usize, &str)> {
    text.split_whitespace()
        .map(|word| (word.as_ptr() as usize - text.as_ptr() as usize, word))
        .collect()
}

fn field(spec: &Spec, word: &str, at: usize) -> Result<String, ScheduleError> {
    let (sign, entries, at) = match word.strip_prefix('+') {
        Some(rest) if spec.days == Days::OfWeek => ("+", rest, at + 1),
        _ => ("", word, at),
    };
    if entries == "*" || (entries == "?" && spec.days != Days::No) {
        return Ok("*".to_owned());
    }
    let mut out = String::from(sign);
    let mut start = at;
    for (index, entry) in entries.split(',').enumerate() {
        if index > 0 {
            out.push(',');
        }
        out.push_str(&Entry { spec, text: entry, at: start }.normalise()?);
        start += entry.len() + 1;
    }
    if spec.days == Days::OfMonth && out.contains("LW") && out.split(',').any(|entry| entry == "L")
    {
        return Err(ScheduleError::new(
            at..at + entries.len(),
            "`L` and `LW` cannot be in the same list",
            "keep one of them",
        ));
    }
    Ok(out)
}

/// One entry of a list.
struct Entry<'a> {
    spec: &'a Spec,
    text: &'a str,
    at: usize,
}

impl Entry<'_> {
    fn error(&self, message: String, fix: String) -> ScheduleError {
        ScheduleError::new(self.at..self.at + self.text.len(), message, fix)
    }

    fn normalise(&self) -> Result<String, ScheduleError> {
        let Spec { name, min, max, days, .. } = *self.spec;
        if self.text.is_empty() {
            let message = "an entry of the list is empty";
            // The error points at the comma beside the missing entry.
            let range = self.at.saturating_sub(1)..self.at;
            return Err(ScheduleError::new(range, message, "remove the comma"));
        }
        if self.text == "*" {
            let message = format!("`*` in a list means every {name}");
            return Err(self.error(message, "write `*` alone, or only the list".into()));
        }
        let upper = self.text.to_ascii_uppercase();
        match days {
            Days::OfMonth if upper == "L" || upper == "LW" => return Ok(upper),
            Days::OfMonth if upper.ends_with('W') && upper.len() > 1 => {
                let day = self.part(0..self.text.len() - 1).number()?;
                return Ok(format!("{day}W"));
            }
            Days::OfWeek => {
                if let Some(nth) = self.nth_weekday(&upper)? {
                    return Ok(nth);
                }
            }
            Days::OfMonth | Days::No => {}
        }
        match self.text.split_once('/') {
            None if self.text.contains('-') => self.range(),
            None => Ok(self.number()?.to_string()),
            Some((base, step)) => {
                let step_at = base.len() + 1;
                let step_part = self.part(step_at..step_at + step.len());
                let base_part = self.part(0..base.len());
                let step: u32 = match step.parse() {
                    Ok(n) if step.bytes().all(|b| b.is_ascii_digit()) => n,
                    _ => {
                        let message = format!("`{step}` is not a step");
                        return Err(
                            step_part.error(message, "write a number after the slash".into())
                        );
                    }
                };
                if step == 0 {
                    return Err(step_part
                        .error("a step of 0 is not valid".into(), "write 1 or more".into()));
                }
                if step > max - min {
                    let message = format!("a step of {step} exceeds the last {name}, {max}");
                    let fix = format!("write `{min}` if only {name} {min} is meant");
                    return Err(step_part.error(message, fix));
                }
                if base == "*" {
                    return Ok(format!("*/{step}"));
                }
                if !base.contains('-') {
                    let message = format!("`{base}/{step}` has no range to step through");
                    let fix = format!("write `{base}-{max}/{step}`, or `*/{step}`");
                    return Err(self.error(message, fix));
                }
                Ok(format!("{}/{step}", base_part.range()?))
            }
        }
    }

    /// `5#2`, `MON-FRI#2`, `5L`, `5#L`; none: something else.
    fn nth_weekday(&self, upper: &str) -> Result<Option<String>, ScheduleError> {
        let (base, nth) = match upper.split_once('#') {
            Some((base, nth)) => (base, nth),
            None if upper.len() > 1 && upper.ends_with('L') => (&upper[..upper.len() - 1], "L"),
            None if upper == "L" => {
                return Err(self.error(
                    "`L` needs a weekday before it".into(),
                    "write `5L` for the last Friday of the month".into(),
                ));
            }
            None => return Ok(None),
        };
        if !matches!(nth, "1" | "2" | "3" | "4" | "5" | "L") {
            return Err(self.error(
                format!("`{nth}` is not an occurrence in a month"),
                "write 1 to 5, or L for the last".into(),
            ));
        }
        let base = self.part(0..base.len());
        let days = if base.text.contains('-') { base.range()? } else { base.number()?.to_string() };
        Ok(Some(format!("{days}#{nth}")))
    }

    fn part(&self, range: Range<usize>) -> Entry<'_> {
        Entry { spec: self.spec, text: &self.text[range.clone()], at: self.at + range.start }
    }

    fn range(&self) -> Result<String, ScheduleError> {
        let Spec { min, max, days, .. } = *self.spec;
        let (low, high) = self.text.split_once('-').unwrap_or((self.text, ""));
        if low.is_empty() || high.is_empty() || high.contains('-') {
            let message = format!("`{}` is not a range", self.text);
            return Err(self.error(message, format!("write it as `{min}-{max}`")));
        }
        let from = self.part(0..low.len()).number()?;
        let mut to = self.part(low.len() + 1..self.text.len()).number()?;
        if days == Days::OfWeek && to == 0 && from > 0 {
            // FRI-SUN: as the end of a range, Sunday is the seventh day.
            to = 7;
        }
        if from > to {
            let fix = format!("write `{from}-{max},{min}-{to}` to wrap around");
            return Err(self.error(format!("the range `{}` runs backwards", self.text), fix));
        }
        Ok(format!("{from}-{to}"))
    }

    /// A number or a name, checked against the bounds.
    fn number(&self) -> Result<u32, ScheduleError> {
        let Spec { name, min, max, names, names_from, .. } = *self.spec;
        let bounds = || {
            let named = match names {
                [first, .., last] => format!(", or {first} to {last}"),
                _ => String::new(),
            };
            format!("the {name} is {min} to {max}{named}")
        };
        if !self.text.is_empty() && self.text.bytes().all(|b| b.is_ascii_digit()) {
            return match self.text.parse::<u32>() {
                Ok(n) if (min..=max).contains(&n) => Ok(n),
                _ => Err(self.error(format!("`{}` is out of bounds", self.text), bounds())),
            };
        }
        let upper = self.text.to_ascii_uppercase();
        if let Some(index) = names.iter().position(|known| *known == upper) {
            return Ok(names_from + index as u32);
        }
        // MONDAY, Sept: the first three letters show the intended name.
        let fix = match names.iter().find(|known| upper.starts_with(**known)) {
            Some(known) => format!("write {known}"),
            None => bounds(),
        };
        Err(self.error(format!("`{}` is not a valid {name}", self.text), fix))
    }
}
