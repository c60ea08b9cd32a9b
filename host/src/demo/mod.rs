//! The demo: its data.
pub mod authors;
mod config;
mod document;
pub mod import;
pub mod log;
pub mod place;
mod rows;
pub mod seed;
pub mod table;
pub mod trace;
