//! The ends of items, as stored.

/// The word for a history row's outcome, which is stored as the number of its
/// [`End`](besom_core::books::End).
pub fn word(end: i64) -> &'static str {
    match end {
        1 => "committed",
        2 => "skipped",
        3 => "dead",
        _ => "discarded",
    }
}
