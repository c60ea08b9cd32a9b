//! The services that the host depends on, as traits (ports).
//!
//! Adapters implement the traits, one conformance suite checks that all adapters behave alike, and
//! only the command line (`cli`), which assembles the host, names adapters.

pub mod activity;
pub mod coordination;
pub mod courier;
pub mod embedded;
pub mod guests;
pub mod lines;
pub mod members;
pub mod store;
pub mod task;
