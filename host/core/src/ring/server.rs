//! The name of a server, and the order of servers.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a server or node. Names are ordered numerically: `server_2` comes before
/// `server_10`. The order decides which of two servers owns a point that both claim, and which
/// server a remainder means.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text before the number at the end, and the number. A number that does not fit is part of
    /// the text.
    fn parts(&self) -> (&str, Option<u64>) {
        let text = self.0.trim_end_matches(|c: char| c.is_ascii_digit());
        match self.0[text.len()..].parse() {
            Ok(number) => (text, Some(number)),
            Err(_) => (&self.0, None),
        }
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> NodeName {
        NodeName(name.into())
    }
}

impl From<String> for NodeName {
    fn from(name: String) -> NodeName {
        NodeName(name.into())
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AsRef<str> for NodeName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Ord for NodeName {
    fn cmp(&self, other: &NodeName) -> Ordering {
        // The whole text is compared last: `s1` and `s01` are different servers.
        self.parts().cmp(&other.parts()).then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for NodeName {
    fn partial_cmp(&self, other: &NodeName) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
