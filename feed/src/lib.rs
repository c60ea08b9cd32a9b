//! The consuming half of a feed of events: see docs/feed.md.

pub mod order;
