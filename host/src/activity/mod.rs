//! Where the activity of things is kept. The port is [`crate::ports::activity`].

pub mod memory;
pub mod redis;
pub mod store;
