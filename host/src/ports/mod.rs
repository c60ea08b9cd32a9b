//! What the host needs from outside, as traits. Adapters implement them, one conformance
//! suite holds every adapter to the same meaning, and only `main.rs` names adapters.

pub mod activity;
pub mod coordination;
pub mod courier;
pub mod embedded;
pub mod guests;
pub mod lines;
pub mod members;
pub mod store;
