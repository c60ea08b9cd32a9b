//! Modes: how far a run of a task goes by itself.

use serde::{Deserialize, Serialize};

/// How far a run of a task goes by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A run shows what it would change, and commits nothing.
    Preview,
    /// What a run plans waits until a person approves it.
    Approve,
    /// What a run plans is executed.
    #[default]
    Live,
}

/// The words for the modes, in the order of [`Mode`].
pub const NAMES: &[&str] = &["preview", "approve", "live"];

impl Mode {
    /// The word for it, in the configuration, in JSON and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Preview => "preview",
            Mode::Approve => "approve",
            Mode::Live => "live",
        }
    }

    /// The mode with this word; none: there is no such mode.
    pub fn parse(word: &str) -> Option<Mode> {
        [Mode::Preview, Mode::Approve, Mode::Live].into_iter().find(|mode| mode.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_names_its_mode() {
        for name in NAMES {
            assert_eq!(Mode::parse(name).map(Mode::as_str), Some(*name));
        }
        assert_eq!(Mode::parse("LIVE"), None);
    }
}
