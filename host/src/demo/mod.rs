//! The demo: its data.
pub mod authors;
mod document;
pub mod log;
mod rows;
pub mod seed;
pub mod trace;
