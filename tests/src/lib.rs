//! What Besom's suites share.

mod plugin;

pub use plugin::{plugin, plugin_path};
//! Besom.
pub mod sim;
