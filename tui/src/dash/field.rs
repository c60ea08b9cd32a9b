//! A single-line text input: the text and the cursor, without a terminal.

use super::key::{Code, Key};
use super::text;

/// The maximum number of characters; further input is ignored.
pub const FIELD_MAX: usize = 1_000;

/// A text field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Field {
    text: String,
    /// The insertion position, in bytes.
    cursor: usize,
}

impl Field {
    /// A field with a text, and the cursor at its end.
    pub fn with(text: impl Into<String>) -> Field {
        let text = text.into();
        Field { cursor: text.len(), text }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text before the cursor.
    pub fn before(&self) -> &str {
        &self.text[..self.cursor]
    }

    /// The text from the cursor on.
    pub fn after(&self) -> &str {
        &self.text[self.cursor..]
    }

    /// Whether it contains only blanks.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// Handles a key; false: the field does not use it.
    pub fn key(&mut self, key: Key) -> bool {
        let left = self.before().char_indices().next_back().map(|(at, _)| at);
        let right = self.after().chars().next().map(|c| self.cursor + c.len_utf8());
        match key.code {
            Code::Char(c) if !key.ctrl && !key.alt => self.insert(c.encode_utf8(&mut [0; 4])),
            Code::Char('u') if key.ctrl => {
                self.text.drain(..self.cursor);
                self.cursor = 0;
            }
            Code::Backspace => {
                if let Some(left) = left {
                    self.text.drain(left..self.cursor);
                    self.cursor = left;
                }
            }
            Code::Delete => {
                if let Some(right) = right {
                    self.text.drain(self.cursor..right);
                }
            }
            Code::Left => self.cursor = left.unwrap_or(0),
            Code::Right => self.cursor = right.unwrap_or(self.cursor),
            Code::Home => self.cursor = 0,
            Code::End => self.cursor = self.text.len(),
            _ => return false,
        }
        true
    }

    /// Inserts text at the cursor, sanitized and on one line; what exceeds the maximum is dropped.
    pub fn insert(&mut self, inserted: &str) {
        let room = FIELD_MAX.saturating_sub(self.text.chars().count());
        let line = inserted.trim_end_matches(['\r', '\n']).replace(['\r', '\n', '\t'], " ");
        let kept: String = text::clean(&line).chars().take(room).collect();
        self.text.insert_str(self.cursor, &kept);
        self.cursor += kept.len();
    }

    /// Moves the cursor before the character with this index.
    pub fn place(&mut self, chars: usize) {
        let place = self.text.char_indices().nth(chars).map(|(at, _)| at);
        self.cursor = place.unwrap_or(self.text.len());
    }
}
