//! What a node cannot reach, as it is stored: for people, so what cannot be read is nothing.

use crate::ports::store::Missing;

/// As JSON.
pub fn pack(missing: &[Missing]) -> String {
    serde_json::to_string(missing).unwrap_or_default()
}

/// From JSON.
pub fn unpack(text: &str) -> Vec<Missing> {
    serde_json::from_str(text).unwrap_or_default()
}
