//! Durations and sizes as written in the configuration: `250ms`, `30s`, `7d`, `64MiB`.

use std::time::Duration;

const UNITS: [(&str, u64); 6] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
];

const SIZES: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];

/// So many milliseconds, for the bounds of keys.
pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// So many seconds.
pub(super) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// So many days.
pub(super) const fn days(n: u64) -> Duration {
    Duration::from_secs(n * 86_400)
}

/// The fix for an invalid duration.
pub const SPAN_FIX: &str =
    "write an integer and a unit, such as \"250ms\", \"30s\", \"15m\", \"24h\" or \"7d\"";

/// The fix for an invalid size.
pub const SIZE_FIX: &str =
    "write a number of bytes, or an integer and a unit, such as \"64KiB\", \"16MiB\" or \"1GiB\"";

/// Parses a duration: one or more integers, each with a unit, the largest unit first (`1h30m`). `0` needs
/// no unit.
///
/// # Errors
/// A text that is not a duration, or one of more than 2^64 - 1 milliseconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a duration");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total, mut last) = (text, 0_u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..digits].parse().map_err(|_| wrong())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (_, factor) =
            UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).ok_or_else(wrong)?;
        rest = &rest[letters..];
        if *factor >= last {
            return Err(wrong());
        }
        last = *factor;
        total = number
            .checked_mul(*factor)
            .and_then(|n| total.checked_add(n))
            .ok_or_else(|| format!("`{text}` is too long"))?;
    }
    if last == u64::MAX {
        return Err(wrong());
    }
    Ok(Duration::from_millis(total))
}

/// Parses a duration on the command line; an error includes the fix in one line.
pub fn duration_argument(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|message| format!("{message}; {SPAN_FIX}"))
}

/// Parses a size in bytes: an integer, optionally with `B`, `KiB`, `MiB` or `GiB`.
///
/// # Errors
/// A text that is not a size, or one of more than 2^64 - 1 bytes.
pub fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is not a size");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = text[digits..].trim_start();
    let factor = match unit {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1,
    };
    number.checked_mul(factor).ok_or_else(wrong)
}

/// Formats a duration in the largest unit, up to days, that divides it.
pub fn show_duration(d: Duration) -> String {
    let ms = u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    // Weeks are not used, because "7d" is clearer for a retention than "1w".
    let (unit, factor) = UNITS[..5]
        .iter()
        .rev()
        .find(|(_, factor)| ms.is_multiple_of(*factor))
        .copied()
        .unwrap_or(UNITS[0]);
    format!("{}{unit}", ms / factor)
}

/// Formats a size in the largest unit that divides it.
pub fn show_bytes(n: u64) -> String {
    match SIZES[..3].iter().rev().find(|(_, factor)| n > 0 && n.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{}{unit}", n / factor),
        None => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_shown_in_the_largest_unit() {
        for (text, ms, shown) in [
            ("250ms", 250, "250ms"),
            ("30s", 30_000, "30s"),
            ("90s", 90_000, "90s"),
            ("60m", 3_600_000, "1h"),
            ("1h30m", 5_400_000, "90m"),
            ("2w", 14 * 86_400_000, "14d"),
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
        ] {
            let d = duration(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(
                (d, show_duration(d).as_str()),
                (Duration::from_millis(ms), shown),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_span_is_refused() {
        for text in [
            "",
            "s",
            "30",
            "30 s",
            "-1s",
            "1.5h",
            "30S",
            "1m1h",
            "1s1s",
            "99999999999999999w",
            "٣s",
        ] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_binary_and_exact() {
        for (text, n) in [("0", 0), ("4096", 4096), ("64KiB", 65536), ("16 MiB", 16 << 20)] {
            assert_eq!(bytes(text), Ok(n), "{text}");
        }
        for text in ["", "KiB", "64KB", "1.5GiB", "-1", "99999999999GiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(show_bytes(64 << 20), "64MiB");
        assert_eq!(show_bytes(1000), "1000");
    }
}
