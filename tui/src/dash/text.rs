//! Text for people: sanitizes foreign text, cuts it by display width, and formats numbers and
//! durations compactly.

pub use besom_snapshot::span;
use std::borrow::Cow;
use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Combining marks allowed per character.
const MARKS_MAX: usize = 2;
/// Replaces what must not reach a terminal.
const HARMLESS: char = '�';

/// The replacement of a character; none: it is harmless.
pub(super) fn harmless(c: char) -> Option<char> {
    match c {
        // The Unicode pictures of control characters: an escape sequence is visible and has no
        // effect.
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)),
        '\u{7f}' => Some('\u{2421}'),
        '\u{80}'..='\u{9f}'
        // Characters without a width, or with one that terminals do not agree on.
        | '\u{ad}'
        | '\u{34f}'
        | '\u{115f}'..='\u{1160}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        // Line ends, and characters that change the text direction.
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{61c}'
        | '\u{3164}'
        | '\u{ffa0}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{feff}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => Some(HARMLESS),
        _ => None,
    }
}

/// Sanitizes a text: the result contains no control characters, no invisible characters and no
/// changes of direction.
pub fn clean(text: &str) -> Cow<'_, str> {
    let fine = |c: char| matches!(c, ' '..='~') || (harmless(c).is_none() && c.width() != Some(0));
    if text.chars().all(fine) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut marks = 0;
    for c in text.chars() {
        let c = harmless(c).unwrap_or(c);
        marks = if c.width() == Some(0) { marks + 1 } else { 0 };
        match marks {
            0 => out.push(c),
            // A mark needs a base character.
            _ if out.is_empty() => out.push(HARMLESS),
            n if n <= MARKS_MAX => out.push(c),
            _ => {}
        }
    }
    Cow::Owned(out)
}

/// Whether one of the texts contains what a filter requests, in any case; an empty filter passes everything.
pub fn passes<'t>(filter: &str, texts: impl IntoIterator<Item = &'t str>) -> bool {
    let wanted = filter.to_lowercase();
    wanted.is_empty() || texts.into_iter().any(|text| text.to_lowercase().contains(&wanted))
}

/// The display width of a sanitized text.
pub fn width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// Cuts a sanitized text to this many columns, with `…` if something was left out.
pub fn cut(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    if columns == 0 {
        return Cow::Borrowed("");
    }
    let mut taken = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        taken += c.width().unwrap_or(0);
        if taken > columns - 1 {
            break;
        }
        end = at + c.len_utf8();
    }
    Cow::Owned(format!("{}…", &text[..end]))
}

/// A duration in about five columns at most: `0s`, `42s`, `4m12`, `3h05`, `2d`.
pub fn short(span: Duration) -> String {
    let s = span.as_secs();
    match s {
        0..60 => format!("{s}s"),
        60..3_600 => format!("{}m{:02}", s / 60, s % 60),
        3_600..86_400 => format!("{}h{:02}", s / 3_600, s % 3_600 / 60),
        _ => format!("{}d", s / 86_400),
    }
}

/// A duration in microseconds: `90us`, `12ms`, `2.5s`, `1m00`.
pub fn took(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}us"),
        1_000..1_000_000 => format!("{}ms", us / 1_000),
        1_000_000..10_000_000 => format!("{:.1}s", us as f64 / 1e6),
        _ => short(Duration::from_micros(us)),
    }
}

/// Like [`took`], for a [`Duration`].
pub fn took_span(span: Duration) -> String {
    took(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// A whole number with thousands separators: `12,345`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A whole number in at most five columns: `999`, `12.3k`, `4.5M`.
pub fn count(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..1_000_000 => format!("{:.1}k", (n / 100) as f64 / 10.0),
        1_000_000..1_000_000_000 => format!("{:.1}M", (n / 100_000) as f64 / 10.0),
        _ => format!("{:.1}G", (n / 100_000_000) as f64 / 10.0),
    }
}

/// Bytes in few columns: `312 B`, `64 MiB`.
pub fn bytes(n: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = "B";
    for next in units {
        if value < 1_024.0 {
            break;
        }
        value /= 1_024.0;
        unit = next;
    }
    if unit == "B" || value >= 100.0 || value.fract() < 0.05 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

/// A rate in few columns: `0.4`, `12.5`, `1234`; `?` if unknown.
pub fn rate(per_second: Option<f64>) -> String {
    match per_second {
        None => "?".to_owned(),
        Some(rate) if rate.abs() < 99.95 => format!("{rate:.1}"),
        Some(rate) => count(rate.abs().round() as u64),
    }
}

/// The time of day in UTC: `14:03:27`.
pub fn clock(time: besom_core::time::Time) -> String {
    let s = time.0.div_euclid(1_000_000).rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", s / 3_600, s / 60 % 60, s % 60)
}

/// Shortens the instants in a text: the time of day for today, date and time of day for other days.
/// Microseconds are dropped.
pub fn times(text: &str, now: besom_core::time::Time) -> String {
    let (bytes, today) = (text.as_bytes(), now.to_string());
    let is_instant = |at: usize| {
        let shape = b"dddd-dd-ddTdd:dd:dd";
        bytes.get(at..at + shape.len()).is_some_and(|part| {
            let fits = |(byte, shape): (&u8, &u8)| match shape {
                b'd' => byte.is_ascii_digit(),
                other => byte == other,
            };
            part.iter().zip(shape).all(fits)
        })
    };
    let (mut out, mut taken, mut at) = (String::with_capacity(text.len()), 0, 0);
    while at < bytes.len() {
        let inside = at > taken && bytes[at - 1].is_ascii_alphanumeric();
        if inside || !is_instant(at) {
            at += 1;
            continue;
        }
        let fraction = match bytes.get(at + 19) {
            Some(b'.') => 1 + bytes[at + 20..].iter().take_while(|b| b.is_ascii_digit()).count(),
            _ => 0,
        };
        let end = at + 19 + fraction;
        if bytes.get(end) != Some(&b'Z') {
            at += 1;
            continue;
        }
        out.push_str(&text[taken..at]);
        if !today.starts_with(&text[at..at + 10]) {
            let year = if today.starts_with(&text[at..at + 4]) { 5 } else { 0 };
            out.push_str(&text[at + year..at + 10]);
            out.push(' ');
        }
        out.push_str(&text[at + 11..at + 19]);
        out.push('Z');
        (at, taken) = (end + 1, end + 1);
    }
    out.push_str(&text[taken..]);
    out
}

/// Breaks a text into lines of at most this many columns, at blanks if possible.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if columns == 0 {
        return lines;
    }
    for paragraph in text.lines() {
        let paragraph = clean(paragraph);
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let mut word = word;
            if !line.is_empty() && width(&line) + 1 + width(word) > columns {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            while width(&line) + width(word) > columns {
                let mut end = 0;
                let mut taken = width(&line);
                for (at, c) in word.char_indices() {
                    taken += c.width().unwrap_or(0);
                    if taken > columns {
                        break;
                    }
                    end = at + c.len_utf8();
                }
                // A character that is wider than the line is left out.
                let end =
                    if end == 0 { word.chars().next().map_or(0, char::len_utf8) } else { end };
                line.push_str(&word[..end]);
                word = &word[end..];
                lines.push(std::mem::take(&mut line));
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_hides_or_turns_around_becomes_a_harmless_sign() {
        for (foreign, expected) in [
            ("plain, größer, 漢字, 🧹", "plain, größer, 漢字, 🧹"),
            ("\x1b[2J", "␛[2J"),
            ("a\r\n\tb\0", "a␍␊␉b␀"),
            ("\x7f\u{9b}31m", "␡�31m"),
            ("\u{202e}evil\u{2066}", "�evil�"),
            ("a\u{200b}b\u{feff}\u{ad}", "a�b��"),
            ("\u{301}e\u{301}", "�e\u{301}"),
            ("e\u{301}\u{302}\u{303}\u{304}", "e\u{301}\u{302}"),
            ("\u{e0041}", "�"),
        ] {
            assert_eq!(clean(foreign), expected, "{foreign:?}");
        }
    }

    #[test]
    fn text_is_cut_by_the_columns_it_takes() {
        for (text, columns, expected) in [
            ("abc", 3, "abc"),
            ("abcd", 3, "ab…"),
            ("漢字", 4, "漢字"),
            ("漢字か", 4, "漢…"),
            ("abc", 1, "…"),
            ("abc", 0, ""),
        ] {
            let cut = cut(text, columns);
            assert_eq!(cut, expected, "{text} in {columns}");
            assert!(width(&cut) <= columns);
        }
    }

    #[test]
    fn lines_break_at_blanks_and_never_grow_too_wide() {
        for (text, columns, expected) in [
            ("one two three", 7, vec!["one two", "three"]),
            ("abcdefgh ij", 3, vec!["abc", "def", "gh", "ij"]),
            ("a\nb", 9, vec!["a", "b"]),
            ("漢字", 2, vec!["漢", "字"]),
            ("漢", 1, vec!["漢", ""]),
            ("a", 0, vec![]),
        ] {
            assert_eq!(wrap(text, columns), expected, "{text} in {columns}");
        }
    }

    #[test]
    fn spans_counts_and_rates_are_short() {
        let s = Duration::from_secs;
        for (span, expected) in
            [(0, "0s"), (59, "59s"), (252, "4m12"), (11_100, "3h05"), (200_000, "2d")]
        {
            assert_eq!(short(s(span)), expected);
        }
        for (n, expected) in [(999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(n), expected);
        }
        for (n, expected) in
            [(9_999, "9999"), (12_345, "12.3k"), (4_500_000, "4.5M"), (7_000_000_000, "7.0G")]
        {
            assert_eq!(count(n), expected);
        }
        for (n, expected) in [(312, "312 B"), (64 << 20, "64 MiB"), (1_536, "1.5 KiB")] {
            assert_eq!(bytes(n), expected);
        }
        for (n, expected) in
            [(None, "?"), (Some(0.04), "0.0"), (Some(12.34), "12.3"), (Some(1_234.0), "1234")]
        {
            assert_eq!(rate(n), expected);
        }
        for (us, expected) in
            [(90, "90us"), (12_000, "12ms"), (2_500_000, "2.5s"), (60_000_000, "1m00")]
        {
            assert_eq!(took(us), expected);
        }
    }
}
