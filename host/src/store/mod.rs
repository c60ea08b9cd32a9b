//! The adapters of the store. The port is [`crate::ports::store`]; one conformance suite tests all
//! of them.

pub mod memory;
pub mod postgres;
mod record;
pub mod sqlite;
