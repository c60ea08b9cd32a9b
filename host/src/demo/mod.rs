//! The demo: its data.
pub mod authors;
pub mod log;
pub mod trace;
