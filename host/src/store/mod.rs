//! The stores. The port is [`crate::ports::store`]; one conformance suite holds all of them
//! to its meaning.

pub mod memory;
pub mod postgres;
mod record;
pub mod sqlite;
