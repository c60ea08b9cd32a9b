//! The demo: its data.
pub mod log;
pub mod trace;
