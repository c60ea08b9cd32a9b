//! Adapters that keep activity. The port is [`besom_ports::activity`].

pub mod redis;
pub mod store;
