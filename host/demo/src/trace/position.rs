//! Converts between characters and UTF-16 code units.
//!
//! A trace counts Unicode characters, Yjs counts UTF-16 code units. They differ by one for every
//! character outside the Basic Multilingual Plane, so only those are recorded; a text without them
//! has no overhead.

use super::Patch;

/// The characters of a text that have two code units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WideCharacters {
    /// Their positions in characters, ascending.
    at: Vec<u32>,
}

impl WideCharacters {
    /// The wide characters of a text.
    pub(super) fn of(text: &str) -> WideCharacters {
        WideCharacters { at: wide(text).collect() }
    }

    /// The code units that a patch removes from a text of `units` code units.
    pub(super) fn range(&self, patch: &Patch, units: u32) -> Result<(u32, u32), String> {
        let length = units - self.at.len() as u32;
        match patch.position.checked_add(patch.deleted) {
            Some(end) if end <= length => Ok((self.units(patch.position), self.units(end))),
            _ => Err(format!(
                "it replaces {} characters at position {}, but the text has {length}",
                patch.deleted, patch.position
            )),
        }
    }

    /// The code unit at which the character at `position` begins.
    fn units(&self, position: u32) -> u32 {
        position + self.at.partition_point(|&at| at < position) as u32
    }

    /// Updates the positions after a replacement.
    pub(super) fn replace(&mut self, position: u32, deleted: u32, inserted: &str) {
        if self.at.is_empty() && inserted.is_ascii() {
            return;
        }
        let length = inserted.chars().count() as u32;
        let first = self.at.partition_point(|&at| at < position);
        let last = self.at.partition_point(|&at| at < position + deleted);
        for at in &mut self.at[last..] {
            *at = *at - deleted + length;
        }
        self.at.splice(first..last, wide(inserted).map(|at| at + position));
    }
}

fn wide(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.chars().enumerate().filter(|(_, c)| c.len_utf16() == 2).map(|(at, _)| at as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacements_keep_the_positions_of_wide_characters() {
        let mut text: Vec<char> = "a😀bé".chars().collect();
        let mut wide = WideCharacters::of("a😀bé");
        for (position, deleted, inserted) in
            [(0, 0, "𝄞x"), (2, 1, ""), (1, 2, "漢😀"), (0, 0, ""), (4, 1, "z😀😀"), (0, 3, "")]
        {
            wide.replace(position, deleted, inserted);
            let range = position as usize..(position + deleted) as usize;
            text.splice(range, inserted.chars());
            let text: String = text.iter().collect();
            assert_eq!(wide, WideCharacters::of(&text), "{text}");
            for (characters, (bytes, _)) in text.char_indices().enumerate() {
                let units = text[..bytes].encode_utf16().count();
                assert_eq!(wide.units(characters as u32), units as u32, "{text}");
            }
        }
    }
}
