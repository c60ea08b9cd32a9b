//! The stores. The port is [`crate::ports::store`]; one conformance suite holds all of them
//! to its meaning.

pub mod memory;
pub mod sqlite;
