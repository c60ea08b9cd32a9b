//! One node: events in, commands out.
pub mod executor;
pub mod flight;
mod weight;
pub mod window;
