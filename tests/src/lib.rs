//! The shared parts of Besom's test suites: conformance cases, adapters as fixtures,
//! and real servers.

pub mod adapters;
pub mod conformance;
pub mod feed;
pub mod measured;
mod plugin;
pub mod refused_rows;
pub mod servers;
pub mod site;
pub mod statements;
pub mod undo_bytes;
pub mod undone_rows;
pub mod way;
pub mod whole_rows;

pub use plugin::{compiled, plugin, plugin_path};
