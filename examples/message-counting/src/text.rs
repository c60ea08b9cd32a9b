//! A text: a file, or lines that are made up, many of them more than once.

use std::path::Path;

use anyhow::{Context as _, Result};

const WORDS: [&str; 12] = [
    "the", "river", "house", "왔다", "night", "slowly", "and", "then", "a", "door", "비가",
    "opened",
];

/// The lines of a file, or so many that are made up.
pub(crate) fn lines(file: Option<&Path>, count: usize) -> Result<Vec<String>> {
    match file {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Ok(text.lines().take(count).map(str::to_owned).collect())
        }
        None => Ok((0..count).map(made_up).collect()),
    }
}

/// A third of the lines has two words, so they repeat; every tenth is empty.
fn made_up(number: usize) -> String {
    if number % 10 == 9 {
        return String::new();
    }
    let words = if number.is_multiple_of(3) { 2 } else { 9 };
    let mut seed = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let word = |_| {
        seed = seed.rotate_left(23).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        WORDS[usize::try_from(seed >> 32).unwrap_or(0) % WORDS.len()]
    };
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}
