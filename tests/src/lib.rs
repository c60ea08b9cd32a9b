//! What Besom's suites share.

pub mod adapters;
pub mod conformance;
pub mod measured;
mod plugin;
pub mod servers;
pub mod sim;
pub mod site;
pub mod statements;

pub use plugin::{plugin, plugin_path};
