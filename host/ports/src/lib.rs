//! The services that the host depends on, as traits (ports).
//!
//! Adapters implement the traits, one conformance suite for each port checks that its adapters behave
//! alike, and only the command line (`besom::cli`), which assembles the host, names adapters.

pub mod activity;
pub mod compare;
pub mod coordination;
pub mod courier;
pub mod embedded;
pub mod guests;
pub mod history;
pub mod lines;
pub mod members;
pub mod shape;
pub mod store;
pub mod task;
pub mod undone;
