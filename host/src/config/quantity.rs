//! Spans and sizes as people write them: `250ms`, `30s`, `7d`, `64MiB`.

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

/// How a span is written.
pub const SPAN_FIX: &str =
    "write a whole number and a unit, such as \"250ms\", \"30s\", \"15m\", \"24h\" or \"7d\"";

/// How a size is written.
pub const SIZE_FIX: &str =
    "write a whole number of bytes, or one with a unit, such as \"64KiB\", \"16MiB\" or \"1GiB\"";

/// A span: one or more whole numbers, each with a unit, the largest first (`1h30m`), in
/// whole milliseconds. `0` needs no unit.
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
            .ok_or_else(|| format!("`{text}` is longer than any clock"))?;
    }
    if last == u64::MAX {
        return Err(wrong());
    }
    Ok(Duration::from_millis(total))
}

/// A span of the command line: the same, with the fix in one line.
pub fn duration_argument(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|message| format!("{message}; {SPAN_FIX}"))
}

/// A number of bytes: a whole number, or one with `KiB`, `MiB` or `GiB`.
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

/// A span as it would be written: the largest unit that leaves no rest.
pub fn show_duration(d: Duration) -> String {
    let ms = u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    // Weeks are left out: "7d" says more about a retention than "1w".
    let (unit, factor) = UNITS[..5]
        .iter()
        .rev()
        .find(|(_, factor)| ms.is_multiple_of(*factor))
        .copied()
        .unwrap_or(UNITS[0]);
    format!("{}{unit}", ms / factor)
}

/// A size as it would be written.
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
