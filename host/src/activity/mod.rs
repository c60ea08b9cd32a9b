//! Adapters that keep activity. The port is [`crate::ports::activity`].

pub mod memory;
pub mod redis;
pub mod store;
